//! A network in memory that misbehaves as providers may: it refuses calls, is late, reorders; and, as a mutation that tests have to
//! notice, as no provider may. It is strict: a message that finds no slot on offer is an overrun, as with a provider that does not
//! manage its resources.

use am_core::{Peer, Segment, Shape, Span};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use transport_ofi::wire::{Event, Fault, Operation, Sizes, Wire};
use transport_ofi::{Conduit, OfiMemory, Settings};

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
    pub(crate) mutation: Mutation,
}

impl Faults {
    pub(crate) fn drawn(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let (again, late) = (random.below(60), random.below(60));
        Self { seed, again, late, reorder: random.percent(70), mutation: Mutation::None }
    }
}

/// What endpoints share.
struct Node {
    inbox: VecDeque<Vec<u8>>,
    segment: Segment<OfiMemory>,
    open: bool,
}

/// A network of fake ports.
#[derive(Clone)]
pub(crate) struct Network {
    nodes: Arc<Mutex<Vec<Node>>>,
}

enum Work {
    Send { to: u32, bytes: Vec<u8>, buffer: Option<u32> },
    Write { to: u32, bytes: Vec<u8>, buffer: u32, at: u64 },
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
    work: VecDeque<Work>,
    /// Bytes that are told to be there, and are not.
    late: Vec<Work>,
    mutations: u32,
    polls: u32,
}

impl Network {
    /// The conduits of a job, in the order of their peers.
    pub(crate) fn conduits(
        shape: Shape,
        window: u32,
        sizes: (u32, u32),
        medium: usize,
        faults: Faults,
    ) -> Vec<Conduit<FakePort>> {
        let segments: Vec<Segment<OfiMemory>> = (0..shape.ranks).map(|_| segment()).collect();
        let of = |peer: u32| segments[shape.address(Peer(peer)).rank.0 as usize].clone();
        let node = |peer| Node { inbox: VecDeque::new(), segment: of(peer), open: true };
        let network = Self { nodes: Arc::new(Mutex::new((0..shape.peers()).map(node).collect())) };
        let ((frames, chunks), frame_bytes) = (sizes, medium + 256);
        let conduit = |me| {
            let window = if me == 0 && faults.mutation == Mutation::Flood { 3 * window } else { window };
            let slots = Settings::slots(shape.peers(), window);
            let sizes = Sizes { frames, frame_bytes, chunks, chunk_bytes: 512, slots, inject: 64 };
            let port = FakePort {
                me,
                network: network.clone(),
                faults,
                random: Random::new(faults.seed ^ u64::from(me) << 32),
                sizes,
                buffers: vec![vec![0; frame_bytes.max(512)]; (frames + chunks) as usize],
                lent: vec![false; (frames + chunks) as usize],
                slots: vec![vec![0; frame_bytes]; slots as usize],
                offered: (0..slots).collect(),
                work: VecDeque::new(),
                late: Vec::new(),
                mutations: 0,
                polls: 0,
            };
            let segments = vec![SEGMENT as u64; shape.ranks as usize];
            let linger = Span::from_millis(if faults.mutation == Mutation::None { 2000 } else { 0 });
            let settings = Settings { me: Peer(me), shape, tag: 7, window, medium, segments, linger };
            Conduit::new(port, settings, of(me))
        };
        (0..shape.peers()).map(conduit).collect()
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
    fn refuses(&mut self) -> Result<(), Fault> {
        if self.random.percent(self.faults.again) { Err(Fault::Again) } else { Ok(()) }
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

    fn carry_out(&mut self, work: Work, events: &mut Vec<Event>) {
        match work {
            Work::Send { to, bytes, buffer } => {
                let (lost, doubled) =
                    (self.mutates(Mutation::LostMessage), self.mutates(Mutation::DoubledMessage));
                let strays = self.mutates(Mutation::Strays);
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
                        }
                        node.inbox.push_back(bytes);
                    }
                }
                if let Some(buffer) = buffer {
                    self.lent[buffer as usize] = false;
                    events.push(Event::Done(Operation::Send(buffer), 0));
                }
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
                    events.push(Event::Done(Operation::Write(buffer), 0));
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
        self.refuses()?;
        let bytes = self.copy(buffer, len);
        self.lent[buffer as usize] = true;
        self.work.push_back(Work::Send { to, bytes, buffer: Some(buffer) });
        Ok(())
    }

    fn inject(&mut self, to: u32, buffer: u32, len: usize) -> Result<(), Fault> {
        self.refuses()?;
        assert!(len <= self.sizes.inject);
        let bytes = self.copy(buffer, len);
        self.work.push_back(Work::Send { to, bytes, buffer: None });
        Ok(())
    }

    fn write(&mut self, to: u32, buffer: u32, len: usize, at: u64) -> Result<(), Fault> {
        self.refuses()?;
        let bytes = self.copy(buffer, len);
        self.lent[buffer as usize] = true;
        self.work.push_back(Work::Write { to, bytes, buffer, at });
        Ok(())
    }

    fn post(&mut self, slot: u32) -> Result<(), Fault> {
        // Refusing here would make a strict network overrun: a provider whose receive queue is as long as it says does not.
        assert!(!self.offered.contains(&slot), "a slot is offered twice");
        self.offered.push_back(slot);
        Ok(())
    }

    fn arrived(&self, slot: u32) -> &[u8] {
        assert!(!self.offered.contains(&slot), "a slot is read while it is on offer");
        &self.slots[slot as usize]
    }

    fn poll(&mut self, events: &mut Vec<Event>) -> Result<(), i32> {
        self.polls += 1;
        if self.faults.mutation == Mutation::LostCompletion && self.polls > 100_000 {
            // Who waits in vain inside one call would never come back.
            return Err(5);
        }
        let mut later = VecDeque::new();
        while let Some(work) = self.work.pop_front() {
            let room = events.len() < events.capacity();
            if !room || self.random.percent(self.faults.late) {
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
            let managed = self.faults.mutation == Mutation::Strays;
            if inbox.is_empty() || managed && self.offered.is_empty() {
                break;
            }
            let place = if self.faults.reorder { self.random.below(inbox.len() as u64) as usize } else { 0 };
            let bytes = inbox.remove(place).expect("the place is inside");
            drop(nodes);
            let slot =
                self.offered.pop_front().expect("a message finds a slot on offer: room was counted beforehand");
            self.slots[slot as usize][..bytes.len()].copy_from_slice(&bytes);
            events.push(Event::Done(Operation::Receive(slot), bytes.len()));
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
