//! The errors of an endpoint, one type per operation. Whatever fails has sent nothing and left the endpoint
//! usable.

use crate::address::{Address, Rank};
use crate::outcome::HandlerFailure;
use crate::segment::SegmentError;
use crate::stall::StallReport;
use crate::token::PendingReply;
use crate::transport::{Category, LossCause, Resource};
use std::collections::VecDeque;
use std::fmt;

/// A request was not sent.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The destination is not part of the job.
    #[error("no rank {to} in a job of {ranks} ranks (from 0) with {endpoints} endpoint(s) each")]
    NoSuchEndpoint {
        /// Destination asked for.
        to: Address,
        /// Ranks in the job.
        ranks: u32,
        /// Endpoints of every rank.
        endpoints: u16,
    },
    /// The handler was registered in another table than the endpoint's.
    #[error("handler {handler} was registered in another handler table")]
    ForeignHandler {
        /// Index of the handler in its own table.
        handler: u8,
    },
    /// The payload exceeds the limit for this peer, category and number of arguments.
    #[error(
        "payload of {len} bytes exceeds the {limit}-byte limit for {category} requests to rank {to}: send it in pieces{}",
        if *category == Category::Long { "" } else { ", or into the segment with request_long" }
    )]
    PayloadTooLarge {
        /// Bytes given.
        len: usize,
        /// Bytes allowed.
        limit: u64,
        /// The message's category.
        category: Category,
        /// Destination.
        to: Address,
    },
    /// The destination range of a Long request is not inside the peer's segment.
    #[error(
        "long request to rank {to}: {len} bytes at offset {offset} lie outside its segment of {segment} bytes{}",
        if *segment == 0 { "; segments have no bytes by default, JoinOptions::segment_bytes asks for some" } else { "" }
    )]
    OutsideSegment {
        /// Bytes given.
        len: usize,
        /// Offset asked for, in bytes.
        offset: u64,
        /// Size of the destination's segment in bytes.
        segment: u64,
        /// Destination.
        to: Address,
    },
    /// A request asks for larger replies than its handler or the transport allows.
    #[error(
        "requests to '{handler}' allow replies of at most {limit} bytes, not {bound}: declare more with request_bounded"
    )]
    ReplyBound {
        /// Name of the handler.
        handler: String,
        /// Bytes asked for.
        bound: u32,
        /// Bytes allowed.
        limit: u32,
    },
    /// A `try_` form found a resource used up. Poll and try again.
    #[error("sending to rank {to} would block: no {resource} left")]
    WouldBlock {
        /// Destination.
        to: Address,
        /// What is missing.
        resource: Resource,
    },
    /// The destination ended properly and takes no more messages.
    #[error("rank {to} has finished")]
    Finished {
        /// Destination.
        to: Address,
    },
    /// Waiting for room failed, or the destination is lost.
    #[error(transparent)]
    Wait(#[from] WaitError),
}

/// Serving incoming messages found something wrong.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PollError {
    /// A peer was lost; told once by `poll`, again by every wait until it is acknowledged.
    #[error("rank {rank} is lost: {cause}")]
    PeerLost {
        /// The lost rank.
        rank: Rank,
        /// How it was lost.
        cause: LossCause,
    },
    /// A peer named a handler, category or argument count that the shared table does not have. The frame was
    /// dropped and its credit returned.
    #[error("message from rank {from} for handler {handler} was dropped: {reason}")]
    BadMessage {
        /// The sender.
        from: Address,
        /// The handler index it named.
        handler: u8,
        /// What did not fit.
        reason: BadMessage,
    },
    /// A handler of this endpoint returned an error. Its message counts as handled, and so do all others of the
    /// poll; if several handlers failed in one poll, this is the first, and [`Statistics`](crate::Statistics)
    /// counts them all.
    #[error("{0}")]
    Handler(Box<HandlerFailure>),
    /// A layer could not send what its handlers had left to it.
    #[error("a layer could not send: {0}")]
    Progress(Box<SendError>),
}

/// Why a delivered message was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadMessage {
    /// No handler of that index.
    #[error("no such handler")]
    UnknownHandler,
    /// The number of arguments does not fit the handler.
    #[error("it came with {words} argument words, which do not fit the handler")]
    WrongArguments {
        /// Words received.
        words: usize,
    },
}

/// A wait ended without what it waited for.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// Serving incoming messages found something wrong.
    #[error(transparent)]
    Poll(#[from] PollError),
    /// Another endpoint called something else of all endpoints, such as an allocation in all segments, while this
    /// one was in a barrier. The next such call begins anew.
    #[error("a barrier met another collective call of another endpoint: all have to call the same")]
    OtherCall,
    /// The deadline or the endpoint's time-out ran out.
    #[error("timed out: {0}")]
    TimedOut(Box<StallReport>),
}

impl PollError {
    /// Keeps an error until it is told: the first of messages, and the first of layers.
    pub(crate) fn keep(self, kept: &mut VecDeque<Self>) {
        let of_layer = |error: &Self| matches!(error, Self::Progress(_));
        if kept.iter().all(|other| of_layer(other) != of_layer(&self)) {
            kept.push_back(self);
        }
    }

    /// The rank that is lost and how, if that is what was found.
    pub fn loss(&self) -> Option<(Rank, LossCause)> {
        match self {
            Self::PeerLost { rank, cause } => Some((*rank, *cause)),
            Self::Progress(error) => error.loss(),
            Self::BadMessage { .. } | Self::Handler(_) => None,
        }
    }
}

