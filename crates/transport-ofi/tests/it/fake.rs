//! A network in memory that misbehaves as providers may: it refuses calls, is late, reorders; and, as a mutation
//! that tests have to notice, as no provider may. It is strict: a message that finds no slot on offer is an
//! overrun, as with a provider that does not manage its resources.

use am_core::{Peer, Segment, Shape, Span};
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use transport_ofi::wire::{Event, Failure, Fault, Operation, Receipt, Sizes, Wire};
use transport_ofi::{Conduit, OfiMemory, Settings};

/// The kind of a bundle, in byte 12 of its header.
const BUNDLE: u8 = 16;

/// Random numbers from a seed (xorshift).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True so many times in a hundred.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// What no provider may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    None,
    /// A write is done, and nobody is told.
    LostCompletion,
    /// A write is told to be done before its bytes are there.
    DataAfterMessage,
    LostMessage,
    DoubledMessage,
    /// A message of nobody in this job, and one of bytes that make no sense.
    Strays,
    /// A slot for several messages is never given back.
    KeptSlot,
    /// Not the network's: what is sent becomes a bundle that ends within its header.
    CutBundle,
    /// Not the network's: the first endpoint takes the window for three times as wide as the others do.
    Flood,
}

/// What a network does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    pub(crate) seed: u64,
    /// Calls in a hundred that are refused.
    pub(crate) again: u64,
    /// Operations in a hundred that a poll does not carry on.
    pub(crate) late: u64,
    pub(crate) reorder: bool,
    /// Operations in a hundred that fail: those with a number by their number, injected messages by none.
    pub(crate) failing: u64,
    /// An endpoint that has stopped: nothing towards it goes on, and little is accepted.
    pub(crate) stopped: Option<u32>,
    /// One stream from endpoint to endpoint: what is written waits for the messages before it, and these for
    /// slots, of which there are few. So a provider manages its resources.
    pub(crate) streams: bool,
    /// Two slots, each of which takes several messages. So a provider manages its resources.
    pub(crate) several: bool,
    /// The system copies to segments at once, mostly.
    pub(crate) places: bool,
    /// Milliseconds that a departure may take.
    pub(crate) linger: u64,
    /// Milliseconds for which frames may be missing at a peer.
    pub(crate) backoff: u64,
    pub(crate) mutation: Mutation,
}

impl Faults {
    pub(crate) const fn none(seed: u64) -> Self {
        let (failing, stopped, streams, several, places) = (0, None, false, false, false);
        let (linger, backoff, mutation) = (2000, 1, Mutation::None);
        Self {
            seed,
            again: 0,
            late: 0,
            reorder: false,
            failing,
            stopped,
            streams,
            several,
            places,
            linger,
            backoff,
            mutation,
        }
    }

    pub(crate) fn drawn(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let (again, late) = (random.below(60), random.below(60));
        let reorder = random.percent(70);
        let (several, places) = (random.percent(40), random.percent(30));
        Self { again, late, reorder, several, places, ..Self::none(seed) }
    }
}

/// What endpoints share.
struct Node {
    inbox: VecDeque<Vec<u8>>,
    segment: Segment<OfiMemory>,
    open: bool,
    /// Its process was killed: what is sent there fails.
    dead: bool,
    /// Messages of nobody in this job that were put into its inbox.
    strays: u64,
    /// So many injected messages to it fail.
    failing: u32,
    /// Messages that it has sent, and to whom.
    sent: u32,
    partners: BTreeSet<u32>,
    /// Writes that it has started.
    written: u32,
}

/// A network of fake ports.
#[derive(Clone)]
pub(crate) struct Network {
    nodes: Arc<Mutex<Vec<Node>>>,
}

enum Work {
    Send { to: u32, bytes: Vec<u8>, buffer: Option<u32> },
    Write { to: u32, bytes: Vec<u8>, buffer: u32, at: u64 },
    Read { to: u32, len: usize, buffer: u32, at: u64 },
}

