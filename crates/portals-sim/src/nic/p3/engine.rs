//! The state of Portals 3.3 for one process: match lists, memory descriptors, event queues. It has no clock:
//! whoever calls it says when something ends and when its event gets into the queue.

mod lists;
mod matching;

pub(crate) use matching::Asked;

use super::error::P3Error;
use super::types::{
    Criteria, EqHandle, Event, EventKind, Md, MdHandle, MeHandle, Options, Status, Threshold, Unlink,
};
use crate::model::NiLimits;
use crate::nic::HostMemory;
use crate::nic::directory::ProcessId;
use crate::nic::mutation::{Defects, Mutation};
use crate::nic::queue::{Full, Queue, Taken};
use am_core::Instant;
use am_core::slab::{Key, Slab};
use std::collections::VecDeque;

/// The bits of all event queues, for [`Interface::next_event`]. Those beyond the 64th have none of their own.
pub(crate) const ALL: u64 = u64::MAX;

/// A match entry, in the list of its portal table entry.
struct Entry {
    pt_index: u32,
    criteria: Criteria,
    unlink: Unlink,
    md: Option<Key>,
    before: Option<Key>,
    after: Option<Key>,
}

#[derive(Clone, Copy, Default)]
struct List {
    first: Option<Key>,
    last: Option<Key>,
}

/// A memory descriptor.
struct Descriptor {
    md: Md,
    unlink: Unlink,
    entry: Option<Key>,
    /// The locally managed offset.
    offset: usize,
    /// Less than `max_size` is left.
    exhausted: bool,
    /// Gets whose answers have not come.
    pending: u32,
    /// Until then the interface reads from it.
    busy_until: Instant,
    /// It has been unlinked, and goes as soon as the interface is done with it.
    retired: bool,
}

impl Descriptor {
    #[inline]
    fn active(&self) -> bool {
        self.md.threshold != Threshold::Count(0) && !self.exhausted && !self.retired
    }

    #[inline]
    fn count(&mut self) {
        if let Threshold::Count(left) = &mut self.md.threshold {
            *left -= 1;
        }
    }
}

/// An operation as its events tell of it.
#[derive(Clone, Copy)]
pub(crate) struct EventDetails {
    pub(crate) initiator: ProcessId,
    pub(crate) pt_index: u32,
    pub(crate) match_bits: u64,
    pub(crate) hdr_data: u64,
    pub(crate) rlength: u32,
    pub(crate) mlength: u32,
    pub(crate) offset: u64,
}

/// Portals 3.3 for one process.
pub(crate) struct Interface {
    open: bool,
    limits: NiLimits,
    defects: Defects,
    table: Vec<List>,
    entries: Slab<Entry>,
    descriptors: Slab<Descriptor>,
    queues: Slab<Queue<Event>>,
    /// Descriptors that go at a time.
    retiring: VecDeque<(Instant, Key)>,
    dropped: u64,
    walked: u64,
}

impl Interface {
    pub(crate) fn new(limits: NiLimits, defects: Defects) -> Self {
        Self {
            open: false,
            limits,
            defects,
            table: Vec::new(),
            entries: Slab::new(),
            descriptors: Slab::new(),
            queues: Slab::new(),
            retiring: VecDeque::new(),
            dropped: 0,
            walked: 0,
        }
    }

    pub(crate) fn init(&mut self) -> Result<NiLimits, P3Error> {
        if self.open {
            return Err(P3Error::IfaceDup);
        }
        self.open = true;
        Ok(self.limits)
    }

    pub(crate) fn fini(&mut self) -> Result<(), P3Error> {
        self.opened()?;
        self.open = false;
        self.table.clear();
        self.entries.clear();
        self.descriptors.clear();
        self.queues.clear();
        self.retiring.clear();
        Ok(())
    }

    fn opened(&self) -> Result<(), P3Error> {
        if self.open { Ok(()) } else { Err(P3Error::NoInit) }
    }

    fn room(used: usize, what: &'static str, limit: u32) -> Result<(), P3Error> {
        if used < limit as usize { Ok(()) } else { Err(P3Error::NoSpace { what, limit }) }
    }

