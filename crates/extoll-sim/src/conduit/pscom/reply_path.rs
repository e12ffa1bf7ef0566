//! The way back of a request: its one reply, or a bare credit.

use super::frame::Kind;
use super::transport::Pscom;
use am_core::transport::{
    Body, Buffer, Category, Fill, PendingKey, ReplyBound, ReplyPath, ReplyPathGone, Transport,
};
use am_core::{Peer, Rank, Words};

/// The way back to a requester.
pub(super) struct ConduitReplyPath<'p, 'a> {
    transport: &'p mut Pscom<'a>,
    to: u32,
    bound: ReplyBound,
    /// Whether the request still has to be counted as handled.
    uncounted: bool,
    used: bool,
}

impl<'p, 'a> ConduitReplyPath<'p, 'a> {
    /// The way back of a request that is being handled.
    pub(super) fn of_request(transport: &'p mut Pscom<'a>, to: u32, bound: ReplyBound) -> Self {
        Self { transport, to, bound, uncounted: true, used: false }
    }

    /// A way back that was detached.
    pub(super) fn of_key(transport: &'p mut Pscom<'a>, key: PendingKey) -> Self {
        let bound = ReplyBound::from_tag(key.tag);
        Self { transport, to: key.to.0, bound, uncounted: false, used: false }
    }

    /// Counts the request as handled, before the reply tells so.
    fn count(&mut self) {
        if std::mem::take(&mut self.uncounted) {
            self.transport.peer(self.to).account.handled();
        }
    }

    fn check(&self) -> Result<(), ReplyPathGone> {
        self.transport.last_status(self.to).active().map_err(|_| ReplyPathGone)
    }

    fn reply(
        &mut self,
        (category, handler, args, offset): (Category, u8, &Words, u64),
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), ReplyPathGone> {
        self.check()?;
        self.used = true;
        let mut body = self.transport.compose(Kind::Reply(category), handler, args, offset);
        fill(&mut body);
        self.count();
        self.transport.dispatch(self.to, body);
        Ok(())
    }
}

impl ReplyPath for ConduitReplyPath<'_, '_> {
    fn bound(&self) -> usize {
        self.bound.bytes()
    }

    fn segment_len(&self) -> u64 {
        self.transport.segment_len(Rank(self.to))
    }

    fn long_limit(&self) -> u64 {
        self.transport.limits(Peer(self.to)).long
    }

    fn send(&mut self, handler: u8, args: &Words, body: Body<'_>) -> Result<(), ReplyPathGone> {
        let (payload, at) = body.parts();
        let inside = match body {
            Body::None => true,
            Body::Copy(payload) => payload.len() <= self.bound(),
            Body::Place(payload, at) => {
                at.checked_add(payload.len() as u64).is_some_and(|end| end <= self.segment_len())
            }
        };
        assert!(inside, "the core checks the bound and the range of a reply");
        self.reply((body.category(), handler, args, at), |frame| frame.extend_from_slice(payload))
    }

    fn send_filled(
        &mut self,
        handler: u8,
        args: &Words,
        len: usize,
        fill: &mut Fill<'_>,
    ) -> Result<(), ReplyPathGone> {
        assert!(len <= self.bound(), "the core checks the bound of a reply");
        self.reply((Category::Medium, handler, args, 0), |body| {
            let at = body.len();
            body.resize(at + len, 0);
            fill(&mut Buffer(&mut body[at..]));
        })
    }

    fn detach(&mut self) -> PendingKey {
        self.used = true;
        PendingKey::new(Peer(self.to), self.bound.to_tag())
    }
}

impl Drop for ConduitReplyPath<'_, '_> {
    fn drop(&mut self) {
        self.count();
        if !self.used && self.bound != ReplyBound::None {
            self.transport.count_bare();
            self.transport.peer(self.to).account.bare();
        }
        self.transport.tell_if_due(self.to);
    }
}
