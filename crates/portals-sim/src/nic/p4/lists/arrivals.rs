//! The operations of peers on Portals 4: which entry of which list takes each, where it goes, and why one is
//! refused.

use super::super::options::{MeOptions, PtOptions};
use super::super::types::{CtEvent, EqHandle, Event, EventKind, List, NiFail};
use super::{Asked, Effect, Header, Place, Table, amount};
use crate::nic::mutation::Mutation;
use am_core::slab::Key;

impl Table {
    /// Finds the place of a peer's operation and takes it. `room` is how many events a queue has room for.
    pub(crate) fn arrive(&mut self, asked: &Asked, room: impl Fn(EqHandle) -> usize) -> Result<Place, NiFail> {
        let pt_index = asked.pt_index;
        let Some(pt) = self.pts.get(pt_index as usize).and_then(Option::as_ref) else {
            self.counts.dropped += 1;
            return Err(NiFail::Dropped);
        };
        let (options, eq) = (pt.options, pt.eq);
        // Rule 8 of the sheet: a disabled entry takes nothing.
        if !pt.enabled {
            self.counts.refused += 1;
            if self.defects.has(Mutation::RefuseSilently) {
                return Err(NiFail::Ok);
            }
            if !self.defects.has(Mutation::TakeAndRefuse) {
                return Err(NiFail::PtDisabled);
            }
        }
        let controlled = options.has(PtOptions::FLOWCTRL) && !self.defects.has(Mutation::NeverDisable);
        // Rule 1 of the sheet: the priority list is searched before the overflow list.
        let lists = if self.defects.has(Mutation::OverflowFirst) {
            [List::Overflow, List::Priority]
        } else {
            [List::Priority, List::Overflow]
        };
        let Some((key, offset, mlength)) = lists.into_iter().find_map(|list| self.find(asked, list)) else {
            return Err(self.lacks(pt_index, controlled, NiFail::NoMatch));
        };
        let entry = self.entries.get(key).expect("a found entry exists");
        let (list, me_options) = (entry.list, entry.me.options);
        if entry.me.uid.is_some_and(|uid| uid != asked.uid) {
            self.counts.permission_violations += 1;
            return Err(NiFail::PermViolation);
        }
        if !me_options.has(asked.operation.wants()) {
            self.counts.operation_violations += 1;
            return Err(NiFail::OpViolation);
        }
        let unexpected = list == List::Overflow && !me_options.has(MeOptions::UNEXPECTED_HDR_DISABLE);
        if unexpected && self.unexpected() >= self.limits.unexpected_headers {
            return Err(self.lacks(pt_index, controlled, NiFail::Dropped));
        }
        // The event, that of unlinking, that of freeing, and always one for disabling.
        const EVENTS: usize = 4;
        if controlled && eq.is_some_and(|eq| room(eq) < EVENTS) {
            return Err(self.lacks(pt_index, true, NiFail::PtDisabled));
        }
        let start = entry.me.start.saturating_add(offset);
        if start.checked_add(mlength as usize).is_none_or(|end| end > entry.me.memory.len()) {
            self.counts.dropped += 1;
            self.operated(key, asked, 0, offset, NiFail::Segv);
            return Err(NiFail::Segv);
        }
        let place = Place {
            memory: entry.me.memory.clone(),
            at: start,
            offset: offset as u64,
            mlength,
            ack: !me_options.has(MeOptions::ACK_DISABLE),
        };
        self.operated(key, asked, mlength, offset, NiFail::Ok);
        if unexpected {
            let header = Header { asked: *asked, mlength, offset: offset as u64, start: start as u64, entry: key };
            let pt = self.pts[pt_index as usize].as_mut().expect("the portal table entry was just seen");
            pt.headers.push_back(header);
            self.entries.get_mut(key).expect("a found entry exists").headers += 1;
        }
        self.used_up(key, offset, mlength);
        let disabled = self.pts[pt_index as usize].as_ref().is_some_and(|pt| !pt.enabled);
        if disabled && self.defects.has(Mutation::TakeAndRefuse) {
            return Err(NiFail::PtDisabled);
        }
        Ok(place)
    }

