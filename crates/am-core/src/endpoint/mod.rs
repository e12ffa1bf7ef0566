//! The endpoint: a program's access to its job. It sends requests, serves what arrives, and waits.
//!
//! * `send` has the request forms, `sender` what they share with those of layers, `serve` polling and waiting,
//!   `dispatch` what arrives, `layers` when progress functions are called, `collective` the barrier and the
//!   comparison of handler tables at attach.

mod collective;
mod dispatch;
mod joining;
mod layers;
mod lent_cost;
mod recent;
mod send;
mod sender;
mod serve;

pub use joining::Joining;
pub use send::Reservation;

pub(crate) use collective::Dissemination;
pub(crate) use sender::{Link, Sender};
pub(crate) use serve::Rest;

use crate::address::{Address, Destination, Peer, Rank, Shape};
use crate::error::{AttachError, PollError, SendError, WaitError};
use crate::handlers::{Handlers, Request, Table};
use crate::layer::HasLayer;
use crate::segment::{Segment, SegmentError};
use crate::stall::{self, StallReport, Unanswered};
use crate::stats::Statistics;
use crate::supervision;
use crate::time::{Instant, Span};
use crate::transport::{
    Category, CreditSnapshot, Departure, Lane, Lent, LentFault, Limits, LossCause, Owed, PeerStatus, Resource,
    Transport, WaitReason,
};
use collective::Control;
use layers::LayerSchedule;
use recent::Recent;
use serve::DEFAULT_BUDGET;
use std::collections::VecDeque;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// One endpoint of a job: a transport, a handler table and the state that handlers work on.
///
/// An endpoint belongs to one thread at a time; it is the fast mode, without locks. Threads that want to share one
/// use [`SharedEndpoint`](crate::SharedEndpoint).
///
/// Dropping an endpoint without [`Endpoint::finish`] or [`Endpoint::leave`] tells the peers that this rank left;
/// their waits then fail.
///
/// # Order
///
/// Where [`Limits::ordered`] is true, requests from one endpoint to another are handled in the order in which they
/// were sent, whatever their categories, and replies from one endpoint to another likewise, in the order of
/// `reply` and `answer`. A Long payload is in place before its own handler runs. Every backend keeps this order
/// with its default settings; the published conduits of EXTOLL and SCI can be had without.
///
/// Nothing else is ordered: not a reply with the requests of the same endpoint, not messages to or from different
/// endpoints, and not direct access to a segment with messages. A [`barrier`](Endpoint::barrier) alone does not
/// wait for requests to be handled; [`drain`](Endpoint::drain) and then `barrier` tell that all requests sent
/// before, by anyone, have been. Handlers cannot send requests, so this is all that an algorithm in rounds needs
/// to know that a round has ended; layers can, and [`quiesce`](Endpoint::quiesce) tells that theirs have been
/// handled, too.
///
/// # Where it may be used
///
/// * Not in a signal handler: no method of an endpoint is async-signal-safe. [`stall::request`] is.
/// * Not in the child of a `fork`; see the transport.
/// * What a launcher gave the transport may be dropped once the endpoint is attached: the endpoint keeps what it
///   needs.
/// * Segments of shared memory and of files are sparse: a page takes memory when it is first written.
pub struct Endpoint<T: Transport, S> {
    transport: Member<T>,
    table: Table<S>,
    state: S,
    sender: Sender,
    /// This rank's own segment, for handlers, while the transport is being polled.
    segment: Segment<T::Memory>,
    control: Control,
    schedule: LayerSchedule,
    /// What progress functions failed with, by layer, until the program is told; they are not called before that.
    layer_errors: VecDeque<(usize, Box<SendError>)>,
    losses_seen: u32,
    /// Whether the program had been told of a loss before; set when this step of a wait tells of one.
    told: Option<bool>,
    /// What went wrong with messages in the poll under way, and what a barrier deferred.
    trouble: VecDeque<PollError>,
    acknowledged: Vec<Rank>,
    timeout: Option<Span>,
    /// What the wait under way is for.
    reason: Option<WaitReason>,
    /// When the wait under way began, once it has lasted long enough to ask for the time.
    wait_began: Option<Instant>,
    /// Fruitless steps of the wait under way.
    wait_steps: u32,
    /// How many reports had been requested when this endpoint printed its last one.
    reports_seen: u32,
    blocked_on: Option<(Address, Resource)>,
}

