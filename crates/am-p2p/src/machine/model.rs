//! Random programs on a random network, compared with what matching means: lists that are searched from their
//! beginning.

mod random;

pub(super) use random::{PrintsOnPanic, seeds};

use super::receive::MessageInfo;
use super::*;
use crate::config::Protocol;
use am_core::Payload;
use am_core::layer::Progress;
use am_core::transport::{Lent, LentFault};
use rand_pcg::Pcg32;
use rand_pcg::rand_core::{RngCore, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// What happens at a rank, in order.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    Posted(Key, Selector),
    Arrived(u32, Envelope),
    Cancelled(Key),
    SetAside(Key, Selector),
}

/// Names a message: its sender, its communicator and its number.
type Name = (u32, u32, u32);

#[derive(Debug)]
pub(super) enum Packet {
    Control(Control, Credit),
    Eager(Envelope, Credit, Vec<u8>),
    Part(Part, Vec<u8>, Option<u64>),
    Read(Read),
}

/// Packets of a link that may be under way, beside answers.
pub(super) const LINK: usize = 5;

pub(super) struct Network {
    ranks: usize,
    links: Vec<VecDeque<Packet>>,
    /// What senders lend, by their ranks and tickets.
    lent: BTreeMap<(u32, u32), Vec<u8>>,
    /// What the ranks' segments have of messages that are sent from there, and where a caller took it back.
    memory: Vec<Vec<u8>>,
    withdrawn: BTreeSet<(u32, u64)>,
    /// Ranks from this one on are the test's: what is copied to their segments goes nowhere.
    strangers: u32,
    /// Whether ranks see each other's segments as memory, and what they have copied there since the last delivery.
    pub(super) maps: bool,
    /// A rank that sees no other's.
    pub(super) blind: Option<u32>,
    pub(super) copied: Vec<(u32, u64, Vec<u8>)>,
}

impl Network {
    pub(super) fn link(&mut self, from: u32, to: u32) -> &mut VecDeque<Packet> {
        &mut self.links[from as usize * self.ranks + to as usize]
    }

    /// Puts bytes in a rank's segment; where they are.
    pub(super) fn lay(&mut self, rank: u32, bytes: &[u8]) -> u64 {
        let memory = &mut self.memory[rank as usize];
        memory.extend_from_slice(bytes);
        (memory.len() - bytes.len()) as u64
    }

    /// Bytes of a rank's segment, if they are still lent.
    fn placed(&self, from: u32, lent: &Lent, at: u64, len: usize) -> Option<&[u8]> {
        let there = !self.withdrawn.contains(&(from, lent.address));
        let start = usize::try_from(lent.address.checked_add(at)?).ok()?;
        self.memory[from as usize].get(start..start.checked_add(len)?).filter(|_| there)
    }
}

pub(super) struct Port<'a> {
    pub(super) network: &'a mut Network,
    pub(super) me: u32,
}

impl Port<'_> {
    fn put(&mut self, to: u32, packet: Packet) -> Result<(), Unsent<()>> {
        let link = self.network.link(self.me, to);
        if link.len() >= LINK {
            return Err(Unsent::Busy);
        }
        link.push_back(packet);
        Ok(())
    }
}

