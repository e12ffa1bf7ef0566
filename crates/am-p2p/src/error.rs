//! What two-sided messages fail with.

use crate::communicator::Tag;
use crate::kind::ElementType;
use crate::machine::{ANY, Failure, MessageInfo};
use am_core::{LossCause, PollError, Rank, SendError, WaitError};
use am_pgas::collectives::CollectiveError;
use std::fmt;

/// A tag as errors tell it: one, or any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedTag(
    /// The tag, or `None` for any.
    pub Option<i32>,
);

impl fmt::Display for AskedTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(tag) => write!(f, "tag {tag}"),
            None => f.write_str("any tag"),
        }
    }
}

impl AskedTag {
    pub(crate) fn of(tag: u32) -> Self {
        Self((tag != ANY).then_some(tag as i32))
    }
}

/// A message was not sent or received. Ranks are those of the job.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The peer of the message is lost. What it sent before can still be received, except for long messages whose
    /// bytes had not come; these may still come to memory of the segment that was to take them. Of a receive from
    /// any source: a member of the communicator whose loss has not been
    /// [acknowledged](crate::Communicator::acknowledge_losses).
    #[error("rank {rank}, the peer of a message with {tag}, is lost: {cause}")]
    Lost {
        /// The lost rank.
        rank: Rank,
        /// The message's tag.
        tag: AskedTag,
        /// How it was lost.
        cause: LossCause,
    },
    /// The peer of the message has left the job and sends and receives nothing more; of a receive from any source,
    /// all other members have.
    #[error("rank {rank}, the peer of a message with {tag}, has finished")]
    Finished {
        /// The rank that has left.
        rank: Rank,
        /// The message's tag.
        tag: AskedTag,
    },
    /// The message is longer than the receive. It is over at its sender, and lost here.
    #[error("message of {bytes} bytes from rank {rank} with {tag} exceeds the receive's {capacity} bytes")]
    Truncated {
        /// The sender.
        rank: Rank,
        /// The message's tag.
        tag: AskedTag,
        /// Bytes of the message.
        bytes: u64,
        /// Bytes that were to be received at most.
        capacity: u64,
    },
    /// The message is shorter than the receive, which takes messages of one length. It is over at its sender, and
    /// lost here.
    #[error(
        "message of {bytes} bytes from rank {rank} with {tag} is shorter than the {needed} bytes of its receive"
    )]
    ShortMessage {
        /// The sender.
        rank: Rank,
        /// The message's tag.
        tag: AskedTag,
        /// Bytes of the message.
        bytes: u64,
        /// Bytes that were to be received.
        needed: u64,
    },
    /// A section is not inside its slice.
    #[error("the section reaches from element {lowest} to {highest} of a slice of {len}")]
    Outside {
        /// The section's first element.
        lowest: i64,
        /// Its last one.
        highest: i64,
        /// Elements of the slice.
        len: u64,
    },
    /// The message cannot come: so many others of its sender wait for receives that the sender may send no more
    /// before one of them is received, and this call waited for none of them. The receive is cancelled.
    #[error(
        "no message with {tag} can come from rank {rank}: {messages} messages of rank {rank} wait for receives, \
         which use up its part of MessageConfig::unexpected, or are as many as a peer may have; receive some of \
         them before"
    )]
    Exhausted {
        /// The sender.
        rank: Rank,
        /// The message's tag.
        tag: AskedTag,
        /// Its messages that wait.
        messages: u32,
    },
    /// The message has other elements than the receive. It is over at its sender, and lost here. A receive of `u8`
    /// takes messages of any type.
    #[error("message of {bytes} bytes from rank {rank} with {tag} has elements of type {sent}, not {expected}")]
    WrongType {
        /// The sender.
        rank: Rank,
        /// The message's tag.
        tag: AskedTag,
        /// Bytes of the message.
        bytes: u64,
        /// Its type.
        sent: ElementType,
        /// The receive's type.
        expected: ElementType,
    },
    /// Memory of the segment that a message is sent from or received to is not in this rank's segment.
    #[error(
        "{bytes} bytes at offset {offset} of rank {rank}'s segment are not in this rank's, rank {me}'s, of \
         {segment} bytes"
    )]
    Place {
        /// Whose segment was named.
        rank: Rank,
        /// The byte offset in it.
        offset: u64,
        /// Bytes from there on.
        bytes: u64,
        /// This rank.
        me: Rank,
        /// Bytes of its segment.
        segment: u64,
    },
    /// A message that an earlier start of a persistent receive began may still be written to its memory, since a
    /// wait for it failed. Goes by itself when that message is over: poll, and start again then.
    #[error(
        "the memory of a receive with {tag} may still be written by the message before: poll, and start again"
    )]
    Landing {
        /// The receive's tag.
        tag: AskedTag,
    },
    /// The communicator has no such member.
    #[error("no rank {member} in a communicator of {size} (from 0)")]
    NoSuchMember {
        /// The position asked for.
        member: u32,
        /// Members of the communicator.
        size: u32,
    },
    /// There is no memory for a message of this length. It is over at its sender, and lost here.
    #[error("no memory for a message of {bytes} bytes from rank {rank} with {tag}")]
    NoMemory {
        /// The sender.
        rank: Rank,
        /// The message's tag.
        tag: AskedTag,
        /// Bytes of the message.
        bytes: u64,
    },
    /// Tags are not negative.
    #[error("tag {tag} is negative")]
    BadTag {
        /// The tag.
        tag: i32,
    },
    /// The communicator was freed, here or at the message's peer.
    #[error("the communicator of a message with {tag} was freed")]
    Freed {
        /// The message's tag.
        tag: AskedTag,
    },
    /// The communicator or request belongs to another endpoint.
    #[error("the communicator or request belongs to another endpoint")]
    Foreign,
    /// Messages are under way, or wait to be received, where there may be none: on this rank, as many as is said,
    /// or where that is none, on another one.
    #[error(
        "messages are under way: {sends} sent and {receives} to be received by this rank, {unasked} without a \
         receive here, or some at another rank; wait for all requests on every rank before"
    )]
    UnderWay {
        /// Messages that this rank sends.
        sends: u64,
        /// Receives of this rank that are not over.
        receives: u64,
        /// Messages that have met no receive at this rank.
        unasked: u64,
    },
    /// A call for all ranks of the job was made through a communicator of fewer.
    #[error("a communicator of {size} of {ranks} ranks, where all have to take part: call it on the world's")]
    NotAllRanks {
        /// Members of the communicator.
        size: u32,
        /// Ranks of the job.
        ranks: u32,
    },
    /// The receive was cancelled.
    #[error("the receive with {tag} was cancelled")]
    Cancelled {
        /// The receive's tag.
        tag: AskedTag,
    },
    /// Buffer and layout do not fit each other, or a buffer and a message do not.
    #[error("{given} element(s) where {needed} are needed")]
    Length {
        /// Elements given.
        given: u64,
        /// Elements needed.
        needed: u64,
    },
    /// A value could not be turned into bytes.
    #[cfg(feature = "serde")]
    #[error("the value of a message to rank {rank} with {tag} cannot be turned into bytes: {source}")]
    Serialize {
        /// The receiver.
        rank: Rank,
        /// The message's tag.
        tag: AskedTag,
        /// What was wrong.
        source: postcard::Error,
    },
    /// The bytes of a message are no value of the receive's type. The message is lost.
    #[cfg(feature = "serde")]
    #[error("message of {bytes} bytes from rank {rank} with {tag} is no value of the receive's type: {source}")]
    Value {
        /// The sender.
        rank: Rank,
        /// The message's tag.
        tag: AskedTag,
        /// Bytes of the message.
        bytes: u64,
        /// What was wrong.
        source: postcard::Error,
    },
    /// The receive's type takes only the first bytes of a message: a value of another type was sent. The message
    /// is lost.
    #[cfg(feature = "serde")]
    #[error(
        "message of {bytes} bytes from rank {rank} with {tag} is no value of the receive's type, which takes \
         {used} bytes of it"
    )]
    LongerValue {
        /// The sender.
        rank: Rank,
        /// The message's tag.
        tag: AskedTag,
        /// Bytes of the message.
        bytes: u64,
        /// Bytes that make a value of the receive's type.
        used: u64,
    },
    /// Making or ending a communicator failed.
    #[error(transparent)]
    Team(#[from] CollectiveError),
    /// A message could not be handed to the network.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The wait failed: the endpoint's time-out ran out. What is under way goes on by itself.
    #[error(transparent)]
    Wait(#[from] WaitError),
}

impl From<PollError> for MessageError {
    fn from(error: PollError) -> Self {
        Self::Wait(error.into())
    }
}

impl MessageError {
    /// The rank whose loss ended the operation and how it was lost, if one did.
    pub fn loss(&self) -> Option<(Rank, LossCause)> {
        match self {
            Self::Lost { rank, cause, .. } => Some((*rank, *cause)),
            Self::Team(error) => error.loss(),
            Self::Send(error) => error.loss(),
            Self::Wait(error) => error.loss(),
            _ => None,
        }
    }

    /// The rank whose loss ended the operation, if one did.
    pub fn lost_rank(&self) -> Option<Rank> {
        self.loss().map(|(rank, _)| rank)
    }

    pub(crate) fn gone(rank: u32, tag: u32, cause: Option<LossCause>) -> Self {
        let (rank, tag) = (Rank(rank), AskedTag::of(tag));
        cause.map_or(Self::Finished { rank, tag }, |cause| Self::Lost { rank, tag, cause })
    }

    pub(crate) fn landing(tag: Tag) -> Self {
        Self::Landing { tag: AskedTag(if let Tag::Is(tag) = tag { Some(tag) } else { None }) }
    }

    pub(crate) fn freed(tag: u32) -> Self {
        Self::Freed { tag: AskedTag::of(tag) }
    }

    /// Of a failure with a message from or to a rank.
    pub(crate) fn of(failure: Failure, info: MessageInfo, expected: u32, capacity: u64) -> Self {
        let MessageInfo { from, tag, len: bytes, .. } = info;
        let (rank, told) = (Rank(from), AskedTag::of(tag));
        match failure {
            Failure::Gone(cause) => Self::gone(from, tag, cause),
            Failure::Truncated => Self::Truncated { rank, tag: told, bytes, capacity },
            Failure::WrongType(sent) => {
                let (sent, expected) = (ElementType::from_number(sent), ElementType::from_number(expected));
                Self::WrongType { rank, tag: told, bytes, sent, expected }
            }
            Failure::Freed => Self::Freed { tag: told },
            Failure::NoMemory => Self::NoMemory { rank, tag: told, bytes },
        }
    }
}
