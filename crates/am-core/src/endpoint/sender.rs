//! What sending needs besides the transport: shared by the endpoint's own forms and by those of the progress
//! functions.

use super::recent::Recent;
use crate::Words;
use crate::address::{Address, Peer, Rank, Shape};
use crate::arguments::{Arguments, encode};
use crate::error::{PollError, Rejected, ReplyError, SendError};
use crate::handlers::{Directory, Reply, Request, bound_of};
use crate::segment::SegmentError;
use crate::stats::Statistics;
use crate::supervision;
use crate::time::Instant;
use crate::token::{Abandoned, Message, PendingReply, send};
use crate::transport::{
    Body, Category, Lane, Lent, LentFault, Limits, PeerStatus, PendingKey, Refused, ReplyBound, ReplyPath,
    RequestHeader, Transport,
};
use std::ops::Range;
use std::sync::Arc;

/// The part of a transport that progress functions send through, of any transport.
pub(crate) trait Link {
    fn send_frame(&mut self, to: Peer, head: RequestHeader, args: &Words, body: Body<'_>) -> Result<(), Refused>;
    fn answer_with(&mut self, key: PendingKey, reply: &mut dyn FnMut(&mut dyn ReplyPath));
    fn limits_of(&self, peer: Peer) -> &Limits;
    fn segment_of(&self, rank: Rank) -> u64;
    fn status_of(&self, peer: Peer) -> PeerStatus;
    fn time(&self) -> Instant;
    fn has_own_processor(&self) -> bool;
    fn wake(&mut self, peer: Peer);
    fn losses_so_far(&self) -> u32;
    fn read_lent_of(&mut self, peer: Peer, lent: &Lent, at: u64, out: &mut [u8]) -> Result<(), LentFault>;
    fn read_mapped(&self, rank: Rank, own: bool, offset: u64, out: &mut [u8]) -> Option<Result<(), SegmentError>>;
    /// Copies bytes of the own segment into that of `rank`.
    fn copy_mapped(
        &self,
        rank: Rank,
        own: bool,
        from: Range<u64>,
        offset: u64,
    ) -> Option<Result<(), SegmentError>>;
}

impl<T: Transport> Link for T {
    #[inline(always)]
    fn send_frame(&mut self, to: Peer, head: RequestHeader, args: &Words, body: Body<'_>) -> Result<(), Refused> {
        self.send(to, head, args, body)
    }

    #[inline]
    fn answer_with(&mut self, key: PendingKey, reply: &mut dyn FnMut(&mut dyn ReplyPath)) {
        self.reply_detached(key, reply);
    }

    #[inline(always)]
    fn limits_of(&self, peer: Peer) -> &Limits {
        self.limits(peer)
    }

    #[inline(always)]
    fn segment_of(&self, rank: Rank) -> u64 {
        self.segment_len(rank)
    }

    #[inline]
    fn status_of(&self, peer: Peer) -> PeerStatus {
        self.status(peer)
    }

    #[inline]
    fn has_own_processor(&self) -> bool {
        self.spins()
    }

    #[inline]
    fn time(&self) -> Instant {
        self.now()
    }

    #[inline]
    fn wake(&mut self, peer: Peer) {
        self.wake_peer(peer);
    }

    #[inline]
    fn losses_so_far(&self) -> u32 {
        self.losses()
    }

    fn read_lent_of(&mut self, peer: Peer, lent: &Lent, at: u64, out: &mut [u8]) -> Result<(), LentFault> {
        self.read_lent(peer, lent, at, out)
    }

    fn read_mapped(&self, rank: Rank, own: bool, offset: u64, out: &mut [u8]) -> Option<Result<(), SegmentError>> {
        let segment = if own { Some(self.segment()) } else { self.remote_segment(rank) };
        segment.map(|segment| segment.read(offset, out))
    }