/// One endpoint's wire.
pub(crate) struct FakePort {
    me: u32,
    network: Network,
    faults: Faults,
    random: Random,
    sizes: Sizes,
    buffers: Vec<Vec<u8>>,
    lent: Vec<bool>,
    slots: Vec<Vec<u8>>,
    offered: VecDeque<u32>,
    /// By slot: bytes that were put there since it was offered.
    filled: Vec<usize>,
    work: VecDeque<Work>,
    /// Bytes that are told to be there, and are not.
    late: Vec<Work>,
    mutations: u32,
    polls: u32,
}

impl Network {
    /// Kills an endpoint's process.
    pub(crate) fn kill(&self, peer: u32) {
        self.nodes()[peer as usize].dead = true;
    }

    /// Fails the next injected message to an endpoint.
    pub(crate) fn fail_injected(&self, peer: u32) {
        self.nodes()[peer as usize].failing += 1;
    }

    /// Messages of the network that an endpoint has sent.
    pub(crate) fn sent(&self, peer: u32) -> u32 {
        self.nodes()[peer as usize].sent
    }

    /// To how many an endpoint has sent messages of the network.
    pub(crate) fn partners(&self, peer: u32) -> usize {
        self.nodes()[peer as usize].partners.len()
    }

    /// Writes of the network that an endpoint has started.
    pub(crate) fn written(&self, peer: u32) -> u32 {
        self.nodes()[peer as usize].written
    }

    /// Messages of nobody in this job that an endpoint was sent.
    pub(crate) fn strays(&self, peer: u32) -> u64 {
        self.nodes()[peer as usize].strays
    }

    /// The conduits of a job, in the order of their peers.
    pub(crate) fn conduits(
        shape: Shape,
        window: u32,
        sizes: (u32, u32),
        medium: usize,
        faults: Faults,
    ) -> Vec<Conduit<FakePort>> {
        Self::with_conduits(shape, window, sizes, medium, faults).1
    }

    /// A network and the conduits of a job on it.
    pub(crate) fn with_conduits(
        shape: Shape,
        window: u32,
        sizes: (u32, u32),
        medium: usize,
        faults: Faults,
    ) -> (Self, Vec<Conduit<FakePort>>) {
        let segments: Vec<Segment<OfiMemory>> = (0..shape.ranks).map(|_| segment()).collect();
        let of = |peer: u32| segments[shape.address(Peer(peer)).rank.0 as usize].clone();
        let node = |peer| Node {
            inbox: VecDeque::new(),
            segment: of(peer),
            open: true,
            dead: false,
            strays: 0,
            failing: 0,
            sent: 0,
            partners: BTreeSet::new(),
            written: 0,
        };
        let network = Self { nodes: Arc::new(Mutex::new((0..shape.peers()).map(node).collect())) };
        let ((frames, chunks), frame_bytes) = (sizes, medium + 256);
        let conduit = |me| {
            let window = if me == 0 && faults.mutation == Mutation::Flood { 3 * window } else { window };
            let slots = match faults {
                Faults { streams: true, .. } => 1,
                Faults { several: true, .. } => 2,
                _ => Settings::slots(shape.peers(), window),
            };
            let slot_bytes = frame_bytes + if faults.several { 128 } else { 0 };
            let sizes = Sizes { frames, frame_bytes, chunks, chunk_bytes: 512, slots, slot_bytes, inject: 64 };
            let port = FakePort {
                me,
                network: network.clone(),
                faults,
                random: Random::new(faults.seed ^ u64::from(me) << 32),
                sizes,
                buffers: vec![vec![0; frame_bytes.max(512)]; (frames + chunks) as usize],
                lent: vec![false; (frames + chunks) as usize],
                slots: vec![vec![0; slot_bytes]; slots as usize],
                offered: (0..slots).collect(),
                filled: vec![0; slots as usize],
                work: VecDeque::new(),
                late: Vec::new(),
                mutations: 0,
                polls: 0,
            };
            let segments = vec![SEGMENT as u64; shape.ranks as usize];
            let whole = faults.mutation == Mutation::None;
            let linger = Span::from_millis(if whole { faults.linger } else { 0 });
            let backoff = Span::from_millis(faults.backoff);
            let settings = Settings { me: Peer(me), shape, tag: 7, window, medium, segments, linger, backoff };
            Conduit::new(port, settings, of(me)).expect("there is memory")
        };
        let conduits = (0..shape.peers()).map(conduit).collect();
        (network.clone(), conduits)
    }

