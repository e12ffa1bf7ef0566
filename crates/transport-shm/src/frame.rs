//! How a frame describes itself: the header word of its first cell, above the lap byte that the ring owns.
//!
//! | bits | meaning |
//! |---|---|
//! | 0..8 | lap, written by the ring |
//! | 8..13 | number of argument words, 0..=16 |
//! | 13..16 | kind |
//! | 16..24 | handler |
//! | 24..44 | payload length in bytes (Medium, Control) |
//! | 44..58 | reply payload set aside, in 64-byte granules; a reply repeats what its request said |
//! | 58 | the payload lies in the byte ring, not in the cell |
//! | 59 | a reply is possible |
//! | 60 | the next frame may come in the same cell, written by the ring |
//!
//! The words after it: for Long offset and length, then the arguments two by two, then an inline payload.

use crate::ring::{CELL_WORDS, GRANULE, OPEN};
use am_core::{Category, Words};

/// Words of the longest frame: offset, length, sixteen arguments.
pub(crate) const MOST_WORDS: usize = 2 + 8;

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Message(Category),
    Control,
}

/// The fields of a header word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: Kind,
    pub(crate) handler: u8,
    pub(crate) args: usize,
    pub(crate) len: usize,
    /// Granules of reply payload set aside, if a reply is possible.
    pub(crate) reply: Option<u64>,
    pub(crate) in_ring: bool,
}

const SHORT: u64 = 1;
const MEDIUM: u64 = 2;
const LONG: u64 = 3;
const CONTROL: u64 = 4;

impl Frame {
    /// The header word, with a zero lap byte.
    #[inline]
    pub(crate) fn encode(&self) -> u64 {
        let kind = match self.kind {
            Kind::Message(Category::Short) => SHORT,
            Kind::Message(Category::Medium) => MEDIUM,
            Kind::Message(Category::Long) => LONG,
            Kind::Control => CONTROL,
        };
        (self.args as u64) << 8
            | kind << 13
            | u64::from(self.handler) << 16
            | (self.len as u64) << 24
            | self.reply.map_or(0, |granules| granules << 44 | 1 << 59)
            | u64::from(self.in_ring) << 58
    }

    /// The fields of a received header word, or `None` if it makes no sense.
    #[inline]
    pub(crate) fn decode(header: u64) -> Option<Self> {
        let kind = match header >> 13 & 7 {
            SHORT => Kind::Message(Category::Short),
            MEDIUM => Kind::Message(Category::Medium),
            LONG => Kind::Message(Category::Long),
            CONTROL => Kind::Control,
            _ => return None,
        };
        let args = (header >> 8 & 31) as usize;
        let reply = (header >> 59 & 1 == 1).then_some(header >> 44 & 0x3fff);
        let frame = Self {
            kind,
            handler: (header >> 16) as u8,
            args,
            len: (header >> 24 & 0xf_ffff) as usize,
            reply,
            in_ring: header >> 58 & 1 == 1,
        };
        (args <= am_core::arguments::MAX_WORDS).then_some(frame)
    }

    /// The handler and the number of argument words of a Short message that permits no reply and lies in one cell,
    /// which floods consist of: one comparison tells.
    #[inline(always)]
    pub(crate) fn decode_plain(header: u64) -> Option<(u8, usize)> {
        const FREE: u64 = 0xff | 31 << 8 | 0xff << 16 | OPEN;
        let args = (header >> 8 & 31) as usize;
        (header & !FREE == SHORT << 13 && args <= 2 * CELL_WORDS).then_some(((header >> 16) as u8, args))
    }

    /// The handler, the number of argument words and the length of the payload of a Medium message that permits no
    /// reply and lies in one cell.
    #[inline(always)]
    pub(crate) fn decode_small(header: u64) -> Option<(u8, usize, usize)> {
        const FREE: u64 = 0xff | 31 << 8 | 0xff << 16 | 0xf_ffff << 24 | OPEN;
        let (args, len) = ((header >> 8 & 31) as usize, (header >> 24 & 0xf_ffff) as usize);
        let small = header & !FREE == MEDIUM << 13 && args.div_ceil(2) + len.div_ceil(8) <= CELL_WORDS;
        small.then_some(((header >> 16) as u8, args, len))
    }