impl<T: Transport, S: fmt::Debug> fmt::Debug for Endpoint<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("address", &self.address())
            .field("shape", &self.sender.shape)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl<T: Transport, S> Endpoint<T, S> {
    /// Joins the job: compares handler tables with all other endpoints and returns when all have arrived.
    /// Collective; blocks and allocates. The time-out of this and every later wait is [`stall::default_timeout`],
    /// initially none.
    ///
    /// # Errors
    /// [`AttachError`] names the first handler that differs, a reply bound that does not fit the transport, or the
    /// rank that was lost meanwhile.
    pub fn attach(transport: T, handlers: Handlers<S>, state: S) -> Result<Self, AttachError> {
        Self::join(Member::new(transport), handlers, state, stall::default_timeout())
    }

    fn join(
        transport: Member<T>,
        handlers: Handlers<S>,
        state: S,
        timeout: Option<Span>,
    ) -> Result<Self, AttachError> {
        let shape = transport.shape();
        let default = transport.limits(transport.local_peer()).default_reply;
        if let Some((name, bound)) = handlers.largest_bound() {
            for peer in (0..shape.peers()).map(Peer) {
                let limit = transport.limits(peer).medium_reply;
                if bound as usize > limit {
                    let to = shape.address(peer);
                    return Err(AttachError::ReplyBound { name: name.into(), bound, limit, to });
                }
            }
        }
        let (fingerprint, description) = (handlers.fingerprint(), handlers.description().to_owned());
        let largest = (0..shape.peers()).map(|peer| transport.limits(Peer(peer)).medium_reply).min().unwrap_or(0);
        let bytes = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        let (table, directory) = handlers.finish(bytes(default), bytes(largest));
        let sender = Sender {
            me: shape.address(transport.local_peer()),
            shape,
            directory,
            stats: Statistics::default(),
            recent: Recent::new(),
            abandoned: Arc::default(),
            losses_told: Vec::new(),
        };
        let mut endpoint = Self {
            table,
            state,
            sender,
            segment: transport.segment().clone(),
            control: Control::new(shape.peers()),
            schedule: LayerSchedule::default(),
            layer_errors: VecDeque::new(),
            losses_seen: 0,
            told: None,
            trouble: VecDeque::new(),
            acknowledged: Vec::new(),
            timeout,
            reason: None,
            wait_began: None,
            wait_steps: 0,
            reports_seen: stall::requests(),
            blocked_on: None,
            transport,
        };
        match endpoint.compare_tables(fingerprint, &description).and_then(|()| endpoint.agree_on_bounds()) {
            Ok(()) => {
                // Before this, a handler's number may mean something else elsewhere.
                endpoint.schedule.start(!endpoint.table.layers.is_empty());
                crate::trace::attached(endpoint.address(), shape.ranks);
                Ok(endpoint)
            }
            Err(error) => {
                // Tables that differ fail everybody alike; a rank that counted as lost would hide that from those
                // on the way. Any other failure is this endpoint's alone: the others must not think that it has
                // finished.
                if matches!(error, AttachError::TablesDiffer { .. }) {
                    endpoint.leave();
                }
                Err(error)
            }
        }
    }

    /// Leaves the job properly: waits until all requests have been handled everywhere, handles the replies that
    /// they brought, then ends. Returns the state. Collective; blocks.
    ///
    /// # Errors
    /// If a rank was lost; this endpoint has then left without finishing. The first error of a handler that ran
    /// meanwhile: this endpoint has then finished like the others, which do not notice.
    pub fn finish(mut self) -> Result<S, WaitError> {
        let mut failed = None;
        if self.schedule.is_on() {
            self.past_handlers(&mut failed, Self::quiesce)?;
        } else {
            self.past_handlers(&mut failed, Self::drain)?;
            self.barrier()?;
        }
        // Nobody sends any more, so what is there by now is all there will be.
        self.past_handlers(&mut failed, |endpoint| Ok(endpoint.poll_until_empty()?))?;
        self.transport.all_depart();
        let state = self.leave();
        failed.map_or(Ok(state), |error| Err(error.into()))
    }

    /// Repeats a step that errors of handlers interrupt; keeps the first of these.
    fn past_handlers(
        &mut self,
        failed: &mut Option<PollError>,
        step: impl Fn(&mut Self) -> Result<(), WaitError>,
    ) -> Result<(), WaitError> {
        loop {
            match step(self) {
                Err(WaitError::Poll(error @ (PollError::Handler { .. } | PollError::Progress(_)))) => {
                    failed.get_or_insert(error);
                }
                outcome => return outcome,
            }
        }
    }

    /// Leaves the job properly without waiting for anyone, as survivors of a lost rank do. Returns the state. The
    /// peers do not count this rank as lost; whoever still waits for it does so in vain.
    pub fn leave(self) -> S {
        crate::trace::finished(self.address());
        let Self { mut transport, state, .. } = self;
        transport.depart(Departure::Finished);
        transport.departed = true;
        state
    }

    /// This endpoint's address.
    #[inline]
    pub fn address(&self) -> Address {
        self.sender.me
    }

    /// This endpoint's rank.
    #[inline]
    pub fn rank(&self) -> Rank {
        self.address().rank
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

    /// The state that handlers work on.
    #[inline]
    pub fn state(&self) -> &S {
        &self.state
    }

    /// The state that handlers work on.
    #[inline]
    pub fn state_mut(&mut self) -> &mut S {
        // What the program changes may be work for any layer.
        self.schedule.touch(u64::MAX);
        &mut self.state
    }

    /// The state of a layer; see [`layer`](crate::layer).
    #[inline]
    pub fn layer<L>(&self) -> &L
    where
        S: HasLayer<L>,
    {
        self.state.as_layer()
    }

    /// The state of a layer, whose progress function the next poll or wait calls.
    #[inline]
    pub fn layer_mut<L: 'static>(&mut self) -> &mut L
    where
        S: HasLayer<L>,
    {
        self.schedule.touch(self.table.layers_of::<L>());
        self.state.as_layer_mut()
    }

    /// How often the endpoint went idle so far, as its [statistics](Self::statistics) say.
    #[inline]
    pub fn idles(&self) -> u64 {
        self.sender.stats.idles
    }

    /// What has been counted so far.
    pub fn statistics(&self) -> Statistics {
        Statistics { bare_credits: self.transport.bare_credits(), ..self.sender.stats }
    }

    /// The limits towards a peer, or `None` outside the job.
    pub fn limits(&self, to: impl Destination) -> Option<&Limits> {
        self.sender.shape.peer(to.address()).map(|peer| self.transport.limits(peer))
    }

    /// The largest payload towards a peer, or `None` outside the job.
    pub fn max_payload(
        &self,
        to: impl Destination,
        category: Category,
        lane: Lane,
        arguments: usize,
    ) -> Option<u64> {
        self.sender.max_payload(&self.transport.transport, to.address(), category, lane, arguments)
    }

    /// The largest Medium reply, in bytes, that a request to a handler of this endpoint's table may have, and that
    /// room is set aside for: what the handler declares, or less if the handle says so ([`Request::reply_up_to`]).
    /// `None` if the handler cannot reply, or belongs to another table.
    #[inline]
    pub fn reply_bound<A>(&self, handler: Request<A>) -> Option<u32> {
        self.sender.reply_bound(handler)
    }

    /// What could be sent to a peer right now, or `None` outside the job.
    pub fn credits(&self, to: impl Destination) -> Option<CreditSnapshot> {
        self.sender.shape.peer(to.address()).map(|peer| self.transport.credits(peer))
    }

    /// What is known of a peer, or `None` outside the job.
    pub fn status(&self, of: impl Destination) -> Option<PeerStatus> {
        self.sender.shape.peer(of.address()).map(|peer| self.transport.status(peer))
    }

    /// Whether an endpoint that is lost or has finished can change nothing more of this rank's segment, as far as
    /// the transport can tell ([`Membership::writes_no_more`](crate::transport::Membership::writes_no_more)).
    pub fn writes_no_more(&self, of: impl Destination) -> bool {
        self.sender.shape.peer(of.address()).is_some_and(|peer| self.transport.writes_no_more(peer))
    }

    /// This rank's own segment. It is memory: in a fork of the process, what is stored through it reaches the job
    /// if the transport shares memory, as over shared memory. [`Endpoint::mapped_segment`] is none there.
    #[inline]
    pub fn segment(&self) -> &Segment<T::Memory> {
        &self.segment
    }

    /// Copies out of this rank's own segment what Long messages have placed there, as fast as handlers copy their
    /// payloads: over shared memory faster than [`segment`](Self::segment) does, which other threads may use. Does
    /// not allocate.
    ///
    /// # Errors
    /// [`SegmentError::OutOfRange`]; `out` is unchanged then.
    #[inline]
    pub fn read_placed(&self, offset: u64, out: &mut [u8]) -> Result<(), SegmentError> {
        self.transport.read_placed(offset, out)
    }

    /// Whether this endpoint reads memory that a peer's process lends ([`Lent`]); false outside the job. Asks the
    /// system at the first call.
    pub fn reads_lent(&mut self, of: impl Destination) -> bool {
        let peer = self.sender.shape.peer(of.address());
        peer.is_some_and(|peer| self.transport.reads_lent(peer))
    }

    /// Copies bytes that a peer's process lends, as a message of it said, from byte `at` of them on. Does not
    /// block.
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
        self.transport.read_lent(peer, lent, at, out)
    }

    /// Size in bytes of a rank's segment, or `None` outside the job.
    pub fn segment_len(&self, rank: Rank) -> Option<u64> {
        (rank.0 < self.sender.shape.ranks).then(|| self.transport.segment_len(rank))
    }

    /// A rank's segment for direct loads, stores and atomics, where the transport has them (shared memory). `None`
    /// for a rank outside the job.
    #[inline]
    pub fn remote_segment(&self, rank: Rank) -> Option<&Segment<T::Memory>> {
        self.transport.remote_segment(rank)
    }

    /// A rank's segment as memory that this process may load from and store to: the own one, or a peer's where the
    /// transport has that. `None` where messages go to it, and for any rank in a fork of the endpoint's process.
    #[inline(always)]
    pub fn mapped_segment(&self, rank: Rank) -> Option<&Segment<T::Memory>> {
        // A transport that maps segments has the own one among them, which saves a comparison.
        match self.remote_segment(rank) {
            None => self.own_segment(rank),
            segment => segment,
        }
    }

    /// Apart, so that accesses to mapped memory are short.
    #[cold]
    fn own_segment(&self, rank: Rank) -> Option<&Segment<T::Memory>> {
        (rank == self.rank() && !self.transport.is_fork()).then_some(&self.segment)
    }

    /// The time of the transport.
    #[inline]
    pub fn now(&self) -> Instant {
        self.transport.now()
    }

    /// Accounts for computation that takes `cost` in simulated time; real transports ignore it.
    #[inline]
    pub fn charge(&mut self, cost: Span) {
        self.transport.charge(cost);
    }

    /// Limits how long any later wait of this endpoint may take (sending, `wait_until`, `drain`, `barrier`,
    /// `finish`); `None` waits as long as it takes. A wait beyond it fails with [`WaitError::TimedOut`] and a
    /// [`StallReport`], and waiting again is allowed. Returns the endpoint, for another setting. Attaching itself
    /// is limited by [`stall::set_default_timeout`] or [`Joining::timeout`].
    ///
    /// This is how a rank notices another that hangs. It cannot tell that from one that computes for long: a
    /// time-out is longer than the longest computation between two polls.
    pub fn set_timeout(&mut self, timeout: impl Into<Option<Span>>) -> &mut Self {
        self.timeout = timeout.into();
        self
    }

    /// The limit on waits that [`Endpoint::set_timeout`] sets.
    pub fn timeout(&self) -> Option<Span> {
        self.timeout
    }

    /// The ranks lost so far, with their causes (allocates).
    pub fn lost(&self) -> Vec<(Rank, LossCause)> {
        let mut lost: Vec<(Rank, LossCause)> = Vec::new();
        for peer in (0..self.sender.shape.peers()).map(Peer) {
            let rank = self.sender.shape.address(peer).rank;
            if let PeerStatus::Lost(cause) = self.transport.status(peer)
                && lost.last().is_none_or(|(last, _)| *last != rank)
            {
                lost.push((rank, cause));
            }
        }
        lost
    }

    /// Accepts that a rank is lost: `wait_until` and waits for room towards others no longer fail because of it.
    /// Sending to it still fails, and so do barriers.
    pub fn acknowledge_loss(&mut self, rank: Rank) {
        if !self.acknowledged.contains(&rank) {
            self.acknowledged.push(rank);
        }
    }

    /// Why this endpoint does not get on, if it does not: what it waits for, which requests have no answer, and
    /// towards whom what is used up (allocates; looks at every peer).
    pub fn stall_report(&self) -> StallReport {
        let waited = self.wait_began.map_or(Span::ZERO, |began| self.transport.now() - began);
        let mut report = StallReport {
            of: self.address(),
            waited,
            waiting_for: self.reason.map_or_else(String::new, |reason| reason.to_string()),
            blocked_on: self.blocked_on,
            layers: self.layer_work(),
            needs: Vec::new(),
            unanswered: Vec::new(),
            unhandled: Vec::new(),
            ended: None,
            forgotten: self.sender.directory.tallied(|tally| tally.forgotten),
            detached: self.sender.directory.tallied(|tally| tally.detached),
            short_of: Vec::new(),
            lost: self.lost(),
        };
        // Every request that permits a reply was replied to, was ended without one, or is still owed an answer.
        let replies: u64 = self.sender.stats.replies_received.iter().map(|traffic| traffic.messages).sum();
        let mut ended = self.sender.recent.count().checked_sub(replies);
        for peer in (0..self.sender.shape.peers()).map(Peer) {
            let owed = self.transport.owed(peer);
            ended = owed.filter(|owed| !owed.or_more).and_then(|owed| ended?.checked_sub(owed.replies));
            if self.transport.status(peer) != PeerStatus::Active {
                continue;
            }
            let (to, left) = (self.sender.shape.address(peer), self.transport.credits(peer));
            if [left.request_frames, left.request_bytes, left.reply_frames, left.reply_bytes].contains(&0) {
                report.short_of.push((to, left));
            }
            let Some(Owed { handling, replies: requests, or_more }) = owed else { continue };
            if requests > 0 {
                let handlers = self.sender.recent.handlers(peer);
                let handlers = handlers
                    .into_iter()
                    .map(|handler| self.sender.directory.name(Lane::Request, handler))
                    .collect();
                let age = Some(waited).filter(|waited| *waited > Span::ZERO);
                report.unanswered.push(Unanswered { to, requests, or_more, handlers, age });
            }
            if handling && self.reason == Some(WaitReason::Handling) {
                report.unhandled.push(to);
            }
        }
        report.ended = ended;
        if let Some((to, resource)) = self.blocked_on {
            report.waiting_for = format!("{resource} towards rank {to}");
        }
        if let Some((needs, what)) = self.control.awaited(self.transport.local_peer(), self.sender.shape) {
            report.needs.push(needs);
            report.waiting_for = what;
        }
        report
    }

    /// Hands everything sent so far to the network; needed only before long computations on transports that batch.
    pub fn flush(&mut self) {
        self.transport.flush();
    }

    /// Serves what has arrived, at most 1024 messages; returns how many.
    ///
    /// # Errors
    /// A peer newly lost, a dropped message, or an error that a handler returned, told once; messages that fit
    /// were handled all the same.
    #[inline]
    pub fn poll(&mut self) -> Result<usize, PollError> {
        self.poll_budget(DEFAULT_BUDGET)
    }

    /// The transport, for what only it can do.
    pub fn transport(&self) -> &T {
        &self.transport
    }
}

/// A transport that departs when its endpoint is dropped, unless that has been done properly.
struct Member<T: Transport> {
    transport: T,
    departed: bool,
    /// Whether the program has been told of a lost rank; what it does then is a consequence.
    loss_told: bool,
}

impl<T: Transport> Member<T> {
    fn new(transport: T) -> Self {
        Self { transport, departed: false, loss_told: false }
    }
}

impl<T: Transport> Deref for Member<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.transport
    }
}

impl<T: Transport> DerefMut for Member<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.transport
    }
}

impl<T: Transport> Drop for Member<T> {
    fn drop(&mut self) {
        if !self.departed {
            let how = if self.loss_told { Departure::Left } else { Departure::of_drop() };
            if !self.loss_told {
                let me = self.transport.shape().address(self.transport.local_peer());
                supervision::tell(me, supervision::Event::Left);
            }
            self.transport.depart(how);
        }
    }
}
