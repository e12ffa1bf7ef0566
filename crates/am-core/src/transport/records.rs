//! How the records of the contract are made outside this crate: they may get further fields, so nobody lists all
//! of them.

use super::{Arrival, Category, CreditSnapshot, NullReplyPath, Owed, PendingKey, ReplyBound, RequestHeader};
use crate::address::Peer;
use crate::arguments::Words;
use crate::payload::Payload;

impl RequestHeader {
    /// A request for the handler with this index, whose reply is no larger than `reply`.
    #[inline]
    pub const fn new(handler: u8, reply: ReplyBound) -> Self {
        Self { handler, reply }
    }
}

impl<'a> Arrival<'a> {
    /// What has come from this peer for the handler with this index.
    #[inline]
    pub const fn new(from: Peer, category: Category, handler: u8, args: &'a Words, payload: Payload<'a>) -> Self {
        Self { from, category, handler, args, payload }
    }
}

impl CreditSnapshot {
    /// Sets free frames and free payload bytes of the request lane.
    #[must_use]
    pub const fn requests(mut self, frames: u64, bytes: u64) -> Self {
        (self.request_frames, self.request_bytes) = (frames, bytes);
        self
    }

    /// Sets the frames and payload bytes that can still be set aside for replies.
    #[must_use]
    pub const fn replies(mut self, frames: u64, bytes: u64) -> Self {
        (self.reply_frames, self.reply_bytes) = (frames, bytes);
        self
    }
}

impl Owed {
    /// Whether a request has not been handled there, and how many have got neither reply nor credit.
    pub const fn new(handling: bool, replies: u64) -> Self {
        Self { handling, replies, or_more: false }
    }

    /// Says that there may be more replies to come than those counted.
    #[must_use]
    pub const fn or_more(mut self, more: bool) -> Self {
        self.or_more = more;
        self
    }
}

impl PendingKey {
    /// The way back to a requester, which the transport finds by the tag.
    #[inline]
    pub const fn new(to: Peer, tag: u64) -> Self {
        Self { to, tag }
    }
}

impl NullReplyPath {
    /// No way back; [`ReplyPath::detach`](super::ReplyPath::detach) returns `key`.
    #[inline]
    pub const fn new(bound: usize, segment_len: u64, key: PendingKey) -> Self {
        Self { bound, segment_len, key }
    }
}
