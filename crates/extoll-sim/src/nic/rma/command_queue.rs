//! The commands of a process that wait for their unit, as a state machine with no clock of its own: it is told the
//! time.

use super::atu::Nla;
use super::notification::{Command, Notify};
use super::wire::Message;
use am_core::{Instant, Span};
use std::collections::VecDeque;

/// What a command does.
#[derive(Clone)]
pub(crate) enum Work {
    /// A put; `answer`: of what a get asked for.
    Put {
        from: Nla,
        to: Nla,
        size: u32,
        answer: bool,
    },
    Get {
        from: Nla,
        to: Nla,
        size: u32,
    },
    Immediate {
        value: u64,
        size: u32,
        to: Nla,
    },
    Lock {
        lock: u32,
        compare: i32,
        add: i32,
    },
    Notification {
        value: u64,
        class: u8,
    },
    /// The answer to a lock, or that a command has failed.
    Answer(Message),
}

impl Work {
    pub(crate) fn command(&self) -> Command {
        match self {
            Self::Put { answer: false, .. } => Command::Put,
            Self::Put { answer: true, .. } | Self::Get { .. } => Command::Get,
            Self::Immediate { .. } => Command::ImmediatePut,
            Self::Lock { .. } => Command::Lock,
            Self::Notification { .. } => Command::Notification,
            Self::Answer(Message::Failed { command, .. }) => *command,
            Self::Answer(_) => Command::Lock,
        }
    }

    /// Bytes of data that it moves from the process's memory.
    pub(crate) fn data(&self) -> u32 {
        if let Self::Put { size, .. } = self { *size } else { 0 }
    }
}

/// A command as it is posted.
#[derive(Clone)]
pub(crate) struct Order {
    pub(crate) notify: Notify,
    pub(crate) work: Work,
    /// The region that it names, to be checked.
    pub(crate) region: Option<u32>,
}

/// A command that is being executed.
pub(crate) struct Job {
    pub(crate) to: u32,
    pub(crate) notify: Notify,
    pub(crate) work: Work,
    pub(crate) operation: u32,
    posted: Instant,
    /// Fragments sent.
    pub(crate) sent: u32,
    /// When the next may be.
    pub(crate) ready: Instant,
}

/// The pace of a unit.
#[derive(Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) fragment: u32,
    pub(crate) burst: u32,
    pub(crate) ramp_fragments: u32,
    pub(crate) ramp: Span,
    pub(crate) gap: Span,
}

impl Pace {
    /// Fragments of a number of bytes; at least one.
    pub(crate) fn fragments(&self, bytes: u32) -> u32 {
        bytes.div_ceil(self.fragment).max(1)
    }

    /// How many fragments go as one packet, when so many have been sent of so many. The first go one by one, since
    /// they come at a distance.
    pub(crate) fn next(&self, sent: u32, of: u32) -> u32 {
        if sent <= self.ramp_fragments { 1 } else { self.burst.min(of - sent) }
    }

    /// How many fragments the next packet of a command has.
    pub(crate) fn next_of(&self, job: &Job) -> u32 {
        match job.work.data() {
            0 => 1,
            size => self.next(job.sent, self.fragments(size)),
        }
    }

    /// How long after the first fragment this one can be there.
    fn since_first(&self, fragment: u32) -> Span {
        let slow = fragment.min(self.ramp_fragments);
        Span(self.ramp.0 * u64::from(slow) + self.gap.0 * u64::from(fragment - slow))
    }
}

impl Job {
    /// Takes note that fragments have entered the unit at a time.
    pub(crate) fn advance(&mut self, fragments: u32, entered: Instant, pace: &Pace) {
        self.sent += fragments;
        let streamed = entered + Span(pace.gap.0 * u64::from(fragments));
        self.ready = streamed.max(self.posted + pace.since_first(self.sent));
    }
}

/// Commands in their order.
#[derive(Default)]
pub(crate) struct CommandQueue {
    pub(crate) jobs: VecDeque<Job>,
    /// A timer will run this queue.
    pub(crate) timed: bool,
    operations: u32,
}

impl CommandQueue {
    pub(crate) fn push(&mut self, to: u32, order: Order, now: Instant) {
        let Order { notify, work, .. } = order;
        self.operations = self.operations.wrapping_add(1);
        let operation = self.operations;
        self.jobs.push_back(Job { to, notify, work, operation, posted: now, sent: 0, ready: now });
    }
}
