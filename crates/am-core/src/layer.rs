//! Layers: libraries that share one endpoint with each other and with the program.
//!
//! A layer brings handlers and a state. The program's state owns the state of each layer and says where by
//! [`HasLayer`]; the layer registers its handlers through [`Handlers::layer`], which hands them their own part
//! only. Names of a layer's handlers begin with the layer's, and the fingerprint that ranks compare at attach
//! covers all layers. Nothing is looked up when a message comes: a layer's handler costs what the program's own
//! costs.
//!
//! # Progress
//!
//! Handlers cannot send requests. What a handler wants sent it leaves in its layer's state, and the layer's
//! progress function ([`LayerHandlers::progress`]) sends it through an [`Outbox`]. It is called at the end of a
//! poll
//!
//! * that ran a handler of the layer, or if the layer's state was entered since
//!   ([`Endpoint::layer_mut`](crate::Endpoint::layer_mut) for this layer,
//!   [`Endpoint::state_mut`](crate::Endpoint::state_mut) for all), unless the layer says that this has left
//!   nothing to do ([`LayerHandlers::pending`]);
//! * while the layer has work left or watches memory ([`Progress::Blocked`], [`Progress::Watching`]);
//! * when a time has come that it asked for ([`Outbox::wake_at`]);
//! * in any case at every 16th poll that found nothing and every 64th that served something. So a handler of the
//!   program that leaves work in a layer's state delays that work, but does not lose it: all layers are called
//!   before an endpoint idles that has handled messages since.
//!
//! So trees, routes over several hops and services advance inside any wait of any layer or of the program, and no
//! rank has to call a layer to keep others going. An endpoint without layers pays one look at a flag for this, and
//! a layer that has nothing to do costs the messages of others nothing.
//!
//! # How much work can be left
//!
//! A layer bounds its queue by what bounds the messages that fill it. A request whose token is detached until its
//! work is done keeps the credit of its sender taken, so that a queue never holds more than what the peers may
//! have under way. That is for work that ends here, or goes on along routes without circles: where everyone holds
//! credits until everyone else has room, nobody goes on. Work on circular routes answers at once and is bounded by
//! the program, as by one item per rank. [`WorkQueue`] has a fixed capacity, allocates once, and refuses what
//! exceeds it, so that a wrong bound is an error instead of memory that grows.
//!
//! # Example
//!
//! A layer that passes a message along a ring of ranks, and a program with a handler of its own.
//!
//! ```
//! use am_core::layer::{HasLayer, LayerHandlers, Outbox, Progress, WorkQueue};
//! use am_core::{Endpoint, Handlers, Rank, RegisterError, Request, loopback};
//!
//! struct Ring {
//!     pass: Request<u32>,
//!     waiting: WorkQueue<u32>,
//!     ended: u32,
//! }
//!
//! impl Ring {
//!     fn register<S: HasLayer<Self>>(handlers: &mut Handlers<S>) -> Result<Self, RegisterError> {
//!         let mut layer = handlers.layer::<Self>("ring")?;
//!         let pass = layer.one_way("pass", |ring: &mut Self, _, hops: u32, _| match hops {
//!             0 => { ring.ended += 1; Ok(()) }
//!             more => ring.waiting.push(more - 1),
//!         })?;
//!         layer.progress(|ring, outbox| {
//!             let next = Rank((outbox.rank().0 + 1) % outbox.ranks());
//!             ring.waiting.drain(|hops| outbox.try_request(next, ring.pass, *hops))
//!         });
//!         Ok(Self { pass, waiting: WorkQueue::new(64), ended: 0 })
//!     }
//! }
//!
//! struct State { ring: Ring, greetings: u32 }
//!
//! impl HasLayer<Ring> for State {
//!     fn as_layer(&self) -> &Ring { &self.ring }
//!     fn as_layer_mut(&mut self) -> &mut Ring { &mut self.ring }
//! }
//!
//! let mut handlers = Handlers::<State>::new();
//! let ring = Ring::register(&mut handlers)?;
//! let pass = ring.pass;
//! let greet = handlers.one_way("greet", |state, _, (), _| state.greetings += 1)?;
//! let mut endpoint = Endpoint::attach(loopback::single(), handlers, State { ring, greetings: 0 })?;
//! endpoint.request(Rank(0), pass, 5)?;
//! endpoint.request(Rank(0), greet, ())?;
//! endpoint.wait_until(|state| state.ring.ended == 1 && state.greetings == 1)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::address::{Address, Destination, Peer, Rank, Shape};
use crate::arguments::{Arguments, Words};
use crate::endpoint::{Link, Sender};
use crate::error::{RegisterError, Rejected, SendError};
use crate::handlers::{Handlers, LayerBit, Mark, Reply, ReplyRange, Request, RequestRange};
use crate::outcome::{HandlerOutcome, HandlerResult};
use crate::payload::Payload;
use crate::segment::SegmentError;
use crate::time::Instant;
use crate::token::{Message, PendingReply, Token};
use crate::transport::{Body, Category, Completion, Lane, Lent, LentFault, Limits, PeerStatus, Resource};
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

