//! A peer that knows the keys and breaks the protocol: every frame is authentic, and its numbers are taken from
//! the state of the machine that receives it, at and around every limit, or from a fuzzer.

#[cfg(test)]
mod limits;
#[cfg(test)]
mod shares;
#[cfg(test)]
mod tests;

use super::OwnSegment;
use super::bytes::{MAX_VARINT, Writer};
use super::config::{Config, Protection, ProtocolConfig, Secrets};
use super::machine::Machine;
use super::message::{Kind, MAX_HEADER, Message};
use super::session::Session;
use super::wire::{AckRanges, Credit, Frame, HEADER, Header, Leave, TAG, encode_ack};
use crate::fuzzing::Choices;
use crate::sim::{self, SplitMix64};
use am_core::arguments::Words;
use am_core::transport::{
    Arrival, Body, LossCause, PeerStatus, PendingKey, ReplyBound, ReplyPath, RequestHeader, Sink,
};
use am_core::{Instant, Payload, Peer, Shape, Span};

const VICTIM: Peer = Peer(0);
const INSIDER: Peer = Peer(1);
const SEGMENT: usize = 8192;
const DATAGRAM: usize = 1452;

/// A handler's part: replies, in any form, or later, or not.
struct Handler<'a> {
    random: &'a mut SplitMix64,
    kept: &'a mut Vec<PendingKey>,
    delivered: &'a mut u64,
}

impl Sink for Handler<'_> {
    fn request(&mut self, _: Arrival<'_>, path: &mut dyn ReplyPath) {
        *self.delivered += 1;
        let (bound, words) = (path.bound(), Words::from_slice(&[1, 2]).unwrap());
        match self.random.below(6) {
            0 => path.send(0, &words, Body::None).unwrap(),
            1 => {
                let len = self.random.below(bound as u64 + 1) as usize;
                path.send(0, &words, Body::Copy(&vec![3; len])).unwrap();
            }
            2 => {
                let len = self.random.below(path.segment_len().min(600) + 1);
                path.send(0, &words, Body::Place(&vec![4; len as usize], path.segment_len() - len)).unwrap();
            }
            3 if self.kept.len() < 64 => self.kept.push(path.detach()),
            _ => {}
        }
    }

    fn reply(&mut self, _: Arrival<'_>) {
        *self.delivered += 1;
    }

    fn control(&mut self, _: Peer, _: &Words, _: Payload<'_>) {
        *self.delivered += 1;
    }
}

/// What a run of sessions saw.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    forged: u64,
    taken: u64,
    faulty: u64,
    sessions: u64,
    delivered: u64,
}

/// The machine under attack, and one that speaks the protocol with it until frames are forged in its name.
struct Duel {
    random: SplitMix64,
    now: Instant,
    victim: Machine,
    insider: Machine,
    kept: [Vec<PendingKey>; 2],
    /// How many numbers out of 1000 are not what an honest peer would say.
    wild: u32,
    tally: Tally,
}

/// Small buffers: every limit is near.
fn config(me: Peer, seed: u64, protection: Protection) -> Config {
    let mut incarnation = [me.0 as u8; 32];
    incarnation[..8].copy_from_slice(&seed.to_le_bytes());
    let mut config = Config::new(Shape::new(3), me, Secrets { job: vec![5; 32], incarnation });
    config.protection = protection;
    config.rejoin = true;
    config.medium = 1024;
    (config.send_queue, config.send_budget, config.bulk_queue) = (4096, 4096, 4096);
    (config.receive_budget, config.reply_window, config.reply_budget) = (6144, 2400, 2400);
    config
}

fn machine(me: Peer, seed: u64, protection: Protection) -> (Machine, OwnSegment) {
    sim::machine(config(me, seed, protection), SEGMENT).unwrap()
}

impl Duel {
    fn new(seed: u64, protection: Protection) -> Self {
        let (victim, insider) = (machine(VICTIM, seed, protection).0, machine(INSIDER, seed, protection).0);
        let (random, now) = (SplitMix64(seed), Instant(0));
        let wild = [3, 10, 40, 300][(seed / 4 % 4) as usize];
        Self { random, now, victim, insider, kept: Default::default(), wild, tally: Tally::default() }
    }

    fn peer(&mut self, peer: Peer) -> &mut Machine {
        if peer == VICTIM { &mut self.victim } else { &mut self.insider }
    }

    /// Carries what both want to send; a part of it is lost.
    fn carry(&mut self, loss: u32) {
        let mut buffer = vec![0; DATAGRAM];
        for _ in 0..8 {
            for (from, to) in [(VICTIM, INSIDER), (INSIDER, VICTIM)] {
                let now = self.now;
                while let Some((_, len)) = self.peer(from).transmit(now, &mut buffer) {
                    if !self.random.chance(loss) {
                        let _ = self.peer(to).handle(now, &mut buffer[..len]);
                    }
                }
            }
        }
    }

