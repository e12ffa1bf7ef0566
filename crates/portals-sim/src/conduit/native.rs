//! The core's one-sided operations: puts and gets of both Portals, atomics of Portals 4.
//!
//! A put leaves from staging memory, so that its source can be reused; a get lands there, or in this rank's
//! segment. The acknowledgement of a put, and the reply of a get or an atomic, complete the operation. Atomics of
//! Portals 4 are coherent with those of handlers: the interface changes a value within one event, and one whose
//! atomics keep to the coherence of the processor's caches is assumed \[A\]. A signal on Portals 4 is an addition
//! behind the put, which messages of a pair are matched in the order of. On Portals 3.3 signals travel as
//! messages.

use super::config::FlowControl;
use super::firehose::Slot;
use super::one_sided::{Direct, Ended, bits_of};
use super::registered::Covered;
use super::transport::Conduit;
use crate::nic::HostMemory;
use crate::nic::p4::{AtomicOp, Datatype, NiFail};
use am_core::one_sided::{Atomic, AtomicCode, AtomicKind};
use am_core::segment::Memory;
use am_core::slab::Key;
use am_core::transport::{
    AtomicSet, Brought, Capability, Completion, Done, Landing, NativeOneSided, OperationFault, Refused, Remote,
    Resource, Sink, Ticket,
};
use am_core::{Payload, Peer, PeerStatus};

/// Bytes of the largest part of a put or get: what a stage holds at most.
const PART: u64 = 1 << 20;

/// An operation of the core.
#[derive(Clone, Copy, Debug)]
pub(super) struct Started {
    pub(super) to: u32,
    ticket: Ticket,
    /// The stage that it uses.
    pub(super) stage: Option<usize>,
    /// Whether the stage's bytes go to the core.
    pub(super) reports: bool,
    /// Bytes that the core gets.
    len: u32,
    /// Where what an atomic found is in the results' memory, and its size.
    found: Option<(u32, u32)>,
}

/// The end of an operation that the core was not told of yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndedOperation {
    started: Started,
    value: u64,
    outcome: Result<(), NiFail>,
}

/// An atomic as Portals 4 has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) operation: AtomicOp,
    pub(super) datatype: Datatype,
    source: u64,
    pub(super) operand: [u8; 16],
}

/// What Portals 4 does for an atomic; `None` for minima and maxima of numbers with fractions, where those of IEEE
/// 754 that the processor has differ in what they make of a NaN.
pub(super) fn command(atomic: &Atomic) -> Option<Command> {
    let (number, bits) = match atomic.kind {
        AtomicKind::U32 => (Datatype::Uint32, Datatype::Uint32),
        AtomicKind::I32 => (Datatype::Int32, Datatype::Uint32),
        AtomicKind::U64 => (Datatype::Uint64, Datatype::Uint64),
        AtomicKind::I64 => (Datatype::Int64, Datatype::Uint64),
        AtomicKind::F32 => (Datatype::Float, Datatype::Uint32),
        AtomicKind::F64 => (Datatype::Double, Datatype::Uint64),
    };
    let negated = match atomic.kind {
        AtomicKind::F32 => atomic.operand ^ 1 << 31,
        AtomicKind::F64 => atomic.operand ^ 1 << 63,
        _ => atomic.operand.wrapping_neg(),
    };
    let operand = atomic.operand;
    let (operation, datatype, source) = match atomic.code {
        AtomicCode::Get => (AtomicOp::Bor, bits, 0),
        AtomicCode::Swap => (AtomicOp::Swap, bits, operand),
        AtomicCode::Add => (AtomicOp::Sum, number, operand),
        AtomicCode::Sub => (AtomicOp::Sum, number, negated),
        AtomicCode::Mul => (AtomicOp::Prod, number, operand),
        AtomicCode::Min | AtomicCode::Max if atomic.kind.is_float() => return None,
        AtomicCode::Min => (AtomicOp::Min, number, operand),
        AtomicCode::Max => (AtomicOp::Max, number, operand),
        AtomicCode::And => (AtomicOp::Band, bits, operand),
        AtomicCode::Or => (AtomicOp::Bor, bits, operand),
        AtomicCode::Xor => (AtomicOp::Bxor, bits, operand),
        AtomicCode::CompareSwap => (AtomicOp::Cswap, bits, operand),
    };
    let mut expected = [0; 16];
    expected[..8].copy_from_slice(&atomic.expected.to_le_bytes());
    atomic.is_supported().then_some(Command { operation, datatype, source, operand: expected })
}

