//! The loopback transport: a whole job inside one process, for examples, tests and single-rank programs.
//!
//! Frames wait in the receiver's inbox, a locked queue. Flow control is a static partition: each pair of endpoints
//! may have a number of requests under way, and a number of requests whose reply is still owed. After set-up
//! nothing is allocated: payload buffers go round. [Order](crate::Endpoint#order): requests of one endpoint to
//! another are handled as they were sent, and replies likewise.

mod native;

pub use native::NativeOperations;

use crate::address::{Peer, Rank, Shape};
use crate::arguments::Words;
use crate::payload::Payload;
use crate::segment::{AnyMemory, Segment};
use crate::time::{Clock, Instant};
use crate::transport::{
    Arrival, Body, Category, CreditSnapshot, Departure, Limits, Membership, NativeOneSided, Notify, Owed,
    PayloadWriter, PeerStatus, PendingKey, Refused, ReplyBound, ReplyPath, ReplyPathGone, RequestHeader, Resource,
    Sink, Slot, Transport, WaitReason, Waiting,
};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::task::{Wake, Waker};
use std::time::Duration;

/// Bytes of an auxiliary segment.
const AUXILIARY: usize = 128 << 10;

/// Sizes of a loopback network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoopbackConfig {
    /// Requests under way between a pair, at least 1.
    pub requests: usize,
    /// Requests of a pair whose reply is still owed, at least 1.
    pub replies: usize,
    /// Largest Medium payload in bytes, either direction.
    pub medium: usize,
    /// Largest Long payload in bytes, either direction.
    pub long: u64,
    /// Size of every rank's segment in bytes.
    pub segment: usize,
    /// Endpoints per rank, at least 1.
    pub endpoints: u16,
    /// Whether ranks see each other's segments as memory, as those of one host do.
    pub direct: bool,
    /// One-sided operations that the network does by itself.
    pub native: NativeOperations,
}

impl LoopbackConfig {
    /// 64 messages under way each way between a pair, payloads of 8 KiB, a segment of 64 KiB in memory that all
    /// ranks see, one endpoint per rank.
    pub const fn new() -> Self {
        Self {
            requests: 64,
            replies: 64,
            medium: 8192,
            long: u64::MAX,
            segment: 1 << 16,
            endpoints: 1,
            direct: true,
            native: NativeOperations::None,
        }
    }

    /// Sets the requests under way between a pair, at least 1.
    #[must_use]
    pub const fn requests(mut self, requests: usize) -> Self {
        self.requests = requests;
        self
    }

    /// Sets the requests of a pair whose reply is still owed, at least 1.
    #[must_use]
    pub const fn replies(mut self, replies: usize) -> Self {
        self.replies = replies;
        self
    }

    /// Sets the largest Medium payload in bytes, either direction.
    #[must_use]
    pub const fn medium(mut self, medium: usize) -> Self {
        self.medium = medium;
        self
    }

    /// Sets the largest Long payload in bytes, either direction.
    #[must_use]
    pub const fn long(mut self, long: u64) -> Self {
        self.long = long;
        self
    }

    /// Sets the size of every rank's segment in bytes.
    #[must_use]
    pub const fn segment(mut self, segment: usize) -> Self {
        self.segment = segment;
        self
    }

    /// Sets the endpoints per rank, at least 1.
    #[must_use]
    pub const fn endpoints(mut self, endpoints: u16) -> Self {
        self.endpoints = endpoints;
        self
    }

    /// Sets whether ranks see each other's segments as memory.
    #[must_use]
    pub const fn direct(mut self, direct: bool) -> Self {
        self.direct = direct;
        self
    }

    /// Sets the one-sided operations that the network does by itself.
    #[must_use]
    pub const fn native(mut self, native: NativeOperations) -> Self {
        self.native = native;
        self
    }
}

impl Default for LoopbackConfig {
    fn default() -> Self {
        Self::new()
    }
}

/// What a frame is.
#[derive(Clone, Copy)]
enum Kind {
    Request(Category, ReplyBound),
    Reply(Category),
    Control,
}

