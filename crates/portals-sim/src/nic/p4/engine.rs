//! The state of Portals 4 for one process, besides its portal table: memory descriptors, event queues, counters,
//! and the operations that have not been answered. It has no clock.

use super::command::{Command, Process, Region};
use super::counter::Counter;
use super::error::{P4Error, stale};
use super::lists::{Effect, Table};
use super::options::MdOptions;
use super::types::{Ack, CtEvent, CtHandle, EqHandle, Event, EventKind, Md, MdHandle, NiFail, Status};
use crate::model::NiLimits;
use crate::nic::HostMemory;
use crate::nic::directory::ProcessId;
use crate::nic::mutation::{Defects, Mutation};
use crate::nic::queue::{Full, Queue, Taken};
use am_core::Instant;
use am_core::slab::{Key, Slab};

/// A memory descriptor.
struct Descriptor {
    md: Md,
    /// Operations that have not been answered.
    pending: u32,
    /// Until then the interface reads from it.
    busy_until: Instant,
}

/// An operation of this process that has not been answered.
#[derive(Clone, Copy)]
pub(crate) struct Pending {
    pub(crate) to: u32,
    pub(crate) md: MdHandle,
    /// Where in the descriptor an answer goes.
    pub(crate) local: u64,
    /// What is asked of an acknowledgement; nothing of a reply.
    pub(crate) ack: Option<Ack>,
    pub(crate) length: u32,
    pub(crate) pt_index: u32,
    pub(crate) match_bits: u64,
    pub(crate) user_ptr: u64,
    pub(crate) hdr_data: u64,
}

/// How an operation was answered.
#[derive(Clone, Copy)]
pub(crate) struct Outcome {
    pub(crate) ni_fail: NiFail,
    pub(crate) mlength: u32,
    pub(crate) offset: u64,
    /// The target's entry does not want its initiator to know.
    pub(crate) silent: bool,
}

impl Outcome {
    /// It has failed.
    pub(crate) const fn failure(ni_fail: NiFail) -> Self {
        Self { ni_fail, mlength: 0, offset: 0, silent: false }
    }
}

/// Portals 4 for one process.
pub(crate) struct Interface {
    open: bool,
    pub(crate) limits: NiLimits,
    defects: Defects,
    pub(crate) table: Table,
    descriptors: Slab<Descriptor>,
    queues: Slab<(u32, Queue<Event>)>,
    counters: Slab<Counter>,
    pending: Slab<Pending>,
    map: Option<Vec<ProcessId>>,
    /// Triggered operations that wait, and those that have fired.
    waiting: u32,
    fired: u64,
    dropped: u64,
}

impl Interface {
    pub(crate) fn new(limits: NiLimits, defects: Defects) -> Self {
        Self {
            open: false,
            limits,
            defects,
            table: Table::new(limits, defects),
            descriptors: Slab::new(),
            queues: Slab::new(),
            counters: Slab::new(),
            pending: Slab::new(),
            map: None,
            waiting: 0,
            fired: 0,
            dropped: 0,
        }
    }

    pub(crate) fn init(&mut self) -> NiLimits {
        self.open = true;
        self.limits
    }

    pub(crate) fn fini(&mut self) -> Result<(), P4Error> {
        self.opened()?;
        self.open = false;
        self.table.clear();
        self.descriptors.clear();
        self.queues.clear();
        self.counters.clear();
        self.pending.clear();
        (self.map, self.waiting) = (None, 0);
        Ok(())
    }

    #[inline]
    pub(crate) fn opened(&self) -> Result<(), P4Error> {
        if self.open { Ok(()) } else { Err(P4Error::NoInit) }
    }

    fn room(used: usize, what: &'static str, limit: u32) -> Result<(), P4Error> {
        if used < limit as usize { Ok(()) } else { Err(P4Error::NoSpace { what, limit }) }
    }

    pub(crate) fn status(&self) -> Result<Status, P4Error> {
        self.opened()?;
        let counts = self.table.counts;
        Ok(Status {
            dropped: self.dropped + counts.dropped,
            permission_violations: counts.permission_violations,
            operation_violations: counts.operation_violations,
            refused: counts.refused,
            events_lost: self.queues.iter().map(|(_, (_, queue))| queue.all_lost).sum(),
            unexpected: self.table.unexpected(),
            triggered: self.fired,
        })
    }

