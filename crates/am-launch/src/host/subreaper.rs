//! Processes that ranks started and left behind: they become the launcher's children and end with the job.
//!
//! A rank under a wrapper is the case that matters: when the wrapper is told to end, the program below it is not.

use std::collections::BTreeSet;
use std::fs;
use std::process::Child;
use std::time::{Duration, Instant};

use nix::sys::prctl::{get_child_subreaper, set_child_subreaper};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use crate::host::policy::asks_to_end;
use crate::host::signals::Signals;

/// Orphans among this process's descendants become its children for as long as this lives.
#[derive(Debug)]
pub(crate) struct Subreaper {
    before: bool,
    /// Children that this process had before and that are none of the job's business.
    others: BTreeSet<i32>,
}

impl Subreaper {
    pub(crate) fn begin() -> nix::Result<Self> {
        let others = children();
        let before = get_child_subreaper()?;
        set_child_subreaper(true)?;
        Ok(Self { before, others })
    }

    /// Waits for adopted processes that have ended, so that none stays a zombie in a long job.
    pub(crate) fn reap(&self, ranks: &[Option<Child>]) {
        let ranks: BTreeSet<i32> = ranks.iter().flatten().map(|child| child.id() as i32).collect();
        for child in self.adopted() {
            if !ranks.contains(&child) {
                let _ = waitpid(Pid::from_raw(child), Some(WaitPidFlag::WNOHANG));
            }
        }
    }

    /// Tells adopted processes to end, kills those that are left after `grace` (or when the user is impatient),
    /// and returns when there are none. Call it when no rank lives.
    pub(crate) fn end(&self, signals: &Signals, grace: Duration) {
        let mut told = BTreeSet::new();
        let deadline = Instant::now().checked_add(grace);
        let mut impatient = false;
        loop {
            self.reap(&[]);
            let adopted = self.adopted();
            if adopted.is_empty() {
                return;
            }
            impatient |= deadline.is_some_and(|deadline| Instant::now() >= deadline);
            for child in adopted {
                // A child's children come to light only when it has ended, so newcomers appear in every round.
                if impatient {
                    let _ = kill(Pid::from_raw(child), Signal::SIGKILL);
                } else if told.insert(child) {
                    let _ = kill(Pid::from_raw(child), Signal::SIGTERM);
                }
            }
            let now = Instant::now();
            signals.wait(deadline.filter(|&deadline| deadline > now).unwrap_or(now + Duration::from_millis(20)));
            while let Some(arrival) = signals.next() {
                impatient |= asks_to_end(arrival.signal);
            }
        }
    }

    fn adopted(&self) -> BTreeSet<i32> {
        children().difference(&self.others).copied().collect()
    }
}

impl Drop for Subreaper {
    fn drop(&mut self) {
        let _ = set_child_subreaper(self.before);
    }
}

/// The children of this process, ended ones included; none on a kernel that doesn't list them.
fn children() -> BTreeSet<i32> {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return BTreeSet::new() };
    tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn children_are_listed() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        assert!(children().contains(&(child.id() as i32)));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(!children().contains(&(child.id() as i32)));
    }
}