struct Frame {
    from: Peer,
    kind: Kind,
    handler: u8,
    args: Words,
    payload: Vec<u8>,
    /// Offset and length of a Long payload in the receiver's segment.
    placed: (u64, usize),
}

/// What waits for one endpoint, and what its peers gave back to it.
#[derive(Default)]
struct Inbox {
    frames: VecDeque<Frame>,
    spare: Vec<Vec<u8>>,
    /// Per peer: requests of this endpoint that have been handled.
    handled: Vec<u64>,
    /// Per peer: requests of this endpoint that ended without a reply although one was possible.
    bare: Vec<u64>,
    status: Option<PeerStatus>,
    /// Something changed since the last idle.
    news: bool,
    /// Whom to call at the next change.
    watcher: Option<Waker>,
}

impl Inbox {
    fn take_back(&mut self, buffer: Vec<u8>) {
        // Short and Long frames carry a buffer without capacity, which is no use to anyone.
        if buffer.capacity() != 0 {
            self.spare.push(buffer);
        }
    }
}

struct Network {
    shape: Shape,
    config: LoopbackConfig,
    limits: Limits,
    inboxes: Vec<(Mutex<Inbox>, Condvar)>,
    segments: Vec<Segment<LoopbackMemory>>,
    /// By endpoint, made when it is first asked for.
    auxiliary: Vec<OnceLock<Segment<AnyMemory>>>,
    losses: AtomicU32,
    clock: Clock,
}

impl Network {
    fn inbox(&self, of: Peer) -> MutexGuard<'_, Inbox> {
        // A panic elsewhere cannot leave an inbox half changed: every change is one push or one addition.
        self.inboxes[of.index()].0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn wake(&self, of: Peer, mut inbox: MutexGuard<'_, Inbox>) {
        inbox.news = true;
        let watcher = inbox.watcher.take();
        drop(inbox);
        self.inboxes[of.index()].1.notify_all();
        if let Some(watcher) = watcher {
            watcher.wake();
        }
    }

    fn status(&self, of: Peer) -> PeerStatus {
        self.inbox(of).status.unwrap_or(PeerStatus::Active)
    }
}

/// Ends the idling of one endpoint.
struct IdleWaker {
    network: Arc<Network>,
    of: Peer,
}

impl Wake for IdleWaker {
    fn wake(self: Arc<Self>) {
        self.network.wake(self.of, self.network.inbox(self.of));
    }
}

/// One endpoint of a loopback network. Sendable to the thread that plays its rank.
pub struct Loopback {
    me: Peer,
    network: Arc<Network>,
    /// Per peer: requests sent, replies still owed to us, and what of the peer's give-backs has been seen.
    sent: Vec<u64>,
    owed: Vec<u64>,
    bare_seen: Vec<u64>,
    bare_given: u64,
    native: native::Native,
    departed: bool,
}

impl std::fmt::Debug for Loopback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loopback").field("me", &self.me).field("shape", &self.network.shape).finish()
    }
}

/// The memory of a loopback segment.
pub type LoopbackMemory = Arc<[AtomicU64]>;

/// A segment of `len` zero bytes.
pub fn segment(len: usize) -> Segment<LoopbackMemory> {
    Segment::new((0..len.div_ceil(8)).map(|_| AtomicU64::new(0)).collect(), len)
}

/// Makes a network of `ranks` ranks; the endpoints come in the order of their [`Peer`] indices.
///
/// # Panics
/// If a count in the configuration is zero.
pub fn network(ranks: u32, config: LoopbackConfig) -> Vec<Loopback> {
    network_over((0..ranks).map(|_| segment(config.segment)).collect(), config)
}

