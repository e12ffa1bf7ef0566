//! One-sided operations of the loopback network: what the contract permits a network to do, at its most awkward.
//! Operations wait at their initiator, are done in a random order at its polls, some of them hardly ever at the
//! first, and may fail.

use super::Loopback;
use crate::address::Peer;
use crate::one_sided::Atomic;
use crate::payload::Payload;
use crate::transport::{
    AtomicSet, Brought, Capability, Completion, Done, Landing, NativeOneSided, OperationFault, PeerStatus,
    Refused, Remote, Resource, Sink, Transport,
};

/// What a loopback network does by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NativeOperations {
    /// Nothing.
    #[default]
    None,
    /// All operations that the contract has. Where ranks see each other's segments as memory, the core does not
    /// use them.
    All,
    /// All but atomics that other ranks could rely on: they are not atomic with respect to the processor's.
    Incoherent,
    /// All, but one in so many fails and changes nothing.
    Failing(u32),
}

/// Operations under way that one endpoint may have.
const MOST: usize = 16;

/// Bytes of the largest part, so that few operations have one part only.
const PART: u64 = 1 << 10;

enum Work {
    Put(Vec<u8>, Option<u64>),
    Get(u64, Landing),
    Atomic(Atomic),
}

struct Pending {
    to: Remote,
    work: Work,
}

/// The operations of one endpoint.
#[derive(Default)]
pub(super) struct Native {
    pending: Vec<Pending>,
    /// Buffers of puts, and what a get brings.
    spare: Vec<Vec<u8>>,
    brought: Vec<u8>,
    started: u32,
    random: u64,
}

impl Native {
    /// Of an endpoint; no two have the same order.
    pub(super) fn new(me: Peer) -> Self {
        Self { random: 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(u64::from(me.0) + 1), ..Self::default() }
    }

    /// A number below `below`, which is not 0 (Marsaglia, "Xorshift RNGs", 2003).
    fn below(&mut self, below: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % below as u64) as usize
    }

    pub(super) fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }
}

impl Loopback {
    fn start(&mut self, to: Remote, work: Work) -> Result<(), Refused> {
        self.native.pending.push(Pending { to, work });
        Ok(())
    }

    fn has_room(&self, to: Peer) -> Result<(), Refused> {
        match self.network.status(to) {
            PeerStatus::Active if self.native.pending.len() < MOST => Ok(()),
            PeerStatus::Active => Err(Refused::Busy(Resource::Interface)),
            status => Err(Refused::Gone(status)),
        }
    }

    /// Does some of the operations under way, at most so many; returns how many have completed.
    pub(super) fn advance<S: Sink>(&mut self, budget: usize, sink: &mut S) -> usize {
        let mut done = 0;
        // Half of them, so that operations overlap.
        for _ in 0..self.native.pending.len().div_ceil(2).min(budget) {
            let (len, last) = (self.native.pending.len(), self.native.pending.len() - 1);
            let index = self.native.below(len);
            self.native.pending.swap(index, last);
            done += usize::from(self.do_last(|completion| sink.completed(completion)));
        }
        done
    }

    /// Does what is under way, which nobody learns of any more.
    pub(super) fn carry_out(&mut self) {
        while !self.native.is_idle() {
            self.do_last(|_| ());
        }
    }

    /// Does the last operation of the list; whether it completed.
    fn do_last(&mut self, mut done: impl FnMut(Completion<'_>)) -> bool {
        let Some(Pending { to, work }) = self.native.pending.pop() else { return false };
        let Remote { peer, at, ticket } = to;
        if self.network.status(peer) != PeerStatus::Active {
            return false;
        }
        self.native.started = self.native.started.wrapping_add(1);
        if let NativeOperations::Failing(every) = self.network.config.native
            && self.native.started.is_multiple_of(every.max(1))
        {
            done(Completion::failed(ticket, OperationFault::Failed));
            return true;
        }
        let segment = &self.network.segments[self.network.shape.address(peer).rank.0 as usize];
        let mut brought = Brought::NOTHING;
        match work {
            Work::Put(bytes, signal) => {
                segment.write(at, &bytes).expect("the core checks the range of a put");
                if let Some(counter) = signal {
                    segment.atomic(counter, &Atomic::increment()).expect("the core checks the place of a counter");
                }
                self.native.spare.push(bytes);
            }
            Work::Get(len, landing) => {
                self.native.brought.resize(len as usize, 0);
                segment.read(at, &mut self.native.brought).expect("the core checks the range of a get");
                match landing {
                    Landing::Report => brought.bytes = Payload::own(&self.native.brought),
                    Landing::Segment(into) => {
                        let stored = self.segment().write(into, &self.native.brought);
                        stored.expect("the core checks where a get goes");
                    }
                }
            }
            Work::Atomic(atomic) => {
                brought.value = segment.atomic(at, &atomic).expect("the core checks the place of an atomic");
            }
        }
        done(Completion { ticket, outcome: Ok(brought) });
        true
    }
}

impl NativeOneSided for Loopback {
    fn capability(&self, _: Peer) -> Capability {
        let coherent = match self.network.config.native {
            NativeOperations::None => return Capability::default(),
            NativeOperations::Incoherent => false,
            NativeOperations::All | NativeOperations::Failing(_) => true,
        };
        let (put, get, get_into) = (PART, PART, PART);
        let (signal, longest_get, atomics) = (coherent, u64::MAX, AtomicSet::all());
        Capability { put, signal, get, longest_get, get_into, atomics, coherent }
    }

    fn put(&mut self, to: Remote, bytes: &[u8], signal: Option<u64>, _: &mut Done<'_>) -> Result<(), Refused> {
        self.has_room(to.peer)?;
        let mut buffer = self.native.spare.pop().unwrap_or_else(|| Vec::with_capacity(PART as usize));
        buffer.clear();
        buffer.extend_from_slice(bytes);
        self.start(to, Work::Put(buffer, signal))
    }

    fn get(&mut self, from: Remote, len: u64, landing: Landing, _: &mut Done<'_>) -> Result<(), Refused> {
        self.has_room(from.peer)?;
        self.start(from, Work::Get(len, landing))
    }

    fn atomic(&mut self, to: Remote, atomic: &Atomic, _: bool, _: &mut Done<'_>) -> Result<(), Refused> {
        self.has_room(to.peer)?;
        self.start(to, Work::Atomic(*atomic))
    }
}
