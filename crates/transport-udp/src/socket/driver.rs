//! The program's thread at the machine: the [`Driver`] of a real socket.

use super::engine::Engine;
use super::peers::Peers;
use super::service::{Service, Shared};
use super::stage::Stage;
use super::waiting::sleep;
use super::wire;
use crate::driver::Driver;
use crate::proto::{Access, Batch, BorrowedPayload, Machine};
use am_core::arguments::Words;
use am_core::backoff::{Backoff, Next};
use am_core::transport::{
    Departure, LossCause, Notify, PendingKey, Refused, ReplyBound, ReplyPath, RequestHeader, Sink, WaitReason,
};
use am_core::{Instant, Peer, Rank, Span};
use nix::poll::PollFlags;
use std::fmt;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::task::Waker;
use std::time::Duration;

/// So many bytes are handed to the system while a program keeps sending without polling.
const EAGER: u64 = 24 << 10;

/// So many fruitless looks at the socket alone follow a whole round.
const GLANCES: u32 = 32;

/// The longest sleep of an endpoint that waits: rare enough to cost nothing.
const LONGEST_SLEEP: Span = Span::from_secs(1);

/// Who does the program's work while it does not.
#[derive(Debug)]
pub(super) enum Helper {
    /// The program has said that it is never absent.
    Nobody,
    Thread(#[expect(dead_code, reason = "it is held to be dropped")] Service),
    #[cfg(feature = "tokio")]
    Task(#[expect(dead_code, reason = "it is held to be dropped")] super::asynchronous::ServiceTask),
}

/// What is called when the endpoint has taken leave.
#[derive(Default)]
struct OnDeparture(Option<Box<dyn FnOnce() + Send>>);

impl fmt::Debug for OnDeparture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnDeparture").field(&self.0.is_some()).finish()
    }
}

/// What the program does with the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// It works, sends or polls.
    Driving,
    /// It asks again and again: so many fruitless looks at the socket alone have followed the last whole round.
    Spinning { glances: u32 },
    /// It has left the endpoint to the helper.
    LeftToHelper,
}

/// What the program has handed over, and what of it has been passed on.
#[derive(Debug, Default)]
struct Sent {
    /// Bytes that the machine has accepted, at the last call of [`Driver::accepted`], and when the system was last
    /// handed some.
    accepted: u64,
    told: u64,
    handed: u64,
    /// The last use of the machine has left something to send.
    ready: bool,
    /// The program has used the machine since everything was last sent out.
    dirty: bool,
}

/// What the program's thread knows of the endpoint without its lock.
#[derive(Debug)]
struct Program {
    mode: Mode,
    sent: Sent,
    backoff: Backoff,
    /// When the clock was last read: reading it for every message would cost as much as sending one.
    now: Instant,
    /// How often the program has driven the endpoint.
    drives: u64,
    /// What there was of [`Engine::news`] when this side last looked.
    news: u64,
    /// Something has come since the last `idle`.
    woken: bool,
    /// The last round has left messages for the next one.
    arrived: bool,
    losses: u32,
    stage: Stage,
    /// The last use of the machine has sent a Short message without a reply. The next of these comes with a
    /// licence, so that a single one does without.
    flooding: bool,
}

impl Program {
    /// The program uses the machine, which may take room that was free or end a session.
    #[inline]
    fn end_flood(&mut self) {
        self.flooding = false;
        self.stage.forbid();
    }

    /// Tells the helper that the program is at work.
    #[inline]
    fn drive(&mut self, shared: &Shared) {
        self.drives += 1;
        // Relaxed: the helper only wants to see it change some time.
        shared.drives.store(self.drives, Relaxed);
        if self.mode == Mode::LeftToHelper {
            self.mode = Mode::Driving;
            shared.return_to();
        }
    }

    /// Begins a round: sends what waits, then takes in. The clock is read when something happens. `early` has been
    /// taken from the socket before.
    fn enter(
        &mut self,
        shared: &Shared,
        engine: &mut Engine,
        lent: Option<BorrowedPayload<'_>>,
        early: &mut [u8],
    ) {
        self.end_flood();
        shared.unseen.store(false, Relaxed);
        // What has come is told the time anyway.
        if early.is_empty() || engine.machine.has_ready() {
            self.now = shared.clock.now();
        }
        // What the program has just asked for goes first: the answer cannot be here before.
        if engine.machine.has_ready() {
            engine.send_out(self.now, lent);
        }
        let news = engine.news != std::mem::replace(&mut self.news, engine.news);
        shared.take_in_notices(self.now, engine);
        if engine.take_in(&mut self.now, || shared.clock.now(), early) || news {
            self.woken = true;
            self.backoff.reset();
        }
    }

