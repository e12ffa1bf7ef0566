//! The core's one-sided operations: puts are writes, gets are emulated reads.
//!
//! A put leaves from a stage, so that its source can be reused; a get lands in one, or in this rank's segment. A
//! write has ended once its last byte was taken by the other side, and completes the operation. The interface has
//! no atomics, and a notification writes a word rather than adding to one, so signals travel as messages.

use super::stages::{Purpose, Stage, Transfer};
use super::transport::{Conduit, EndedOperation, SEGMENT_AT};
use crate::nic::{RdmaError, TransferId};
use am_core::segment::Memory;
use am_core::transport::{
    Brought, Capability, Completion, Done, Landing, NativeOneSided, OperationFault, Refused, Remote, Sink,
};
use am_core::{Payload, Peer, PeerStatus, Resource};

/// Bytes of the largest get into a segment.
const PART: u64 = 1 << 20;

impl Conduit<'_> {
    /// Tells the core of an operation that is over; whether there was one.
    pub(super) fn tell_completed<S: Sink>(&mut self, sink: &mut S) -> bool {
        let Some(EndedOperation { ticket, brought, outcome }) = self.completed.pop_front() else { return false };
        self.nic.charge(self.shared.costs.dispatch);
        let memory = brought.map(|(stage, len)| (self.stages.memory(stage).clone(), len));
        let mut bytes = Payload::EMPTY;
        if let Some((memory, len)) = &memory {
            self.nic.charge(self.shared.costs.copying(*len));
            bytes = Payload::shared(memory.words(), 0, *len);
        }
        sink.completed(Completion { ticket, outcome: outcome.map(|()| Brought { value: 0, bytes }) });
        if let Some((stage, _)) = brought {
            self.stages.give(stage);
        }
        true
    }

    /// Whether an operation of the core is under way to a peer that is there.
    pub(super) fn natives_under_way(&mut self) -> bool {
        self.sweep_natives();
        self.stages.under_way.iter().any(|transfer| matches!(transfer.purpose, Purpose::Native(..)))
    }

    /// Ends operations on peers that are gone, all at once: their interfaces answer some of them, or none.
    pub(super) fn sweep_natives(&mut self) {
        let gone = self.presence.gone(self.nic.context());
        if std::mem::replace(&mut self.swept, gone) == gone {
            return;
        }
        // What has ended before is told as it ended.
        self.collect_transfers();
        while let Some(index) = self.stages.under_way.iter().position(|transfer| {
            let native = matches!(transfer.purpose, Purpose::Native(..));
            native && self.known_status(transfer.peer) != PeerStatus::Active
        }) {
            let Transfer { id, purpose, stage, .. } = self.stages.under_way.swap_remove(index);
            self.nic.rdma_abandon(id);
            let Purpose::Native(ticket, _) = purpose else { continue };
            if let Some(stage) = stage {
                // Cells of the answer may still come, or cells of the write still leave.
                self.stages.abandon(stage, &self.nic, &self.shared.config);
            }
            self.completed.push_back(EndedOperation { ticket, brought: None, outcome: Err(OperationFault::Gone) });
            self.presence.fresh = true;
        }
    }

    /// Takes a stage for an operation. What gets have brought keeps its stage until the core polls, and messages,
    /// which may be sent without a poll, need one that comes back by itself: so the last one is theirs.
    fn native_stage(&mut self) -> Result<Stage, Refused> {
        if self.stages.left() < 2 {
            self.take_in();
        }
        let some = self.stages.left() >= 2;
        let stage = if some { self.stages.take(&self.nic, &self.shared.config) } else { None };
        stage.ok_or_else(|| self.busy(Resource::Interface))
    }

    /// Notes a transfer that was begun; gives its stage back if it was not.
    fn started(
        &mut self,
        started: Result<TransferId, RdmaError>,
        peer: u32,
        purpose: Purpose,
        stage: Option<Stage>,
    ) -> Result<(), Refused> {
        if let Ok(id) = started {
            self.stages.under_way.push(Transfer { id, peer, purpose, stage });
            return Ok(());
        }
        if let Some(stage) = stage {
            self.stages.give(stage);
        }
        // The ends of others make room.
        self.take_in();
        Err(self.busy(Resource::Interface))
    }
}

impl NativeOneSided for Conduit<'_> {
    fn capability(&self, _: Peer) -> Capability {
        let mut capability = Capability::default();
        let part = self.shared.config.stage_bytes.into();
        (capability.put, capability.get, capability.get_into) = (part, part, PART);
        capability.longest_get = u64::MAX;
        capability
    }

    fn put(&mut self, to: Remote, bytes: &[u8], _: Option<u64>, done: &mut Done<'_>) -> Result<(), Refused> {
        let Remote { peer: to, at, ticket } = to;
        self.check(to.0)?;
        if bytes.is_empty() {
            done(Completion::done(ticket));
            return Ok(());
        }
        let stage = self.native_stage()?;
        self.nic.charge(self.shared.costs.copying(bytes.len()));
        self.nic.write(self.stages.memory(stage), 0, bytes);
        let address = self.nic.address(to.0).expect("a peer that is ready has an address");
        let (source, len) = (self.stages.at(stage), bytes.len() as u64);
        let started = self.nic.rdma_write(source, address, SEGMENT_AT + at, len, None);
        self.started(started, to.0, Purpose::Native(ticket, None), Some(stage))
    }

    fn get(&mut self, from: Remote, len: u64, landing: Landing, done: &mut Done<'_>) -> Result<(), Refused> {
        let Remote { peer: from, at, ticket } = from;
        self.check(from.0)?;
        if len == 0 {
            done(Completion::done(ticket));
            return Ok(());
        }
        let (stage, into) = match landing {
            Landing::Report => {
                let stage = self.native_stage()?;
                (Some(stage), self.stages.at(stage))
            }
            Landing::Segment(into) => (None, SEGMENT_AT + into),
        };
        let address = self.nic.address(from.0).expect("a peer that is ready has an address");
        let started = self.nic.rdma_read(address, SEGMENT_AT + at, into, len, None);
        self.started(started, from.0, Purpose::Native(ticket, Some(len as usize)), stage)
    }
}
