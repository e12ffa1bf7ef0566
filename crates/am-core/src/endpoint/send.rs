//! The request forms of an [`Endpoint`], and the answers to detached requests.

use super::Endpoint;
use super::recent::Recent;
use super::sender::Sender;
use crate::address::{Address, Destination, Peer};
use crate::arguments::{Arguments, Words, encode};
use crate::error::{PollError, Rejected, SendError, WaitError};
use crate::handlers::{Reply, Request};
use crate::stats::Traffic;
use crate::token::{Message, PendingReply};
use crate::transport::{
    Body, Capability, Category, Completion, Done, LossCause, NativeOneSided, PayloadWriter, Refused, Remote,
    RequestHeader, Resource, Slot, Ticket, Transport, WaitReason,
};

/// A Medium request being filled in the transport's own buffer. Sent by [`Reservation::commit`]; dropped, it sends
/// nothing and gives its room back.
#[derive(Debug)]
#[must_use = "a reservation that is not committed sends nothing"]
pub struct Reservation<'a, Claimed> {
    slot: Claimed,
    sent: &'a mut Traffic,
    recent: &'a mut Recent,
    peer: Peer,
    head: RequestHeader,
}

impl<Claimed: Slot> Reservation<'_, Claimed> {
    /// Sends the message.
    #[inline]
    pub fn commit(self) {
        self.sent.count(self.slot.len());
        self.recent.note(self.peer, self.head);
        self.slot.commit();
    }
}

impl<Claimed: Slot> PayloadWriter for Reservation<'_, Claimed> {
    #[inline]
    fn len(&self) -> usize {
        self.slot.len()
    }

    #[inline]
    fn write(&mut self, at: usize, bytes: &[u8]) {
        self.slot.write(at, bytes);
    }

    #[inline]
    fn write_u64(&mut self, index: usize, value: u64) {
        self.slot.write_u64(index, value);
    }
}

impl<T: Transport, S> Endpoint<T, S> {
    /// Serves incoming messages after a refusal, so that the next try may succeed; `began` marks the first
    /// refusal.
    #[cold]
    pub(super) fn make_room(&mut self, to: Address, peer: Peer, refused: Refused) -> Result<(), SendError> {
        let resource = match refused {
            Refused::Busy(resource) => resource,
            Refused::Gone(status) => return Err(self.sender.gone(to, status)),
        };
        self.note_blocked(to, resource);
        self.wait_step(None, WaitReason::Room(peer, resource))?;
        Ok(())
    }

    /// Counts that there is no room, once in each wait.
    pub(super) fn note_blocked(&mut self, to: Address, resource: Resource) {
        if self.blocked_on != Some((to, resource)) {
            self.sender.stats.stall(resource);
            crate::trace::stalled(to, resource);
            self.blocked_on = Some((to, resource));
        }
    }

    /// Sends a request that has been refused, serving incoming messages until there is room.
    #[cold]
    #[inline(never)]
    fn send_slowly(
        &mut self,
        to: Address,
        peer: Peer,
        head: RequestHeader,
        words: &Words,
        body: Body<'_>,
        refused: Refused,
    ) -> Result<(), SendError> {
        self.sender.recent.take_back(head.reply);
        self.insist(to, peer, refused, |transport| transport.send(peer, head, words, body))?;
        self.sender.recent.restore(head.reply);
        Ok(())
    }

    /// Tries again until the transport accepts, serving incoming messages in between.
    #[cold]
    fn insist<R>(
        &mut self,
        to: Address,
        peer: Peer,
        mut refused: Refused,
        mut attempt: impl FnMut(&mut T) -> Result<R, Refused>,
    ) -> Result<R, SendError> {
        let outcome = loop {
            if let Err(error) = self.make_room(to, peer, refused) {
                break Err(error);
            }
            match attempt(&mut self.transport) {
                Ok(accepted) => break Ok(accepted),
                Err(again) => refused = again,
            }
        };
        self.end_wait();
        outcome
    }

    /// Starts an operation of `bytes` bytes that the network does by itself, serving incoming messages while there
    /// is no room.
    ///
    /// # Panics
    /// If the network does none towards this endpoint; see [`Endpoint::capability`].
    pub(crate) fn start_native(
        &mut self,
        to: Address,
        (at, ticket): (u64, Ticket),
        bytes: u64,
        mut start: impl FnMut(&mut dyn NativeOneSided, Remote, &mut Done<'_>) -> Result<(), Refused>,
    ) -> Result<(), SendError> {
        let peer = self.sender.shape.peer(to).expect("the target of an operation is in the job");
        let outcome = loop {
            let (completed, state, schedule) = (self.table.completed, &mut self.state, &mut self.schedule);
            let mut done = |completion: Completion<'_>| {
                if let Some((completed, layer)) = completed {
                    schedule.touch(layer.set());
                    completed(state, completion);
                }
            };
            let (network, named) =
                self.transport.native(peer).expect("the network was asked what it does towards this peer");
            match start(network, Remote { peer: named, at, ticket }, &mut done) {
                Ok(()) => break Ok(()),
                Err(refused) => {
                    if let Err(error) = self.make_room(to, peer, refused) {
                        break Err(error);
                    }
                }
            }
        };
        self.end_wait();
        if outcome.is_ok() {
            self.sender.stats.native.count(bytes as usize);
        }
        outcome
    }

