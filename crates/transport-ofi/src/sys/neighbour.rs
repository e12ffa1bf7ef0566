//! Writing to the segment of a peer on the same host, by `process_vm_writev`: the system copies from process to
//! process, and is done when the call returns.
//!
//! The system permits it where it permits debugging: among processes of one user unless Yama's `ptrace_scope` or a
//! filter of system calls forbids it. A process is told by a word of its memory ([`Mark`]), which is read before
//! each copy: another process that has its number by now, or the same number elsewhere, does not have it, nor does
//! one that has closed the endpoint. The memory of a segment whose endpoint has ended without the word of all
//! peers is never freed, so that a copy under way changes nothing else. A process that runs another program
//! (`exec`) between the two calls is not told from the one before.

use crate::memory::Region;
use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::Ordering::Relaxed;

/// A word of this process that has a number of its own, for as long as the endpoint is open. It is zero in forks.
pub(crate) struct Mark {
    region: Region,
    number: u64,
}

/// What others need to write to a segment of a process; all zero where there is no way.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Neighbour {
    /// The number of the process.
    pub(crate) process: u32,
    /// Where its mark is, and what stands there.
    pub(crate) mark_at: u64,
    pub(crate) mark: u64,
    /// Where its segment begins.
    pub(crate) segment_at: u64,
}

impl Mark {
    pub(crate) fn new() -> io::Result<Self> {
        let region = Region::new(size_of::<u64>())?;
        let number = getrandom::u64().unwrap_or_default();
        // Relaxed: who reads it has heard of it by other ways, later.
        region.words()[0].store(number, Relaxed);
        Ok(Self { region, number })
    }

    /// What others need to write to a segment of this process that begins there.
    pub(crate) fn of_segment(&self, segment_at: u64) -> Neighbour {
        if self.number == 0 {
            return Neighbour::default();
        }
        let mark_at = self.region.start() as u64;
        Neighbour { process: std::process::id(), mark_at, mark: self.number, segment_at }
    }
}

impl Neighbour {
    pub(crate) fn is_some(&self) -> bool {
        self.process != 0
    }

    /// Copies bytes to byte `at` of the segment. Whether all are there.
    pub(crate) fn write(&self, at: u64, bytes: &[u8]) -> bool {
        let address = |address: Option<u64>| address.and_then(|address| usize::try_from(address).ok());
        let (mark_at, base) = (address(Some(self.mark_at)), address(self.segment_at.checked_add(at)));
        let process = i32::try_from(self.process).ok().filter(|process| *process > 0).map(Pid::from_raw);
        let (Some(mark_at), Some(base), Some(process)) = (mark_at, base, process) else { return false };
        let mut mark = [0; size_of::<u64>()];
        let place = RemoteIoVec { base: mark_at, len: mark.len() };
        let read = process_vm_readv(process, &mut [IoSliceMut::new(&mut mark)], &[place]);
        if read != Ok(mark.len()) || u64::from_ne_bytes(mark) != self.mark {
            return false;
        }
        let place = RemoteIoVec { base, len: bytes.len() };
        process_vm_writev(process, &[IoSlice::new(bytes)], &[place]) == Ok(bytes.len())
    }
}

impl fmt::Debug for Neighbour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Neighbour").field("process", &self.process).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_marked_process_is_written_to() {
        let (mark, segment) = (Mark::new().unwrap(), Region::new(64).unwrap());
        let own = mark.of_segment(segment.start() as u64);
        if !own.write(8, &[7; 16]) {
            return println!("the system does not copy between processes here");
        }
        let words = |first: usize| segment.words()[first].load(Relaxed).to_ne_bytes();
        assert_eq!([0, 1, 2, 3].map(words), [[0; 8], [7; 8], [7; 8], [0; 8]]);
        let strangers = [
            Neighbour::default(),
            Neighbour { mark: own.mark ^ 1, ..own },
            Neighbour { mark_at: 8, ..own },
            Neighbour { process: u32::MAX, ..own },
            Neighbour { segment_at: u64::MAX, ..own },
        ];
        assert!(strangers.iter().all(|stranger| !stranger.write(8, &[9; 16])));
        assert_eq!(words(1), [7; 8]);
        drop(mark);
        assert!(!own.write(8, &[9; 16]), "the endpoint is closed");
    }
}
