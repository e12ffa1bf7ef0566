//! Messages inside a lane: their headers, and how they are told apart again.
//!
//! ```text
//! first 1 (kind in bits 0..2, number of words in bits 3..7) | handler 1 | room v | words 4 each
//!     Medium, control:  length v | bytes       Long:  length v | segment offset v | end in the payload stream v
//! ```
//!
//! `room` of a request is one more than the largest payload of its reply, or 0 if there is none; a reply repeats
//! it, which gives the requester its room back. `v` is a variable-length integer.

use super::bytes::{Reader, Writer};

use am_core::arguments::{MAX_WORDS, Words};
use am_core::transport::{Category, ReplyBound};

/// Bytes of a header at most.
pub(super) const MAX_HEADER: usize = 2 + 4 + 4 * MAX_WORDS + 24;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Short,
    Medium { len: u64 },
    Long { len: u64, at: u64, end: u64 },
    Control { len: u64 },
}

/// A message without its words and its payload. The words are many bytes and stay where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) kind: Kind,
    pub(super) handler: u8,
    pub(super) room: u64,
}

/// What a parser found at the front of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// A message whose header has this many bytes.
    Whole(Message, usize),
    /// More bytes are needed.
    Part,
    /// No message begins like this.
    Malformed,
}

impl Message {
    pub(super) fn category(&self) -> Category {
        match self.kind {
            Kind::Short => Category::Short,
            Kind::Medium { .. } | Kind::Control { .. } => Category::Medium,
            Kind::Long { .. } => Category::Long,
        }
    }

    /// Bytes in the lane behind the header.
    pub(super) fn payload(&self) -> u64 {
        match self.kind {
            Kind::Medium { len } | Kind::Control { len } => len,
            Kind::Short | Kind::Long { .. } => 0,
        }
    }

    /// Writes the header and returns its length.
    #[inline]
    pub(super) fn encode(&self, words: &Words, out: &mut [u8; MAX_HEADER]) -> usize {
        let mut writer = Writer::new(out);
        let kind = match self.kind {
            Kind::Short => 0,
            Kind::Medium { .. } => 1,
            Kind::Long { .. } => 2,
            Kind::Control { .. } => 3,
        };
        let fields: &[u64] = match &self.kind {
            Kind::Short => &[],
            Kind::Medium { len } | Kind::Control { len } => &[*len],
            Kind::Long { len, at, end } => &[*len, *at, *end],
        };
        let first = [kind | (words.len() as u8) << 3, self.handler];
        let written = writer
            .put(&first)
            .and_then(|()| writer.varint(self.room))
            .and_then(|()| put_words(&mut writer, words))
            .and_then(|()| fields.iter().try_for_each(|field| writer.varint(*field)));
        written.expect("MAX_HEADER holds the longest header");
        writer.len()
    }

    /// Reads a header from the front of a lane. The words hold nothing of use unless there was a whole message.
    #[inline]
    pub(super) fn parse(bytes: &[u8], words: &mut Words) -> Parsed {
        let mut reader = Reader::new(bytes);
        let Some(first) = reader.u8() else { return Parsed::Part };
        let count = usize::from(first >> 3);
        if first & 7 > 3 || count > MAX_WORDS {
            return Parsed::Malformed;
        }
        match Self::parse_rest(&mut reader, first & 7, count, words) {
            Some(message) => Parsed::Whole(message, bytes.len() - reader.remaining()),
            None if bytes.len() >= MAX_HEADER => Parsed::Malformed,
            None => Parsed::Part,
        }
    }

    /// Reads a Short message that permits no reply; returns its handler and its length. `None` for all others, and
    /// for a part.
    #[inline]
    pub(super) fn parse_plain(bytes: &[u8], words: &mut Words) -> Option<(u8, usize)> {
        let &[first, handler, 0, ref rest @ ..] = bytes else { return None };
        let count = usize::from(first >> 3);
        if first & 7 != 0 {
            return None;
        }
        take_words(&mut Reader::new(rest), count, words)?;
        Some((handler, 3 + 4 * count))
    }

    /// Reads a Short message; returns its handler, its room and its length. `None` for all others, and for a part.
    #[inline]
    pub(super) fn parse_short(bytes: &[u8], words: &mut Words) -> Option<(u8, u64, usize)> {
        let mut reader = Reader::new(bytes);
        let first = reader.u8().filter(|first| first & 7 == 0)?;
        let (handler, room) = (reader.u8()?, reader.varint()?);
        take_words(&mut reader, usize::from(first >> 3), words)?;
        Some((handler, room, bytes.len() - reader.remaining()))
    }