    /// What the network does by itself towards an endpoint.
    pub(crate) fn capability(&mut self, to: Address) -> Capability {
        let found = self.sender.shape.peer(to).and_then(|peer| self.transport.native(peer));
        found.map_or(Capability::default(), |(network, named)| network.capability(named))
    }

    /// Sends a request of any category, serving incoming messages while there is no room.
    #[inline(always)]
    fn send<A: Arguments>(
        &mut self,
        to: Address,
        handler: Request<A>,
        args: &A,
        body: Body<'_>,
    ) -> Result<(), SendError> {
        let (peer, head) = self.sender.prepare(&self.transport.transport, to, handler)?;
        let words = encode(args);
        self.sender.check(&self.transport.transport, peer, to, words.len(), &body)?;
        self.sender.recent.note(peer, head);
        let (category, len) = (body.category(), body.len());
        // Here, so that the category is known where the transport's code is compiled in.
        if let Err(refused) = self.transport.send(peer, head, &words, body) {
            // Encoded anew, so that the words above never need an address.
            self.send_slowly(to, peer, head, &encode(args), body, refused)?;
        }
        self.sender.stats.requests_sent[category as usize].count(len);
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn try_send<A: Arguments>(
        &mut self,
        to: Address,
        handler: Request<A>,
        args: &A,
        body: Body<'_>,
    ) -> Result<(), SendError> {
        self.sender.try_send(&mut self.transport.transport, to, handler, args, body)
    }

    /// Sends a Short request if there is room. Does not block or allocate.
    ///
    /// # Errors
    /// [`SendError::WouldBlock`] with the missing resource; otherwise as [`Endpoint::request`].
    #[inline]
    pub fn try_request<A: Arguments>(
        &mut self,
        to: impl Destination,
        handler: Request<A>,
        args: A,
    ) -> Result<(), SendError> {
        self.try_send(to.address(), handler, &args, Body::None)
    }

    /// Sends a Short request, serving incoming messages while there is no room. Does not allocate.
    ///
    /// # Errors
    /// A destination outside the job, a handler of another table, a destination that is lost or has finished, a
    /// loss or bad message met while waiting, a time-out. Nothing was sent then.
    #[inline]
    pub fn request<A: Arguments>(
        &mut self,
        to: impl Destination,
        handler: Request<A>,
        args: A,
    ) -> Result<(), SendError> {
        self.send(to.address(), handler, &args, Body::None)
    }

    /// Sends a Medium request if there is room; the payload is copied once. Does not block or allocate.
    ///
    /// # Errors
    /// [`SendError::WouldBlock`] with the missing resource; otherwise as [`Endpoint::request_medium`].
    #[inline]
    pub fn try_request_medium<A: Arguments>(
        &mut self,
        to: impl Destination,
        handler: Request<A>,
        args: A,
        payload: &[u8],
    ) -> Result<(), SendError> {
        self.try_send(to.address(), handler, &args, Body::Copy(payload))
    }

    /// Sends a Medium request, serving incoming messages while there is no room; the payload is copied once.
    ///
    /// # Errors
    /// As [`Endpoint::request`], and a payload beyond [`Endpoint::max_payload`].
    #[inline]
    pub fn request_medium<A: Arguments>(
        &mut self,
        to: impl Destination,
        handler: Request<A>,
        args: A,
        payload: &[u8],
    ) -> Result<(), SendError> {
        self.send(to.address(), handler, &args, Body::Copy(payload))
    }

    /// Places a payload at byte `offset` of the peer's segment and sends the request, if there is room.
    ///
    /// # Errors
    /// [`SendError::WouldBlock`] with the missing resource; otherwise as [`Endpoint::request_long`].
    #[inline]
    pub fn try_request_long<A: Arguments>(
        &mut self,
        to: impl Destination,
        handler: Request<A>,
        args: A,
        payload: &[u8],
        offset: u64,
    ) -> Result<(), SendError> {
        self.try_send(to.address(), handler, &args, Body::Place(payload, offset))
    }

    /// Places a payload at byte `offset` of the peer's segment, then runs the handler there. Serves incoming
    /// messages while there is no room.
    ///
    /// # Errors
    /// As [`Endpoint::request`], and a range outside the peer's segment. An empty payload needs an offset inside,
    /// too, or 0.
    #[inline]
    pub fn request_long<A: Arguments>(
        &mut self,
        to: impl Destination,
        handler: Request<A>,
        args: A,
        payload: &[u8],
        offset: u64,
    ) -> Result<(), SendError> {
        self.send(to.address(), handler, &args, Body::Place(payload, offset))
    }

    /// Claims a buffer of `len` bytes in the transport for a Medium request, if there is room. Does not block or
    /// allocate.
    ///
    /// # Errors
    /// [`SendError::WouldBlock`] with the missing resource; otherwise as [`Endpoint::reserve_medium`].
    #[inline]
    pub fn try_reserve_medium<A: Arguments>(
        &mut self,
        to: impl Destination,
        handler: Request<A>,
        args: A,
        len: usize,
    ) -> Result<Reservation<'_, T::Slot<'_>>, SendError> {
        let to = to.address();
        let (peer, head) = self.sender.prepare(&self.transport.transport, to, handler)?;
        let words = encode(&args);
        self.sender.check_medium(&self.transport.transport, peer, to, words.len(), len)?;
        match self.transport.reserve(peer, head, &words, len) {
            Ok(room) => Ok(self.reserved(peer, head, &words, len, room)),
            Err(refused) => Err(self.sender.denied(to, refused)),
        }
    }

    /// Claims a buffer of `len` bytes in the transport for a Medium request, serving incoming messages while there
    /// is no room. Fill it through [`PayloadWriter`], then [`Reservation::commit`] it: no copy is made in between.
    ///
    /// # Errors
    /// As [`Endpoint::request_medium`].
    #[inline]
    pub fn reserve_medium<A: Arguments>(
        &mut self,
        to: impl Destination,
        handler: Request<A>,
        args: A,
        len: usize,
    ) -> Result<Reservation<'_, T::Slot<'_>>, SendError> {
        let to = to.address();
        let (peer, head) = self.sender.prepare(&self.transport.transport, to, handler)?;
        let words = encode(&args);
        self.sender.check_medium(&self.transport.transport, peer, to, words.len(), len)?;
        let room = match self.transport.reserve(peer, head, &words, len) {
            Ok(room) => room,
            Err(refused) => {
                self.insist(to, peer, refused, |transport| transport.reserve(peer, head, &words, len))?
            }
        };
        Ok(self.reserved(peer, head, &words, len, room))
    }

    /// The buffer in reserved room.
    #[inline]
    fn reserved(
        &mut self,
        peer: Peer,
        head: RequestHeader,
        words: &Words,
        len: usize,
        room: T::Room,
    ) -> Reservation<'_, T::Slot<'_>> {
        let Self { transport, sender: Sender { stats, recent, .. }, .. } = self;
        let slot = transport.slot(peer, head, words, len, room);
        Reservation { slot, sent: &mut stats.requests_sent[Category::Medium as usize], recent, peer, head }
    }

    /// Answers a detached request with arguments only. Never blocks, never allocates.
    ///
    /// # Errors
    /// [`Rejected`] with the pending reply to try again with; in particular if it belongs to another endpoint.
    pub fn answer<A: Arguments>(
        &mut self,
        pending: PendingReply,
        handler: Reply<A>,
        args: A,
    ) -> Result<(), Rejected<PendingReply>> {
        self.sender.answer(&mut self.transport.transport, pending, handler, &args, Message::Send(Body::None))
    }

    /// Answers a detached request with arguments and a payload.
    ///
    /// # Errors
    /// As [`Endpoint::answer`], and a payload beyond the handler's declared bound.
    pub fn answer_medium<A: Arguments>(
        &mut self,
        pending: PendingReply,
        handler: Reply<A>,
        args: A,
        payload: &[u8],
    ) -> Result<(), Rejected<PendingReply>> {
        self.sender.answer(
            &mut self.transport.transport,
            pending,
            handler,
            &args,
            Message::Send(Body::Copy(payload)),
        )
    }

    /// Answers a detached request with a payload placed in the requester's segment.
    ///
    /// # Errors
    /// As [`Endpoint::answer`], and a range outside the requester's segment.
    pub fn answer_long<A: Arguments>(
        &mut self,
        pending: PendingReply,
        handler: Reply<A>,
        args: A,
        payload: &[u8],
        offset: u64,
    ) -> Result<(), Rejected<PendingReply>> {
        self.sender.answer(
            &mut self.transport.transport,
            pending,
            handler,
            &args,
            Message::Send(Body::Place(payload, offset)),
        )
    }

    pub(super) fn control_request(
        &mut self,
        peer: Peer,
        words: &crate::Words,
        payload: &[u8],
    ) -> Result<(), WaitError> {
        let to = self.sender.shape.address(peer);
        let Err(refused) = self.transport.control(peer, words, payload) else { return Ok(()) };
        let sent = self.insist(to, peer, refused, |transport| transport.control(peer, words, payload));
        sent.map_err(|error| match error {
            SendError::Wait(wait) => wait,
            _ => PollError::PeerLost { rank: to.rank, cause: LossCause::Left }.into(),
        })
    }

    pub(super) fn end_wait(&mut self) {
        self.blocked_on = None;
        self.reason = None;
        self.wait_began = None;
        self.wait_steps = 0;
    }
}