    fn serve(&mut self, peer: Peer, budget: usize) {
        let (machine, kept) = match peer {
            VICTIM => (&mut self.victim, &mut self.kept[0]),
            _ => (&mut self.insider, &mut self.kept[1]),
        };
        let mut handler = Handler { random: &mut self.random, kept, delivered: &mut self.tally.delivered };
        machine.poll(self.now, budget, &mut handler);
        if kept.len() > 8 {
            let key = kept.remove(0);
            machine.answer(self.now, key, |path| {
                let _ = path.send(0, &Words::EMPTY, Body::None);
            });
        }
    }

    fn request(&mut self, from: Peer, to: Peer) {
        let (now, len) = (self.now, self.random.below(1025) as usize);
        let reply = match self.random.below(3) {
            0 => ReplyBound::None,
            _ => ReplyBound::UpTo(self.random.below(1025) as u32),
        };
        let (head, words) = (RequestHeader::new(1, reply), Words::from_slice(&[7]).unwrap());
        let choice = self.random.below(4);
        let machine = self.peer(from);
        let payload = vec![9; len];
        // Refusals are part of the game.
        let _ = match choice {
            0 if machine.is_connected(to) => machine
                .long(now, to, head, &words, len as u64, (SEGMENT - len) as u64)
                .map(|()| while machine.push(to, &payload).is_ok_and(|pushed| pushed > 0) {}),
            1 => machine.request(now, to, head, &words, Some(&payload)),
            _ => machine.request(now, to, head, &words, None),
        };
    }

    /// A number of a frame: mostly the honest one, since what is wrong in the first place hides what is wrong in
    /// the second.
    fn number(&mut self, honest: u64) -> u64 {
        if self.random.chance(self.wild) { self.limit() } else { honest.min(MAX_VARINT) }
    }

    /// A number at or near something that matters to the victim.
    fn limit(&mut self) -> u64 {
        let shared = &self.victim.shared;
        let mut known = vec![0, 1, u64::MAX, 1 << 62, 1 << 61, 1 << 32, 1 << 16, SEGMENT as u64, 1024, 1025];
        known.extend([shared.base, shared.lendable, shared.lent, shared.set_aside, 2400, 4096]);
        known.extend(shared.queued);
        if let Some(session) = self.victim.session(INSIDER) {
            let traffic = &session.traffic;
            for (out, incoming) in traffic.out.iter().zip(&traffic.incoming) {
                known.extend([out.fifo.start(), out.sent(), out.fifo.end()]);
                known.extend([incoming.fifo.start(), incoming.ready, incoming.fifo.end()]);
            }
            for (out, incoming) in traffic.bulk_out.iter().zip(&traffic.bulk_in) {
                let bytes = &out.bytes;
                known.extend([bytes.fifo.start(), bytes.sent(), bytes.fifo.end(), incoming.ready, out.missing()]);
            }
            for Credit { limit, requests, bare, bare_bytes, replies, payloads } in
                [session.told, session.granted, session.reported]
            {
                known.extend([limit, requests, bare, bare_bytes, replies, payloads]);
            }
            known.extend([session.wanted, session.loan, session.set_aside, session.owed, session.mine]);
            known.extend([session.recovery.next_number(), session.theirs]);
        }
        let pick = |random: &mut SplitMix64| known[random.below(known.len() as u64) as usize];
        let (a, b) = (pick(&mut self.random), pick(&mut self.random));
        let number = match self.random.below(10) {
            0..=3 => a,
            4 => a.wrapping_add(1),
            5 => a.wrapping_sub(1),
            6 => a.wrapping_add(b),
            7 => a.wrapping_sub(b),
            8 => a.min(b) + self.random.below(a.abs_diff(b).max(1)),
            _ => self.random.next_u64() >> self.random.below(64),
        };
        number & MAX_VARINT
    }

