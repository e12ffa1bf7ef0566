//! The transport: one endpoint of a job, with its four lane ends towards each peer.

use crate::bell::Bell;
#[cfg(feature = "event-loop")]
use crate::ear::Ear;
use crate::frame::{Frame, Kind, fits_inline, granules};
use crate::idle_waker::IdleWaker;
use crate::job::{Board, Job, JoinError, status};
use crate::lanes::{self, Denied, LAGGING, Plain, ReplyIn, ReplyOut, RequestIn, RequestOut, Taken};
use crate::layout::{self, endpoint};
use crate::park::{LONGEST, Parking};
use crate::region::{Mapping, One, ShmMemory, View};
use crate::reply_path::{ReplyContext, ShmReplyPath, ShmSlot};
use crate::ring::{Broken, Position, arrived};
use crate::sync::AtomicU64;
use crate::sys;
use crate::transport::lent::Processes;
use crate::transport::rest::{Pace, Rest};
use crate::transport::segments::Segments;
use crate::watch::{UNKNOWN, Watch, started};
use am_core::backoff::{Backoff, BackoffPolicy, Next};
use am_core::segment::{AnyMemory, SegmentError};
use am_core::time::Clock;
use am_core::transport::{
    Arrival, Body, CreditSnapshot, Departure, Lent, LentFault, Membership, Notify, NullReplyPath, Owed,
    PendingKey, Refused, ReplyBound, ReplyPath, RequestHeader, Sink, WaitReason, Waiting,
};
use am_core::{
    Category, Instant, Limits, LossCause, Payload, Peer, PeerStatus, Rank, Segment, Shape, Transport, Words,
};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::task::Waker;

mod absence;
mod arrivals;
#[cfg(feature = "fuzzing")]
pub(crate) mod faulty;
mod lent;
#[cfg(test)]
mod mappings;
mod rest;
pub(crate) mod segments;
#[cfg(test)]
mod waits;

/// Frames of one peer's lane that a poll handles before it looks at the next peer.
const QUANTUM: usize = 256;

/// How many peers' lanes one poll looks at. With more, polls take turns: each takes less time, and a message is
/// found as soon as if every poll looked everywhere.
const GLANCE: usize = 32;

/// A place to watch where no frame ever appears: no mapping has so many words.
const NOWHERE: u64 = u64::MAX;

/// Indices of the words of an endpoint that are zero in a fork.
mod own {
    pub(super) const NEWS_SEEN: usize = 0;
    pub(super) const HOME: usize = 1;
    /// The first of one word per peer.
    pub(super) const PEERS: usize = 2;
}

