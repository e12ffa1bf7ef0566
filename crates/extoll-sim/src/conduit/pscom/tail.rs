//! The form of a ring slot: where a chunk lies in it, and the tail that says that it is there.
//!
//! A slot is written by one put that ends with the slot's last byte. The last eight bytes of the slot are the
//! tail, `{u16 token, u16 payload, u32 magic}`, whose marker, the magic, comes last: whoever sees it sees
//! everything before it. Source: pscom's EXTOLL plugin and its report, sheet `extoll.md`, section "pscom RMA
//! ring".

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Bytes of a tail.
pub(super) const TAIL_BYTES: usize = 8;

/// The magic of a slot in which nothing has arrived.
pub(super) const UNUSED: u32 = 0;

/// The magic of a slot that holds a chunk, or returned tokens alone.
pub(super) const FILLED: u32 = 1;

/// How the length of a put is rounded up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Padding {
    /// Payload and tail together to 64 bytes, a cache line, as the plugin's code does.
    #[default]
    Line,
    /// The payload to 8 bytes, so at most 7 bytes of padding, as the plugin's report says.
    Word,
}

impl Padding {
    /// The length of the put that carries `payload` bytes and their tail.
    pub const fn put_bytes(self, payload: usize) -> usize {
        match self {
            Self::Line => (payload + TAIL_BYTES).next_multiple_of(64),
            Self::Word => payload.next_multiple_of(8) + TAIL_BYTES,
        }
    }
}

/// The last bytes of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tail {
    /// Tokens given back.
    pub(super) token: u16,
    /// Bytes of the chunk; none if the slot only brings tokens.
    pub(super) payload: u16,
}

/// Why a tail makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TailError {
    /// The magic is none that the protocol has.
    #[error("a slot has the unknown magic {0:#010x}")]
    Magic(u32),
    /// The payload does not fit a slot.
    #[error("a slot of {slot} bytes announces {payload} bytes of payload")]
    Payload {
        /// Bytes announced.
        payload: u16,
        /// Size of the slot in bytes.
        slot: usize,
    },
}

impl Tail {
    /// The bytes of the tail, magic last.
    pub(super) fn encode(self) -> [u8; TAIL_BYTES] {
        let mut bytes = [0; TAIL_BYTES];
        bytes[..2].copy_from_slice(&self.token.to_le_bytes());
        bytes[2..4].copy_from_slice(&self.payload.to_le_bytes());
        bytes[4..].copy_from_slice(&FILLED.to_le_bytes());
        bytes
    }

    /// Reads the tail of a slot of `slot` bytes; `None` while nothing has arrived.
    ///
    /// # Errors
    /// [`TailError`] if the peer wrote nonsense.
    pub(super) fn decode(bytes: [u8; TAIL_BYTES], slot: usize) -> Result<Option<Self>, TailError> {
        let [t0, t1, p0, p1, magic @ ..] = bytes;
        match u32::from_le_bytes(magic) {
            UNUSED => return Ok(None),
            FILLED => {}
            other => return Err(TailError::Magic(other)),
        }
        let payload = u16::from_le_bytes([p0, p1]);
        if usize::from(payload) + TAIL_BYTES > slot {
            return Err(TailError::Payload { payload, slot });
        }
        Ok(Some(Self { token: u16::from_le_bytes([t0, t1]), payload }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marker_is_last_and_the_rest_survives() {
        let tail = Tail { token: 10, payload: 4088 };
        let bytes = tail.encode();
        assert_eq!(bytes[4..], FILLED.to_le_bytes());
        assert_eq!(Tail::decode(bytes, 4096), Ok(Some(tail)));
        assert_eq!(Tail::decode([9, 9, 9, 9, 0, 0, 0, 0], 4096), Ok(None));
    }

    #[test]
    fn nonsense_from_a_peer_is_an_error() {
        assert_eq!(Tail::decode([0, 0, 0, 0, 9, 0, 0, 0], 4096), Err(TailError::Magic(9)));
        let long = Tail { token: 0, payload: 4089 };
        let error = Tail::decode(long.encode(), 4096).unwrap_err();
        assert_eq!(error.to_string(), "a slot of 4096 bytes announces 4089 bytes of payload");
    }

    #[test]
    fn puts_are_padded_to_lines_or_by_at_most_seven_bytes() {
        let line = [0, 1, 56, 57, 4088].map(|payload| Padding::Line.put_bytes(payload));
        assert_eq!(line, [64, 64, 64, 128, 4096]);
        for payload in 0..=4088 {
            let padding = Padding::Word.put_bytes(payload) - payload - TAIL_BYTES;
            assert!(padding <= 7, "{padding} bytes of padding behind {payload}");
        }
        assert_eq!(Padding::Word.put_bytes(4088), 4096);
    }
}