    /// The time for work on a machine that the helper may have driven meanwhile: no earlier than what that was
    /// told.
    fn resume(&mut self, engine: &Engine) -> Instant {
        self.now = self.now.max(engine.latest);
        self.now
    }

    /// Takes note that the program has used the machine.
    fn used(&mut self, engine: &Engine) {
        self.end_flood();
        self.sent.accepted = engine.machine.accepted_bytes();
        (self.sent.ready, self.sent.dirty) = (engine.machine.has_ready(), true);
    }

    /// Ends a round: sends what has become ready.
    fn leave(&mut self, engine: &mut Engine, lent: Option<BorrowedPayload<'_>>) {
        if engine.machine.has_ready() || engine.is_blocked() {
            engine.send_out(self.now, lent);
        }
        self.losses = engine.machine.losses();
        self.sent.accepted = engine.machine.accepted_bytes();
        self.sent.handed = self.sent.accepted;
        self.sent.dirty = engine.is_blocked();
        self.arrived = engine.machine.has_arrived();
    }
}

/// The machine of an endpoint whose helper may be at it. Handlers run without its lock.
struct Locked<'a> {
    shared: &'a Shared,
    now: Instant,
}

impl Access for Locked<'_> {
    fn with<R>(&mut self, work: impl FnOnce(&mut Machine, Instant) -> R) -> Option<R> {
        // In a fork of this process the lock may be held by a thread that is not there.
        if self.shared.failure().is_some() {
            return None;
        }
        let mut engine = self.shared.engine();
        let now = self.now.max(engine.latest);
        Some(work(&mut engine.machine, now))
    }

    #[inline]
    fn is_usable(&self) -> bool {
        !self.shared.process.is_other()
    }
}

/// The [`Driver`] of a real socket; made by [`Udp::join`](crate::Udp::join).
#[derive(Debug)]
pub struct SocketDriver {
    shared: Arc<Shared>,
    /// Taken when the endpoint has left.
    service: Option<Helper>,
    peers: Arc<Peers>,
    linger: Duration,
    departed: OnDeparture,
    program: Program,
    batch: Batch,
    /// What a look at the socket alone brings.
    buffer: Vec<u8>,
}

impl SocketDriver {
    pub(super) fn new(
        shared: Arc<Shared>,
        service: Helper,
        peers: Arc<Peers>,
        backoff: Backoff,
        linger: Duration,
    ) -> Self {
        let program = Program {
            mode: Mode::Driving,
            sent: Sent::default(),
            backoff,
            now: shared.clock.now(),
            drives: 0,
            news: 0,
            woken: false,
            arrived: false,
            losses: 0,
            stage: Stage::default(),
            flooding: false,
        };
        let batch = shared.engine().machine.new_batch();
        let departed = OnDeparture::default();
        Self { shared, service: Some(service), peers, linger, departed, program, batch, buffer: Vec::new() }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(super) fn when_departed(&mut self, call: Box<dyn FnOnce() + Send>) {
        self.departed.0 = Some(call);
    }

    /// [`Driver::short`] under the lock.
    #[inline(never)]
    fn short_locked(&mut self, to: Peer, head: RequestHeader, args: &Words) -> Result<(), Refused> {
        let Self { shared, program, .. } = self;
        let mut engine = shared.engine();
        let flooding = program.flooding;
        let now = program.resume(&engine);
        let accepted = engine.machine.request(now, to, head, args, None);
        program.used(&engine);
        if accepted.is_ok() && head.reply == ReplyBound::None {
            program.flooding = true;
            if flooding && let Some((session, room)) = engine.machine.room_to_stage(to) {
                engine.staged.owner = Some((to, session));
                program.stage.permit(to, room);
            }
        }
        drop(engine);
        self.accepted();
        accepted
    }

    /// Who asks again and again need not look at more than the socket each time. Returns how many bytes of the
    /// buffer such a look has filled; `None` if it brought nothing, so that there is nothing to do now.
    fn glance(&mut self) -> Option<usize> {
        let Mode::Spinning { glances } = &mut self.program.mode else { return Some(0) };
        // What is not in the socket any more has to be delivered, too.
        let elsewhere = self.program.arrived || self.shared.unseen.load(Acquire);
        if self.program.sent.dirty || elsewhere || *glances >= GLANCES {
            self.program.mode = Mode::Driving;
            return Some(0);
        }
        *glances += 1;
        if self.buffer.is_empty() {
            self.buffer.resize(wire::LARGEST, 0);
        }
        self.program.drive(&self.shared);
        // Failures are left to the rounds that follow.
        let early = wire::glance(&self.shared.socket, &mut self.buffer);
        if early == 0 {
            return None;
        }
        self.program.mode = Mode::Driving;
        Some(early)
    }

    /// Sleeps until something arrives or is due.
    pub(super) fn park(&mut self, until: Option<Instant>) {
        let (timeout, events) = {
            let engine = self.shared.engine();
            if engine.news != std::mem::replace(&mut self.program.news, engine.news) {
                return;
            }
            self.shared.park();
            let now = self.shared.clock.now();
            // Who sleeps looks up now and then, for what no descriptor tells: a request for a stall report.
            let next = engine.deadline.into_iter().chain(until).fold(now + LONGEST_SLEEP, Instant::min);
            let out = if engine.is_blocked() { PollFlags::POLLOUT } else { PollFlags::empty() };
            (next.since(now).into(), PollFlags::POLLIN | out)
        };
        // A notice that came before is not missed: the bell stays rung until then. The notice itself may have been
        // taken in before its bell was rung, so the bell is silenced whatever there is.
        sleep(
            &[(self.shared.socket.as_fd(), events), (self.shared.bell.as_fd(), PollFlags::POLLIN)],
            Some(timeout),
        );
        let _ = self.shared.bell.read();
        self.shared.unpark();
    }
}

impl Driver for SocketDriver {
    fn with<R>(&mut self, work: impl FnOnce(&mut Machine, Instant) -> R) -> R {
        let mut engine = self.shared.engine();
        let now = self.program.resume(&engine);
        let result = work(&mut engine.machine, now);
        self.program.used(&engine);
        result
    }

