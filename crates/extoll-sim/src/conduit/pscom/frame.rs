//! The form of an active message in the body of a two-sided one.
//!
//! Twelve bytes `{u8 kind, u8 handler, u8 words, u8 category, u32 bound, u16 handled, u16 bare}`, for Long the
//! offset (8 bytes), the arguments (4 bytes each), the payload. `handled` and `bare` are what the sender tells the
//! receiver of its requests.

use super::account::Ended;
use am_core::Words;
use am_core::arguments::MAX_WORDS;
use am_core::transport::{Category, ReplyBound};
use thiserror::Error;

/// Bytes before offset, arguments and payload.
const FIXED: usize = 12;

/// Where in a frame the receiver is told of its requests: `handled`, then `bare`.
pub(super) const ENDED_AT: usize = 8;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A request and the largest reply to it.
    Request(Category, ReplyBound),
    Reply(Category),
    /// A message between cores.
    Control,
    /// Counts alone.
    Tell,
    /// The same, and the question how far the receiver is.
    Ask,
    /// The answer to that question.
    Answer,
}

/// A frame without its payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) handler: u8,
    pub(super) args: Words,
    pub(super) ended: Ended,
    /// Where a Long payload goes.
    pub(super) offset: u64,
}

/// Why a body is no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum FrameError {
    #[error("a frame of {0} bytes is too short")]
    Short(usize),
    #[error("a frame of the unknown kind {0} or category {1}")]
    Kind(u8, u8),
    #[error("a frame with {0} arguments")]
    Words(u8),
}

fn category_code(category: Category) -> u8 {
    match category {
        Category::Short => 0,
        Category::Medium => 1,
        Category::Long => 2,
    }
}

impl Frame {
    /// The most bytes before a payload.
    pub(super) const LARGEST: u32 = (FIXED + 8 + 4 * MAX_WORDS) as u32;

    /// Appends the frame's bytes; the payload follows them.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let (kind, category, bound) = match self.kind {
            Kind::Request(category, ReplyBound::None) => (0, category_code(category), 0),
            Kind::Request(category, ReplyBound::UpTo(bytes)) => (1, category_code(category), bytes),
            Kind::Reply(category) => (2, category_code(category), 0),
            Kind::Control => (3, 0, 0),
            Kind::Tell => (4, 0, 0),
            Kind::Ask => (5, 0, 0),
            Kind::Answer => (6, 0, 0),
        };
        out.extend_from_slice(&[kind, self.handler, self.args.len() as u8, category]);
        out.extend_from_slice(&bound.to_le_bytes());
        out.extend_from_slice(&self.ended.handled.to_le_bytes());
        out.extend_from_slice(&self.ended.bare.to_le_bytes());
        if self.is_long() {
            out.extend_from_slice(&self.offset.to_le_bytes());
        }
        out.extend_from_slice(&self.args.to_le_bytes()[..4 * self.args.len()]);
    }

    fn is_long(&self) -> bool {
        matches!(self.kind, Kind::Request(Category::Long, _) | Kind::Reply(Category::Long))
    }

    /// Reads a frame; also returns where its payload begins.
    pub(super) fn read(body: &[u8]) -> Result<(Self, usize), FrameError> {
        let short = || FrameError::Short(body.len());
        let (fixed, mut rest) = body.split_first_chunk::<FIXED>().ok_or_else(short)?;
        let [kind, handler, words, category, b0, b1, b2, b3, h0, h1, e0, e1] = *fixed;
        let bad = || FrameError::Kind(kind, category);
        let in_category = || Category::ALL.get(usize::from(category)).copied().ok_or_else(bad);
        let kind = match kind {
            0 => Kind::Request(in_category()?, ReplyBound::None),
            1 => Kind::Request(in_category()?, ReplyBound::UpTo(u32::from_le_bytes([b0, b1, b2, b3]))),
            2 => Kind::Reply(in_category()?),
            3 => Kind::Control,
            4 => Kind::Tell,
            5 => Kind::Ask,
            6 => Kind::Answer,
            _ => return Err(bad()),
        };
        let ended = Ended { handled: u16::from_le_bytes([h0, h1]), bare: u16::from_le_bytes([e0, e1]) };
        let mut frame = Self { kind, handler, args: Words::EMPTY, ended, offset: 0 };
        if frame.is_long() {
            let (offset, after) = rest.split_first_chunk::<8>().ok_or_else(short)?;
            frame.offset = u64::from_le_bytes(*offset);
            rest = after;
        }
        let bytes = 4 * usize::from(words);
        let args = rest.get(..bytes).ok_or_else(short)?;
        frame.args = Words::from_le_bytes(args).map_err(|_| FrameError::Words(words))?;
        Ok((frame, body.len() - rest.len() + bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: Kind, words: usize) -> Frame {
        let args: Vec<u32> = (0..words as u32).map(|word| word * 0x0101_0101).collect();
        let args = Words::from_slice(&args).unwrap();
        let offset = if matches!(kind, Kind::Reply(Category::Long)) { 1 << 40 } else { 0 };
        Frame { kind, handler: 200, args, ended: Ended { handled: 3, bare: 65_535 }, offset }
    }

    #[test]
    fn frames_survive() {
        let kinds = Category::ALL.into_iter().flat_map(|category| {
            let bounds = [ReplyBound::None, ReplyBound::UpTo(0), ReplyBound::UpTo(u32::MAX)];
            bounds.map(|bound| Kind::Request(category, bound)).into_iter().chain([Kind::Reply(category)])
        });
        for kind in kinds.chain([Kind::Control, Kind::Tell, Kind::Ask, Kind::Answer]) {
            for words in 0..=16 {
                let (frame, mut body) = (frame(kind, words), Vec::new());
                frame.write(&mut body);
                let payload_at = body.len();
                body.extend_from_slice(b"payload");
                let (read, at) = Frame::read(&body).unwrap();
                assert_eq!((read.kind, read.handler, read.args, read.ended), (kind, 200, frame.args, frame.ended));
                assert_eq!((read.offset, at), (frame.offset, payload_at));
            }
        }
    }

    #[test]
    fn nonsense_from_a_peer_is_an_error() {
        let mut body = Vec::new();
        frame(Kind::Reply(Category::Long), 2).write(&mut body);
        for len in 0..body.len() {
            assert_eq!(Frame::read(&body[..len]).unwrap_err(), FrameError::Short(len));
        }
        let with = |at: usize, value| {
            let mut body = [body.clone(), vec![0; 100]].concat();
            body[at] = value;
            Frame::read(&body).unwrap_err()
        };
        assert_eq!(with(0, 7), FrameError::Kind(7, 2));
        assert_eq!(with(3, 3), FrameError::Kind(2, 3));
        assert_eq!(with(2, 17), FrameError::Words(17));
    }
}
