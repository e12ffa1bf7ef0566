//! The contract between the core and a network: what a transport offers an [`Endpoint`](crate::Endpoint).
//!
//! A transport moves frames of two lanes, requests and replies, between the endpoints of a job. It owns flow
//! control, waiting and time; it knows no handler. The rules that every transport keeps:
//!
//! * A frame is refused as a whole ([`Refused`]) or accepted as a whole; an accepted frame arrives exactly once
//!   unless its peer is lost.
//! * Replies are never refused for want of room: a request is accepted only once room for its largest permitted
//!   reply ([`ReplyBound`]) is set aside at the requester.
//! * Every accepted request ends in exactly one of: a reply, or a bare credit (which may be coalesced with
//!   others), also when its handler unwinds.
//! * [`Transport::poll`] never blocks and hands out at most its budget.
//! * Time passes where a rank polls, sends, is refused or idles. In a simulation it need not pass where a program
//!   only looks at the clock or at memory.
//! * Bytes from a peer are checked before use; a peer that breaks the protocol becomes [`PeerStatus::Lost`].

mod faulty;
mod forward;
mod lent;
mod membership;
mod native;
mod records;
mod reply_path;

pub use faulty::FaultyPeers;
pub use lent::{Lender, Lent, LentFault, Loan};
pub use membership::{Departure, LossCause, Membership, PeerStatus};
pub use native::{
    AtomicSet, Brought, Capability, Completion, Done, Landing, NativeOneSided, OperationFault, Remote, Ticket,
};
pub use reply_path::{Fill, NullReplyPath, PendingKey, ReplyPath, ReplyPathGone};

use crate::address::{Peer, Rank};
use crate::arguments::Words;
use crate::payload::Payload;
use crate::segment::{AnyMemory, Memory, Segment, SegmentError};
use crate::time::{Instant, Span};
use std::fmt;
use std::os::fd::OwnedFd;
use std::task::Waker;

/// The three kinds of message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Category {
    /// Arguments only.
    Short,
    /// Arguments and a payload in a buffer that the handler sees in place.
    Medium,
    /// Arguments and a payload placed in the destination's segment before the handler runs.
    Long,
}

impl Category {
    /// All categories, in the order of their array indices.
    pub const ALL: [Self; 3] = [Self::Short, Self::Medium, Self::Long];
}

impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Short => "short",
            Self::Medium => "medium",
            Self::Long => "long",
        })
    }
}

/// The two directions of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// From the one who asks.
    Request,
    /// Back from the one who answers.
    Reply,
}

/// The largest reply that a request's handler may send; room for it is set aside when the request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyBound {
    /// The handler cannot reply at all.
    None,
    /// Any Short or Long reply, or a Medium one of at most this many payload bytes.
    UpTo(u32),
}

impl ReplyBound {
    /// The largest Medium reply in bytes; 0 where no reply is permitted, too.
    #[inline(always)]
    pub const fn bytes(self) -> usize {
        match self {
            Self::None => 0,
            Self::UpTo(bytes) => bytes as usize,
        }
    }

    /// As a number, for [`PendingKey::tag`] and for frames: 0 where no reply is permitted.
    #[inline]
    pub const fn to_tag(self) -> u64 {
        match self {
            Self::None => 0,
            Self::UpTo(bytes) => 1 + bytes as u64,
        }
    }

    /// The bound that [`ReplyBound::to_tag`] made a number of; larger numbers than it makes are the largest bound.
    #[inline]
    pub const fn from_tag(tag: u64) -> Self {
        match tag.checked_sub(1) {
            None => Self::None,
            Some(bytes) if bytes > u32::MAX as u64 => Self::UpTo(u32::MAX),
            Some(bytes) => Self::UpTo(bytes as u32),
        }
    }
}

/// What a request frame says about itself besides arguments and payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestHeader {
    /// Index of the handler in the table that all ranks share.
    pub handler: u8,
    /// The largest reply its handler may send.
    pub reply: ReplyBound,
}

