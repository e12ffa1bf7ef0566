//! Send slots: room in the SAFE event queue and in the buffers for a message and all that follows from it.
//!
//! A request takes a send slot before it is sent and gives it back when its reply has been taken in; the
//! reply, sent by the requester's peer, needs none there, because its room at the requester is part of that
//! send slot. A reply takes a send slot of its sender, or two if it is Long, and gives them back when the
//! interface has sent it, which needs no peer.
//!
//! What keeps two nodes that flood each other out of deadlock: requests leave the last two send slots alone, and
//! requests are taken in only by who holds two. So a handler's reply never waits for a send slot, and what it has
//! used comes back by the interface's work alone.

/// Send slots that requests leave for replies: one for a header, one for the payload of a Long reply.
pub(super) const FOR_REPLY: u32 = 2;

/// Send slots and chunks that requests leave for messages between cores: a peer that answers nothing can come
/// to hold all others.
pub(super) const FOR_CONTROL: u32 = 2;

/// The books.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SendSlots {
    all: u32,
    free: u32,
    /// What requests leave, those counted that are held for the next reply.
    reserve: u32,
    held: u32,
}

impl SendSlots {
    /// So many send slots, of which requests leave `reserve`.
    pub(super) const fn new(all: u32, reserve: u32) -> Self {
        Self { all, free: all, reserve, held: 0 }
    }

    /// Takes send slots for a request.
    #[inline]
    pub(super) fn take_for_request(&mut self, count: u32) -> bool {
        // Rule 6 of the sheet: requests leave the send slots that replies need.
        let enough = self.for_requests() >= count;
        self.free -= if enough { count } else { 0 };
        enough
    }

    /// Holds send slots for the reply to the next request, as far as there are; returns whether there are so many.
    #[inline]
    pub(super) fn hold(&mut self, count: u32) -> bool {
        let more = count.saturating_sub(self.held).min(self.free);
        self.free -= more;
        self.held += more;
        self.held >= count
    }

    /// Uses one of the held send slots.
    ///
    /// # Panics
    /// If none is held.
    #[inline]
    pub(super) fn spend(&mut self) {
        self.held = self.held.checked_sub(1).expect("a reply's send slots are held before it is sent");
    }

    /// Gives send slots back.
    ///
    /// # Panics
    /// If more come back than were taken.
    #[inline]
    pub(super) fn give(&mut self, count: u32) {
        self.free += count;
        let back = self.free + self.held;
        assert!(back <= self.all, "{back} of {} send slots are free", self.all);
    }

    /// Send slots that a request could take now.
    pub(super) const fn for_requests(&self) -> u32 {
        self.free.saturating_sub(self.reserve.saturating_sub(self.held))
    }
}

/// Equal pieces of a buffer, taken and given back; the one that was given back last is taken first, so that as
/// little memory as possible is touched.
#[derive(Clone, Debug)]
pub(super) struct Pieces {
    /// Pieces that were never taken yet.
    fresh: u32,
    all: u32,
    free: Vec<u32>,
}

impl Pieces {
    pub(super) const fn new(all: u32) -> Self {
        Self { fresh: 0, all, free: Vec::new() }
    }

    /// Takes a piece unless fewer than `leave` would be left.
    #[inline]
    pub(super) fn take(&mut self, leave: u32) -> Option<u32> {
        if self.left() <= leave {
            return None;
        }
        self.free.pop().or_else(|| {
            self.fresh += 1;
            Some(self.fresh - 1)
        })
    }

    #[inline]
    pub(super) fn give(&mut self, piece: u32) {
        debug_assert!(piece < self.fresh && !self.free.contains(&piece), "piece {piece} was taken");
        self.free.push(piece);
    }

    /// Pieces that are not taken.
    #[inline]
    pub(super) fn left(&self) -> u32 {
        self.all - self.fresh + self.free.len() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn requests_leave_the_last_send_slots_to_replies() {
        let mut send_slots = SendSlots::new(4, FOR_REPLY);
        assert!(
            send_slots.take_for_request(1) && send_slots.take_for_request(1) && !send_slots.take_for_request(1)
        );
        assert!(send_slots.hold(2) && !send_slots.hold(3));
        assert_eq!(send_slots.for_requests(), 0);
        send_slots.spend();
        send_slots.give(1);
        assert!(!send_slots.take_for_request(1), "it is for the next reply");
        assert!(send_slots.hold(2));
        send_slots.give(1);
        assert!(send_slots.take_for_request(1), "as many as are reserved are held");
    }

    #[test]
    #[should_panic(expected = "3 of 2 send slots are free")]
    fn a_slot_that_was_not_taken_does_not_come_back() {
        SendSlots::new(2, 0).give(1);
    }

    proptest! {
        #[test]
        fn pieces_in_use_are_distinct(steps in prop::collection::vec((any::<bool>(), 0usize..8), 1..100)) {
            let (mut pieces, mut used) = (Pieces::new(8), Vec::new());
            for (give, which) in steps {
                if give && !used.is_empty() {
                    pieces.give(used.swap_remove(which % used.len()));
                } else if let Some(piece) = pieces.take(0) {
                    prop_assert!(piece < 8 && !used.contains(&piece));
                    used.push(piece);
                } else {
                    prop_assert_eq!(used.len(), 8);
                }
                prop_assert_eq!(pieces.left() as usize + used.len(), 8);
            }
        }
    }
}
