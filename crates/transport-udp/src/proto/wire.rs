//! The bytes of a datagram: header, Hello, frames. Parsing checks every length and never allocates.
//!
//! ```text
//! data  kind 1 | mode 1 | epoch 2 | sender 4 | number 8 | length 2 | frames ...
//!       | tag 16 (absent if unauthenticated)
//! hello kind 1 | version 1 | flags 1 | 0 | sender 4 | receiver 4 | token 8 | echo 8 | layout 8 | segment 8
//!       | public 32 | mac 32
//! ```
//!
//! Fixed-width integers are little-endian; variable ones are those of RFC 9000, section 16. The length of a Hello,
//! its layout up to the echo, and what authenticates it are the same in every version from 3 on, so that another
//! version is recognized. `length` is that of the whole datagram: an interface may hand over several in one piece,
//! and so they come apart again.

use super::bytes::{MAX_VARINT, Reader, Writer};
use am_core::transport::Departure;

/// Version of everything below.
pub(super) const VERSION: u8 = 4;
/// Bytes of a data datagram's header.
pub(super) const HEADER: usize = 18;
/// Bytes of an authenticator of a data datagram.
pub(super) const TAG: usize = 16;
/// Bytes of a Hello without its authenticator.
pub(super) const HELLO_BODY: usize = 44 + PUBLIC;
/// Bytes of a public key.
pub(super) const PUBLIC: usize = 32;
/// Bytes of a Hello's authenticator.
pub(super) const MAC: usize = 32;
/// Bytes of a Hello.
pub(super) const HELLO: usize = HELLO_BODY + MAC;
/// First byte of a data datagram.
pub(super) const KIND_DATA: u8 = 0xA1;
/// First byte of a Hello.
pub(super) const KIND_HELLO: u8 = 0xA0;
/// Most ranges in one acknowledgement.
pub(super) const MAX_RANGES: usize = 24;
/// The most datagrams that an interface hands over in one piece (Linux's `UDP_GRO_CNT_MAX`).
pub(super) const MAX_ROW: usize = 64;

/// The clear part of a data datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) mode: u8,
    pub(super) epoch: u16,
    pub(super) sender: u32,
    pub(super) number: u64,
    pub(super) length: u16,
}

impl Header {
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        (reader.u8()? == KIND_DATA).then_some(())?;
        let header = Self {
            mode: reader.u8()?,
            epoch: reader.u16()?,
            sender: reader.u32()?,
            number: reader.u64()?,
            length: reader.u16()?,
        };
        // A number that no acknowledgement can name.
        (header.number <= MAX_VARINT).then_some(header)
    }

    pub(super) fn encode(&self) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        out[0] = KIND_DATA;
        out[1] = self.mode;
        out[2..4].copy_from_slice(&self.epoch.to_le_bytes());
        out[4..8].copy_from_slice(&self.sender.to_le_bytes());
        out[8..16].copy_from_slice(&self.number.to_le_bytes());
        out[16..].copy_from_slice(&self.length.to_le_bytes());
        out
    }
}

/// Where the first of possibly several datagrams in a row ends; the end of the bytes if they do not say.
pub(super) fn first_datagram(bytes: &[u8]) -> usize {
    let said = match bytes.first() {
        Some(&KIND_HELLO) => Some(HELLO),
        _ => Header::parse(bytes).map(|header| usize::from(header.length)),
    };
    said.filter(|said| (HEADER..bytes.len()).contains(said)).unwrap_or(bytes.len())
}

/// The message that opens a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) version: u8,
    /// The sender has not yet seen that the receiver shares the session, and would like an answer.
    pub(super) asking: bool,
    /// The sender has a session of exactly these tokens.
    pub(super) open: bool,
    pub(super) sender: u32,
    pub(super) receiver: u32,
    /// The sender's part of the session's name, new for every session.
    pub(super) token: u64,
    /// The receiver's token as the sender last saw it; 0 if it did not.
    pub(super) echo: u64,
    /// Fingerprint of the settings that both sides must share.
    pub(super) layout: u64,
    /// Size of the sender's segment in bytes.
    pub(super) segment: u64,
    /// What the sender agrees on the session's keys with.
    pub(super) public: [u8; PUBLIC],
}