/// The reply bound of handlers that declare none, in payload bytes, wherever a Medium reply can be as large.
///
/// One number for all transports, so that a reply that fits on one fits on another. Room for it is set aside for
/// every request under way: a kilobyte lets hundreds of them be.
/// [`Handlers::request_bounded`](crate::Handlers::request_bounded) declares another bound.
pub const DEFAULT_REPLY: usize = 1024;

/// The largest payloads towards one peer, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Payload of a Medium request with sixteen arguments.
    pub medium_request: usize,
    /// Payload of a Medium reply with sixteen arguments, and the largest [`ReplyBound::UpTo`].
    pub medium_reply: usize,
    /// Payload of a Long message, request or reply; the destination's segment limits it further.
    pub long: u64,
    /// The reply bound of handlers that declare none; the same towards all peers. [`DEFAULT_REPLY`], unless
    /// `medium_reply` or the transport's settings are smaller.
    pub default_reply: usize,
    /// Extra Medium payload for each argument fewer than sixteen (0 where arguments and payload do not share
    /// room).
    pub per_argument: usize,
    /// Whether requests of one pair are handled in the order they were sent, and replies likewise. Nothing else is
    /// ordered anywhere; see [`Endpoint`](crate::Endpoint#order).
    pub ordered: bool,
}

impl Limits {
    /// Medium messages of at most `medium` bytes in both directions, Long ones of at most `long`, with any number
    /// of arguments, and the default reply bound; messages of a pair are in order.
    pub const fn uniform(medium: usize, long: u64) -> Self {
        let default_reply = if medium < DEFAULT_REPLY { medium } else { DEFAULT_REPLY };
        let (medium_request, medium_reply) = (medium, medium);
        Self { medium_request, medium_reply, long, default_reply, per_argument: 0, ordered: true }
    }

    /// Sets the largest Medium reply; the default reply bound is no larger.
    #[must_use]
    pub const fn with_medium_reply(mut self, bytes: usize) -> Self {
        self.medium_reply = bytes;
        self.with_default_reply(self.default_reply)
    }

    /// Sets the reply bound of handlers that declare none, at most the largest Medium reply.
    #[must_use]
    pub const fn with_default_reply(mut self, bytes: usize) -> Self {
        self.default_reply = if bytes < self.medium_reply { bytes } else { self.medium_reply };
        self
    }

    /// Sets whether messages of a pair are handled in the order they were sent.
    #[must_use]
    pub const fn with_order(mut self, ordered: bool) -> Self {
        self.ordered = ordered;
        self
    }

    /// The largest payload of a message with `arguments` 32-bit arguments.
    #[inline]
    pub fn max_payload(&self, category: Category, lane: Lane, arguments: usize) -> u64 {
        let extra = self.per_argument * crate::arguments::MAX_WORDS.saturating_sub(arguments);
        match (category, lane) {
            (Category::Short, _) => 0,
            (Category::Medium, Lane::Request) => (self.medium_request + extra) as u64,
            (Category::Medium, Lane::Reply) => (self.medium_reply + extra) as u64,
            (Category::Long, _) => self.long,
        }
    }
}

/// A resource that a sender can run short of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Resource {
    /// Frames of the request lane.
    RequestFrames,
    /// Payload bytes of the request lane.
    RequestBytes,
    /// Frames set aside for replies.
    ReplyFrames,
    /// Payload bytes set aside for replies.
    ReplyBytes,
    /// Credits granted by the peer.
    Credits,
    /// Something local to the network interface, such as its send queue.
    Interface,
    /// A connection to the peer, which is being opened.
    Connection,
}

impl Resource {
    /// All resources, in the order of their array indices.
    pub const ALL: [Self; 7] = [
        Self::RequestFrames,
        Self::RequestBytes,
        Self::ReplyFrames,
        Self::ReplyBytes,
        Self::Credits,
        Self::Interface,
        Self::Connection,
    ];

