//! Raw baselines of blocks that go to and fro between the private memory of two processes, as fast as hand-written
//! programs pass them on this host: what a two-sided message can reach at best, where `memcpy` copies within one
//! process and its caches.

use std::hint::black_box;
use std::io::IoSliceMut;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

use super::raw::{Arena, BULK, BULK_BYTES, PING, wait};

/// How a block gets into the other's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Pass {
    /// The sender's block is in the mapping; the receiver copies it out.
    Mapped,
    /// The receiver has the system copy it from the sender's private memory.
    System,
    /// The sender copies it into the mapping in parts, and the receiver copies each out meanwhile.
    Twice,
}

/// Bytes of a part at least, and at most.
const PARTS: (usize, usize) = (8 << 10, 64 << 10);

impl Arena {
    /// A block of rank 0 to rank 1 and one of rank 1 to rank 0; both stay as they are.
    pub(super) fn pass(&self, bytes: usize, pass: Pass, trips: u64) -> Duration {
        let given = |rank: usize| BULK + rank * BULK_BYTES / 2;
        assert!(bytes <= BULK_BYTES / 2, "{bytes} bytes of each rank");
        let (own, mut target) = (vec![0x5a_u8; bytes], vec![0_u8; bytes]);
        let lines = self.memory.lines(PING, 32);
        let (mine, theirs) = (&lines[8 * self.rank].0, &lines[8 - 8 * self.rank].0);
        // A word for the counts, and one that says where the block lies and of which process.
        let place = |rank: usize| &lines[16 + 8 * rank].0;
        place(self.rank)[0].store(own.as_ptr() as u64, Relaxed);
        place(self.rank)[1].store(u64::from(std::process::id()), Release);
        wait(|| place(1 - self.rank)[1].load(Acquire) != 0);
        let [base, process] = [0, 1].map(|word| place(1 - self.rank)[word].load(Relaxed));
        let (process, remote) = (Pid::from_raw(process as i32), [RemoteIoVec { base: base as usize, len: bytes }]);
        let part = (bytes / 8).clamp(PARTS.0, PARTS.1);
        let parts = bytes.div_ceil(part) as u64;
        let start = Instant::now();
        for half in 0..2 * trips {
            let (sends, before) = ((half % 2 == 0) == (self.rank == 0), half * parts);
            match (pass, sends) {
                (Pass::Mapped | Pass::System, true) => mine[0].store(before + parts, Release),
                (Pass::Mapped, false) => {
                    wait(|| theirs[0].load(Acquire) == before + parts);
                    self.memory.copy_out(given(1 - self.rank), &mut target);
                }
                (Pass::System, false) => {
                    wait(|| theirs[0].load(Acquire) == before + parts);
                    let read = process_vm_readv(process, &mut [IoSliceMut::new(&mut target)], &remote);
                    assert_eq!(read, Ok(bytes), "the system copies between processes");
                }
                (Pass::Twice, true) => {
                    for (index, piece) in own.chunks(part).enumerate() {
                        self.memory.copy_in(given(self.rank) + index * part, piece);
                        mine[0].store(before + index as u64 + 1, Release);
                    }
                }
                (Pass::Twice, false) => {
                    for (index, piece) in target.chunks_mut(part).enumerate() {
                        wait(|| theirs[0].load(Acquire) > before + index as u64);
                        self.memory.copy_out(given(1 - self.rank) + index * part, piece);
                    }
                }
            }
            black_box(&mut target);
        }
        // Until the other has read the last block.
        mine[1].store(1, Release);
        wait(|| theirs[1].load(Acquire) == 1);
        start.elapsed()
    }
}
