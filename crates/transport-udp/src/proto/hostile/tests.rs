//! Many insiders, and what single frames of theirs do.

use super::super::Event;
use super::*;
use crate::proto::seal::work;
use crate::proto::wire::{HELLO, KIND_HELLO, MAX_ROW};
use am_core::transport::Departure;

impl Duel {
    /// Honest and forged traffic in turns, until the insider is lost; returns whether it was.
    fn round(&mut self, steps: u32) {
        self.connect();
        self.tally.sessions += 1;
        for _ in 0..steps {
            match self.random.below(8) {
                0..=2 => self.request(VICTIM, INSIDER),
                3 if self.wild == 10 => self.request(INSIDER, VICTIM),
                3..=5 => self.forge(),
                6 => self.carry(200),
                _ => {
                    self.now = self.now + Span::from_micros(self.random.below(3000));
                    self.victim.tick(self.now);
                    self.insider.tick(self.now);
                }
            }
            let budget = self.random.below(4) as usize;
            self.serve(VICTIM, budget);
            if self.random.chance(200) {
                self.serve(INSIDER, budget);
            }
            self.check();
            while let Some(event) = self.victim.next_event() {
                self.tally.faulty += u64::from(event == Event::Lost(INSIDER, LossCause::Faulty));
            }
            if self.victim.session(INSIDER).is_none() {
                break;
            }
        }
    }

    /// Forges a datagram of one frame.
    fn say(&mut self, frame: Frame<'_>) {
        let mut datagram = vec![0; DATAGRAM];
        let mut writer = Writer::new(&mut datagram[HEADER..DATAGRAM - TAG]);
        frame.encode(&mut writer).unwrap();
        let body = writer.len();
        self.deliver(&mut datagram, body);
    }
}

fn duel(seed: u64) -> Tally {
    let protection = match seed % 4 {
        0 => Protection::Unauthenticated,
        1 => Protection::PlainText,
        _ => Protection::Encrypted,
    };
    let mut duel = Duel::new(seed, protection);
    for round in 0..4 {
        // Those that were lost as faulty stay lost; others come back.
        if duel.victim.status(INSIDER) != PeerStatus::Active {
            break;
        }
        // What is forged makes the victim look faulty to the machine in whose name it is forged.
        if duel.insider.status(VICTIM) != PeerStatus::Active || duel.random.chance(300) {
            duel.insider = machine(INSIDER, seed ^ round << 32, protection).0;
            duel.kept[1].clear();
        }
        duel.round(150);
    }
    duel.end()
}

fn duels(seeds: std::ops::Range<u64>) -> Tally {
    let mut sum = Tally::default();
    for seed in seeds {
        let tally = std::panic::catch_unwind(|| duel(seed)).unwrap_or_else(|_| panic!("seed {seed} failed"));
        sum.forged += tally.forged;
        sum.taken += tally.taken;
        sum.faulty += tally.faulty;
        sum.sessions += tally.sessions;
        sum.delivered += tally.delivered;
    }
    sum
}

#[test]
fn authentic_nonsense_breaks_nothing() {
    let tally = duels(0..2000);
    assert!(tally.taken > 2000 && tally.faulty > 100 && tally.delivered > 2000, "{tally:?}");
}

/// `cargo test --release -p transport-udp --lib hostile -- --ignored --nocapture`
#[test]
#[ignore = "the full profile takes minutes"]
fn many_insiders() {
    println!("{:?}", duels(1000..41_000));
}

/// Bytes that are accepted and wait for room at the peer cannot have been handled there.
#[test]
fn credit_beyond_what_was_sent_is_a_fault() {
    for beyond in [1, u64::MAX] {
        let mut duel = Duel::new(1, Protection::Encrypted);
        duel.connect();
        let head = Head { handler: 1, reply: ReplyBound::None };
        let full = |duel: &mut Duel| duel.victim.request(duel.now, INSIDER, head, &Words::EMPTY, Some(&[0; 500]));
        while full(&mut duel).is_ok() {
            duel.carry(0);
        }
        let out = &duel.victim.session(INSIDER).unwrap().traffic.out[0];
        let (sent, end) = (out.sent(), out.fifo.end());
        assert!(sent < end, "the peer's window holds something back");
        let told = duel.victim.session(INSIDER).unwrap().told;
        let requests = sent.saturating_add(beyond).min(end);
        duel.say(Frame::Credit(Credit { requests: sent, ..told }));
        assert_eq!(duel.victim.status(INSIDER), PeerStatus::Active, "what was sent may have been handled");
        duel.say(Frame::Credit(Credit { requests, limit: told.limit + (1 << 30), ..told }));
        assert_eq!(duel.victim.status(INSIDER), PeerStatus::Lost(LossCause::Faulty));
        duel.carry(0);
        duel.end();
    }
}

