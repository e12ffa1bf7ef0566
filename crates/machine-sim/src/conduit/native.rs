//! The core's one-sided operations: the interface's own, as far as the machine has them.

use super::transport::Conduit;
use crate::nic::Finished;
use am_core::one_sided::Atomic;
use am_core::slab::{Key, Slab};
use am_core::transport::{
    AtomicSet, Brought, Capability, Completion, Done, Landing, NativeOneSided, OperationFault, Refused, Remote,
    Sink, Ticket,
};
use am_core::{Payload, Peer, PeerStatus, Resource};
use fabric_sim::bytes::PooledBytes;
use std::collections::VecDeque;

/// Bytes of the largest part of a put or get.
const PART: u64 = 1 << 20;

/// An operation under way.
#[derive(Clone, Copy, Debug)]
struct Operation {
    to: u32,
    ticket: Ticket,
    /// Where in this rank's segment a get's bytes go; else they go to the core.
    into: Option<u64>,
}

/// The end of an operation that the core was not told of yet.
#[derive(Clone, Debug)]
struct EndedOperation {
    ticket: Ticket,
    value: u64,
    data: Option<PooledBytes>,
    outcome: Result<(), OperationFault>,
}

/// The operations of a rank.
#[derive(Debug, Default)]
pub(super) struct Natives {
    operations: Slab<Operation>,
    /// Keys of those under way, for when peers are gone.
    keys: Vec<Key>,
    ended: VecDeque<EndedOperation>,
    /// How many had departed or were faulty when operations on them were ended.
    swept: (u32, usize),
}

impl Natives {
    pub(super) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }
}

impl Conduit<'_> {
    /// Takes in operations that have ended.
    pub(super) fn collect_natives(&mut self) {
        while let Some(Finished { id, value, data, outcome }) = self.nic.finished() {
            // Of an operation on a peer that is gone, the core knows already.
            let key = Key::from_u64(id);
            let Some(Operation { ticket, into, .. }) = self.natives.operations.remove(key) else { continue };
            self.natives.keys.retain(|known| *known != key);
            let outcome = outcome.map_err(|_| OperationFault::Refused);
            let data = match (into, data) {
                (Some(at), Some(data)) => {
                    self.segment.write(at, &data).expect("the core checks where a get's bytes go");
                    None
                }
                (_, data) => data,
            };
            self.natives.ended.push_back(EndedOperation { ticket, value, data, outcome });
            self.presence.fresh = true;
        }
        self.sweep_natives();
    }

    /// Ends operations on peers that are gone.
    fn sweep_natives(&mut self) {
        let gone = self.presence.gone(self.nic.context());
        if std::mem::replace(&mut self.natives.swept, gone) == gone {
            return;
        }
        let gone = |conduit: &Self, key: &Key| {
            let operation = conduit.natives.operations.get(*key);
            operation.is_some_and(|operation| conduit.known_status(operation.to) != PeerStatus::Active)
        };
        while let Some(index) = self.natives.keys.iter().position(|key| gone(self, key)) {
            let key = self.natives.keys.swap_remove(index);
            let Some(operation) = self.natives.operations.remove(key) else { continue };
            let outcome = Err(OperationFault::Gone);
            self.natives.ended.push_back(EndedOperation {
                ticket: operation.ticket,
                value: 0,
                data: None,
                outcome,
            });
            self.presence.fresh = true;
        }
    }

    /// Tells the core of an operation that is over; whether there was one.
    pub(super) fn tell_completed<S: Sink>(&mut self, sink: &mut S) -> bool {
        let Some(EndedOperation { ticket, value, data, outcome }) = self.natives.ended.pop_front() else {
            return false;
        };
        self.nic.charge(self.shared.dispatch);
        let bytes = data.as_deref().map_or(Payload::EMPTY, Payload::own);
        sink.completed(Completion { ticket, outcome: outcome.map(|()| Brought { value, bytes }) });
        true
    }

    /// Whether an operation of the core is under way to a peer that is there.
    pub(super) fn natives_under_way(&mut self) -> bool {
        self.collect_natives();
        !self.natives.keys.is_empty()
    }

    /// Begins an operation; its id.
    fn begin(&mut self, remote: Remote, into: Option<u64>) -> Result<u64, Refused> {
        self.check(remote.peer.0)?;
        if self.natives.keys.len() >= self.shared.native.operations as usize {
            self.collect_natives();
            if self.natives.keys.len() >= self.shared.native.operations as usize {
                return Err(self.busy(Resource::Interface));
            }
        }
        let key = self.natives.operations.insert(Operation { to: remote.peer.0, ticket: remote.ticket, into });
        self.natives.keys.push(key);
        Ok(key.to_u64())
    }
}

impl NativeOneSided for Conduit<'_> {
    fn capability(&self, _: Peer) -> Capability {
        let mut capability = Capability::default();
        let native = self.shared.native;
        if native.put {
            (capability.put, capability.signal) = (PART, true);
        }
        if native.get {
            (capability.get, capability.get_into, capability.longest_get) = (PART, PART, u64::MAX);
        }
        if native.atomics {
            (capability.atomics, capability.coherent) = (AtomicSet::all(), true);
        }
        capability
    }

    fn put(&mut self, to: Remote, bytes: &[u8], signal: Option<u64>, _: &mut Done<'_>) -> Result<(), Refused> {
        let id = self.begin(to, None)?;
        self.nic.put(to.peer.0, to.at, bytes, signal, id);
        Ok(())
    }

    fn get(&mut self, from: Remote, len: u64, landing: Landing, _: &mut Done<'_>) -> Result<(), Refused> {
        let into = match landing {
            Landing::Report => None,
            Landing::Segment(into) => Some(into),
        };
        let id = self.begin(from, into)?;
        self.nic.get(from.peer.0, from.at, len, id);
        Ok(())
    }

    fn atomic(&mut self, to: Remote, atomic: &Atomic, _: bool, _: &mut Done<'_>) -> Result<(), Refused> {
        let id = self.begin(to, None)?;
        self.nic.atomic(to.peer.0, to.at, atomic, id);
        Ok(())
    }
}
