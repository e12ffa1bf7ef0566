//! Lent memory that is read together with its lender: both processes copy parts of it at the same time, the reader
//! from the front by `process_vm_readv`, the lender from the back by `process_vm_writev`.
//!
//! Parts are taken by exchanges of one word of the reader's ([`share::CLAIM`]), which is zero outside the call: the
//! lender writes to the reader's memory only what it has taken before, so that nobody does once the reader has
//! closed the word and the parts that were taken are there. For these it waits: they take the lender a call of the
//! system. Where they do not come, the proof of the loan tells whether the lender still is in the call that lends,
//! and so alive; a lender that is not has nothing under way, and the reader reads those parts, too.

use super::Shm;
use crate::layout::share;
use crate::region::View;
use crate::sync::{Acquire, AtomicU64, Relaxed, Release, fence};
use am_core::Peer;
use am_core::transport::{Lent, LentFault, Waiting};
use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::atomic::Ordering::AcqRel;

/// The fewest bytes that are read together, and about those of a part: a call of the system takes as long as copying
/// some 10 KiB.
const LEAST: usize = 64 << 10;
const PART: usize = 32 << 10;

/// Parts of one read at most.
const PARTS: usize = 8;

/// Bytes that the first part, which the reader takes, has more than others: the lender sets out later.
const LEAD: usize = 16 << 10;

/// Looks at what the lender has copied before the reader lets others run, and between two questions whether the
/// lender is there.
const LOOKS: u32 = 1 << 12;

/// In [`share::COPIED`]: the lender could not copy a part.
const FAILED: u64 = 1 << 31;

/// Which parts are taken: those before `front` by the reader, those from `back` on by the lender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Claim {
    /// Tells a read from those before it; never zero.
    number: u32,
    front: u16,
    back: u16,
}

impl Claim {
    fn word(self) -> u64 {
        u64::from(self.number) << 32 | u64::from(self.front) << 16 | u64::from(self.back)
    }

    fn of(word: u64) -> Self {
        Self { number: (word >> 32) as u32, front: (word >> 16) as u16, back: word as u16 }
    }

    /// Takes a part, which `step` chooses, of a read that still is the one with this number.
    fn take(claim: &AtomicU64, number: u32, step: impl Fn(&mut Self) -> u16) -> Option<usize> {
        let mut taken = 0;
        let next = |word| {
            let mut now = Self::of(word);
            let open = now.number == number && now.front < now.back;
            open.then(|| {
                taken = step(&mut now);
                now.word()
            })
        };
        // AcqRel: pairs with itself at the other side, so that what is said of a read is said before parts of it
        // are taken, and not changed before the read has been closed.
        claim.fetch_update(AcqRel, Acquire, next).ok().map(|_| usize::from(taken))
    }
}

/// The bytes of a part.
fn part_of(index: usize, part: usize, len: usize) -> Range<usize> {
    let behind = |parts: usize| parts.saturating_mul(part).saturating_add(LEAD);
    let start = if index == 0 { 0 } else { behind(index) };
    start..len.min(behind(index + 1))
}

impl Shm {
    /// See [`am_core::Transport::read_lent_together`].
    pub(super) fn read_together(
        &mut self,
        of: Peer,
        lent: &Lent,
        at: u64,
        out: &mut [u8],
    ) -> Result<(), LentFault> {
        let alone = out.len() < LEAST || !self.spins() || of == self.me;
        let Some(process) = self.process_of(of).filter(|_| !alone) else {
            return self.read_memory(of, lent, at, out);
        };
        self.shared_reads = self.shared_reads.wrapping_add(1).max(1);
        let number = self.shared_reads;
        let (even, parts) = (out.len() - LEAD, (out.len() / PART).min(PARTS));
        let part = even.div_ceil(parts).next_multiple_of(4096);
        let count = even.div_ceil(part) as u16;
        let words = self.board.shares[self.me.index()].clone();
        let said = [
            (share::LENDER, u64::from(of.0)),
            (share::TICKET, lent.ticket.into()),
            (share::FROM, at),
            (share::LEN, out.len() as u64),
            (share::PART, part as u64),
            (share::ROOM, out.as_mut_ptr().expose_provenance() as u64),
            (share::COPIED, u64::from(number) << 32),
        ];
        // Relaxed: the store below makes them visible.
        said.into_iter().for_each(|(word, value)| words[word].store(value, Relaxed));
        // Release: pairs with the Acquire loads in `help` and `Claim::take`.
        words[share::CLAIM].store(Claim { number, front: 0, back: count }.word(), Release);
        let (mut read, mut front) = (Ok(()), 0);
        while read.is_ok()
            && let Some(index) = Claim::take(&words[share::CLAIM], number, |claim| {
                claim.front += 1;
                claim.front - 1
            })
        {
            front = index + 1;
            let bytes = part_of(index, part, out.len());
            read = self.read_memory(of, lent, at.saturating_add(bytes.start as u64), &mut out[bytes]);
        }
        // AcqRel: as in `Claim::take`. From here on nobody takes a part.
        let last = Claim::of(words[share::CLAIM].swap(0, AcqRel));
        // A peer of sound mind leaves all but the last part taken alone.
        let theirs = if last.number == number { usize::from(last.back).clamp(front, count.into()) } else { front };
        let copied = await_copies(process, lent, &words, number, usize::from(count) - theirs);
        read?;
        let rest = if copied { front..theirs } else { front..count.into() };
        rest.into_iter().try_for_each(|index| {
            let bytes = part_of(index, part, out.len());
            self.read_memory(of, lent, at.saturating_add(bytes.start as u64), &mut out[bytes])
        })
    }

