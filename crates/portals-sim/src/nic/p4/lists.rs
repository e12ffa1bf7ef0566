//! Portal table entries of Portals 4 with their priority and overflow lists and unexpected headers, as a state
//! machine with no clock. What it does to event queues and counters it says as effects.

mod arrivals;
mod headers;

use super::atomic::{AtomicOp, Datatype};
use super::error::{P4Error, stale};
use super::options::{MeOptions, PtOptions};
use super::types::{CtEvent, CtHandle, EqHandle, Event, EventKind, List, Me, MeHandle, NiFail};
use crate::model::NiLimits;
use crate::nic::HostMemory;
use crate::nic::directory::ProcessId;
use crate::nic::mutation::Defects;
use am_core::slab::{Key, Slab};
use std::collections::VecDeque;

/// What a peer's operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Put,
    Get,
    Atomic,
    FetchAtomic,
}

impl Operation {
    /// What an entry must permit.
    fn wants(self) -> MeOptions {
        match self {
            Self::Put | Self::Atomic => MeOptions::OP_PUT,
            Self::Get => MeOptions::OP_GET,
            Self::FetchAtomic => MeOptions::OP_PUT | MeOptions::OP_GET,
        }
    }

    fn kinds(self) -> [EventKind; 2] {
        match self {
            Self::Put => [EventKind::Put, EventKind::PutOverflow],
            Self::Get => [EventKind::Get, EventKind::GetOverflow],
            Self::Atomic => [EventKind::Atomic, EventKind::AtomicOverflow],
            Self::FetchAtomic => [EventKind::FetchAtomic, EventKind::FetchAtomicOverflow],
        }
    }
}

/// What a peer's operation asks for.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) operation: Operation,
    pub(crate) initiator: ProcessId,
    pub(crate) uid: u32,
    pub(crate) pt_index: u32,
    pub(crate) match_bits: u64,
    pub(crate) hdr_data: u64,
    pub(crate) length: u32,
    pub(crate) offset: u64,
    pub(crate) atomic: Option<(AtomicOp, Datatype)>,
}

/// What becomes of the program's queues and counters.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Effect {
    Event(EqHandle, Event),
    Count(CtHandle, CtEvent),
}

/// Where an operation goes.
pub(crate) struct Place {
    pub(crate) memory: HostMemory,
    pub(crate) at: usize,
    pub(crate) offset: u64,
    pub(crate) mlength: u32,
    /// The entry lets it be acknowledged.
    pub(crate) ack: bool,
}

/// An entry of a list.
struct Entry {
    me: Me,
    pt_index: u32,
    list: List,
    user_ptr: u64,
    /// The locally managed offset.
    offset: usize,
    /// Unexpected headers whose bytes lie here.
    headers: u32,
    /// It has unlinked itself, and is here for its headers only.
    unlinked: bool,
    before: Option<Key>,
    after: Option<Key>,
}

/// A message that only the overflow list has taken.
#[derive(Clone, Copy)]
struct Header {
    asked: Asked,
    mlength: u32,
    offset: u64,
    start: u64,
    entry: Key,
}

#[derive(Clone, Copy, Default)]
struct Ends {
    first: Option<Key>,
    last: Option<Key>,
    count: u32,
}

/// A portal table entry.
struct Pt {
    options: PtOptions,
    eq: Option<EqHandle>,
    enabled: bool,
    /// Whether its entries match; known with the first.
    matching: Option<bool>,
    lists: [Ends; 2],
    headers: VecDeque<Header>,
}

/// What has been counted.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) dropped: u64,
    pub(crate) permission_violations: u64,
    pub(crate) operation_violations: u64,
    pub(crate) refused: u64,
}

/// The portal table of a process.
pub(crate) struct Table {
    limits: NiLimits,
    defects: Defects,
    pts: Vec<Option<Pt>>,
    entries: Slab<Entry>,
    pub(crate) counts: Counts,
    /// What the program is to be told; taken by whoever calls.
    pub(crate) effects: Vec<Effect>,
}

impl Table {
    pub(crate) fn new(limits: NiLimits, defects: Defects) -> Self {
        let (pts, entries) = (Vec::new(), Slab::new());
        Self { limits, defects, pts, entries, counts: Counts::default(), effects: Vec::new() }
    }

    pub(crate) fn clear(&mut self) {
        self.pts.clear();
        self.entries.clear();
        self.effects.clear();
    }