    /// Portal table entries, for messages as well.
    pub(crate) fn check_pt(&self, index: u32) -> Result<(), P3Error> {
        let entries = self.limits.pt_entries;
        if index < entries { Ok(()) } else { Err(P3Error::PtIndexInvalid { index, entries }) }
    }

    /// What [`Status::dropped`] is.
    pub(crate) const fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(crate) fn status(&self) -> Result<Status, P3Error> {
        self.opened()?;
        Ok(Status {
            dropped: self.dropped,
            events_lost: self.queues.iter().map(|(_, queue)| queue.all_lost).sum(),
            walked: self.walked,
            in_use: [self.entries.len(), self.descriptors.len(), self.queues.len()].map(|used| used as u32),
        })
    }

    // Event queues.

    pub(crate) fn eq_alloc(&mut self, count: u32) -> Result<EqHandle, P3Error> {
        self.opened()?;
        Self::room(self.queues.len(), "event queues", self.limits.eqs)?;
        if count == 0 || count > self.limits.eq_entries {
            return Err(P3Error::NoSpace { what: "event queue entries", limit: self.limits.eq_entries });
        }
        Ok(EqHandle(self.queues.insert(Queue::new(count, Full::Refuse))))
    }

    pub(crate) fn eq_free(&mut self, eq: EqHandle) -> Result<(), P3Error> {
        self.opened()?;
        self.queues.remove(eq.0).map(drop).ok_or(P3Error::EqInvalid { eq })
    }

    #[inline]
    pub(crate) fn eq_get(&mut self, eq: EqHandle, now: Instant) -> Result<Event, P3Error> {
        // Rule 7 of the sheet: the next look at a queue that has lost events says so.
        let hidden = self.defects.has(Mutation::HideLostEvents);
        let Some(queue) = self.queues.get_mut(eq.0) else {
            return self.opened().and(Err(P3Error::EqInvalid { eq }));
        };
        match queue.take(now) {
            Taken::Empty => Err(P3Error::EqEmpty),
            Taken::Event(event) => Ok(event),
            Taken::Behind(event, _) if hidden => Ok(event),
            Taken::Behind(event, lost) => Err(P3Error::EqDropped { event, lost }),
        }
    }

    /// When the next event of a queue is there; nothing if none is on its way.
    pub(crate) fn eq_next(&self, eq: EqHandle) -> Result<Option<Instant>, P3Error> {
        let queue = self.queues.get(eq.0);
        queue.map(Queue::next).ok_or_else(|| self.opened().err().unwrap_or(P3Error::EqInvalid { eq }))
    }

    /// The bits of some queues for [`Interface::next_event`].
    pub(crate) fn bits(queues: &[EqHandle]) -> u64 {
        let bit = |index: u32| 1_u64.checked_shl(index).unwrap_or(ALL);
        queues.iter().fold(0, |all, eq| all | bit(eq.0.index()))
    }

    /// When the next event of some queues is there.
    pub(crate) fn next_event(&self, watched: u64) -> Option<Instant> {
        let queues = self.queues.iter().filter(|(key, _)| {
            watched == ALL || watched.checked_shr(key.index()).is_some_and(|bits| bits & 1 == 1)
        });
        queues.filter_map(|(_, queue)| queue.next()).min()
    }

    // Memory descriptors.

    pub(crate) fn md_attach(&mut self, me: MeHandle, md: &Md, unlink: Unlink) -> Result<MdHandle, P3Error> {
        self.opened()?;
        let Some(entry) = self.entries.get(me.0) else { return Err(P3Error::MeInvalid { me }) };
        if let Some(other) = entry.md {
            return Err(P3Error::MeInUse { me, md: MdHandle(other) });
        }
        let key = self.add(md, unlink, Some(me.0))?;
        self.entries.get_mut(me.0).expect("the entry was just seen").md = Some(key);
        Ok(MdHandle(key))
    }

    pub(crate) fn md_bind(&mut self, md: &Md, unlink: Unlink, now: Instant) -> Result<MdHandle, P3Error> {
        self.opened()?;
        self.retire(now);
        self.add(md, unlink, None).map(MdHandle)
    }