/// A state that owns the state `L` of a layer. A type is its own layer, for programs that have no other state.
#[diagnostic::on_unimplemented(
    message = "the endpoint's state `{Self}` does not own the layer `{L}`",
    note = "give the state a field for the layer, and `impl HasLayer<{L}>` with references to it"
)]
pub trait HasLayer<L> {
    /// The layer's state.
    fn as_layer(&self) -> &L;

    /// The layer's state.
    fn as_layer_mut(&mut self) -> &mut L;
}

impl<L> HasLayer<L> for L {
    #[inline(always)]
    fn as_layer(&self) -> &L {
        self
    }

    #[inline(always)]
    fn as_layer_mut(&mut self) -> &mut L {
        self
    }
}

/// What a progress function has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Progress {
    /// There is nothing to do until a message comes, or the program uses the layer.
    Idle,
    /// There is nothing to do until a peer changes memory that this process sees: the function is called again at
    /// every poll, and [`LayerHandlers::changed`] keeps a wait from sleeping past a change. It is no work that is
    /// left.
    Watching,
    /// Work is left, and cannot be done now: the function is called again at every poll. A wait may sleep until
    /// the [`Outbox`]'s last refusal may be over.
    Blocked,
    /// Something was done, and there may be more to do: a wait looks at its condition before it goes on.
    Advanced,
}

/// What a progress function returns: [`Progress`], or an error that ends the poll or wait under way. That a
/// destination is lost or has finished is no such error; the program learns of it as of every loss.
pub type ProgressResult = Result<Progress, SendError>;

/// The handlers of a layer, being registered. `S` is the endpoint's state, `L` the layer's part of it, which is
/// all that the layer's handlers see.
///
/// The methods are those of [`Handlers`]; names are put behind the layer's name and a dot.
///
/// An error of these methods is final, since a layer that is registered in part would not work: all that the layer
/// has registered is withdrawn, and further calls fail with the same error. Its names can be registered anew.
/// Handles that were handed out before lead nowhere:
/// [`BadMessage::UnknownHandler`](crate::BadMessage::UnknownHandler) at the destination.
pub struct LayerHandlers<'h, S, L> {
    handlers: &'h mut Handlers<S>,
    /// The layer's name and a dot.
    prefix: String,
    bit: LayerBit,
    /// What the table held before the layer.
    before: Mark<S>,
    /// What registration failed with.
    failed: Option<RegisterError>,
    layer: PhantomData<fn(&mut L)>,
}

impl<S, L> fmt::Debug for LayerHandlers<'_, S, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LayerHandlers").field(&self.prefix).finish()
    }
}

