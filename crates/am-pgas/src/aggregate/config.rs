//! How an aggregator works, and what can go wrong with it.

use am_core::{LossCause, PollError, Rank, RegisterError, Span, WaitError};

/// The way of items to their destinations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Route {
    /// By the number of ranks: direct up to 64, matrix up to 4096, tensor beyond.
    #[default]
    Auto,
    /// Straight there: a buffer for each rank.
    Direct,
    /// In two hops, through a rank that shares a row with the source and a column with the destination: some `2 *
    /// sqrt(ranks)` buffers.
    Matrix,
    /// In three hops through a grid of three dimensions: some `3 * cbrt(ranks)` buffers.
    Tensor,
}

impl Route {
    /// Hops of an item at most.
    pub(super) fn hops(self, ranks: u32) -> usize {
        match self {
            Self::Auto if ranks <= 64 => 1,
            Self::Auto if ranks <= 4096 => 2,
            Self::Direct => 1,
            Self::Matrix => 2,
            Self::Auto | Self::Tensor => 3,
        }
    }
}

/// When items go that fill no message yet. They always go when the program says [`done`](super::Aggregate::done)
/// or [`send_held`](super::Aggregate::send_held).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendPolicy {
    /// Before the endpoint idles, except while a push waits for room.
    #[default]
    Usual,
    /// Also at any poll that finds them held back for so long. A program that polls without ever waiting needs
    /// this.
    Aged(Span),
    /// Also at any push that finds them held back for so long, which costs a look at the clock for each push: no
    /// item waits longer in a program that pushes or polls.
    Steady(Span),
    /// Only when a push finds their message full, or the look-ahead used up: the messages of a rank's first hop,
    /// their contents and their order per neighbour follow from what the rank pushes, whatever the timing. With
    /// one hop these are all messages. Later hops mix the items of several ranks in the order of their arrival,
    /// and send before the endpoint idles. A
    /// [`look_ahead`](AggregatorConfig::look_ahead) keeps this with one hop and a function that does not answer
    /// only: elsewhere the items that it counts leave as others' traffic lets them. What an answering function
    /// pushes follows the order of what it answers.
    ///
    /// A program that waits for the effect of a push before it says `done` waits for ever unless it sends what is
    /// held.
    Deterministic,
}

/// How an aggregator works. All ranks have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AggregatorConfig {
    /// Bytes of a message at most; 8192 unless set, less where the transport or [`memory`](Self::memory) has no
    /// room for that.
    pub message_bytes: Option<usize>,
    /// Bytes of all buffers together at most. Where the function answers, that includes room for the answers to a
    /// message's items, in the other aggregator too.
    pub memory: usize,
    /// Items of its own that a rank holds back at most, whatever their destinations; as many as its buffers have
    /// room for unless set. When they are used up, the fullest buffers go until a quarter is free again, or the
    /// fullest alone ([`SendPolicy::Deterministic`]).
    pub look_ahead: Option<usize>,
    /// The way of items.
    pub route: Route,
    /// When items go that fill no message yet.
    pub send_policy: SendPolicy,
    /// Messages to a neighbour whose room has not been given back, at most, where items go on from there or are
    /// answered. The neighbour has room for so many from every rank that sends to it.
    pub window: u16,
    /// Answers to an item at most, where the function answers.
    pub answers: u16,
}

impl Default for AggregatorConfig {
    fn default() -> Self {
        Self {
            message_bytes: None,
            memory: 4 << 20,
            look_ahead: None,
            route: Route::Auto,
            send_policy: SendPolicy::Usual,
            window: 4,
            answers: 1,
        }
    }
}

impl AggregatorConfig {
    /// The usual aggregator.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the most bytes of a message.
    #[must_use]
    pub fn message_bytes(mut self, bytes: usize) -> Self {
        self.message_bytes = Some(bytes);
        self
    }

    /// Sets the most bytes of all buffers together.
    #[must_use]
    pub fn memory(mut self, bytes: usize) -> Self {
        self.memory = bytes;
        self
    }

    /// Sets the most items that a rank holds back.
    #[must_use]
    pub fn look_ahead(mut self, items: usize) -> Self {
        self.look_ahead = Some(items);
        self
    }

    /// Sets the way of items.
    #[must_use]
    pub fn route(mut self, route: Route) -> Self {
        self.route = route;
        self
    }

    /// Sets when items go that fill no message yet.
    #[must_use]
    pub fn send_policy(mut self, send_policy: SendPolicy) -> Self {
        self.send_policy = send_policy;
        self
    }