    /// Some messages as they may stand in a lane.
    fn messages(&mut self, lane: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        let session = self.victim.session(INSIDER);
        let (mut aside, mut owed) = session.map_or((0, 0), |session| (session.set_aside, session.owed));
        for _ in 0..1 + self.random.below(3) {
            let len = self.random.below(64);
            let end = session_end(self.victim.session(INSIDER), lane);
            let kind = match self.random.below(if lane == 0 { 5 } else { 4 }) {
                0..=1 => Kind::Short,
                2 => Kind::Medium { len: self.number(len) },
                3 => Kind::Long { len: self.number(len), at: self.number(100), end: self.number(end) },
                _ => Kind::Control { len: self.number(len) },
            };
            // A reply gives back what was set aside for it; a request asks for what there is room for.
            let room = match lane {
                0 if self.random.chance(300) => 0,
                0 => self.random.below(300).min(2400u64.saturating_sub(owed + MAX_HEADER as u64)),
                _ => (aside + 1).saturating_sub(MAX_HEADER as u64).min(100),
            };
            if lane == 1 && room <= 64 && !self.random.chance(self.wild) {
                break;
            }
            (owed, aside) = (owed + super::message::cost_of(room), aside.saturating_sub(room + MAX_HEADER as u64));
            let words: Vec<u32> = (0..self.random.below(17)).map(|_| self.random.next_u64() as u32).collect();
            let mut header = [0; MAX_HEADER];
            let message = Message { kind, handler: self.random.next_u64() as u8, room: self.number(room) };
            let len = message.encode(&Words::from_slice(&words).unwrap(), &mut header);
            bytes.extend_from_slice(&header[..len]);
            bytes.resize(bytes.len() + message.payload().min(64) as usize, 6);
        }
        if self.random.chance(self.wild) && !bytes.is_empty() {
            let at = self.random.below(bytes.len() as u64) as usize;
            bytes[at] = self.random.next_u64() as u8;
        }
        bytes
    }

    /// One frame of any kind; seldom a second acknowledgement.
    fn frame(&mut self, out: &mut Writer<'_>, acked: &mut bool) -> Option<()> {
        let session = self.victim.session(INSIDER)?;
        let (told, sent) = (session.told, session.traffic.out[0].sent());
        let (next, aside) = (session.recovery.next_number(), session.set_aside);
        match self.random.below(16) {
            0 => Frame::Ping.encode(out),
            1 => Frame::Padding.encode(out),
            2..=3 if *acked && !self.random.chance(self.wild) => Frame::Ping.encode(out),
            2..=3 => {
                *acked = true;
                let mut ranges = AckRanges::EMPTY;
                let newest = next.checked_sub(1 + self.random.below(6))?;
                let mut last = self.number(newest);
                for _ in 0..1 + self.random.below(4) {
                    let first = last.saturating_sub(self.random.below(4));
                    ranges.push(first, last);
                    let Some(next) = first.checked_sub(2 + self.random.below(4)) else { break };
                    last = next;
                }
                encode_ack(out, self.number(500), ranges.iter())
            }
            4..=7 => {
                let requests = told.requests + self.random.below(sent.saturating_sub(told.requests) + 1);
                let back = self.random.below(aside / 4 + 1);
                Frame::Credit(Credit {
                    limit: self.number(told.limit + back),
                    requests: self.number(requests),
                    bare: self.number(told.bare + 1),
                    bare_bytes: self.number(told.bare_bytes + back),
                    replies: self.number(told.replies),
                    payloads: self.number(told.payloads),
                })
                .encode(out)
            }
            8 => Frame::Want(self.limit()).encode(out),
            9 if self.random.chance(100) => {
                let kind = |duel: &mut Self| duel.number(0).min(4) as u8;
                let after = self.random.chance(500).then(|| (self.number(2) as u32, kind(self)));
                let [a, b, c, d] = [0; 4].map(|honest| self.number(honest));
                let how = if self.random.chance(self.wild) { 3 } else { self.random.below(3) as u8 };
                Frame::Leave(Leave { how, requests: a, replies: b, payloads: [c, d], after }).encode(out)
            }
            10 if self.random.chance(self.wild) => {
                (0..self.random.below(20)).try_for_each(|_| out.u8(self.random.next_u64() as u8))
            }
            choice => {
                let stream = (choice % 4) as u8;
                let lane = usize::from(stream & 1);
                let data = match stream {
                    0 | 1 => self.messages(lane),
                    _ => vec![8; self.random.below(200) as usize],
                };
                let traffic = &self.victim.session(INSIDER)?.traffic;
                let ready = if stream < 2 { traffic.incoming[lane].ready } else { traffic.bulk_in[lane].ready };
                // A gap now and then, and bytes that are there already.
                let skew = if stream < 2 { 0 } else { self.random.below(100) };
                let offset = self.number(ready + skew);
                let at = if stream < 2 { 0 } else { self.number(500) };
                Frame::Stream { stream, offset, at, data: &data }.encode(out)
            }
        }
    }