impl<'h, S: HasLayer<L>, L> LayerHandlers<'h, S, L> {
    /// Sets who learns of operations that the network has done by itself.
    pub(crate) fn completed(&mut self, completed: fn(&mut S, Completion<'_>)) {
        if self.failed.is_none() {
            self.handlers.for_layer(self.bit, |handlers| handlers.completed(completed));
        }
    }

    pub(crate) fn new(handlers: &'h mut Handlers<S>, prefix: String, bit: LayerBit, before: Mark<S>) -> Self {
        Self { handlers, prefix, bit, before, failed: None, layer: PhantomData }
    }

    /// Registers a handler; withdraws the whole layer if that fails.
    fn add<H>(
        &mut self,
        name: &str,
        register: impl FnOnce(&mut Handlers<S>, &str) -> Result<H, RegisterError>,
    ) -> Result<H, RegisterError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let name = format!("{}{name}", self.prefix);
        let registered = self.handlers.for_layer(self.bit, |handlers| register(handlers, &name));
        if let Err(error) = &registered {
            self.failed = Some(error.clone());
            self.handlers.withdraw(&self.before);
        }
        registered
    }

    /// As [`Handlers::one_way`].
    ///
    /// # Errors
    /// As [`Handlers::one_way`].
    pub fn one_way<A, F, O>(&mut self, name: &str, mut handler: F) -> Result<Request<A>, RegisterError>
    where
        A: Arguments + 'static,
        F: FnMut(&mut L, Address, A, Payload<'_>) -> O + Send + 'static,
        O: HandlerOutcome,
    {
        let handler = move |state: &mut S, from: Address, args: A, payload: Payload<'_>| {
            handler(state.as_layer_mut(), from, args, payload)
        };
        self.add(name, |handlers, name| handlers.one_way(name, handler))
    }

    /// As [`Handlers::request`].
    ///
    /// # Errors
    /// As [`Handlers::one_way`].
    pub fn request<A, F, O>(&mut self, name: &str, mut handler: F) -> Result<Request<A>, RegisterError>
    where
        A: Arguments + 'static,
        F: FnMut(&mut L, Token<'_>, A, Payload<'_>) -> O + Send + 'static,
        O: HandlerOutcome,
    {
        let handler = move |state: &mut S, token: Token<'_>, args: A, payload: Payload<'_>| {
            handler(state.as_layer_mut(), token, args, payload)
        };
        self.add(name, |handlers, name| handlers.request(name, handler))
    }

    /// As [`Handlers::request_bounded`].
    ///
    /// # Errors
    /// As [`Handlers::request_bounded`].
    pub fn request_bounded<A, F, O>(
        &mut self,
        name: &str,
        max_reply: u32,
        mut handler: F,
    ) -> Result<Request<A>, RegisterError>
    where
        A: Arguments + 'static,
        F: FnMut(&mut L, Token<'_>, A, Payload<'_>) -> O + Send + 'static,
        O: HandlerOutcome,
    {
        let handler = move |state: &mut S, token: Token<'_>, args: A, payload: Payload<'_>| {
            handler(state.as_layer_mut(), token, args, payload)
        };
        self.add(name, |handlers, name| handlers.request_bounded(name, max_reply, handler))
    }

    /// As [`Handlers::request_largest`].
    ///
    /// # Errors
    /// As [`Handlers::one_way`].
    pub fn request_largest<A, F, O>(&mut self, name: &str, mut handler: F) -> Result<Request<A>, RegisterError>
    where
        A: Arguments + 'static,
        F: FnMut(&mut L, Token<'_>, A, Payload<'_>) -> O + Send + 'static,
        O: HandlerOutcome,
    {
        let handler = move |state: &mut S, token: Token<'_>, args: A, payload: Payload<'_>| {
            handler(state.as_layer_mut(), token, args, payload)
        };
        self.add(name, |handlers, name| handlers.request_largest(name, handler))
    }