    fn count(&self, from: u32, to: u32) {
        let node = &mut self.nodes()[from as usize];
        node.sent += 1;
        node.partners.insert(to);
    }

    fn nodes(&self) -> MutexGuard<'_, Vec<Node>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes of a segment.
pub(crate) const SEGMENT: usize = (1 << 18) + 8;

fn segment() -> Segment<OfiMemory> {
    Segment::new(OfiMemory::new(SEGMENT).expect("there is memory"), SEGMENT)
}

impl FakePort {
    fn refuses(&mut self, to: u32, injected: bool) -> Result<(), Fault> {
        let full = injected && Some(to) == self.faults.stopped && self.work.len() >= 4;
        if full || self.random.percent(self.faults.again) { Err(Fault::Again) } else { Ok(()) }
    }

    /// Whether the mutation of this kind is to happen now; a few times per port, at random.
    fn mutates(&mut self, mutation: Mutation) -> bool {
        let now = self.faults.mutation == mutation && self.mutations < 3 && self.random.percent(20);
        self.mutations += u32::from(now);
        now
    }

    fn copy(&self, buffer: u32, len: usize) -> Vec<u8> {
        assert!(!self.lent[buffer as usize], "a buffer is used while it is under way");
        self.buffers[buffer as usize][..len].to_vec()
    }

    /// Whether something has to wait for its receiver.
    fn is_held_up(&self, work: &Work) -> bool {
        let (Work::Send { to, .. } | Work::Write { to, .. } | Work::Read { to, .. }) = work;
        let behind = !matches!(work, Work::Send { .. })
            && self.faults.streams
            && !self.network.nodes()[*to as usize].inbox.is_empty();
        behind || Some(*to) == self.faults.stopped
    }

    /// Fails an operation.
    fn fail(&mut self, work: &Work, events: &mut Vec<Event>) {
        let operation = match *work {
            Work::Send { buffer, .. } => buffer.map(Operation::Send),
            Work::Write { buffer, .. } => Some(Operation::Write(buffer)),
            Work::Read { buffer, .. } => Some(Operation::Read(buffer)),
        };
        if let Some(Operation::Send(buffer) | Operation::Write(buffer) | Operation::Read(buffer)) = operation {
            self.lent[buffer as usize] = false;
        }
        events.push(Event::Failed(operation, Failure { code: 104, own: 7 }));
    }

    /// Puts a message into the first slot on offer.
    fn place(&mut self, bytes: &[u8], events: &mut Vec<Event>) {
        let slot = *self.offered.front().expect("a message finds a slot on offer: room was counted beforehand");
        let at = self.filled[slot as usize];
        self.slots[slot as usize][at..][..bytes.len()].copy_from_slice(bytes);
        let end = at + bytes.len();
        self.filled[slot as usize] = end;
        let full = self.sizes.slot_bytes - end < self.sizes.frame_bytes;
        // As some providers do: the end of a slot is told apart, later than its last message.
        let apart = full && self.faults.several && self.random.percent(50);
        if full {
            self.offered.pop_front();
        }
        let kept = full && self.faults.mutation == Mutation::KeptSlot;
        let last = full && !apart && !kept;
        events.push(Event::Arrived(Receipt { slot, at, len: bytes.len(), last, place: 0 }));
        if apart && !kept {
            events.push(Event::Done(Operation::Receive(slot)));
        }
    }