impl Conduit<'_> {
    /// Whether an operation of the core is under way to a peer that is there.
    pub(super) fn natives_under_way(&mut self) -> bool {
        if self.direct.borrow().operations.natives() != 0 {
            self.sweep_natives();
        }
        self.direct.borrow().operations.natives() != 0
    }

    /// Ends operations on peers that are gone. Portals 4 tells of these by itself, Portals 3.3 does not.
    fn sweep_natives(&mut self) {
        let departures = self.presence.gone(self.nic.context());
        if self.swept_natives == departures {
            return;
        }
        let peers: Vec<u32> =
            (0..self.nic.ranks()).filter(|peer| self.known_status(*peer) != PeerStatus::Active).collect();
        let gone: Vec<u32> =
            peers.iter().copied().filter(|peer| self.counting_status(*peer) != PeerStatus::Active).collect();
        if gone.len() == peers.len() {
            self.swept_natives = departures;
        }
        let swept = self.direct.borrow_mut().operations.sweep(|to| gone.contains(&to));
        for (started, mut ended) in swept {
            if let (true, Some(stage)) = (started.reports, started.stage) {
                // The descriptor waits for bytes, perhaps for ever.
                self.staging.abandon(stage);
                if let Some(slot) = ended.slot.take() {
                    self.direct.borrow_mut().registered.abandon(slot);
                }
            }
            self.direct_ended(ended);
        }
    }

    /// An operation, of the core or not, is over on one side or both.
    pub(super) fn direct_ended(&mut self, ended: Ended) {
        let Ended { slot, told, stage } = ended;
        if let Some(slot) = slot {
            self.direct.borrow_mut().registered.give(slot);
        }
        if let Some(stage) = stage {
            self.staging.withdraw(stage);
        }
        if let Some((started, outcome)) = told {
            let mut value = [0; 8];
            if let Some((place, size)) = started.found {
                self.memories.results.load(place as usize, &mut value[..size as usize]);
            }
            self.completed.push_back(EndedOperation { started, value: u64::from_le_bytes(value), outcome });
        }
        self.presence.fresh = true;
    }

    /// Tells the core of an operation that is over; whether there was one.
    pub(super) fn tell_completed<S: Sink>(&mut self, sink: &mut S) -> bool {
        let Some(EndedOperation { started, value, outcome }) = self.completed.pop_front() else { return false };
        let Started { ticket, stage, reports, len, .. } = started;
        self.nic.charge(self.shared.overhead);
        let mut brought = Brought { value, ..Brought::NOTHING };
        let stage = stage.filter(|_| reports);
        let memory = stage.map(|stage| self.staging.memory(stage));
        if let Some(memory) = &memory {
            self.nic.charge(self.shared.copying(len as usize));
            brought.bytes = Payload::shared(memory.words(), 0, len as usize);
        }
        let outcome = outcome.map(|()| brought).map_err(|ni_fail| match ni_fail {
            NiFail::Undeliverable => OperationFault::Gone,
            NiFail::Dropped | NiFail::PtDisabled => OperationFault::Failed,
            _ => OperationFault::Refused,
        });
        sink.completed(Completion { ticket, outcome });
        if let Some(stage) = stage {
            self.staging.withdraw(stage);
        }
        true
    }

    /// Checks that an operation can be begun.
    fn admit_native(&mut self, to: Peer, staged: bool) -> Result<(), Refused> {
        if self.known_status(to.0) != PeerStatus::Active {
            return Err(match self.counting_status(to.0) {
                PeerStatus::Active => self.busy(Resource::Connection),
                status => Refused::Gone(status),
            });
        }
        // Messages may need the last stage.
        let lacks = |conduit: &Self| {
            conduit.direct.borrow().operations.left() == 0 || staged && conduit.staging.left() < 2
        };
        if lacks(self) {
            self.harvest(usize::MAX);
            self.sweep_natives();
            if lacks(self) {
                return Err(self.busy(Resource::Interface));
            }
        }
        // From now on memory changes without events of Portals 3.3.
        self.nic.forbid_lookahead();
        Ok(())
    }

    /// Takes a stage of so many bytes and registers it.
    fn stage_native(&mut self, len: usize) -> Result<(usize, HostMemory, Covered), Refused> {
        let Some((index, memory)) = self.staging.take(len) else { return Err(self.busy(Resource::Interface)) };
        let covered = {
            let Direct { registered, .. } = &mut *self.direct.borrow_mut();
            registered.take(&self.nic, &self.wire, &memory, 0, memory.len() as u64)
        };
        covered.map(|covered| (index, memory, covered)).map_err(|_| {
            self.staging.withdraw(index);
            self.harvest(usize::MAX);
            self.sweep_natives();
            self.busy(Resource::Interface)
        })
    }
}