    pub(crate) fn unexpected(&self) -> u32 {
        self.pts.iter().flatten().map(|pt| pt.headers.len() as u32).sum()
    }

    /// Whether a portal table entry puts its events into a queue.
    pub(crate) fn uses(&self, eq: EqHandle) -> u32 {
        self.pts.iter().flatten().filter(|pt| pt.eq == Some(eq)).count() as u32
    }

    // Portal table entries.

    pub(crate) fn pt_alloc(
        &mut self,
        options: PtOptions,
        eq: Option<EqHandle>,
        wanted: Option<u32>,
    ) -> Result<u32, P4Error> {
        let limit = self.limits.pt_entries;
        if options.has(PtOptions::FLOWCTRL) && eq.is_none() {
            return Err(P4Error::PtEqNeeded);
        }
        let free = |index: u32| self.pts.get(index as usize).is_none_or(Option::is_none);
        let index = match wanted {
            Some(index) if index >= limit => {
                let (what, value) = ("portal table entry", index.into());
                return Err(P4Error::ArgInvalid { what, value, limit: "inside the table" });
            }
            Some(index) if !free(index) => {
                return Err(P4Error::PtInUse { index, entries: self.used(index) });
            }
            Some(index) => index,
            None => (0..limit).find(|index| free(*index)).ok_or(P4Error::PtFull { entries: limit })?,
        };
        if self.pts.len() <= index as usize {
            self.pts.resize_with(index as usize + 1, || None);
        }
        let (enabled, lists, headers) =
            (!options.has(PtOptions::ALLOC_DISABLED), Default::default(), VecDeque::new());
        self.pts[index as usize] = Some(Pt { options, eq, enabled, matching: None, lists, headers });
        Ok(index)
    }

    fn used(&self, index: u32) -> u32 {
        let pt = self.pts.get(index as usize).and_then(Option::as_ref);
        pt.map_or(0, |pt| pt.lists.iter().map(|list| list.count).sum())
    }

    fn pt(&mut self, index: u32) -> Result<&mut Pt, P4Error> {
        let found = self.pts.get_mut(index as usize).and_then(Option::as_mut);
        let (what, value) = ("portal table entry", index.into());
        found.ok_or(P4Error::ArgInvalid { what, value, limit: "one that is allocated" })
    }

    pub(crate) fn pt_free(&mut self, index: u32) -> Result<(), P4Error> {
        self.pt(index)?;
        match self.used(index) {
            0 => {
                // Overflow entries that are there for their unexpected headers only go with these.
                let headers = self.pts[index as usize].take().map(|pt| pt.headers).unwrap_or_default();
                headers.iter().for_each(|header| drop(self.entries.remove(header.entry)));
                Ok(())
            }
            entries => Err(P4Error::PtInUse { index, entries }),
        }
    }

    pub(crate) fn pt_enable(&mut self, index: u32, enabled: bool) -> Result<(), P4Error> {
        self.pt(index)?.enabled = enabled;
        Ok(())
    }

    // Entries.

    /// Appends an entry. One for the priority list first takes the unexpected headers that it matches; one that is
    /// used once is not linked if there is one.
    pub(crate) fn append(
        &mut self,
        pt_index: u32,
        me: Me,
        list: List,
        user_ptr: u64,
        matching: bool,
    ) -> Result<MeHandle, P4Error> {
        let limits = self.limits;
        let pt = self.pt(pt_index)?;
        let refused = |what, limit| Err(P4Error::ArgInvalid { what, value: pt_index.into(), limit });
        if pt.matching.is_some_and(|other| other != matching) {
            return refused("portal table entry", "one with entries of the same kind");
        }
        let once = me.options.has(MeOptions::USE_ONCE);
        if pt.options.has(PtOptions::ONLY_USE_ONCE) && list == List::Priority && !once {
            return refused("portal table entry", "one that takes entries that are not used once");
        }
        if pt.lists[list as usize].count >= limits.list_entries {
            return Err(P4Error::ListTooLong { pt_index, limit: limits.list_entries });
        }
        pt.matching = Some(matching);
        let before = pt.lists[list as usize].last;
        if self.entries.len() >= limits.entries as usize {
            return Err(P4Error::NoSpace { what: "list entries", limit: limits.entries });
        }
        let found = list == List::Priority && self.claim(pt_index, &me, user_ptr, once, true) != 0;
        let (offset, headers, unlinked, after) = (0, 0, false, None);
        let entry = Entry { me, pt_index, list, user_ptr, offset, headers, unlinked, before, after };
        let key = self.entries.insert(entry);
        self.join(pt_index, list, before, Some(key));
        self.join(pt_index, list, Some(key), None);
        self.pt(pt_index)?.lists[list as usize].count += 1;
        if found && once {
            self.auto_unlink(key);
        } else {
            self.tell(key, EventKind::Link, MeOptions::EVENT_LINK_DISABLE);
        }
        Ok(MeHandle(key))
    }