    fn carry_out(&mut self, work: Work, events: &mut Vec<Event>) {
        let (Work::Send { to, .. } | Work::Write { to, .. } | Work::Read { to, .. }) = work;
        let dead = self.network.nodes()[to as usize].dead;
        if dead || self.random.percent(self.faults.failing) {
            return self.fail(&work, events);
        }
        if let Work::Send { buffer: None, .. } = work {
            let failing = {
                let mut nodes = self.network.nodes();
                let failing = nodes[to as usize].failing > 0;
                nodes[to as usize].failing -= u32::from(failing);
                failing
            };
            if failing {
                return self.fail(&work, events);
            }
        }
        match work {
            Work::Send { to, bytes, buffer } => {
                let (lost, doubled) =
                    (self.mutates(Mutation::LostMessage), self.mutates(Mutation::DoubledMessage));
                let strays = self.mutates(Mutation::Strays);
                let mut bytes = bytes;
                if self.faults.mutation == Mutation::CutBundle {
                    bytes.truncate(18);
                    bytes[12] = BUNDLE;
                }
                {
                    let mut nodes = self.network.nodes();
                    let node = &mut nodes[to as usize];
                    if node.open && !lost {
                        if doubled {
                            node.inbox.push_back(bytes.clone());
                        }
                        if strays {
                            let mut other = bytes.clone();
                            other[0] ^= 1;
                            node.inbox.push_back(other);
                            node.inbox.push_back(vec![bytes[0]; 5]);
                            node.strays += 2;
                        }
                        node.inbox.push_back(bytes);
                    }
                }
                if let Some(buffer) = buffer {
                    self.lent[buffer as usize] = false;
                    events.push(Event::Done(Operation::Send(buffer)));
                }
            }
            Work::Read { to, len, buffer, at } => {
                let nodes = self.network.nodes();
                let found =
                    nodes[to as usize].segment.view(at, len).expect("a read stays inside the segment").to_vec();
                drop(nodes);
                self.buffers[buffer as usize][..len].copy_from_slice(&found);
                self.lent[buffer as usize] = false;
                events.push(Event::Done(Operation::Read(buffer)));
            }
            Work::Write { to, bytes, buffer, at } => {
                let late = self.mutates(Mutation::DataAfterMessage);
                let lost = self.mutates(Mutation::LostCompletion);
                if late {
                    self.late.push(Work::Write { to, bytes, buffer, at });
                } else {
                    let nodes = self.network.nodes();
                    nodes[to as usize].segment.write(at, &bytes).expect("a write stays inside the segment");
                }
                if !lost {
                    self.lent[buffer as usize] = false;
                    events.push(Event::Done(Operation::Write(buffer)));
                }
            }
        }
    }
}

impl Wire for FakePort {
    fn sizes(&self) -> Sizes {
        self.sizes
    }

    fn buffer(&mut self, buffer: u32) -> &mut [u8] {
        assert!(!self.lent[buffer as usize], "a buffer is used while it is under way");
        &mut self.buffers[buffer as usize]
    }

    fn send(&mut self, to: u32, buffer: u32, len: usize) -> Result<(), Fault> {
        self.refuses(to, false)?;
        let bytes = self.copy(buffer, len);
        self.lent[buffer as usize] = true;
        self.work.push_back(Work::Send { to, bytes, buffer: Some(buffer) });
        self.network.count(self.me, to);
        Ok(())
    }

    fn inject(&mut self, to: u32, buffer: u32, len: usize) -> Result<(), Fault> {
        self.refuses(to, true)?;
        assert!(len <= self.sizes.inject);
        let bytes = self.copy(buffer, len);
        self.work.push_back(Work::Send { to, bytes, buffer: None });
        self.network.count(self.me, to);
        Ok(())
    }

    fn write(&mut self, to: u32, buffer: u32, len: usize, at: u64) -> Result<(), Fault> {
        self.refuses(to, false)?;
        let bytes = self.copy(buffer, len);
        self.lent[buffer as usize] = true;
        self.work.push_back(Work::Write { to, bytes, buffer, at });
        self.network.nodes()[self.me as usize].written += 1;
        Ok(())
    }

