//! What the library keeps for its process: its node, its peers, its segments and connections, and who is lost.

use super::config::{MappedConfig, MappedError};
use super::node::{Peer, Post};
use super::region::View;
use super::segment::{EVENTS, Local, Remote};
use crate::nic::errors::Injector;
use crate::nic::kinds::{Callback, CallbackSegment, Counters, NodeId, SegmentReason};
use am_core::backoff::{Backoff, BackoffPolicy, Next};
use am_core::time::Clock;
use am_core::{Instant, PeerStatus, Span};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Between two looks at whether peers live, while waiting.
const HEARTBEAT: Duration = Duration::from_millis(20);

/// SISCI between processes: segments are files that they all map.
///
/// A process [initialises](Mapped::initialize) it with the job's directory and its node. Stores are stores to
/// memory: they have landed when the call returns, and other processors see them in order; transfer errors are
/// those that [`MappedConfig::errors`] asks for. Used by one thread at a time; it may move between threads.
///
/// A process that ends without a word loses the lock on its node's file, which the others notice within 20 ms of
/// waiting: its segments are [`Lost`](SegmentReason::Lost). A process that forks must not let its child live
/// longer than itself without `exec`, since the child holds the lock too.
///
/// Dropping it departs, if that has not been done, and removes this node's files, and the directory with the last
/// of them.
///
/// ```
/// use am_core::Span;
/// use sci_sim::nic::{Flags, Mapped, MappedConfig, NodeId, SegmentId, Sisci};
///
/// let directory = std::env::temp_dir().join(format!("sci-example-{}", std::process::id()));
/// let nodes = [NodeId(4), NodeId(8)];
/// let node = |number| Mapped::initialize(MappedConfig::new(&directory, NodeId(number), nodes)).unwrap();
/// let (receiver, sender) = (node(4), node(8));
///
/// let session = receiver.open()?;
/// let segment = receiver.create_segment(&session, SegmentId(1), 4096, Flags::NONE)?;
/// receiver.prepare_segment(&segment)?;
/// let mine = receiver.map_local(&segment, 0, 4096)?;
/// receiver.set_available(&segment)?;
///
/// let theirs = sender.open()?;
/// let remote = sender.connect_segment(&theirs, NodeId(4), SegmentId(1), Span::from_secs(1), Flags::NONE)?;
/// let map = sender.map_remote(&remote, 0, 4096)?;
/// sender.store(&map, 100, b"data before flag")?;
/// sender.store_flag(&map, 0, 1)?;
/// assert_eq!(receiver.take_flag(&mine, 0), 1);
/// # Ok::<(), sci_sim::nic::Code>(())
/// ```
#[derive(Debug)]
pub struct Mapped {
    pub(super) config: MappedConfig,
    pub(super) post: Post,
    pub(super) peers: RefCell<Vec<Arc<Peer>>>,
    pub(super) locals: RefCell<Vec<Arc<Local>>>,
    pub(super) remotes: RefCell<Vec<Arc<Remote>>>,
    /// Open sessions: how much made through each is in use.
    pub(super) sessions: RefCell<Vec<Arc<AtomicU32>>>,
    pub(super) watched: RefCell<Vec<(View, usize)>>,
    pub(super) callbacks: RefCell<VecDeque<Callback>>,
    pub(super) injector: RefCell<Injector>,
    /// Whether lines fail on purpose, so that stores take the long way.
    pub(super) faulty: bool,
    pub(super) counters: Cell<Counters>,
    pub(super) next_base: Cell<u64>,
    pub(super) memory: Cell<usize>,
    /// Numbers interrupts that are made, so that a connection to a removed one does not find the next.
    pub(super) marks: Cell<u32>,
    /// The news that were known at the end of the last idling, and at the last look for losses.
    pub(super) known_news: Cell<u64>,
    looked_news: Cell<u64>,
    losses: Cell<u32>,
    /// Processes that count as lost, by their incarnation.
    lost: RefCell<Vec<u64>>,
    pub(super) backoff_policy: BackoffPolicy,
    last_look: Cell<std::time::Instant>,
    clock: Clock,
}