    /// Seals frames in the insider's name and hands them to the victim.
    fn forge(&mut self) {
        let mut datagram = vec![0; DATAGRAM];
        let mut writer = Writer::new(&mut datagram[HEADER..DATAGRAM - TAG]);
        let mut acked = false;
        for _ in 0..1 + self.random.below(3) {
            let _ = self.frame(&mut writer, &mut acked);
        }
        let body = writer.len();
        self.deliver(&mut datagram, body);
    }

    /// Returns a copy of what was sealed.
    fn deliver(&mut self, datagram: &mut [u8], body: usize) -> Vec<u8> {
        let protection = self.insider.shared.config.protection;
        let Some(session) = self.insider.slots[VICTIM.index()].session.as_deref_mut() else { return Vec::new() };
        let tag = if protection == Protection::Unauthenticated { 0 } else { TAG };
        let number = session.recovery.next_number();
        let (epoch, length) = (session.seal.epoch, (HEADER + body + tag) as u16);
        let header = Header { mode: protection as u8, epoch, sender: INSIDER.0, number, length };
        datagram[..HEADER].copy_from_slice(&header.encode());
        let len = session.seal.seal(protection, number, datagram, HEADER + body);
        session.recovery.on_sent(self.now, len, None);
        self.tally.forged += 1;
        let sealed = datagram[..len].to_vec();
        self.tally.taken += u64::from(self.victim.handle(self.now, &mut datagram[..len]).is_ok());
        sealed
    }

    fn connect(&mut self) {
        for _ in 0..50 {
            self.victim.connect(self.now, INSIDER);
            self.insider.connect(self.now, VICTIM);
            self.carry(0);
            if self.victim.is_connected(INSIDER) && self.insider.is_connected(VICTIM) {
                return;
            }
            self.now = self.now + Span::from_millis(600);
            self.victim.tick(self.now);
            self.insider.tick(self.now);
        }
        panic!("the two have found each other within half a minute");
    }

    fn check(&mut self) {
        let ProtocolConfig { receive_budget, send_budget, reply_budget, bulk_queue, medium, .. } =
            self.victim.config().protocol;
        // Every queue ends within a page, and the message that fills a queue may exceed it.
        let pages = 2048 * 40;
        let most = receive_budget + send_budget + 4 * reply_budget + 2 * bulk_queue + 4 * medium + pages;
        let used = self.victim.buffer_bytes_used();
        assert!(used <= most as usize, "{used} bytes of buffers are in use, and {most} are the most");
    }

    /// Everything that was counted for the insider comes back when it is gone.
    fn end(mut self) -> Tally {
        self.victim.declare(self.now, INSIDER, PeerStatus::Lost(LossCause::Died));
        self.victim.slots[INSIDER.index()].end(&mut self.victim.shared, PeerStatus::Lost(LossCause::Died));
        let shared = &self.victim.shared;
        assert_eq!((shared.queued, shared.set_aside, shared.lent, shared.borrowers), ([0; 2], 0, 0, 0));
        assert!(shared.waiting.is_empty());
        assert_eq!(self.victim.buffer_bytes_used(), 0);
        self.tally
    }
}

/// Where the payloads of Long messages of a lane end so far.
fn session_end(session: Option<&Session>, lane: usize) -> u64 {
    session.map_or(0, |session| session.traffic.bulk_in[lane].ready)
}

/// A session in which one side's frames are the fuzzer's own or made of its numbers, between honest ones of both.
/// Returns how many datagrams were taken.
pub fn authentic(data: &[u8]) -> u64 {
    let mut choices = Choices(data);
    let how = choices.byte();
    let protection =
        [Protection::Unauthenticated, Protection::PlainText, Protection::Encrypted][usize::from(how % 3)];
    let mut duel = Duel::new(u64::from(how), protection);
    duel.connect();
    while !choices.is_empty() && duel.victim.session(INSIDER).is_some() {
        match choices.byte() % 8 {
            0..=2 => {
                let mut datagram = vec![0; DATAGRAM];
                let len = choices.below(DATAGRAM - HEADER - TAG + 1);
                let frames = choices.take(len);
                datagram[HEADER..HEADER + frames.len()].copy_from_slice(frames);
                duel.deliver(&mut datagram, frames.len());
            }
            3 => {
                (duel.random, duel.wild) = (SplitMix64(choices.number()), u32::from(choices.byte()));
                duel.forge();
            }
            4 => duel.request(VICTIM, INSIDER),
            5 => duel.carry(200),
            6 => {
                duel.now = duel.now + Span::from_micros(choices.below(3000) as u64);
                duel.victim.tick(duel.now);
                duel.insider.tick(duel.now);
            }
            _ => duel.serve(INSIDER, 4),
        }
        duel.serve(VICTIM, 4);
        duel.check();
        while duel.victim.next_event().is_some() {}
    }
    duel.end().taken
}