    #[inline]
    fn failure(&self) -> Option<LossCause> {
        self.shared.failure()
    }

    fn look<R>(&self, work: impl FnOnce(&Machine) -> R) -> R {
        // The parent may have held the lock at that moment.
        assert!(!self.shared.process.is_other(), "an endpoint cannot be looked at in a fork of its process");
        work(&self.shared.engine().machine)
    }

    fn now(&self) -> Instant {
        self.shared.clock.now()
    }

    fn segment_len(&self, rank: Rank) -> u64 {
        self.peers.segment_len(rank)
    }

    #[inline]
    fn accepted(&mut self) {
        let sent = &mut self.program.sent;
        let some = sent.accepted != std::mem::replace(&mut sent.told, sent.accepted);
        // A refusal drives nothing: who is refused will poll, and may first want to know why. Who has left the
        // endpoint to the helper leaves it there.
        if !some && !sent.ready {
            return;
        }
        self.program.drive(&self.shared);
        let sent = &self.program.sent;
        // Of what was accepted, a lost peer's messages may not have reached the machine, which does not count them
        // then.
        if some && sent.accepted.saturating_sub(sent.handed) >= EAGER {
            self.take_in();
        }
    }

    #[inline]
    fn short(&mut self, to: Peer, head: RequestHeader, args: &Words) -> Result<(), Refused> {
        let Self { shared, program, .. } = self;
        if head.reply == ReplyBound::None
            && let Some(len) = program.stage.push(&shared.ring, to, head.handler, args)
        {
            program.sent.accepted += len;
            program.sent.dirty = true;
            self.accepted();
            return Ok(());
        }
        self.short_locked(to, head, args)
    }

    fn take_in(&mut self) {
        self.round(None, |_, _| ());
    }

    /// One lock for all three steps.
    fn round<R>(&mut self, lent: Option<BorrowedPayload<'_>>, work: impl FnOnce(&mut Machine, Instant) -> R) -> R {
        let Self { shared, program, .. } = self;
        program.drive(shared);
        let mut engine = shared.engine();
        program.enter(shared, &mut engine, lent, &mut []);
        let result = work(&mut engine.machine, program.now);
        program.leave(&mut engine, lent);
        result
    }

