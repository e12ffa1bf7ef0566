//! Memory that a process lends to its peers, which read it themselves: a long message between processes of one
//! host takes one copy then.
//!
//! An optional part of the contract: [`Transport::reads_lent`](super::Transport::reads_lent) tells whether a
//! peer's memory can be read, [`Transport::read_lent`](super::Transport::read_lent) reads it. A reader learns of
//! the memory by a message of its peer, so that what the message says is checked: a wrong address is an error of
//! the read. The lender does not know when its memory is being read, and may need it back before a reader says
//! that it is done, as after a time-out. So beside the bytes lies a word, the *proof*, which changes before the
//! loan ends: bytes that were read before a look at an unchanged proof are those that were lent. Loans of all
//! lenders of a process have different proofs, counted from a number that each process draws, so that the same
//! word tells one lender from another and the lender's process from a later one of the same number.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};
use std::sync::{Arc, OnceLock};

/// Where bytes lie that a process lends, in that process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Lent {
    /// The address of the first byte.
    pub address: u64,
    /// The address of the proof, a 64-bit word.
    pub proof_at: u64,
    /// Tells this loan from others of its process.
    pub ticket: u32,
}

impl Lent {
    /// What a message of the lender names.
    pub const fn new(address: u64, proof_at: u64, ticket: u32) -> Self {
        Self { address, proof_at, ticket }
    }

    /// The proof for as long as the bytes are lent.
    pub const fn proof(&self) -> u64 {
        // Neither zero nor what other memory holds by chance.
        (((self.ticket as u64) << 1) | 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// Why lent memory was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum LentFault {
    /// This process cannot read that of the peer: the transport has no way to, the system does not permit it, or
    /// the peer is gone.
    #[error("the peer's memory cannot be read by this process")]
    Refused,
    /// The system could not do it this time, as without memory for it.
    #[error("the system could not read the peer's memory this time")]
    Failed,
    /// There is no such memory.
    #[error("the peer's process has no memory where it said that it lends some")]
    NoMemory,
    /// The loan ended before the bytes were read.
    #[error("the peer has taken back the memory that it lent")]
    Withdrawn,
}

/// Lends memory of this process. Has a fixed number of proofs, so that lending does not allocate.
#[derive(Debug)]
pub struct Lender {
    /// Zero where nothing is lent.
    proofs: Arc<[AtomicU64]>,
    next: usize,
}

/// The ticket of this process's next loan.
fn next_ticket() -> u32 {
    static NEXT: OnceLock<AtomicU32> = OnceLock::new();
    // A later process of this one's number that lends at the same addresses is not to count the same.
    let next = NEXT.get_or_init(|| AtomicU32::new(RandomState::new().hash_one(()) as u32));
    // Relaxed: tickets only have to differ.
    next.fetch_add(1, Relaxed)
}

impl Lender {
    /// For at most `most` loans at once. Allocates.
    pub fn new(most: usize) -> Self {
        Self { proofs: (0..most).map(|_| AtomicU64::new(0)).collect(), next: 0 }
    }

    /// Lends bytes for as long as the loan lives: whoever drops it before the bytes change or are freed, also
    /// while unwinding, has no reader take others for them. `None` where there are as many loans as there can be.
    /// Does not allocate.
    pub fn lend(&mut self, bytes: &[u8]) -> Option<Loan> {
        let places = (0..self.proofs.len()).map(|place| (self.next + place) % self.proofs.len());
        // Relaxed: a place that is found free was freed by this thread, or is seen as free later.
        let place = places.into_iter().find(|place| self.proofs[*place].load(Relaxed) == 0)?;
        self.next = place + 1;
        let proof = &self.proofs[place];
        let address = |pointer: *const u8| pointer.expose_provenance() as u64;
        let lent = Lent::new(address(bytes.as_ptr()), address(proof.as_ptr().cast()), next_ticket());
        // Readers learn of it by a message.
        proof.store(lent.proof(), SeqCst);
        Some(Loan { proofs: Arc::clone(&self.proofs), place, lent })
    }
}

/// Memory that is lent; ends when dropped.
#[must_use = "what is lent is so while the loan lives"]
pub struct Loan {
    proofs: Arc<[AtomicU64]>,
    place: usize,
    lent: Lent,
}

impl Loan {
    /// What the message to its reader says.
    pub fn lent(&self) -> Lent {
        self.lent
    }
}

impl fmt::Debug for Loan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Loan").field(&self.lent).finish()
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.proofs[self.place].store(0, SeqCst);
        // What the caller then writes to the bytes comes behind the store: a reader that sees it looks at the
        // proof later.
        fence(SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loans_end_and_differ() {
        let (mut lender, bytes) = (Lender::new(2), [1, 2, 3]);
        let proofs = Arc::clone(&lender.proofs);
        let all = || [proofs[0].load(SeqCst), proofs[1].load(SeqCst)];
        let (first, second) = (lender.lend(&bytes).unwrap(), lender.lend(&bytes).unwrap());
        assert_eq!(all(), [first.lent().proof(), second.lent().proof()]);
        assert_ne!(all()[0], all()[1]);
        assert!(lender.lend(&bytes).is_none(), "there are two proofs");
        let earlier = first.lent();
        drop(first);
        assert_eq!(all()[0], 0);
        let third = lender.lend(&bytes).unwrap();
        assert_eq!((third.lent().proof_at, third.lent().address), (earlier.proof_at, earlier.address));
        assert_ne!(third.lent().proof(), earlier.proof());
        assert!(Lender::new(0).lend(&bytes).is_none());
    }

    #[test]
    fn lenders_have_no_proof_in_common() {
        let loans = |_| {
            let mut lender = Lender::new(3);
            let loans: Vec<_> = (0..3).map_while(|_| lender.lend(&[7])).collect();
            loans.iter().map(|loan| loan.lent().proof()).collect::<Vec<_>>()
        };
        let mut proofs: Vec<u64> = (0..3).flat_map(loans).collect();
        proofs.sort_unstable();
        proofs.dedup();
        assert_eq!(proofs.len(), 9);
    }
}