    /// A message for which something lacks: with flow control the portal table entry disables itself.
    fn lacks(&mut self, pt_index: u32, controlled: bool, otherwise: NiFail) -> NiFail {
        if !controlled {
            self.counts.dropped += 1;
            return otherwise;
        }
        let pt = self.pts[pt_index as usize].as_mut().expect("the portal table entry was just seen");
        pt.enabled = false;
        self.counts.refused += 1;
        if let Some(eq) = pt.eq {
            let ni_fail = NiFail::PtDisabled;
            let event = Event { ni_fail, ..Event::of(EventKind::PtDisabled, pt_index) };
            self.effects.push(Effect::Event(eq, event));
        }
        NiFail::PtDisabled
    }

    /// The first entry of a list that a message matches, where in it, and how much of it.
    #[inline]
    fn find(&self, asked: &Asked, list: List) -> Option<(Key, usize, u32)> {
        let pt = self.pts.get(asked.pt_index as usize)?.as_ref()?;
        let mut next = pt.lists[list as usize].first;
        let mut found = None;
        while let Some(key) = next {
            let entry = self.entries.get(key).expect("a listed entry exists");
            next = entry.after;
            if !Self::fits(&entry.me, asked) {
                continue;
            }
            let (options, length) = (entry.me.options, entry.me.length);
            let offset = if options.has(MeOptions::MANAGE_LOCAL) {
                let aligned = options.has(MeOptions::MAY_ALIGN);
                if aligned { entry.offset.next_multiple_of(8).min(length) } else { entry.offset }
            } else {
                usize::try_from(asked.offset).map_or(length, |offset| offset.min(length))
            };
            let room = length - offset;
            if asked.length as usize > room && options.has(MeOptions::NO_TRUNCATE) {
                continue;
            }
            found = Some((key, offset, (asked.length as usize).min(room) as u32));
            // Rule 1 of the sheet: the first entry that matches takes the message.
            if !self.defects.has(Mutation::LastMatch) {
                break;
            }
        }
        found
    }

    /// Tells of an operation on an entry.
    fn operated(&mut self, key: Key, asked: &Asked, mlength: u32, offset: usize, ni_fail: NiFail) {
        let entry = self.entries.get(key).expect("a found entry exists");
        let (options, well) = (entry.me.options, ni_fail == NiFail::Ok);
        let pt = self.pts[entry.pt_index as usize].as_ref().expect("an entry's portal table entry exists");
        let silent =
            options.has(MeOptions::EVENT_COMM_DISABLE) || well && options.has(MeOptions::EVENT_SUCCESS_DISABLE);
        // Rule 3 of the sheet: an event has both lengths.
        let told = if self.defects.has(Mutation::HideTruncation) { asked.length } else { mlength };
        if let Some(eq) = pt.eq.filter(|_| !silent) {
            let event = Event {
                ni_fail,
                mlength: told,
                remote_offset: offset as u64,
                start: entry.me.start.saturating_add(offset) as u64,
                user_ptr: entry.user_ptr,
                overflow_ptr: entry.user_ptr,
                list: entry.list,
                ..asked.event(asked.operation.kinds()[0])
            };
            self.effects.push(Effect::Event(eq, event));
        }
        if let Some(ct) = entry.me.ct.filter(|_| options.has(MeOptions::EVENT_CT_COMM)) {
            let by = if well { amount(options, mlength) } else { CtEvent { success: 0, failure: 1 } };
            self.effects.push(Effect::Count(ct, by));
        }
    }

    /// Moves the local offset of an entry, and unlinks it if it is used up.
    fn used_up(&mut self, key: Key, offset: usize, mlength: u32) {
        let (half, no_least) = (self.defects.has(Mutation::HalfOffset), self.defects.has(Mutation::NoMaxSize));
        let entry = self.entries.get_mut(key).expect("a found entry exists");
        let mut ends = entry.me.options.has(MeOptions::USE_ONCE);
        // Rule 2 of the sheet: the local offset moves behind the message, and the entry is used up when less than
        // `min_free` is left.
        if entry.me.options.has(MeOptions::MANAGE_LOCAL) {
            let moved = mlength as usize;
            entry.offset = offset + if half { moved / 2 } else { moved };
            ends |= entry.me.length - entry.offset < entry.me.min_free && !no_least;
        }
        if ends {
            self.auto_unlink(key);
        }
    }
}
