//! The twenty bytes in front of every message: eight of pscom, twelve of MPI.
//!
//! Source: sheet `extoll.md`: "Headers 8 + 12 = 20 B", the 12 being context, tag and rank.

use thiserror::Error;

/// Bytes of pscom's own header.
pub(super) const PSCOM_HEADER_BYTES: usize = 8;

/// Bytes of the MPI header.
pub(super) const MPI_HEADER_BYTES: usize = 12;

/// Bytes in front of every message.
pub const HEADER_BYTES: usize = PSCOM_HEADER_BYTES + MPI_HEADER_BYTES;

/// What a message is for pscom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A message with its data.
    Eager,
    /// A message whose data waits at the sender; its body says where.
    Rendezvous,
    /// The receiver has fetched the data.
    Fetched,
}

/// The MPI header: what a receive is matched with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Envelope {
    /// The communicator.
    pub context: u32,
    /// The tag.
    pub tag: u32,
    /// The sender's rank.
    pub source: u32,
}

/// Both headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// What the message is.
    pub(super) kind: Kind,
    /// Bytes that follow the headers in this message.
    pub(super) body: u32,
    /// The MPI header.
    pub(super) envelope: Envelope,
}

/// Why a header makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// A message begins with too few bytes.
    #[error("a message begins with {0} bytes, but its headers take {HEADER_BYTES}")]
    Short(usize),
    /// The MPI header has another length.
    #[error("an MPI header of {0} bytes, but it takes {MPI_HEADER_BYTES}")]
    MpiHeader(u16),
    /// The kind is unknown.
    #[error("a message of the unknown type {0}")]
    Kind(u8),
}

impl Header {
    /// The bytes of the header.
    pub(super) fn encode(self) -> [u8; HEADER_BYTES] {
        let kind = match self.kind {
            Kind::Eager => 0,
            Kind::Rendezvous => 4,
            Kind::Fetched => 5,
        };
        let mut bytes = [0; HEADER_BYTES];
        bytes[..2].copy_from_slice(&(MPI_HEADER_BYTES as u16).to_le_bytes());
        bytes[2] = kind;
        bytes[4..8].copy_from_slice(&self.body.to_le_bytes());
        let Envelope { context, tag, source } = self.envelope;
        for (field, value) in bytes[8..].chunks_exact_mut(4).zip([context, tag, source]) {
            field.copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    /// Reads the headers at the beginning of a message.
    ///
    /// # Errors
    /// [`HeaderError`] if the peer wrote nonsense.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, HeaderError> {
        let Some(bytes) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(HeaderError::Short(bytes.len()));
        };
        let mpi = u16::from_le_bytes([bytes[0], bytes[1]]);
        if usize::from(mpi) != MPI_HEADER_BYTES {
            return Err(HeaderError::MpiHeader(mpi));
        }
        let kind = match bytes[2] {
            0 => Kind::Eager,
            4 => Kind::Rendezvous,
            5 => Kind::Fetched,
            other => return Err(HeaderError::Kind(other)),
        };
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let envelope = Envelope { context: word(8), tag: word(12), source: word(16) };
        Ok(Self { kind, body: word(4), envelope })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_take_twenty_bytes_and_survive() {
        for kind in [Kind::Eager, Kind::Rendezvous, Kind::Fetched] {
            let envelope = Envelope { context: 3, tag: 0xdead_beef, source: 1023 };
            let header = Header { kind, body: 1 << 31, envelope };
            assert_eq!(header.encode().len(), 20);
            assert_eq!(Header::decode(&header.encode()), Ok(header));
        }
    }

    #[test]
    fn nonsense_from_a_peer_is_an_error() {
        let envelope = Envelope { context: 0, tag: 0, source: 0 };
        let good = Header { kind: Kind::Eager, body: 0, envelope }.encode();
        assert_eq!(Header::decode(&good[..19]), Err(HeaderError::Short(19)));
        let with = |at: usize, value| {
            let mut bytes = good;
            bytes[at] = value;
            Header::decode(&bytes)
        };
        assert_eq!(with(2, 9), Err(HeaderError::Kind(9)));
        assert_eq!(with(0, 13), Err(HeaderError::MpiHeader(13)));
    }
}