    /// As [`Handlers::request_range`].
    ///
    /// # Errors
    /// As [`Handlers::one_way`].
    pub fn request_range<F, O>(
        &mut self,
        name: &str,
        count: u16,
        max_reply: u32,
        mut handler: F,
    ) -> Result<RequestRange, RegisterError>
    where
        F: FnMut(&mut L, Token<'_>, u8, &Words, Payload<'_>) -> O + Send + 'static,
        O: HandlerOutcome,
    {
        let handler = move |state: &mut S, token: Token<'_>, number: u8, words: &Words, payload: Payload<'_>| {
            handler(state.as_layer_mut(), token, number, words, payload)
        };
        self.add(name, |handlers, name| handlers.request_range(name, count, max_reply, handler))
    }

    /// As [`Handlers::reply`].
    ///
    /// # Errors
    /// As [`Handlers::one_way`].
    pub fn reply<A, F, O>(&mut self, name: &str, mut handler: F) -> Result<Reply<A>, RegisterError>
    where
        A: Arguments + 'static,
        F: FnMut(&mut L, Address, A, Payload<'_>) -> O + Send + 'static,
        O: HandlerOutcome,
    {
        let handler = move |state: &mut S, from: Address, args: A, payload: Payload<'_>| {
            handler(state.as_layer_mut(), from, args, payload)
        };
        self.add(name, |handlers, name| handlers.reply(name, handler))
    }

    /// As [`Handlers::reply_range`].
    ///
    /// # Errors
    /// As [`Handlers::one_way`].
    pub fn reply_range<F, O>(
        &mut self,
        name: &str,
        count: u16,
        mut handler: F,
    ) -> Result<ReplyRange, RegisterError>
    where
        F: FnMut(&mut L, Address, u8, &Words, Payload<'_>) -> O + Send + 'static,
        O: HandlerOutcome,
    {
        let handler = move |state: &mut S, from: Address, number: u8, words: &Words, payload: Payload<'_>| {
            handler(state.as_layer_mut(), from, number, words, payload)
        };
        self.add(name, |handlers, name| handlers.reply_range(name, count, handler))
    }

    /// Makes something part of what ranks compare at attach that is no handler: a name behind the layer's, and
    /// what it stands for. Ranks that differ in it fail to attach, and are told both.
    ///
    /// # Errors
    /// As [`Handlers::one_way`], except that there is no limit on their number.
    pub fn declare(&mut self, name: &str, what: &str) -> Result<(), RegisterError> {
        self.add(name, |handlers, name| handlers.declare(name, what))
    }

    /// Adds the function that carries on the work that handlers leave in the layer's state. It never blocks; what
    /// the outbox refuses stays in the state, and the function says so by [`Progress::Blocked`].
    pub fn progress(
        &mut self,
        mut progress: impl FnMut(&mut L, &mut Outbox<'_>) -> ProgressResult + Send + 'static,
    ) {
        if self.failed.is_some() {
            return;
        }
        let name = self.prefix.trim_end_matches('.').to_owned();
        let progress = move |state: &mut S, outbox: &mut Outbox<'_>| progress(state.as_layer_mut(), outbox);
        self.handlers.for_layer(self.bit, |handlers| handlers.progress_of(name, progress));
    }

    /// Adds the function that says whether the progress function, added before, has anything to do while the
    /// endpoint does not idle. It is asked in the progress function's stead after handlers of the layer have run,
    /// after its state was entered, and after [`Progress::Advanced`]; where it says no, the progress function is
    /// not called for that. It has to be cheap, and to say yes to whatever handlers and the program leave in the
    /// layer's state. The other calls are as without it: before the endpoint idles, at a time that was asked for,
    /// while [`Progress::Blocked`] or [`Progress::Watching`], and now and then.
    ///
    /// # Panics
    /// If there is no progress function yet.
    pub fn pending(&mut self, pending: impl Fn(&L) -> bool + Send + 'static) {
        if self.failed.is_some() {
            return;
        }
        self.handlers.pending(move |state| pending(state.as_layer()));
    }

    /// Adds the function that says whether memory has changed which the progress function, added before, is
    /// [watching](Progress::Watching). It is called before the endpoint sleeps, and has to be cheap.
    ///
    /// # Panics
    /// If there is no progress function yet.
    pub fn changed(&mut self, changed: impl Fn(&L) -> bool + Send + 'static) {
        if self.failed.is_some() {
            return;
        }
        self.handlers.changed(move |state| changed(state.as_layer()));
    }
}

/// What a progress function sends through: the endpoint, without its state and without waiting.
pub struct Outbox<'a> {
    link: &'a mut dyn Link,
    sender: &'a mut Sender,
    /// The latest refusal.
    refused: Option<(Peer, Resource)>,
    idle: bool,
    /// When the layer wants to be called next.
    wake: Option<Instant>,
}