/// [`network`] over segments that exist, one for each rank; [`LoopbackConfig::segment`] is not used.
///
/// # Panics
/// If a count in the configuration is zero, or there is no segment.
pub fn network_over(segments: Vec<Segment<LoopbackMemory>>, config: LoopbackConfig) -> Vec<Loopback> {
    let ranks = segments.len() as u32;
    assert!(ranks > 0 && config.endpoints > 0, "a job has at least one endpoint");
    assert!(config.requests > 0 && config.replies > 0, "a pair needs room for a request and its reply");
    let shape = Shape { ranks, endpoints: config.endpoints };
    let peers = shape.peers() as usize;
    let inbox = || Inbox {
        frames: VecDeque::with_capacity(peers * (config.requests + config.replies)),
        spare: Vec::with_capacity(peers * (config.requests + config.replies) + 1),
        handled: vec![0; peers],
        bare: vec![0; peers],
        ..Inbox::default()
    };
    let network = Arc::new(Network {
        shape,
        config,
        limits: Limits::uniform(config.medium, config.long),
        inboxes: (0..peers).map(|_| (Mutex::new(inbox()), Condvar::new())).collect(),
        segments,
        auxiliary: (0..peers).map(|_| OnceLock::new()).collect(),
        losses: AtomicU32::new(0),
        clock: Clock::start(),
    });
    let endpoint = |index| Loopback {
        me: Peer(index),
        network: Arc::clone(&network),
        sent: vec![0; peers],
        owed: vec![0; peers],
        bare_seen: vec![0; peers],
        bare_given: 0,
        native: native::Native::new(Peer(index)),
        departed: false,
    };
    (0..shape.peers()).map(endpoint).collect()
}

/// A job of one rank that talks to itself.
pub fn single() -> Loopback {
    network(1, LoopbackConfig::default()).pop().expect("a network of one rank has one endpoint")
}

impl Loopback {
    /// Checks flow control and takes what a request needs.
    fn admit(&mut self, to: Peer, reply: ReplyBound) -> Result<(), Refused> {
        let index = to.index();
        self.network.status(to).active().map_err(Refused::Gone)?;
        let inbox = self.network.inbox(self.me);
        let (handled, bare) = (inbox.handled[index], inbox.bare[index]);
        drop(inbox);
        self.owed[index] -= bare - std::mem::replace(&mut self.bare_seen[index], bare);
        if self.sent[index] - handled >= self.network.config.requests as u64 {
            return Err(Refused::Busy(Resource::RequestFrames));
        }
        if reply != ReplyBound::None && self.owed[index] >= self.network.config.replies as u64 {
            return Err(Refused::Busy(Resource::ReplyFrames));
        }
        self.owed[index] += u64::from(reply != ReplyBound::None);
        self.sent[index] += 1;
        Ok(())
    }

    /// A payload buffer of this endpoint; new ones are only made until as many as are ever under way exist.
    fn buffer(&self, len: usize) -> Vec<u8> {
        if len == 0 {
            return Vec::new();
        }
        let spare = self.network.inbox(self.me).spare.pop();
        let mut buffer = spare.unwrap_or_else(|| Vec::with_capacity(self.network.config.medium));
        buffer.clear();
        buffer.resize(len, 0);
        buffer
    }

    /// A payload buffer with a copy of some bytes.
    fn filled(&self, payload: &[u8]) -> Vec<u8> {
        let mut buffer = self.buffer(payload.len());
        buffer.copy_from_slice(payload);
        buffer
    }

    fn deliver(&self, to: Peer, frame: Frame) {
        let mut inbox = self.network.inbox(to);
        inbox.frames.push_back(frame);
        self.network.wake(to, inbox);
    }

    fn place(&self, to: Peer, payload: &[u8], at: u64) {
        let rank = self.network.shape.address(to).rank;
        let segment = &self.network.segments[rank.0 as usize];
        segment.write(at, payload).expect("the core checks the range of a Long message");
    }
}

/// A claimed Medium request of the loopback transport.
#[derive(Debug)]
pub struct LoopbackSlot<'a> {
    transport: &'a mut Loopback,
    to: Peer,
    head: RequestHeader,
    args: Words,
    payload: Vec<u8>,
    committed: bool,
}