    /// The handler, the number of argument words and the granules set aside of a Short request that permits a
    /// reply, or of a Short reply, that lies in one cell: what round trips consist of.
    #[inline(always)]
    pub(crate) fn decode_trip(header: u64) -> Option<(u8, usize, u64)> {
        const FREE: u64 = 0xff | 31 << 8 | 0xff << 16 | 0x3fff << 44 | OPEN;
        let args = (header >> 8 & 31) as usize;
        let trip = header & !FREE == SHORT << 13 | 1 << 59 && args <= 2 * CELL_WORDS;
        trip.then_some(((header >> 16) as u8, args, header >> 44 & 0x3fff))
    }

    /// Words in front of an inline payload.
    #[inline]
    pub(crate) fn leading_words(&self) -> usize {
        let placed = if self.kind == Kind::Message(Category::Long) { 2 } else { 0 };
        placed + self.args.div_ceil(2)
    }

    /// Whether the frame is a message whose arguments and payload all lie in one cell.
    #[inline]
    pub(crate) fn one_cell(&self) -> bool {
        let here = matches!(self.kind, Kind::Message(Category::Short | Category::Medium)) && !self.in_ring;
        here && self.small_words() <= CELL_WORDS
    }

    /// Words behind the header of a message whose arguments and payload all lie in one cell.
    #[inline]
    pub(crate) fn small_words(&self) -> usize {
        self.args.div_ceil(2) + self.len.div_ceil(8)
    }

    /// Cells that the frame occupies.
    #[inline]
    pub(crate) fn cells(&self) -> u64 {
        if self.leading_words() > CELL_WORDS { 2 } else { 1 }
    }
}

/// Whether a payload fits into the cell behind the arguments.
#[inline]
pub(crate) fn fits_inline(args: &Words, len: usize) -> bool {
    args.pairs().len() + len.div_ceil(8) <= CELL_WORDS
}

/// Granules that hold `bytes` bytes.
#[inline]
pub(crate) fn granules(bytes: usize) -> u64 {
    bytes.div_ceil(GRANULE) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn headers_survive(
            kind in 0usize..4, handler in any::<u8>(), args in 0usize..=16, len in 0usize..1 << 20,
            reply in prop::option::of(0u64..1 << 14), in_ring in any::<bool>()
        ) {
            let kinds = [Category::Short, Category::Medium, Category::Long].map(Kind::Message);
            let kind = kinds.get(kind).copied().unwrap_or(Kind::Control);
            let frame = Frame { kind, handler, args, len, reply, in_ring };
            prop_assert_eq!(frame.encode() & 0xff, 0);
            prop_assert_eq!(Frame::decode(frame.encode()), Some(frame));
        }

        #[test]
        fn shortcuts_decode_alike(
            kind in 0usize..4, args in 0usize..=16, handler in any::<u8>(),
            len in prop_oneof![Just(0), 0usize..60], reply in prop::option::of(0u64..2),
            in_ring in any::<bool>(), lap in any::<u8>()
        ) {
            let kinds = [Category::Short, Category::Medium, Category::Long].map(Kind::Message);
            let kind = kinds.get(kind).copied().unwrap_or(Kind::Control);
            let frame = Frame { kind, handler, args, len, reply, in_ring };
            let header = frame.encode() | u64::from(lap);
            let alone = reply.is_none() && frame.one_cell();
            let plain = alone && kind == Kind::Message(Category::Short) && len == 0;
            prop_assert_eq!(Frame::decode_plain(header), plain.then_some((handler, args)));
            let small = alone && kind == Kind::Message(Category::Medium);
            prop_assert_eq!(Frame::decode_small(header), small.then_some((handler, args, len)));
            let trip = reply.filter(|_| frame.one_cell() && kind == Kind::Message(Category::Short) && len == 0);
            prop_assert_eq!(Frame::decode_trip(header), trip.map(|granules| (handler, args, granules)));
        }

        #[test]
        fn any_header_decodes_or_not_without_panic(header in any::<u64>()) {
            if let Some(frame) = Frame::decode(header) {
                prop_assert!(frame.leading_words() <= MOST_WORDS && frame.args <= 16);
            }
        }
    }
}
