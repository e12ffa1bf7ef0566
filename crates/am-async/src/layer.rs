//! The layer: handlers that take in what arrives, and the progress that polls futures and sends.

use crate::buffers;
use crate::config::CallConfig;
use crate::context::Environment;
use crate::lent;
use crate::meter::Meter;
use crate::method::Aligned;
use crate::methods::Methods;
use crate::outcome::{Alarm, Ended, Wakers};
use crate::room::Room;
use crate::server::Server;
use crate::shared::{Known, Ready, Root, Shared};
use crate::task::{Arrived, Taken};
use crate::trace::Tracer;
use crate::tree;
use crate::wire::{Control, Header, PART_OF_ANSWER, Status, Verdict, read_measures};
use am_core::layer::{Outbox, Progress, ProgressResult};
use am_core::slab::Key;
use am_core::transport::PeerStatus;
use am_core::{
    Address, HandlerResult, Handlers, HasLayer, Instant, Payload, Peer, RegisterError, Reply, Request, Span, Token,
};
use sending::{room, send_answer, send_call, send_note, send_part};
use std::fmt;
use std::sync::Arc;
use std::task::Waker;

/// Bytes that are kept for requests as they come; longer ones give their memory back.
const KEPT: usize = 64 << 10;

/// Rounds of polling and sending in one go.
const ROUNDS: usize = 8;

/// The handlers.
#[derive(Clone, Copy, Debug)]
struct Wire {
    call: Request<(u64, u64)>,
    call_with: Request<(u64, u64, u64, u64)>,
    one_way: Request<u64>,
    one_way_with: Request<(u64, u64)>,
    answer: Request<(u64, u64, u64, u64)>,
    control: Request<(u64, u64, u64)>,
    part: Request<(u64, u64)>,
    answered: Reply<(u64, u64)>,
}

/// The state of calls: the part of an endpoint's state that methods work in. `W` is the state that methods work
/// on, which it owns.
pub struct Calls<W> {
    world: Option<Box<W>>,
    environment: Arc<Environment<W>>,
    server: Server<W>,
    room: Arc<Room>,
    wire: Wire,
    /// Requests are read here.
    request: Aligned,
    answer: Vec<u8>,
    wakers: Wakers,
    due: Vec<Key>,
    losses: u32,
    /// Whether something is left to do that nobody rings for.
    more: bool,
    /// Counts what may have ended calls.
    events: u64,
    /// The future that the endpoint runs, if it does: what wakes it while the endpoint polls need not ring, since
    /// it is looked at before the endpoint sleeps.
    root: Option<Arc<Root>>,
    /// Whether peers owe answers, or are owed some.
    watch: bool,
    /// Idlings since the peers were looked at.
    idles: u32,
    /// Polls until calls to peers that are gone fail: what these had sent comes first.
    farewell: u32,
    /// Whether callers may be on other threads.
    callers: bool,
    next_alarm: Option<Instant>,
    /// The call that the endpoint waits for, and how it has ended: its answer is handed over as it comes.
    awaited: Option<Key>,
    handed: Option<Ended>,
    /// What a call held that has ended, for the next one: cloning it takes as long as anything else here.
    spare: Option<Arc<Shared>>,
}

impl<W> fmt::Debug for Calls<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calls").finish_non_exhaustive()
    }
}

impl<W> Drop for Calls<W> {
    fn drop(&mut self) {
        // Futures that hold the environment keep it no longer than the endpoint.
        drop(self.environment.close());
        self.environment.shared.close();
    }
}

/// The time left where there is no deadline, in picoseconds.
const NO_DEADLINE: u64 = u64::MAX;

/// Idlings in a row after which peers are looked at again.
const LOOKS: u32 = 32;

/// Polls in which what a peer had sent before it was gone is looked for.
const FAREWELL: u32 = 64;