    pub(crate) fn drop_one(&mut self) {
        self.dropped += 1;
    }

    // The map.

    pub(crate) fn set_map(&mut self, map: &[ProcessId]) -> Result<(), P4Error> {
        self.opened()?;
        if let Some(map) = &self.map {
            return Err(P4Error::Ignored { processes: map.len() as u32 });
        }
        self.map = Some(map.to_vec());
        Ok(())
    }

    pub(crate) fn map(&self) -> Result<&[ProcessId], P4Error> {
        self.opened()?;
        let (what, value, limit) = ("map", 0, "set before");
        self.map.as_deref().ok_or(P4Error::ArgInvalid { what, value, limit })
    }

    pub(crate) fn physical(&self, process: Process) -> Result<ProcessId, P4Error> {
        match process {
            Process::Physical(id) => Ok(id),
            Process::Logical(number) => {
                let found = self.map()?.get(number as usize).copied();
                let (what, value) = ("logical process", number.into());
                found.ok_or(P4Error::ArgInvalid { what, value, limit: "inside the map" })
            }
        }
    }

    // Event queues.

    pub(crate) fn eq_alloc(&mut self, count: u32) -> Result<EqHandle, P4Error> {
        self.opened()?;
        if count == 0 {
            let (what, value) = ("count", 0);
            return Err(P4Error::ArgInvalid { what, value, limit: "at least 1" });
        }
        Self::room(self.queues.len(), "event queues", self.limits.eqs)?;
        Self::room(count as usize - 1, "event queue entries", self.limits.eq_entries)?;
        Ok(EqHandle(self.queues.insert((count, Queue::new(count, Full::Overwrite)))))
    }

    pub(crate) fn eq_free(&mut self, eq: EqHandle) -> Result<(), P4Error> {
        self.opened()?;
        self.queues.get(eq.0).ok_or(stale("event queue", eq.0.index()))?;
        let pending = self.table.uses(eq);
        if pending != 0 {
            return Err(P4Error::InUse { what: "event queue of portal table entries", pending });
        }
        self.queues.remove(eq.0);
        Ok(())
    }

    pub(crate) fn eq_get(&mut self, eq: EqHandle, now: Instant) -> Result<Event, P4Error> {
        self.opened()?;
        // Rule 7 of the sheet: the next look at a queue that has lost events says so.
        let hidden = self.defects.has(Mutation::HideLostEvents);
        let (_, queue) = self.queues.get_mut(eq.0).ok_or(stale("event queue", eq.0.index()))?;
        match queue.take(now) {
            Taken::Empty => Err(P4Error::EqEmpty),
            Taken::Event(event) => Ok(event),
            Taken::Behind(event, _) if hidden => Ok(event),
            Taken::Behind(event, lost) => Err(P4Error::EqDropped { event, lost }),
        }
    }

    pub(crate) fn eq_next(&self, eq: EqHandle) -> Result<Option<Instant>, P4Error> {
        self.opened()?;
        let (_, queue) = self.queues.get(eq.0).ok_or(stale("event queue", eq.0.index()))?;
        Ok(queue.next())
    }

    /// Events that a queue has room for, counting those under way.
    pub(crate) fn eq_room(queues: &Slab<(u32, Queue<Event>)>, eq: EqHandle) -> usize {
        queues.get(eq.0).map_or(usize::MAX, |(count, queue)| (*count as usize).saturating_sub(queue.used()))
    }

    pub(crate) fn post(&mut self, eq: EqHandle, event: Event, at: Instant) {
        if let Some((_, queue)) = self.queues.get_mut(eq.0) {
            queue.post(at, event);
        }
    }

    /// Takes a peer's operation to its place.
    pub(crate) fn arrive(&mut self, asked: &super::lists::Asked) -> Result<super::lists::Place, NiFail> {
        let Self { table, queues, open, .. } = self;
        if !*open {
            self.dropped += 1;
            return Err(NiFail::Dropped);
        }
        table.arrive(asked, |eq| Self::eq_room(queues, eq))
    }

    // Counters.

    pub(crate) fn ct_alloc(&mut self) -> Result<CtHandle, P4Error> {
        self.opened()?;
        Self::room(self.counters.len(), "counting events", self.limits.cts)?;
        Ok(CtHandle(self.counters.insert(Counter::default())))
    }