    #[inline]
    fn parse_rest(reader: &mut Reader<'_>, kind: u8, count: usize, words: &mut Words) -> Option<Self> {
        let (handler, room) = (reader.u8()?, reader.varint()?);
        take_words(reader, count, words)?;
        let kind = match kind {
            0 => Kind::Short,
            1 => Kind::Medium { len: reader.varint()? },
            2 => Kind::Long { len: reader.varint()?, at: reader.varint()?, end: reader.varint()? },
            _ => Kind::Control { len: reader.varint()? },
        };
        Some(Self { kind, handler, room })
    }
}

/// A Short message without a reply as it stands in its lane.
#[cfg(test)]
pub(crate) fn encoded(handler: u8, words: &Words) -> Vec<u8> {
    let mut bytes = [0; MAX_HEADER];
    let len = Message { kind: Kind::Short, handler, room: 0 }.encode(words, &mut bytes);
    bytes[..len].to_vec()
}

/// Reads the words of a message.
#[inline]
fn take_words(reader: &mut Reader<'_>, count: usize, words: &mut Words) -> Option<()> {
    let (pairs, odd) = reader.take(4 * count)?.as_chunks::<8>();
    let odd = odd.first_chunk::<4>().map(|odd| u64::from(u32::from_le_bytes(*odd)));
    words.refill(count, pairs.iter().map(|pair| u64::from_le_bytes(*pair)).chain(odd)).ok()
}

/// Appends the words of a message.
fn put_words(writer: &mut Writer<'_>, words: &Words) -> Option<()> {
    let (pairs, odd) = words.pairs().split_at(words.len() / 2);
    pairs.iter().try_for_each(|pair| writer.put(&pair.to_le_bytes()))?;
    odd.first().map_or(Some(()), |odd| writer.put(&(*odd as u32).to_le_bytes()))
}

/// The room field of a reply bound.
pub(super) fn room_of(bound: ReplyBound) -> u64 {
    bound.to_tag()
}

/// Bytes of a lane that a reply to such a request takes at most.
pub(super) fn cost_of(room: u64) -> u64 {
    if room == 0 { 0 } else { room - 1 + MAX_HEADER as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn headers_come_back_and_prefixes_wait(
            words in prop::collection::vec(any::<u32>(), 0..=16), handler: u8,
            room in (0u64..3).prop_flat_map(|bits| 0..1u64 << (15 * bits)), len in 0u64..1 << 60, kind in 0..4
        ) {
            let kind = match kind {
                0 => Kind::Short,
                1 => Kind::Medium { len },
                2 => Kind::Long { len, at: len / 3, end: len },
                _ => Kind::Control { len },
            };
            let (message, words) = (Message { kind, handler, room }, Words::from_slice(&words).unwrap());
            let mut bytes = [0; MAX_HEADER];
            let len = message.encode(&words, &mut bytes);
            let mut parsed = Words::from_slice(&[77; MAX_WORDS]).unwrap();
            prop_assert_eq!(Message::parse(&bytes, &mut parsed), Parsed::Whole(message, len));
            prop_assert_eq!(parsed, words);
            let plain = (kind == Kind::Short && room == 0).then_some((handler, len));
            let mut parsed = Words::from_slice(&[77; MAX_WORDS]).unwrap();
            prop_assert_eq!(Message::parse_plain(&bytes, &mut parsed), plain);
            prop_assert!(plain.is_none() || parsed == words);
            let short = (kind == Kind::Short).then_some((handler, room, len));
            let mut parsed = Words::from_slice(&[77; MAX_WORDS]).unwrap();
            prop_assert_eq!(Message::parse_short(&bytes, &mut parsed), short);
            prop_assert!(short.is_none() || parsed == words);
            for cut in 0..len {
                prop_assert_eq!(Message::parse(&bytes[..cut], &mut parsed), Parsed::Part);
                prop_assert_eq!(Message::parse_plain(&bytes[..cut], &mut parsed), None);
                prop_assert_eq!(Message::parse_short(&bytes[..cut], &mut parsed), None);
            }
        }

        #[test]
        fn any_bytes_are_parsed_or_refused(bytes in prop::collection::vec(any::<u8>(), MAX_HEADER)) {
            prop_assert_ne!(Message::parse(&bytes, &mut Words::EMPTY.clone()), Parsed::Part);
        }
    }
}
