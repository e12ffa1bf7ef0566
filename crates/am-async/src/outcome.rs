//! What happens to calls: how they end, what they have sent, and what a look at them comes to.

use crate::error::Busy;
use crate::wire::{Header, Status, Verdict, read_numbers};
use am_core::slab::Key;
use am_core::{Address, Instant, LossCause, SendError, Span};
use std::task::Waker;

/// Until when something may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Never,
    /// So long after the endpoint first sees it.
    After(Span),
    At(Instant),
    /// At the earlier of both.
    Within(Instant, Span),
}

/// What the limits of calls under way are to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// It waits for others.
    Waits,
    /// It is not made if it would wait for others.
    Immediate,
    /// It has this permit, if that was given, and goes before those that wait without one.
    #[cfg(feature = "tower")]
    Permitted(Key),
    /// Nothing: it passes a request on, and the limit of requests that are worked on is that of such calls. They
    /// would wait for each other around the job.
    Uncounted,
}

/// How a call has ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    Answer,
    Failed,
    Panicked,
    RefusedTasks,
    RefusedMethod,
    BadRequest,
    BadAnswer,
    RequestTooLarge { bytes: u64, limit: u64 },
    AnswerTooLarge { bytes: u64, limit: u64 },
    TimedOut,
    Lost(LossCause),
    Finished,
    Closed,
    Send(Box<SendError>),
}

/// How a call has ended, and the bytes of its answer or error.
pub(crate) type Ended = (Outcome, Vec<u8>);

/// Why no call was made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Denied {
    NoSuchRank { ranks: u32 },
    RequestTooLarge { bytes: u64, limit: u64 },
    Busy(Busy),
    Closed,
}

/// What a timer is for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Alarm {
    Call(Key),
    Sleeper(Key),
    /// A task of the callee's side.
    Task(Key),
}

/// A message that control of calls wants sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Note {
    Cancel { to: Address, call: Key },
    GrantAnswer { to: Address, task: u64, call: Key },
    GrantItem { to: Address, call: Key },
    Credit { to: Address, call: Key, answers: u64 },
}

/// What is to be sent of one call.
pub(crate) struct Outgoing<'a> {
    pub(crate) key: Key,
    pub(crate) to: Address,
    pub(crate) header: Header,
    pub(crate) request: &'a [u8],
    /// The time left.
    pub(crate) left: Option<Span>,
    /// Answers of a stream that may be under way.
    pub(crate) window: u32,
}

/// What became of something that was to be sent.
pub(crate) enum Sent {
    Yes,
    /// What is long was announced.
    Announced,
    /// There is no room.
    NotNow,
    Failed(SendError),
}

/// What a look at something came to. A waker that another one takes the place of is dropped once nothing is
/// locked: with it may go a future that holds calls.
#[derive(Debug)]
pub(crate) enum Polled<R> {
    Ready(R),
    Pending(Option<Waker>),
}

/// Who waits for the end of a call or sleep, or for a permit.
#[derive(Debug, Default)]
pub(crate) enum Waiter {
    #[default]
    Nobody,
    /// The future that the endpoint runs: most of those that wait, so that its waker is not cloned for each.
    Root,
    Other(Waker),
}

impl Waiter {
    /// Of a waker, which may be that of the root.
    pub(crate) fn new(waker: &Waker, root: Option<&Waker>) -> Self {
        let mut waiter = Self::Nobody;
        waiter.keep(Some(waker), root);
        waiter
    }

    /// Keeps a waker, which may be that of the root; returns another one that was kept before.
    #[inline]
    pub(crate) fn keep(&mut self, waker: Option<&Waker>, root: Option<&Waker>) -> Option<Waker> {
        let waker = waker?;
        if root.is_some_and(|root| root.will_wake(waker)) {
            return std::mem::replace(self, Self::Root).waker();
        }
        match self {
            Self::Other(known) if known.will_wake(waker) => None,
            _ => std::mem::replace(self, Self::Other(waker.clone())).waker(),
        }
    }

    /// Whether nobody waits.
    #[inline]
    pub(crate) fn is_nobody(&self) -> bool {
        matches!(self, Self::Nobody)
    }

    /// The waker, if one is held here.
    pub(crate) fn waker(self) -> Option<Waker> {
        match self {
            Self::Other(waker) => Some(waker),
            Self::Nobody | Self::Root => None,
        }
    }
}

/// Waiting programs to be woken once no lock is held.
#[derive(Debug, Default)]
pub(crate) struct Wakers {
    /// Whether the future that the endpoint runs is among them.
    pub(crate) root: bool,
    pub(crate) others: Vec<Waker>,
}

impl Wakers {
    /// Adds who waits, who does so no longer.
    #[inline]
    pub(crate) fn add(&mut self, waiter: &mut Waiter) {
        match std::mem::take(waiter) {
            Waiter::Nobody => {}
            Waiter::Root => self.root = true,
            Waiter::Other(waker) => self.others.push(waker),
        }
    }
}

pub(crate) fn outcome_of(verdict: Verdict, body: &[u8]) -> Outcome {
    let (bytes, limit) = read_numbers(body);
    match verdict.status {
        Status::Answer => Outcome::Answer,
        Status::Failed => Outcome::Failed,
        Status::Panicked => Outcome::Panicked,
        Status::RefusedTasks => Outcome::RefusedTasks,
        Status::RefusedMethod => Outcome::RefusedMethod,
        Status::BadRequest => Outcome::BadRequest,
        Status::LongRequest => Outcome::RequestTooLarge { bytes, limit },
        Status::LongAnswer => Outcome::AnswerTooLarge { bytes, limit },
        Status::Accepted | Status::Item | Status::Items => Outcome::BadAnswer,
    }
}
