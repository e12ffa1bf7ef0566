//! Reading what a peer's process lends, by `process_vm_readv`: the system copies from process to process.
//!
//! The system permits it where it permits debugging: among processes of one user unless Yama's `ptrace_scope` or a
//! filter of system calls forbids it. Each peer is asked about once. Its process is the one that joined: the
//! number that it wrote then, whose start time is compared, is not read again. A later process of the number has
//! no proof of a loan ([`Lent`]).
//!
//! The bytes have to be read before the proof is. On x86-64 one call reads both: the system copies the parts of a
//! call in their order, and lets go of the pages of one by an atomic operation, which orders all loads there,
//! before it takes those of the next; its documentation promises neither. On other processors such an operation
//! may order nothing, so that a second call reads the proof, behind an acquire fence.

use super::Shm;
use crate::job::status;
use crate::layout::endpoint;
use crate::watch::{UNKNOWN, started};
use am_core::Peer;
use am_core::transport::{Lent, LentFault, Membership};
use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::fence;

/// The processes of peers, or `None` where their memory cannot be read.
#[derive(Debug, Default)]
pub(super) struct Processes(BTreeMap<u32, Option<Pid>>);

/// Bytes of a proof.
const PROOF: usize = size_of::<u64>();

impl Shm {
    /// The process of a peer, if its memory can be read by this one.
    #[inline]
    pub(super) fn process_of(&mut self, peer: Peer) -> Option<Pid> {
        if self.is_fork() {
            return None;
        }
        match self.processes.0.get(&peer.0) {
            Some(process) => *process,
            None => self.find_process(peer),
        }
    }

    #[cold]
    fn find_process(&mut self, peer: Peer) -> Option<Pid> {
        // Acquire, in there: the identity is there with the status.
        if self.board.raw_status(peer.index()) != status::ACTIVE {
            return None;
        }
        let block = &self.board.endpoints[peer.index()];
        let (number, joined) = (block[endpoint::PID].load(Relaxed), block[endpoint::STARTED].load(Relaxed));
        let process = i32::try_from(number).ok().filter(|number| *number > 0).map(Pid::from_raw);
        let process = process.filter(|process| {
            let same = joined != UNKNOWN && started(process.as_raw() as u32) == Some(joined);
            same && is_readable(*process)
        });
        self.processes.0.insert(peer.0, process);
        process
    }

    pub(super) fn read_memory(&mut self, of: Peer, lent: &Lent, at: u64, out: &mut [u8]) -> Result<(), LentFault> {
        let process = self.process_of(of).ok_or(LentFault::Refused)?;
        let (mut proof, len) = ([0; PROOF], out.len());
        let address = |address: u64| usize::try_from(address).map_err(|_| LentFault::NoMemory);
        let base = address(lent.address.checked_add(at).ok_or(LentFault::NoMemory)?)?;
        let (bytes_at, proof_at) =
            (RemoteIoVec { base, len }, RemoteIoVec { base: address(lent.proof_at)?, len: PROOF });
        let (mut bytes_to, mut proof_to) = (IoSliceMut::new(out), IoSliceMut::new(&mut proof));
        let read = if cfg!(target_arch = "x86_64") {
            // In this order: the proof is read behind the bytes.
            process_vm_readv(process, &mut [bytes_to, proof_to], &[bytes_at, proof_at])
        } else {
            process_vm_readv(process, std::slice::from_mut(&mut bytes_to), &[bytes_at]).and_then(|read| {
                fence(Acquire);
                Ok(read + process_vm_readv(process, std::slice::from_mut(&mut proof_to), &[proof_at])?)
            })
        };
        match read {
            Ok(read) if read != len + PROOF => Err(LentFault::NoMemory),
            Ok(_) if u64::from_ne_bytes(proof) == lent.proof() => Ok(()),
            Ok(_) => Err(LentFault::Withdrawn),
            Err(error) => Err(self.note_fault(of, error)),
        }
    }

    /// What an error of the system means, and whether it is asked again about the peer.
    #[cold]
    fn note_fault(&mut self, of: Peer, error: Errno) -> LentFault {
        match error {
            Errno::EFAULT | Errno::EINVAL => LentFault::NoMemory,
            // It is gone, or what was permitted is not any more.
            Errno::ESRCH | Errno::EPERM | Errno::EACCES | Errno::ENOSYS => {
                self.processes.0.insert(of.0, None);
                LentFault::Refused
            }
            // As without memory for the call itself.
            _ => LentFault::Failed,
        }
    }
}

