//! What a message looks like in its slot: the header, and the ready flag that announces it.
//!
//! | bytes | field |
//! |---|---|
//! | 0 | handler |
//! | 1 | kind: bit 0 reply, bits 2:1 category, bit 3 without a reply, bit 4 between the transports' owners; bits 7:5 of the number |
//! | 2 | how many arguments there are, 0 to 16, in bits 4:0; in bits 7:5 the lower half of the message's number |
//! | 3 | size of the header: 8 + 4n, of a Long message 16 + 4n |
//! | 7:4 | size of the payload |
//! | 15:8 | Long messages only: where the payload lies in the destination's payload segment |
//! | from 8 or 16 | the arguments, four bytes each |
//!
//! A header has at most 80 bytes. The payload of a Medium message always begins behind the largest header, at byte
//! 80 of the slot, so that header and payload can be sent by transfers of their own.

use am_core::arguments::MAX_WORDS;
use am_core::{Category, Words};

/// Room for the largest header: sixteen arguments of a Long message.
pub(super) const MAX_HEADER: usize = 80;
/// Bytes of a header without arguments and place.
const FIXED: usize = 8;
/// Bytes that say where a Long payload lies.
const PLACE: usize = 8;

/// The bits of bytes 1 and 2 that are not the number's.
const OWN: u8 = 0b1_1111;
/// Where the halves of the number begin in them.
const HALF: u32 = 5;

const REPLY: u8 = 1;
const CATEGORY: u8 = 1;
const ONE_WAY: u8 = 1 << 3;
const CORE: u8 = 1 << 4;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A request whose handler may reply.
    Request(Category),
    /// A request whose handler cannot.
    OneWay(Category),
    Reply(Category),
    /// A message between the transports' owners: a request without a handler, Medium if it has a payload.
    Core,
}

/// The number of a message among those of its lane from its sender, where order is kept: six bits, twice as many
/// values as a pair has slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Number(u8);

impl Number {
    const VALUES: u8 = 1 << 6;

    /// The number behind this one.
    pub(super) fn next(self) -> Self {
        Self((self.0 + 1) % Self::VALUES)
    }

    /// How many numbers this one is behind another.
    #[inline]
    pub(super) fn since(self, other: Self) -> u32 {
        (self.0.wrapping_sub(other.0) % Self::VALUES).into()
    }

    /// The number in the first word of a header.
    #[inline]
    pub(super) fn of_word(first: u64) -> Self {
        let [_, kind, count, ..] = first.to_le_bytes();
        Self((kind & !OWN) >> 2 | count >> HALF)
    }
}

/// A message's description of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) handler: u8,
    pub(super) payload: u32,
    /// Where a Long payload lies; 0 in other messages.
    pub(super) place: u64,
    /// Its place in the order of its lane; the first number where order is not kept.
    pub(super) number: Number,
}

/// Bytes that make no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

impl Header {
    fn is_long(&self) -> bool {
        matches!(
            self.kind,
            Kind::Request(Category::Long) | Kind::OneWay(Category::Long) | Kind::Reply(Category::Long)
        )
    }

    /// Bytes of the header with so many arguments.
    pub(super) fn size(&self, arguments: usize) -> usize {
        FIXED + if self.is_long() { PLACE } else { 0 } + 4 * arguments
    }

    /// The value of the flag that announces the message, by its category.
    pub(super) fn ready(&self) -> Ready {
        match self.kind {
            Kind::Request(category) | Kind::OneWay(category) | Kind::Reply(category) => match category {
                Category::Short => Ready::Short,
                Category::Medium => Ready::Medium,
                Category::Long => Ready::Long,
            },
            Kind::Core if self.payload == 0 => Ready::Short,
            Kind::Core => Ready::Medium,
        }
    }

    /// Writes the header and its arguments; returns how many bytes that took.
    pub(super) fn write(&self, args: &Words, into: &mut [u8; MAX_HEADER]) -> usize {
        let kind = match self.kind {
            Kind::Request(category) => (category as u8) << CATEGORY,
            Kind::OneWay(category) => (category as u8) << CATEGORY | ONE_WAY,
            Kind::Reply(category) => (category as u8) << CATEGORY | REPLY,
            Kind::Core => CORE,
        };
        let size = self.size(args.len());
        let Number(number) = self.number;
        let (kind, count) = (kind | number >> 3 << HALF, args.len() as u8 | number << HALF);
        into[..4].copy_from_slice(&[self.handler, kind, count, size as u8]);
        into[4..8].copy_from_slice(&self.payload.to_le_bytes());
        let mut at = FIXED;
        if self.is_long() {
            into[at..at + PLACE].copy_from_slice(&self.place.to_le_bytes());
            at += PLACE;
        }
        into[at..size].copy_from_slice(&args.to_le_bytes()[..size - at]);
        size
    }

