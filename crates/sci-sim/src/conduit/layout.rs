//! Where everything lies: segments and their ids, slots, flags, and how a Long payload is cut for the DMA engine.
//!
//! Every node exports a command segment per sender, the sender's dedicated channel, a segment of flags, and a
//! payload segment; it imports *its own* command segment at each peer. Segment ids are `(node << 16) | number`,
//! where the number of a command segment is the sender's rank, and the others follow.

use super::header::MAX_HEADER;

/// Bytes that the interconnect moves at once.
pub(super) const LINE: usize = 64;

/// The segments that a node has besides those of its senders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Common {
    /// The flags: a byte per slot (MRF) and one for all (MEF).
    Ready,
    /// Payloads of Long messages.
    Payload,
    /// What the DMA engine reads from.
    DmaQueue,
}

/// The id of the command segment at `owner` that `sender` writes to.
pub(super) fn command_id(owner: u32, sender: u32) -> u32 {
    owner << 16 | sender
}

/// The id of one of a node's other segments, in a job of so many ranks. The number after that of the flags is the
/// barrier's in the published scheme; here barriers are messages of the core, so that it stays free.
pub(super) fn common_id(owner: u32, ranks: u32, which: Common) -> u32 {
    let number = match which {
        Common::Ready => 0,
        Common::Payload => 2,
        Common::DmaQueue => 3,
    };
    owner << 16 | (ranks + number)
}

/// Slots of a command segment and flags of the flag segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) ranks: u32,
    /// Request slots of a pair; there are as many reply slots behind them.
    pub(super) requests: u32,
    /// Bytes of a slot.
    pub(super) slot: usize,
}

impl Layout {
    /// Slots of a pair, of both kinds.
    #[inline]
    pub(super) fn slots(&self) -> u32 {
        2 * self.requests
    }

    /// The reply slot of a request slot.
    #[inline]
    pub(super) fn reply_slot(&self, request: u32) -> u32 {
        request + self.requests
    }

    /// The request slot that a reply slot belongs to; `None` for a request slot.
    #[inline]
    pub(super) fn request_slot(&self, slot: u32) -> Option<u32> {
        slot.checked_sub(self.requests)
    }

    /// Where a slot begins in its command segment.
    #[inline]
    pub(super) fn at(&self, slot: u32) -> usize {
        slot as usize * self.slot
    }

    /// Where the payload of a Medium message begins in the segment.
    #[inline]
    pub(super) fn payload_at(&self, slot: u32) -> usize {
        self.at(slot) + MAX_HEADER
    }

    /// Bytes of a command segment.
    pub(super) fn command_bytes(&self) -> usize {
        self.slots() as usize * self.slot
    }

    /// The largest Medium payload.
    pub(super) fn medium(&self) -> usize {
        self.slot - MAX_HEADER
    }

    /// Where the ready flag of a sender's slot is in the flag segment.
    #[inline]
    pub(super) fn ready_at(&self, sender: u32, slot: u32) -> usize {
        (sender * self.slots() + slot) as usize
    }

    /// The sender and the slot of a ready flag.
    #[inline]
    pub(super) fn of_ready(&self, at: usize) -> (u32, u32) {
        (at as u32 / self.slots(), at as u32 % self.slots())
    }

    /// Words of eight ready flags.
    pub(super) fn ready_words(&self) -> usize {
        ((self.ranks * self.slots()) as usize).div_ceil(8)
    }

    /// Where the exist flag is in the flag segment: in a line of its own.
    pub(super) fn exist_at(&self) -> usize {
        (8 * self.ready_words()).next_multiple_of(LINE)
    }

    /// Where a peer says that it has imported what it needs.
    pub(super) fn greeting_at(&self, peer: u32) -> usize {
        self.exist_at() + LINE + peer as usize
    }

    /// Bytes of the flag segment.
    pub(super) fn flag_bytes(&self) -> usize {
        self.greeting_at(self.ranks).next_multiple_of(LINE)
    }
}

/// A Long payload cut for the DMA engine, which moves whole lines: the edges are stored by the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// Bytes before the first whole line.
    pub(super) head: usize,
    /// Bytes of whole lines.
    pub(super) middle: usize,
    /// Bytes behind the last whole line.
    pub(super) tail: usize,
}

/// Cuts a payload that goes to a place in the destination's segment. Short ones may lie between two line
/// boundaries and then have no middle.
pub(super) fn cut(place: u64, len: usize) -> Cut {
    let skew = (place % LINE as u64) as usize;
    let head = if skew == 0 { 0 } else { LINE - skew };
    if head >= len {
        return Cut { head: len, middle: 0, tail: 0 };
    }
    let tail = (len - head) % LINE;
    Cut { head, middle: len - head - tail, tail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_the_published_ones() {
        assert_eq!(command_id(3, 5), 3 << 16 | 5);
        let all = [Common::Ready, Common::Payload, Common::DmaQueue].map(|which| common_id(3, 8, which));
        assert_eq!(all, [3 << 16 | 8, 3 << 16 | 10, 3 << 16 | 11]);
    }

    #[test]
    fn the_published_slots_hold_944_bytes() {
        let layout = Layout { ranks: 8, requests: 2, slot: 1024 };
        assert_eq!((layout.medium(), layout.command_bytes(), layout.slots()), (944, 4096, 4));
        assert_eq!((layout.reply_slot(1), layout.request_slot(3), layout.request_slot(1)), (3, Some(1), None));
        assert_eq!((layout.exist_at(), layout.greeting_at(7), layout.flag_bytes()), (64, 135, 192));
    }

    #[test]
    fn every_flag_has_its_byte() {
        let layout = Layout { ranks: 5, requests: 3, slot: 1024 };
        let all: Vec<_> =
            (0..5).flat_map(|sender| (0..6).map(move |slot| layout.ready_at(sender, slot))).collect();
        assert_eq!(all, (0..30).collect::<Vec<_>>());
        assert!(all.iter().all(|at| layout.ready_at(layout.of_ready(*at).0, layout.of_ready(*at).1) == *at));
        assert_eq!(layout.ready_words(), 4);
    }

    #[test]
    fn the_middle_of_every_cut_is_whole_lines() {
        for place in 0..64_u64 {
            for len in 0..=256 {
                let Cut { head, middle, tail } = cut(place, len);
                assert_eq!(head + middle + tail, len);
                assert!(middle % LINE == 0 && tail < LINE && head < LINE, "{place} {len}");
                assert!(middle == 0 || (place as usize + head).is_multiple_of(LINE), "{place} {len}");
                let whole = (place as usize + len) / LINE * LINE;
                let most = whole.saturating_sub((place as usize).next_multiple_of(LINE));
                assert_eq!(middle, most, "{place} {len}");
            }
        }
    }
}