    fn copy_mapped(
        &self,
        rank: Rank,
        own: bool,
        from: Range<u64>,
        offset: u64,
    ) -> Option<Result<(), SegmentError>> {
        let to = if own { self.segment() } else { self.remote_segment(rank)? };
        let bytes = from.end.saturating_sub(from.start);
        // More than an address space holds is outside any segment.
        Some(self.segment().copy_to(from.start, to, offset, usize::try_from(bytes).unwrap_or(usize::MAX)))
    }
}

/// What an endpoint knows when it sends: its handlers, its place in the job, and its accounts.
pub(crate) struct Sender {
    pub(crate) me: Address,
    pub(crate) shape: Shape,
    pub(super) directory: Directory,
    pub(super) stats: Statistics,
    pub(super) recent: Recent,
    pub(super) abandoned: Arc<Abandoned>,
    /// The losses that the supervisor has been told of.
    pub(super) losses_told: Vec<Rank>,
}

impl Sender {
    /// Tells the supervisor that the program is about to learn of a loss: once for each, however often the program
    /// learns of it.
    #[cold]
    pub(super) fn tell_loss(&mut self, rank: Rank) {
        if !self.losses_told.contains(&rank) {
            self.losses_told.push(rank);
            supervision::tell(self.me, supervision::Event::LossTold(rank));
        }
    }

    /// The peer of an address and the head of a request to it, after checking both.
    #[inline]
    pub(super) fn prepare<L: Link + ?Sized, A>(
        &self,
        link: &L,
        to: Address,
        handler: Request<A>,
    ) -> Result<(Peer, RequestHeader), SendError> {
        let Some(peer) = self.shape.peer(to) else {
            return Err(self.no_such_endpoint(to));
        };
        if handler.table() != self.directory.serial {
            return Err(SendError::ForeignHandler { handler: handler.index() });
        }
        let mut reply = self.directory.bounds[usize::from(handler.index())];
        if let Some(asked) = handler.own_bound() {
            reply = self.own_bound(link, peer, handler.index(), asked)?;
        }
        Ok((peer, RequestHeader { handler: handler.index(), reply }))
    }

    /// The largest Medium reply in bytes that a request may have; `None` if it has none.
    pub(crate) fn reply_bound<A>(&self, handler: Request<A>) -> Option<u32> {
        if handler.table() != self.directory.serial {
            return None;
        }
        match self.directory.bounds[usize::from(handler.index())] {
            ReplyBound::UpTo(bytes) => Some(handler.own_bound().map_or(bytes, |own| own.min(bytes))),
            ReplyBound::None => None,
        }
    }

    /// The bound of a request that asks for another than its handler declares.
    #[cold]
    fn own_bound<L: Link + ?Sized>(
        &self,
        link: &L,
        peer: Peer,
        handler: u8,
        asked: u32,
    ) -> Result<ReplyBound, SendError> {
        let declared = self.directory.bounds[usize::from(handler)];
        let ReplyBound::UpTo(most) = declared else { return Ok(declared) };
        let limit = most.min(u32::try_from(link.limits_of(peer).medium_reply).unwrap_or(u32::MAX));
        if asked > limit {
            let handler = self.directory.name(Lane::Request, handler);
            return Err(SendError::ReplyBound { handler, bound: asked, limit });
        }
        Ok(bound_of(declared, asked))
    }

    #[cold]
    fn no_such_endpoint(&self, to: Address) -> SendError {
        SendError::NoSuchEndpoint { to, ranks: self.shape.ranks, endpoints: self.shape.endpoints }
    }

    /// Checks a payload's size, and the range that a Long one is placed in.
    #[inline(always)]
    pub(super) fn check<L: Link + ?Sized>(
        &self,
        link: &L,
        peer: Peer,
        to: Address,
        words: usize,
        body: &Body<'_>,
    ) -> Result<(), SendError> {
        let (len, category) = (body.len(), body.category());
        match *body {
            Body::None => Ok(()),
            Body::Copy(_) => self.check_medium(link, peer, to, words, len),
            Body::Place(_, offset) => {
                let limit = link.limits_of(peer).long;
                if len as u64 > limit {
                    return Err(SendError::PayloadTooLarge { len, limit, category, to });
                }
                let segment = link.segment_of(to.rank);
                if offset.checked_add(len as u64).is_none_or(|end| end > segment) {
                    return Err(SendError::OutsideSegment { len, offset, segment, to });
                }
                Ok(())
            }
        }
    }

