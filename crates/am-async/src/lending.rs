//! Long requests and answers that their receiver reads in the memory of the sender's process, where the transport
//! offers that ([`Lent`]): one copy, instead of two for each part.
//!
//! The announcement says where the bytes lie, and they stay there until the call has ended, or its answer has been
//! fetched. A receiver that can not read them after all asks for parts, as without a loan. One-way requests are
//! not lent: nobody tells when they have been read.

use am_core::transport::Lent;

/// Requests, and answers, that are lent at once at most; further ones are sent in parts.
pub(crate) const LOANS: usize = 64;

/// Bytes of each message that are read between two looks at the network.
pub(crate) const PIECE: usize = 256 << 10;

/// Bytes that say where.
const WORDS: usize = 20;

/// What an announcement carries.
pub(crate) fn to_bytes(lent: Lent) -> [u8; WORDS] {
    let mut bytes = [0; WORDS];
    bytes[..8].copy_from_slice(&lent.address.to_le_bytes());
    bytes[8..16].copy_from_slice(&lent.proof_at.to_le_bytes());
    bytes[16..].copy_from_slice(&lent.ticket.to_le_bytes());
    bytes
}

/// What an announcement says, if it says where.
pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Lent> {
    let (address, rest) = bytes.split_first_chunk::<8>()?;
    let (proof_at, ticket) = rest.split_first_chunk::<8>()?;
    let ticket = u32::from_le_bytes(ticket.try_into().ok()?);
    Some(Lent::new(u64::from_le_bytes(*address), u64::from_le_bytes(*proof_at), ticket))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements_survive() {
        let lent = Lent::new(u64::MAX - 7, 1 << 40, 9);
        assert_eq!(from_bytes(&to_bytes(lent)), Some(lent));
        for len in [0, 8, 16, 19] {
            assert_eq!(from_bytes(&to_bytes(lent)[..len]), None);
        }
        assert_eq!(from_bytes(&[0; 21]), None);
    }
}
