//! The side that answers: requests that are worked on, from when they come until their answer has been sent.

use crate::buffers;
use crate::code::{Asked, Begun};
use crate::config::CallConfig;
use crate::context::{Environment, Origin, Spawned};
use crate::coverage::Coverage;
use crate::meter::{End, Meter};
use crate::methods::{Methods, Registered};
use crate::room::{Room, Side};
use crate::shared::{Ready, TaskWaker};
use crate::stream::AnswerQueue;
use crate::task::{Arrived, Phase, Taken, Task};
use crate::trace::Tracer;
use crate::tree::opened;
use crate::wire::{Header, Status, Verdict, numbers};
use am_core::slab::{Key, Slab};
use am_core::transport::PeerStatus;
use am_core::{Address, Instant, PendingReply, Span};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

/// Requests of one peer whose replies wait for their tasks: each keeps a credit, of which some are for others.
const HELD: u16 = 16;

/// Cancellations that came before their requests, and are kept for them.
const EARLY: usize = 256;

/// Tasks that are polled in one go.
const TURN: usize = 256;
/// Outlets of streams that are kept for others.
const SPARE: usize = 256;

pub(crate) struct Server<W> {
    pub(crate) methods: Vec<Registered<W>>,
    pub(crate) meter: Meter,
    tracer: Tracer,
    /// Counted tasks that came since the time was known.
    unseen: Vec<Key>,
    config: CallConfig,
    tasks: Slab<Task>,
    /// Tasks that answer somebody.
    answering: u32,
    /// Those of them that this rank has called itself for on behalf of others.
    on_behalf: u32,
    by_call: HashMap<(u64, u64), Key>,
    /// One for each place of a task.
    wakers: Vec<(Arc<TaskWaker>, Waker)>,
    ready: Arc<Ready>,
    turn: Vec<Key>,
    /// Tasks that have something to send.
    outgoing: VecDeque<Key>,
    room: Arc<Room>,
    grants: VecDeque<Key>,
    early: HashSet<(u64, u64)>,
    early_order: VecDeque<(u64, u64)>,
    /// Ways back that are kept, by peer.
    held: Vec<u16>,
    /// Outlets of streams that have ended.
    spare: Vec<Arc<AnswerQueue>>,
    /// Bytes of one message to any rank, once they are known.
    largest: Arc<AtomicU64>,
    /// Whether messages of a pair keep their order everywhere.
    ordered: bool,
    network_known: bool,
    pub(crate) me: Option<Address>,
    /// Deadlines for which timers are to be set, and timers that are to be taken back.
    pub(crate) new_timers: Vec<(Key, Span)>,
    pub(crate) old_timers: Vec<Key>,
}

