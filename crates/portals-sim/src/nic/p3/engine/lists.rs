//! The match lists of Portals 3.3: one for each portal table entry.

use super::super::error::P3Error;
use super::super::types::{Criteria, MdHandle, MeHandle, Position, Unlink};
use super::{Entry, Interface, List};
use am_core::Instant;
use am_core::slab::Key;

impl Interface {
    pub(crate) fn me_attach(
        &mut self,
        pt_index: u32,
        criteria: Criteria,
        unlink: Unlink,
        position: Position,
    ) -> Result<MeHandle, P3Error> {
        self.opened()?;
        self.check_pt(pt_index)?;
        Self::room(self.entries.len(), "match entries", self.limits.entries)?;
        if self.table.len() <= pt_index as usize {
            self.table.resize(pt_index as usize + 1, List::default());
        }
        let list = self.table[pt_index as usize];
        let (before, after) = match position {
            Position::Before => (None, list.first),
            Position::After => (list.last, None),
        };
        Ok(self.link(Entry { pt_index, criteria, unlink, md: None, before, after }))
    }

    pub(crate) fn me_insert(
        &mut self,
        base: MeHandle,
        criteria: Criteria,
        unlink: Unlink,
        position: Position,
    ) -> Result<MeHandle, P3Error> {
        self.opened()?;
        let Some(found) = self.entries.get(base.0) else { return Err(P3Error::MeInvalid { me: base }) };
        Self::room(self.entries.len(), "match entries", self.limits.entries)?;
        let (before, after) = match position {
            Position::Before => (found.before, Some(base.0)),
            Position::After => (Some(base.0), found.after),
        };
        let pt_index = found.pt_index;
        Ok(self.link(Entry { pt_index, criteria, unlink, md: None, before, after }))
    }

    fn link(&mut self, entry: Entry) -> MeHandle {
        let Entry { pt_index, before, after, .. } = entry;
        let key = self.entries.insert(entry);
        self.join(pt_index, before, Some(key));
        self.join(pt_index, Some(key), after);
        MeHandle(key)
    }

    /// Makes two entries of a list, or one and an end of it, neighbours.
    fn join(&mut self, pt_index: u32, before: Option<Key>, after: Option<Key>) {
        let list = &mut self.table[pt_index as usize];
        match before.and_then(|key| self.entries.get_mut(key)) {
            Some(entry) => entry.after = after,
            None => list.first = after,
        }
        match after.and_then(|key| self.entries.get_mut(key)) {
            Some(entry) => entry.before = before,
            None => list.last = before,
        }
    }

    pub(crate) fn me_unlink(&mut self, me: MeHandle, now: Instant) -> Result<(), P3Error> {
        self.opened()?;
        self.retire(now);
        let Some(entry) = self.entries.get(me.0) else { return Err(P3Error::MeInvalid { me }) };
        if let Some(md) = entry.md {
            let descriptor = self.descriptors.get(md).expect("a linked descriptor exists");
            if descriptor.pending != 0 || descriptor.busy_until > now {
                return Err(P3Error::MeInUse { me, md: MdHandle(md) });
            }
            self.descriptors.remove(md);
        }
        self.remove_entry(me.0);
        Ok(())
    }

    pub(super) fn remove_entry(&mut self, key: Key) {
        if let Some(Entry { pt_index, before, after, .. }) = self.entries.remove(key) {
            self.join(pt_index, before, after);
        }
    }
}