impl Mapped {
    /// Joins a job: takes its node, clears away what a dead process may have left of it, and lets the others find
    /// it.
    ///
    /// # Errors
    /// [`MappedError`]: an impossible configuration, a node that another process has, files that cannot be made.
    pub fn initialize(config: MappedConfig) -> Result<Self, MappedError> {
        config.check()?;
        let post = Post::take(&config.directory, config.node)?;
        let injector = Injector::new(&config.errors, 0, config.node);
        let backoff_policy = BackoffPolicy::at_memory(config.nodes.len(), am_core::time::processors());
        let errors = &config.errors;
        let faulty = errors.retriable + errors.not_retriable + errors.pending > 0.0 || !errors.planned.is_empty();
        let now = std::time::Instant::now();
        Ok(Self {
            injector: RefCell::new(injector),
            faulty,
            peers: RefCell::default(),
            locals: RefCell::default(),
            remotes: RefCell::default(),
            sessions: RefCell::default(),
            watched: RefCell::default(),
            callbacks: RefCell::default(),
            counters: Cell::default(),
            next_base: Cell::new(1 << 16),
            memory: Cell::new(0),
            marks: Cell::new(0),
            known_news: Cell::new(0),
            looked_news: Cell::new(0),
            losses: Cell::new(0),
            lost: RefCell::default(),
            backoff_policy,
            last_look: Cell::new(now),
            clock: Clock::start(),
            post,
            config,
        })
    }

    /// The job's nodes.
    pub fn nodes(&self) -> &[NodeId] {
        &self.config.nodes
    }