impl Wire for Port<'_> {
    type Error = ();

    fn control(&mut self, to: u32, control: &Control, credit: Credit) -> Result<(), Unsent<()>> {
        // As it travels.
        let (control, credit) = Control::decode(&control.encode(credit)).unwrap();
        self.put(to, Packet::Control(control, credit))
    }

    fn eager(&mut self, to: u32, envelope: &Envelope, credit: Credit, bytes: &[u8]) -> Result<(), Unsent<()>> {
        self.put(to, Packet::Eager(*envelope, credit, bytes.to_vec()))
    }

    fn part(&mut self, to: u32, part: &Part, bytes: &[u8], offset: Option<u64>) -> Result<(), Unsent<()>> {
        self.put(to, Packet::Part(Part::decode(part.encode()), bytes.to_vec(), offset))
    }

    fn read(&mut self, to: u32, read: &Read) -> Result<(), Unsent<()>> {
        self.put(to, Packet::Read(Read::decode(read.encode())))
    }

    fn read_lent(&mut self, from: u32, lent: &Source, at: u64, out: &mut [u8]) -> Result<(), LentFault> {
        let bytes = match lent {
            Source::Process(lent) => {
                let bytes = self.network.lent.get(&(from, lent.ticket));
                bytes.map(|bytes| &bytes[at as usize..][..out.len()])
            }
            Source::Segment(lent) => self.network.placed(from, lent, at, out.len()),
        };
        out.copy_from_slice(bytes.ok_or(LentFault::Withdrawn)?);
        Ok(())
    }

    fn read_own(&mut self, at: u64, out: &mut [u8]) {
        out.copy_from_slice(&self.network.memory[self.me as usize][at as usize..][..out.len()]);
    }

    fn maps(&self, _: u32) -> bool {
        self.network.maps && self.network.blind != Some(self.me)
    }

    fn copy_own(&mut self, from: Range<u64>, to: u32, offset: u64) -> bool {
        let bytes = self.network.memory[self.me as usize][from.start as usize..from.end as usize].to_vec();
        if to < self.network.strangers {
            self.network.copied.push((to, offset, bytes));
            return true;
        }
        offset.checked_add(from.end - from.start).is_some_and(|end| end <= SEGMENT + 64)
    }

    fn longest_part(&self, _: u32, placed: bool) -> u64 {
        if placed { 300 } else { 70 }
    }

    fn longest_read(&self, _: u32, placed: bool) -> u32 {
        if placed { 250 } else { 60 }
    }
}

/// A receive that the program waits for.
pub(super) struct Asked {
    pub(super) key: Key,
    capacity: u64,
    kind: u32,
    /// The message, if it was set aside before.
    aside: Option<Key>,
    /// Where the message goes in the segment, if its caller has memory there.
    own: Option<u64>,
}

#[derive(Default)]
pub(super) struct Rank {
    pub(super) segment: Vec<u8>,
    pub(super) asked: Vec<Asked>,
    /// What a blocking call receives, with the buffer.
    direct: Option<(Asked, Vec<u8>)>,
    /// Blocking calls so far.
    calls: u64,
    sends: Vec<Key>,
    /// What has been read in the memory of senders.
    read: BTreeMap<Key, Vec<u8>>,
    pub(super) lent: Vec<(Key, Vec<u8>)>,
    /// Messages from the segment whose callers wait, and where they are.
    placed: Vec<(Key, u64, usize)>,
    aside: Vec<Key>,
}

/// Bytes that a program gives to a message.
struct GivenBytes(Vec<u8>);

impl Given for GivenBytes {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// What a message consists of.
#[derive(Clone, Copy)]
struct Message {
    tag: u32,
    kind: u32,
    len: usize,
}

fn content(name: Name, len: usize) -> Vec<u8> {
    let mut random = Pcg32::seed_from_u64(u64::from(name.0) << 40 | u64::from(name.1) << 32 | u64::from(name.2));
    let mut bytes = vec![0; len];
    random.fill_bytes(&mut bytes);
    bytes
}

pub(super) struct Play {
    pub(super) random: Pcg32,
    ordered: bool,
    /// Ranks that send and receive at random; with a source alone where others break the protocol.
    programs: usize,
    /// Whether ranks see each other's segments.
    mapped: bool,
    /// Kept by whatever keeps memory for somebody who does not wait.
    owner: std::sync::Arc<()>,
    pub(super) network: Network,
    pub(super) machines: Vec<Machine>,
    pub(super) ranks: Vec<Rank>,
    /// The messages from a rank to another in a communicator.
    messages: BTreeMap<(u32, u32, u32), Vec<Message>>,
    /// What receives have brought.
    brought: BTreeMap<(u32, Key), (Asked, Taken, Vec<u8>)>,
    cancelled: BTreeSet<(u32, Key)>,
}

pub(super) const SEGMENT: u64 = 4096;
const LENS: [usize; 9] = [0, 1, 8, 63, 100, 101, 260, 700, 1500];
const INTS: u32 = 4 << 20 | 4;

impl Play {
    pub(super) fn new(seed: u64, ranks: usize, protocol: Protocol, ordered: bool) -> Self {
        let mut random = Pcg32::seed_from_u64(seed);
        let eager = [0, 100, 800][random.next_u32() as usize % 3];
        let unexpected = [0, 64 * 200][random.next_u32() as usize % 2];
        let staging = [0, 1024, SEGMENT][random.next_u32() as usize % 3];
        Self::with(
            random,
            ranks,
            MessageConfig { protocol, eager, unexpected, staging, lent_cost: u32::MAX },
            ordered,
        )
    }