impl fmt::Debug for Outbox<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("address", &self.address()).finish_non_exhaustive()
    }
}

impl<'a> Outbox<'a> {
    pub(crate) fn new(link: &'a mut dyn Link, sender: &'a mut Sender, idle: bool) -> Self {
        Self { link, sender, refused: None, idle, wake: None }
    }

    pub(crate) fn refused(&self) -> Option<(Peer, Resource)> {
        self.refused
    }

    pub(crate) fn wake(&self) -> Option<Instant> {
        self.wake
    }

    /// The endpoint's address.
    #[inline]
    pub fn address(&self) -> Address {
        self.sender.me
    }

    /// The endpoint's rank.
    #[inline]
    pub fn rank(&self) -> Rank {
        self.sender.me.rank
    }

    /// Number of ranks in the job.
    #[inline]
    pub fn ranks(&self) -> u32 {
        self.sender.shape.ranks
    }

    /// The shape of the job.
    #[inline]
    pub fn shape(&self) -> Shape {
        self.sender.shape
    }

    /// Ends the idling of a peer that waits for a change of memory which both see; to be called after the change.
    /// Does nothing outside the job.
    #[inline]
    pub fn wake_peer(&mut self, of: impl Destination) {
        if let Some(peer) = self.sender.shape.peer(of.address()) {
            self.link.wake(peer);
        }
    }

    /// Whether the endpoint idles unless a progress function advances: the time to send what was held back to go
    /// together with more.
    #[inline]
    pub fn about_to_idle(&self) -> bool {
        self.idle
    }

    /// Whether the transport [spins](crate::Waiting::spins): the endpoint idles many times before it sleeps.
    #[inline]
    pub fn spins(&self) -> bool {
        self.link.has_own_processor()
    }

    /// The time of the transport.
    pub fn now(&self) -> Instant {
        self.link.time()
    }

    /// Asks for a call of this progress function at a time, by the transport's clock: for heartbeats, time-outs
    /// and messages that wait for company. Of several times the earliest counts. The wish holds until the function
    /// is called next, which may be earlier, so a function that still waits then asks again. Waits idle no longer
    /// than until the earliest time that a layer has asked for, virtual time included; polls look at the clock of
    /// a real transport every sixteenth time that nothing has arrived. It is no work that is left.
    pub fn wake_at(&mut self, at: Instant) {
        self.wake = Some(self.wake.map_or(at, |before| before.min(at)));
    }

    /// As [`Endpoint::reply_bound`](crate::Endpoint::reply_bound).
    pub fn reply_bound<A>(&self, handler: Request<A>) -> Option<u32> {
        self.sender.reply_bound(handler)
    }

    /// The largest payload towards a peer, or `None` outside the job; see
    /// [`Endpoint::max_payload`](crate::Endpoint::max_payload).
    pub fn max_payload(
        &self,
        to: impl Destination,
        category: Category,
        lane: Lane,
        arguments: usize,
    ) -> Option<u64> {
        self.sender.max_payload(self.link, to.address(), category, lane, arguments)
    }