impl Conduit<'_> {
    /// Stages the bytes of a put.
    fn fill(&mut self, started: &mut Started, bytes: &[u8]) -> Result<Covered, Refused> {
        let (stage, memory, covered) = self.stage_native(bytes.len())?;
        started.stage = Some(stage);
        self.nic.charge(self.shared.copying(bytes.len()));
        memory.store(0, bytes);
        Ok(covered)
    }

    /// Notes an operation, of which there can be one more.
    fn begin_native(&self, is_put: bool, slot: Option<Slot>, started: Started) -> Key {
        let key = self.direct.borrow_mut().operations.begin(is_put, slot, Some(started));
        key.expect("the number of operations was checked")
    }

    /// Sends the atomic of an operation.
    fn post_atomic(&mut self, to: Peer, key: Key, at: u64, command: &Command) {
        // Its place follows from its number, which is below the number of operations.
        let (place, size) = (16 * key.index(), command.datatype.size() as usize);
        self.direct.borrow_mut().operations.found_at(key, place + 8);
        self.memories.results.store(place as usize, &command.source.to_le_bytes()[..size]);
        self.wire.atomic(to.0, place.into(), at, command, bits_of(key));
    }
}

impl NativeOneSided for Conduit<'_> {
    fn capability(&self, _: Peer) -> Capability {
        let mut capability = Capability::default();
        (capability.put, capability.get, capability.get_into) = (PART, PART, PART);
        capability.longest_get = u64::MAX;
        if self.shared.config.flow == FlowControl::Disable {
            capability.atomics = AtomicSet::all().only(|atomic| command(atomic).is_some());
            (capability.coherent, capability.signal) = (true, true);
        }
        capability
    }

    fn put(&mut self, to: Remote, bytes: &[u8], signal: Option<u64>, _: &mut Done<'_>) -> Result<(), Refused> {
        let Remote { peer: to, at, ticket } = to;
        let mut started = Started { to: to.0, ticket, stage: None, reports: false, len: 0, found: None };
        let Some(counter) = signal else {
            self.admit_native(to, true)?;
            let covered = self.fill(&mut started, bytes)?;
            let bits = bits_of(self.begin_native(true, Some(covered.slot), started));
            self.wire.put_direct(to.0, Some(covered.md), covered.offset, bytes.len() as u32, at, bits, true);
            return Ok(());
        };
        self.admit_native(to, !bytes.is_empty())?;
        let covered = if bytes.is_empty() { None } else { Some(self.fill(&mut started, bytes)?) };
        // The bytes have left when the put has, and all is done when the addition is answered.
        let key = self.begin_native(covered.is_some(), covered.map(|covered| covered.slot), started);
        if let Some(Covered { md, offset, .. }) = covered {
            self.wire.put_direct(to.0, Some(md), offset, bytes.len() as u32, at, bits_of(key), false);
        }
        self.post_atomic(to, key, counter, &command(&Atomic::increment()).expect("Portals 4 adds integers"));
        Ok(())
    }

    fn get(&mut self, from: Remote, len: u64, landing: Landing, _: &mut Done<'_>) -> Result<(), Refused> {
        let Remote { peer: from, at, ticket } = from;
        let (reports, bytes) = (landing == Landing::Report, len as u32);
        self.admit_native(from, reports)?;
        let started = Started { to: from.0, ticket, stage: None, reports, len: bytes, found: None };
        let (stage, slot, md, into) = match landing {
            Landing::Segment(into) => (None, None, None, into),
            Landing::Report => {
                let (stage, _, covered) = self.stage_native(len as usize)?;
                (Some(stage), Some(covered.slot), Some(covered.md), covered.offset)
            }
        };
        let bits = bits_of(self.begin_native(false, slot, Started { stage, ..started }));
        self.wire.get_direct(from.0, md, into, bytes, at, bits);
        Ok(())
    }

    fn atomic(&mut self, to: Remote, atomic: &Atomic, _: bool, _: &mut Done<'_>) -> Result<(), Refused> {
        let Remote { peer: to, at, ticket } = to;
        self.admit_native(to, false)?;
        let command = command(atomic).expect("the core asks for what the capability has");
        let found = Some((0, command.datatype.size()));
        let started = Started { to: to.0, ticket, stage: None, reports: false, len: 0, found };
        let key = self.begin_native(false, None, started);
        self.post_atomic(to, key, at, &command);
        Ok(())
    }
}

impl Started {
    /// Where what the atomic found comes.
    pub(super) fn found_at(&mut self, place: u32) {
        self.found = self.found.map(|(_, size)| (place, size));
    }
}
