//! Many insiders, and what single frames of theirs do.

use super::super::Event;
use super::*;
use crate::proto::batch::Access;
use crate::proto::seal::work;
use crate::proto::wire::{HELLO, Hello, KIND_HELLO, MAX_ROW};
use am_core::transport::Departure;
use std::cell::RefCell;

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

/// Reaches the victim of a duel from within its handlers.
struct Reach<'a>(&'a RefCell<Duel>);

impl Access for Reach<'_> {
    fn with<R>(&mut self, work: impl FnOnce(&mut Machine, Instant) -> R) -> Option<R> {
        let duel = &mut *self.0.borrow_mut();
        Some(work(&mut duel.victim, duel.now))
    }
}

/// Handlers during which datagrams go on arriving, as a helper thread takes them in.
struct Meanwhile<'a>(&'a RefCell<Duel>);

impl Meanwhile<'_> {
    /// What happens while a handler runs.
    fn happen(&self) {
        let duel = &mut *self.0.borrow_mut();
        for _ in 0..duel.random.below(3) {
            match duel.random.below(12) {
                0..=8 => duel.forge(),
                9 => duel.carry(200),
                10 => {
                    duel.now = duel.now + Span::from_micros(duel.random.below(3000));
                    duel.victim.tick(duel.now);
                }
                // A launcher that tells of the insider's end, or the insider's next incarnation.
                _ if duel.random.chance(30) => {
                    duel.victim.declare(duel.now, INSIDER, PeerStatus::Lost(LossCause::Died))
                }
                _ if duel.random.chance(100) => {
                    let seed = duel.random.next_u64();
                    duel.insider = machine(INSIDER, seed, duel.insider.config().protection).0;
                    duel.kept[1].clear();
                    duel.insider.connect(duel.now, VICTIM);
                    duel.carry(0);
                }
                _ => {}
            }
        }
    }
}

impl Sink for Meanwhile<'_> {
    fn request(&mut self, arrival: Arrival<'_>, path: &mut dyn ReplyPath) {
        self.happen();
        let (mut random, mut kept) = {
            let duel = &mut *self.0.borrow_mut();
            (SplitMix64(duel.random.next_u64()), std::mem::take(&mut duel.kept[0]))
        };
        let mut delivered = 0;
        Handler { random: &mut random, kept: &mut kept, delivered: &mut delivered }.request(arrival, path);
        let duel = &mut *self.0.borrow_mut();
        duel.kept[0] = kept;
        duel.tally.delivered += delivered;
    }

    fn reply(&mut self, _: Arrival<'_>) {
        self.happen();
        self.0.borrow_mut().tally.delivered += 1;
    }

    fn control(&mut self, _: Peer, _: &Words, _: Payload<'_>) {
        self.happen();
    }
}

impl Duel {
    /// Delivers to the victim while more arrives between every two steps.
    fn serve_meanwhile(self, budget: usize) -> Self {
        let duel = RefCell::new(self);
        let (mut sink, mut reach) = (Meanwhile(&duel), Reach(&duel));
        let mut batch = duel.borrow().victim.new_batch();
        let mut count = 0;
        let release = |duel: &mut Self| duel.victim.release_held(duel.now);
        release(&mut duel.borrow_mut());
        while count < budget
            && reach.with(|machine, now| machine.take_batch(now, budget - count, &mut batch)) == Some(true)
        {
            sink.happen();
            count += batch.deliver(&mut sink, &mut reach);
            sink.happen();
            reach.with(|machine, now| machine.settle(now, &mut batch));
            let victim = &duel.borrow().victim;
            let sessions = victim.slots.iter().filter_map(|slot| slot.session.as_deref());
            let sessions = sessions.filter(|session| !session.traffic.retired);
            let sums =
                sessions.fold((0, 0), |(lent, aside), session| (lent + session.loan, aside + session.set_aside));
            assert_eq!(sums, (victim.shared.lent, victim.shared.set_aside));
        }
        duel.into_inner()
    }