    /// The limits towards a peer, or `None` outside the job.
    pub fn limits(&self, to: impl Destination) -> Option<&Limits> {
        self.sender.shape.peer(to.address()).map(|peer| self.link.limits_of(peer))
    }

    /// How many endpoints have been lost so far; see [`Endpoint::losses`](crate::Endpoint::losses).
    #[inline]
    pub fn losses(&self) -> u32 {
        self.link.losses_so_far()
    }

    /// What is known of a peer, or `None` outside the job.
    pub fn status(&self, of: impl Destination) -> Option<PeerStatus> {
        self.sender.shape.peer(of.address()).map(|peer| self.link.status_of(peer))
    }

    /// As [`Endpoint::read_lent`](crate::Endpoint::read_lent).
    ///
    /// # Errors
    /// [`LentFault`]; `out` may be changed then.
    pub fn read_lent(
        &mut self,
        of: impl Destination,
        lent: &Lent,
        at: u64,
        out: &mut [u8],
    ) -> Result<(), LentFault> {
        let peer = self.sender.shape.peer(of.address()).ok_or(LentFault::Refused)?;
        self.link.read_lent_of(peer, lent, at, out)
    }

    /// Copies from byte `offset` of a rank's segment where this process sees it as memory, as
    /// [`Endpoint::mapped_segment`](crate::Endpoint::mapped_segment) gives it: the own one, or a peer's on the
    /// same host. `None` where it does not, and nothing was copied. Does not block or allocate.
    ///
    /// # Errors
    /// [`SegmentError::OutOfRange`]; `out` is unchanged then.
    pub fn read_segment(&self, rank: Rank, offset: u64, out: &mut [u8]) -> Option<Result<(), SegmentError>> {
        if rank.0 >= self.ranks() {
            return None;
        }
        self.link.read_mapped(rank, rank == self.rank(), offset, out)
    }

    /// Whether this process sees a rank's segment as memory.
    pub fn maps_segment(&self, rank: Rank) -> bool {
        self.copy_segment(0..0, rank, 0).is_some()
    }

    /// Copies bytes of the own segment to byte `offset` of a rank's, where this process sees that as memory, as
    /// [`read_segment`](Self::read_segment) says. `None` where it does not, and nothing was copied. The rank
    /// learns of the bytes by a message that is sent afterwards. Not atomic as a whole; where both ranges overlap,
    /// what is there afterwards is not specified. Does not block or allocate.
    ///
    /// # Errors
    /// [`SegmentError::OutOfRange`]; nothing is written then.
    pub fn copy_segment(&self, from: Range<u64>, rank: Rank, offset: u64) -> Option<Result<(), SegmentError>> {
        if rank.0 >= self.ranks() {
            return None;
        }
        self.link.copy_mapped(rank, rank == self.rank(), from, offset)
    }

    fn try_send<A: Arguments>(
        &mut self,
        to: Address,
        handler: Request<A>,
        args: &A,
        body: Body<'_>,
    ) -> Result<(), SendError> {
        let sent = self.sender.try_send(self.link, to, handler, args, body);
        if let Err(SendError::WouldBlock { to, resource }) = sent {
            self.refused = self.sender.shape.peer(to).map(|peer| (peer, resource));
        }
        sent
    }

    /// Sends a Short request if there is room. Does not block or allocate.
    ///
    /// # Errors
    /// As [`Endpoint::try_request`](crate::Endpoint::try_request).
    pub fn try_request<A: Arguments>(
        &mut self,
        to: impl Destination,
        handler: Request<A>,
        args: A,
    ) -> Result<(), SendError> {
        self.try_send(to.address(), handler, &args, Body::None)
    }