    fn places(&self, _: u32) -> bool {
        self.faults.places
    }

    fn place(&mut self, to: u32, bytes: &[u8], at: u64) -> bool {
        // Then half of it is there.
        let fails = self.random.percent(self.faults.again / 4) || self.network.nodes()[to as usize].dead;
        let len = if fails { bytes.len() / 2 } else { bytes.len() };
        let nodes = self.network.nodes();
        nodes[to as usize].segment.write(at, &bytes[..len]).expect("a copy stays inside the segment");
        drop(nodes);
        self.faults.places &= !fails;
        !fails
    }

    fn read(&mut self, from: u32, buffer: u32, len: usize, at: u64) -> Result<(), Fault> {
        self.refuses(from, false)?;
        assert!(!self.lent[buffer as usize], "a buffer is used while it is under way");
        self.lent[buffer as usize] = true;
        self.work.push_back(Work::Read { to: from, len, buffer, at });
        Ok(())
    }

    fn post(&mut self, slot: u32) -> Result<(), Fault> {
        // Refusing here would make a strict network overrun: a provider whose receive queue is as long as it says
        // does not.
        assert!(!self.offered.contains(&slot), "a slot is offered twice");
        // What is on offer is the network's: nobody may find there what came before.
        self.slots[slot as usize].fill(0xee);
        self.filled[slot as usize] = 0;
        self.offered.push_back(slot);
        Ok(())
    }

    fn arrived(&self, receipt: &Receipt) -> &[u8] {
        let Receipt { slot, at, len, .. } = *receipt;
        assert!(self.faults.several || !self.offered.contains(&slot), "a slot is read while it is on offer");
        &self.slots[slot as usize][at..][..len]
    }

    fn poll(&mut self, events: &mut Vec<Event>) -> Result<(), i32> {
        self.polls += 1;
        let bounded =
            matches!(self.faults.mutation, Mutation::LostCompletion | Mutation::KeptSlot) || self.faults.streams;
        if bounded && self.polls > 100_000 {
            // Who waits in vain inside one call would never come back.
            return Err(5);
        }
        let mut later = VecDeque::new();
        while let Some(work) = self.work.pop_front() {
            let room = events.len() < events.capacity();
            if self.is_held_up(&work) {
                later.push_back(work);
            } else if !room || self.random.percent(self.faults.late) {
                later.push_back(work);
                if !self.faults.reorder {
                    break;
                }
            } else {
                self.carry_out(work, events);
            }
        }
        later.append(&mut self.work);
        self.work = later;
        if self.random.percent(10)
            && let Some(Work::Write { to, bytes, at, .. }) = self.late.pop()
        {
            let nodes = self.network.nodes();
            nodes[to as usize].segment.write(at, &bytes).expect("a write stays inside the segment");
        }
        while events.len() < events.capacity() && !self.random.percent(self.faults.late) {
            let mut nodes = self.network.nodes();
            let inbox = &mut nodes[self.me as usize].inbox;
            // Of strays nobody knows beforehand: only a provider that manages its resources stands them.
            let managed = self.faults.mutation == Mutation::Strays || self.faults.streams || self.faults.several;
            if inbox.is_empty() || managed && self.offered.is_empty() {
                break;
            }
            let place = if self.faults.reorder { self.random.below(inbox.len() as u64) as usize } else { 0 };
            let bytes = inbox.remove(place).expect("the place is inside");
            drop(nodes);
            self.place(&bytes, events);
        }
        Ok(())
    }
}

impl Drop for FakePort {
    fn drop(&mut self) {
        let (mut events, work) = (Vec::new(), std::mem::take(&mut self.work));
        work.into_iter().for_each(|work| self.carry_out(work, &mut events));
        self.network.nodes()[self.me as usize].open = false;
    }
}