/// An endpoint of a shared-memory job.
///
/// # After `fork`
/// The endpoint stays the parent's. In the child every peer is lost to its copy ([`LossCause::Forked`]): sends and
/// waits are errors, polls find nothing, and dropping it does nothing. The same holds for what the child has in
/// its hands: a reservation that it fills and commits sends nothing, and a handler that it was forked in cannot
/// reply. One-sided operations, on the own segment too, are errors as sends are ([`Membership::is_fork`]), and
/// [`remote_segment`](Transport::remote_segment) is `None`. What the program took before, a [`Segment`] that it
/// holds, is memory of the job: what the child stores through it, the job reads. The kernel has to have
/// `MADV_WIPEONFORK` (Linux 4.14). The child of a fork that then executes a program has nothing of the job.
///
/// It may be sent to the thread that uses it. Dropping it stops its death watch and tells the peers that it has
/// gone, unless its [`am_core::Endpoint`] has done so.
#[derive(Debug)]
pub struct Shm {
    me: Peer,
    rank: Rank,
    shape: Shape,
    limits: Limits,
    board: Arc<Board>,
    job: Job,
    asking: Vec<Asking>,
    answering: Vec<Answering>,
    segments: Segments,
    /// All words of the job's file but segments, and for each peer where in them the next reply and the next
    /// request will appear: a poll looks at nothing else where nothing has arrived. A lane is not watched
    /// before it can have been written to: for replies, before this endpoint has sent to the peer; for
    /// requests, before the peer has said that it sends.
    words: View<AtomicU64>,
    watched: Vec<[u64; 2]>,
    /// The lane of requests that is not looked at for a while.
    rest: Option<Rest>,
    /// The peers that have a lane which is watched, or had one, in the order in which they got it: whoever is
    /// about to sleep looks at these alone.
    partners: Vec<u32>,
    /// The peer whose lanes the next poll looks at first.
    first: usize,
    /// Whether something is known to have arrived from it.
    found: bool,
    /// What there is to look for outside the lanes, and how much of it has been looked for.
    news: View<AtomicU64>,
    /// Words of this process alone, which a fork finds zero: how much of the news has been looked for, whether
    /// this is the process that joined, and whether each peer still takes messages.
    own: View<AtomicU64>,
    /// That of them which says whether this is the process that joined.
    home: One<AtomicU64>,
    /// The words by which peers say that they send to this endpoint.
    contacts: View<AtomicU64>,
    changes_seen: u64,
    losses: u32,
    fenced: bool,
    /// How long it sleeps before it looks for itself.
    longest_sleep: std::time::Duration,
    /// The processes of peers whose memory was asked for.
    processes: Processes,
    /// Ends this endpoint's idling from other threads.
    idle_waker: Arc<IdleWaker>,
    bare: u64,
    backoff: Backoff,
    clock: Clock,
    _watch: Option<Watch>,
    /// The thread that calls wakers, once one is to be called.
    bell: Option<Bell>,
    /// What an event loop waits for, once one does.
    #[cfg(feature = "event-loop")]
    ear: Option<Box<Ear>>,
}

/// Towards a peer as the one who asks.
#[derive(Debug)]
struct Asking {
    requests: RequestOut,
    replies: ReplyIn,
    /// What it sleeps on, here so that a send looks its peer up once.
    parking: Parking,
    /// The peer broke the protocol; its lanes are not read any more.
    broken: bool,
}

/// Towards a peer as the one who answers.
#[derive(Debug)]
struct Answering {
    requests: RequestIn,
    replies: ReplyOut,
    pace: Pace,
}

impl Shm {
    pub(crate) fn join(job: &Job, me: Peer, rank: u32, segment_bytes: u64) -> Result<Self, JoinError> {
        let job = job.try_clone()?;
        let (layout, board) = (job.board.layout, Arc::clone(&job.board));
        let block = &board.endpoints[me.index()];
        if board.raw_status(me.index()) != status::ABSENT {
            return Err(job.taken(me));
        }
        job.check_pid_namespace()?;
        job.publish_segment(rank, segment_bytes)?;
        let segments = Segments::new(&job, Rank(rank), segment_bytes)?;
        // What can fail comes before the endpoint is claimed, so that a failed attempt can be repeated.
        let words = own::PEERS + layout.peers();
        let guard = Mapping::wiped_on_fork(8 * words)?;
        let own = View::<AtomicU64>::new(&guard, 0, words);
        own[own::HOME..].iter().for_each(|word| word.store(1, Relaxed));
        let home = One::new(&guard, 8 * own::HOME);
        // Of several claimants for an endpoint one gets to write its identity, which the status then makes valid.
        let pid = std::process::id();
        if block[endpoint::PID].compare_exchange(0, u64::from(pid), Relaxed, Relaxed).is_err() {
            return Err(job.taken(me));
        }
        block[endpoint::STARTED].store(started(pid).unwrap_or(UNKNOWN), Relaxed);
        block[endpoint::NEEDS_FENCE].store(u64::from(!sys::register_for_fences()), Relaxed);
        if !board.set_status(me.index(), &[status::ABSENT], status::ACTIVE) {
            return Err(job.taken(me));
        }
        let peers = 0..layout.peers();
        let open = |peer| View::new(&guard, 8 * (own::PEERS + peer), 1);
        let asking = peers.clone().map(|peer| {
            let (requests, replies) = lanes::asker(&job.mapping, &layout, me.index(), peer, open(peer));
            Asking { requests, replies, parking: board.parking[peer].clone(), broken: false }
        });
        let answering = peers.map(|peer| {
            let (requests, replies) = lanes::answerer(&job.mapping, &layout, me.index(), peer, open(peer));
            Answering { requests, replies, pace: Pace::new(rest::Instant::now()) }
        });
        let (asking, answering): (Vec<Asking>, Vec<Answering>) = (asking.collect(), answering.collect());
        // A job of one process needs no watch.
        let watch = (layout.ranks > 1).then(|| Watch::start(Arc::clone(&board), me.index())).transpose();
        let watch = watch.inspect_err(|_| {
            board.set_status(me.index(), &[status::ACTIVE], status::LEFT);
        })?;
        Ok(Self {
            me,
            rank: Rank(rank),
            shape: job.shape(),
            limits: Limits::uniform(layout.medium_request(), u64::MAX)
                .with_medium_reply(layout.medium_reply())
                .with_default_reply(layout.default_reply()),
            asking,
            answering,
            segments,
            words: View::new(&job.mapping, 0, layout.control_bytes() / size_of::<AtomicU64>()),
            watched: vec![[NOWHERE; 2]; layout.peers()],
            rest: None,
            partners: Vec::with_capacity(layout.peers()),
            first: 0,
            found: false,
            news: View::new(&job.mapping, layout.endpoint(me.index()) + 8 * endpoint::NEWS, 1),
            own,
            home,
            contacts: View::new(&job.mapping, layout.contacts(me.index()), layout.peers()),
            changes_seen: 0,
            losses: 0,
            fenced: board.needs_fences(),
            longest_sleep: LONGEST,
            processes: Processes::default(),
            bare: 0,
            backoff: Backoff::new(BackoffPolicy::at_memory(layout.peers(), am_core::time::processors())),
            idle_waker: Arc::new(IdleWaker::new(Arc::clone(&board), me)),
            clock: Clock::start(),
            board,
            job,
            _watch: watch,
            bell: None,
            #[cfg(feature = "event-loop")]
            ear: None,
        })
    }

