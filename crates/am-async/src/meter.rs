//! What is counted of calls at both of their sides; nothing at all without the feature `metrics`.

use crate::outcome::Outcome;
use crate::task::Task;
use crate::wire::{Header, Status};

#[cfg(not(feature = "metrics"))]
mod off;
#[cfg(feature = "metrics")]
mod on;

#[cfg(not(feature = "metrics"))]
pub(crate) use off::{Meter, Seen};
#[cfg(feature = "metrics")]
pub(crate) use on::{Meter, Seen};

/// A side of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Party {
    Caller = 0,
    Callee = 1,
}

/// How a call has ended, as far as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Answered,
    /// Without an answer, as nobody wants one.
    OneWay,
    Failed,
    Panicked,
    Refused,
    TooLarge,
    Malformed,
    TimedOut,
    Cancelled,
    Lost,
    Closed,
}

impl End {
    /// Kinds of ends.
    #[cfg(feature = "metrics")]
    pub(crate) const COUNT: usize = Self::Closed as usize + 1;

    /// Its name, as in what is printed.
    #[cfg(feature = "tracing")]
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::OneWay => "one_way",
            Self::Failed => "failed",
            Self::Panicked => "panicked",
            Self::Refused => "refused",
            Self::TooLarge => "too_large",
            Self::Malformed => "malformed",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::Lost => "lost",
            Self::Closed => "closed",
        }
    }

    /// The end of a call at its caller.
    pub(crate) fn of_outcome(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Answer => Self::Answered,
            Outcome::Failed => Self::Failed,
            Outcome::Panicked => Self::Panicked,
            Outcome::RefusedTasks | Outcome::RefusedMethod => Self::Refused,
            Outcome::BadRequest | Outcome::BadAnswer => Self::Malformed,
            Outcome::RequestTooLarge { .. } | Outcome::AnswerTooLarge { .. } => Self::TooLarge,
            Outcome::TimedOut => Self::TimedOut,
            Outcome::Lost(_) | Outcome::Finished => Self::Lost,
            Outcome::Closed | Outcome::Send(_) => Self::Closed,
        }
    }

    /// The end of a call at its callee.
    pub(crate) fn of_status(status: Status, one_way: bool) -> Self {
        match status {
            Status::Answer | Status::Accepted | Status::Item if one_way => Self::OneWay,
            Status::Answer | Status::Accepted | Status::Item | Status::Items => Self::Answered,
            Status::Failed => Self::Failed,
            Status::Panicked => Self::Panicked,
            Status::RefusedTasks | Status::RefusedMethod => Self::Refused,
            Status::BadRequest => Self::Malformed,
            Status::LongRequest | Status::LongAnswer => Self::TooLarge,
        }
    }
}

impl Meter {
    /// A request that is worked on has its answer, of so many bytes.
    #[inline]
    pub(crate) fn concluded(&self, task: &mut Task, status: Status, bytes: usize) {
        if std::mem::take(&mut task.counted) {
            let one_way = task.header.is(Header::ONE_WAY);
            let end = || End::of_status(status, one_way);
            self.ended(Party::Callee, task.header.method, end, bytes, task.seen);
        }
    }

    /// A request is worked on no longer; if it has no answer, it has ended so.
    #[inline]
    pub(crate) fn removed(&self, task: &Task, end: End) {
        if self.is_on() {
            self.answer_bytes(Party::Callee, task.header.method, task.item_bytes);
            if task.counted {
                self.ended(Party::Callee, task.header.method, || end, 0, task.seen);
            }
        }
    }
}