    fn add(&mut self, md: &Md, unlink: Unlink, entry: Option<Key>) -> Result<Key, P3Error> {
        let (size, length) = (md.memory.len(), md.length);
        if md.start.checked_add(length).is_none_or(|end| end > size) {
            let (offset, length, limit) = (md.start as u64, length as u64, size as u64);
            return Err(P3Error::MdIllegal { what: "the memory", offset, length, limit });
        }
        if let Some(eq) = md.eq.filter(|eq| self.queues.get(eq.0).is_none()) {
            return Err(P3Error::EqInvalid { eq });
        }
        Self::room(self.descriptors.len(), "memory descriptors", self.limits.mds)?;
        Ok(self.descriptors.insert(Descriptor {
            md: md.clone(),
            unlink,
            entry,
            offset: 0,
            exhausted: false,
            pending: 0,
            busy_until: Instant::default(),
            retired: false,
        }))
    }

    pub(crate) fn md_unlink(&mut self, md: MdHandle, now: Instant) -> Result<(), P3Error> {
        self.opened()?;
        self.retire(now);
        let Some(descriptor) = self.descriptors.get(md.0) else { return Err(P3Error::MdInvalid { md }) };
        if descriptor.pending != 0 || descriptor.busy_until > now {
            return Err(P3Error::MdInUse { md });
        }
        self.detach(md.0);
        self.descriptors.remove(md.0);
        Ok(())
    }

    /// Takes a descriptor from its match entry, and that from its list if it wants to go too.
    fn detach(&mut self, md: Key) {
        let entry = self.descriptors.get_mut(md).and_then(|descriptor| descriptor.entry.take());
        if let Some(key) = entry
            && let Some(entry) = self.entries.get_mut(key)
        {
            entry.md = None;
            if entry.unlink == Unlink::Unlink {
                self.remove_entry(key);
            }
        }
    }

    /// Removes the descriptors that the interface is done with.
    fn retire(&mut self, now: Instant) {
        while let Some((at, key)) = self.retiring.front().copied()
            && at <= now
        {
            self.retiring.pop_front();
            self.descriptors.remove(key);
        }
    }

    /// Unlinks a descriptor that has become inactive and wants that. `now` may lie before what has been given to
    /// it.
    fn settle(&mut self, md: Key, about: EventDetails, at: Instant) {
        let Some(descriptor) = self.descriptors.get_mut(md) else { return };
        if descriptor.active()
            || descriptor.unlink == Unlink::Retain
            || descriptor.pending != 0
            || descriptor.retired
        {
            return;
        }
        descriptor.retired = true;
        let until = descriptor.busy_until;
        self.post(md, EventKind::Unlink, about, at);
        self.detach(md);
        if until == Instant::default() {
            self.descriptors.remove(md);
        } else {
            self.retiring.push_back((until, md));
        }
    }

    /// Lets an event of a descriptor come.
    #[inline]
    fn post(&mut self, md: Key, kind: EventKind, about: EventDetails, at: Instant) {
        let Some(Descriptor { md: Md { eq: Some(eq), user_ptr, .. }, .. }) = self.descriptors.get(md) else {
            return;
        };
        let EventDetails { initiator, pt_index, match_bits, hdr_data, rlength, mlength, offset } = about;
        // Rule 3 of the sheet: an event has both lengths.
        let mlength = if self.defects.has(Mutation::HideTruncation) { rlength } else { mlength };
        let (user_ptr, md) = (*user_ptr, MdHandle(md));
        let event =
            Event { kind, initiator, pt_index, rlength, mlength, match_bits, offset, md, user_ptr, hdr_data };
        if let Some(queue) = self.queues.get_mut(eq.0) {
            queue.post(at, event);
        }
    }

    /// Lets the events of an operation come: its start, if the descriptor wants to know it, and its end.
    #[inline]
    fn post_both(&mut self, md: Key, kinds: [EventKind; 2], about: EventDetails, at: Instant) {
        let options = self.descriptors.get(md).map_or(Options::NONE, |descriptor| descriptor.md.options);
        if !options.has(Options::EVENT_START_DISABLE) {
            self.post(md, kinds[0], about, at);
        }
        self.post(md, kinds[1], about, at);
    }

