//! The signals of a launcher or agent, read from a descriptor while it watches its ranks.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::host::spawn::hear_of_children;

/// What a launcher passes on. A terminal's stop and resize signals reach the ranks by themselves.
const PASSED_ON: [Signal; 6] =
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2];

/// The signals of the calling thread, read from a descriptor for as long as this lives.
#[derive(Debug)]
pub(crate) struct Signals {
    arrivals: SignalFd,
    before: SigSet,
    /// Whether this is the process's only thread, so that every signal arrives here.
    alone: bool,
}

impl Signals {
    /// Takes the signals over.
    pub(crate) fn take() -> nix::Result<Self> {
        hear_of_children()?;
        let mut taken: SigSet = PASSED_ON.into_iter().collect();
        taken.add(Signal::SIGCHLD);
        let arrivals = SignalFd::with_flags(&taken, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        let before = taken.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let alone = fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() == 1);
        Ok(Self { arrivals, before, alone })
    }

    /// The mask that was set before.
    pub(crate) fn before(&self) -> SigSet {
        self.before
    }

    /// Sleeps until a signal arrives or the time has come.
    pub(crate) fn wait(&self, until: Instant) {
        wait(self, [], Some(until));
    }

    /// Whether this is the process's only thread.
    pub(crate) fn is_alone(&self) -> bool {
        self.alone
    }

    /// Readable when a signal has arrived.
    pub(crate) fn arrivals(&self) -> BorrowedFd<'_> {
        self.arrivals.as_fd()
    }

    /// The next signal, if one has arrived.
    pub(crate) fn next(&self) -> Option<Arrival> {
        let info = self.arrivals.read_signal().ok().flatten()?;
        let signal = Signal::try_from(info.ssi_signo as i32).ok()?;
        Some(Arrival { signal, sender: info.ssi_pid, from_terminal: info.ssi_code == libc::SI_KERNEL })
    }
}

/// One signal that this process got.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) signal: Signal,
    /// The process that caused it: for SIGCHLD the child.
    pub(crate) sender: u32,
    /// The terminal's signals reach every process of its foreground job, the ranks among them.
    pub(crate) from_terminal: bool,
}

impl Drop for Signals {
    fn drop(&mut self) {
        let _ = self.before.thread_set_mask();
    }
}

/// Sleeps until a signal arrives, one of the `others` is ready, or the time has come; returns whether one of them
/// is.
pub(crate) fn wait<'a>(
    signals: &'a Signals,
    others: impl IntoIterator<Item = BorrowedFd<'a>>,
    until: Option<Instant>,
) -> bool {
    let timeout = until.map_or(PollTimeout::NONE, |until| {
        // Rounded up, so that the time has come when the wait is over.
        let left = until.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
    });
    let mut ends = vec![PollFd::new(signals.arrivals.as_fd(), PollFlags::POLLIN)];
    ends.extend(others.into_iter().map(|end| PollFd::new(end, PollFlags::POLLIN)));
    // An interrupted wait is like one that was too short: every caller looks again.
    let _ = poll(&mut ends, timeout);
    ends[1..].iter().any(|end| end.any().unwrap_or(true))
}
