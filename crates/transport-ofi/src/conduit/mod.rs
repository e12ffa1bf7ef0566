//! Active messages on a [`Wire`]: the state machine of one endpoint, which knows nothing of libfabric.
//!
//! * `transport` has the contract's calls, `reply_path` the way back;
//! * `shared` has [`Conduit`]: the state behind a lock, and the helper thread that takes turns at it with the
//!   program;
//! * `send`, `bundle`, `long`, `native`, `receive`, `aside` are the state machine;
//! * `peers` is what is kept per peer, `pool` how they share buffers;
//! * `waiting` passes time, and takes in what others know of the ends of ranks.
//!
//! # How messages travel
//!
//! A frame is one message of the wire, in a buffer or injected. Each pair of endpoints numbers its frames; who
//! receives puts them into order, whatever the wire does. A Long payload that fits a frame travels in it. A longer
//! one is copied part by part into buffers and written to the destination's segment; its frame follows when all
//! parts are there, and frames behind it wait for it at the receiver. Short frames that a program sends to one
//! peer between two polls travel together, but for the first.
//!
//! # Room
//!
//! An endpoint may have a window of requests under way to each peer, as many of them with a reply to come, and a
//! few messages between cores. Each of these is answered by at most two frames (a credit, a reply). So the slots
//! that arriving frames need are counted beforehand, and there are as many: nothing that arrives lacks room,
//! whether or not the provider manages its resources. What the wire refuses waits in a queue of its peer, in
//! order; while one is not empty, requests to that peer are refused
//! ([`Resource::Interface`](am_core::Resource::Interface)), replies and credits join it.

mod aside;
mod bundle;
mod long;
mod native;
mod peers;
mod pool;
mod receive;
mod reply_path;
mod send;
mod shared;
#[cfg(test)]
mod sleep_tests;
mod transport;
mod waiting;

pub use send::Admitted;
pub use shared::Conduit;
pub use transport::ConduitSlot;
pub use waiting::FailureNotifier;

use peers::{CONTROLS, PeerState};

use crate::frame::Kind;
use crate::wire::{Event, Failure, Operation, Sizes, Wire};
use am_core::transport::FaultyPeers;
use am_core::{AnyMemory, Instant, LossCause, Peer, PeerStatus, Segment, Shape, Span};
use long::LongOut;
use native::{Ended, Native};
use peers::Peers;
use pool::Pool;
use send::Outgoing;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Release;
use std::task::Waker;
use waiting::Notices;

/// Events that are taken from the wire at once.
const EVENTS: usize = 64;

/// What an endpoint is told when it is made.
#[derive(Clone, Debug)]
pub struct Settings {
    /// This endpoint.
    pub me: Peer,
    /// The job.
    pub shape: Shape,
    /// A number that the frames of this job bear, so that those of others are not taken for them.
    pub tag: u32,
    /// Requests that may be under way to each peer, and those with a reply to come.
    pub window: u32,
    /// Largest Medium payload in bytes.
    pub medium: usize,
    /// Bytes of the segment of each rank.
    pub segments: Vec<u64>,
    /// How long a departure may wait for peers that do not answer.
    pub linger: Span,
    /// How long frames may be missing at a peer, once an injected one has failed, before the peer counts as lost.
    pub backoff: Span,
}

impl Settings {
    /// Frames of peers that can be under way to this endpoint at once: the slots that its wire needs.
    pub fn slots(peers: u32, window: u32) -> u32 {
        // Of each peer: its requests, its messages between cores, for each request and message of ours a credit,
        // for each request a reply, two for departures, and three outside of the sequence.
        (peers - 1) * (3 * window + 2 * CONTROLS + 5) + 2
    }
}