    #[inline]
    pub(super) fn check_medium<L: Link + ?Sized>(
        &self,
        link: &L,
        peer: Peer,
        to: Address,
        words: usize,
        len: usize,
    ) -> Result<(), SendError> {
        let limit = link.limits_of(peer).max_payload(Category::Medium, Lane::Request, words);
        if len as u64 > limit {
            return Err(SendError::PayloadTooLarge { len, limit, category: Category::Medium, to });
        }
        Ok(())
    }

    pub(crate) fn max_payload<L: Link + ?Sized>(
        &self,
        link: &L,
        to: Address,
        category: Category,
        lane: Lane,
        arguments: usize,
    ) -> Option<u64> {
        let limit = link.limits_of(self.shape.peer(to)?).max_payload(category, lane, arguments);
        Some(if category == Category::Long { limit.min(link.segment_of(to.rank)) } else { limit })
    }

    /// Sends a request of any category if there is room. Does not block or allocate.
    #[inline(always)]
    pub(crate) fn try_send<L: Link + ?Sized, A: Arguments>(
        &mut self,
        link: &mut L,
        to: Address,
        handler: Request<A>,
        args: &A,
        body: Body<'_>,
    ) -> Result<(), SendError> {
        let (peer, head) = self.prepare(link, to, handler)?;
        let words = encode(args);
        self.check(link, peer, to, words.len(), &body)?;
        self.recent.note(peer, head);
        match link.send_frame(peer, head, &words, body) {
            Ok(()) => {
                self.stats.requests_sent[body.category() as usize].count(body.len());
                Ok(())
            }
            Err(refused) => {
                self.recent.take_back(head.reply);
                Err(self.denied(to, refused))
            }
        }
    }

    /// The error of a refusal.
    #[cold]
    pub(super) fn denied(&mut self, to: Address, refused: Refused) -> SendError {
        match refused {
            Refused::Busy(resource) => {
                self.stats.stall(resource);
                SendError::WouldBlock { to, resource }
            }
            Refused::Gone(status) => self.gone(to, status),
        }
    }

    /// The error of a request to a peer that takes no more messages.
    #[cold]
    pub(super) fn gone(&mut self, to: Address, status: PeerStatus) -> SendError {
        let PeerStatus::Lost(cause) = status else { return SendError::Finished { to } };
        self.tell_loss(to.rank);
        SendError::Wait(PollError::PeerLost { rank: to.rank, cause }.into())
    }

    /// Answers a detached request.
    pub(crate) fn answer<L: Link + ?Sized, A: Arguments>(
        &mut self,
        link: &mut L,
        mut pending: PendingReply,
        handler: Reply<A>,
        args: &A,
        message: Message<'_>,
    ) -> Result<(), Rejected<PendingReply>> {
        let to = pending.source();
        if !pending.belongs_to(&self.abandoned) {
            let error = ReplyError::ForeignHandler { handler: handler.index() };
            return Err(Rejected { error, token: pending });
        }
        let (same_table, bound) = (handler.table() == pending.table(), pending.bound());
        let words = encode(args);
        let (mut message, mut outcome) = (Some(message), Ok(()));
        link.answer_with(pending.key(), &mut |path| {
            let Some(message) = message.take() else { return };
            let sent = send(path, to, same_table, bound, handler.index(), &words, message);
            outcome = sent.map_err(|error| (error, path.detach()));
        });
        match outcome {
            Ok(()) => {
                pending.set_key(None);
                self.stats.replies_sent += 1;
                // A handler that unwound after it had detached its token was not counted.
                let tally = &mut self.directory.tallies[usize::from(pending.handler())];
                tally.detached = tally.detached.saturating_sub(1);
                Ok(())
            }
            Err((error, key)) => {
                pending.set_key(Some(key));
                Err(Rejected { error, token: pending })
            }
        }
    }
}