    pub(super) fn with(random: Pcg32, ranks: usize, config: MessageConfig, ordered: bool) -> Self {
        let machine = |_| {
            let mut machine = Machine::new(config);
            machine.set_up(ranks as u32, 1000, ordered, Some(Block { offset: 64, len: config.staging }));
            machine
        };
        let rank = |_| Rank { segment: vec![0; SEGMENT as usize + 64], ..Default::default() };
        Self {
            random,
            ordered,
            programs: ranks,
            network: Network {
                ranks,
                links: (0..ranks * ranks).map(|_| VecDeque::new()).collect(),
                lent: BTreeMap::new(),
                memory: vec![Vec::new(); ranks],
                withdrawn: BTreeSet::new(),
                strangers: ranks as u32,
                maps: false,
                blind: None,
                copied: Vec::new(),
            },
            mapped: false,
            owner: std::sync::Arc::default(),
            machines: (0..ranks).map(machine).collect(),
            ranks: (0..ranks).map(rank).collect(),
            messages: BTreeMap::new(),
            brought: BTreeMap::new(),
            cancelled: BTreeSet::new(),
        }
    }

    /// Ranks that read each other's memory.
    pub(super) fn near(mut self) -> Self {
        for machine in &mut self.machines {
            // To some messages are written that they could read.
            let written = self.random.next_u32().is_multiple_of(3);
            machine.note_copies(if written { Copies::Written } else { Copies::Read });
            (0..self.ranks.len() as u32).for_each(|rank| machine.note_access(rank, true));
        }
        (self.mapped, self.network.maps) = (true, true);
        self
    }

    /// Two ranks that play, and others that the test speaks for. Two seeds in three have all of them see each
    /// other's memory.
    pub(super) fn among_others(seed: u64, ranks: usize, protocol: Protocol) -> Self {
        let mut play = Self { programs: 2, ..Self::new(seed, ranks, protocol, true) };
        play.network.strangers = 2;
        if seed.is_multiple_of(3) { play } else { play.near() }
    }

    /// Two ranks for a test of its own.
    pub(super) fn pair(unexpected: u64) -> Self {
        Self::pair_with(Protocol::Elided, unexpected)
    }

    /// The same, by a protocol.
    pub(super) fn pair_with(protocol: Protocol, unexpected: u64) -> Self {
        let config = MessageConfig { protocol, eager: 10, unexpected, staging: SEGMENT, lent_cost: u32::MAX };
        Self::with(Pcg32::seed_from_u64(0), 2, config, true)
    }

    /// Sends bytes of a length from rank 0 to rank 1.
    pub(super) fn send_one(&mut self, tag: u32, len: usize) -> Key {
        let envelope = Envelope { context: 0, tag, sequence: 0, kind: BYTES };
        self.machines[0].begin(1, envelope, Mode::Standard, vec![7; len])
    }

    /// Posts a receive of rank 1 for a message of rank 0.
    pub(super) fn post_one(&mut self, tag: u32, capacity: u64) -> Key {
        self.machines[1].post(Selector { context: 0, source: 0, tag }, BYTES, capacity)
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.random.next_u32() as usize % limit
    }

    fn send(&mut self, me: u32) {
        let (to, context, tag) = (self.below(self.programs) as u32, self.below(2) as u32, self.below(3) as u32);
        let (len, kind) = (LENS[self.below(LENS.len())], [BYTES, INTS][self.below(2)]);
        let sent = self.messages.entry((me, to, context)).or_default();
        let name = (me, context, sent.len() as u32);
        sent.push(Message { tag, kind, len });
        let bytes = content(name, len);
        let envelope = Envelope { context, tag, sequence: 0, kind };
        let mode = if self.below(6) == 0 { Mode::Synchronous } else { Mode::Standard };
        let (lend, placed) = (self.below(3) == 0, self.below(3) == 0);
        let (machine, rank) = (&mut self.machines[me as usize], &mut self.ranks[me as usize]);
        if mode == Mode::Standard
            && let Some((envelope, credit)) = machine.begin_eager(to, envelope, len)
        {
            let mut port = Port { network: &mut self.network, me };
            if port.eager(to, &envelope, credit, &bytes).is_err() {
                rank.sends.push(machine.postpone(to, envelope, &bytes));
            }
            return;
        }
        if placed && len as u64 > machine.eager {
            let at = self.network.lay(me, &bytes);
            let lent = (self.mapped && machine.reads_segments()).then_some(Source::owned(at));
            let key = machine.begin_placed((to, envelope, mode), (at, len as u64), lent);
            rank.placed.push((key, at, len));
        } else if lend && machine.config.protocol != Protocol::Read && len as u64 > machine.eager {
            let loan = machine.lend(to, &bytes);
            rank.lent.push((machine.begin_lent(to, envelope, mode, len as u64, loan.as_ref()), bytes));
        } else if self.random.next_u32().is_multiple_of(2) {
            rank.sends.push(machine.begin_given(to, envelope, mode, Box::new(GivenBytes(bytes))));
        } else {
            rank.sends.push(machine.begin(to, envelope, mode, bytes));
        }
    }

