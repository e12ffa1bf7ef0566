//! The state machine of a map sequence. It is told what failed, whether the way works, and the time; both
//! implementations use it.

use super::code::Code;
use super::errors::{Failure, Severity};
use super::kinds::SequenceStatus;
use am_core::{Instant, Span};

/// Where a sequence is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Never started.
    New,
    /// Stores can be checked.
    Running,
    /// It failed in a way that only a start ends.
    Failed {
        severity: Severity,
        /// Starts that fail in any case.
        restarts: u8,
        /// Until then the driver does not know how bad it is.
        until: Instant,
    },
}

/// What a sequence remembers between calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SequenceState {
    stage: Stage,
}

impl SequenceState {
    pub(crate) const fn new() -> Self {
        Self { stage: Stage::New }
    }

    /// Whether stores can be checked.
    pub(crate) fn check_allowed(&self) -> Result<(), Code> {
        if self.stage == Stage::Running { Ok(()) } else { Err(Code::IllegalOperation) }
    }

    /// All stores have been answered or given up, and this is the worst that happened.
    pub(crate) fn checked(&mut self, worst: Option<Failure>, now: Instant, investigation: Span) -> SequenceStatus {
        let Some(Failure { severity, restarts }) = worst else {
            return SequenceStatus::Ok;
        };
        if severity != Severity::Passing {
            self.stage = Stage::Failed { severity, restarts, until: now + investigation };
        }
        severity.status()
    }

    /// A start; `broken`: the way or the other node is known not to work.
    pub(crate) fn start(&mut self, broken: bool, now: Instant) -> SequenceStatus {
        if broken {
            let until = now;
            self.stage = Stage::Failed { severity: Severity::Lasting, restarts: 0, until };
            return SequenceStatus::NotRetriable;
        }
        if let Stage::Failed { severity, restarts, until } = &mut self.stage {
            if *restarts > 0 {
                *restarts -= 1;
                return severity.status();
            }
            if *severity == Severity::Unclear && now < *until {
                return SequenceStatus::Pending;
            }
        }
        self.stage = Stage::Running;
        SequenceStatus::Ok
    }

    /// Whether a start is more than a formality.
    pub(crate) fn failed(&self) -> bool {
        matches!(self.stage, Stage::Failed { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use SequenceStatus::{NotRetriable, Ok, Pending, Retriable};

    const NOW: Instant = Instant(1_000);
    const LATER: Instant = Instant(9_000);
    const LONG: Span = Span(5_000);

    fn started() -> SequenceState {
        let mut sequence = SequenceState::new();
        assert_eq!(sequence.check_allowed(), Err(Code::IllegalOperation));
        assert_eq!(sequence.start(false, NOW), Ok);
        sequence
    }

    #[test]
    fn passing_failures_leave_the_sequence_running() {
        let mut sequence = started();
        assert_eq!(sequence.checked(Some(Failure::new(Severity::Passing)), NOW, LONG), Retriable);
        assert!(sequence.check_allowed().is_ok() && !sequence.failed());
        assert_eq!(sequence.checked(None, NOW, LONG), Ok);
    }

    #[test]
    fn unclear_failures_are_pending_until_the_driver_knows() {
        let mut sequence = started();
        assert_eq!(sequence.checked(Some(Failure::new(Severity::Unclear)), NOW, LONG), Pending);
        assert_eq!(sequence.check_allowed(), Err(Code::IllegalOperation));
        assert_eq!(sequence.start(false, NOW), Pending);
        assert_eq!(sequence.start(true, NOW), NotRetriable);
        assert_eq!(sequence.start(false, NOW), Ok);
        let _ = sequence.checked(Some(Failure::new(Severity::Unclear)), NOW, LONG);
        assert_eq!(sequence.start(false, LATER), Ok);
    }

    #[test]
    fn lasting_failures_last_as_long_as_they_say() {
        let mut sequence = started();
        let failure = Failure { severity: Severity::Lasting, restarts: 2 };
        assert_eq!(sequence.checked(Some(failure), NOW, LONG), NotRetriable);
        assert_eq!([0; 3].map(|_| sequence.start(false, NOW)), [NotRetriable, NotRetriable, Ok]);
    }
}
