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

/// A message's peer as errors tell it: one rank, or any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedRank(
    /// The rank, or `None` for any.
    pub Option<Rank>,
);

impl fmt::Display for AskedRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(rank) => write!(f, "rank {rank}"),
            None => f.write_str("any rank"),
        }
    }
}

impl AskedRank {
    pub(crate) fn of(rank: u32) -> Self {
        Self((rank != ANY).then_some(Rank(rank)))
    }
}

/// The length of a message as errors tell it: that of the message, where it is known, or what its receive takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskedBytes {
    /// Bytes of the message.
    Are(u64),
    /// Bytes that were to be received at most, of a receive that has met no message.
    AtMost(u64),
    /// It was to be received, or looked for, whatever its length.
    Any,
}

impl fmt::Display for AskedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Are(bytes) => write!(f, "{bytes} bytes"),
            Self::AtMost(bytes) => write!(f, "at most {bytes} bytes"),
            Self::Any => f.write_str("any length"),
        }
    }
}

impl AskedBytes {
    /// Of a receive that has met no message.
    pub(crate) fn at_most(capacity: u64) -> Self {
        if capacity == u64::MAX { Self::Any } else { Self::AtMost(capacity) }
    }
}

/// What a member was asked for: in the words of an error, behind what is wrong with it.
fn asked_for(tag: &Option<AskedTag>) -> String {
    tag.map_or_else(
        || ", as the root of a collective operation".to_owned(),
        |tag| format!(", for a message with {tag}"),
    )
}