impl WaitError {
    /// The rank whose loss ended the wait and how it was lost, if one did.
    pub fn loss(&self) -> Option<(Rank, LossCause)> {
        match self {
            Self::Poll(error) => error.loss(),
            Self::TimedOut(_) | Self::OtherCall => None,
        }
    }

    /// The rank whose loss ended the wait, if one did.
    pub fn lost_rank(&self) -> Option<Rank> {
        self.loss().map(|(rank, _)| rank)
    }
}

impl SendError {
    /// The rank whose loss made sending fail and how it was lost, if one did.
    pub fn loss(&self) -> Option<(Rank, LossCause)> {
        match self {
            Self::Wait(wait) => wait.loss(),
            _ => None,
        }
    }

    /// The rank whose loss made sending fail, if one did.
    pub fn lost_rank(&self) -> Option<Rank> {
        self.loss().map(|(rank, _)| rank)
    }
}

/// A reply was not sent.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// The handler was registered in another table than the endpoint's.
    #[error("handler {handler} was registered in another handler table")]
    ForeignHandler {
        /// Index of the handler in its own table.
        handler: u8,
    },
    /// The payload exceeds what the request handler's declaration set aside.
    #[error(
        "payload of {len} bytes exceeds the {bound}-byte bound for replies to this request: register its handler with \
         request_bounded, or reply_long"
    )]
    PayloadTooLarge {
        /// Bytes given.
        len: usize,
        /// Bytes allowed.
        bound: usize,
    },
    /// The destination range of a Long reply is not inside the requester's segment.
    #[error("long reply to rank {to}: {source}")]
    OutsideSegment {
        /// The requester.
        to: Address,
        /// The range and the segment's size.
        source: SegmentError,
    },
    /// The payload of a Long reply exceeds what the transport carries to the requester in one message.
    #[error(
        "payload of {len} bytes exceeds the {limit}-byte limit for long replies to rank {to}: send it in pieces"
    )]
    LongTooLarge {
        /// Bytes given.
        len: u64,
        /// Bytes that one message carries.
        limit: u64,
        /// The requester.
        to: Address,
    },
    /// The requester is lost or has finished.
    #[error("rank {to} is gone and takes no reply")]
    Gone {
        /// The requester.
        to: Address,
    },
}

/// A reply that was refused, with the token or pending reply to try again with.
#[derive(Debug)]
#[non_exhaustive]
pub struct Rejected<K> {
    /// What was wrong.
    pub error: ReplyError,
    /// The unused permission to reply.
    pub token: K,
}

impl<K> fmt::Display for Rejected<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

// Not for tokens: a handler's error is made of them in another way, and coherence lets only one be.
impl std::error::Error for Rejected<PendingReply> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// What a layer's handler finds wrong with a message of its own kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct HandlerFault(pub(crate) &'static str);

/// A handler could not be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// All 256 handlers of a direction are taken, or as many of them as a range needs.
    #[error("handler '{name}' does not fit: a table holds 256 request handlers and 256 reply handlers")]
    TableFull {
        /// Name of the handler that did not fit.
        name: String,
    },
    /// Names identify handlers across ranks and are unique.
    #[error("a handler named '{name}' is already registered")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// Names are 1 to 64 bytes without control characters.
    #[error("handler name {name:?} is not 1 to 64 bytes of printable text")]
    BadName {
        /// The name.
        name: String,
    },
}

/// An endpoint could not join its job.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// Two ranks registered different handlers.
    #[error("handler tables differ at handler {index}: rank {a} has {in_a}, rank {b} has {in_b}")]
    TablesDiffer {
        /// A rank with one table.
        a: Address,
        /// A rank with another.
        b: Address,
        /// First handler index that differs.
        index: usize,
        /// What the first rank registered there.
        in_a: String,
        /// What the second rank registered there.
        in_b: String,
    },
    /// A handler declares larger replies than the transport can carry.
    #[error("handler '{name}' declares replies of up to {bound} bytes, the limit towards rank {to} is {limit}")]
    ReplyBound {
        /// The handler.
        name: String,
        /// Declared bytes.
        bound: u32,
        /// Allowed bytes.
        limit: usize,
        /// The peer with that limit.
        to: Address,
    },
    /// Waiting for the other ranks failed.
    #[error("attaching failed: {0}")]
    Wait(#[from] WaitError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_remedy() {
        let to = Address::from(Rank(9));
        let too_large = |category| SendError::PayloadTooLarge { len: 10, limit: 5, category, to }.to_string();
        let outside = |segment| SendError::OutsideSegment { len: 1, offset: 64, segment, to }.to_string();
        let ranks = SendError::NoSuchEndpoint { to, ranks: 3, endpoints: 1 }.to_string();
        for (text, remedy) in [
            (too_large(Category::Medium), "to rank 9: send it in pieces, or into the segment with request_long"),
            (too_large(Category::Long), "to rank 9: send it in pieces"),
            (
                outside(0),
                "outside its segment of 0 bytes; segments have no bytes by default, JoinOptions::segment_bytes asks for some",
            ),
            (outside(64), "outside its segment of 64 bytes"),
            (
                ReplyError::PayloadTooLarge { len: 10, bound: 5 }.to_string(),
                "register its handler with request_bounded, or reply_long",
            ),
            (LossCause::Left.to_string(), "neither Endpoint::finish nor leave)"),
        ] {
            assert!(text.ends_with(remedy), "{text}");
        }
        assert!(ranks.starts_with("no rank 9 in a job of 3 ranks"), "{ranks}");
    }
}