impl<W: Send + 'static> Server<W> {
    pub(crate) fn new(
        methods: Methods<W>,
        config: CallConfig,
        ready: Arc<Ready>,
        room: Arc<Room>,
        meter: Meter,
        tracer: Tracer,
    ) -> Self {
        Self {
            methods: methods.all,
            meter,
            tracer,
            unseen: Vec::new(),
            config,
            tasks: Slab::new(),
            answering: 0,
            on_behalf: 0,
            by_call: HashMap::new(),
            wakers: Vec::new(),
            ready,
            turn: Vec::new(),
            outgoing: VecDeque::new(),
            room,
            grants: VecDeque::new(),
            early: HashSet::new(),
            early_order: VecDeque::new(),
            held: Vec::new(),
            spare: Vec::new(),
            largest: Arc::new(AtomicU64::new(0)),
            ordered: false,
            network_known: false,
            me: None,
            new_timers: Vec::new(),
            old_timers: Vec::new(),
        }
    }

    /// Whether it is known what the network carries.
    pub(crate) fn knows_network(&self) -> bool {
        self.network_known
    }

    /// What the network carries, once it is known.
    pub(crate) fn set_network(&mut self, largest: u64, ordered: bool) {
        // Relaxed: the number is set before a future is polled, by the same thread or handed over with the
        // endpoint.
        self.largest.store(largest, Ordering::Relaxed);
        (self.ordered, self.network_known) = (ordered, true);
    }

    /// Requests that are being worked on.
    pub(crate) fn answering(&self) -> u32 {
        self.answering
    }

    /// Requests that are being worked on as parts of others.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn on_behalf(&self) -> u32 {
        self.on_behalf
    }

    /// All tasks, with the digests of their methods, and the lengths of requests that come in parts.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn known(&self) -> impl Iterator<Item = (Key, u32, Option<usize>)> {
        let parts = |task: &Task| matches!(task.phase, Phase::Receiving { .. }).then_some(task.bytes.len());
        self.tasks.iter().map(move |(key, task)| (key, task.header.digest, parts(task)))
    }

    /// Cancellations that are kept, ways back, and the calls that tasks are found by.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn kept(&self) -> (usize, u16, usize) {
        let early = self.early.len().max(self.early_order.len());
        (early, self.held.iter().copied().max().unwrap_or(0), self.by_call.len())
    }

    /// Whether something could be done now.
    pub(crate) fn has_work(&self) -> bool {
        let timers = self.new_timers.is_empty() && self.old_timers.is_empty();
        let sending = !(self.outgoing.is_empty() && self.grants.is_empty());
        !timers || sending || !self.ready.is_empty()
    }

    /// Whether a task can be polled.
    pub(crate) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// A request has come.
    #[inline]
    pub(crate) fn request(
        &mut self,
        world: &mut W,
        environment: &Arc<Environment<W>>,
        arrived: Arrived,
        request: &[u8],
        answer: &mut Vec<u8>,
    ) -> Taken {
        let Arrived { from, header, left, .. } = arrived;
        answer.clear();
        let bad = Taken::Answered(Verdict::new(Status::BadRequest, header.digest));
        // A short one-way call has no number that a cancellation could mean.
        let numbered = !header.is(Header::ONE_WAY) || header.is(Header::LONG);
        if numbered && !self.early.is_empty() && self.early.remove(&(arrived.peer, arrived.call)) {
            // Its caller had given up before it came.
            return Taken::Forgotten;
        }
        // By this flag nobody speaks for others but to itself.
        if header.is(Header::ON_BEHALF) && self.me != Some(from) {
            return bad;
        }
        let full = self.is_full(header);
        let Some(method) = self.methods.get_mut(usize::from(header.method)) else { return bad };
        if method.digest != header.digest || method.stream != header.is(Header::STREAM) {
            return bad;
        }
        if header.is(Header::LONG) {
            return self.announce(arrived, answer);
        }
        if !method.later {
            // What it answers might have to be kept.
            if method.long_answers && !header.is(Header::ONE_WAY) && full {
                return Taken::Answered(Verdict::new(Status::RefusedTasks, header.digest));
            }
            if answer.capacity() < method.expected {
                buffers::give(std::mem::replace(answer, buffers::take_for(method.expected)));
            }
            let Some((trace, request)) = self.tracer.open(request) else { return bad };
            let (span, trace) = self.tracer.serve(trace, header.method, from);
            let origin = Origin::new(from, left, trace);
            let Some((origin, request)) = opened(header, origin, request) else { return bad };
            let asked = Asked { origin, request, environment, answer_queue: None, deadline: None };
            let _entered = span.enter();
            return match method.code.begin(Some(world), asked, answer) {
                Begun::Now(status) => {
                    let status = within(u64::from(self.config.max_bytes), status, answer);
                    Taken::Answered(Verdict::new(status, header.digest))
                }
                Begun::Later(_) => bad,
            };
        }
        if method.running >= method.limit {
            return Taken::Answered(Verdict::new(Status::RefusedMethod, header.digest));
        }
        if full {
            return Taken::Answered(Verdict::new(Status::RefusedTasks, header.digest));
        }
        let mut bytes = buffers::take_for(request.len());
        bytes.extend_from_slice(request);
        let Some(key) = self.add(arrived, Phase::Arrived) else { return bad };
        self.methods[usize::from(header.method)].running += 1;
        if let Some(task) = self.tasks.get_mut(key) {
            task.bytes = bytes;
        }
        self.wake(key);
        Taken::Later(key)
    }

    /// Whether as many requests are worked on as may be. What this rank passes on to itself is part of one that is
    /// worked on already.
    fn is_full(&self, header: Header) -> bool {
        self.answering - self.on_behalf >= self.config.tasks && !header.is(Header::ON_BEHALF)
    }

    /// Has the method of a task that has its request begin.
    fn begin(&mut self, key: Key, world: Option<&mut W>, environment: &Arc<Environment<W>>) {
        let Some(task) = self.tasks.get_mut(key) else { return };
        let (from, header, left, deadline) = (task.from, task.header, task.left, task.deadline);
        let (request, window) = (std::mem::take(&mut task.bytes), task.window);
        let answer_queue = header.is(Header::STREAM).then(|| self.answer_queue(key, window));
        let Some(task) = self.tasks.get_mut(key) else { return };
        let method = &mut self.methods[usize::from(header.method)];
        let mut answer = buffers::take_for(if method.later { 0 } else { method.expected });
        let request_of = self.tracer.open(&request).and_then(|(trace, request)| {
            let (span, trace) = self.tracer.serve(trace, header.method, from);
            let (origin, request) = opened(header, Origin::new(from, left, trace), request)?;
            Some((span, origin, request))
        });
        let begun = match request_of {
            Some((span, origin, request)) => {
                let asked = Asked { origin, request, environment, answer_queue: answer_queue.as_ref(), deadline };
                let begun = {
                    let _entered = span.enter();
                    method.code.begin(world, asked, &mut answer)
                };
                task.span = span;
                begun
            }
            None => Begun::Now(Status::BadRequest),
        };
        buffers::give(request);
        match begun {
            Begun::Now(status) => {
                // The method no longer counts it.
                task.phase = Phase::Waiting;
                if method.later {
                    method.running -= 1;
                }
                self.conclude(key, status, answer);
            }
            Begun::Later(place) => {
                buffers::give(answer);
                task.phase = Phase::Running { place };
                task.answer_queue = answer_queue;
            }
        }
    }

    /// A queue for the stream of a task.
    fn answer_queue(&mut self, key: Key, window: u32) -> Arc<AnswerQueue> {
        let waker = &self.wakers[key.index() as usize].0;
        let spare = self.spare.pop();
        let mut answer_queue = spare.unwrap_or_else(|| AnswerQueue::new(&self.config, &self.largest, waker));
        Arc::get_mut(&mut answer_queue)
            .expect("a spare queue is nobody else's")
            .renew(u64::from(window.max(1)), waker);
        answer_queue
    }

    fn unplace(&mut self, method: u16, place: u32) {
        let method = &mut self.methods[usize::from(method)];
        method.running -= 1;
        method.code.end(place);
    }

    /// A long request is announced.
    fn announce(&mut self, arrived: Arrived, answer: &mut Vec<u8>) -> Taken {
        let Arrived { from, header, long, .. } = arrived;
        let (long, limit) = (u64::from(long), u64::from(self.config.max_bytes));
        let bytes = long.saturating_sub(self.tracer.envelope() as u64);
        if bytes > limit {
            answer.extend_from_slice(&numbers(bytes, limit));
            return Taken::Answered(Verdict::new(Status::LongRequest, header.digest));
        }
        if self.is_full(header) {
            return Taken::Answered(Verdict::new(Status::RefusedTasks, header.digest));
        }
        match self.add(arrived, Phase::Announced { bytes: long }) {
            Some(key) => {
                self.room.add(Side::Requests, from, long, key);
                self.make_room();
                Taken::Later(key)
            }
            None => Taken::Answered(Verdict::new(Status::BadRequest, header.digest)),
        }
    }

    /// Lets long requests come for which there is room, in order; whether one may.
    pub(crate) fn make_room(&mut self) -> bool {
        let mut any = false;
        while let Some(key) = self.room.next(Side::Requests) {
            let task = self.tasks.get_mut(key).expect("a request that waits for memory has its task");
            let Phase::Announced { bytes } = task.phase else { unreachable!("a request that waits is announced") };
            task.bytes = buffers::take_filled(bytes as usize);
            task.phase = Phase::Receiving { received: Coverage::default() };
            self.grants.push_back(key);
            any = true;
        }
        any
    }

    /// Part of a long request has come.
    pub(crate) fn part(
        &mut self,
        world: &mut W,
        environment: &Arc<Environment<W>>,
        from: Address,
        (key, at, len): (Key, u64, usize),
        body: impl FnOnce(&mut [u8]),
    ) {
        let Some(task) = self.tasks.get_mut(key).filter(|task| task.from == from) else { return };
        let Phase::Receiving { received } = &mut task.phase else { return };
        let place = usize::try_from(at).ok().and_then(|at| task.bytes.get_mut(at..at.checked_add(len)?));
        // The caller breaks the protocol: its call comes to nothing.
        let (Some(place), Ok(received)) = (place, received.note(at, len as u64)) else {
            return self.conclude(key, Status::BadRequest, Vec::new());
        };
        body(place);
        if received == task.bytes.len() as u64 {
            self.has_come(key, world, environment);
        }
    }

    /// A long request is there as a whole.
    fn has_come(&mut self, key: Key, world: &mut W, environment: &Arc<Environment<W>>) {
        let Some(task) = self.tasks.get_mut(key) else { return };
        self.room.give(task.from, task.bytes.len() as u64);
        let method = &mut self.methods[usize::from(task.header.method)];
        if method.later && method.running >= method.limit {
            task.phase = Phase::Waiting;
            self.conclude(key, Status::RefusedMethod, Vec::new());
        } else if method.later {
            method.running += 1;
            task.phase = Phase::Arrived;
            self.wake(key);
        } else {
            task.phase = Phase::Waiting;
            self.begin(key, Some(world), environment);
        }
    }

    /// Adds a task; none if its call has one already.
    fn add(&mut self, arrived: Arrived, phase: Phase) -> Option<Key> {
        let Arrived { peer, call, header, left, .. } = arrived;
        if !header.is(Header::ONE_WAY) && self.by_call.contains_key(&(peer, call)) {
            return None;
        }
        let key = self.insert(Task::new(arrived, phase));
        self.answering += 1;
        self.on_behalf += u32::from(header.is(Header::ON_BEHALF));
        if !header.is(Header::ONE_WAY) {
            self.by_call.insert((peer, call), key);
        }
        if let Some(left) = left {
            self.new_timers.push((key, left));
        }
        Some(key)
    }

    fn insert(&mut self, task: Task) -> Key {
        let key = self.tasks.insert(task);
        if self.wakers.len() <= key.index() as usize {
            let waker = TaskWaker::new(&self.ready, key);
            self.wakers.push((Arc::clone(&waker), waker.into()));
        }
        key
    }

    /// Has a new task polled.
    fn wake(&mut self, key: Key) {
        self.wakers[key.index() as usize].0.renew(key);
    }

    /// Adds a task of the program's own.
    pub(crate) fn spawn(&mut self, future: Spawned, me: Address) {
        let header = Header { method: 0, flags: Header::ONE_WAY, digest: 0 };
        let arrived = Arrived { from: me, peer: 0, call: 0, header, left: None, long: 0, window: 0 };
        let key = self.insert(Task::new(arrived, Phase::Own { future }));
        self.wake(key);
    }

    /// Whether the way back of another request of a peer may be kept.
    pub(crate) fn may_keep(&self, arrived: Arrived) -> bool {
        // The end of a stream says how many answers there were, which takes a message of its own; parts of a long
        // request need credit.
        !(arrived.header.is(Header::STREAM) || arrived.header.is(Header::LONG))
            && self.held.get(arrived.from.rank.0 as usize).is_none_or(|held| *held < HELD)
    }

    /// Keeps the way back of a request for its answer.
    pub(crate) fn keep(&mut self, key: Key, pending: PendingReply) {
        let Some(task) = self.tasks.get_mut(key) else { return };
        let rank = task.from.rank.0 as usize;
        if self.held.len() <= rank {
            self.held.resize(rank + 1, 0);
        }
        self.held[rank] += 1;
        (task.pending, task.kept) = (Some(pending), true);
    }

    /// A function's answer did not fit where it could have gone at once. It is kept even if as many requests are
    /// worked on as may be: the function has run. From now on it is refused then, so that each method can be
    /// beyond the limit once.
    pub(crate) fn answer_later(&mut self, arrived: Arrived, verdict: Verdict, answer: &mut Vec<u8>) {
        if let Some(method) = self.methods.get_mut(usize::from(arrived.header.method)) {
            method.long_answers = true;
            method.expected = buffers::expect(method.expected, answer.len());
        }
        let Some(key) = self.add(arrived, Phase::Answering { verdict }) else { return };
        if let Some(task) = self.tasks.get_mut(key) {
            task.bytes = std::mem::replace(answer, buffers::take());
        }
        self.list(key);
    }

    /// A task has something to send.
    fn list(&mut self, key: Key) {
        if let Some(task) = self.tasks.get_mut(key)
            && !std::mem::replace(&mut task.listed, true)
        {
            self.outgoing.push_back(key);
        }
    }

    /// A task has its answer.
    fn conclude(&mut self, key: Key, status: Status, mut answer: Vec<u8>) {
        let limit = u64::from(self.config.max_bytes);
        let Some(task) = self.tasks.get_mut(key) else { return };
        if let Phase::Receiving { .. } = task.phase {
            self.room.give(task.from, task.bytes.len() as u64);
        }
        let status = within(limit, status, &mut answer);
        self.meter.concluded(task, status, answer.len());
        if task.header.is(Header::ONE_WAY) {
            task.phase = Phase::Waiting;
            self.remove(key);
            return;
        }
        task.phase = Phase::Answering { verdict: Verdict::new(status, task.header.digest) };
        let method = &mut self.methods[usize::from(task.header.method)];
        method.expected = buffers::expect(method.expected, answer.len());
        buffers::give(std::mem::replace(&mut task.bytes, answer));
        self.list(key);
    }

    /// Ends a task wherever it is.
    pub(crate) fn remove(&mut self, key: Key) {
        self.abandon(key, End::Cancelled);
    }

    /// [`Server::remove`]; a task whose end is not counted yet has ended so.
    fn abandon(&mut self, key: Key, end: End) {
        let Some(mut task) = self.tasks.remove(key) else { return };
        self.meter.removed(&task, end);
        if task.kept {
            self.held[task.from.rank.0 as usize] -= 1;
        }
        if let Phase::Own { .. } = task.phase {
            return;
        }
        self.answering -= 1;
        self.on_behalf -= u32::from(task.header.is(Header::ON_BEHALF));
        if !task.header.is(Header::ONE_WAY) {
            self.by_call.remove(&(task.peer, task.call));
        }
        self.old_timers.extend(task.timer);
        match task.phase {
            Phase::Running { place } => self.unplace(task.header.method, place),
            Phase::Arrived => self.methods[usize::from(task.header.method)].running -= 1,
            Phase::Receiving { .. } => {
                self.room.give(task.from, task.bytes.len() as u64);
            }
            Phase::Announced { .. } => self.room.remove(Side::Requests, task.from, key),
            _ => {}
        }
        if let Some(mut answer_queue) = task.answer_queue.take()
            && let Some(queue) = Arc::get_mut(&mut answer_queue)
        {
            queue.clear();
            if self.spare.len() < SPARE {
                self.spare.push(answer_queue);
            }
        }
        buffers::give(std::mem::take(&mut task.bytes));
        task.long_item.take().into_iter().for_each(|item| buffers::give(item.bytes));
    }

    /// A caller no longer waits.
    pub(crate) fn cancel(&mut self, peer: u64, call: u64) {
        if let Some(key) = self.by_call.get(&(peer, call)) {
            return self.remove(*key);
        }
        // It may have overtaken its request. One that came after the answer had left is forgotten in time.
        if !self.ordered && self.early.insert((peer, call)) {
            self.early_order.push_back((peer, call));
            if self.early_order.len() > EARLY
                && let Some(first) = self.early_order.pop_front()
            {
                self.early.remove(&first);
            }
        }
    }

    /// A caller has taken answers of a stream.
    pub(crate) fn credit(&mut self, peer: u64, call: u64, answers: u64) {
        let task = self.by_call.get(&(peer, call)).and_then(|key| self.tasks.get(*key));
        if let Some(answer_queue) = task.and_then(|task| task.answer_queue.as_ref()) {
            answer_queue.grant(answers);
        }
    }

    /// A caller has room for a long answer.
    pub(crate) fn granted(&mut self, from: Address, key: Key, call: u64) {
        let Some(task) = self.tasks.get_mut(key) else { return };
        if task.from == from && task.call == call && matches!(task.phase, Phase::Waiting) && !task.bytes.is_empty()
        {
            task.phase = Phase::Shipping { sent: 0 };
            self.list(key);
        }
    }

    /// A caller has room for what its stream has announced: an answer, or the end.
    pub(crate) fn granted_item(&mut self, peer: u64, call: u64) {
        let Some(key) = self.by_call.get(&(peer, call)).copied() else { return };
        let Some(task) = self.tasks.get_mut(key) else { return };
        let from = task.from;
        match &mut task.long_item {
            Some(item) if item.sent.is_none() => {
                item.sent = Some(0);
                self.list(key);
            }
            Some(_) => {}
            None => self.granted(from, key, call),
        }
    }

    /// Whether a task is there.
    pub(crate) fn has(&self, key: Key) -> bool {
        self.tasks.contains(key)
    }

    /// A timer was set for a task's deadline.
    pub(crate) fn timer_set(&mut self, key: Key, at: Instant, timer: Key) {
        if let Some(task) = self.tasks.get_mut(key) {
            (task.deadline, task.timer) = (Some(at), Some(timer));
        }
    }

    /// A task's deadline has passed: its caller no longer waits.
    pub(crate) fn expired(&mut self, key: Key) {
        if let Some(task) = self.tasks.get_mut(key) {
            task.timer = None;
            self.abandon(key, End::TimedOut);
        }
    }

    /// Whether somebody is gone whose request is being worked on.
    pub(crate) fn is_deserted(&self, status: &impl Fn(Address) -> PeerStatus) -> bool {
        self.answering != 0 && self.tasks.iter().any(|(_, task)| is_deserted(task, status))
    }

    /// Ends the tasks of callers that are gone; whether there were any.
    pub(crate) fn desert(&mut self, status: &impl Fn(Address) -> PeerStatus) -> bool {
        let deserted = self.tasks.iter().filter(|(_, task)| is_deserted(task, status));
        let keys: Vec<Key> = deserted.map(|(key, _)| key).collect();
        let any = !keys.is_empty();
        keys.into_iter().for_each(|key| self.abandon(key, End::Lost));
        any
    }

    /// Polls the tasks that can go on; whether there were any.
    pub(crate) fn poll(&mut self, environment: &Arc<Environment<W>>) -> bool {
        let mut turn = std::mem::take(&mut self.turn);
        self.ready.swap(&mut turn);
        let any = !turn.is_empty();
        for key in turn.drain(..) {
            self.poll_task(key, environment);
        }
        self.turn = turn;
        any
    }

    fn poll_task(&mut self, key: Key, environment: &Arc<Environment<W>>) {
        let Some(task) = self.tasks.get_mut(key) else { return };
        if let Phase::Arrived = task.phase {
            self.begin(key, None, environment);
        }
        let Some(task) = self.tasks.get_mut(key) else { return };
        let (task_waker, waker) = &self.wakers[key.index() as usize];
        task_waker.polled();
        let mut context = Context::from_waker(waker);
        match &mut task.phase {
            Phase::Running { place } => {
                let place = *place;
                let method = &mut self.methods[usize::from(task.header.method)];
                let mut answer = buffers::take_for(method.expected);
                let polled = {
                    let _entered = task.span.enter();
                    method.code.poll(place, &mut context, &mut answer)
                };
                match polled {
                    Poll::Pending => {
                        buffers::give(answer);
                        // A method that waits keeps no credit of its caller's meanwhile.
                        if task.pending.is_some()
                            || task.answer_queue.as_ref().is_some_and(|answer_queue| !answer_queue.is_empty())
                        {
                            self.list(key);
                        }
                    }
                    Poll::Ready(status) => {
                        method.running -= 1;
                        self.conclude(key, status, answer);
                    }
                }
            }
            Phase::Own { future } => {
                let polled =
                    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| future.as_mut().poll(&mut context)));
                // What a task of the program's own panicked with has been told where it panicked.
                if !matches!(polled, Ok(Poll::Pending)) {
                    self.remove(key);
                }
            }
            _ => {}
        }
    }
}

/// What an answer says that may be so long: if it is longer, that.
fn within(limit: u64, status: Status, answer: &mut Vec<u8>) -> Status {
    let long = answer.len() as u64;
    if long <= limit {
        return status;
    }
    answer.clear();
    answer.extend_from_slice(&numbers(long, limit));
    Status::LongAnswer
}

fn is_deserted(task: &Task, status: &impl Fn(Address) -> PeerStatus) -> bool {
    !matches!(task.phase, Phase::Own { .. }) && status(task.from) != PeerStatus::Active
}

mod counting;
mod sending;
#[cfg(test)]
mod tests;