    /// What a request with so many bytes of payload lacks where one limit bounds frames and bytes of requests
    /// alike.
    pub const fn of_request(payload: usize) -> Self {
        if payload == 0 { Self::RequestFrames } else { Self::RequestBytes }
    }

    /// What is lacking for a reply where one limit bounds frames and bytes of replies alike.
    pub const fn of_reply(bound: ReplyBound) -> Self {
        match bound {
            ReplyBound::None | ReplyBound::UpTo(0) => Self::ReplyFrames,
            ReplyBound::UpTo(_) => Self::ReplyBytes,
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RequestFrames => "request frames",
            Self::RequestBytes => "request payload bytes",
            Self::ReplyFrames => "reply frames",
            Self::ReplyBytes => "reply payload bytes",
            Self::Credits => "credits",
            Self::Interface => "network interface queue entries",
            Self::Connection => "connection",
        })
    }
}

/// What a wait is for: reports of stalls and deadlocks tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitReason {
    /// A message, from anyone.
    Message,
    /// A message of a collective operation or of two-sided communication, from this peer.
    Collective(Peer),
    /// Room towards a peer.
    Room(Peer, Resource),
    /// That the peers handle all requests sent to them.
    Handling,
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message => f.write_str("incoming messages"),
            Self::Collective(from) => write!(f, "a message of endpoint {}", from.0),
            Self::Room(to, resource) => write!(f, "{resource} towards endpoint {}", to.0),
            Self::Handling => f.write_str("requests to be handled"),
        }
    }
}

/// Why a transport did not accept a frame. Nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// This resource is used up for now; serve incoming messages and try again.
    Busy(Resource),
    /// The peer takes no more messages: it has finished, or is lost.
    Gone(PeerStatus),
}

/// What a message carries besides its arguments. The body tells the message's [`Category`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// Nothing: a Short message.
    None,
    /// Bytes that the destination's handler sees in a buffer: a Medium message.
    Copy(&'a [u8]),
    /// Bytes that are placed at a byte offset of the destination's segment before the handler runs: a Long
    /// message.
    Place(&'a [u8], u64),
}

impl Body<'_> {
    /// The category of a message with this body.
    #[inline(always)]
    pub const fn category(&self) -> Category {
        match self {
            Self::None => Category::Short,
            Self::Copy(_) => Category::Medium,
            Self::Place(..) => Category::Long,
        }
    }

    /// The payload, and where it is placed (0 unless it is): for transports that carry all categories alike.
    #[inline(always)]
    pub const fn parts(&self) -> (&[u8], u64) {
        match self {
            Self::None => (&[], 0),
            Self::Copy(bytes) => (bytes, 0),
            Self::Place(bytes, at) => (bytes, *at),
        }
    }

    /// Number of payload bytes.
    #[inline(always)]
    pub const fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Copy(bytes) | Self::Place(bytes, _) => bytes.len(),
        }
    }

    /// Whether there are no payload bytes.
    #[inline(always)]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a transport makes of a wish to be called; see [`Waiting::notify`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notify {
    /// The waker will be called.
    Armed,
    /// Something is there already; the waker will not be called.
    Ready,
    /// This transport must be polled.
    Never,
}

/// What a sender could still send to one peer at this moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CreditSnapshot {
    /// Free frames of the request lane.
    pub request_frames: u64,
    /// Free payload bytes of the request lane.
    pub request_bytes: u64,
    /// Frames that can still be set aside for replies.
    pub reply_frames: u64,
    /// Payload bytes that can still be set aside for replies.
    pub reply_bytes: u64,
}

/// What a peer owes this endpoint, for stall reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Owed {
    /// Whether a request of any kind has not been handled there.
    pub handling: bool,
    /// Requests that permit a reply and have got neither it nor a bare credit.
    pub replies: u64,
    /// Whether there may be more than `replies` of them.
    pub or_more: bool,
}

