//! The helper thread of an endpoint: does the endpoint's work while its program does not.
//!
//! Retransmission, acknowledgement and keeping sessions alive must not wait for a program that computes. The
//! thread costs the program's thread next to nothing, because it does not take part while the program drives the
//! endpoint itself:
//!
//! * The program counts how often it polls ([`Shared::drives`], a plain store). The helper looks at the count once
//!   per `absence`; while it changes, the helper does nothing else.
//! * When the count stands still and the program is not asleep in `idle`, the helper takes the lock, asks the
//!   socket, lets time pass and sends, and sleeps until the next datagram or deadline; until the count changes
//!   again.
//! * A program that waits for other things as well leaves the endpoint to the helper, which does the same at once,
//!   and calls the program's waker when something has come.
//! * Handlers run without the lock, so one that runs for long is an absence like any other.
//! * While the program sleeps in `idle` it wakes up for datagrams and deadlines itself; the helper then sleeps
//!   without end, and is woken by the program's return.
//!
//! The lock is taken by the program once per call, and once more for each row of messages that a poll delivers,
//! without contention unless the helper is at work at that moment. A row of Short messages without replies takes
//! it once in some hundred of them (`stage`).

use super::engine::Engine;
use super::failures::Notices;
use super::process::Process;
use super::stage::Ring;
use super::waiting::sleep;
use am_core::Instant;
use am_core::time::Clock;
use am_core::transport::LossCause;
use nix::poll::PollFlags;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
#[cfg(feature = "tokio")]
use std::sync::TryLockError;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

/// The longest sleep of a helper at work: how late it may notice that the program is back.
const LONGEST: Duration = Duration::from_millis(10);

/// What the program's thread and its helper share.
#[derive(Debug)]
pub(super) struct Shared {
    engine: Mutex<Engine>,
    /// Messages that the program has handed over without the lock.
    pub(super) ring: Ring,
    pub(super) socket: Arc<UdpSocket>,
    pub(super) clock: Clock,
    /// How often the program has driven the engine; written by the program alone.
    pub(super) drives: AtomicU64,
    /// The program sleeps in `idle` and is woken by datagrams and deadlines. Set under the lock.
    parked: AtomicBool,
    /// The helper has taken in what the program has not seen. Set under the lock, and taken back there by the
    /// program.
    pub(super) unseen: AtomicBool,
    /// The helper sleeps until it is woken.
    asleep: AtomicBool,
    /// The program has left the endpoint to the helper.
    left: AtomicBool,
    stop: AtomicBool,
    /// The helper has panicked: what the machine holds is no longer to be trusted.
    failed: AtomicBool,
    /// Tests make the helper panic.
    #[cfg(test)]
    pub(super) sabotage: AtomicBool,
    pub(super) process: Process,
    wake: EventFd,
    /// Wakes the program when it sleeps in `idle`; stays rung until it has woken, or the notices have been taken
    /// in.
    pub(super) bell: EventFd,
    /// What others know of the ends of ranks.
    pub(super) notices: Notices,
    /// Wakes the task that is in the helper's place.
    #[cfg(feature = "tokio")]
    pub(super) task_wake: tokio::sync::Notify,
}