    pub(super) fn clock(&self) -> Instant {
        self.clock.now()
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut Counters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    /// The process of a node, if it has come; a dead one only until another takes its place.
    pub(super) fn peer(&self, node: NodeId) -> Option<Arc<Peer>> {
        let known = self.peers.borrow().iter().find(|peer| peer.node == node).cloned();
        if let Some(peer) = &known
            && !peer.dead()
            && peer.status() == PeerStatus::Active
        {
            return known;
        }
        // Nobody, or a process that is gone: perhaps the next one has come.
        let found = Peer::find(&self.config.directory, node).ok().flatten().map(Arc::new);
        let Some(peer) = found else { return known };
        if let Some(known) = known {
            self.note(&known);
        }
        let mut peers = self.peers.borrow_mut();
        peers.retain(|old| old.node != node);
        peers.push(Arc::clone(&peer));
        Some(peer)
    }

    /// Asks the system whether peers live, and counts those that do not any more.
    pub(super) fn look_after_peers(&self) {
        self.last_look.set(std::time::Instant::now());
        self.looked_news.set(self.post.news());
        for peer in self.peers.borrow().iter() {
            self.note(peer);
        }
    }

    /// Counts a peer that is lost, once.
    fn note(&self, peer: &Peer) {
        if matches!(peer.look(), PeerStatus::Lost(_)) && !self.lost.borrow().contains(&peer.incarnation()) {
            self.lost.borrow_mut().push(peer.incarnation());
            self.losses.set(self.losses.get() + 1);
        }
    }

    /// Looks after the peers if somebody has told news, or the last look is long ago.
    pub(super) fn heartbeat(&self) {
        if self.post.news() != self.looked_news.get() || self.last_look.get().elapsed() >= HEARTBEAT {
            self.look_after_peers();
        }
    }

    pub(super) fn loss_count(&self) -> u32 {
        if self.post.news() != self.looked_news.get() {
            self.look_after_peers();
        }
        self.losses.get()
    }

    /// Tells segments and connections what has happened to them.
    pub(super) fn survey(&self) {
        use crate::nic::mutation::Mutation;
        self.look_after_peers();
        let silent = self.config.defects.has(Mutation::SilentLoss);
        for local in self.locals.borrow().iter() {
            self.survey_local(local, silent);
        }
        for remote in self.remotes.borrow().iter() {
            if remote.peer.gone() && !remote.lost.swap(true, Relaxed) && !silent {
                self.remote_event(remote, SegmentReason::Lost);
            }
        }
    }

    /// Tells a segment who has connected and who is gone; returns how many are connected.
    pub(super) fn survey_local(&self, local: &Local, silent: bool) -> usize {
        let alive = |node: NodeId, matches: &dyn Fn(u64) -> bool| {
            silent || self.peer(node).is_some_and(|peer| matches(peer.incarnation()) && !peer.dead())
        };
        local.survey(alive, |node, reason| {
            if local.callback {
                self.callback(Callback { segment: CallbackSegment::Local(local.id), node, reason });
                return;
            }
            let mut events = local.events.lock().expect("nobody panics with events in hand");
            if events.len() < EVENTS {
                events.push_back((node, reason));
            }
        })
    }

    fn remote_event(&self, remote: &Remote, reason: SegmentReason) {
        if remote.callback {
            let segment = CallbackSegment::Remote(remote.peer.node, remote.id);
            return self.callback(Callback { segment, node: remote.peer.node, reason });
        }
        let mut events = remote.events.lock().expect("nobody panics with events in hand");
        if events.len() < EVENTS {
            events.push_back(reason);
        }
    }

    fn callback(&self, callback: Callback) {
        let mut callbacks = self.callbacks.borrow_mut();
        if callbacks.len() < 4 * EVENTS {
            callbacks.push_back(callback);
        }
    }

    /// Departs, and tells everybody who can be found.
    pub(super) fn leave(&self, how: PeerStatus) {
        if !self.post.depart(how) {
            return;
        }
        for node in &self.config.nodes {
            if *node != self.config.node
                && let Some(peer) = self.peer(*node)
            {
                peer.tell();
            }
        }
    }

    /// Whether a watched byte is set.
    fn watched_now(watched: &[(View, usize)]) -> bool {
        watched.iter().any(|(view, at)| view.flag(*at).glance() != 0)
    }

    /// Waits a little: spins, then yields, then sleeps until somebody rings, `longest` has passed, or a heartbeat
    /// is due.
    pub(super) fn pause(&self, longest: Option<Duration>) {
        let watched = self.watched.borrow();
        let known = self.known_news.get();
        let ready = || Self::watched_now(&watched) || self.post.news() != known;
        let end = longest.map(|longest| std::time::Instant::now() + longest);
        let over = || end.is_some_and(|end| std::time::Instant::now() >= end);
        let mut backoff = Backoff::new(self.backoff_policy);
        for turn in 1u32.. {
            match backoff.next() {
                Next::Spin if ready() || turn.is_multiple_of(64) && over() => return self.awake(),
                Next::Yield if ready() || over() => return self.awake(),
                Next::Spin => std::hint::spin_loop(),
                Next::Yield => std::thread::yield_now(),
                Next::Park => break,
            }
        }
        let rest = end.map(|end| end.saturating_duration_since(std::time::Instant::now()));
        self.post.sleeper().announce();
        if !ready() {
            self.post.sleep(rest.map_or(HEARTBEAT, |rest| rest.min(HEARTBEAT)));
        }
        self.post.sleeper().rise();
        self.awake();
    }

    /// The pause is over: what is known now is no reason to end the next.
    fn awake(&self) {
        self.heartbeat();
        self.known_news.set(self.post.news());
    }

    /// Waits until something can be taken; none when the time is over.
    pub(super) fn wait<R>(&self, timeout: Option<Span>, mut take: impl FnMut() -> Option<R>) -> Option<R> {
        let end = timeout.map(|timeout| std::time::Instant::now() + Duration::from(timeout));
        loop {
            // What comes from here on ends the pause.
            self.known_news.set(self.post.news());
            if let Some(found) = take() {
                return Some(found);
            }
            let rest = end.map(|end| end.saturating_duration_since(std::time::Instant::now()));
            if rest.is_some_and(|rest| rest.is_zero()) {
                return None;
            }
            self.pause(rest);
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        use am_core::LossCause;
        let cause = if std::thread::panicking() { LossCause::Panicked } else { LossCause::Left };
        self.leave(PeerStatus::Lost(cause));
        self.remotes.borrow().iter().for_each(|remote| remote.disconnect());
        self.locals.borrow().iter().for_each(|local| local.unlink());
        self.post.clear();
    }
}