/// An arrived request or reply, valid while its handler runs.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Arrival<'a> {
    /// Who sent it.
    pub from: Peer,
    /// Its kind.
    pub category: Category,
    /// Index of its handler; not yet checked.
    pub handler: u8,
    /// Its arguments.
    pub args: &'a Words,
    /// Its payload; for Long a view of the local segment that knows its offset.
    pub payload: Payload<'a>,
}

/// Fills a payload buffer in the transport before it is sent.
///
/// Bytes that were never written are unspecified at the receiver, though never secret: they are earlier payload of
/// the same pair, or zero.
pub trait PayloadWriter {
    /// Size of the buffer in bytes.
    fn len(&self) -> usize;

    /// Whether the buffer has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes bytes at an offset.
    ///
    /// # Panics
    /// If they do not fit the buffer.
    fn write(&mut self, at: usize, bytes: &[u8]);

    /// Writes a little-endian 64-bit value at byte `8 * index`.
    ///
    /// # Panics
    /// If it does not fit the buffer.
    #[inline]
    fn write_u64(&mut self, index: usize, value: u64) {
        self.write(8 * index, &value.to_le_bytes());
    }
}

/// A payload being filled in memory of this process.
#[derive(Debug)]
pub struct Buffer<'a>(pub &'a mut [u8]);

