//! The errors: what is wrong with a configuration, and how a run can end badly.

use crate::places;
use am_core::{Instant, WaitReason};
use std::fmt;
use std::path::Path;
use thiserror::Error;

/// Why a configuration describes no machine.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A value outside its limits.
    #[error("{field} is {value}, but must be {limit}")]
    OutOfRange {
        /// The field, as it is written in a parameter file.
        field: String,
        /// The value found.
        value: String,
        /// What is allowed.
        limit: String,
    },
    /// Two fields that exclude each other.
    #[error("{field} contradicts {other}: {reason}")]
    Contradiction {
        /// One field.
        field: String,
        /// The other field.
        other: String,
        /// Why not both.
        reason: String,
    },
    /// A parameter file that cannot be read, for instance because of an unknown field.
    #[error("parameter file: {0}")]
    File(String),
    /// A file that a field names cannot be read, or is wrong.
    #[error("{field} {problem}")]
    OtherFile {
        /// The field.
        field: String,
        /// The file, its line if there is one, and what is wrong.
        problem: String,
    },
    /// A value in a file that there cannot be.
    #[error("{file}{}: {error}", line.map_or(String::new(), |line| format!(", line {line}")))]
    InFile {
        /// The file.
        file: String,
        /// The line of the field, or of the innermost table around it that is in the file; `None` if there is
        /// none.
        line: Option<usize>,
        /// What is wrong.
        error: Box<ConfigError>,
    },
}

impl ConfigError {
    /// The error for a value that `field` must not have: it "must be" the limit.
    pub fn range(field: impl Into<String>, value: impl fmt::Display, limit: impl Into<String>) -> Self {
        Self::OutOfRange { field: field.into(), value: value.to_string(), limit: limit.into() }
    }

    /// The same with the file and the line where the field stands.
    pub(crate) fn in_file(self, file: &Path, text: &str) -> Self {
        let line = match &self {
            Self::OutOfRange { field, .. } | Self::Contradiction { field, .. } | Self::OtherFile { field, .. } => {
                places::line_of(text, field)
            }
            Self::File(_) | Self::InFile { .. } => return self,
        };
        Self::InFile { file: file.display().to_string(), line, error: Box::new(self) }
    }

    /// The same with another name of its fields.
    pub(crate) fn renamed(self, rename: impl Fn(String) -> String) -> Self {
        match self {
            Self::OutOfRange { field, value, limit } => Self::OutOfRange { field: rename(field), value, limit },
            Self::Contradiction { field, other, reason } => {
                Self::Contradiction { field: rename(field), other: rename(other), reason }
            }
            Self::OtherFile { field, problem } => Self::OtherFile { field: rename(field), problem },
            error => error,
        }
    }
}

/// What a rank waits for: deadlock reports say it, and it decides whether another rank's end in order wakes this
/// one. (A loss wakes everyone.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitFor {
    /// Anything to arrive. Ends in order do not wake this rank, unless nothing else can happen any more.
    Arrival,
    /// Something from this rank, whose end wakes.
    From(u32),
    /// Room to send to this rank, whose end wakes.
    Room {
        /// The rank to send to.
        to: u32,
        /// What is used up.
        of: am_core::Resource,
    },
    /// Something that the program names. Everybody's end wakes.
    Named(&'static str),
}

impl fmt::Display for WaitFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arrival => f.write_str("anything to arrive"),
            Self::From(rank) => write!(f, "something from rank {rank}"),
            Self::Room { to, of } => write!(f, "{of} towards rank {to}"),
            Self::Named(what) => f.write_str(what),
        }
    }
}

impl From<WaitReason> for WaitFor {
    fn from(reason: WaitReason) -> Self {
        match reason {
            WaitReason::Collective(from) => Self::From(from.0),
            WaitReason::Room(to, of) => Self::Room { to: to.0, of },
            WaitReason::Message => Self::Arrival,
            WaitReason::Handling => Self::Named("requests to be handled"),
            _ => Self::Named("something that its endpoint waits for"),
        }
    }
}

/// A rank that waits, as a deadlock report lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiting {
    /// The rank.
    pub rank: u32,
    /// Since when.
    pub since: Instant,
    /// For what.
    pub wanted: WaitFor,
    /// What its node's device says of it; see [`Device::explain`](crate::Device::explain).
    pub detail: Option<String>,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, since, wanted, detail } = self;
        write!(f, "rank {rank} waits for {wanted} since {}", since.since(Instant(0)))?;
        detail.as_ref().map_or(Ok(()), |detail| write!(f, " ({detail})"))
    }
}

/// Who waits for what when nothing can happen any more.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deadlock {
    /// The time of the last event.
    pub at: Instant,
    /// All waiting ranks, in order.
    pub waiting: Vec<Waiting>,
    /// Packets held at links that are down.
    pub held: usize,
}

/// Ranks that a deadlock report names before it only counts.
const NAMED: usize = 8;

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, at) = (self.waiting.len(), self.at.since(Instant(0)));
        write!(f, "deadlock at {at}: {count} ranks wait and nothing is under way")?;
        if self.held != 0 {
            write!(f, " except {} packets held at links that are down", self.held)?;
        }
        some(&self.waiting, f)
    }
}

fn some(waiting: &[Waiting], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for waiting in waiting.iter().take(NAMED) {
        write!(f, "; {waiting}")?;
    }
    match waiting.len().saturating_sub(NAMED) {
        0 => Ok(()),
        more => write!(f, "; and {more} more"),
    }
}

/// Who had not ended by the [deadline](crate::Config::deadline_ns).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadlineMissed {
    /// The deadline.
    pub deadline: Instant,
    /// Ranks that had not returned.
    pub remaining: u32,
    /// Those of them that waited, in order.
    pub waiting: Vec<Waiting>,
}

impl fmt::Display for DeadlineMissed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (remaining, deadline) = (self.remaining, self.deadline.since(Instant(0)));
        write!(f, "{remaining} ranks have not ended by the deadline of {deadline}")?;
        some(&self.waiting, f)
    }
}

/// Why a run did not come to its end.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunError {
    /// The configuration describes no machine.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There is no memory for a rank's stack.
    #[error(
        "no stack of {bytes} bytes for rank {rank} of {ranks}: {source}; ask for fewer ranks, lower stack_bytes, or raise what a \
         process may map (ulimit -v, vm.max_map_count)"
    )]
    Stack {
        /// The rank whose stack could not be had.
        rank: u32,
        /// Ranks of the run.
        ranks: u32,
        /// Size asked for, in bytes.
        bytes: usize,
        /// What the system says.
        source: std::io::Error,
    },
    /// There is no thread for the second half of a machine.
    #[error(
        "no thread for a second processor: {source}; run both halves on one, or raise what a process may have (ulimit -u, ulimit -v)"
    )]
    Thread {
        /// What the system says.
        source: std::io::Error,
    },
    /// A rank panicked; the others were unwound.
    #[error("rank {rank} panicked at {}: {message}", at.since(Instant(0)))]
    Panicked {
        /// The rank.
        rank: u32,
        /// Its virtual time.
        at: Instant,
        /// The panic's message.
        message: String,
    },
    /// Nothing can happen any more, but ranks wait.
    #[error("{0}")]
    Deadlock(Box<Deadlock>),
    /// The deadline has passed.
    #[error("{0}")]
    DeadlineMissed(Box<DeadlineMissed>),
}