/// Whether the system permits this process to read another's memory: it looks at that before it looks for the
/// memory.
fn is_readable(process: Pid) -> bool {
    let mut byte = [0];
    let nowhere = RemoteIoVec { base: 1, len: 1 };
    matches!(process_vm_readv(process, &mut [IoSliceMut::new(&mut byte)], &[nowhere]), Ok(_) | Err(Errno::EFAULT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Job, JobConfig};
    use am_core::Transport;
    use am_core::transport::Lender;

    const OTHER: Peer = Peer(1);

    fn pair() -> (Job, Shm, Shm) {
        let job = Job::create(&JobConfig::new(2)).expect("memory is there");
        let [first, second] = [0, 1].map(|rank| job.join(rank).expect("it is free"));
        (job, first, second)
    }

    #[test]
    fn bytes_come_while_they_are_lent() {
        let (_job, mut reader, _lender) = pair();
        let (mut loans, bytes) = (Lender::new(1), (0..5000u32).map(|byte| byte as u8).collect::<Vec<_>>());
        let loan = loans.lend(&bytes).expect("there is a proof");
        assert!(reader.reads_lent(OTHER));
        let (lent, mut out) = (loan.lent(), vec![0; 4000]);
        assert_eq!(reader.read_lent(OTHER, &lent, 999, &mut out), Ok(()));
        assert!(out == bytes[999..4999]);
        assert_eq!(reader.read_lent(OTHER, &lent, 0, &mut []), Ok(()));
        drop(loan);
        assert_eq!(reader.read_lent(OTHER, &lent, 0, &mut out), Err(LentFault::Withdrawn));
        // The proof's place is used again: that is another loan.
        let again = loans.lend(&bytes).expect("there is a proof");
        assert_eq!(again.lent().proof_at, lent.proof_at);
        assert_eq!(reader.read_lent(OTHER, &lent, 0, &mut out), Err(LentFault::Withdrawn));
    }

    #[test]
    fn forged_addresses_are_errors() {
        let (_job, mut reader, _lender) = pair();
        let (mut loans, bytes, mut out) = (Lender::new(1), [7; 64], [0; 64]);
        let loan = loans.lend(&bytes).expect("there is a proof");
        let Lent { address, proof_at, ticket, .. } = loan.lent();
        let mut read = |address, proof_at, ticket, at| {
            reader.read_lent(OTHER, &Lent::new(address, proof_at, ticket), at, &mut out)
        };
        assert_eq!(read(address, proof_at, ticket, 0), Ok(()));
        for nowhere in [0, 1, u64::MAX - 100, u64::MAX, 1 << 63] {
            assert_eq!(read(nowhere, proof_at, ticket, 0), Err(LentFault::NoMemory));
            assert_eq!(read(address, nowhere, ticket, 0), Err(LentFault::NoMemory));
        }
        assert_eq!(read(address, proof_at, ticket, u64::MAX), Err(LentFault::NoMemory));
        assert_eq!(read(address, proof_at, ticket.wrapping_add(1), 0), Err(LentFault::Withdrawn));
        assert_eq!(read(address, address, ticket, 0), Err(LentFault::Withdrawn));
        // It is still a peer whose memory is read.
        assert_eq!(read(address, proof_at, ticket, 0), Ok(()));
    }

    #[test]
    fn errors_that_pass_close_no_way() {
        let (_job, mut reader, _lender) = pair();
        assert!(reader.reads_lent(OTHER));
        for (error, fault) in [(Errno::ENOMEM, LentFault::Failed), (Errno::EFAULT, LentFault::NoMemory)] {
            assert_eq!((reader.note_fault(OTHER, error), reader.reads_lent(OTHER)), (fault, true));
        }
        assert_eq!(
            (reader.note_fault(OTHER, Errno::EPERM), reader.reads_lent(OTHER)),
            (LentFault::Refused, false)
        );
    }

    #[test]
    fn processes_that_did_not_join_are_not_read() {
        let mut lender = Lender::new(1);
        let loan = lender.lend(&[7; 8]).expect("there is a proof");
        let denied = |number: u64, joined: u64| {
            let (job, mut reader, _lender) = pair();
            let block = &job.board.endpoints[OTHER.index()];
            block[endpoint::PID].store(number, Relaxed);
            block[endpoint::STARTED].store(joined, Relaxed);
            let outcome = reader.read_lent(OTHER, &loan.lent(), 0, &mut [0; 8]);
            !reader.reads_lent(OTHER) && outcome == Err(LentFault::Refused)
        };
        let me = std::process::id();
        let mine = started(me).expect("it runs");
        assert!(!denied(me.into(), mine));
        // Another process of the number, one of unknown age, none, and what is no number of a process.
        assert!(denied(me.into(), mine + 1) && denied(me.into(), UNKNOWN));
        assert!(denied(0, mine) && denied(u64::from(u32::MAX), mine) && denied(1 << 40 | u64::from(me), mine));
        let mut ended = std::process::Command::new("true").spawn().expect("there is a program to start");
        ended.wait().expect("it ends");
        assert!(denied(ended.id().into(), mine));
        // Nobody is asked before having joined, nor for good.
        let job = Job::create(&JobConfig::new(2)).expect("memory is there");
        let mut reader = job.join(0).expect("it is free");
        assert!(!reader.reads_lent(OTHER));
        let _lender = job.join(1).expect("it is free");
        assert!(reader.reads_lent(OTHER));
    }
}