    /// See [`am_core::Transport::help_reader`].
    #[inline]
    pub(super) fn help(&mut self, reader: Peer, lent: &Lent, bytes: &[u8]) -> bool {
        // Acquire: pairs with the Release in `read_together`.
        let word = self.board.shares[reader.index()][share::CLAIM].load(Acquire);
        word != 0 && self.copy_parts(reader, lent, bytes, Claim::of(word).number)
    }

    #[inline(never)]
    fn copy_parts(&mut self, reader: Peer, lent: &Lent, bytes: &[u8], number: u32) -> bool {
        let words = self.board.shares[reader.index()].clone();
        // Relaxed: what was said before the word that was found; of another read, no part is taken below.
        let said = |word: usize| usize::try_from(words[word].load(Relaxed)).ok();
        let mine =
            said(share::LENDER) == Some(self.me.index()) && said(share::TICKET) == Some(lent.ticket as usize);
        let (Some(from), Some(len), Some(part), Some(room)) =
            (said(share::FROM), said(share::LEN), said(share::PART), said(share::ROOM))
        else {
            return false;
        };
        let within =
            from.checked_add(len).is_some_and(|end| end <= bytes.len()) && room.checked_add(len).is_some();
        if !mine || !within || part == 0 {
            return false;
        }
        let (Some(process), source) = (self.process_of(reader), &bytes[from..from + len]) else { return false };
        let mut parts = 0;
        while let Some(index) = Claim::take(&words[share::CLAIM], number, |claim| {
            claim.back -= 1;
            claim.back
        }) {
            parts += 1;
            let inside = index.checked_mul(part).is_some_and(|start| start < len.saturating_sub(LEAD));
            let range = if inside { part_of(index, part, len) } else { 0..0 };
            let to = RemoteIoVec { base: room + range.start, len: range.len() };
            let written = process_vm_writev(process, &[IoSlice::new(&source[range.clone()])], &[to]);
            // Release: pairs with the Acquire in `await_copies`.
            if !inside || written != Ok(range.len()) {
                words[share::COPIED].store(u64::from(number) << 32 | FAILED, Release);
                return true;
            }
            words[share::COPIED].store(u64::from(number) << 32 | parts, Release);
        }
        parts != 0
    }
}

/// Waits until the lender has copied the parts that it has taken, or does not any more. Whether it has.
fn await_copies(process: Pid, lent: &Lent, words: &View<AtomicU64>, number: u32, parts: usize) -> bool {
    let (all, failed) = (u64::from(number) << 32 | parts as u64, u64::from(number) << 32 | FAILED);
    let mut looks = 0u32;
    loop {
        // Acquire: pairs with the Release in `help`; the bytes are there.
        let copied = words[share::COPIED].load(Acquire);
        if copied == all || copied == failed {
            return copied == all;
        }
        looks = looks.wrapping_add(1);
        if looks.is_multiple_of(LOOKS) {
            if !still_lends(process, lent) {
                return words[share::COPIED].load(Acquire) == all;
            }
            std::thread::yield_now();
        }
        std::hint::spin_loop();
    }
}