impl PayloadWriter for LoopbackSlot<'_> {
    fn len(&self) -> usize {
        self.payload.len()
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        self.payload[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

impl Slot for LoopbackSlot<'_> {
    fn commit(mut self) {
        self.committed = true;
        let frame = Frame {
            from: self.transport.me,
            kind: Kind::Request(Category::Medium, self.head.reply),
            handler: self.head.handler,
            args: self.args,
            payload: std::mem::take(&mut self.payload),
            placed: (0, 0),
        };
        self.transport.deliver(self.to, frame);
    }
}

impl Drop for LoopbackSlot<'_> {
    fn drop(&mut self) {
        if self.committed {
            return;
        }
        let index = self.to.index();
        self.transport.sent[index] -= 1;
        if self.head.reply != ReplyBound::None {
            self.transport.owed[index] -= 1;
        }
        let buffer = std::mem::take(&mut self.payload);
        self.transport.network.inbox(self.transport.me).take_back(buffer);
    }
}

/// The way back to a requester.
struct LoopbackReplyPath<'a> {
    transport: &'a mut Loopback,
    to: Peer,
    bound: ReplyBound,
    used: bool,
}

impl LoopbackReplyPath<'_> {
    fn deliver(&mut self, category: Category, handler: u8, args: &Words, payload: Vec<u8>, placed: (u64, usize)) {
        self.used = true;
        let kind = Kind::Reply(category);
        let frame = Frame { from: self.transport.me, kind, handler, args: *args, payload, placed };
        self.transport.deliver(self.to, frame);
    }
}

impl ReplyPath for LoopbackReplyPath<'_> {
    fn bound(&self) -> usize {
        self.bound.bytes()
    }

    fn segment_len(&self) -> u64 {
        let Network { shape, segments, .. } = &*self.transport.network;
        segments[shape.address(self.to).rank.0 as usize].len() as u64
    }

    fn long_limit(&self) -> u64 {
        self.transport.network.limits.long
    }

    fn send(&mut self, handler: u8, args: &Words, body: Body<'_>) -> Result<(), ReplyPathGone> {
        self.check()?;
        let (payload, placed) = match body {
            Body::None => (Vec::new(), (0, 0)),
            Body::Copy(payload) => {
                assert!(payload.len() <= self.bound(), "the core checks the bound of a reply");
                (self.transport.filled(payload), (0, 0))
            }
            Body::Place(payload, at) => {
                self.transport.place(self.to, payload, at);
                (Vec::new(), (at, payload.len()))
            }
        };
        self.deliver(body.category(), handler, args, payload, placed);
        Ok(())
    }

    fn check(&self) -> Result<(), ReplyPathGone> {
        self.transport.network.status(self.to).active().map_err(|_| ReplyPathGone)
    }

    fn take_buffer(&mut self, len: usize) -> Vec<u8> {
        self.transport.buffer(len)
    }

    fn give_buffer(&mut self, buffer: Vec<u8>) {
        self.transport.network.inbox(self.transport.me).take_back(buffer);
    }

    fn detach(&mut self) -> PendingKey {
        self.used = true;
        PendingKey { to: self.to, tag: self.bound.to_tag() }
    }
}

impl Drop for LoopbackReplyPath<'_> {
    fn drop(&mut self) {
        if !self.used && self.bound != ReplyBound::None {
            self.transport.bare_given += 1;
            let mut inbox = self.transport.network.inbox(self.to);
            inbox.bare[self.transport.me.index()] += 1;
            self.transport.network.wake(self.to, inbox);
        }
    }
}

/// A frame being handled. Gives the payload buffer back to its sender, and tells a requester that its request has
/// been handled, also when the handler unwinds.
struct InHand {
    network: Arc<Network>,
    by: Peer,
    from: Peer,
    is_reply: bool,
    bytes: Vec<u8>,
}

impl Drop for InHand {
    fn drop(&mut self) {
        let mut inbox = self.network.inbox(self.from);
        inbox.take_back(std::mem::take(&mut self.bytes));
        if !self.is_reply {
            inbox.handled[self.by.index()] += 1;
            self.network.wake(self.from, inbox);
        }
    }
}

impl Membership for Loopback {
    fn local_peer(&self) -> Peer {
        self.me
    }

    fn shape(&self) -> Shape {
        self.network.shape
    }

    fn losses(&self) -> u32 {
        // Acquire: pairs with the Release in `depart`, so that the status is visible with the count.
        self.network.losses.load(Ordering::Acquire)
    }

