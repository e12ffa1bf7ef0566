//! Where two processes that wake each other run: on a processor each, on one together, or wherever the system puts
//! them. A wake-up of an idle processor takes ten times as long as one of a process on the same, so that a figure
//! and its baseline compare only where both have the same places.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// Which processors a process's threads may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Places {
    /// One for each rank.
    Apart,
    /// The same one for all ranks.
    Together,
}

/// Does some work of a rank with its process so placed, and leaves it on the rank's own processor, free to move.
pub(crate) fn within<R>(places: Places, rank: usize, work: impl FnOnce() -> R) -> R {
    let all = sched_getaffinity(Pid::from_raw(0)).expect("a process may ask for its affinity");
    let processors: Vec<usize> = (0..CpuSet::count()).filter(|cpu| all.is_set(*cpu).unwrap_or(false)).collect();
    let one = |place: usize| {
        let mut set = CpuSet::new();
        set.set(processors[place % processors.len()]).expect("the number is that of a processor");
        set
    };
    confine(&one(if places == Places::Apart { rank } else { 0 }));
    let done = work();
    confine(&one(rank));
    confine(&all);
    done
}

/// Confines all threads of this process.
fn confine(to: &CpuSet) {
    let threads = std::fs::read_dir("/proc/self/task").expect("a process may look at its threads");
    for thread in threads.flatten() {
        let number = thread.file_name().to_str().and_then(|name| name.parse().ok());
        // One that has just ended needs no place.
        let _ = sched_setaffinity(Pid::from_raw(number.expect("threads are called by their numbers")), to);
    }
}