/// Words of the messages that carry a payload.
const CALL: usize = 4;
const CALL_WITH: usize = 8;
const ONE_WAY: usize = 2;
const ONE_WAY_WITH: usize = 4;
const ANSWER: usize = 8;
const PART: usize = 4;

/// Tells endpoints apart.
fn peer_of(address: Address) -> u64 {
    u64::from(address.rank.0) << 16 | u64::from(address.endpoint)
}

impl<W: Send + 'static> Calls<W> {
    /// Registers the layer with default settings; `world` is the state that methods work on. Allocates.
    ///
    /// # Errors
    /// As [`register_with`](Self::register_with).
    pub fn register<S: HasLayer<Self>>(
        handlers: &mut Handlers<S>,
        methods: Methods<W>,
        world: W,
    ) -> Result<Self, RegisterError> {
        Self::register_with(handlers, methods, world, CallConfig::default())
    }

    /// Registers the layer and makes its state; `world` is the state that methods work on. Allocates.
    ///
    /// # Errors
    /// [`RegisterError`] if the layer is there already, or the table is full.
    pub fn register_with<S: HasLayer<Self>>(
        handlers: &mut Handlers<S>,
        mut methods: Methods<W>,
        world: W,
        config: CallConfig,
    ) -> Result<Self, RegisterError> {
        methods.stream(tree::NAME, tree::relay)?;
        let mut layer = handlers.layer::<Self>("calls")?;
        #[cfg(feature = "tracing")]
        if config.tracing {
            layer.declare("tracing", "the numbers of spans travel with requests")?;
        }
        for method in &methods.all {
            layer.declare(&format!("method {}", method.name), &method.what)?;
        }
        let answered =
            layer.reply("answered", |calls: &mut Self, from, (verdict, call): (u64, u64), payload| {
                calls.on_answer(from, verdict, call, (0, 0), payload);
            })?;
        let call =
            layer.request("call", move |calls: &mut Self, token, (header, call): (u64, u64), payload| {
                calls.on_call(token, answered, (header, call, NO_DEADLINE, 0), payload)
            })?;
        let with = move |calls: &mut Self, token: Token<'_>, words: (u64, u64, u64, u64), payload: Payload<'_>| {
            calls.on_call(token, answered, words, payload)
        };
        let call_with = layer.request("call-with", with)?;
        let one_way = layer.one_way("one-way", |calls: &mut Self, from, header: u64, payload| {
            calls.on_one_way(from, header, NO_DEADLINE, payload);
        })?;
        let one_way_with =
            layer.one_way("one-way-with", |calls: &mut Self, from, (header, left): (u64, u64), payload| {
                calls.on_one_way(from, header, left, payload);
            })?;
        let answer = layer.one_way("answer", |calls: &mut Self, from, words: (u64, u64, u64, u64), payload| {
            let (verdict, call, a, b) = words;
            calls.on_answer(from, verdict, call, (a, b), payload);
        })?;
        let control = layer.one_way("control", |calls: &mut Self, from, (what, a, b): (u64, u64, u64), _| {
            calls.on_control(from, what, a, b);
        })?;
        let part = layer.one_way("part", |calls: &mut Self, from, (to, at): (u64, u64), payload| {
            calls.on_part(from, Key::from_u64(to), at, payload);
        })?;
        layer.progress(Self::progress);
        layer.pending(Self::is_pending);
        layer.changed(|calls: &Self| calls.environment.shared.bell.is_rung());
        let known = methods.all.iter().map(|method| Known::new(method.digest)).collect();
        let room = Arc::new(Room::new(config.receive_bytes));
        #[cfg(feature = "metrics")]
        let meter = match config.metrics {
            true => Meter::new(methods.all.iter().map(|method| method.name.clone()).collect()),
            false => Meter::default(),
        };
        #[cfg(not(feature = "metrics"))]
        let meter = Meter::default();
        #[cfg(feature = "tracing")]
        let tracer = match config.tracing {
            true => Tracer::new(methods.all.iter().map(|method| method.name.clone()).collect()),
            false => Tracer::default(),
        };
        #[cfg(not(feature = "tracing"))]
        let tracer = Tracer::default();
        let shared = Arc::new(Shared::new(config, known, &room, meter.clone(), tracer.clone()));
        let ready = Ready::new(&shared.bell);
        let wire = Wire { call, call_with, one_way, one_way_with, answer, control, part, answered };
        Ok(Self {
            world: Some(Box::new(world)),
            environment: Arc::new(Environment::new(shared)),
            server: Server::new(methods, config, ready, Arc::clone(&room), meter, tracer),
            room,
            wire,
            request: Aligned::default(),
            answer: Vec::new(),
            wakers: Wakers::default(),
            due: Vec::new(),
            losses: 0,
            more: true,
            events: 0,
            root: None,
            watch: false,
            idles: 0,
            farewell: 0,
            callers: false,
            next_alarm: None,
            awaited: None,
            handed: None,
            spare: None,
        })
    }

    /// The state that methods work on.
    pub fn world(&self) -> &W {
        self.world.as_deref().expect("the state is with futures only while they are polled")
    }

    /// The state that methods work on.
    pub fn world_mut(&mut self) -> &mut W {
        self.world.as_deref_mut().expect("the state is with futures only while they are polled")
    }

    /// Requests of other ranks, and this one's own, that are being worked on.
    pub fn tasks(&self) -> u32 {
        self.server.answering()
    }

    /// There are callers, maybe on other threads.
    pub(crate) fn has_callers(&mut self) {
        self.callers = true;
    }

    /// Whether ranks were lost that this layer has not looked at.
    pub(crate) fn is_behind(&self, losses: u32) -> bool {
        self.losses != losses
    }

    pub(crate) fn environment(&self) -> &Arc<Environment<W>> {
        &self.environment
    }

    /// Polls a future while the state is lent to it.
    pub(crate) fn lend<R>(&mut self, poll: impl FnOnce() -> R) -> R {
        lent::to(&self.environment, &mut self.world, poll)
    }

    /// Whether there is anything to do, or may be.
    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        self.more
            || self.farewell != 0
            || self.environment.shared.bell.is_rung()
            || self.server.has_work()
            || self.server.waits_for_time()
            || self.room.is_freed()
    }

    /// Has the next poll look at everything.
    pub(crate) fn look_again(&mut self) {
        self.more = true;
    }

    /// Counts what may have ended calls.
    #[inline]
    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    /// A request that can be answered at once.
    #[inline]
    fn on_call(
        &mut self,
        token: Token<'_>,
        answered: Reply<(u64, u64)>,
        words: (u64, u64, u64, u64),
        payload: Payload<'_>,
    ) -> HandlerResult {
        let call = words.1;
        let (arrived, taken) = self.on_request(token.source(), words, payload);
        let accepted = Verdict::new(Status::Accepted, arrived.header.digest).to_u64();
        match taken {
            Taken::Answered(verdict) if self.answer.len() <= token.max_reply() => {
                let words = (verdict.to_u64(), call);
                if self.answer.is_empty() {
                    token.reply(answered, words)?;
                } else {
                    token.reply_medium(answered, words, &self.answer)?;
                }
                if self.answer.capacity() > KEPT {
                    buffers::give(std::mem::take(&mut self.answer));
                }
            }
            Taken::Answered(verdict) => {
                self.server.answer_later(arrived, verdict, &mut self.answer);
                token.reply(answered, (accepted, call))?;
            }
            Taken::Later(task) if self.server.may_keep(arrived) => self.server.keep(task, token.detach()),
            Taken::Later(_) | Taken::Forgotten => token.reply(answered, (accepted, call))?,
        }
        Ok(())
    }

    /// A request in one message without an answer.
    fn on_one_way(&mut self, from: Address, header: u64, left: u64, payload: Payload<'_>) {
        self.on_request(from, (header | u64::from(Header::ONE_WAY) << 16, 0, left, 0), payload);
    }

    #[inline(always)]
    fn on_request(
        &mut self,
        from: Address,
        (header, call, left, last): (u64, u64, u64, u64),
        payload: Payload<'_>,
    ) -> (Arrived, Taken) {
        let header = Header::from_u64(header);
        let left = (left != NO_DEADLINE).then_some(Span(left));
        let (long, window) = read_measures(last);
        let arrived = Arrived { from, peer: peer_of(from), call, header, left, long, window };
        let Self { world, environment, server, request, answer, .. } = self;
        let bytes = match payload.as_bytes() {
            Some(bytes) => bytes,
            None => request.fill(payload.len(), |bytes| {
                payload.copy_to(bytes);
            }),
        };
        let world = world.as_deref_mut().expect("messages come when no future is polled");
        let taken = server.request(world, environment, arrived, bytes, answer);
        if server.meter.is_on() {
            server.count(arrived, payload.len(), &taken, answer.len());
        }
        self.request.shrink(KEPT);
        (arrived, taken)
    }

    #[inline]
    fn on_answer(&mut self, from: Address, verdict: u64, call: u64, numbers: (u64, u64), payload: Payload<'_>) {
        let body = |bytes: &mut Vec<u8>| {
            buffers::make_room(bytes, payload.len());
            bytes.resize(payload.len(), 0);
            payload.copy_to(bytes);
        };
        let (call, verdict) = (Key::from_u64(call), Verdict::from_u64(verdict));
        let mut table = self.environment.shared.table();
        if self.awaited == Some(call)
            && let Some(ended) = table.answered_awaited(from, call, verdict, body)
        {
            self.more |= table.has_work();
            drop(table);
            self.handed = Some(ended);
            return;
        }
        table.answered(from, call, verdict, numbers, body, &mut self.wakers);
        // What the end of a call lets go on.
        self.more |= table.has_work();
        drop(table);
        self.wake();
    }

    /// The endpoint waits for this call from now on, or for none. What was handed over for the one before, if
    /// nobody has taken it.
    #[inline]
    pub(crate) fn await_call(&mut self, call: Option<Key>) -> Option<Ended> {
        self.awaited = call;
        self.handed.take()
    }

    /// How the call has ended that the endpoint waits for.
    #[inline]
    pub(crate) fn take_handed(&mut self) -> Option<Ended> {
        self.handed.take()
    }

    /// What a call of the endpoint's own holds while it is under way.
    #[inline]
    pub(crate) fn link(&mut self) -> Arc<Shared> {
        self.spare.take().unwrap_or_else(|| Arc::clone(&self.environment.shared))
    }

    /// Keeps what a call held that has ended.
    #[inline]
    pub(crate) fn keep_link(&mut self, link: Option<Arc<Shared>>) {
        self.spare = link;
    }

    fn on_control(&mut self, from: Address, what: u64, a: u64, b: u64) {
        self.more = true;
        match Control::from_u64(what) {
            Some(Control::Cancel) => self.server.cancel(peer_of(from), a),
            Some(Control::GrantRequest) => self.environment.shared.table().granted(from, Key::from_u64(a), b),
            Some(Control::GrantAnswer) => self.server.granted(from, Key::from_u64(a), b),
            Some(Control::Credit) => self.server.credit(peer_of(from), a, b),
            Some(Control::GrantItem) => self.server.granted_item(peer_of(from), a),
            // A peer that breaks the protocol is none of ours.
            None => {}
        }
    }

    fn on_part(&mut self, from: Address, to: Key, at: u64, payload: Payload<'_>) {
        self.more = true;
        let body = |bytes: &mut [u8]| {
            payload.copy_to(bytes);
        };
        if at & PART_OF_ANSWER != 0 {
            let at = at & !PART_OF_ANSWER;
            self.environment.shared.table().part(from, to, at, payload.len(), body, &mut self.wakers);
            return self.wake();
        }
        let Self { world, environment, server, .. } = self;
        let world = world.as_deref_mut().expect("messages come when no future is polled");
        server.part(world, environment, from, (to, at, payload.len()), body);
    }

    /// Wakes those whose calls have ended.
    #[inline]
    fn wake(&mut self) {
        self.events += 1;
        if std::mem::take(&mut self.wakers.root)
            && let Some(root) = &self.root
        {
            root.wake_here();
        }
        if !self.wakers.others.is_empty() {
            self.wake_others();
        }
    }

    fn wake_others(&mut self) {
        // The progress that follows sees who rings.
        let bell = &self.environment.shared.bell;
        let before = bell.enter();
        self.wakers.others.drain(..).for_each(Waker::wake);
        bell.leave(before);
        self.more = true;
    }

    /// Wakes those whose calls have ended before they were sent.
    #[cold]
    fn wake_all(&mut self, wakers: Wakers) {
        self.wakers.root |= wakers.root;
        self.wakers.others.extend(wakers.others);
        self.wake();
    }

    /// The endpoint runs a future with this waker, or no longer.
    pub(crate) fn set_root(&mut self, root: Option<(Arc<Root>, Waker)>) {
        let (root, waker) = root.unzip();
        let before = std::mem::replace(&mut self.environment.shared.table().root, waker);
        drop(before);
        self.root = root;
    }

    fn progress(&mut self, outbox: &mut Outbox<'_>) -> ProgressResult {
        let progress = self.advance(outbox);
        if let Some(at) = self.next_alarm {
            outbox.wake_at(at);
        }
        Ok(progress)
    }

    fn advance(&mut self, outbox: &mut Outbox<'_>) -> Progress {
        let idle = outbox.about_to_idle();
        let lost = outbox.losses() != self.losses;
        // Where the endpoint spins, what is waited for mostly comes before the second time.
        let first = u32::from(outbox.spins());
        let look = lost || (idle && self.watch && self.idles % LOOKS == first);
        self.idles = if idle { self.idles.wrapping_add(1) } else { 0 };
        if self.farewell > 1 {
            self.farewell -= 1;
            self.more = true;
        }
        let due = self.next_alarm.is_some_and(|at| at <= outbox.now());
        let work = self.server.has_work() || self.room.is_freed() || self.environment.shared.bell.is_rung();
        if !(self.more || look || due || work) {
            return self.rest();
        }
        self.losses = outbox.losses();
        if look && self.farewell == 0 {
            let status = |of: Address| outbox.status(of).unwrap_or(PeerStatus::Active);
            let deserted =
                self.server.is_deserted(&status) || self.environment.shared.table().is_deserted(&status);
            self.farewell = if deserted { FAREWELL } else { 0 };
        }
        let before = self.environment.shared.bell.enter();
        let (mut advanced, mut blocked, mut freed) = (false, false, false);
        for round in 0..ROUNDS {
            self.environment.shared.bell.take();
            let outcome = self.round(outbox, self.farewell == 1 && round == 0);
            advanced |= outcome.0;
            (blocked, freed) = (outcome.1, outcome.2);
            let rung = self.environment.shared.bell.is_rung();
            if !freed && !rung && !self.room.is_freed() && !self.server.has_work() {
                break;
            }
        }
        let rung = self.environment.shared.bell.leave(before);
        self.more = blocked || freed;
        // No wait sleeps meanwhile.
        advanced |= self.farewell != 0;
        match (advanced | rung, blocked) {
            (true, _) => Progress::Advanced,
            (false, true) => Progress::Blocked,
            (false, false) => self.rest(),
        }
    }

    /// What there is to do where nothing can be sent or polled: requests that are worked on are work that is left.
    fn rest(&self) -> Progress {
        match (self.server.answering(), self.callers) {
            (0, false) => Progress::Idle,
            (0, true) => Progress::Watching,
            _ => Progress::Blocked,
        }
    }

    /// One look at everything; whether anything was done, whether something is left that the network has no room
    /// for, and whether what it has ended lets calls go on whose turn was before.
    fn round(&mut self, outbox: &mut Outbox<'_>, deserted: bool) -> (bool, bool, bool) {
        let (mut advanced, mut blocked) = (false, false);
        self.events += 1;
        let Self { world, environment, server, wakers, due, wire, root, .. } = self;
        let wire = *wire;
        let mut table = environment.shared.table();
        table.set_shape(outbox.shape());
        // A caller may have set the shape before; what the network carries is known here only.
        if !server.knows_network() {
            let all = || (0..outbox.shape().peers()).map(|peer| outbox.shape().address(Peer(peer)));
            let largest = all().map(|to| room(outbox, to, ANSWER)).min().unwrap_or(0);
            let ordered = all().all(|to| outbox.limits(to).is_some_and(|limits| limits.ordered));
            server.set_network(largest, ordered);
            server.me = Some(outbox.address());
            environment.shared.is_at(outbox.address());
        }
        for timer in server.old_timers.drain(..) {
            table.remove_timer(timer);
        }
        if table.needs_time() || !server.new_timers.is_empty() || server.waits_for_time() {
            let now = outbox.now();
            server.settle(now);
            let mut new = std::mem::take(&mut server.new_timers);
            for (task, left) in new.drain(..) {
                if server.has(task) {
                    server.timer_set(task, now + left, table.add_timer(now + left, Alarm::Task(task)));
                }
            }
            server.new_timers = new;
            advanced |= table.advance(now, wakers, |task| due.push(task));
        }
        if deserted {
            let status = |of: Address| outbox.status(of).unwrap_or(PeerStatus::Active);
            advanced |= table.desert(&status, wakers);
        }
        if self.room.take_freed() {
            // Those that wait longest have the first look; what one side takes lets the other go on.
            while table.make_room() | server.make_room() {}
        }
        let outcome = table.send_notes(|note| send_note(outbox, wire, note));
        (advanced, blocked) = (advanced | outcome.0, blocked | outcome.1);
        table.freed = false;
        let outcome = table.send(wakers, |outgoing| send_call(outbox, wire, outgoing));
        (advanced, blocked) = (advanced | outcome.0, blocked | outcome.1);
        let outcome =
            table.send_parts(wakers, |to, remote, at, rest| send_part(outbox, wire, to, remote, at as u64, rest));
        (advanced, blocked) = (advanced | outcome.0, blocked | outcome.1);
        let freed = table.freed;
        self.next_alarm = table.next_alarm();
        let under_way = table.under_way();
        drop(table);
        if deserted {
            // Futures of methods end here, which takes the table for the calls and timers that they hold.
            advanced |= server.desert(&|of| outbox.status(of).unwrap_or(PeerStatus::Active));
            self.farewell = 0;
        }
        if std::mem::take(&mut wakers.root)
            && let Some(root) = root
        {
            root.wake_here();
        }
        wakers.others.drain(..).for_each(Waker::wake);
        for task in due.drain(..) {
            server.expired(task);
        }
        for future in environment.take_spawned().into_iter().flatten() {
            server.spawn(future, outbox.address());
        }
        if server.is_ready() {
            advanced |= lent::to(environment, world, || server.poll(environment));
        }
        let outcome = server.send(|dispatch| send_answer(outbox, wire, dispatch));
        (advanced, blocked) = (advanced | outcome.0, blocked | outcome.1);
        self.watch = under_way != 0 || server.answering() != 0;
        (advanced, blocked, freed)
    }
}

mod sending;
pub(crate) use sending::{call_at_once, call_from_memory, is_long, send_at_once};
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