impl Hello {
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        (reader.u8()? == KIND_HELLO).then_some(())?;
        let (version, flags, _) = (reader.u8()?, reader.u8()?, reader.u8()?);
        Some(Self {
            version,
            asking: flags & 1 != 0,
            open: flags & 2 != 0,
            sender: reader.u32()?,
            receiver: reader.u32()?,
            token: reader.u64()?,
            echo: reader.u64()?,
            layout: reader.u64()?,
            segment: reader.u64()?,
            public: reader.array()?,
        })
    }

    pub(super) fn encode(&self) -> [u8; HELLO_BODY] {
        let mut out = [0; HELLO_BODY];
        out[..4].copy_from_slice(&[KIND_HELLO, self.version, u8::from(self.asking) | u8::from(self.open) << 1, 0]);
        out[4..8].copy_from_slice(&self.sender.to_le_bytes());
        out[8..12].copy_from_slice(&self.receiver.to_le_bytes());
        out[12..20].copy_from_slice(&self.token.to_le_bytes());
        out[20..28].copy_from_slice(&self.echo.to_le_bytes());
        out[28..36].copy_from_slice(&self.layout.to_le_bytes());
        out[36..44].copy_from_slice(&self.segment.to_le_bytes());
        out[44..].copy_from_slice(&self.public);
        out
    }
}

/// Inclusive ranges of datagram numbers, newest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AckRanges {
    ranges: [(u64, u64); MAX_RANGES],
    len: usize,
}

impl AckRanges {
    pub(super) const EMPTY: Self = Self { ranges: [(0, 0); MAX_RANGES], len: 0 };

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    /// Adds an older range; returns whether there was room.
    pub(super) fn push(&mut self, first: u64, last: u64) -> bool {
        let Some(place) = self.ranges.get_mut(self.len) else { return false };
        *place = (first, last);
        self.len += 1;
        true
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64)> + Clone + '_ {
        self.ranges.iter().take(self.len).copied()
    }

    #[cfg(test)]
    pub(super) fn largest(&self) -> Option<u64> {
        self.iter().next().map(|(_, last)| last)
    }
}

/// Absolute counts of what the sender of the frame has done for its peer. Later ones replace earlier ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Credit {
    /// The request lane may be sent up to here.
    pub(super) limit: u64,
    /// The request lane has been handled up to here.
    pub(super) requests: u64,
    /// Requests that ended without a reply, and the room that had been set aside for them in bytes.
    pub(super) bare: u64,
    pub(super) bare_bytes: u64,
    /// The reply lane and its payloads had been written up to here.
    pub(super) replies: u64,
    pub(super) payloads: u64,
}

/// The ranges of a received acknowledgement, which stay where they are: inclusive, newest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Acks<'a> {
    newest: (u64, u64),
    /// Gap and length of each older range, checked when the frame was parsed.
    older: &'a [u8],
}

impl<'a> Acks<'a> {
    fn parse(reader: &mut Reader<'a>) -> Option<Self> {
        let (largest, count, first) = (reader.varint()?, reader.u8()?, reader.varint()?);
        let newest = (largest.checked_sub(first)?, largest);
        if usize::from(count) >= MAX_RANGES {
            return None;
        }
        let (mut low, start) = (newest.0, *reader);
        for _ in 0..count {
            low = Self::next(reader, low)?.0;
        }
        let older = start.until(reader);
        Some(Self { newest, older })
    }

    fn next(reader: &mut Reader<'_>, low: u64) -> Option<(u64, u64)> {
        let last = low.checked_sub(reader.varint()?)?.checked_sub(2)?;
        Some((last.checked_sub(reader.varint()?)?, last))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64)> + Clone + 'a {
        let (mut reader, mut low) = (Reader::new(self.older), self.newest.0);
        let older = std::iter::from_fn(move || {
            let range = Self::next(&mut reader, low)?;
            low = range.0;
            Some(range)
        });
        std::iter::once(self.newest).chain(older)
    }
}