    /// Takes in that peers send to this endpoint or that somebody's status changed.
    #[cold]
    fn note_news(&mut self, news: u64) {
        self.own[own::NEWS_SEEN].store(news, Relaxed);
        // What a peer sent before it was lost comes first.
        self.end_rest();
        if self.is_fork() {
            // Nothing of the job is this process's: it neither reads lanes nor gives anything back.
            self.watched.fill([NOWHERE; 2]);
            self.losses = self.watched.len() as u32;
            return;
        }
        for peer in 0..self.watched.len() {
            // Acquire: pairs with the Release in `contact`; on its own it is enough to find the peer's frames.
            if self.contacts[peer].load(Acquire) != 0
                && self.watched[peer][1] == NOWHERE
                && !self.asking[peer].broken
            {
                self.note_partner(peer);
                self.watched[peer][1] = self.answering[peer].requests.watch();
            }
        }
        let changes = self.board.changes();
        if changes != self.changes_seen {
            self.note_changes(changes);
        }
    }

    /// Takes note that a lane of a peer is watched from now on.
    fn note_partner(&mut self, peer: usize) {
        // Lanes that are watched stay so, unless the peer breaks the protocol or this is a fork.
        if self.watched[peer] == [NOWHERE; 2] {
            self.partners.push(peer as u32);
        }
    }

    /// Tells a peer that this endpoint sends to it, and watches for its replies, unless that has been done.
    #[cold]
    fn contact(&mut self, to: Peer) {
        if self.watched[to.index()][0] == NOWHERE && !self.asking[to.index()].broken {
            self.note_partner(to.index());
            self.watched[to.index()][0] = self.asking[to.index()].replies.watch();
            let row = self.job.board.layout.contacts(to.index());
            // Release: pairs with the Acquire in `note_news`.
            View::<AtomicU64>::new(&self.job.mapping, row + 8 * self.me.index(), 1)[0].store(1, Release);
            self.board.add_news(to.index());
        }
    }

    /// What a send has to do after room was found missing, and the first one to a peer.
    #[cold]
    fn after_starving(&mut self, to: Peer) {
        self.asking[to.index()].requests.starved = false;
        self.contact(to);
    }

