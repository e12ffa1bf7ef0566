//! Ping-pongs of eventfds between two processes that both sleep before each round trip: what a call on tokio
//! between two sleeping ranks can cost at least, without a runtime and in one of the same kind.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use nix::sys::eventfd::{EfdFlags, EventFd};
use serde::{Deserialize, Serialize};
use tokio::io::unix::AsyncFd;

use super::mapping::inherited;
use super::tokio_calls::{pause, runtime};

/// What is measured between two processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum BellTask {
    /// Each side reads its descriptor, which blocks.
    Blocking,
    /// Each side waits for its descriptor on a runtime of one thread.
    Tokio,
}

/// The descriptors of both sides: those that block, and those for a runtime.
pub(crate) struct Bells {
    all: [OwnedFd; 4],
}

impl Bells {
    /// Makes them, for children to inherit.
    pub(crate) fn create() -> Self {
        let make = |place| {
            let flags = if place < 2 { EfdFlags::empty() } else { EfdFlags::EFD_NONBLOCK };
            EventFd::from_value_and_flags(0, flags).expect("the system has descriptors").into()
        };
        Self { all: std::array::from_fn(make) }
    }

    /// Their numbers.
    pub(crate) fn numbers(&self) -> [RawFd; 4] {
        self.all.each_ref().map(AsRawFd::as_raw_fd)
    }

    /// Those that this process has inherited.
    pub(crate) fn open(numbers: [RawFd; 4]) -> Self {
        Self { all: numbers.map(inherited) }
    }

    /// Does the part of rank 0 or 1; the time of the round trips alone.
    pub(crate) fn perform(&self, rank: usize, task: BellTask, rounds: u64) -> Duration {
        let first = if task == BellTask::Blocking { 0 } else { 2 };
        let (mine, other) = (&self.all[first + rank], &self.all[first + 1 - rank]);
        let ring = || nix::unistd::write(other, &1u64.to_ne_bytes()).expect("the other reads");
        let hear = || nix::unistd::read(mine, &mut [0; 8]);
        let (mut took, leads) = (Duration::ZERO, rank == 0);
        if task == BellTask::Blocking {
            for _ in 0..rounds {
                if leads {
                    std::thread::sleep(super::tokio_calls::PAUSE);
                }
                let start = Instant::now();
                if leads {
                    ring();
                }
                hear().expect("the other rings");
                took += start.elapsed();
                if !leads {
                    ring();
                }
            }
            return took;
        }
        runtime().block_on(async {
            let mine = mine.try_clone().expect("the system has descriptors");
            #[expect(deprecated, reason = "it is sound for what keeps its descriptor open")]
            let mine = AsyncFd::new(mine).expect("the runtime has room");
            for _ in 0..rounds {
                if leads {
                    pause().await;
                }
                let start = Instant::now();
                if leads {
                    ring();
                }
                loop {
                    let mut ready = mine.readable().await.expect("the runtime runs");
                    if hear().is_ok() {
                        break;
                    }
                    ready.clear_ready();
                }
                took += start.elapsed();
                if !leads {
                    ring();
                }
            }
        });
        took
    }
}