    fn status(&self, peer: Peer) -> PeerStatus {
        self.network.status(peer)
    }

    fn writes_no_more(&self, peer: Peer) -> bool {
        // A peer writes itself, and ends that before it departs.
        self.network.status(peer) != PeerStatus::Active
    }

    fn depart(&mut self, how: Departure) {
        self.carry_out();
        let status = how.status();
        self.departed = true;
        self.network.inbox(self.me).status = Some(status);
        if how != Departure::Finished {
            // Release: pairs with the Acquire in `losses`.
            self.network.losses.fetch_add(1, Ordering::Release);
        }
        for peer in (0..self.network.shape.peers()).map(Peer) {
            let inbox = self.network.inbox(peer);
            self.network.wake(peer, inbox);
        }
    }
}

impl Waiting for Loopback {
    fn idle(&mut self, until: Option<Instant>, _: WaitReason) {
        if !self.native.is_idle() {
            return;
        }
        let (_, condvar) = &self.network.inboxes[self.me.index()];
        let mut inbox = self.network.inbox(self.me);
        if !inbox.news {
            let limit = until.map_or(Duration::from_millis(100), |until| (until - self.now()).into());
            let wait = condvar.wait_timeout(inbox, limit.min(Duration::from_millis(100)));
            inbox = wait.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
        inbox.news = false;
    }

    fn wake_peer(&mut self, peer: Peer) {
        // Whoever is about to idle sees the news, which are told under its lock.
        self.network.wake(peer, self.network.inbox(peer));
    }

    fn waker(&self) -> Option<Waker> {
        Some(Arc::new(IdleWaker { network: Arc::clone(&self.network), of: self.me }).into())
    }

    fn notify(&mut self, waker: &Waker) -> Notify {
        let mut inbox = self.network.inbox(self.me);
        if std::mem::take(&mut inbox.news) || !inbox.frames.is_empty() || !self.native.is_idle() {
            return Notify::Ready;
        }
        inbox.watcher = Some(waker.clone());
        Notify::Armed
    }

    fn now(&self) -> Instant {
        self.network.clock.now()
    }
}

impl Transport for Loopback {
    type Memory = Arc<[AtomicU64]>;
    type Room = ();
    type Slot<'a> = LoopbackSlot<'a>;

    fn limits(&self, _: Peer) -> &Limits {
        &self.network.limits
    }

    fn send(&mut self, to: Peer, head: RequestHeader, args: &Words, body: Body<'_>) -> Result<(), Refused> {
        self.admit(to, head.reply)?;
        let (payload, placed) = match body {
            Body::None => (Vec::new(), (0, 0)),
            Body::Copy(payload) => (self.filled(payload), (0, 0)),
            Body::Place(payload, at) => {
                self.place(to, payload, at);
                (Vec::new(), (at, payload.len()))
            }
        };
        let kind = Kind::Request(body.category(), head.reply);
        let frame = Frame { from: self.me, kind, handler: head.handler, args: *args, payload, placed };
        self.deliver(to, frame);
        Ok(())
    }

    fn reserve(&mut self, to: Peer, head: RequestHeader, _: &Words, _: usize) -> Result<(), Refused> {
        self.admit(to, head.reply)
    }

    fn slot(&mut self, to: Peer, head: RequestHeader, args: &Words, len: usize, (): ()) -> LoopbackSlot<'_> {
        let payload = self.buffer(len);
        LoopbackSlot { to, head, args: *args, payload, committed: false, transport: self }
    }

    fn control(&mut self, to: Peer, args: &Words, payload: &[u8]) -> Result<(), Refused> {
        self.admit(to, ReplyBound::None)?;
        let (kind, payload) = (Kind::Control, self.filled(payload));
        let frame = Frame { from: self.me, kind, handler: 0, args: *args, payload, placed: (0, 0) };
        self.deliver(to, frame);
        Ok(())
    }