    /// Takes in that somebody's status changed.
    #[cold]
    fn note_changes(&mut self, changes: u64) {
        self.changes_seen = changes;
        self.fenced = self.board.needs_fences();
        self.losses = 0;
        for peer in 0..self.asking.len() {
            let status = self.status_of(peer);
            let gone = status != PeerStatus::Active;
            self.own[own::PEERS + peer].store(u64::from(!gone), Relaxed);
            self.losses += u32::from(matches!(status, PeerStatus::Lost(_)));
        }
    }

    /// Gives up on a peer that broke the protocol, and tells everyone.
    #[cold]
    fn break_with(&mut self, peer: usize) {
        if self.is_fork() {
            return;
        }
        self.asking[peer].broken = true;
        self.watched[peer] = [NOWHERE; 2];
        self.board.set_status(peer, &[status::ABSENT, status::ACTIVE], status::FAULTY);
        self.note_changes(self.board.changes());
    }

    /// What is known of a peer. One that broke the protocol is lost to this endpoint whatever it has written as
    /// its status.
    fn status_of(&self, peer: usize) -> PeerStatus {
        match self.board.status(peer) {
            _ if self.is_fork() => PeerStatus::Lost(LossCause::Forked),
            PeerStatus::Active | PeerStatus::Finished if self.asking[peer].broken => {
                PeerStatus::Lost(LossCause::Faulty)
            }
            status => status,
        }
    }

    #[cold]
    fn deny(&mut self, peer: Peer, denied: Denied) -> Refused {
        match denied {
            Denied::Busy(resource) => Refused::Busy(resource),
            Denied::Gone => Refused::Gone(self.status_of(peer.index())),
            Denied::Broken => {
                self.break_with(peer.index());
                Refused::Gone(self.status_of(peer.index()))
            }
        }
    }

    #[inline]
    fn sent(&mut self, to: Peer) {
        self.backoff.reset();
        if self.asking[to.index()].requests.starved {
            self.after_starving(to);
        }
        self.asking[to.index()].parking.notify(self.fenced);
    }

    /// Whether a look at the lanes, the give-backs or the board would find something new.
    fn work(&self) -> bool {
        let found = |peer: &u32| {
            let peer = *peer as usize;
            let (asking, answering, watched) = (&self.asking[peer], &self.answering[peer], self.watched[peer]);
            let asked = watched[0] != NOWHERE && (asking.replies.ready() || asking.requests.news());
            !asking.broken && (asked || watched[1] != NOWHERE && answering.requests.ready())
        };
        self.news[0].load(Acquire) != self.own[own::NEWS_SEEN].load(Relaxed) || self.partners.iter().any(found)
    }
}

impl Drop for Shm {
    /// An endpoint that goes before it was attached, or without having departed, has left.
    fn drop(&mut self) {
        self.depart(Departure::of_drop());
    }
}

/// Whether a word that is wiped in a fork is.
#[inline]
fn is_wiped(home: &AtomicU64) -> bool {
    // Relaxed: it is this process's alone.
    home.load(Relaxed) == 0
}

/// Frames a request; `len` is the payload's length for Medium and Control.
#[inline]
fn request_frame(category: Category, head: RequestHeader, args: &Words, len: usize, in_ring: bool) -> Frame {
    let reply = match head.reply {
        ReplyBound::None => None,
        ReplyBound::UpTo(bytes) => Some(granules(bytes as usize)),
    };
    Frame { kind: Kind::Message(category), handler: head.handler, args: args.len(), len, reply, in_ring }
}

/// Room in a byte ring: where the payload starts, and the ring's position behind it.
#[derive(Clone, Copy, Debug)]
pub struct RingSpace((usize, Position));

impl Shm {
    #[inline(always)]
    fn short(&mut self, to: Peer, head: RequestHeader, args: &Words) -> Result<(), Refused> {
        let frame = request_frame(Category::Short, head, args, 0, false);
        let asking = &mut self.asking[to.index()];
        if let Err(denied) = asking.requests.admit(frame.cells(), None, head.reply) {
            return Err(self.deny(to, denied));
        }
        if frame.cells() == 1 {
            asking.requests.send_inline(&frame, args, &[]);
        } else {
            asking.requests.send(&frame, args, None);
        }
        if asking.requests.starved {
            self.sent(to);
            return Ok(());
        }
        // As `sent` does, which looks the peer up anew.
        self.backoff.reset();
        asking.parking.notify(self.fenced);
        Ok(())
    }