impl PayloadWriter for Buffer<'_> {
    #[inline]
    fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn write(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

/// A reserved Medium request: a buffer to fill, sent by [`Slot::commit`], given back when dropped.
pub trait Slot: PayloadWriter {
    /// Sends the message.
    fn commit(self);
}

/// Where a transport delivers what arrives. Implemented by the core.
pub trait Sink {
    /// A request, and the way back for its reply.
    fn request(&mut self, arrival: Arrival<'_>, path: &mut dyn ReplyPath);

    /// A reply.
    fn reply(&mut self, arrival: Arrival<'_>);

    /// A message between cores, sent by [`Transport::control`].
    fn control(&mut self, from: Peer, args: &Words, payload: Payload<'_>);

    /// The end of an operation of [`NativeOneSided`]. Sinks that start none need not care.
    fn completed(&mut self, completion: Completion<'_>) {
        let _ = completion;
    }
}

/// Time, and how a rank passes it until something happens.
pub trait Waiting {
    /// Waits a little after a fruitless poll or a refusal: until something may have changed, or until `until`. May
    /// return early, and does so at once if something has come, or room has, since then. Real transports spin,
    /// then yield, then park, for at most about a second at a time, so that the endpoint can see a request for its
    /// stall report; simulated ones suspend the rank. `reason` is for their reports.
    fn idle(&mut self, until: Option<Instant>, reason: WaitReason);

    /// [`Waiting::idle`], where peers also change memory that this process sees: it does not begin once `changed`
    /// is true. A peer that makes it true calls [`Waiting::wake_peer`] afterwards, which ends an idling that began
    /// before. Transports with [`Transport::auxiliary`] segments provide it.
    fn idle_unless(&mut self, until: Option<Instant>, reason: WaitReason, changed: &mut dyn FnMut() -> bool) {
        if !changed() {
            self.idle(until, reason);
        }
    }

    /// Ends the idling of a peer that waits for a change of memory which both see, and which this endpoint has
    /// just made. Cheap where the peer does not sleep. Does not block.
    fn wake_peer(&mut self, peer: Peer) {
        let _ = peer;
    }

    /// Whether the next [`Waiting::idle`] of a wait that has just begun only spins, so that asking for the time
    /// would delay it. Where this is true, the first 64 idlings of a wait do not sleep.
    fn spins(&self) -> bool {
        false
    }

    /// What ends this transport's idling, from any thread and at any time: an idling that is about to begin ends
    /// at once. `None` where nothing can, as in a simulation.
    fn waker(&self) -> Option<Waker> {
        None
    }

    /// Hands over everything accepted so far, then watches the network without the rank's help: `waker` is called
    /// once, from any thread, when something may have come since the last poll, be it a frame, room or a loss. So
    /// a rank waits for several things at once.
    fn notify(&mut self, waker: &Waker) -> Notify {
        let _ = waker;
        Notify::Never
    }

    /// A descriptor for the event loop of a program that sleeps there: [`Waiting::notify_readable`] has it become
    /// readable. Each call gives another one for the same, which is for waiting alone and not to be read. `None`
    /// where the transport can call wakers only, or the system refuses. Allocates.
    fn descriptor(&mut self) -> Option<OwnedFd> {
        None
    }

    /// As [`Waiting::notify`], but makes [`Waiting::descriptor`] readable, if there is one, where `notify` has a
    /// thread call the waker: who sleeps on it is woken by the sender itself. Until the next call of this it stays
    /// readable, which an event loop that is told of changes alone forgets before this call. What the transport
    /// learns otherwise calls the waker. Whoever sleeps so polls once a second even if nothing tells it to.
    fn notify_readable(&mut self, waker: &Waker) -> Notify {
        self.notify(waker)
    }

    /// The rank looks for itself again: what [`Waiting::notify`] has armed need not be called any more, though it
    /// may be. Cheap.
    fn end_notify(&mut self) {}

    /// The time now.
    fn now(&self) -> Instant;

    /// Accounts for computation; real transports ignore it.
    fn charge(&mut self, cost: Span) {
        let _ = cost;
    }
}

/// A network that carries active messages for one endpoint. See the [module](self) for the rules.
pub trait Transport: Membership + Waiting {
    /// The memory of segments.
    type Memory: Memory + Clone;
    /// What [`Transport::reserve`] has taken, until it becomes a slot.
    type Room;
    /// A reserved Medium request being filled.
    type Slot<'a>: Slot
    where
        Self: 'a;

    /// The limits towards a peer.
    fn limits(&self, peer: Peer) -> &Limits;

    /// Sends a request. A Long payload is placed in the destination's segment, then the frame is delivered; the
    /// caller has checked its range against [`Transport::segment_len`], and the length of a Medium one against
    /// [`Limits::max_payload`]. Does not allocate.
    ///
    /// Does not block, except that a Long payload larger than the transport's buffers may take as long as the
    /// medium takes to carry it. Meanwhile the transport takes in what arrives without delivering it; a peer lost
    /// on the way ends that with [`Refused::Gone`].
    ///
    /// # Errors
    /// [`Refused`]; the frame will not be delivered. Unless the peer is gone, nothing was placed.
    fn send(&mut self, to: Peer, head: RequestHeader, args: &Words, body: Body<'_>) -> Result<(), Refused>;

    /// Takes the room of a Medium request of `len` payload bytes, at most [`Limits::max_payload`]. Does not block
    /// or allocate. The caller turns what it gets into a slot, with the same arguments and before any other call.
    ///
    /// # Errors
    /// [`Refused`]; nothing was taken.
    fn reserve(&mut self, to: Peer, head: RequestHeader, args: &Words, len: usize) -> Result<Self::Room, Refused>;

    /// The buffer in room that [`Transport::reserve`] has just taken. Does not block or allocate.
    fn slot(
        &mut self,
        to: Peer,
        head: RequestHeader,
        args: &Words,
        len: usize,
        room: Self::Room,
    ) -> Self::Slot<'_>;

    /// Sends a message between cores on the request lane; it has no reply and no handler. Such messages may
    /// overtake each other where [`Limits::ordered`] is false.
    ///
    /// # Errors
    /// [`Refused`]; nothing was sent.
    fn control(&mut self, to: Peer, args: &Words, payload: &[u8]) -> Result<(), Refused>;

    /// Delivers at most `budget` arrived frames to the sink; returns how many. One poll may look at some of the
    /// peers only; the next one goes on behind them, and [`Transport::polls_per_sweep`] of them look at all.
    fn poll<S: Sink>(&mut self, budget: usize, sink: &mut S) -> usize;

    /// Whether a poll may find something to do: asked before each, so that an empty one is cheap. It counts as a
    /// fruitless poll where it is false, and is so only where the poll would deliver nothing and do nothing else.
    #[inline]
    fn may_deliver(&mut self) -> bool {
        true
    }

    /// How many fruitless polls in a row tell that nothing has arrived from anyone.
    fn polls_per_sweep(&self) -> u32 {
        1
    }

    /// Opens a detached way back once more; a reply path left unused becomes a bare credit.
    fn reply_detached<R>(&mut self, key: PendingKey, reply: impl FnOnce(&mut dyn ReplyPath) -> R) -> R;

    /// Hands everything accepted so far to the network.
    fn flush(&mut self);

    /// Whether every accepted request to a peer that is still there has been handled (or dropped) at its
    /// destination, and the reply that its handler sent, if any, can be polled here.
    fn is_quiescent(&mut self) -> bool;

    /// This rank's own segment.
    fn segment(&self) -> &Segment<Self::Memory>;

    /// Copies from this rank's own segment what Long messages have placed there: where handlers copy such payloads
    /// faster than [`segment`](Transport::segment) does, that way.
    ///
    /// # Errors
    /// [`SegmentError::OutOfRange`]; `out` is unchanged then.
    #[inline]
    fn read_placed(&self, offset: u64, out: &mut [u8]) -> Result<(), SegmentError> {
        self.segment().read(offset, out)
    }

    /// Size in bytes of a rank's segment.
    fn segment_len(&self, rank: Rank) -> u64;

    /// A rank's segment for direct access, where the medium has that (loads and stores in shared memory). None for
    /// any rank in a [fork](Membership::is_fork) and for one outside the job.
    fn remote_segment(&self, rank: Rank) -> Option<&Segment<Self::Memory>> {
        let _ = rank;
        None
    }

    /// Whether this endpoint reads memory that a peer's process lends ([`Lent`]), as far as is known. Asks the
    /// system at the first call.
    fn reads_lent(&mut self, of: Peer) -> bool {
        let _ = of;
        false
    }

    /// Copies bytes that a peer's process lends, from byte `at` of them on. Does not block or allocate, but for
    /// the first call. The range is what the peer says; `out` may be changed by a read that fails.
    ///
    /// # Errors
    /// [`LentFault`].
    fn read_lent(&mut self, of: Peer, lent: &Lent, at: u64, out: &mut [u8]) -> Result<(), LentFault> {
        let _ = (of, lent, at, out);
        Err(LentFault::Refused)
    }

    /// A peer's auxiliary segment, or this endpoint's own, where this process sees it: memory beside the segment
    /// of its rank, zero at first, that programs do not see and layers use (GASNet-EX's auxiliary segments). All
    /// of it belongs to one layer, the collective operations of `am-pgas`. Allocates.
    fn auxiliary(&self, of: Peer) -> Option<Segment<AnyMemory>> {
        let _ = of;
        None
    }

    /// The one-sided operations that the network does by itself towards a peer, and what the peer is called there;
    /// `None` where it does none. The same at every call.
    fn native(&mut self, to: Peer) -> Option<(&mut dyn NativeOneSided, Peer)> {
        let _ = to;
        None
    }

    /// What could still be sent to a peer now.
    fn credits(&self, peer: Peer) -> CreditSnapshot;

    /// What a peer owes this endpoint, from accounts that the transport keeps anyway; `None` where it keeps none
    /// per peer.
    fn owed(&self, peer: Peer) -> Option<Owed> {
        let _ = peer;
        None
    }

    /// How many bare credits have been given back so far, instead of replies.
    fn bare_credits(&self) -> u64;
}
