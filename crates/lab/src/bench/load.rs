//! How much of the machine other programs took while a figure was measured, so that a figure from a busy machine
//! says so.

use std::fs;
use std::time::Instant;

/// Clock ticks a second in `/proc`, fixed by Linux for every program outside the kernel.
const TICKS: f64 = 100.0;

/// The CPU time that the machine and some processes had taken at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    machine: u64,
    own: u64,
    at: Instant,
}

impl Load {
    /// The state now; `processes` are those of the bench.
    pub fn now(processes: &[u32]) -> Self {
        Self {
            machine: machine(),
            own: processes.iter().map(|process| of_process(*process)).sum(),
            at: Instant::now(),
        }
    }

    /// CPUs that other programs, or the host of a virtual machine, kept busy on average until `later`.
    pub fn others_until(&self, later: &Self) -> f64 {
        let ticks = (later.machine - self.machine).saturating_sub(later.own - self.own);
        ticks as f64 / TICKS / (later.at - self.at).as_secs_f64().max(1.0 / TICKS)
    }
}

/// Ticks that all CPUs have been busy: everything in the first line of `/proc/stat` but idling and waiting for
/// disks.
fn machine() -> u64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields = text.lines().next().unwrap_or_default().split_whitespace().skip(1);
    let ticks = fields.map(|field| field.parse().unwrap_or(0_u64)).take(8);
    ticks.enumerate().filter(|(column, _)| !matches!(column, 3 | 4)).map(|(_, ticks)| ticks).sum()
}

/// Ticks that a process has run; 0 once it is gone.
fn of_process(process: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name in parentheses may hold anything; the fields after it start with the third.
    let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).map(|field| field.parse().unwrap_or(0_u64)).sum()
}