    /// Sets the window of messages to a neighbour.
    #[must_use]
    pub fn window(mut self, messages: u16) -> Self {
        self.window = messages;
        self
    }

    /// Sets the most answers to an item.
    #[must_use]
    pub fn answers(mut self, answers: u16) -> Self {
        self.answers = answers;
        self
    }
}

/// An aggregator cannot work as configured. Nothing is left registered but the names of its handlers.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AggregatorError {
    /// An item with its tag does not fit a message.
    #[error("an item takes {needed} bytes of a message, which has {available}")]
    Item {
        /// Bytes of an item, with what tells its way.
        needed: usize,
        /// Bytes of a message.
        available: usize,
    },
    /// The buffers do not fit the memory.
    #[error("{buffers} buffers of {bytes} bytes exceed the aggregator's memory of {memory} bytes")]
    Memory {
        /// Number of buffers.
        buffers: usize,
        /// Bytes of each.
        bytes: usize,
        /// Bytes that they may have together.
        memory: usize,
    },
    /// A number that has to be at least 1 is 0.
    #[error("an aggregator's {what} is at least 1")]
    Zero {
        /// Which number.
        what: &'static str,
    },
    /// The aggregator that is to take the answers belongs to other layers.
    #[error("the answers' aggregator belongs to another endpoint")]
    Foreign,
    /// The handlers could not be registered.
    #[error(transparent)]
    Register(#[from] RegisterError),
}

/// A push or `done` failed. The endpoint stays usable.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AggregateError {
    /// The job has no such rank.
    #[error("no rank {rank} in a job of {ranks} ranks (from 0)")]
    NoSuchRank {
        /// The rank asked for.
        rank: Rank,
        /// Ranks in the job.
        ranks: u32,
    },
    /// The aggregator was registered for another endpoint.
    #[error("the aggregator was registered for another endpoint")]
    Foreign,
    /// The rank has said done, and not all have yet: `done` has failed before, and can be called again.
    #[error("this rank has said done, and has not learned that all have")]
    SaidDone,
    /// A rank that is needed has finished or was lost.
    #[error("rank {rank} is gone{}", .cause.map(|cause| format!(": {cause}")).unwrap_or_default())]
    Gone {
        /// The rank.
        rank: Rank,
        /// How it was lost; `None` if it has finished, or only others know.
        cause: Option<LossCause>,
    },
    /// Items in a message of the rank were refused, here or elsewhere, since no correct rank sends such a message:
    /// not all items can be handled, and the aggregator never ends again. The rank that refused them has learned
    /// more by a handler's error.
    #[error("a message of rank {rank} was refused, so that not all items can be handled")]
    Refused {
        /// The rank that sent the message.
        rank: Rank,
    },
    /// A wait failed, in particular because a rank was lost.
    #[error(transparent)]
    Wait(#[from] WaitError),
}

impl AggregateError {
    /// The rank whose loss made the operation fail and how it was lost, if one did.
    pub fn loss(&self) -> Option<(Rank, LossCause)> {
        match self {
            Self::Gone { rank, cause } => Some((*rank, (*cause)?)),
            Self::Wait(error) => error.loss(),
            _ => None,
        }
    }

    /// The rank whose loss made the operation fail, if one did.
    pub fn lost_rank(&self) -> Option<Rank> {
        self.loss().map(|(rank, _)| rank)
    }
}

impl From<PollError> for AggregateError {
    fn from(error: PollError) -> Self {
        Self::Wait(error.into())
    }
}

/// A message that no correct rank sends, as its handler's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    #[error("{bytes} bytes are no whole number of records of {record} bytes")]
    Length { bytes: usize, record: usize },
    #[error("a message of {bytes} bytes exceeds the aggregator's {most} bytes")]
    TooLong { bytes: usize, most: usize },
    #[error("an item that rank {sender} has sent on from rank {from} for rank {to} has no way from here")]
    Record { to: u32, from: u32, sender: Rank },
    #[error("rank {from} gives back room for {messages} messages, which is more than it was sent")]
    Room { from: Rank, messages: u32 },
    #[error("hop {hop} of an aggregator's items does not lead from rank {from} to here")]
    Way { hop: u32, from: Rank },
    #[error("rank {from} has sent more messages than its window of {window}")]
    Window { from: Rank, window: u16 },
    #[error("rank {from} is not one to say so when aggregators end")]
    Agreement { from: Rank },
    #[error("there is no aggregator {index}")]
    Aggregator { index: u32 },
}
