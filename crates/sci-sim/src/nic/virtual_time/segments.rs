//! The life of segments and connections in virtual time, and what happens to them.

use super::HostMemory;
use super::device::{Look, Shared};
use super::handle::{Descriptor, LocalMap, LocalSegment, RemoteMap, RemoteSegment, Virtual, earlier};
use super::process::{Connection, Local, Map, Wanting};
use super::wire::{Ask, Reply};
use crate::nic::code::{Code, RefusedObject};
use crate::nic::kinds::{
    ALIGNMENT, Flags, MAP_ALIGNMENT, NodeId, RemoteAddress, SegmentId, SegmentReason, inside,
};
use crate::nic::mutation::Mutation;
use crate::nic::sisci::Sisci;
use am_core::{PeerStatus, Span};
use std::collections::VecDeque;

/// Segments begin at multiples of this in their node's address space.
const GRAIN: u64 = 1 << 16;

impl Virtual<'_> {
    pub(super) fn create(
        &self,
        descriptor: &Descriptor,
        id: SegmentId,
        size: usize,
        flags: Flags,
    ) -> Result<LocalSegment, Code> {
        flags.only(Flags::USE_CALLBACK)?;
        if size == 0 || !size.is_multiple_of(ALIGNMENT) {
            return Err(Code::SizeAlignment);
        }
        self.call();
        let (limit, memory) = (self.limits().segment_bytes, self.shared.parameters.memory_bytes);
        // Rule 8 of the sheet: segments beyond the limit are refused.
        let any_size = self.shared.has(Mutation::AnySize);
        self.settled(|process| {
            if process.by_id(id).is_some() {
                return Err(Code::SegmentIdUsed);
            }
            let room = process.memory.checked_add(size as u64).is_some_and(|used| used <= memory);
            let base = process.next_base;
            let next = base + (size as u64).next_multiple_of(GRAIN);
            let addressed = next < 1 << RemoteAddress::OFFSET_BITS;
            if size > limit && !any_size || !room || !addressed {
                return Err(Code::NoSpace);
            }
            let memory = HostMemory::try_new(size).ok_or(Code::NoSpace)?;
            process.memory += size as u64;
            process.next_base = next;
            process.session(descriptor.0, 1);
            Ok(LocalSegment(process.locals.add(Local {
                id,
                session: descriptor.0,
                size,
                base,
                memory,
                prepared: false,
                available: false,
                maps: 0,
                transfers: 0,
                peers: Vec::new(),
                callback: flags.has(Flags::USE_CALLBACK),
                events: VecDeque::new(),
                watched: Vec::new(),
            })))
        })
    }

    pub(super) fn prepare(&self, segment: &LocalSegment) -> Result<(), Code> {
        self.call();
        self.settled(|process| {
            let local = process.locals.at(segment.0);
            if std::mem::replace(&mut local.prepared, true) { Err(Code::Busy) } else { Ok(()) }
        })
    }

    pub(super) fn show(&self, segment: &LocalSegment, offset: usize, size: usize) -> Result<LocalMap, Code> {
        self.call();
        self.own(|process| {
            let local = process.locals.at(segment.0);
            if !local.prepared {
                return Err(Code::SegmentNotPrepared);
            }
            inside(offset, size, local.size, MAP_ALIGNMENT)?;
            local.maps += 1;
            Ok(LocalMap { segment: segment.0, offset, memory: local.memory.part(offset, size) })
        })
    }

    pub(super) fn hide(&self, map: LocalMap) -> Result<(), RefusedObject<LocalMap>> {
        self.call();
        self.survey();
        let connected = self.settled(|process| !process.locals.at(map.segment).peers.is_empty());
        // Rule 8 of the sheet: what others are connected to stays mapped.
        if connected && !self.shared.has(Mutation::UnmapConnected) {
            return Err(RefusedObject { code: Code::Busy, object: map });
        }
        self.own(|process| {
            let local = process.locals.at(map.segment);
            local.maps -= 1;
            let part = map.offset..map.offset + map.memory.len();
            local.watched.retain(|at| !part.contains(at));
        });
        Ok(())
    }

    pub(super) fn offer(&self, segment: &LocalSegment, available: bool) -> Result<(), Code> {
        self.call();
        self.settled(|process| {
            let local = process.locals.at(segment.0);
            if !local.prepared {
                return Err(Code::SegmentNotPrepared);
            }
            local.available = available;
            Ok(())
        })
    }

    pub(super) fn remove(&self, segment: LocalSegment) -> Result<(), RefusedObject<LocalSegment>> {
        self.call();
        self.survey();
        let anyway = self.shared.has(Mutation::RemoveConnected);
        let removed = self.settled(|process| {
            let local = process.locals.at(segment.0);
            // Rule 8 of the sheet: what others are connected to is not removed.
            let connected = !local.peers.is_empty() && !anyway;
            if local.maps != 0 || local.transfers != 0 || connected {
                return false;
            }
            let (session, size) = (local.session, local.size);
            process.memory -= size as u64;
            process.session(session, -1);
            process.locals.remove(segment.0);
            true
        });
        if removed { Ok(()) } else { Err(RefusedObject { code: Code::Busy, object: segment }) }
    }

    pub(super) fn connect(
        &self,
        descriptor: &Descriptor,
        rank: u32,
        node: NodeId,
        id: SegmentId,
        timeout: Span,
        flags: Flags,
    ) -> Result<RemoteSegment, Code> {
        let key = self.own(|process| process.serial());
        let result = self.ask(rank, Ask::Connect { id, key }, Some(timeout))?;
        let (base, size) = match result {
            Reply::Connected { base, size } => (base, size),
            Reply::Refused(code) => return Err(code),
            _ => return Err(Code::NoSuchSegment),
        };
        Ok(self.own(|process| {
            process.session(descriptor.0, 1);
            process.counters.connections += 1;
            let number = process.connections.add(Connection {
                session: descriptor.0,
                rank,
                node,
                id,
                base,
                key,
                maps: 0,
                transfers: 0,
                callback: flags.has(Flags::USE_CALLBACK),
                events: VecDeque::new(),
                operational: true,
                lost: false,
            });
            RemoteSegment { number, size }
        }))
    }

    pub(super) fn import(&self, segment: &RemoteSegment, offset: usize, size: usize) -> Result<RemoteMap, Code> {
        inside(offset, size, segment.size, ALIGNMENT)?;
        self.call();
        self.own(|process| {
            let connection = process.connections.at(segment.number);
            connection.maps += 1;
            let address = RemoteAddress::new(connection.node, connection.base + offset as u64)?;
            let rank = connection.rank;
            let map = Map { connection: segment.number, sequences: 0, failure: None };
            Ok(RemoteMap { number: process.maps.add(map), rank, address, size })
        })
    }

    pub(super) fn unimport(&self, map: RemoteMap) -> Result<(), RefusedObject<RemoteMap>> {
        self.call();
        self.flush();
        let used = self.own(|process| process.maps.at(map.number).sequences != 0);
        if used {
            return Err(RefusedObject { code: Code::Busy, object: map });
        }
        self.own(|process| {
            let connection = process.maps.at(map.number).connection;
            process.connections.at(connection).maps -= 1;
            process.maps.remove(map.number);
            process.pending.iter_mut().for_each(|pending| {
                // What is still under way through it is nobody's any more.
                if pending.map == map.number {
                    pending.map = u32::MAX;
                }
            });
        });
        Ok(())
    }

    pub(super) fn disconnect(&self, segment: RemoteSegment) -> Result<(), RefusedObject<RemoteSegment>> {
        self.call();
        let used = self.own(|process| {
            let connection = process.connections.at(segment.number);
            connection.maps != 0 || connection.transfers != 0
        });
        if used {
            return Err(RefusedObject { code: Code::Busy, object: segment });
        }
        self.barrier();
        let (rank, base, key) = self.own(|process| {
            let connection = process.connections.at(segment.number);
            (connection.rank, connection.base, connection.key)
        });
        // A node that cannot be told will not be: it counts as gone.
        let timeout = Span(self.shared.costs.timeout.0.saturating_mul(16));
        let _ = self.ask(rank, Ask::Disconnect { base, key }, Some(timeout));
        self.own(|process| {
            let session = process.connections.at(segment.number).session;
            process.session(session, -1);
            process.connections.remove(segment.number);
        });
        Ok(())
    }

    /// Tells segments of lost nodes, and of ways that broke or work again.
    pub(super) fn survey(&self) {
        self.context.sync();
        let losses = self.losses();
        let told = self.own(|process| std::mem::replace(&mut process.losses, losses));
        // Rule 5 of the sheet: segments learn of the nodes that are lost.
        if !self.shared.has(Mutation::SilentLoss) {
            for local in self.own(|process| process.local_numbers()) {
                let mut ranks: Vec<u32> =
                    self.own(|process| process.locals.at(local).peers.iter().map(|peer| peer.0).collect());
                ranks.sort_unstable();
                ranks.dedup();
                for rank in ranks {
                    self.survey_peer(local, rank);
                }
            }
        }
        if losses == told && !self.shared.breakable {
            return;
        }
        for connection in self.own(|process| process.connection_numbers()) {
            self.survey_connection(connection);
        }
    }

    /// Ends the connections of a process that has left: its driver does that, or it is lost.
    fn survey_peer(&self, local: u32, rank: u32) {
        let reason = match self.context.known_status(rank) {
            PeerStatus::Active => return,
            PeerStatus::Finished => SegmentReason::Disconnect,
            PeerStatus::Lost(_) => SegmentReason::Lost,
        };
        let node = Shared::node_id(self.context.node_of(rank));
        self.own(|process| {
            process.drop_peer(local, rank);
            process.local_event(local, node, reason);
        });
    }

    fn lost(&self, rank: u32) -> bool {
        matches!(self.context.known_status(rank), PeerStatus::Lost(_))
    }

    /// Tells a connection if its node is lost, or if the way has broken or works again.
    pub(super) fn survey_connection(&self, number: u32) {
        let (rank, operational, lost) = self.own(|process| {
            let connection = process.connections.at(number);
            (connection.rank, connection.operational, connection.lost)
        });
        if lost || self.shared.has(Mutation::SilentLoss) {
            return;
        }
        if self.lost(rank) {
            self.own(|process| {
                process.connections.at(number).lost = true;
                process.remote_event(number, SegmentReason::Lost);
            });
            return;
        }
        let works = self.broken(rank).is_none();
        if works != operational {
            let reason = if works { SegmentReason::Operational } else { SegmentReason::NotOperational };
            self.own(|process| {
                process.connections.at(number).operational = works;
                process.remote_event(number, reason);
            });
        }
    }

    pub(super) fn local_event(
        &self,
        segment: &LocalSegment,
        timeout: Option<Span>,
    ) -> Result<(NodeId, SegmentReason), Code> {
        if self.own(|process| process.locals.at(segment.0).callback) {
            return Err(Code::IllegalOperation);
        }
        self.event(timeout, |virtual_time| {
            virtual_time.settled(|process| process.locals.at(segment.0).events.pop_front())
        })
    }

    pub(super) fn remote_event(
        &self,
        segment: &RemoteSegment,
        timeout: Option<Span>,
    ) -> Result<SegmentReason, Code> {
        if self.own(|process| process.connections.at(segment.number).callback) {
            return Err(Code::IllegalOperation);
        }
        self.event(timeout, |virtual_time| {
            virtual_time.settled(|process| process.connections.at(segment.number).events.pop_front())
        })
    }

    /// Waits for an event; where the way can break, the driver looks at it from time to time.
    fn event<R>(&self, timeout: Option<Span>, take: impl Fn(&Self) -> Option<R>) -> Result<R, Code> {
        self.flush();
        let until = timeout.map(|timeout| self.now() + timeout);
        loop {
            self.survey();
            if let Some(event) = take(self) {
                return Ok(event);
            }
            if until.is_some_and(|until| until <= self.now()) {
                return Err(Code::Timeout);
            }
            let period = self.shared.costs.investigation.max(Span::from_micros(1));
            let heartbeat = self.shared.breakable.then(|| self.now() + period);
            let mut first = true;
            self.wait(Wanting::Event, earlier(until, heartbeat), |_, _| {
                // Whatever comes ends this wait.
                if std::mem::take(&mut first) { Look::Wait(None) } else { Look::Done(()) }
            });
        }
    }
}