/// One frame of a data datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    Padding,
    Ping,
    Ack {
        delay_micros: u64,
        ranges: Acks<'a>,
    },
    /// Bytes of stream 0 (requests), 1 (replies), 2 (request payloads) or 3 (reply payloads); the last two say
    /// where in the segment they belong.
    Stream {
        stream: u8,
        offset: u64,
        at: u64,
        data: &'a [u8],
    },
    Credit(Credit),
    /// The sender would like the request lane's limit to reach here.
    Want(u64),
    Leave(Leave),
}

/// A farewell: how, after how many bytes of each stream, and whose own farewell the sender had learned of before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Leave {
    pub(super) how: u8,
    pub(super) requests: u64,
    pub(super) replies: u64,
    /// Bytes of the Long payloads of either lane.
    pub(super) payloads: [u64; 2],
    /// An endpoint's index and how it left.
    pub(super) after: Option<(u32, u8)>,
}

/// How an endpoint may leave, by the number that a farewell has for it.
pub(super) const DEPARTURES: [Departure; 3] = [Departure::Finished, Departure::Left, Departure::Panicked];

/// The number of a departure.
fn departure(reader: &mut Reader<'_>) -> Option<u8> {
    reader.u8().filter(|how| usize::from(*how) < DEPARTURES.len())
}

const PADDING: u8 = 0;
const PING: u8 = 1;
const ACK: u8 = 2;
const CREDIT: u8 = 3;
const WANT: u8 = 4;
const LEAVE: u8 = 5;
const STREAM: u8 = 0x10;

/// Bytes of a stream frame in front of its data at most.
pub(super) const STREAM_OVERHEAD: usize = 1 + 8 + 8 + 2;

/// Bytes of a lane: which of the two, where, and what. `None`, with nothing taken, if that is not the next frame.
/// Most frames are of this kind, and a [`Frame`] is much to hand on.
#[inline]
pub(super) fn lane_bytes<'a>(reader: &mut Reader<'a>) -> Option<(usize, u64, &'a [u8])> {
    let mut ahead = *reader;
    let lane = ahead.u8()?.wrapping_sub(STREAM);
    if lane > 1 {
        return None;
    }
    let (offset, len) = (ahead.varint()?, ahead.u16()?);
    let data = ahead.take(usize::from(len))?;
    *reader = ahead;
    Some((usize::from(lane), offset, data))
}

impl<'a> Frame<'a> {
    /// The next frame, or `None` if the bytes make none.
    pub(super) fn parse(reader: &mut Reader<'a>) -> Option<Self> {
        Some(match reader.u8()? {
            PADDING => {
                reader.skip_zeros();
                Self::Padding
            }
            PING => Self::Ping,
            ACK => Self::Ack { delay_micros: reader.varint()?, ranges: Acks::parse(reader)? },
            CREDIT => Self::Credit(Credit {
                limit: reader.varint()?,
                requests: reader.varint()?,
                bare: reader.varint()?,
                bare_bytes: reader.varint()?,
                replies: reader.varint()?,
                payloads: reader.varint()?,
            }),
            WANT => Self::Want(reader.varint()?),
            LEAVE => {
                let (how, requests, replies) = (departure(reader)?, reader.varint()?, reader.varint()?);
                let payloads = [reader.varint()?, reader.varint()?];
                let after = match reader.u8()? {
                    0 => None,
                    _ => Some((reader.u32()?, departure(reader)?)),
                };
                Self::Leave(Leave { how, requests, replies, payloads, after })
            }
            kind @ 0x10..=0x13 => {
                let stream = kind - STREAM;
                let offset = reader.varint()?;
                let at = if stream >= 2 { reader.varint()? } else { 0 };
                let len = reader.u16()?;
                Self::Stream { stream, offset, at, data: reader.take(usize::from(len))? }
            }
            _ => return None,
        })
    }

