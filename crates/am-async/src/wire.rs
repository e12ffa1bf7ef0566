//! What travels: words of messages, and what they say.

use crate::method::MethodId;

/// The first word of a request: which method, how, and its digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) method: u16,
    pub(crate) flags: u16,
    pub(crate) digest: u32,
}

impl Header {
    /// There is no answer.
    pub(crate) const ONE_WAY: u16 = 1;
    /// The request's length follows, and the request is sent when the callee has room.
    pub(crate) const LONG: u16 = 4;
    /// There may be several answers.
    pub(crate) const STREAM: u16 = 8;
    /// A rank calls itself for another one, which the request names.
    pub(crate) const ON_BEHALF: u16 = 16;

    pub(crate) const fn new(id: MethodId, flags: u16) -> Self {
        Self { method: id.index, flags, digest: id.digest }
    }

    pub(crate) const fn is(self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    #[inline]
    pub(crate) const fn to_u64(self) -> u64 {
        self.method as u64 | (self.flags as u64) << 16 | (self.digest as u64) << 32
    }

    #[inline]
    pub(crate) const fn from_u64(word: u64) -> Self {
        Self { method: word as u16, flags: (word >> 16) as u16, digest: (word >> 32) as u32 }
    }
}

/// The last word of a request: the length of one that is sent later, and the answers of a stream that may be under
/// way.
#[inline]
pub(crate) const fn measures(long: u32, window: u32) -> u64 {
    long as u64 | (window as u64) << 32
}

/// What [`measures`] put together.
#[inline]
pub(crate) const fn read_measures(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

/// What an answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Status {
    /// The method's answer follows.
    Answer,
    /// The method's error follows.
    Failed,
    /// The method panicked; the text follows.
    Panicked,
    /// The rank works on too many requests.
    RefusedTasks,
    /// The method works on too many requests.
    RefusedMethod,
    /// The request is none.
    BadRequest,
    /// The request is too long; its length and the limit follow.
    LongRequest,
    /// The answer is too long; its length and the limit follow.
    LongAnswer,
    /// The request has come, and will be answered.
    Accepted,
    /// One of several answers follows.
    Item,
    /// Several of them follow, each after its [length](put_length).
    Items,
}

/// The first word of an answer: what it says, whether it is sent when the caller has room, and the digest of its
/// method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) status: Status,
    pub(crate) long: bool,
    pub(crate) digest: u32,
}

impl Verdict {
    pub(crate) const fn new(status: Status, digest: u32) -> Self {
        Self { status, long: false, digest }
    }

    #[inline]
    pub(crate) const fn to_u64(self) -> u64 {
        self.status as u64 | (self.long as u64) << 8 | (self.digest as u64) << 32
    }

    #[inline]
    pub(crate) fn from_u64(word: u64) -> Option<Self> {
        let status = match word as u8 {
            0 => Status::Answer,
            1 => Status::Failed,
            2 => Status::Panicked,
            3 => Status::RefusedTasks,
            4 => Status::RefusedMethod,
            5 => Status::BadRequest,
            6 => Status::LongRequest,
            7 => Status::LongAnswer,
            8 => Status::Accepted,
            9 => Status::Item,
            10 => Status::Items,
            _ => return None,
        };
        Some(Self { status, long: word & 0x100 != 0, digest: (word >> 32) as u32 })
    }
}

/// Bytes of a length at most.
pub(crate) const LENGTH: usize = 5;

/// Appends a length: seven bits in each byte, the low ones first, and in its highest bit whether another follows.
#[inline]
pub(crate) fn put_length(mut length: u32, into: &mut Vec<u8>) {
    while length >= 0x80 {
        into.push(length as u8 | 0x80);
        length >>= 7;
    }
    into.push(length as u8);
}

/// The bytes whose length [`put_length`] wrote before them, and what follows.
#[inline]
pub(crate) fn split_length(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut length = 0u64;
    for (place, byte) in bytes.iter().enumerate().take(LENGTH) {
        length |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return bytes[place + 1..].split_at_checked(usize::try_from(length).ok()?);
        }
    }
    None
}

/// Two numbers as the body of an answer.
pub(crate) fn numbers(bytes: u64, limit: u64) -> [u8; 16] {
    let mut body = [0; 16];
    body[..8].copy_from_slice(&bytes.to_le_bytes());
    body[8..].copy_from_slice(&limit.to_le_bytes());
    body
}

/// The numbers of a body; zeros where it has none.
pub(crate) fn read_numbers(body: &[u8]) -> (u64, u64) {
    let number =
        |at: usize| body.get(at..at + 8).and_then(|part| part.try_into().ok()).map_or(0, u64::from_le_bytes);
    (number(0), number(8))
}

/// What a control message wants; the numbers that follow depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Control {
    /// Caller to callee: nobody waits for the answer of this call any more.
    Cancel,
    /// Callee to caller: there is room for the request of this call; its parts go to this number.
    GrantRequest,
    /// Caller to callee: there is room for the answer of this task; its parts go to this call.
    GrantAnswer,
    /// Caller to callee: so many answers of this call have been taken.
    Credit,
    /// Caller to callee: there is room for what was announced of the stream that answers this call.
    GrantItem,
}

impl Control {
    pub(crate) fn from_u64(word: u64) -> Option<Self> {
        Some(match word {
            0 => Self::Cancel,
            1 => Self::GrantRequest,
            2 => Self::GrantAnswer,
            3 => Self::Credit,
            4 => Self::GrantItem,
            _ => return None,
        })
    }
}

/// Where a part of something long belongs: the offset's highest bit tells requests from answers.
pub(crate) const PART_OF_ANSWER: u64 = 1 << 63;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive() {
        let id = MethodId { index: 0xfedc, digest: 0x8765_4321 };
        let header = Header::new(id, Header::STREAM | Header::LONG);
        assert_eq!(Header::from_u64(header.to_u64()), header);
        assert!(header.is(Header::LONG) && !header.is(Header::ONE_WAY));
        for status in 0..=u64::from(u8::MAX) {
            let verdict = Verdict::from_u64(status | 0x100 | 7 << 32);
            assert_eq!(verdict.map(Verdict::to_u64), (status < 11).then_some(status | 0x100 | 7 << 32));
        }
        assert_eq!(read_measures(measures(7, u32::MAX)), (7, u32::MAX));
        assert_eq!(read_numbers(&numbers(5, u64::MAX)), (5, u64::MAX));
        let lengths = [0, 1, 127, 128, 300, 70_000];
        for length in lengths {
            let mut bytes = Vec::new();
            put_length(length, &mut bytes);
            assert!(bytes.len() <= LENGTH);
            bytes.resize(bytes.len() + length as usize, 1);
            assert_eq!(split_length(&bytes), Some((&vec![1; length as usize][..], &[][..])));
            assert_eq!(split_length(&bytes[..bytes.len() - 1]), None);
            bytes.push(9);
            assert_eq!(split_length(&bytes).map(|(_, rest)| rest), Some(&[9][..]));
        }
        assert_eq!((split_length(&[]), split_length(&[0x80; 6])), (None, None));
        assert_eq!(read_numbers(&[1; 12]), (0x0101_0101_0101_0101, 0));
        assert_eq!(
            (0..9).filter_map(Control::from_u64).map(|control| control as u64).collect::<Vec<_>>(),
            [0, 1, 2, 3, 4]
        );
    }
}