    pub(crate) fn ct_free(&mut self, ct: CtHandle) -> Result<(), P4Error> {
        self.ct(ct)?;
        if let Some(counter) = self.counters.remove(ct.0) {
            self.waiting -= counter.waiting() as u32;
        }
        Ok(())
    }

    pub(crate) fn ct(&mut self, ct: CtHandle) -> Result<&mut Counter, P4Error> {
        self.opened()?;
        self.counters.get_mut(ct.0).ok_or(stale("counting event", ct.0.index()))
    }

    /// The counter as interfaces see it, whether or not the handle is stale.
    pub(crate) fn counter(&mut self, ct: CtHandle) -> Option<&mut Counter> {
        self.counters.get_mut(ct.0)
    }

    pub(crate) fn ct_cancel(&mut self, ct: CtHandle) -> Result<u32, P4Error> {
        let cancelled = self.ct(ct)?.cancel() as u32;
        self.waiting -= cancelled;
        Ok(cancelled)
    }

    pub(crate) fn trigger(&mut self, ct: CtHandle, threshold: u64, command: Command) -> Result<(), P4Error> {
        self.ct(ct)?;
        Self::room(self.waiting as usize, "triggered operations", self.limits.triggered)?;
        self.ct(ct)?.trigger(threshold, command);
        self.waiting += 1;
        Ok(())
    }

    /// The next command that a counter triggers.
    pub(crate) fn due(&mut self, ct: CtHandle) -> Option<Command> {
        let defects = self.defects;
        // Rule 9 of the sheet: a triggered operation leaves its counter when it fires.
        let command = self.counter(ct)?.due(defects)?;
        self.fired += 1;
        if !defects.has(Mutation::TriggerAgain) {
            self.waiting -= 1;
        }
        Some(command)
    }

    // Memory descriptors.

    pub(crate) fn md_bind(&mut self, md: &Md) -> Result<MdHandle, P4Error> {
        self.opened()?;
        let size = md.memory.len();
        if md.start.checked_add(md.length).is_none_or(|end| end > size) {
            let (what, value) = ("length", md.length as u64);
            return Err(P4Error::ArgInvalid { what, value, limit: "inside the memory" });
        }
        if let Some(eq) = md.eq.filter(|eq| self.queues.get(eq.0).is_none()) {
            return Err(stale("event queue", eq.0.index()));
        }
        if let Some(ct) = md.ct.filter(|ct| self.counters.get(ct.0).is_none()) {
            return Err(stale("counting event", ct.0.index()));
        }
        Self::room(self.descriptors.len(), "memory descriptors", self.limits.mds)?;
        let (md, pending, busy_until) = (md.clone(), 0, Instant::default());
        Ok(MdHandle(self.descriptors.insert(Descriptor { md, pending, busy_until })))
    }

    pub(crate) fn md_release(&mut self, md: MdHandle, now: Instant) -> Result<(), P4Error> {
        self.opened()?;
        let descriptor = self.descriptors.get(md.0).ok_or(stale("memory descriptor", md.0.index()))?;
        let pending = descriptor.pending + u32::from(descriptor.busy_until > now);
        if pending != 0 {
            return Err(P4Error::InUse { what: "memory descriptor", pending });
        }
        self.descriptors.remove(md.0);
        Ok(())
    }

    /// The memory of part of a descriptor, and where it begins there.
    #[inline]
    pub(crate) fn region(&self, region: Region, length: u32) -> Result<(&HostMemory, usize), P4Error> {
        self.opened()?;
        let Region { md, offset } = region;
        let Descriptor { md, .. } = self.descriptors.get(md.0).ok_or(stale("memory descriptor", md.0.index()))?;
        if offset.checked_add(length.into()).is_none_or(|end| end > md.length as u64) {
            let (what, value) = ("length", length.into());
            return Err(P4Error::ArgInvalid { what, value, limit: "inside the memory descriptor" });
        }
        if length > self.limits.message_bytes {
            let (what, value) = ("length", length.into());
            return Err(P4Error::ArgInvalid { what, value, limit: "at most limits.message_bytes" });
        }
        Ok((&md.memory, md.start + offset as usize))
    }

    /// The interface reads a descriptor until a time.
    pub(crate) fn busy(&mut self, md: MdHandle, until: Instant) {
        if let Some(descriptor) = self.descriptors.get_mut(md.0) {
            descriptor.busy_until = descriptor.busy_until.max(until);
        }
    }

