//! How a job ended: the end of every rank and the exit code that follows from them.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use am_core::Rank;
use nix::sys::signal::Signal;

use crate::codec::wire;

/// The exit code of a launcher whose job ran into its time limit, as `timeout(1)` uses it.
pub const EXIT_TIMED_OUT: u8 = 124;
/// The exit code of a launcher that failed itself, before or beside its ranks.
pub const EXIT_LAUNCHER_FAILED: u8 = 125;
/// The exit code of a launcher whose program exists but can't be executed.
pub const EXIT_NOT_EXECUTABLE: u8 = 126;
/// The exit code of a launcher whose program doesn't exist.
pub const EXIT_NOT_FOUND: u8 = 127;
/// The exit code for wrong flags, a wrong configuration or a malformed environment.
pub const EXIT_USAGE: u8 = 2;

/// The exit code of a rank whose output nobody reads any more, as a shell shows the end by SIGPIPE.
pub const EXIT_BROKEN_PIPE: u8 = 128 + SIGPIPE;

const SIGPIPE: u8 = Signal::SIGPIPE as u8;

/// How one rank's process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RankEnd {
    /// It exited by itself with this code, 0 to 255.
    Exited(u8),
    /// The signal with this number killed it.
    Killed(u8),
    /// Its host was lost. How it ended is not known; its agent ends it when it misses the launcher.
    Lost,
}
wire!(enum RankEnd { 0 => Exited(code), 1 => Killed(signal), 2 => Lost });

impl RankEnd {
    /// Whether the rank exited with code 0.
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Exited(0))
    }

    /// Whether the rank ended because nobody read its output any more: by SIGPIPE, or as [`run`](crate::run) ends
    /// then.
    pub(crate) const fn is_broken_pipe(self) -> bool {
        matches!(self, Self::Killed(SIGPIPE) | Self::Exited(EXIT_BROKEN_PIPE))
    }

    /// The code that a shell would show: the exit code, or 128 + the signal's number; [`EXIT_LAUNCHER_FAILED`] for
    /// a lost one.
    pub const fn code(self) -> u8 {
        match self {
            Self::Exited(code) => code,
            Self::Killed(signal) => signal.saturating_add(128),
            Self::Lost => EXIT_LAUNCHER_FAILED,
        }
    }
}

impl From<ExitStatus> for RankEnd {
    fn from(status: ExitStatus) -> Self {
        // The kernel hands out 8 bits of exit code and 7 bits of signal number, so neither mask loses anything.
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Exited((code & 0xff) as u8),
            (None, Some(signal)) => Self::Killed((signal & 0x7f) as u8),
            (None, None) => Self::Exited(EXIT_LAUNCHER_FAILED),
        }
    }
}

impl fmt::Display for RankEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Exited(code) => write!(f, "exited with code {code}"),
            Self::Lost => f.write_str("was lost with its host"),
            Self::Killed(number) => match Signal::try_from(i32::from(number)) {
                Ok(signal) => write!(f, "was killed by signal {number} ({signal})"),
                Err(_) => write!(f, "was killed by signal {number}"),
            },
        }
    }
}

/// How a whole job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub(crate) ends: Vec<RankEnd>,
    pub(crate) first_failure: Option<Rank>,
    pub(crate) timed_out: bool,
    pub(crate) exit: Option<(Rank, u8)>,
}

impl Outcome {
    /// The end of every rank, by rank.
    pub fn ends(&self) -> &[RankEnd] {
        &self.ends
    }

    /// The rank that failed first (a code other than 0, or a signal), if one did before the launcher ended the
    /// job.
    pub fn first_failure(&self) -> Option<Rank> {
        self.first_failure
    }

    /// Whether the launcher ended the job because its time was up.
    pub fn timed_out(&self) -> bool {
        self.timed_out
    }

    /// The rank that ended the whole job with [`exit_job`](crate::exit_job), and its code.
    pub fn exited_by(&self) -> Option<(Rank, u8)> {
        self.exit
    }

    /// Whether the job's code is 0: every rank exited with code 0 in time, or one of them ended the job so.
    pub fn is_success(&self) -> bool {
        self.code() == 0
    }

    /// The launcher's own exit code: that of [`exit_job`](crate::exit_job) if a rank has called it, else the code
    /// of the rank that failed first ([`RankEnd::code`]), else [`EXIT_TIMED_OUT`] if the time was up, else 0.
    pub fn code(&self) -> u8 {
        if let Some((_, code)) = self.exit {
            return code;
        }
        match self.first_failure {
            Some(rank) => self.ends[rank.0 as usize].code(),
            None if self.timed_out => EXIT_TIMED_OUT,
            None => 0,
        }
    }
}

/// What a signal that ended the start means for the launcher's exit code.
pub(crate) fn code_of(signal: Signal) -> u8 {
    (signal as i32 as u8).saturating_add(128)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_read_like_a_shell_shows_them() {
        assert_eq!(RankEnd::from(ExitStatus::from_raw(7 << 8)), RankEnd::Exited(7));
        assert_eq!(RankEnd::from(ExitStatus::from_raw(9)), RankEnd::Killed(9));
        assert_eq!(RankEnd::Killed(9).code(), 137);
        assert_eq!(RankEnd::Killed(9).to_string(), "was killed by signal 9 (SIGKILL)");
        assert_eq!(RankEnd::Killed(40).to_string(), "was killed by signal 40");
        assert_eq!(RankEnd::Exited(255).to_string(), "exited with code 255");
    }

    #[test]
    fn the_first_failure_decides_even_after_the_time_was_up() {
        let ends = vec![RankEnd::Killed(15), RankEnd::Exited(3)];
        let outcome =
            |first_failure, timed_out| Outcome { ends: ends.clone(), first_failure, timed_out, exit: None };
        assert_eq!(outcome(Some(Rank(1)), true).code(), 3);
        assert_eq!(outcome(Some(Rank(0)), false).code(), 143);
        assert_eq!(outcome(None, true).code(), EXIT_TIMED_OUT);
        let ended = Outcome { exit: Some((Rank(0), 0)), ..outcome(Some(Rank(1)), true) };
        assert_eq!(
            (ended.exited_by(), ended.is_success()),
            (Some((Rank(0), 0)), true),
            "a rank has ended the job"
        );
    }
}
