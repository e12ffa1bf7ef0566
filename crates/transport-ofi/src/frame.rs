//! Frames: what a message on the wire looks like.
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | the job's tag |
//! | 4..8 | the sender |
//! | 8..12 | number in the sender's sequence to this receiver; of what stands outside of it, see its kind |
//! | 12 | kind |
//! | 13 | handler; of a departure, how the sender leaves |
//! | 14 | number of arguments |
//! | 15 | messages between cores that were handled |
//! | 16..18 | requests that were handled |
//! | 18..20 | replies that will not come |
//! | 24..40 | of a Long message: where its payload is placed, and its length (bytes 20..24 are zero) |
//!
//! Arguments and payload follow. Numbers are little-endian.
//!
//! A bundle is a header, and then frames, each behind its length in two bytes.

use am_core::{Category, Words};

/// Bytes of a header, but of a Long message.
pub(crate) const HEADER: usize = 20;
/// Bytes of a header of a Long message.
pub(crate) const LONG_HEADER: usize = 40;
/// Arguments of a message.
pub(crate) const MAX_ARGUMENTS: usize = 16;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A request with a reply to come, or one without.
    Request(Category),
    OneWay(Category),
    Reply(Category),
    Control,
    /// Nothing but credits.
    Credit,
    /// The last frame of a sender that leaves.
    Departure,
    /// The answer to it.
    DepartureAck,
    /// Asks which frame is due, outside of the sequence: its number is that of the sender's next frame.
    Probe,
    /// The answer, outside of the sequence: its number is that of the frame that is due.
    Due,
    /// Outside of the sequence: the sender counts the receiver as lost.
    Severed,
    /// Several frames, each with its own header and place in the sequence.
    Bundle,
}

/// A peer broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Credits that a frame brings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Credits {
    /// Requests of the receiver that were handled.
    pub(crate) handled: u16,
    /// Replies that will not come.
    pub(crate) freed: u16,
    /// Messages between cores that were handled.
    pub(crate) controls: u8,
}

/// Who sent a frame, and its place in the sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) tag: u32,
    pub(crate) from: u32,
    pub(crate) sequence: u32,
}

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) origin: Origin,
    pub(crate) kind: Kind,
    pub(crate) handler: u8,
    pub(crate) args: u8,
    pub(crate) credits: Credits,
    /// Of a Long message: offset and length of its payload in the receiver's segment.
    pub(crate) placed: (u64, u64),
}

impl Kind {
    pub(crate) const fn is_long(self) -> bool {
        matches!(self, Self::Request(Category::Long) | Self::OneWay(Category::Long) | Self::Reply(Category::Long))
    }

    /// Whether it has no place in its sender's sequence.
    pub(crate) const fn is_aside(self) -> bool {
        matches!(self, Self::Probe | Self::Due | Self::Severed)
    }

    /// Whether a reply to it may come.
    pub(crate) const fn allows_reply(self) -> bool {
        matches!(self, Self::Request(_))
    }

    const fn code(self) -> u8 {
        match self {
            Self::Request(category) => category as u8,
            Self::OneWay(category) => 3 + category as u8,
            Self::Reply(category) => 6 + category as u8,
            Self::Control => 9,
            Self::Credit => 10,
            Self::Departure => 11,
            Self::DepartureAck => 12,
            Self::Probe => 13,
            Self::Due => 14,
            Self::Severed => 15,
            Self::Bundle => 16,
        }
    }

    const ALL: [Self; 17] = {
        let [short, medium, long] = Category::ALL;
        [
            Self::Request(short),
            Self::Request(medium),
            Self::Request(long),
            Self::OneWay(short),
            Self::OneWay(medium),
            Self::OneWay(long),
            Self::Reply(short),
            Self::Reply(medium),
            Self::Reply(long),
            Self::Control,
            Self::Credit,
            Self::Departure,
            Self::DepartureAck,
            Self::Probe,
            Self::Due,
            Self::Severed,
            Self::Bundle,
        ]
    };