impl Shared {
    pub(super) fn new(engine: Engine, clock: Clock) -> io::Result<Self> {
        let (socket, process) = (Arc::clone(engine.wire.socket()), engine.process.clone());
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self {
            engine: Mutex::new(engine),
            ring: Ring::new(),
            socket,
            clock,
            drives: AtomicU64::new(0),
            parked: AtomicBool::new(false),
            unseen: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            left: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            #[cfg(test)]
            sabotage: AtomicBool::new(false),
            process,
            wake: EventFd::from_value_and_flags(0, flags)?,
            bell: EventFd::from_value_and_flags(0, flags)?,
            notices: Notices::default(),
            #[cfg(feature = "tokio")]
            task_wake: tokio::sync::Notify::new(),
        })
    }

    /// Why this endpoint can be used no more, if that is so.
    #[inline]
    pub(super) fn failure(&self) -> Option<LossCause> {
        if self.process.is_other() {
            return Some(LossCause::Forked);
        }
        // Acquire: pairs with the Release of `guarded`.
        self.failed.load(Acquire).then_some(LossCause::Broken)
    }

    /// Does a helper's work. If it panics, the program, which may rely on the helper and never look, learns of it
    /// with its next call, and is woken for that.
    pub(super) fn guarded<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        // What is broken is not looked at again.
        let result = catch_unwind(AssertUnwindSafe(work)).ok();
        if result.is_none() {
            self.failed.store(true, Release);
            self.ring();
            if let Some(watcher) = self.engine().watcher.take() {
                watcher.wake();
            }
        }
        result
    }

    #[cfg(test)]
    pub(super) fn sabotaged(&self) {
        assert!(!self.sabotage.load(SeqCst), "a test makes the helper panic");
    }

    /// The engine, whose machine has every message that was accepted before.
    pub(super) fn engine(&self) -> MutexGuard<'_, Engine> {
        let mut engine = self.engine.lock().unwrap_or_else(|poison| {
            // Only a helper that panics poisons it, and may not have said so yet: a call of the program may have
            // waited for the lock meanwhile, and finds that all peers are lost.
            self.failed.store(true, Release);
            let mut engine = poison.into_inner();
            engine.machine.break_down();
            self.engine.clear_poison();
            engine
        });
        engine.take_staged(&self.ring);
        engine
    }

    /// [`Shared::engine`], if nobody is at it.
    #[cfg(feature = "tokio")]
    pub(super) fn try_engine(&self) -> Option<MutexGuard<'_, Engine>> {
        match self.engine.try_lock() {
            Ok(mut engine) => {
                engine.take_staged(&self.ring);
                Some(engine)
            }
            Err(TryLockError::Poisoned(engine)) => {
                drop(engine);
                Some(self.engine())
            }
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Whether the program sleeps and drives the engine itself; to be asked under the lock.
    #[cfg(feature = "tokio")]
    pub(super) fn is_parked(&self) -> bool {
        self.parked.load(SeqCst)
    }

    /// The program goes to sleep; called under the lock, so that the helper is either done before or keeps out.
    pub(super) fn park(&self) {
        self.parked.store(true, SeqCst);
    }

    /// The program is back.
    pub(super) fn unpark(&self) {
        // SeqCst, both here and in `rest`: either the helper sees that the program is back, or it is seen asleep
        // here.
        self.parked.store(false, SeqCst);
        if self.asleep.load(SeqCst) {
            self.wake();
        }
    }

    /// The program leaves the endpoint to the helper.
    pub(super) fn leave(&self) {
        self.left.store(true, SeqCst);
        self.wake();
    }

    /// The program, which had left, has driven the endpoint again.
    pub(super) fn return_to(&self) {
        self.left.store(false, SeqCst);
        self.wake();
    }

    /// Wakes whoever drives the endpoint, because there are notices.
    pub(super) fn ring(&self) {
        // Fails only if the counter is full, and then it is rung.
        let _ = self.bell.write(1);
        self.wake();
        #[cfg(feature = "tokio")]
        self.task_wake.notify_one();
    }

    /// Takes in the notices that there are.
    #[inline]
    pub(super) fn take_in_notices(&self, now: Instant, engine: &mut Engine) {
        if self.notices.any() {
            // Before they are read, so that a later one rings anew.
            let _ = self.bell.read();
            self.notices.take_in(now.max(engine.latest), engine);
        }
    }

    fn wake(&self) {
        // Fails only if the counter is full, and then the helper is being woken already.
        let _ = self.wake.write(1);
    }

    fn nap(&self, timeout: Option<Duration>) {
        sleep(&[(self.wake.as_fd(), PollFlags::POLLIN)], timeout);
        let _ = self.wake.read();
    }

    fn stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// Sleeps until the program is back.
    fn rest(&self) {
        self.asleep.store(true, SeqCst);
        if self.parked.load(SeqCst) && !self.stopped() {
            self.nap(None);
        }
        self.asleep.store(false, SeqCst);
    }

    /// Does the program's work until it is back.
    fn stand_in(&self, seen: u64) {
        loop {
            let (timeout, events) = {
                let mut engine = self.engine();
                #[cfg(test)]
                self.sabotaged();
                if self.stopped() || self.parked.load(SeqCst) || self.drives.load(Relaxed) != seen {
                    return;
                }
                let mut now = self.clock.now();
                let losses = engine.machine.losses();
                self.take_in_notices(now, &mut engine);
                let told = engine.news;
                let news =
                    engine.take_in(&mut now, || self.clock.now(), &mut []) || engine.machine.losses() != losses;
                engine.news += u64::from(news);
                engine.send_out(now, None);
                if engine.news != told {
                    self.unseen.store(true, Release);
                    if let Some(watcher) = engine.watcher.take() {
                        watcher.wake();
                    }
                }
                // What is due cannot leave before the socket takes more, and then nothing else is due.
                let blocked = engine.is_blocked();
                let deadline = engine.deadline.filter(|_| !blocked).map(|at| at.since(now).into());
                // Who has left the endpoint tells when he is back.
                let longest = (blocked || !self.left.load(SeqCst)).then_some(LONGEST);
                let timeout = deadline.into_iter().chain(longest).min();
                let out = if blocked { PollFlags::POLLOUT } else { PollFlags::empty() };
                (timeout, PollFlags::POLLIN | out)
            };
            sleep(&[(self.socket.as_fd(), events), (self.wake.as_fd(), PollFlags::POLLIN)], timeout);
            let _ = self.wake.read();
        }
    }

    fn serve(&self, absence: Duration) {
        let mut seen = self.drives.load(Relaxed);
        while !self.stopped() {
            // The call of who leaves may have ended an earlier nap.
            if !self.left.load(SeqCst) {
                self.nap(Some(absence));
            }
            let drives = self.drives.load(Relaxed);
            if drives != std::mem::replace(&mut seen, drives) && !self.left.load(SeqCst) {
                continue;
            }
            if self.parked.load(SeqCst) {
                self.rest();
            } else {
                self.stand_in(seen);
            }
        }
    }
}

/// The helper thread; ends when dropped.
#[derive(Debug)]
pub(super) struct Service {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    pub(super) fn start(shared: &Arc<Shared>, absence: Duration) -> io::Result<Self> {
        let inside = Arc::clone(shared);
        let builder = std::thread::Builder::new().name("am-udp".into()).stack_size(256 << 10);
        let thread = builder.spawn(move || inside.guarded(|| inside.serve(absence)).unwrap_or_default())?;
        Ok(Self { shared: Arc::clone(shared), thread: Some(thread) })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if self.shared.process.is_other() {
            // The thread is the parent's; here is none that could be joined.
            std::mem::forget(self.thread.take());
            return;
        }
        self.shared.stop.store(true, Relaxed);
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            // It tells of its own panic.
            let _ = thread.join();
        }
    }
}