    /// Sends a Medium request if there is room; the payload is copied once. Does not block or allocate.
    ///
    /// # Errors
    /// As [`Endpoint::try_request_medium`](crate::Endpoint::try_request_medium).
    pub fn try_request_medium<A: Arguments>(
        &mut self,
        to: impl Destination,
        handler: Request<A>,
        args: A,
        payload: &[u8],
    ) -> Result<(), SendError> {
        self.try_send(to.address(), handler, &args, Body::Copy(payload))
    }

    /// Places a payload at byte `offset` of the peer's segment and sends the request, if there is room.
    ///
    /// # Errors
    /// As [`Endpoint::try_request_long`](crate::Endpoint::try_request_long).
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

    /// Answers a detached request with arguments only. Never blocks, never allocates.
    ///
    /// # Errors
    /// As [`Endpoint::answer`](crate::Endpoint::answer).
    pub fn answer<A: Arguments>(
        &mut self,
        pending: PendingReply,
        handler: Reply<A>,
        args: A,
    ) -> Result<(), Rejected<PendingReply>> {
        self.sender.answer(self.link, pending, handler, &args, Message::Send(Body::None))
    }

    /// Answers a detached request with arguments and a payload.
    ///
    /// # Errors
    /// As [`Endpoint::answer_medium`](crate::Endpoint::answer_medium).
    pub fn answer_medium<A: Arguments>(
        &mut self,
        pending: PendingReply,
        handler: Reply<A>,
        args: A,
        payload: &[u8],
    ) -> Result<(), Rejected<PendingReply>> {
        self.sender.answer(self.link, pending, handler, &args, Message::Send(Body::Copy(payload)))
    }

    /// Answers a detached request with a payload placed in the requester's segment.
    ///
    /// # Errors
    /// As [`Endpoint::answer_long`](crate::Endpoint::answer_long).
    pub fn answer_long<A: Arguments>(
        &mut self,
        pending: PendingReply,
        handler: Reply<A>,
        args: A,
        payload: &[u8],
        offset: u64,
    ) -> Result<(), Rejected<PendingReply>> {
        self.sender.answer(self.link, pending, handler, &args, Message::Send(Body::Place(payload, offset)))
    }
}

/// A [`WorkQueue`] holds as much as it was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a layer's queue holds its {capacity} items already: its bound does not hold")]
#[non_exhaustive]
pub struct QueueFull {
    /// Items that the queue holds at most.
    pub capacity: usize,
}

/// Work that a layer's handlers leave for its progress function: a queue of fixed capacity. Only making it
/// allocates.
#[derive(Debug)]
pub struct WorkQueue<W> {
    items: VecDeque<W>,
    capacity: usize,
}

impl<W> WorkQueue<W> {
    /// An empty queue for at most `capacity` items. Allocates.
    pub fn new(capacity: usize) -> Self {
        Self { items: VecDeque::with_capacity(capacity), capacity }
    }

    /// Adds an item at the end. A handler can return what this returns.
    ///
    /// # Errors
    /// [`QueueFull`]; the item is dropped, and with it the token that it may hold.
    pub fn push(&mut self, item: W) -> HandlerResult {
        if self.items.len() == self.capacity {
            return Err(QueueFull { capacity: self.capacity }.into());
        }
        self.items.push_back(item);
        Ok(())
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Takes the first item out.
    pub fn pop(&mut self) -> Option<W> {
        self.items.pop_front()
    }

    /// Sends the items in order until one would block, which stays.
    ///
    /// # Errors
    /// Any other error of `send`; its item is taken out.
    pub fn drain(&mut self, mut send: impl FnMut(&mut W) -> Result<(), SendError>) -> ProgressResult {
        let mut progress = Progress::Idle;
        while let Some(first) = self.items.front_mut() {
            match send(first) {
                Ok(()) => progress = Progress::Advanced,
                Err(SendError::WouldBlock { .. }) => return Ok(progress.max(Progress::Blocked)),
                Err(error) => {
                    self.items.pop_front();
                    return Err(error);
                }
            }
            self.items.pop_front();
        }
        Ok(progress)
    }
}