    /// A round whose lock is free while handlers run: the helper acknowledges, and keeps sessions alive, if they
    /// run for long.
    fn poll<S: Sink>(&mut self, budget: usize, sink: &mut S) -> usize {
        let Some(early) = self.glance() else { return 0 };
        let Self { shared, program, batch, buffer, .. } = self;
        program.drive(shared);
        let mut engine = shared.engine();
        program.enter(shared, &mut engine, None, &mut buffer[..early]);
        engine.machine.release_held(program.now);
        let mut count = 0;
        while count < budget && engine.machine.take_batch(program.now, budget - count, batch) {
            drop(engine);
            count += batch.deliver(sink, &mut Locked { shared, now: program.now });
            // In a child that a handler has made, the lock may be held by a thread that is not there.
            if shared.failure().is_some() {
                batch.discard();
                return count;
            }
            engine = shared.engine();
            let now = program.resume(&engine);
            engine.machine.settle(now, batch);
        }
        program.leave(&mut engine, None);
        count
    }

    fn answer<R>(&mut self, key: PendingKey, reply: impl FnOnce(&mut dyn ReplyPath) -> R) -> R {
        let Self { shared, program, batch, .. } = self;
        let (room, mut nobody) = {
            let machine = &shared.engine().machine;
            (machine.open_answer(key, batch), machine.no_port(key))
        };
        let Some(room) = room else { return reply(&mut nobody) };
        let result = batch.answer(room, &mut Locked { shared, now: program.now }, reply);
        if shared.failure().is_some() {
            batch.discard();
            return result;
        }
        let mut engine = shared.engine();
        let now = program.resume(&engine);
        engine.machine.settle(now, batch);
        program.used(&engine);
        result
    }

    fn send_out(&mut self, lent: Option<BorrowedPayload<'_>>) {
        let program = &mut self.program;
        if !program.sent.dirty {
            return;
        }
        let mut engine = self.shared.engine();
        if engine.machine.has_ready() || engine.is_blocked() {
            program.now = self.shared.clock.now();
            engine.send_out(program.now, lent);
        }
        program.losses = engine.machine.losses();
        program.sent.handed = program.sent.accepted;
        program.sent.dirty = engine.is_blocked();
        program.arrived = engine.machine.has_arrived();
    }

    fn idle(&mut self, until: Option<Instant>, _: WaitReason) {
        let program = &mut self.program;
        if std::mem::take(&mut program.woken) {
            return;
        }
        match program.backoff.next() {
            Next::Spin if program.mode == Mode::Driving => program.mode = Mode::Spinning { glances: 0 },
            Next::Spin => {}
            Next::Yield => program.backoff.give_way(),
            Next::Park => self.park(until),
        }
    }

    fn spins(&self) -> bool {
        self.program.backoff.spins()
    }

    fn notify(&mut self, waker: &Waker) -> Notify {
        if matches!(self.service, Some(Helper::Nobody)) {
            return Notify::Never;
        }
        if std::mem::take(&mut self.program.woken) {
            return Notify::Ready;
        }
        {
            let mut engine = self.shared.engine();
            // A helper that fails later finds the waker here: it says that it has failed before it takes this
            // lock.
            if self.shared.failure().is_some()
                || engine.news != std::mem::replace(&mut self.program.news, engine.news)
            {
                return Notify::Ready;
            }
            engine.watcher = Some(waker.clone());
        }
        if std::mem::replace(&mut self.program.mode, Mode::LeftToHelper) != Mode::LeftToHelper {
            self.shared.leave();
        }
        Notify::Armed
    }

    fn losses(&self) -> u32 {
        self.program.losses
    }

    fn depart(&mut self) {
        if self.service.is_none() {
            return;
        }
        let limit = self.shared.clock.now() + self.linger.into();
        self.with(|machine, now| {
            if machine.departing() != Some(Departure::Finished) {
                machine.connect_to_say_farewell(now);
            }
        });
        loop {
            self.take_in();
            self.send_out(None);
            if self.look(Machine::settled) || self.program.now >= limit {
                break;
            }
            if !std::mem::take(&mut self.program.woken) {
                self.park(Some(limit));
            }
        }
        self.service = None;
        if let Some(call) = self.departed.0.take() {
            call();
        }
    }
}

impl Drop for SocketDriver {
    /// An endpoint that nobody took leave with tells its peers nevertheless.
    fn drop(&mut self) {
        if self.shared.process.is_other() {
            // Threads and tasks are the parent's.
            std::mem::forget(self.service.take());
        } else if self.service.is_some() && self.shared.failure().is_none() {
            self.with(|machine, _| machine.depart(Departure::of_drop()));
            self.depart();
        }
    }
}