/// A message was not sent or received. Ranks are those of the job.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The peer of the message is lost. What it sent before can still be received, except for long messages whose
    /// bytes had not come; these may still come to memory of the segment that was to take them. Of a receive from
    /// any source: a member of the communicator whose loss has not been
    /// [acknowledged](crate::Communicator::acknowledge_losses).
    #[error("rank {rank}, the peer of a message of {bytes} with {tag}, is lost: {cause}")]
    Lost {
        /// The lost rank.
        rank: Rank,
        /// The message's tag.
        tag: AskedTag,
        /// Its length.
        bytes: AskedBytes,
        /// How it was lost.
        cause: LossCause,
    },
    /// The peer of the message has left the job and sends and receives nothing more; of a receive from any source,
    /// all other members have.
    #[error("rank {rank}, the peer of a message of {bytes} with {tag}, has finished")]
    Finished {
        /// The rank that has left.
        rank: Rank,
        /// The message's tag.
        tag: AskedTag,
        /// Its length.
        bytes: AskedBytes,
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
    #[error("no rank {member} in a communicator of {size} (from 0){}", asked_for(tag))]
    NoSuchMember {
        /// The position asked for.
        member: u32,
        /// Members of the communicator.
        size: u32,
        /// The message's tag; `None` of a collective operation's root.
        tag: Option<AskedTag>,
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
    #[error("the communicator of a message of {bytes} with {tag}, whose peer is {rank}, was freed")]
    Freed {
        /// The message's peer.
        rank: AskedRank,
        /// The message's tag.
        tag: AskedTag,
        /// Its length.
        bytes: AskedBytes,
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
    #[error("the receive of {bytes} with {tag} from {rank} was cancelled")]
    Cancelled {
        /// Whom the message was to come from.
        rank: AskedRank,
        /// The receive's tag.
        tag: AskedTag,
        /// What was to be received.
        bytes: AskedBytes,
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

    pub(crate) fn gone(rank: u32, tag: u32, bytes: AskedBytes, cause: Option<LossCause>) -> Self {
        let (rank, tag) = (Rank(rank), AskedTag::of(tag));
        cause.map_or(Self::Finished { rank, tag, bytes }, |cause| Self::Lost { rank, tag, bytes, cause })
    }

    pub(crate) fn landing(tag: Tag) -> Self {
        Self::Landing { tag: AskedTag(if let Tag::Is(tag) = tag { Some(tag) } else { None }) }
    }

    pub(crate) fn freed(rank: u32, tag: u32, bytes: AskedBytes) -> Self {
        Self::Freed { rank: AskedRank::of(rank), tag: AskedTag::of(tag), bytes }
    }

    /// Of a failure with a message from or to a rank: a known one, or one that a receive of `capacity` bytes has
    /// not met.
    pub(crate) fn of(failure: Failure, (info, known): (MessageInfo, bool), expected: u32, capacity: u64) -> Self {
        let MessageInfo { from, tag, len: bytes, .. } = info;
        let (rank, told) = (Rank(from), AskedTag::of(tag));
        let asked = if known { AskedBytes::Are(bytes) } else { AskedBytes::at_most(capacity) };
        match failure {
            Failure::Gone(cause) => Self::gone(from, tag, asked, cause),
            Failure::Truncated => Self::Truncated { rank, tag: told, bytes, capacity },
            Failure::WrongType(sent) => {
                let (sent, expected) = (ElementType::from_number(sent), ElementType::from_number(expected));
                Self::WrongType { rank, tag: told, bytes, sent, expected }
            }
            Failure::Freed => Self::freed(from, tag, asked),
            Failure::NoMemory => Self::NoMemory { rank, tag: told, bytes },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each of them names rank, tag and sizes, as far as they are known.
    #[test]
    fn texts_name_rank_tag_and_sizes() {
        let (rank, tag, any) = (Rank(2), AskedTag(Some(7)), AskedTag(None));
        let told = |error: MessageError, text: &str| assert_eq!(error.to_string(), text);
        for (bytes, words) in [
            (AskedBytes::Are(12), "12 bytes"),
            (AskedBytes::at_most(40), "at most 40 bytes"),
            (AskedBytes::at_most(u64::MAX), "any length"),
        ] {
            let lost = MessageError::Lost { rank, tag, bytes, cause: LossCause::Died };
            told(lost, &format!("rank 2, the peer of a message of {words} with tag 7, is lost: its process died"));
            let finished = MessageError::Finished { rank, tag: any, bytes };
            told(finished, &format!("rank 2, the peer of a message of {words} with any tag, has finished"));
            let cancelled = MessageError::Cancelled { rank: AskedRank::of(2), tag, bytes };
            told(cancelled, &format!("the receive of {words} with tag 7 from rank 2 was cancelled"));
            let freed = MessageError::freed(ANY, 7, bytes);
            let text =
                format!("the communicator of a message of {words} with tag 7, whose peer is any rank, was freed");
            told(freed, &text);
        }
        let outside = |tag| MessageError::NoSuchMember { member: 9, size: 4, tag };
        told(outside(Some(tag)), "no rank 9 in a communicator of 4 (from 0), for a message with tag 7");
        let root = "no rank 9 in a communicator of 4 (from 0), as the root of a collective operation";
        told(outside(None), root);
        let truncated = MessageError::Truncated { rank, tag, bytes: 9, capacity: 8 };
        told(truncated, "message of 9 bytes from rank 2 with tag 7 exceeds the receive's 8 bytes");
        let short = MessageError::ShortMessage { rank, tag, bytes: 4, needed: 8 };
        told(short, "message of 4 bytes from rank 2 with tag 7 is shorter than the 8 bytes of its receive");
        let (sent, expected) = (ElementType::of::<u32>(), ElementType::of::<f32>());
        let wrong = MessageError::WrongType { rank, tag, bytes: 4, sent, expected };
        told(
            wrong,
            &format!("message of 4 bytes from rank 2 with tag 7 has elements of type {sent}, not {expected}"),
        );
        let none = MessageError::NoMemory { rank, tag, bytes: 1 << 50 };
        told(none, "no memory for a message of 1125899906842624 bytes from rank 2 with tag 7");
    }

    /// A failure of a receive tells the length of the message that it has met, or what it takes.
    #[test]
    fn receives_tell_what_they_know() {
        let info = MessageInfo { from: 2, tag: 7, len: 12, kind: 0 };
        let of = |known| MessageError::of(Failure::Gone(None), (info, known), 0, 40);
        let finished = |bytes| MessageError::Finished { rank: Rank(2), tag: AskedTag(Some(7)), bytes };
        assert_eq!(of(true), finished(AskedBytes::Are(12)));
        assert_eq!(of(false), finished(AskedBytes::AtMost(40)));
    }
}
