//! Unexpected headers of Portals 4: what only the overflow list has taken, until an entry or a search finds it.

use super::super::error::P4Error;
use super::super::options::MeOptions;
use super::super::types::{Event, EventKind, List, Me, NiFail, Search};
use super::{Asked, Effect, Table, amount};
use crate::nic::mutation::Mutation;

impl Table {
    pub(super) fn fits(me: &Me, asked: &Asked) -> bool {
        (asked.match_bits ^ me.match_bits) & !me.ignore_bits == 0 && me.source.fits(asked.initiator)
    }

    /// Finds the unexpected headers that an entry matches, or the first of them, and tells of them; with `take`
    /// they are gone then. Returns how many there were.
    pub(super) fn claim(&mut self, pt_index: u32, me: &Me, user_ptr: u64, first: bool, take: bool) -> u32 {
        // Rule 1 of the sheet: headers are found in the order in which the messages came, each by one entry.
        let forget = self.defects.has(Mutation::ForgetUnexpected);
        let mut found = 0;
        let mut index = 0;
        loop {
            let pt = self.pts[pt_index as usize].as_mut().expect("the portal table entry was just seen");
            let Some(header) = pt.headers.get(index).copied() else { return found };
            let too_long = header.asked.length as usize > me.length && me.options.has(MeOptions::NO_TRUNCATE);
            if !Self::fits(me, &header.asked) || too_long || forget || (first && found != 0) {
                index += 1;
                continue;
            }
            let eq = pt.eq;
            if take {
                pt.headers.remove(index);
            } else {
                index += 1;
            }
            found += 1;
            let options = me.options;
            let owner = self.entries.get_mut(header.entry).expect("a header's entry exists");
            let overflow_ptr = owner.user_ptr;
            if take {
                owner.headers -= 1;
            }
            let kind = if take { header.asked.operation.kinds()[1] } else { EventKind::Search };
            let quiet = MeOptions::EVENT_COMM_DISABLE;
            let silent = take && (options.has(MeOptions::EVENT_OVER_DISABLE) || options.has(quiet));
            if let Some(eq) = eq.filter(|_| !silent) {
                let event = Event {
                    mlength: header.mlength,
                    remote_offset: header.offset,
                    start: header.start,
                    user_ptr,
                    overflow_ptr,
                    list: List::Overflow,
                    ..header.asked.event(kind)
                };
                self.effects.push(Effect::Event(eq, event));
            }
            if take {
                if let Some(ct) = me.ct.filter(|_| options.has(MeOptions::EVENT_CT_OVERFLOW)) {
                    self.effects.push(Effect::Count(ct, amount(options, header.mlength)));
                }
                self.auto_free(header.entry);
            }
        }
    }

    pub(crate) fn search(&mut self, pt_index: u32, me: &Me, search: Search, user_ptr: u64) -> Result<(), P4Error> {
        self.pt(pt_index)?;
        let first = me.options.has(MeOptions::USE_ONCE);
        let found = self.claim(pt_index, me, user_ptr, first, search == Search::Delete);
        if found == 0
            && let Some(eq) = self.pt(pt_index)?.eq
        {
            let (ni_fail, match_bits) = (NiFail::NoMatch, me.match_bits);
            let event = Event { ni_fail, user_ptr, match_bits, ..Event::of(EventKind::Search, pt_index) };
            self.effects.push(Effect::Event(eq, event));
        }
        Ok(())
    }
}