    #[inline(always)]
    fn medium(&mut self, to: Peer, head: RequestHeader, args: &Words, payload: &[u8]) -> Result<(), Refused> {
        let inline = fits_inline(args, payload.len());
        let frame = request_frame(Category::Medium, head, args, payload.len(), !inline);
        let requests = &mut self.asking[to.index()].requests;
        let ring_bytes = (!inline).then_some(payload.len());
        match requests.admit(frame.cells(), ring_bytes, head.reply) {
            Err(denied) => return Err(self.deny(to, denied)),
            Ok(_) if inline => requests.send_inline(&frame, args, payload),
            Ok((start, next)) => {
                requests.fill_whole(start, payload);
                requests.send_filled(&frame, args, next);
            }
        }
        self.sent(to);
        Ok(())
    }

    fn long(
        &mut self,
        to: Peer,
        head: RequestHeader,
        args: &Words,
        payload: &[u8],
        at: u64,
    ) -> Result<(), Refused> {
        let frame = request_frame(Category::Long, head, args, 0, false);
        let rank = self.shape.address(to).rank;
        if let Err(denied) = self.asking[to.index()].requests.admit(frame.cells(), None, head.reply) {
            return Err(self.deny(to, denied));
        }
        let placed = self.segments.put(&self.job, rank).map(|segment| segment.write(at, payload));
        if !matches!(placed, Some(Ok(()))) {
            // The segment cannot be mapped: the peer went, or this process is out of address space.
            self.asking[to.index()].requests.cancel(head.reply);
            return Err(Refused::Gone(self.status_of(to.index())));
        }
        self.asking[to.index()].requests.send(&frame, args, Some((at, payload.len() as u64)));
        self.sent(to);
        Ok(())
    }
}

impl Membership for Shm {
    #[inline]
    fn local_peer(&self) -> Peer {
        self.me
    }

    #[inline]
    fn shape(&self) -> Shape {
        self.shape
    }

    #[inline]
    fn losses(&self) -> u32 {
        // A fork may ask before it has polled.
        if self.is_fork() { self.shape.peers() } else { self.losses }
    }

    fn status(&self, peer: Peer) -> PeerStatus {
        self.status_of(peer.index())
    }

    fn writes_no_more(&self, peer: Peer) -> bool {
        !self.is_fork() && self.board.has_ended(peer.index())
    }

    #[inline]
    fn is_fork(&self) -> bool {
        is_wiped(&self.home)
    }

    fn depart(&mut self, how: Departure) {
        if self.is_fork() {
            return;
        }
        for peer in 0..self.answering.len() {
            if self.answering[peer].requests.owes() {
                self.answering[peer].requests.publish();
            }
        }
        let word = match how {
            Departure::Finished => status::FINISHED,
            Departure::Left => status::LEFT,
            Departure::Panicked => status::PANICKED,
        };
        self.board.set_status(self.me.index(), &[status::ACTIVE], word);
    }
}

impl Waiting for Shm {
    #[inline]
    fn idle(&mut self, until: Option<Instant>, _: WaitReason) {
        match self.backoff.next() {
            Next::Spin => std::hint::spin_loop(),
            Next::Yield => self.backoff.give_way(),
            Next::Park => self.park(until, &mut || false),
        }
    }

    #[inline]
    fn idle_unless(&mut self, until: Option<Instant>, _: WaitReason, changed: &mut dyn FnMut() -> bool) {
        match self.backoff.next() {
            Next::Spin => std::hint::spin_loop(),
            Next::Yield => self.backoff.give_way(),
            Next::Park => self.park(until, changed),
        }
    }

    #[inline]
    fn wake_peer(&mut self, peer: Peer) {
        if !self.is_fork() {
            self.backoff.reset();
            self.board.parking[peer.index()].notify(self.fenced);
        }
    }