    fn selector(&mut self) -> Selector {
        let context = self.below(2) as u32;
        let alone = self.programs == self.ranks.len();
        let source = if self.below(4) == 0 && alone { ANY } else { self.below(self.programs) as u32 };
        let tag = if self.below(5) == 0 { ANY } else { self.below(3) as u32 };
        Selector { context, source, tag }
    }

    fn post(&mut self, me: u32, selector: Selector, capacity: u64, kind: u32) {
        let own = if capacity < 10_000 && self.below(3) == 0 { Some(self.target(me, capacity)) } else { None };
        let machine = &mut self.machines[me as usize];
        let key = match own {
            Some(at) => machine.post_placed(selector, kind, capacity, at),
            None => machine.post(selector, kind, capacity),
        };
        self.ranks[me as usize].asked.push(Asked { key, capacity, kind, aside: None, own });
    }

    /// Memory of a rank's segment that no message has used.
    pub(super) fn target(&mut self, me: u32, len: u64) -> u64 {
        let segment = &mut self.ranks[me as usize].segment;
        let at = segment.len();
        segment.resize(at + len as usize, 0);
        at as u64
    }

    /// One thing that a rank's program does.
    pub(super) fn act(&mut self, me: u32) {
        let at = me as usize;
        if self.ranks[at].direct.is_some() {
            return;
        }
        if self.below(3) == 0 {
            let selector = self.selector();
            let (capacity, kind) = ([2000, 64][self.below(2)], [BYTES, INTS][self.below(2)]);
            if self.machines[at].begin_direct(selector, kind, capacity) {
                let asked = Asked { key: super::direct::DIRECT, capacity, kind, aside: None, own: None };
                self.ranks[at].direct = Some((asked, vec![0; capacity as usize]));
                return;
            }
        }
        match self.below(12) {
            0..=3 => self.send(me),
            4..=7 => {
                let (selector, capacity) = (self.selector(), [2000, 2000, 2000, 64, u64::MAX][self.below(5)]);
                let kind = [BYTES, BYTES, INTS][self.below(3)];
                self.post(me, selector, capacity, kind);
            }
            8 => {
                let selector = self.selector();
                let seen = self.machines[at].probe(selector);
                if let Some(message) = self.machines[at].set_aside(selector) {
                    assert_eq!(self.machines[at].info(message), seen);
                    self.ranks[at].aside.push(message);
                }
            }
            9 if !self.ranks[at].aside.is_empty() => {
                let index = self.below(self.ranks[at].aside.len());
                let message = self.ranks[at].aside.swap_remove(index);
                if self.below(4) == 0 {
                    self.machines[at].drop_aside(message);
                    return;
                }
                let own = if self.below(2) == 0 { Some(self.target(me, 2000)) } else { None };
                if let Some(key) = self.machines[at].receive_aside(message, BYTES, 2000, own) {
                    let asked = Asked { key, capacity: 2000, kind: BYTES, aside: Some(message), own };
                    self.ranks[at].asked.push(asked);
                }
            }
            10 if !self.ranks[at].asked.is_empty() => {
                let index = self.below(self.ranks[at].asked.len());
                if self.below(4) == 0 {
                    let asked = self.ranks[at].asked.swap_remove(index);
                    if asked.own.is_some() {
                        let keep = Keep::new(std::sync::Arc::clone(&self.owner));
                        self.machines[at].keep_receive(asked.key, keep);
                    } else {
                        self.machines[at].drop_receive(asked.key);
                    }
                } else {
                    let key = self.ranks[at].asked[index].key;
                    self.machines[at].cancel(key);
                }
            }
            11 if !self.ranks[at].lent.is_empty() => {
                let index = self.below(self.ranks[at].lent.len());
                let (key, bytes) = self.ranks[at].lent.swap_remove(index);
                self.machines[at].adopt(key, &bytes);
                self.machines[at].drop_send(key);
            }
            11 if !self.ranks[at].placed.is_empty() => {
                let index = self.below(self.ranks[at].placed.len());
                let (key, offset, len) = self.ranks[at].placed.swap_remove(index);
                if self.below(2) == 0 {
                    let keep = Keep::new(std::sync::Arc::clone(&self.owner));
                    return self.machines[at].keep_send(key, keep);
                }
                // Its call ends, and the memory is used for something else.
                self.network.withdrawn.insert((me, offset));
                let memory = &mut self.network.memory[at][offset as usize..][..len];
                self.machines[at].adopt(key, memory);
                memory.fill(0xee);
                self.machines[at].drop_send(key);
            }
            _ => {}
        }
    }

