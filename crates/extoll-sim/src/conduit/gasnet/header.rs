//! The eight bytes that every frame begins with: what it is, how long it is, and the credits that ride along.
//!
//! | bits | field |
//! |---|---|
//! | 3:0 | kind: request, one-way or reply of a category, control, credit |
//! | 8:4 | number of arguments |
//! | 16:9 | handler |
//! | 30:17 | payload length of a Medium or control frame; message id of a Long one; control slots in a credit |
//! | 39:31 | requests: slots set aside for the answer; replies: the part of them that is free now |
//! | 51:40 | credits: request slots of the receiver that are free again |
//! | 63:52 | credits: answer slots of the receiver that will not be used |
//!
//! A Long frame has 16 bytes more, offset and length of its payload in the destination's segment. Then come the
//! arguments, four bytes each, and the payload of a Medium or control frame.

use am_core::{Category, Words};
pub(super) use fabric_sim::conduit::Kind;

/// Bytes of a header.
pub(super) const HEADER: usize = 8;
/// Bytes that tell where a Long payload lies.
pub(super) const LONG_TARGET: usize = 16;
/// Most bytes before a payload: header, place, sixteen arguments.
pub(super) const LEAD: usize = HEADER + LONG_TARGET + 64;
/// Message ids of Long frames count modulo this.
pub(super) const IDS: u16 = 1 << 14;
/// The largest amount of credits that one header carries.
pub(super) const MOST_CREDITS: u16 = (1 << 12) - 1;
/// The most slots that can be set aside for one answer.
pub(super) const MOST_RESERVED: u16 = (1 << 9) - 1;

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) args: u8,
    pub(super) handler: u8,
    /// Payload length, message id or control slots, by kind.
    pub(super) length: u16,
    pub(super) reserve: u16,
    pub(super) handled: u16,
    pub(super) freed: u16,
}

impl Header {
    pub(super) fn encode(self) -> u64 {
        let Self { kind, args, handler, length, reserve, handled, freed } = self;
        debug_assert!(args <= 16 && length < IDS && reserve <= MOST_RESERVED, "{self:?} fits its fields");
        debug_assert!(handled <= MOST_CREDITS && freed <= MOST_CREDITS, "{self:?} fits its fields");
        u64::from(kind.code())
            | u64::from(args) << 4
            | u64::from(handler) << 9
            | u64::from(length) << 17
            | u64::from(reserve) << 31
            | u64::from(handled) << 40
            | u64::from(freed) << 52
    }

    /// Reads a header; `None` if there is no such kind or number of arguments.
    pub(super) fn decode(word: u64) -> Option<Self> {
        let field = |from: u32, bits: u32| (word >> from & ((1 << bits) - 1)) as u16;
        let header = Self {
            kind: Kind::from_code((word & 15) as u8)?,
            args: field(4, 5) as u8,
            handler: field(9, 8) as u8,
            length: field(17, 14),
            reserve: field(31, 9),
            handled: field(40, 12),
            freed: field(52, 12),
        };
        (header.args <= 16).then_some(header)
    }

    /// Bytes from the header to the last argument.
    pub(super) fn lead(&self) -> usize {
        HEADER + if self.kind.is_long() { LONG_TARGET } else { 0 } + 4 * usize::from(self.args)
    }

    /// Bytes of payload that follow over VELO.
    pub(super) fn payload(&self) -> usize {
        match self.kind {
            Kind::Request(Category::Medium) | Kind::OneWay(Category::Medium) | Kind::Reply(Category::Medium) => {
                usize::from(self.length)
            }
            Kind::Control => usize::from(self.length),
            _ => 0,
        }
    }
}

/// Where a Long payload lies in its destination's segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LongTarget {
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// The bytes of a frame before its payload; returns how many.
#[inline]
pub(super) fn write_lead(out: &mut [u8; LEAD], header: Header, place: LongTarget, args: &Words) -> usize {
    out[..HEADER].copy_from_slice(&header.encode().to_le_bytes());
    let mut at = HEADER;
    if header.kind.is_long() {
        out[at..at + 8].copy_from_slice(&place.offset.to_le_bytes());
        out[at + 8..at + LONG_TARGET].copy_from_slice(&place.len.to_le_bytes());
        at += LONG_TARGET;
    }
    let end = at + 4 * args.len();
    out[at..end].copy_from_slice(&args.to_le_bytes()[..end - at]);
    end
}

#[inline]
fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("a word has eight bytes"))
}

/// LongTarget and arguments of a frame whose bytes are all there, as many as its header says.
#[inline]
pub(super) fn read_lead(header: &Header, bytes: &[u8]) -> (LongTarget, Words) {
    let mut at = HEADER;
    let mut place = LongTarget::default();
    if header.kind.is_long() {
        place = LongTarget { offset: word(&bytes[at..at + 8]), len: word(&bytes[at + 8..at + LONG_TARGET]) };
        at += LONG_TARGET;
    }
    let words = Words::from_le_bytes(&bytes[at..header.lead()]);
    (place, words.expect("a header tells of sixteen arguments at most"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_header_is_refused() {
        let credit =
            Header { kind: Kind::Credit, args: 0, handler: 0, length: 0, reserve: 0, handled: 1, freed: 2 };
        let word = credit.encode();
        assert_eq!(Header::decode(word), Some(credit));
        assert_eq!(Header::decode(word & !15 | 11), None, "there is no kind 11");
        assert_eq!(Header::decode(word | 17 << 4), None, "there are no seventeen arguments");
    }

    proptest! {
        #[test]
        fn leads_survive_a_round_trip(
            code in 0..Kind::CODES, handler: u8, length in 0..IDS, reserve in 0..=MOST_RESERVED,
            handled in 0..=MOST_CREDITS,
            freed in 0..=MOST_CREDITS, offset: u64, len: u64, words in prop::collection::vec(any::<u32>(), 0..=16)
        ) {
            let kind = Kind::from_code(code).unwrap();
            let header = Header { kind, args: words.len() as u8, handler, length, reserve, handled, freed };
            let (place, args) = (LongTarget { offset, len }, Words::from_slice(&words).unwrap());
            let mut bytes = [0xee; LEAD];
            let end = write_lead(&mut bytes, header, place, &args);
            prop_assert_eq!(end, header.lead());
            let read = Header::decode(word(&bytes[..8])).unwrap();
            prop_assert_eq!(read, header);
            let (placed, found) = read_lead(&read, &bytes[..end]);
            prop_assert_eq!(found, args);
            prop_assert_eq!(placed, if kind.is_long() { place } else { LongTarget::default() });
        }
    }
}