    fn poll<S: Sink>(&mut self, budget: usize, sink: &mut S) -> usize {
        let completed = if self.native.is_idle() { 0 } else { self.advance(budget, sink) };
        for done in completed..budget {
            let Some(mut frame) = self.network.inbox(self.me).frames.pop_front() else {
                return done;
            };
            let (network, from, args) = (Arc::clone(&self.network), frame.from, frame.args);
            let segment = &network.segments[network.shape.address(self.me).rank.0 as usize];
            let is_reply = matches!(frame.kind, Kind::Reply(_));
            let bytes = std::mem::take(&mut frame.payload);
            let in_hand = InHand { network: Arc::clone(&network), by: self.me, from, is_reply, bytes };
            let payload = match frame.kind {
                Kind::Request(Category::Long, _) | Kind::Reply(Category::Long) => {
                    let (at, len) = frame.placed;
                    segment.view(at, len).expect("the sender checked the range")
                }
                _ => Payload::own(&in_hand.bytes),
            };
            let arrival = |category| Arrival { from, category, handler: frame.handler, args: &args, payload };
            match frame.kind {
                Kind::Request(category, bound) => {
                    // Dropped before `in_hand`: a request counts as handled when its reply or credit is on its
                    // way.
                    let mut path = LoopbackReplyPath { transport: self, to: from, bound, used: false };
                    sink.request(arrival(category), &mut path);
                }
                Kind::Reply(category) => {
                    self.owed[from.index()] -= 1;
                    sink.reply(arrival(category));
                }
                Kind::Control => sink.control(from, &args, payload),
            }
        }
        budget
    }

    fn reply_detached<R>(&mut self, key: PendingKey, reply: impl FnOnce(&mut dyn ReplyPath) -> R) -> R {
        let bound = ReplyBound::from_tag(key.tag);
        reply(&mut LoopbackReplyPath { transport: self, to: key.to, bound, used: false })
    }

    fn flush(&mut self) {}

    fn is_quiescent(&mut self) -> bool {
        self.native.is_idle()
            && (0..self.sent.len()).all(|peer| {
                self.sent[peer] == self.network.inbox(self.me).handled[peer]
                    || self.network.status(Peer(peer as u32)) != PeerStatus::Active
            })
    }

    fn segment(&self) -> &Segment<Self::Memory> {
        &self.network.segments[self.network.shape.address(self.me).rank.0 as usize]
    }

    fn segment_len(&self, rank: Rank) -> u64 {
        self.network.segments[rank.0 as usize].len() as u64
    }

    fn remote_segment(&self, rank: Rank) -> Option<&Segment<Self::Memory>> {
        self.network.segments.get(rank.0 as usize).filter(|_| self.network.config.direct)
    }

    fn auxiliary(&self, of: Peer) -> Option<Segment<AnyMemory>> {
        let memory = self.network.auxiliary.get(of.index()).filter(|_| self.network.config.direct)?;
        Some(memory.get_or_init(|| segment(AUXILIARY).erase()).clone())
    }

    fn native(&mut self, to: Peer) -> Option<(&mut dyn NativeOneSided, Peer)> {
        (self.network.config.native != NativeOperations::None).then_some((self as &mut dyn NativeOneSided, to))
    }

    fn credits(&self, peer: Peer) -> CreditSnapshot {
        let (index, config) = (peer.index(), &self.network.config);
        let inbox = self.network.inbox(self.me);
        let owed = self.owed[index] - (inbox.bare[index] - self.bare_seen[index]);
        let requests = config.requests as u64 - (self.sent[index] - inbox.handled[index]);
        CreditSnapshot {
            request_frames: requests,
            request_bytes: requests * config.medium as u64,
            reply_frames: config.replies as u64 - owed,
            reply_bytes: (config.replies as u64 - owed) * config.medium as u64,
        }
    }

    fn owed(&self, peer: Peer) -> Option<Owed> {
        let index = peer.index();
        let inbox = self.network.inbox(self.me);
        let replies = self.owed[index] - (inbox.bare[index] - self.bare_seen[index]);
        Some(Owed { handling: self.sent[index] != inbox.handled[index], replies, or_more: false })
    }

    fn bare_credits(&self) -> u64 {
        self.bare_given
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        // Reached without a departure by a rank that never attached.
        if !self.departed {
            self.depart(Departure::of_drop());
        }
    }
}
