//! Writing to the segment of a peer on the same host, by `process_vm_writev`: the system copies from process to
//! process, and is done when the call returns.
//!
//! The system permits it where it permits debugging: among processes of one user unless Yama's `ptrace_scope` or a
//! filter of system calls forbids it. A process is told by a word of its memory ([`Mark`]), which is read before
//! each copy, with the address of its segment beside it: another process that has its number by now, or the same
//! number elsewhere, does not have it, nor does one that has closed the endpoint. What others say of a process can
//! so not have its memory written outside of the segment. The memory of a segment whose endpoint has ended without
//! the word of all peers is never freed, so that a copy under way changes nothing else. A process that ends, or
//! runs another program (`exec`), between the two calls is not told from what follows it.

use crate::memory::Region;
use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::Ordering::Relaxed;

/// A word of this process that has a number of its own, for as long as the endpoint is open, and behind it the
/// address of the endpoint's segment. Both are zero in forks.
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
}

impl Mark {
    /// That of an endpoint whose segment begins there.
    pub(crate) fn new(segment_at: u64) -> io::Result<Self> {
        let region = Region::new(size_of::<[u64; 2]>())?;
        let number = getrandom::u64().unwrap_or_default();
        // Relaxed: who reads them has heard of them by other ways, later.
        region.words()[1].store(segment_at, Relaxed);
        region.words()[0].store(number, Relaxed);
        Ok(Self { region, number })
    }

    /// What others need to write to the segment.
    pub(crate) fn neighbour(&self) -> Neighbour {
        if self.number == 0 {
            return Neighbour::default();
        }
        let mark_at = self.region.start() as u64;
        Neighbour { process: std::process::id(), mark_at, mark: self.number }
    }
}

impl Neighbour {
    pub(crate) fn is_some(&self) -> bool {
        self.process != 0
    }

    /// Copies bytes to byte `at` of the segment. Whether all are there.
    pub(crate) fn write(&self, at: u64, bytes: &[u8]) -> bool {
        let process = i32::try_from(self.process).ok().filter(|process| *process > 0).map(Pid::from_raw);
        let (Ok(mark_at), Some(process)) = (usize::try_from(self.mark_at), process) else { return false };
        let mut words = [0; size_of::<[u64; 2]>()];
        let place = RemoteIoVec { base: mark_at, len: words.len() };
        if process_vm_readv(process, &mut [IoSliceMut::new(&mut words)], &[place]) != Ok(words.len()) {
            return false;
        }
        let [mark, segment_at] = [0, 1].map(|word| words.as_chunks().0[word]).map(u64::from_ne_bytes);
        let base = segment_at.checked_add(at).and_then(|base| usize::try_from(base).ok());
        let Some(base) = base.filter(|_| mark == self.mark) else { return false };
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
        let segment = Region::new(64).unwrap();
        let mark = Mark::new(segment.start() as u64).unwrap();
        let own = mark.neighbour();
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
        ];
        assert!(strangers.iter().all(|stranger| !stranger.write(8, &[9; 16])));
        assert!(!own.write(u64::MAX, &[9; 16]));
        assert_eq!(words(1), [7; 8]);
        drop(mark);
        assert!(!own.write(8, &[9; 16]), "the endpoint is closed");
    }
}