    /// Makes two entries of a list, or one and an end of it, neighbours.
    fn join(&mut self, pt_index: u32, list: List, before: Option<Key>, after: Option<Key>) {
        let pt = self.pts[pt_index as usize].as_mut().expect("an entry's portal table entry exists");
        let ends = &mut pt.lists[list as usize];
        match before.and_then(|key| self.entries.get_mut(key)) {
            Some(entry) => entry.after = after,
            None => ends.first = after,
        }
        match after.and_then(|key| self.entries.get_mut(key)) {
            Some(entry) => entry.before = before,
            None => ends.last = before,
        }
    }

    fn unlink(&mut self, key: Key) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.unlinked = true;
        let Entry { pt_index, list, before, after, .. } = *entry;
        self.join(pt_index, list, before, after);
        let pt = self.pts[pt_index as usize].as_mut().expect("an entry's portal table entry exists");
        pt.lists[list as usize].count -= 1;
    }

    pub(crate) fn me_unlink(&mut self, me: MeHandle) -> Result<(), P4Error> {
        let found = self.entries.get(me.0).filter(|entry| !entry.unlinked);
        let entry = found.ok_or(stale("list entry", me.0.index()))?;
        if entry.headers != 0 {
            return Err(P4Error::InUse { what: "overflow entry", pending: entry.headers });
        }
        self.unlink(me.0);
        self.entries.remove(me.0);
        Ok(())
    }

    /// An entry unlinks itself; one with unexpected headers stays for them.
    fn auto_unlink(&mut self, key: Key) {
        self.tell(key, EventKind::AutoUnlink, MeOptions::EVENT_UNLINK_DISABLE);
        self.unlink(key);
        self.auto_free(key);
    }

    fn auto_free(&mut self, key: Key) {
        let Some(entry) = self.entries.get(key) else { return };
        if !entry.unlinked || entry.headers != 0 {
            return;
        }
        if entry.list == List::Overflow {
            self.tell(key, EventKind::AutoFree, MeOptions::EVENT_UNLINK_DISABLE);
        }
        self.entries.remove(key);
    }

    /// Tells of an entry, unless it does not want that.
    fn tell(&mut self, key: Key, kind: EventKind, disabled: MeOptions) {
        let Some(entry) = self.entries.get(key) else { return };
        let pt = self.pts[entry.pt_index as usize].as_ref().expect("an entry's portal table entry exists");
        let Some(eq) = pt.eq.filter(|_| !entry.me.options.has(disabled)) else { return };
        let event = Event {
            list: entry.list,
            user_ptr: entry.user_ptr,
            match_bits: entry.me.match_bits,
            ..Event::of(kind, entry.pt_index)
        };
        self.effects.push(Effect::Event(eq, event));
    }
}

/// What a counter counts.
fn amount(options: MeOptions, mlength: u32) -> CtEvent {
    CtEvent::success(if options.has(MeOptions::EVENT_CT_BYTES) { mlength.into() } else { 1 })
}

impl Event {
    /// An event without an operation.
    pub(crate) fn of(kind: EventKind, pt_index: u32) -> Self {
        Self {
            kind,
            ni_fail: NiFail::Ok,
            initiator: ProcessId { nid: 0, pid: 0 },
            uid: 0,
            pt_index,
            list: List::Priority,
            match_bits: 0,
            rlength: 0,
            mlength: 0,
            remote_offset: 0,
            start: 0,
            user_ptr: 0,
            overflow_ptr: 0,
            hdr_data: 0,
            atomic: None,
        }
    }
}

impl Asked {
    fn event(&self, kind: EventKind) -> Event {
        Event {
            initiator: self.initiator,
            uid: self.uid,
            match_bits: self.match_bits,
            rlength: self.length,
            hdr_data: self.hdr_data,
            atomic: self.atomic,
            ..Event::of(kind, self.pt_index)
        }
    }
}
