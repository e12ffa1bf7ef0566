//! Joining the two halves of Long messages: the header that came over VELO, and the notification of its put.
//!
//! The two units keep their own order for each pair of processes, but none with each other. The sender numbers the
//! Long messages of a pair, and a header carries its number. In the first implementation of active messages a
//! notification behind the puts carries it, too. The second saves that: the puts that ask for a completer
//! notification are those same messages in that same order, so the n-th such notification of a source is that of
//! message n. A message is complete when both halves have come, whichever was first. A pair's outstanding messages
//! are bounded by its mailbox slots, and so is what is kept here.

use super::header::{Header, IDS, LongTarget};
use super::lines::Lines;
use am_core::Words;
use std::collections::VecDeque;

/// The VELO half of a Long message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub(super) header: Header,
    pub(super) place: LongTarget,
    pub(super) args: Words,
    /// Slots that the header took.
    pub(super) slots: u32,
}

/// The RMA half: the last put of a message, by the offset and the length that its notification tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) at: u64,
    pub(super) len: u64,
}

impl Placed {
    /// Whether this is the last put of a payload.
    fn ends(&self, place: &LongTarget) -> bool {
        self.len <= place.len && self.at.checked_add(self.len) == place.offset.checked_add(place.len)
    }
}

/// How the data's arrival was told.
#[derive(Clone, Copy, Debug)]
enum Half {
    /// By the put itself.
    At(Placed),
    /// By a notification behind the puts.
    Named,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    heading: Option<FrameHeader>,
    placed: Option<Half>,
    joined: bool,
}

/// What does not fit together: the source is faulty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Misfit;

/// The Long messages of one source of which one half has come.
#[derive(Debug, Default)]
pub(super) struct Joins {
    /// Number of the first entry.
    first: u16,
    entries: VecDeque<Entry>,
    /// Number of the next notification.
    notified: u16,
    /// The messages of this source that wait for their turn, where order is kept.
    pub(super) lines: Lines,
}

impl Joins {
    /// Fills in one half of an entry, which is made if need be; returns the header when both are there.
    fn fill(
        &mut self,
        id: u16,
        window: usize,
        half: impl FnOnce(&mut Entry) -> bool,
    ) -> Result<Option<FrameHeader>, Misfit> {
        let index = usize::from(id.wrapping_sub(self.first) % IDS);
        if index >= window {
            return Err(Misfit);
        }
        if index >= self.entries.len() {
            self.entries.resize(index + 1, Entry::default());
        }
        let entry = &mut self.entries[index];
        if entry.joined || half(entry) {
            return Err(Misfit);
        }
        let (Some(heading), Some(placed)) = (entry.heading, entry.placed) else { return Ok(None) };
        if let Half::At(placed) = placed
            && !placed.ends(&heading.place)
        {
            return Err(Misfit);
        }
        *entry = Entry { joined: true, ..Entry::default() };
        while self.entries.front().is_some_and(|entry| entry.joined) {
            self.entries.pop_front();
            self.first = (self.first + 1) % IDS;
        }
        Ok(Some(heading))
    }

    /// Takes a header; returns it if its data has come before.
    ///
    /// # Errors
    /// [`Misfit`] if there is such a header already, if more than `window` messages are outstanding, or if the put
    /// went elsewhere.
    pub(super) fn head(&mut self, heading: FrameHeader, window: usize) -> Result<Option<FrameHeader>, Misfit> {
        self.fill(heading.header.length, window, |entry| entry.heading.replace(heading).is_some())
    }

    /// Takes the next notification; returns the header of its message if that has come before.
    ///
    /// # Errors
    /// As [`Joins::head`].
    pub(super) fn place(&mut self, placed: Placed, window: usize) -> Result<Option<FrameHeader>, Misfit> {
        let id = self.notified;
        self.notified = (self.notified + 1) % IDS;
        self.fill(id, window, |entry| entry.placed.replace(Half::At(placed)).is_some())
    }

    /// Takes a notification that names its message, as the first implementation sends; returns the header of that
    /// message if it has come before.
    ///
    /// # Errors
    /// As [`Joins::head`].
    pub(super) fn notified(&mut self, id: u64, window: usize) -> Result<Option<FrameHeader>, Misfit> {
        let id = u16::try_from(id).ok().filter(|id| *id < IDS).ok_or(Misfit)?;
        self.fill(id, window, |entry| entry.placed.replace(Half::Named).is_some())
    }

    /// Whether a header of some kind waits for its data.
    pub(super) fn waits(&self, kind: impl Fn(&Header) -> bool) -> bool {
        self.entries.iter().any(|entry| entry.heading.is_some_and(|heading| kind(&heading.header)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::header::Kind;
    use super::*;
    use am_core::Category;
    use proptest::prelude::*;

    fn heading(id: u16, offset: u64, len: u64) -> FrameHeader {
        let kind = Kind::Request(Category::Long);
        let header = Header { kind, args: 0, handler: 1, length: id, reserve: 3, handled: 0, freed: 0 };
        FrameHeader { header, place: LongTarget { offset, len }, args: Words::EMPTY, slots: 1 }
    }

    #[test]
    fn both_halves_are_needed_in_either_order() {
        let mut joins = Joins::default();
        let (one, two) = (heading(0, 64, 10), heading(1, 64, 10));
        assert_eq!(joins.head(one, 8), Ok(None));
        assert_eq!(joins.place(Placed { at: 64, len: 10 }, 8), Ok(Some(one)));
        assert_eq!(joins.place(Placed { at: 64, len: 10 }, 8), Ok(None));
        assert_eq!(joins.head(two, 8), Ok(Some(two)));
    }

    #[test]
    fn the_last_put_of_a_long_payload_stands_for_all_of_it() {
        let mut joins = Joins::default();
        let long = heading(0, 1000, 300);
        assert_eq!(joins.head(long, 8), Ok(None));
        assert_eq!(joins.place(Placed { at: 1256, len: 44 }, 8), Ok(Some(long)));
    }

    #[test]
    fn what_does_not_fit_is_a_fault_of_the_source() {
        let mut joins = Joins::default();
        joins.head(heading(0, 64, 10), 8).unwrap();
        assert_eq!(joins.head(heading(0, 64, 10), 8), Err(Misfit), "the same number twice");
        assert_eq!(joins.head(heading(9, 64, 10), 8), Err(Misfit), "beyond the window");
        assert_eq!(joins.place(Placed { at: 65, len: 10 }, 8), Err(Misfit), "the data went elsewhere");
    }

    proptest! {
        /// Headers and notifications in their own orders, interleaved in any way: every message is joined exactly
        /// once, at the later of its halves, and what is kept stays within the window.
        #[test]
        fn every_message_is_joined_once_however_the_halves_come(
            choices in prop::collection::vec(any::<bool>(), 0..200)
        ) {
            let (mut joins, mut heads, mut places) = (Joins::default(), 0u16, 0u16);
            let mut joined = Vec::new();
            for head in choices {
                let found = if head && heads < places + 8 {
                    heads += 1;
                    joins.head(heading(heads - 1, u64::from(heads - 1), 5), 16).unwrap()
                } else if places < heads + 8 {
                    places += 1;
                    joins.place(Placed { at: u64::from(places - 1), len: 5 }, 16).unwrap()
                } else {
                    continue;
                };
                joined.extend(found.map(|heading| heading.header.length));
                prop_assert_eq!(joined.len(), usize::from(heads.min(places)));
                prop_assert!(joins.entries.len() <= 8);
            }
            prop_assert!(joined.windows(2).all(|two| two[0] + 1 == two[1]));
        }
    }
}