/// The state of an endpoint: what its program's thread and its helper take turns at.
struct Machine<W: Wire> {
    // Before the segment, whose memory it writes to.
    wire: W,
    /// The wire's.
    sizes: Sizes,
    settings: Settings,
    segment: Segment<AnyMemory>,
    peers: Peers,
    events: Vec<Event>,
    frames: Pool,
    chunks: Pool,
    /// By buffer of the wire: the peer that an operation with it is for.
    under_way: Vec<u32>,
    longs: Vec<LongOut>,
    free_longs: Vec<usize>,
    /// By buffer of the wire behind the frames: the Long that it carries a part of.
    long_of: Vec<usize>,
    /// By buffer of the wire: the one-sided operation that it is for; how many there are; and those that are over.
    natives: Vec<Option<Native>>,
    natives_out: u64,
    ended: VecDeque<Ended>,
    /// Memory for frames and payloads, kept for the next.
    spare: Vec<Vec<u8>>,
    /// What has arrived and awaits its delivery. Its slots are on offer again: what nobody takes must not keep
    /// credits from coming.
    ready: VecDeque<Vec<u8>>,
    /// Slots that the wire did not take.
    unposted: Vec<u32>,
    /// Peers that credits are owed to, and for which something waits.
    pending_credit: Vec<u32>,
    waiting: Vec<u32>,
    /// Peers with frames that wait for the end of the program's turn.
    bundles: Vec<u32>,
    /// Peers that leave and wait for a last word.
    answers: Vec<u32>,
    /// Frames outside of the sequence that are still to be sent, and peers of which nobody knows whether they have
    /// all frames.
    asides: Vec<(u32, Kind)>,
    probing: Vec<u32>,
    /// The time, while it has to be known.
    now: Option<Instant>,
    /// The latest failure of the wire, and towards whom.
    last_failure: Option<(Option<u32>, Failure)>,
    /// A request was refused for want of buffers.
    refused: bool,
    polls_before_flush: u32,
    /// Requests and messages between cores under way, over all peers.
    unhandled: u64,
    last_busy_peer: u32,
    bare_given: u64,
    /// Peers that have left without finishing, by their own word.
    left: u32,
    faulty: FaultyPeers,
    /// The wire has failed as a whole.
    broken: bool,
    /// Something that lets a wait end has come since the last idling, without any message for the sink.
    fresh: bool,
    departing: bool,
    /// All endpoints leave together.
    all_depart: bool,
    /// Frames that nobody of this job can have sent.
    strays: u64,
    notices: Arc<Notices>,
    /// How often the program has carried the wire on.
    turns: u64,
    /// The program sleeps on the wire's descriptor: whatever comes, it is there at once.
    asleep: bool,
    /// A wait has just carried the wire on.
    looked: bool,
    /// The helper rests for longer than the program may be absent, since that slept.
    helper_rests: bool,
    /// Whom to call when something has come.
    watcher: Option<Waker>,
}

impl<W: Wire> Machine<W> {
    fn new(wire: W, settings: Settings, segment: Segment<AnyMemory>, notices: Arc<Notices>) -> Self {
        let (sizes, shape, me) = (wire.sizes(), settings.shape, settings.me);
        assert!(me.0 < shape.peers() && settings.segments.len() == shape.ranks as usize, "settings fit the shape");
        assert!(sizes.frame_bytes >= frame_bytes(settings.medium), "messages fit the wire's buffers");
        assert!(sizes.frames > 0 && sizes.chunks > 0 && settings.window > 0, "there is room for a message");
        assert!(settings.window <= u32::from(u16::MAX), "credits for a window fit a frame");
        let buffers = (sizes.frames + sizes.chunks) as usize;
        Self {
            segment,
            peers: Peers::new(shape.peers()),
            events: Vec::with_capacity(EVENTS),
            frames: Pool::new(0..sizes.frames, shape.peers() - 1),
            chunks: Pool::new(sizes.frames..sizes.frames + sizes.chunks, shape.peers() - 1),
            under_way: vec![0; buffers],
            longs: Vec::new(),
            free_longs: Vec::new(),
            long_of: vec![0; sizes.chunks as usize],
            natives: vec![None; buffers],
            natives_out: 0,
            ended: VecDeque::new(),
            spare: Vec::new(),
            ready: VecDeque::new(),
            unposted: Vec::new(),
            pending_credit: Vec::new(),
            waiting: Vec::new(),
            bundles: Vec::new(),
            answers: Vec::new(),
            asides: Vec::new(),
            probing: Vec::new(),
            now: None,
            last_failure: None,
            refused: false,
            polls_before_flush: 0,
            unhandled: 0,
            last_busy_peer: 0,
            bare_given: 0,
            left: 0,
            faulty: FaultyPeers::new(),
            broken: false,
            fresh: false,
            departing: false,
            all_depart: false,
            strays: 0,
            notices,
            turns: 1,
            asleep: false,
            looked: false,
            helper_rests: false,
            watcher: None,
            sizes,
            wire,
            settings,
        }
    }

    fn me(&self) -> u32 {
        self.settings.me.0
    }