    #[inline]
    fn of(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

fn word(bytes: &[u8], at: usize) -> Result<u32, Malformed> {
    let word = bytes.get(at..at + 4).ok_or(Malformed)?;
    Ok(u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
}

fn double(bytes: &[u8], at: usize) -> Result<u64, Malformed> {
    Ok(u64::from(word(bytes, at)?) | u64::from(word(bytes, at + 4)?) << 32)
}

impl Header {
    /// Bytes of the header itself.
    pub(crate) const fn len(&self) -> usize {
        if self.kind.is_long() { LONG_HEADER } else { HEADER }
    }

    /// Writes header, arguments and payload; returns how many bytes that are.
    ///
    /// # Panics
    /// If they do not fit.
    #[inline]
    pub(crate) fn compose(&self, out: &mut [u8], args: &Words, payload: &[u8]) -> usize {
        let Self { origin, kind, handler, credits, placed, .. } = *self;
        let numbers = [kind.code(), handler, self.args, credits.controls];
        let counts = u32::from(credits.handled) | u32::from(credits.freed) << 16;
        let words = [origin.tag, origin.from, origin.sequence, u32::from_le_bytes(numbers), counts];
        let (head, rest) = out.split_first_chunk_mut::<HEADER>().expect("a frame has room for its header");
        head.as_chunks_mut::<4>().0.iter_mut().zip(words).for_each(|(to, word)| *to = word.to_le_bytes());
        let rest = if kind.is_long() {
            let (more, rest) = rest.split_first_chunk_mut::<{ LONG_HEADER - HEADER }>().expect("as above");
            more[..4].fill(0);
            more[4..12].copy_from_slice(&placed.0.to_le_bytes());
            more[12..20].copy_from_slice(&placed.1.to_le_bytes());
            rest
        } else {
            rest
        };
        let mut end = self.len();
        // Most have few arguments, and some no payload: nothing is copied then.
        let (arguments, rest) = rest.split_at_mut(4 * args.len());
        for (index, to) in arguments.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            *to = args.word(index).unwrap_or_default().to_le_bytes();
        }
        end += arguments.len();
        if !payload.is_empty() {
            rest[..payload.len()].copy_from_slice(payload);
        }
        end + payload.len()
    }

    /// Who sent a frame, its kind, and its handler byte.
    #[inline]
    pub(crate) fn begin(bytes: &[u8]) -> Result<(Origin, (Kind, u8)), Malformed> {
        let head = bytes.first_chunk::<16>().ok_or(Malformed)?;
        let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let origin = Origin { tag: number(0), from: number(4), sequence: number(8) };
        Ok((origin, (Kind::of(head[12]).ok_or(Malformed)?, head[13])))
    }

    /// A frame's header, its arguments in bytes, at most sixteen, and the bytes behind.
    #[inline]
    pub(crate) fn read(bytes: &[u8]) -> Result<(Self, &[u8], &[u8]), Malformed> {
        let head = bytes.first_chunk::<HEADER>().ok_or(Malformed)?;
        let (origin, (kind, handler)) = Self::begin(head)?;
        let [args, controls] = [head[14], head[15]];
        let half = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        let credits = Credits { handled: half(16), freed: half(18), controls };
        let placed = if kind.is_long() { (double(bytes, 24)?, double(bytes, 32)?) } else { (0, 0) };
        let header = Self { origin, kind, handler, args, credits, placed };
        let rest = bytes.get(header.len()..).ok_or(Malformed)?;
        let (words, rest) = rest.split_at_checked(4 * usize::from(args)).ok_or(Malformed)?;
        if usize::from(args) > MAX_ARGUMENTS {
            return Err(Malformed);
        }
        Ok((header, words, rest))
    }
}

/// Bytes before each frame of a bundle.
pub(crate) const LENGTH: usize = 2;

/// The first frame of some, and the others.
type Split<'b> = (&'b [u8], &'b [u8]);

/// The first frame of those that are left of a bundle, and the rest; nothing at its end.
pub(crate) fn next_of_bundle(bytes: &[u8]) -> Result<Option<Split<'_>>, Malformed> {
    let Some((length, rest)) = bytes.split_first_chunk() else {
        return if bytes.is_empty() { Ok(None) } else { Err(Malformed) };
    };
    rest.split_at_checked(u16::from_le_bytes(*length).into()).map(Some).ok_or(Malformed)
}

/// Makes a frame one of nothing but its credits, with the same number.
///
/// # Panics
/// If it is no frame.
pub(crate) fn strip(frame: &mut Vec<u8>) {
    let (header, ..) = Header::read(frame).unwrap_or_else(|Malformed| panic!("it was composed here"));
    let bare = Header { kind: Kind::Credit, handler: 0, args: 0, placed: (0, 0), ..header };
    frame.truncate(HEADER);
    bare.compose(frame, &Words::EMPTY, &[]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_are_read_as_composed(
            code in 0u8..17, handler: u8, words in prop::collection::vec(any::<u32>(), 0..17), numbers: [u32; 4],
            placed: (u64, u64), payload in prop::collection::vec(any::<u8>(), 0..50),
        ) {
            let kind = Kind::of(code).unwrap();
            let [tag, from, sequence, some] = numbers;
            let credits = Credits { handled: some as u16, freed: (some >> 16) as u16, controls: tag as u8 };
            let placed = if kind.is_long() { placed } else { (0, 0) };
            let args = Words::from_slice(&words).unwrap();
            let origin = Origin { tag, from, sequence };
            let header = Header { origin, kind, handler, args: words.len() as u8, credits, placed };
            let mut bytes = [0; 200];
            let len = header.compose(&mut bytes, &args, &payload);
            let args = &args.to_le_bytes()[..4 * args.len()];
            prop_assert_eq!(Header::read(&bytes[..len]), Ok((header, args, &payload[..])));
            prop_assert_eq!(Header::begin(&bytes[..len]), Ok((origin, (kind, handler))));
            let mut bare = bytes[..len].to_vec();
            strip(&mut bare);
            let nothing = Header { kind: Kind::Credit, handler: 0, args: 0, placed: (0, 0), ..header };
            prop_assert_eq!(Header::read(&bare), Ok((nothing, &[][..], &[][..])));
            // No part of a header or of arguments is a frame.
            for short in 0..header.len() + 4 * words.len() {
                prop_assert!(Header::read(&bytes[..short]).is_err());
            }
        }

        #[test]
        fn bundles_are_read_as_composed(
            frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..9),
        ) {
            let mut bytes = Vec::new();
            for frame in &frames {
                bytes.extend((frame.len() as u16).to_le_bytes());
                bytes.extend(frame);
            }
            let mut rest = &bytes[..];
            for frame in &frames {
                let (first, more) = next_of_bundle(rest).unwrap().unwrap();
                prop_assert_eq!(first, &frame[..]);
                // No part of a frame or of its length is a frame.
                let here = rest.len() - more.len();
                prop_assert!((1..here).all(|short| next_of_bundle(&rest[..short]).is_err()));
                rest = more;
            }
            prop_assert_eq!(next_of_bundle(rest), Ok(None));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            if let Ok((header, args, rest)) = Header::read(&bytes) {
                let mut again = [0; 200];
                let args = Words::from_le_bytes(args).unwrap();
                let len = header.compose(&mut again, &args, rest);
                let args = &args.to_le_bytes()[..4 * args.len()];
                prop_assert_eq!(Header::read(&again[..len]), Ok((header, args, rest)));
            }
        }
    }
}