    /// What a descriptor wants to be told of an operation: the queue for its event, and the counter with what is
    /// added.
    pub(crate) fn told(
        &self,
        md: MdHandle,
        kind: EventKind,
        well: bool,
        mlength: u32,
    ) -> (Option<EqHandle>, Option<(CtHandle, CtEvent)>) {
        let Some(Descriptor { md, .. }) = self.descriptors.get(md.0) else { return (None, None) };
        let (counted, disabled) = match kind {
            EventKind::Send => (MdOptions::EVENT_CT_SEND, md.options.has(MdOptions::EVENT_SEND_DISABLE)),
            EventKind::Ack => (MdOptions::EVENT_CT_ACK, false),
            _ => (MdOptions::EVENT_CT_REPLY, false),
        };
        let silent = well && (disabled || md.options.has(MdOptions::EVENT_SUCCESS_DISABLE));
        let by = match well {
            false => CtEvent { success: 0, failure: 1 },
            true if md.options.has(MdOptions::EVENT_CT_BYTES) => CtEvent::success(mlength.into()),
            true => CtEvent::success(1),
        };
        let count = md.ct.filter(|_| md.options.has(counted)).map(|ct| (ct, by));
        (md.eq.filter(|_| !silent), count)
    }

    // Operations that have not been answered.

    pub(crate) fn expect(&mut self, pending: Pending) -> Key {
        if let Some(descriptor) = self.descriptors.get_mut(pending.md.0) {
            descriptor.pending += 1;
        }
        self.pending.insert(pending)
    }

    /// An operation has been answered, with these bytes if it fetched. Its effects are to be taken from the table.
    pub(crate) fn answered(&mut self, key: Key, outcome: Outcome, data: &[u8]) {
        let Some(pending) = self.pending.remove(key) else {
            self.dropped += 1;
            return;
        };
        let Some(descriptor) = self.descriptors.get_mut(pending.md.0) else { return };
        descriptor.pending -= 1;
        if outcome.silent {
            return;
        }
        if !data.is_empty() {
            descriptor.md.memory.write(descriptor.md.start + pending.local as usize, data);
        }
        let well = outcome.ni_fail == NiFail::Ok;
        let kind = if pending.ack.is_some() { EventKind::Ack } else { EventKind::Reply };
        let (eq, count) = self.told(pending.md, kind, well, outcome.mlength);
        // Completion alone brings neither lengths nor offsets.
        let bare = pending.ack == Some(Ack::Completed);
        let (mlength, remote_offset) = if bare { (0, 0) } else { (outcome.mlength, outcome.offset) };
        // Rule 3 of the sheet: an event has both lengths.
        let hide = self.defects.has(Mutation::HideTruncation) && well;
        if let Some(eq) = eq.filter(|_| pending.ack != Some(Ack::Count) || !well) {
            let event = Event {
                ni_fail: outcome.ni_fail,
                match_bits: pending.match_bits,
                rlength: pending.length,
                mlength: if hide { pending.length } else { mlength },
                remote_offset,
                start: pending.local,
                user_ptr: pending.user_ptr,
                hdr_data: pending.hdr_data,
                ..Event::of(kind, pending.pt_index)
            };
            self.table.effects.push(Effect::Event(eq, event));
        }
        if let Some((ct, by)) = count {
            self.table.effects.push(Effect::Count(ct, by));
        }
    }

    /// The ranks that operations wait for.
    pub(crate) fn awaited(&self) -> Vec<u32> {
        let mut ranks: Vec<u32> = self.pending.iter().map(|(_, pending)| pending.to).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }

    /// Ends all operations that wait for a rank, which is lost.
    pub(crate) fn fail(&mut self, rank: u32) {
        let keys: Vec<Key> =
            self.pending.iter().filter(|(_, pending)| pending.to == rank).map(|(key, _)| key).collect();
        for key in keys {
            self.answered(key, Outcome::failure(NiFail::Undeliverable), &[]);
        }
    }

    /// What a deadlock report says.
    pub(crate) fn explain(&self) -> Option<String> {
        let events: usize = self.queues.iter().map(|(_, (_, queue))| queue.used()).sum();
        let (pending, waiting, refused) = (self.pending.len(), self.waiting, self.table.counts.refused);
        self.open.then(|| {
            format!("{events} events not taken, {pending} operations unanswered, {waiting} waiting for counters, {refused} messages refused")
        })
    }
}