    /// What is known of a peer.
    #[inline]
    fn known_status(&self, peer: u32) -> PeerStatus {
        if self.broken {
            return PeerStatus::Lost(LossCause::Broken);
        }
        self.faulty.status(Peer(peer), || self.told_status(peer))
    }

    /// What a peer has said of itself.
    #[inline]
    fn told_status(&self, peer: u32) -> PeerStatus {
        self.peers.known(peer).and_then(|state| state.left).unwrap_or(PeerStatus::Active)
    }

    /// Notes that a peer is lost, unless it has ended already.
    fn lose(&mut self, peer: u32, cause: LossCause) {
        if peer != self.me() && self.known_status(peer) == PeerStatus::Active {
            self.fresh |= self.faulty.insert(Peer(peer), cause);
            self.note_losses();
            self.drop_queue(peer);
        }
    }

    /// The wire has failed as a whole.
    fn break_down(&mut self) {
        self.fresh |= !self.broken;
        self.broken = true;
        self.note_losses();
    }

    /// Tells how many are lost to who asks without the lock.
    fn note_losses(&self) {
        let faulty = || self.faulty.losses(self.left, |peer| self.told_status(peer.0));
        self.notices.losses.store(if self.broken { self.peers.len() } else { faulty() }, Release);
    }

    /// Carries the wire on: takes in what has ended and arrived, without delivering it, and sends what waits.
    fn progress(&mut self) {
        if self.notices.any() {
            self.take_notices();
        }
        if !self.bundles.is_empty() {
            self.close_bundles();
        }
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        if let Err(code) = self.wire.poll(&mut events)
            && !self.broken
        {
            self.last_failure = Some((None, Failure { code, own: 0 }));
            self.break_down();
        }
        for event in &events {
            match *event {
                Event::Arrived(receipt) => self.arrive(receipt),
                Event::Done(Operation::Receive(slot)) => self.post(slot),
                Event::Done(Operation::Send(buffer)) => self.sent(buffer),
                Event::Done(Operation::Write(buffer) | Operation::Read(buffer)) => {
                    if !self.end_native(buffer, Ok(())) {
                        self.written(buffer);
                    }
                }
                // A frame longer than any of this job's, for instance.
                Event::Failed(Some(Operation::Receive(slot)), failure) => {
                    self.drop_stray(failure);
                    self.post(slot);
                }
                Event::Dropped(failure) => self.drop_stray(failure),
                Event::Failed(Some(Operation::Send(buffer)), failure) => {
                    let to = self.under_way[buffer as usize];
                    self.fail(to, failure);
                    self.sent(buffer);
                }
                Event::Failed(Some(Operation::Write(buffer) | Operation::Read(buffer)), failure) => {
                    if self.end_native(buffer, Err(failure)) {
                        continue;
                    }
                    let to = self.under_way[buffer as usize];
                    self.fail(to, failure);
                    self.write_failed(buffer);
                }
                Event::Failed(None, failure) => self.doubt(failure),
            }
        }
        self.events = events;
        if !self.unposted.is_empty() {
            self.post_again();
        }
        if !self.waiting.is_empty() {
            self.flush_queues();
        }
        if !self.answers.is_empty() {
            self.acknowledge_departures();
        }
        if !self.probing.is_empty() {
            self.ask_doubtful();
        }
        if !self.asides.is_empty() {
            self.send_asides();
        }
    }

    /// Answers peers that leave, once nothing towards them is under way: then they may be gone, and no operation
    /// misses them.
    fn acknowledge_departures(&mut self) {
        let mut index = 0;
        while let Some(&to) = self.answers.get(index) {
            let lost = self.faulty.contains(Peer(to));
            if !lost && self.peers.of(to).is_busy() {
                index += 1;
                continue;
            }
            self.answers.swap_remove(index);
            if !lost {
                self.transmit(to, &Outgoing::bare(Kind::DepartureAck));
            }
        }
    }

    /// A message has not come in whole.
    fn drop_stray(&mut self, failure: Failure) {
        self.strays += 1;
        self.last_failure = Some((None, failure));
    }

    fn post_again(&mut self) {
        for _ in 0..self.unposted.len() {
            let slot = self.unposted.swap_remove(0);
            self.post(slot);
        }
    }
}

/// Bytes of the largest frame.
const fn frame_bytes(medium: usize) -> usize {
    crate::frame::LONG_HEADER + 4 * crate::frame::MAX_ARGUMENTS + medium
}