/// Whatever a stranger sends, alone or as a row, at most as many bytes of it are authenticated as have come: a
/// forged Hello, which the key of the job has to check, costs what random bytes with the name of a session cost,
/// or less.
#[test]
fn forged_bytes_cost_no_more_than_random_ones() {
    let mut duel = Duel::new(2, Protection::Encrypted);
    duel.connect();
    let session = duel.victim.session(INSIDER).unwrap();
    let (epoch, mode) = (session.open.epoch, Protection::Encrypted as u8);
    let hello = |duel: &mut Duel| {
        let mut bytes = [0; HELLO];
        bytes.fill_with(|| duel.random.next_u64() as u8);
        bytes[..12].copy_from_slice(&[KIND_HELLO, 3, 1, 0, INSIDER.0 as u8, 0, 0, 0, VICTIM.0 as u8, 0, 0, 0]);
        bytes.to_vec()
    };
    let data = |duel: &mut Duel, len: usize| {
        let mut bytes: Vec<u8> = (0..len).map(|_| duel.random.next_u64() as u8).collect();
        let number = 1 << 40 | duel.random.below(1 << 20);
        let header = Header { mode, epoch, sender: INSIDER.0, number, length: len as u16 };
        bytes[..HEADER].copy_from_slice(&header.encode());
        bytes
    };
    let cost = |duel: &mut Duel, mut bytes: Vec<u8>| {
        work::take();
        assert_eq!(duel.victim.handle_row(duel.now, &mut bytes), 0);
        work::take()
    };
    for _ in 0..200 {
        let (forged, random) = (hello(&mut duel), data(&mut duel, HELLO));
        assert_eq!((cost(&mut duel, forged), cost(&mut duel, random)), (HELLO, HELLO));
        let row: Vec<u8> = (0..1 + duel.random.below(600)).flat_map(|_| hello(&mut duel)).collect();
        assert_eq!(cost(&mut duel, row), HELLO, "one Hello of a row");
        let len = HEADER + TAG + duel.random.below(100) as usize;
        let row: Vec<u8> = (0..1 + duel.random.below(600)).flat_map(|_| data(&mut duel, len)).collect();
        let most = row.len().min(MAX_ROW * len);
        assert_eq!(cost(&mut duel, row), most, "a row's worth of others");
    }
}

/// A datagram that is not taken as a whole is not remembered, so copies of it are taken again and again: they keep
/// nobody alive.
#[test]
fn scattered_datagrams_keep_nobody_alive() {
    let mut duel = Duel::new(2, Protection::Encrypted);
    duel.connect();
    for gap in 0..300 {
        duel.say(Frame::Stream { stream: 2, offset: 2 * gap + 1, at: 0, data: &[1] });
    }
    let mut copy = vec![0; DATAGRAM];
    let frame = Frame::Stream { stream: 2, offset: 5001, at: 0, data: &[1] };
    let mut writer = Writer::new(&mut copy[HEADER..DATAGRAM - TAG]);
    frame.encode(&mut writer).unwrap();
    let body = writer.len();
    let before = duel.victim.counters().received;
    let copy = duel.deliver(&mut copy, body);
    for _ in 0..40 {
        let mut buffer = vec![0; DATAGRAM];
        while duel.victim.transmit(duel.now, &mut buffer).is_some() {}
        duel.now = duel.now + Span::from_millis(600);
        let _ = duel.victim.handle(duel.now, &mut copy.clone());
        duel.victim.tick(duel.now);
    }
    let taken = duel.victim.counters().received - before;
    assert!(taken > 15, "{taken} copies were taken");
    assert_eq!(duel.victim.status(INSIDER), PeerStatus::Active, "with rejoin it may come back");
    assert!(duel.victim.session(INSIDER).is_none(), "it was silent");
}

/// A farewell that was held back is replaced by one that names the machine that it is said to, or its own sender.
#[test]
fn a_held_farewell_ends_neither_side() {
    for named in [VICTIM, INSIDER] {
        let mut duel = Duel::new(2, Protection::Encrypted);
        duel.connect();
        let leave = |first: Peer| Leave {
            how: Departure::Left as u8,
            after: Some((first.0, Departure::Panicked as u8)),
            ..Leave::default()
        };
        duel.say(Frame::Leave(leave(Peer(2))));
        duel.serve(VICTIM, 4);
        duel.insider = machine(INSIDER, 77, Protection::Encrypted).0;
        duel.insider.connect(duel.now, VICTIM);
        for _ in 0..20 {
            duel.carry(0);
            duel.now = duel.now + Span::from_millis(5);
            duel.insider.tick(duel.now);
        }
        duel.say(Frame::Leave(leave(named)));
        for _ in 0..2 {
            duel.serve(VICTIM, 4);
            duel.now = duel.now + Span::from_secs(1);
        }
        assert_eq!(duel.victim.status(INSIDER), PeerStatus::Lost(LossCause::Left), "it said {named:?}");
        assert_eq!(duel.victim.status(VICTIM), PeerStatus::Active, "it said {named:?}");
    }
}

/// A farewell that waits for another peer's is judged anew when it is released: meanwhile its sender may have come back and
/// left with a word about a peer that the job does not have.
#[test]
fn a_farewell_may_name_nobody() {
    let mut duel = Duel::new(2, Protection::Encrypted);
    duel.connect();
    let leave = |first| Leave { how: Departure::Left as u8, after: Some((first, 0)), ..Leave::default() };
    duel.say(Frame::Leave(leave(2)));
    duel.serve(VICTIM, 4);
    assert_eq!(duel.victim.status(INSIDER), PeerStatus::Active, "it waits for what rank 2 says");
    duel.insider = machine(INSIDER, 77, Protection::Encrypted).0;
    duel.insider.connect(duel.now, VICTIM);
    for _ in 0..20 {
        duel.carry(0);
        duel.now = duel.now + Span::from_millis(5);
        duel.insider.tick(duel.now);
    }
    assert!(duel.insider.is_connected(VICTIM));
    duel.say(Frame::Leave(leave(u32::MAX)));
    duel.serve(VICTIM, 4);
    assert_eq!(duel.victim.status(INSIDER), PeerStatus::Lost(LossCause::Left));
}