    /// Appends the frame; `None` (and possibly a part written) if it does not fit.
    pub(super) fn encode(&self, out: &mut Writer<'_>) -> Option<()> {
        match *self {
            Self::Padding => out.u8(PADDING),
            Self::Ping => out.u8(PING),
            Self::Ack { delay_micros, ranges } => encode_ack(out, delay_micros, ranges.iter()),
            Self::Credit(credit) => {
                out.u8(CREDIT)?;
                let Credit { limit, requests, bare, bare_bytes, replies, payloads } = credit;
                let fields = [limit, requests, bare, bare_bytes, replies, payloads];
                fields.into_iter().try_for_each(|field| out.varint(field))
            }
            Self::Want(target) => out.u8(WANT).and_then(|()| out.varint(target)),
            Self::Leave(Leave { how, requests, replies, payloads: [of_requests, of_replies], after }) => {
                out.put(&[LEAVE, how])?;
                [requests, replies, of_requests, of_replies]
                    .into_iter()
                    .try_for_each(|field| out.varint(field))?;
                out.u8(after.is_some().into())?;
                let Some((peer, how)) = after else { return Some(()) };
                out.put(&peer.to_le_bytes())?;
                out.u8(how)
            }
            Self::Stream { stream, offset, at, data } => {
                stream_header(out, stream, offset, at, data.len())?;
                out.put(data)
            }
        }
    }
}

/// Appends an acknowledgement of at most [`MAX_RANGES`] ranges, newest first; none makes no frame.
pub(super) fn encode_ack(
    out: &mut Writer<'_>,
    delay_micros: u64,
    mut ranges: impl Iterator<Item = (u64, u64)> + Clone,
) -> Option<()> {
    let count = ranges.clone().count();
    let (mut low, last) = ranges.next()?;
    out.u8(ACK)?;
    out.varint(delay_micros)?;
    out.varint(last)?;
    out.u8(u8::try_from(count - 1).ok()?)?;
    out.varint(last - low)?;
    for (first, last) in ranges {
        out.varint(low - last - 2)?;
        out.varint(last - first)?;
        low = first;
    }
    Some(())
}

/// Appends what stands in front of a stream frame's `len` bytes of data.
pub(super) fn stream_header(out: &mut Writer<'_>, stream: u8, offset: u64, at: u64, len: usize) -> Option<()> {
    out.u8(STREAM + stream)?;
    out.varint(offset)?;
    if stream >= 2 {
        out.varint(at)?;
    }
    out.put(&u16::try_from(len).ok()?.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn integers_and_frames_come_back(
            value in 0..=MAX_VARINT, at in 0..=MAX_VARINT, stream in 0u8..4,
            data in prop::collection::vec(any::<u8>(), 0..90)
        ) {
            let at = if stream >= 2 { at } else { 0 };
            let mut ranges = AckRanges::EMPTY;
            for i in 0..1 + value % MAX_RANGES as u64 {
                prop_assert!(ranges.push((1 << 40) - 10 * i, (1 << 40) - 10 * i + value % 8));
            }
            let frames = [
                Frame::Stream { stream, offset: value, at, data: &data },
                Frame::Credit(Credit {
                    limit: value, requests: at, bare: 4, bare_bytes: value, replies: 5, payloads: at,
                }),
                Frame::Leave(Leave {
                    how: 1, requests: at, replies: value, payloads: [9, at],
                    after: (at % 2 == 0).then_some((7, 2)),
                }),
                Frame::Want(value), Frame::Ping, Frame::Padding,
            ];
            let mut bytes = [0; 1000];
            let mut writer = Writer::new(&mut bytes);
            encode_ack(&mut writer, value, ranges.iter()).unwrap();
            for frame in &frames {
                prop_assert!(frame.encode(&mut writer).is_some());
            }
            let len = writer.len();
            let mut reader = Reader::new(&bytes[..len]);
            match Frame::parse(&mut reader) {
                Some(Frame::Ack { delay_micros, ranges: parsed }) => {
                    prop_assert_eq!(delay_micros, value);
                    prop_assert!(parsed.iter().eq(ranges.iter()));
                }
                other => prop_assert!(false, "{:?}", other),
            }
            for frame in &frames {
                prop_assert_eq!(Frame::parse(&mut reader), Some(*frame));
            }
            prop_assert_eq!(reader.remaining(), 0);
        }

        #[test]
        fn any_bytes_are_parsed_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut reader = Reader::new(&bytes);
            let mut frames = 0;
            while reader.remaining() > 0 && Frame::parse(&mut reader).is_some() {
                frames += 1;
            }
            prop_assert!(frames <= bytes.len());
            let _ = (Header::parse(&bytes), Hello::parse(&bytes));
        }
    }
}