/// Whether the lender may still be in the call that lends: not where it has another proof, other memory, or none, as
/// processes that have ended.
fn still_lends(process: Pid, lent: &Lent) -> bool {
    let mut proof = [0; size_of::<u64>()];
    let Ok(base) = usize::try_from(lent.proof_at) else { return false };
    let at = RemoteIoVec { base, len: proof.len() };
    let read = process_vm_readv(process, &mut [IoSliceMut::new(&mut proof)], &[at]);
    // What the lender has said before it changed the proof is seen from here on.
    fence(Acquire);
    match read {
        Ok(_) => u64::from_ne_bytes(proof) == lent.proof(),
        Err(Errno::ESRCH | Errno::EFAULT) => false,
        // As without memory for the question, or the permission to ask.
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Job, JobConfig};
    use am_core::Transport;
    use am_core::transport::{Lender, Loan};
    use std::sync::atomic::AtomicBool;

    const LEN: usize = 300_000;

    fn pair() -> (Job, Shm, Shm) {
        let job = Job::create(&JobConfig::new(2)).expect("memory is there");
        let [first, second] = [0, 1].map(|rank| job.join(rank).expect("it is free"));
        (job, first, second)
    }

    fn bytes() -> Vec<u8> {
        (0..LEN as u32).map(|byte| (byte * 7 + byte / 251) as u8).collect()
    }

    /// A read beside what a lender does; the outcome and the bytes.
    fn read(
        reader: &mut Shm,
        loan: &Loan,
        at: usize,
        lender: impl FnOnce(&AtomicBool) + Send,
    ) -> (Result<(), LentFault>, Vec<u8>) {
        let (over, lent, mut out) = (AtomicBool::new(false), loan.lent(), vec![0; LEN - at]);
        let outcome = std::thread::scope(|threads| {
            threads.spawn(|| lender(&over));
            let outcome = reader.read_lent_together(Peer(1), &lent, at as u64, &mut out);
            over.store(true, Relaxed);
            outcome
        });
        (outcome, out)
    }

    #[test]
    fn both_copy_parts() {
        let (_job, mut reader, mut lender) = pair();
        let (mut loans, bytes) = (Lender::new(1), bytes());
        let loan = loans.lend(&bytes).expect("there is a proof");
        let (mut helped, lent) = (0, loan.lent());
        for at in (0..60).map(|turn| turn * 317) {
            let (outcome, out) = read(&mut reader, &loan, at, |over| {
                while !over.load(Relaxed) {
                    helped += u32::from(lender.help_reader(Peer(0), &lent, &bytes));
                    std::thread::yield_now();
                }
            });
            assert_eq!(outcome, Ok(()));
            assert!(out == bytes[at..], "from {at}");
        }
        assert!(!lender.help_reader(Peer(0), &lent, &bytes), "nobody reads");
        // How often is for the system to say.
        assert!(helped <= 60);
    }

    /// What the lender has taken and does not copy is read by the reader once the lender says so, or is gone.
    #[test]
    fn parts_that_do_not_come_are_read() {
        for goes in [false, true] {
            let (job, mut reader, _lender) = pair();
            let (mut loans, bytes) = (Lender::new(1), bytes());
            let (mut loan, words) = (loans.lend(&bytes), &job.board.shares[0]);
            let (lent, mut out) = (loan.as_ref().expect("there is a proof").lent(), vec![0; LEN]);
            let outcome = std::thread::scope(|threads| {
                let lender = threads.spawn(|| {
                    // Until a part is to be had, or none was.
                    let part = (0..1_000_000).find_map(|_| {
                        std::hint::spin_loop();
                        let number = Claim::of(words[share::CLAIM].load(Acquire)).number;
                        let taken = Claim::take(&words[share::CLAIM], number, |claim| {
                            claim.back -= 1;
                            claim.back
                        });
                        taken.map(|_| number)
                    });
                    if goes {
                        loan = None;
                    } else if let Some(number) = part {
                        words[share::COPIED].store(u64::from(number) << 32 | FAILED, Release);
                    }
                });
                let outcome = reader.read_lent_together(Peer(1), &lent, 0, &mut out);
                lender.join().expect("it does not fail");
                outcome
            });
            // A loan may end before a part is taken, too.
            assert!(
                outcome == Ok(()) && out == bytes || goes && outcome == Err(LentFault::Withdrawn),
                "{outcome:?}"
            );
        }
    }

    /// Whatever a faulty peer says, reads end, and lenders copy no bytes but those of the loan.
    #[test]
    fn words_of_others_are_checked() {
        let (job, mut reader, mut lender) = pair();
        let (mut loans, bytes) = (Lender::new(1), bytes());
        let loan = loans.lend(&bytes).expect("there is a proof");
        let (lent, words) = (loan.lent(), job.board.shares[0].clone());
        let mut room = vec![0u8; LEN];
        let right =
            [0, 1, u64::from(lent.ticket), 0, LEN as u64, 1 << 16, room.as_mut_ptr().expose_provenance() as u64];
        for (word, wrong) in
            [(1, 0), (2, u64::from(lent.ticket) + 1), (3, 1), (3, u64::MAX), (4, u64::MAX), (5, 0)]
        {
            right.iter().enumerate().for_each(|(word, value)| words[word].store(*value, Relaxed));
            words[word].store(wrong, Relaxed);
            words[share::CLAIM].store(Claim { number: 9, front: 0, back: 5 }.word(), Release);
            assert!(!lender.help_reader(Peer(0), &lent, &bytes), "word {word}");
        }
        right.iter().enumerate().for_each(|(word, value)| words[word].store(*value, Relaxed));
        for (claim, room) in [((0, 9), right[6]), ((0, 5), 1)] {
            words[share::ROOM].store(room, Relaxed);
            words[share::CLAIM].store(Claim { number: 9, front: claim.0, back: claim.1 }.word(), Release);
            assert!(lender.help_reader(Peer(0), &lent, &bytes));
            assert_eq!(words[share::COPIED].load(Relaxed), 9 << 32 | FAILED);
        }
        // A word that changes while the read is under way.
        let (outcome, out) = read(&mut reader, &loan, 0, |over| {
            for word in 0u64.. {
                if over.load(Relaxed) {
                    break;
                }
                words[share::CLAIM].store(word << 32 | 8, Relaxed);
            }
        });
        assert_eq!(outcome, Ok(()));
        assert!(out == bytes);
    }
}
