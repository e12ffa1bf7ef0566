//! Joining the two parts of a Long message whose payload was put by itself: the header, and the news of the
//! payload.
//!
//! The payload is put first, and messages of a pair are matched in the order of sending, so usually it is there
//! when the header comes; nothing here depends on that. A message is known by its chunk at the requester, which
//! stays taken until the reply; so what is kept here is bounded by the requests that are under way.

use super::codec::{Bits, CreditByte, LongTarget};
use am_core::Words;

/// A header whose payload has not come, or that waits to be delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub(super) bits: Bits,
    pub(super) credit: CreditByte,
    pub(super) args: Words,
    pub(super) place: LongTarget,
}

/// The Long requests of one peer of which one part has come.
#[derive(Debug, Default)]
pub(super) struct Joins {
    /// Chunks whose payload is there.
    placed: Vec<u32>,
    headings: Vec<FrameHeader>,
}

impl Joins {
    /// A payload has come; returns its header if that has come before.
    pub(super) fn place(&mut self, chunk: u32) -> Option<FrameHeader> {
        match self.headings.iter().position(|heading| heading.bits.chunk == chunk) {
            Some(found) => Some(self.headings.swap_remove(found)),
            None => {
                self.placed.push(chunk);
                None
            }
        }
    }

    /// A header has come; returns it if its payload has come before.
    pub(super) fn head(&mut self, heading: FrameHeader) -> Option<FrameHeader> {
        match self.placed.iter().position(|chunk| *chunk == heading.bits.chunk) {
            Some(found) => {
                self.placed.swap_remove(found);
                Some(heading)
            }
            None => {
                self.headings.push(heading);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::codec::{Form, Kind, Target};
    use super::*;
    use proptest::prelude::*;

    fn heading(chunk: u32) -> FrameHeader {
        let bits =
            Bits { target: Target::ReqRb, chunk, args: 0, handler: 1, kind: Kind::Request, form: Form::Unpacked };
        let credit = CreditByte::default();
        FrameHeader { bits, credit, args: Words::EMPTY, place: LongTarget { offset: 8, len: 9 } }
    }

    proptest! {
        /// In whatever order the parts come, each message is joined once, by the later of its parts.
        #[test]
        fn every_message_is_joined_once(order in prop::collection::vec((0u32..8, any::<bool>()), 0..100)) {
            let (mut joins, mut heads, mut places) = (Joins::default(), [0u32; 8], [0u32; 8]);
            let mut joined = [0u32; 8];
            for (chunk, head) in order {
                let index = chunk as usize;
                // A chunk is used again only when its message is over.
                let found = if head && heads[index] <= places[index] {
                    heads[index] += 1;
                    joins.head(heading(chunk))
                } else if !head && places[index] <= heads[index] {
                    places[index] += 1;
                    joins.place(chunk)
                } else {
                    continue;
                };
                joined[index] += u32::from(found.is_some_and(|found| found.bits.chunk == chunk));
                prop_assert_eq!(joined[index], heads[index].min(places[index]));
            }
        }
    }
}