    /// Lets the end of an operation come, and what follows from it.
    #[inline]
    fn finish(&mut self, md: Key, kinds: [EventKind; 2], about: EventDetails, at: Instant) {
        if self.defects.has(Mutation::UnlinkEarly) && self.ends(md) {
            self.post(md, EventKind::Unlink, about, at);
        }
        // Rule 2 of the sheet: the unlinking is told after the last message.
        self.post_both(md, kinds, about, at);
        self.settle(md, about, at);
    }

    fn ends(&self, md: Key) -> bool {
        self.descriptors.get(md).is_some_and(|descriptor| !descriptor.active() && descriptor.pending == 0)
    }

    // Operations of this process.

    /// Checks an operation of this process on some bytes of a descriptor.
    #[inline]
    fn own(&mut self, md: MdHandle, offset: u64, length: u32) -> Result<&mut Descriptor, P3Error> {
        let limit = self.limits.message_bytes;
        if !self.open {
            return Err(P3Error::NoInit);
        }
        let found = self.descriptors.get_mut(md.0).filter(|descriptor| descriptor.active());
        let descriptor = found.ok_or(P3Error::MdInvalid { md })?;
        let (length, size) = (u64::from(length), descriptor.md.length as u64);
        if offset.checked_add(length).is_none_or(|end| end > size) {
            return Err(P3Error::MdIllegal { what: "the memory descriptor", offset, length, limit: size });
        }
        if length > u64::from(limit) {
            return Err(P3Error::MdIllegal { what: "a message", offset: 0, length, limit: limit.into() });
        }
        Ok(descriptor)
    }

    /// Checks a put; returns what it reads.
    #[inline]
    pub(crate) fn put(&mut self, md: MdHandle, offset: u64, length: u32) -> Result<(&HostMemory, usize), P3Error> {
        let descriptor = self.own(md, offset, length)?;
        Ok((&descriptor.md.memory, descriptor.md.start + offset as usize))
    }

    /// A put that has been checked leaves: its bytes have been read at `end`, the event comes at `at`.
    pub(crate) fn sent(&mut self, md: MdHandle, about: EventDetails, end: Instant, at: Instant) {
        let Some(descriptor) = self.descriptors.get_mut(md.0) else { return };
        descriptor.count();
        descriptor.busy_until = descriptor.busy_until.max(end);
        self.finish(md.0, [EventKind::SendStart, EventKind::SendEnd], about, at);
    }

    /// Checks and begins a get.
    pub(crate) fn get(&mut self, md: MdHandle, offset: u64, length: u32) -> Result<(), P3Error> {
        let descriptor = self.own(md, offset, length)?;
        descriptor.count();
        descriptor.pending += 1;
        Ok(())
    }

    /// A put of this process has been delivered.
    pub(crate) fn acknowledged(&mut self, md: MdHandle, about: EventDetails, at: Instant) {
        let found = self.descriptors.get_mut(md.0).filter(|descriptor| descriptor.active());
        let Some(descriptor) = found else {
            self.dropped += 1;
            return;
        };
        descriptor.count();
        if self.defects.has(Mutation::UnlinkEarly) && self.ends(md.0) {
            self.post(md.0, EventKind::Unlink, about, at);
        }
        self.post(md.0, EventKind::Ack, about, at);
        self.settle(md.0, about, at);
    }

    /// The answer to a get of this process has come, for an offset in its descriptor.
    pub(crate) fn answered(&mut self, md: MdHandle, local: u64, about: EventDetails, data: &[u8], at: Instant) {
        let Some(descriptor) = self.descriptors.get_mut(md.0) else {
            self.dropped += 1;
            return;
        };
        descriptor.pending = descriptor.pending.saturating_sub(1);
        if !descriptor.active() {
            self.dropped += 1;
            return self.settle(md.0, about, at);
        }
        descriptor.count();
        descriptor.md.memory.write(descriptor.md.start + local as usize, data);
        self.finish(md.0, [EventKind::ReplyStart, EventKind::ReplyEnd], about, at);
    }

    /// What a deadlock report says, when so many puts are still to be delivered.
    pub(crate) fn explain(&self, puts: usize) -> String {
        let events = puts + self.queues.iter().map(|(_, queue)| queue.used()).sum::<usize>();
        let gets: u32 = self.descriptors.iter().map(|(_, descriptor)| descriptor.pending).sum();
        format!("{events} events not taken, {gets} gets unanswered, {} messages dropped", self.dropped)
    }
}
