//! An endpoint: its state behind a lock, and the helper thread that takes turns at it with the program.

use super::waiting::{Backoff, FailureNotifier, LONGEST_ON_WIRE, Notices, Rest};
use super::{Machine, Settings};
use crate::memory::{OfiMemory, Process};
use crate::wire::{Sizes, Wire};
use am_core::time::Clock;
use am_core::transport::{Departure, Membership, Notify};
use am_core::{Limits, Memory, Peer, Segment, Shape};
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::Waker;
use std::thread::JoinHandle;
use std::time::Duration;

/// How long the helper rests while somebody is to be called, over a wire without a descriptor.
const WATCH: Duration = Duration::from_micros(100);

/// One endpoint's transport over a wire. It can be sent to the thread that uses it.
///
/// After the first messages to a peer nothing is allocated per message. Calls do not block, but for a Long payload
/// larger than the wire's buffers together. A helper thread, if it has one, carries the wire on while the program
/// does not; handlers run without the lock, so that it does so while one runs for long.
///
/// # After `fork`
/// The endpoint stays the parent's. In the child every peer is lost to its copy
/// ([`LossCause::Forked`](am_core::LossCause::Forked)): sends and waits fail, polls find nothing, and dropping it
/// tells nobody. The memory of [`OfiMemory`] is empty there. The kernel has to have `MADV_WIPEONFORK` (Linux
/// 4.14).
pub struct Conduit<W: Wire, M: Memory = OfiMemory> {
    machine: Arc<Mutex<Machine<W>>>,
    pub(super) notices: Arc<Notices>,
    helper: Option<JoinHandle<()>>,
    process: Process,
    pub(super) me: Peer,
    pub(super) shape: Shape,
    pub(super) limits: Limits,
    pub(super) segment: Segment<M>,
    pub(super) segments: Vec<u64>,
    pub(super) medium: usize,
    /// Bytes of the largest one-sided operation.
    pub(super) piece: u64,
    pub(super) window: u32,
    pub(super) backoff: Backoff,
    pub(super) clock: Clock,
    /// Memory of the last message that was delivered.
    pub(super) spent: Option<Vec<u8>>,
    pub(super) departed: bool,
    /// What is to be called when this endpoint has departed.
    pub(super) when_departed: Option<Box<dyn FnOnce() + Send>>,
}

impl<W: Wire, M: Memory> fmt::Debug for Conduit<W, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conduit").field("me", &self.me).field("shape", &self.shape).finish_non_exhaustive()
    }
}

impl<W: Wire, M: Memory> Conduit<W, M> {
    /// An endpoint over a wire all of whose slots are on offer, with a segment that the wires of peers can write
    /// to, and without a helper. Allocates.
    ///
    /// # Errors
    /// What the system says if it has no memory for the mark that tells forks, or no descriptors.
    ///
    /// # Panics
    /// If the settings contradict the shape, or messages do not fit the wire's buffers.
    pub fn new(wire: W, settings: Settings, segment: Segment<M>) -> io::Result<Self>
    where
        M: Clone + Send + Sync + 'static,
    {
        let Settings { me, shape, medium, window, .. } = settings;
        let segments = settings.segments.clone();
        let Sizes { chunk_bytes, frame_bytes, .. } = wire.sizes();
        let notices = Arc::new(Notices::new(wire.descriptor())?);
        let backoff = Backoff::new(shape.peers(), wire.descriptor().is_none());
        let machine = Machine::new(wire, settings, segment.erase(), Arc::clone(&notices));
        Ok(Self {
            process: Process::current()?,
            notices,
            machine: Arc::new(Mutex::new(machine)),
            helper: None,
            me,
            shape,
            limits: Limits::uniform(medium, u64::MAX),
            segment,
            segments,
            medium,
            piece: chunk_bytes.max(frame_bytes) as u64,
            window,
            backoff,
            clock: Clock::start(),
            spent: None,
            departed: false,
            when_departed: None,
        })
    }

    /// Starts the helper thread, which carries the wire on once the program has not done so for `absence`.
    ///
    /// # Errors
    /// What the system says if it has no thread.
    pub fn with_helper(mut self, absence: Duration) -> io::Result<Self>
    where
        W: Send + 'static,
    {
        let (machine, notices) = (Arc::clone(&self.machine), Arc::clone(&self.notices));
        let clock = self.clock;
        let help = move || help(&machine, &notices, absence, &clock);
        self.helper = Some(std::thread::Builder::new().name("ofi helper".into()).spawn(help)?);
        Ok(self)
    }

    /// Whether this process is a fork of the endpoint's: nothing of it may be used then, and its lock may be held
    /// for ever.
    #[inline]
    pub(super) fn is_elsewhere(&self) -> bool {
        self.process.is_other()
    }