    /// Reads what the senders of messages lend, or lets it wait.
    fn read(&mut self, me: u32) {
        for index in 0..self.ranks[me as usize].asked.len() {
            let key = self.ranks[me as usize].asked[index].key;
            let Some(Readable { from, len, lent }) = self.machines[me as usize].readable(key) else { continue };
            if self.below(8) != 0 {
                continue;
            }
            let bytes = match &lent {
                Source::Process(lent) => self.lent_by(from, lent),
                Source::Segment(lent) => self.network.placed(from, lent, 0, len as usize).map(<[u8]>::to_vec),
            };
            let machine = &mut self.machines[me as usize];
            machine.begin_reading(key);
            let Some(bytes) = bytes else {
                machine.cannot_read(key, false);
                continue;
            };
            assert_eq!(bytes.len() as u64, len);
            self.ranks[me as usize].read.insert(key, bytes);
            if let Some((to, ack, credit)) = machine.has_read(key) {
                let mut port = Port { network: &mut self.network, me };
                if port.control(to, &ack, credit).is_err() {
                    machine.send_later(to, ack);
                }
            }
        }
    }

    /// What a rank lends so, if it still does.
    fn lent_by(&self, from: u32, lent: &Lent) -> Option<Vec<u8>> {
        self.machines[from as usize].lent_message(lent).map(|(send, owned)| match owned {
            Some(bytes) => bytes.to_vec(),
            None => {
                let theirs = self.ranks[from as usize].lent.iter().find(|(key, _)| *key == send);
                theirs.expect("its caller waits").1.clone()
            }
        })
    }

    /// Takes what is over, and sends what can be.
    pub(super) fn advance(&mut self, me: u32) -> bool {
        self.read(me);
        self.network.lent.clear();
        for (from, lent) in self.machines[me as usize].lent_to_receives() {
            self.network.lent.extend(self.lent_by(from, &lent).map(|bytes| ((from, lent.ticket), bytes)));
        }
        let (machine, rank) = (&mut self.machines[me as usize], &mut self.ranks[me as usize]);
        let mut port = Port { network: &mut self.network, me };
        let mut done = machine.advance(&mut port).unwrap() == Progress::Advanced;
        rank.lent.retain(|(key, bytes)| {
            if machine.granted(*key) {
                let (mut room, near) = (true, port.network.maps);
                while let Some(next) = machine.next_part(*key, near, |to, placed| port.longest_part(to, placed)) {
                    room = port.part(next.to, &next.part, &bytes[next.bytes.clone()], next.offset).is_ok();
                    if !room {
                        break;
                    }
                    machine.part_sent(*key, next.bytes.end);
                }
                if room {
                    machine.written(*key);
                    done = true;
                }
            }
            machine.take_sent(*key).map(Result::unwrap).is_none()
        });
        rank.sends.retain(|key| machine.take_sent(*key).map(Result::unwrap).is_none());
        rank.placed.retain(|(key, ..)| machine.take_sent(*key).map(Result::unwrap).is_none());
        if let Some((mut asked, mut out)) = rank.direct.take() {
            match machine.take_direct(&mut out) {
                Found::Nothing => rank.direct = Some((asked, out)),
                Found::Posted(key) => {
                    asked.key = key;
                    rank.asked.push(asked);
                }
                Found::Message(info, failure) => {
                    // No other receive is called so.
                    rank.calls += 1;
                    asked.key = Key::from_u64(u64::MAX - rank.calls);
                    machine.name_direct(asked.key);
                    out.truncate(info.len as usize);
                    let (bytes, cancelled) = (Vec::new(), false);
                    let taken = Taken {
                        info,
                        met: true,
                        cancelled,
                        failure,
                        bytes,
                        staged: None,
                        place: None,
                        landed: false,
                        timed: false,
                    };
                    self.brought.insert((me, asked.key), (asked, taken, out));
                    done = true;
                }
            }
        }
        for index in (0..rank.asked.len()).rev() {
            let Some(mut taken) = machine.take_received(rank.asked[index].key) else { continue };
            let asked = rank.asked.swap_remove(index);
            let staged = taken.staged.map(|block| block.offset).or(asked.own.filter(|_| taken.landed));
            let bytes = match staged {
                Some(offset) => rank.segment[offset as usize..][..taken.info.len as usize].to_vec(),
                None => match &taken.place {
                    Some(place) => place.bytes().to_vec(),
                    None => rank.read.remove(&asked.key).unwrap_or_else(|| std::mem::take(&mut taken.bytes)),
                },
            };
            taken.staged.into_iter().for_each(|block| machine.release(block));
            if taken.cancelled {
                self.cancelled.insert((me, asked.key));
            } else {
                self.brought.insert((me, asked.key), (asked, taken, bytes));
            }
            done = true;
        }
        done
    }

