//! What a near transport says about its peers, in the numbering of the whole job.

use crate::address::Peer;
use crate::arguments::Words;
use crate::payload::Payload;
use crate::transport::{Arrival, Body, Completion, Fill, PendingKey, ReplyPath, ReplyPathGone, Sink};

/// Hands on what a near transport delivers.
pub(super) struct Mapped<'a, S> {
    pub(super) sink: &'a mut S,
    /// The endpoint of the job that each near endpoint is.
    pub(super) up: &'a [Peer],
}

impl<S: Sink> Sink for Mapped<'_, S> {
    #[inline]
    fn request(&mut self, arrival: Arrival<'_>, path: &mut dyn ReplyPath) {
        let from = self.up[arrival.from.index()];
        self.sink.request(Arrival { from, ..arrival }, &mut MappedReplyPath { path, requester: from });
    }

    #[inline]
    fn reply(&mut self, arrival: Arrival<'_>) {
        let from = self.up[arrival.from.index()];
        self.sink.reply(Arrival { from, ..arrival });
    }

    fn control(&mut self, from: Peer, args: &Words, payload: Payload<'_>) {
        self.sink.control(self.up[from.index()], args, payload);
    }

    #[inline]
    fn completed(&mut self, completion: Completion<'_>) {
        self.sink.completed(completion);
    }
}

/// A near transport's way back whose key names the requester as the job does.
pub(super) struct MappedReplyPath<'a> {
    pub(super) path: &'a mut dyn ReplyPath,
    pub(super) requester: Peer,
}

impl ReplyPath for MappedReplyPath<'_> {
    fn bound(&self) -> usize {
        self.path.bound()
    }

    fn segment_len(&self) -> u64 {
        self.path.segment_len()
    }

    fn long_limit(&self) -> u64 {
        self.path.long_limit()
    }

    #[inline]
    fn send(&mut self, handler: u8, args: &Words, body: Body<'_>) -> Result<(), ReplyPathGone> {
        self.path.send(handler, args, body)
    }

    fn check(&self) -> Result<(), ReplyPathGone> {
        self.path.check()
    }

    fn send_filled(
        &mut self,
        handler: u8,
        args: &Words,
        len: usize,
        fill: &mut Fill<'_>,
    ) -> Result<(), ReplyPathGone> {
        self.path.send_filled(handler, args, len, fill)
    }

    fn detach(&mut self) -> PendingKey {
        PendingKey { to: self.requester, ..self.path.detach() }
    }
}