    /// The state. Whoever holds it must not call a handler; in a fork nobody may ask for it.
    #[inline]
    pub(super) fn lock(&self) -> MutexGuard<'_, Machine<W>> {
        // A panic while it was held was this crate's own; what follows can only be worse without the departure.
        let mut machine = self.machine.lock().unwrap_or_else(PoisonError::into_inner);
        machine.set_time(|| self.clock.now());
        // A program that does something sleeps no longer, whatever has ended its wait.
        machine.asleep = false;
        machine
    }

    /// What tells this endpoint of the ends of ranks that others know of, such as the job's launcher. Without it a
    /// rank whose process was killed is found out when the provider reports it, or never.
    pub fn failure_notifier(&self) -> FailureNotifier {
        FailureNotifier::new(&self.notices)
    }

    /// Counts ranks as lost that have ended before this one joined.
    pub(crate) fn lose_missing(&self, ranks: impl Iterator<Item = am_core::Rank>) {
        let notifier = self.failure_notifier();
        ranks.for_each(|rank| notifier.lost(rank, am_core::LossCause::Died));
        self.lock().take_notices();
    }

    /// Frames that have come and that nobody of this job can have sent. They are dropped.
    pub fn strays(&self) -> u64 {
        if self.is_elsewhere() { 0 } else { self.lock().strays }
    }

    /// The latest failure of the network, for people: towards whom, the network's error, and the provider's own.
    /// Allocates.
    pub fn last_failure(&self) -> Option<String> {
        if self.is_elsewhere() {
            return None;
        }
        let machine = self.lock();
        let (to, failure) = machine.last_failure?;
        let what = machine.wire.explain(failure);
        Some(match to {
            Some(to) => format!("towards rank {}: {what}", self.shape.address(Peer(to)).rank),
            None => what,
        })
    }

    /// Has a function called when this endpoint has departed, on its thread.
    pub fn when_departed(&mut self, call: impl FnOnce() + Send + 'static) {
        self.when_departed = Some(Box::new(call));
    }

    /// Bytes of the segment of a peer's rank.
    pub(super) fn segment_bytes(&self, peer: u32) -> u64 {
        self.segments[self.shape.address(Peer(peer)).rank.0 as usize]
    }

    /// Has somebody called when something comes, which the helper finds out.
    pub(super) fn arm(&mut self, waker: &Waker) -> Notify {
        if self.is_elsewhere() {
            return Notify::Ready;
        }
        let mut machine = self.lock();
        machine.pay_all();
        machine.progress();
        if machine.has_news() {
            return Notify::Ready;
        }
        if self.helper.is_none() {
            return Notify::Never;
        }
        machine.watcher = Some(waker.clone());
        drop(machine);
        self.notices.wake_helper();
        Notify::Armed
    }
}

/// Carries the wire on while the program does not, until the endpoint is no more.
fn help<W: Wire>(machine: &Mutex<Machine<W>>, notices: &Notices, absence: Duration, clock: &Clock) {
    let (mut turns, mut rest) = (u64::MAX, Rest::For(absence));
    while notices.rest(rest) {
        let mut machine = match machine.try_lock() {
            Ok(machine) => machine,
            // The program is at work. It may have ended this rest, and does so once.
            Err(TryLockError::WouldBlock) => {
                rest = Rest::For(absence);
                continue;
            }
            // As in `lock`: who waits to be called still has to be.
            Err(TryLockError::Poisoned(machine)) => machine.into_inner(),
        };
        rest = Rest::For(absence);
        machine.helper_rests = false;
        if machine.watcher.is_none() && std::mem::replace(&mut turns, machine.turns) != machine.turns {
            continue;
        }
        if machine.watcher.is_none() && machine.asleep {
            rest = Rest::For(LONGEST_ON_WIRE);
            machine.helper_rests = true;
            continue;
        }
        machine.set_time(|| clock.now());
        machine.pay_all();
        machine.progress();
        let news = machine.fresh || !machine.ready.is_empty() || !machine.ended.is_empty();
        if news && machine.asleep {
            notices.ring();
        }
        if machine.watcher.is_none() {
            continue;
        }
        if news {
            let watcher = machine.watcher.take();
            drop(machine);
            watcher.into_iter().for_each(Waker::wake);
        } else {
            rest = if machine.may_sleep() { Rest::OnWire } else { Rest::For(WATCH.min(absence)) };
        }
    }
}

impl<W: Wire, M: Memory> Drop for Conduit<W, M> {
    fn drop(&mut self) {
        if self.is_elsewhere() {
            // Its state, its connections and its helper are the parent's.
            std::mem::forget(Arc::clone(&self.machine));
            std::mem::forget(self.helper.take());
            return;
        }
        // Reached without a departure by a rank that never attached.
        if !self.departed {
            self.depart(Departure::of_drop());
        }
        self.notices.dismiss();
        // Whom the helper calls may drop the endpoint: the helper then ends by itself.
        if let Some(helper) = self.helper.take()
            && helper.thread().id() != std::thread::current().id()
        {
            // A panic of the helper has been told on its thread.
            let _ = helper.join();
        }
    }
}