    /// Reads a header and its arguments from the first words of a slot, of which it asks for no more than it
    /// needs.
    ///
    /// # Errors
    /// [`Malformed`]: no such header is ever written.
    #[inline]
    pub(super) fn read(word: impl Fn(usize) -> u64) -> Result<(Self, Words), Malformed> {
        let first = word(0);
        let [handler, kind, count, size, ..] = first.to_le_bytes();
        let (kind, count, number) = (kind & OWN, count & OWN, Number::of_word(first));
        let category = *Category::ALL.get(usize::from(kind >> CATEGORY & 3)).ok_or(Malformed)?;
        let kind = match kind & !(3 << CATEGORY) {
            0 => Kind::Request(category),
            ONE_WAY => Kind::OneWay(category),
            REPLY => Kind::Reply(category),
            CORE if category == Category::Short => Kind::Core,
            _ => return Err(Malformed),
        };
        let mut header = Self { kind, handler, payload: (first >> 32) as u32, place: 0, number };
        let count = usize::from(count);
        if count > MAX_WORDS || usize::from(size) != header.size(count) {
            return Err(Malformed);
        }
        let mut next = 1;
        if header.is_long() {
            header.place = word(next);
            next += 1;
        }
        // Behind an odd number of arguments lies half a word of something else.
        let part = |pair: usize| if 2 * pair + 1 == count { u64::from(u32::MAX) } else { u64::MAX };
        let pairs = (0..count.div_ceil(2)).map(|pair| word(next + pair) & part(pair));
        let args = Words::from_pairs(count, pairs).map_err(|_| Malformed)?;
        Ok((header, args))
    }
}

/// The kinds of message that a ready flag (MRF) announces, with the values of the published design.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Ready {
    Short = 10,
    Medium = 11,
    Long = 12,
    /// Nothing but the flag: the request of this slot has been handled and has no reply.
    Control = 13,
}

impl Ready {
    pub(super) fn from_flag(flag: u8) -> Option<Self> {
        [Self::Short, Self::Medium, Self::Long, Self::Control].into_iter().find(|ready| *ready as u8 == flag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_kind() -> impl Strategy<Value = Kind> {
        let category = prop::sample::select(Category::ALL.to_vec());
        (0..4u8, category).prop_map(|(kind, category)| match kind {
            0 => Kind::Request(category),
            1 => Kind::OneWay(category),
            2 => Kind::Reply(category),
            _ => Kind::Core,
        })
    }

    #[test]
    fn sizes_are_the_published_ones() {
        let header = |category| Header {
            kind: Kind::Request(category),
            handler: 0,
            payload: 0,
            place: 0,
            number: Number::default(),
        };
        assert_eq!([0, 16].map(|count| header(Category::Short).size(count)), [8, 72]);
        assert_eq!([0, 16].map(|count| header(Category::Long).size(count)), [16, 80]);
    }

    proptest! {
        #[test]
        fn headers_come_back_as_they_were(
            kind in any_kind(), handler in any::<u8>(), payload in any::<u32>(), place in any::<u64>(),
            words in prop::collection::vec(any::<u32>(), 0..=16), garbage in any::<u8>(),
            number in 0..Number::VALUES,
        ) {
            let mut header = Header { kind, handler, payload, place, number: Number(number) };
            if !header.is_long() {
                header.place = 0;
            }
            let args = Words::from_slice(&words).unwrap();
            let mut bytes = [garbage; MAX_HEADER];
            prop_assert_eq!(header.write(&args, &mut bytes), header.size(words.len()));
            let word = |index: usize| u64::from_le_bytes(bytes[8 * index..][..8].try_into().unwrap());
            prop_assert_eq!(Header::read(word), Ok((header, args)));
            prop_assert_eq!(Number::of_word(word(0)), header.number);
        }

        #[test]
        fn any_words_are_a_header_or_nonsense(words in prop::collection::vec(any::<u64>(), MAX_HEADER / 8)) {
            // Words past the largest header would be out of bounds here.
            let _ = Header::read(|index| words[index]);
        }
    }
}
