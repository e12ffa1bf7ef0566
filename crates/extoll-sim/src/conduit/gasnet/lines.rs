//! Keeping the order of a pair: messages that wait behind a Long one whose payload has not come.
//!
//! VELO keeps the order of a pair, RMA as well, but a Long message uses both, and what is sent behind it needs the
//! first alone. So headers come in the order in which messages were sent, and only payloads can be late. A source
//! has a line for its requests and one for its replies: a Long header without its payload begins one, all that
//! comes behind it stands in it, and it moves on when the payload is there. A message in a line keeps the slots
//! that it was sent with, so a source cannot have more here than it has credits.

use super::header::Kind;
use super::joins::FrameHeader;
use am_core::Lane;
use std::collections::VecDeque;

/// A message in a line.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) heading: FrameHeader,
    /// The frame, from its header on; empty for a Long message, of which nothing but the heading matters.
    pub(super) bytes: Vec<u8>,
    /// Whether nothing of it is missing.
    pub(super) complete: bool,
}

/// The two lines of a source.
#[derive(Debug, Default)]
pub(super) struct Lines {
    requests: VecDeque<Held>,
    replies: VecDeque<Held>,
    /// Slots of the messages in both.
    slots: u32,
}

/// The line that a kind of message belongs to.
pub(super) fn lane(kind: Kind) -> Lane {
    match kind {
        Kind::Reply(_) => Lane::Reply,
        Kind::Request(_) | Kind::OneWay(_) | Kind::Control | Kind::Credit => Lane::Request,
    }
}

impl Lines {
    fn of(&mut self, lane: Lane) -> &mut VecDeque<Held> {
        match lane {
            Lane::Request => &mut self.requests,
            Lane::Reply => &mut self.replies,
        }
    }

    /// Whether a line has messages, so that others have to stand behind them.
    pub(super) fn wait(&self, lane: Lane) -> bool {
        match lane {
            Lane::Request => !self.requests.is_empty(),
            Lane::Reply => !self.replies.is_empty(),
        }
    }

    /// Slots of all messages in the lines.
    pub(super) fn slots(&self) -> u32 {
        self.slots
    }

    /// Puts a message at the end of its line.
    pub(super) fn push(&mut self, held: Held) {
        self.slots += held.heading.slots;
        self.of(lane(held.heading.header.kind)).push_back(held);
    }

    /// Notes that the payload of a Long message in a line has come; returns whether that is the first of the line.
    ///
    /// # Panics
    /// If it does not wait for its payload.
    pub(super) fn complete(&mut self, heading: &FrameHeader) -> bool {
        let line = self.of(lane(heading.header.kind));
        let found = line.iter().position(|held| !held.complete && held.heading == *heading);
        let at = found.expect("a Long message without its payload is in the line that its header began or joined");
        line[at].complete = true;
        at == 0
    }

    /// Forgets all messages, of a source that broke the protocol; returns how many there were.
    pub(super) fn clear(&mut self) -> usize {
        let Self { requests, replies, .. } = std::mem::take(self);
        requests.len() + replies.len()
    }

    /// Takes the first message of a line if nothing of it is missing.
    pub(super) fn pop(&mut self, lane: Lane) -> Option<Held> {
        let line = self.of(lane);
        if !line.front()?.complete {
            return None;
        }
        let held = line.pop_front()?;
        self.slots -= held.heading.slots;
        Some(held)
    }
}

#[cfg(test)]
mod tests {
    use super::super::header::{Header, LongTarget};
    use super::*;
    use am_core::{Category, Words};
    use proptest::prelude::*;

    fn held(kind: Kind, id: u16, complete: bool) -> Held {
        let header = Header { kind, args: 0, handler: 0, length: id, reserve: 1, handled: 0, freed: 0 };
        let heading = FrameHeader { header, place: LongTarget::default(), args: Words::EMPTY, slots: 2 };
        Held { heading, bytes: Vec::new(), complete }
    }

    #[test]
    fn lines_do_not_wait_for_each_other() {
        let mut lines = Lines::default();
        lines.push(held(Kind::Request(Category::Long), 0, false));
        assert_eq!([Lane::Request, Lane::Reply].map(|lane| lines.wait(lane)), [true, false]);
        lines.push(held(Kind::Reply(Category::Short), 0, true));
        assert!(lines.pop(Lane::Request).is_none());
        assert_eq!(lines.pop(Lane::Reply).unwrap().heading.header.kind, Kind::Reply(Category::Short));
        assert_eq!(lines.slots(), 2);
    }

    proptest! {
        /// Whatever the order in which payloads come: each line is emptied in the order in which it was filled,
        /// and nothing leaves before its payload is there.
        #[test]
        fn lines_keep_their_order(
            longs in prop::collection::vec((any::<bool>(), any::<bool>()), 1..40),
            order in any::<prop::sample::Index>()
        ) {
            let mut lines = Lines::default();
            let mut missing = Vec::new();
            for (id, (long, reply)) in longs.iter().enumerate() {
                let category = if *long { Category::Long } else { Category::Medium };
                let kind = if *reply { Kind::Reply(category) } else { Kind::OneWay(category) };
                let message = held(kind, id as u16, !long);
                if *long {
                    missing.push(message.heading);
                }
                lines.push(message);
            }
            prop_assert_eq!(lines.slots(), 2 * longs.len() as u32);
            let mut left = [Vec::new(), Vec::new()];
            loop {
                for (lane, left) in [Lane::Request, Lane::Reply].into_iter().zip(&mut left) {
                    left.extend(std::iter::from_fn(|| lines.pop(lane)).map(|held| held.heading.header.length));
                }
                let Some(last) = missing.len().checked_sub(1) else { break };
                let come = missing.swap_remove(order.index(last + 1));
                let first = left[usize::from(lane(come.header.kind) == Lane::Reply)].len();
                let before = longs[..usize::from(come.header.length)]
                    .iter()
                    .filter(|(_, reply)| *reply == (lane(come.header.kind) == Lane::Reply))
                    .count();
                prop_assert_eq!(lines.complete(&come), first == before);
            }
            prop_assert_eq!(lines.slots(), 0);
            prop_assert_eq!(left[0].len() + left[1].len(), longs.len());
            prop_assert!(left.iter().all(|left| left.is_sorted()));
        }
    }
}