    #[inline]
    fn spins(&self) -> bool {
        self.backoff.spins()
    }

    fn waker(&self) -> Option<Waker> {
        Some(Arc::clone(&self.idle_waker).into())
    }

    fn notify(&mut self, waker: &Waker) -> Notify {
        self.watch_for(waker)
    }

    #[cfg(feature = "event-loop")]
    fn descriptor(&mut self) -> Option<std::os::fd::OwnedFd> {
        self.ear_for_event_loops()
    }

    #[cfg(feature = "event-loop")]
    fn notify_readable(&mut self, waker: &Waker) -> Notify {
        self.listen_for(waker)
    }

    fn end_notify(&mut self) {
        if !self.is_fork() {
            self.board.parking[self.me.index()].end();
        }
    }

    #[inline]
    fn now(&self) -> Instant {
        self.clock.now()
    }
}

impl Transport for Shm {
    type Memory = ShmMemory;
    type Room = RingSpace;
    type Slot<'a> = ShmSlot<'a>;

    #[inline]
    fn limits(&self, _: Peer) -> &Limits {
        &self.limits
    }

    #[inline(always)]
    fn send(&mut self, to: Peer, head: RequestHeader, args: &Words, body: Body<'_>) -> Result<(), Refused> {
        match body {
            Body::None => self.short(to, head, args),
            Body::Copy(payload) => self.medium(to, head, args, payload),
            Body::Place(payload, at) => self.long(to, head, args, payload, at),
        }
    }

    #[inline]
    fn reserve(&mut self, to: Peer, head: RequestHeader, args: &Words, len: usize) -> Result<RingSpace, Refused> {
        let frame = request_frame(Category::Medium, head, args, len, true);
        match self.asking[to.index()].requests.admit(frame.cells(), Some(len), head.reply) {
            Err(denied) => Err(self.deny(to, denied)),
            Ok(place) => {
                self.backoff.reset();
                if self.asking[to.index()].requests.starved {
                    self.after_starving(to);
                }
                Ok(RingSpace(place))
            }
        }
    }