    /// Delivers a packet of a link.
    pub(super) fn deliver(&mut self, from: u32, to: u32) -> bool {
        let waiting = self.network.link(from, to).len();
        if waiting == 0 {
            return false;
        }
        let index = if self.ordered { 0 } else { self.below(waiting) };
        let packet = self.network.link(from, to).remove(index).unwrap();
        for (to, offset, bytes) in self.network.copied.drain(..) {
            self.ranks[to as usize].segment[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
        let (machine, segment) = (&mut self.machines[to as usize], &mut self.ranks[to as usize].segment);
        match packet {
            Packet::Control(control, credit) => machine.on_control(from, control, credit),
            Packet::Eager(envelope, credit, bytes) => match Word::of(&bytes) {
                Some(word) => machine.on_word(from, envelope, credit, word),
                None => machine.on_eager(from, envelope, credit, &Payload::own(&bytes)),
            },
            Packet::Part(part, bytes, Some(offset)) => {
                segment[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
                machine.on_part(from, &part, &Payload::own(&bytes).placed_at(offset));
            }
            Packet::Part(part, bytes, None) => machine.on_part(from, &part, &Payload::own(&bytes)),
            Packet::Read(Read { send, receive, at, len, offset }) => {
                let bytes = match machine.read(from, send, at, len).expect("a message is there until it is read") {
                    Stored::Here(bytes) => bytes.to_vec(),
                    Stored::Placed(at) => self.network.memory[to as usize][at as usize..][..len as usize].to_vec(),
                };
                let answer = Packet::Part(Part { receive, at, envelope: None, copied: 0 }, bytes, offset);
                self.network.link(to, from).push_back(answer);
            }
        }
        true
    }

    /// Lets everything happen that can.
    pub(super) fn settle(&mut self) {
        let ranks = self.ranks.len() as u32;
        let mut rest = 0;
        while rest < 3 {
            let mut done = false;
            for (from, to) in (0..ranks * ranks).map(|link| (link / ranks, link % ranks)) {
                while self.deliver(from, to) {
                    done = true;
                }
                done |= self.advance(to);
            }
            rest = if done { 0 } else { rest + 1 };
        }
    }

    /// Receives and cancels all that is left.
    pub(super) fn end(&mut self) {
        self.machines.iter_mut().for_each(Machine::post_direct);
        for rank in 0..self.ranks.len() {
            for (key, bytes) in std::mem::take(&mut self.ranks[rank].lent) {
                self.machines[rank].adopt(key, &bytes);
                self.ranks[rank].sends.push(key);
            }
            let placed = std::mem::take(&mut self.ranks[rank].placed);
            self.ranks[rank].sends.extend(placed.into_iter().map(|(key, ..)| key));
            for message in std::mem::take(&mut self.ranks[rank].aside) {
                self.machines[rank].drop_aside(message);
            }
        }
        self.settle();
        for _ in 0..2000 {
            let mut more = false;
            let alone = self.programs == self.ranks.len();
            let sources = if alone { vec![ANY] } else { (0..self.programs as u32).collect() };
            let places = (0..self.programs).flat_map(|rank| [(rank, 0), (rank, 1)]);
            for (rank, context, source) in
                places.flat_map(|(rank, context)| sources.iter().map(move |source| (rank, context, *source)))
            {
                let all = Selector { context, source, tag: ANY };
                while self.machines[rank].probe(all).is_some() {
                    self.post(rank as u32, all, 2000, BYTES);
                    more = true;
                }
            }
            self.settle();
            if !more {
                break;
            }
        }
        for rank in 0..self.ranks.len() {
            let keys: Vec<Key> = self.ranks[rank].asked.iter().map(|asked| asked.key).collect();
            for key in keys {
                self.machines[rank].cancel(key);
            }
        }
        self.settle();
    }

    /// Compares what the receives of a rank have brought with what they have to.
    pub(super) fn check(&self, me: u32) {
        let history = &self.machines[me as usize].history;
        let matches = |selector: &Selector, (from, envelope): &(u32, Envelope)| {
            let Selector { context, source, tag } = *selector;
            context == envelope.context && [ANY, *from].contains(&source) && [ANY, envelope.tag].contains(&tag)
        };
        let (mut posted, mut waiting) = (Vec::<(Key, Selector)>::new(), Vec::<(u32, Envelope)>::new());
        let (mut met, mut aside) = (BTreeMap::new(), BTreeMap::new());
        let mut next = BTreeMap::<(u32, u32), u32>::new();
        let (theirs, mut others) = (|rank: u32| rank as usize >= self.programs, BTreeSet::new());
        for event in history {
            match event {
                // What others than those that play have sent, or were to send.
                Event::Posted(key, selector) if selector.source != ANY && theirs(selector.source) => {
                    others.insert(*key);
                }
                Event::Cancelled(key) if others.contains(key) => {}
                Event::Arrived(from, _) if theirs(*from) => {}
                Event::Posted(key, selector) => match waiting.iter().position(|sent| matches(selector, sent)) {
                    Some(index) => drop(met.insert(*key, waiting.remove(index))),
                    None => posted.push((*key, *selector)),
                },
                Event::Arrived(from, envelope) => {
                    let next = next.entry((*from, envelope.context)).or_default();
                    assert_eq!(envelope.sequence, *next, "messages of a pair are looked at in order");
                    *next += 1;
                    let sent = (*from, *envelope);
                    match posted.iter().position(|(_, selector)| matches(selector, &sent)) {
                        Some(index) => drop(met.insert(posted.remove(index).0, sent)),
                        None => waiting.push(sent),
                    }
                }
                Event::Cancelled(key) => {
                    let index = posted.iter().position(|(other, _)| other == key);
                    posted.remove(index.expect("a receive without a message is cancelled"));
                }
                Event::SetAside(key, selector) => {
                    let index = waiting.iter().position(|sent| matches(selector, sent));
                    aside.insert(*key, waiting.remove(index.expect("the message is there")));
                }
            }
        }
        assert!(posted.is_empty() && waiting.is_empty(), "all has been received or cancelled");
        for ((rank, key), (asked, taken, bytes)) in &self.brought {
            if *rank != me {
                continue;
            }
            let (from, envelope) = asked.aside.map_or_else(|| met[key], |message| aside[&message]);
            let message = self.messages[&(from, me, envelope.context)][envelope.sequence as usize];
            let info = MessageInfo { from, tag: message.tag, len: message.len as u64, kind: message.kind };
            assert_eq!((taken.info, envelope.tag), (info, message.tag));
            let failure = if asked.kind != BYTES && asked.kind != message.kind {
                Some(Failure::WrongType(message.kind))
            } else {
                (message.len as u64 > asked.capacity).then_some(Failure::Truncated)
            };
            assert_eq!(taken.failure, failure);
            if failure.is_none() {
                assert!(
                    *bytes == content((from, envelope.context, envelope.sequence), message.len),
                    "other bytes: {info:?}"
                );
            }
        }
        for (_, key) in self.cancelled.iter().filter(|(rank, _)| *rank == me) {
            assert!(!met.contains_key(key));
        }
    }
}