    /// As [`Duel::round`], with handlers during which frames are forged.
    fn round_meanwhile(mut self, steps: u32) -> Self {
        self.connect();
        self.tally.sessions += 1;
        for _ in 0..steps {
            match self.random.below(8) {
                0..=1 => self.request(VICTIM, INSIDER),
                2..=4 => self.request(INSIDER, VICTIM),
                5 => self.forge(),
                6 => self.carry(200),
                _ => {
                    self.now = self.now + Span::from_micros(self.random.below(3000));
                    self.victim.tick(self.now);
                    self.insider.tick(self.now);
                }
            }
            let budget = self.random.below(8) as usize;
            self = self.serve_meanwhile(budget);
            if self.kept[0].len() > 8 {
                let key = self.kept[0].remove(0);
                self.victim.answer(self.now, key, |path| {
                    let _ = path.send(0, &Words::EMPTY, Body::None);
                });
            }
            if self.random.chance(300) {
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
        self
    }
}

#[test]
fn frames_between_taking_and_settling_break_nothing() {
    let mut sum = Tally::default();
    for seed in 0..1500 {
        let run = || Duel::new(seed, Protection::Encrypted).round_meanwhile(150).end();
        let tally = std::panic::catch_unwind(run).unwrap_or_else(|_| panic!("seed {seed} failed"));
        sum.forged += tally.forged;
        sum.faulty += tally.faulty;
        sum.delivered += tally.delivered;
    }
    assert!(sum.forged > 5000 && sum.faulty > 100 && sum.delivered > 3000, "{sum:?}");
}

/// A segment so large that no message can name its last bytes is no segment of this protocol.
#[test]
fn a_segment_beyond_all_places_is_refused() {
    for (bytes, taken) in [(MAX_VARINT, true), (MAX_VARINT + 1, false), (u64::MAX, false)] {
        let mut duel = Duel::new(2, Protection::Encrypted);
        let now = duel.now;
        let hello = |machine: &mut Machine, to: Peer| {
            machine.connect(now, to);
            let Machine { slots, shared, keyring, .. } = machine;
            slots[to.index()].next_hello(shared, keyring, now).unwrap()
        };
        let echo = hello(&mut duel.victim, INSIDER).token;
        let theirs = Hello { echo, segment: bytes, ..hello(&mut duel.insider, VICTIM) };
        let Machine { slots, shared, keyring, .. } = &mut duel.victim;
        slots[INSIDER.index()].on_hello(shared, keyring, &theirs, now);
        let session = duel.victim.session(INSIDER);
        assert_eq!(session.map(|session| session.peer_segment), taken.then_some(bytes));
        assert_eq!(duel.victim.status(INSIDER) == PeerStatus::Active, taken);
    }
}

/// The program is woken when a farewell has been held back for long enough.
#[test]
fn held_farewells_have_a_deadline() {
    let mut duel = Duel::new(1, Protection::Encrypted);
    duel.connect();
    duel.carry(0);
    duel.say(Frame::Leave(Leave { how: Departure::Left as u8, after: Some((2, 0)), ..Leave::default() }));
    duel.serve(VICTIM, 10);
    duel.carry(0);
    assert_eq!(duel.victim.status(INSIDER), PeerStatus::Active, "rank 2 may still say more");
    let until = duel.now + Span::from_millis(300);
    assert!(duel.victim.deadline().is_some_and(|at| at <= until));
    duel.now = until;
    assert!(duel.victim.wakes(until));
    duel.victim.tick(until);
    assert!(!duel.victim.wakes(until), "a program that does not poll is woken once");
    duel.serve(VICTIM, 10);
    assert_ne!(duel.victim.status(Peer(2)), PeerStatus::Active);
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

/// `cargo test --release -p active-messages-udp --lib hostile -- --ignored --nocapture`
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
        let head = RequestHeader::new(1, ReplyBound::None);
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

/// A farewell that waits for another peer's is judged anew when it is released: meanwhile its sender may have come
/// back and left with a word about a peer that the job does not have.
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