    #[inline]
    fn slot(
        &mut self,
        to: Peer,
        head: RequestHeader,
        args: &Words,
        len: usize,
        RingSpace(place): RingSpace,
    ) -> ShmSlot<'_> {
        let frame = request_frame(Category::Medium, head, args, len, true);
        let parking = &self.board.parking[to.index()];
        let requests = &mut self.asking[to.index()].requests;
        ShmSlot::new(requests, parking, self.fenced, frame, *args, place, head.reply)
    }

    fn control(&mut self, to: Peer, args: &Words, payload: &[u8]) -> Result<(), Refused> {
        let frame = Frame {
            kind: Kind::Control,
            handler: 0,
            args: args.len(),
            len: payload.len(),
            reply: None,
            in_ring: true,
        };
        let requests = &mut self.asking[to.index()].requests;
        match requests.admit(frame.cells(), Some(payload.len()), ReplyBound::None) {
            Err(denied) => return Err(self.deny(to, denied)),
            Ok((start, next)) => {
                requests.fill_whole(start, payload);
                requests.send_filled(&frame, args, next);
            }
        }
        self.sent(to);
        Ok(())
    }

    #[inline]
    fn may_deliver(&mut self) -> bool {
        if self.rest.is_some() {
            self.look_at_rest();
        }
        // Acquire: as in `poll`, which takes the news in.
        if self.news[0].load(Acquire) != self.own[own::NEWS_SEEN].load(Relaxed) {
            return true;
        }
        if self.watched.len() > GLANCE {
            return self.may_deliver_of_many();
        }
        // From where the last poll ended, so that no peer is always behind another.
        let (behind, ahead) = self.watched.split_at(self.first);
        let found = arrivals::first_arrival(&self.words, ahead).map(|peer| self.first + peer);
        match found.or_else(|| arrivals::first_arrival(&self.words, behind)) {
            Some(peer) => {
                (self.first, self.found) = (peer, true);
                true
            }
            None => false,
        }
    }

    #[inline]
    fn poll<S: Sink>(&mut self, budget: usize, sink: &mut S) -> usize {
        if self.rest.is_some() && !self.found {
            // Not everyone asks `may_deliver` first.
            self.look_at_rest();
        }
        let (start, peers) = (self.first, self.watched.len());
        let (mut done, mut next) = (0, start);
        if std::mem::take(&mut self.found) && budget != 0 {
            // `may_deliver` has just looked at the news, and at the peers behind `first` until it found this one.
            done = self.serve(start, budget, sink);
            next = start + 1;
        }
        if done != 0 && peers <= GLANCE {
            done += self.sweep(next..peers, budget - done, sink);
        } else {
            // Acquire: pairs with the AcqRel in `Board::add_news`.
            let news = self.news[0].load(Acquire);
            if news != self.own[own::NEWS_SEEN].load(Relaxed) {
                self.note_news(news);
            }
            let end = start + peers.min(GLANCE);
            done += self.sweep(next..end.min(peers), budget - done, sink);
            if end > peers && done < budget {
                done += self.sweep(0..end - peers, budget - done, sink);
            }
        }
        if done != 0 {
            self.backoff.reset();
        }
        done
    }

    fn polls_per_sweep(&self) -> u32 {
        self.asking.len().div_ceil(GLANCE) as u32
    }

    fn reply_detached<R>(&mut self, key: PendingKey, reply: impl FnOnce(&mut dyn ReplyPath) -> R) -> R {
        let Self { answering, segments, job, board, fenced, bare, .. } = self;
        let context = ReplyContext { to: key.to, board, job, segments, fenced: *fenced };
        let set_aside = key.tag.checked_sub(1);
        reply(&mut ShmReplyPath::new(&mut answering[key.to.index()].replies, context, set_aside, bare))
    }

    #[inline]
    fn flush(&mut self) {
        self.end_rest();
    }

    fn is_quiescent(&mut self) -> bool {
        let mut all = true;
        for asking in &self.asking {
            all &= asking.requests.is_gone() || asking.requests.quiet();
        }
        if all {
            // The wait for it is over, though no message ended it.
            self.backoff.reset();
        }
        all
    }

    #[inline]
    fn segment(&self) -> &Segment<ShmMemory> {
        self.segments.get(&self.job, self.rank).expect("the own segment was mapped when joining")
    }

    #[inline]
    fn read_placed(&self, offset: u64, out: &mut [u8]) -> Result<(), SegmentError> {
        self.segments.arrivals.read(offset, out)
    }

    #[inline]
    fn segment_len(&self, rank: Rank) -> u64 {
        self.segments.len_of(&self.job, rank)
    }

    #[inline]
    fn remote_segment(&self, rank: Rank) -> Option<&Segment<ShmMemory>> {
        if self.is_fork() { None } else { self.segments.get(&self.job, rank) }
    }

    fn reads_lent(&mut self, of: Peer) -> bool {
        self.process_of(of).is_some()
    }

    fn read_lent(&mut self, of: Peer, lent: &Lent, at: u64, out: &mut [u8]) -> Result<(), LentFault> {
        self.read_memory(of, lent, at, out)
    }

    fn auxiliary(&self, of: Peer) -> Option<Segment<AnyMemory>> {
        let start = self.board.layout.auxiliary(of.index());
        let memory = ShmMemory::new(View::new(&self.job.mapping, start, layout::AUXILIARY / 8));
        Some(Segment::new(memory, layout::AUXILIARY).erase())
    }

    fn credits(&self, peer: Peer) -> CreditSnapshot {
        let [request_frames, request_bytes, reply_frames, reply_bytes] = self.asking[peer.index()].requests.free();
        CreditSnapshot::default().requests(request_frames, request_bytes).replies(reply_frames, reply_bytes)
    }

    fn owed(&self, peer: Peer) -> Option<Owed> {
        let requests = &self.asking[peer.index()].requests;
        Some(Owed::new(!requests.quiet(), requests.unanswered()))
    }

    fn bare_credits(&self) -> u64 {
        self.bare
    }
}
