//! Passing time: how patiently an endpoint asks its wire before it sleeps, what wakes it, and what others know of
//! the ends of ranks.

use super::Machine;
use crate::wire::Wire;
use am_core::time::processors;
use am_core::{Address, LossCause, Rank};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::task::{Wake, Waker};
use std::time::Duration;

/// Fruitless questions in a row before giving the processor away.
const SPINS: u32 = 200;
const YIELDS: u32 = 50;
/// The same over a wire without a descriptor, where nobody waits for a processor: a sleep there is blind, and what
/// peers write to the segment meanwhile stands still.
const BLIND_YIELDS: u32 = 2000;
/// The first sleep and the longest: a wire that progresses only when it is called keeps its peers waiting
/// meanwhile.
const FIRST_SLEEP: Duration = Duration::from_micros(20);
const LONGEST_SLEEP: Duration = Duration::from_micros(500);
/// The longest sleep on the wire's descriptor: some providers have timers that it does not tell of, such as those
/// after which they send again.
pub(super) const LONGEST_ON_WIRE: Duration = Duration::from_millis(20);

/// What to do after a fruitless try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Try again at once.
    Spin,
    /// Let another thread run, then try again.
    Yield,
    /// Sleep at most so long, then try again.
    Sleep(Duration),
}

/// Counts fruitless tries and says what to do next.
#[derive(Debug)]
pub(super) struct Backoff {
    tries: u32,
    spins: u32,
    yields: u32,
}

impl Backoff {
    /// The backoff of one of so many endpoints, all of which may be on this host.
    pub(super) fn new(peers: u32, blind: bool) -> Self {
        // Whoever we wait for may be waiting for our processor.
        let spins = if peers as usize <= processors() { SPINS } else { 0 };
        let yields = if blind && spins != 0 { BLIND_YIELDS } else { YIELDS };
        Self { tries: 0, spins, yields }
    }

    pub(super) fn spins(&self) -> bool {
        self.spins != 0 && self.tries < self.spins / 2
    }

    /// Something was achieved.
    pub(super) fn reset(&mut self) {
        self.tries = 0;
    }

    /// Something came that is no message, such as credits or buffers: what a wait for room is about. Where
    /// endpoints share processors, who waits for others had better leave them these.
    pub(super) fn reset_where_alone(&mut self) {
        if self.spins != 0 {
            self.reset();
        }
    }

    /// Nothing was achieved once more.
    pub(super) fn next(&mut self) -> Next {
        self.tries = self.tries.saturating_add(1);
        match self.tries.saturating_sub(self.spins) {
            0 => Next::Spin,
            more if more <= self.yields => Next::Yield,
            more => {
                let doublings = ((more - self.yields) / 8).min(5);
                Next::Sleep((FIRST_SLEEP * 2u32.pow(doublings)).min(LONGEST_SLEEP))
            }
        }
    }
}

/// A wire that can be slept on, with what ends such sleeps.
#[derive(Debug)]
struct Sleepable {
    wire: Arc<OwnedFd>,
    program: EventFd,
    helper: EventFd,
}

impl Sleepable {
    /// Sleeps until the wire may have something to do, a bell rings, or time is up; the bell is quiet then.
    fn sleep(&self, bell: &EventFd, longest: Duration) {
        let mut ends =
            [self.wire.as_fd(), bell.as_fd()].map(|descriptor| PollFd::new(descriptor, PollFlags::POLLIN));
        // A signal ends it, too. Whoever sleeps looks around afterwards, whatever has ended it.
        let _ = ppoll(&mut ends, Some(TimeSpec::from_duration(longest)), None);
        // A bell that has not rung is no failure.
        let _ = bell.read();
    }
}

/// What comes to an endpoint from other threads: notices of ends, and calls to wake up.
#[derive(Debug, Default)]
pub(super) struct Notices {
    /// Something is in the line.
    any: AtomicBool,
    /// How many endpoints are lost.
    pub(super) losses: AtomicU32,
    line: Mutex<Vec<(Rank, LossCause)>>,
    /// Whether the next sleep is to end at once.
    called: Mutex<bool>,
    bell: Condvar,
    /// What the helper is told while it rests.
    helper: Mutex<Command>,
    helper_bell: Condvar,
    /// Where the wire has a descriptor.
    sleepable: Option<Sleepable>,
}

/// What the helper is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Command {
    #[default]
    Rest,
    Wake,
    Stop,
}

impl Wake for Notices {
    fn wake(self: Arc<Self>) {
        self.ring();
    }
}

/// How the helper rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// So long.
    For(Duration),
    /// Until the wire may have something to do.
    OnWire,
}

impl Notices {
    /// Notices of an endpoint whose wire has this descriptor.
    ///
    /// # Errors
    /// What the system says if it has no descriptors.
    pub(super) fn new(wire: Option<Arc<OwnedFd>>) -> io::Result<Self> {
        let bell = || EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
        let sleepable = |wire| Ok::<_, io::Error>(Sleepable { wire, program: bell()?, helper: bell()? });
        Ok(Self { sleepable: wire.map(sleepable).transpose()?, ..Self::default() })
    }

    pub(super) fn ring(&self) {
        *self.called.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.bell.notify_all();
        // A bell that is full has rung.
        let _ = self.sleepable.as_ref().map(|sleepable| sleepable.program.write(1));
    }

    pub(super) fn waker(self: &Arc<Self>) -> Waker {
        Arc::clone(self).into()
    }

    /// Whether there are notices; costs a load.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.any.load(SeqCst)
    }

    /// Rests as the helper does; whether it is still needed.
    pub(super) fn rest(&self, rest: Rest) -> bool {
        let longest = match (rest, &self.sleepable) {
            (Rest::OnWire, Some(sleepable)) => {
                // What it is told rings the bell afterwards.
                sleepable.sleep(&sleepable.helper, LONGEST_ON_WIRE);
                Duration::ZERO
            }
            (Rest::OnWire, None) => LONGEST_SLEEP,
            (Rest::For(longest), _) => longest,
        };
        let mut command = self.helper.lock().unwrap_or_else(PoisonError::into_inner);
        if *command == Command::Rest && !longest.is_zero() {
            command = self.helper_bell.wait_timeout(command, longest).unwrap_or_else(PoisonError::into_inner).0;
        }
        if *command == Command::Wake {
            *command = Command::Rest;
        }
        *command != Command::Stop
    }

    fn tell(&self, what: Command) {
        let mut command = self.helper.lock().unwrap_or_else(PoisonError::into_inner);
        if *command != Command::Stop {
            *command = what;
        }
        self.helper_bell.notify_all();
        // As for the program's.
        let _ = self.sleepable.as_ref().map(|sleepable| sleepable.helper.write(1));
    }

    /// Has the helper look at once.
    pub(super) fn wake_helper(&self) {
        self.tell(Command::Wake);
    }

    /// Ends the helper.
    pub(super) fn dismiss(&self) {
        self.tell(Command::Stop);
    }

    /// As [`sleep`](Self::sleep), and until the wire may have something to do.
    pub(super) fn sleep_on_wire(&self, longest: Duration) {
        let Some(sleepable) = &self.sleepable else { return self.sleep(longest.min(LONGEST_SLEEP)) };
        sleepable.sleep(&sleepable.program, longest);
        *self.called.lock().unwrap_or_else(PoisonError::into_inner) = false;
    }

    /// Sleeps until somebody rings, or has rung since the last sleep, or time is up.
    pub(super) fn sleep(&self, longest: Duration) {
        let mut called = self.called.lock().unwrap_or_else(PoisonError::into_inner);
        if !*called {
            called = self.bell.wait_timeout(called, longest).unwrap_or_else(PoisonError::into_inner).0;
        }
        *called = false;
    }
}

/// Tells an endpoint, from any thread, that a rank of its job has ended; see
/// [`Conduit::failure_notifier`](crate::Conduit::failure_notifier).
#[derive(Clone, Debug)]
pub struct FailureNotifier {
    notices: Weak<Notices>,
}

impl FailureNotifier {
    /// Tells that a rank is lost, for this reason; usually [`LossCause::Died`]. The program learns of it with its
    /// next poll, and is woken if it waits. Only the first end of a rank counts, and its own departure counts
    /// more. Nothing happens if the job has no such rank, if it is the endpoint's own, or if the endpoint is no
    /// more. Does not block; allocates a few bytes.
    pub fn lost(&self, rank: Rank, cause: LossCause) {
        let Some(notices) = self.notices.upgrade() else { return };
        notices.line.lock().unwrap_or_else(PoisonError::into_inner).push((rank, cause));
        notices.any.store(true, SeqCst);
        notices.ring();
    }
}

impl FailureNotifier {
    pub(super) fn new(notices: &Arc<Notices>) -> Self {
        Self { notices: Arc::downgrade(notices) }
    }
}

impl<W: Wire> Machine<W> {
    /// Takes in what others know of the ends of ranks.
    pub(super) fn take_notices(&mut self) {
        let notices = Arc::clone(&self.notices);
        // Before the line is read: a notice that comes while it is being read sets this once more.
        notices.any.store(false, SeqCst);
        let line = std::mem::take(&mut *notices.line.lock().unwrap_or_else(PoisonError::into_inner));
        let shape = self.settings.shape;
        for (rank, cause) in line {
            for endpoint in 0..shape.endpoints {
                if let Some(peer) = shape.peer(Address::new(rank, endpoint))
                    && rank != shape.address(self.settings.me).rank
                {
                    self.lose(peer.0, cause);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    #[test]
    fn who_is_crowded_yields_at_once_and_sleeps_grow() {
        let mut backoff = Backoff::new(u32::MAX, true);
        assert!(!backoff.spins());
        assert_eq!(backoff.next(), Next::Yield);
        let steps: Vec<Next> = (0..1000).map(|_| backoff.next()).collect();
        assert_eq!(steps.last(), Some(&Next::Sleep(LONGEST_SLEEP)));
        assert!(steps.contains(&Next::Sleep(FIRST_SLEEP)));
        backoff.reset_where_alone();
        assert_eq!(backoff.next(), Next::Sleep(LONGEST_SLEEP));
        backoff.reset();
        assert_eq!(backoff.next(), Next::Yield);
    }

    #[test]
    fn who_has_a_processor_does_not_sleep_while_something_comes() {
        let mut backoff = Backoff { tries: 0, spins: SPINS, yields: YIELDS };
        for _ in 0..1000 {
            assert_eq!(backoff.next(), Next::Spin);
            backoff.reset_where_alone();
        }
    }

    /// What a peer writes to the segment goes on only with this endpoint's looks, and shows nowhere.
    #[test]
    fn who_cannot_be_woken_sleeps_late() {
        let sleeps_after = |blind| {
            let mut backoff = Backoff::new(1, blind);
            (0..).take_while(|_| !matches!(backoff.next(), Next::Sleep(_))).count() as u32
        };
        assert_eq!([false, true].map(sleeps_after), [SPINS + YIELDS, SPINS + BLIND_YIELDS]);
    }

    #[test]
    fn a_call_before_a_sleep_ends_it() {
        let notices = Arc::new(Notices::default());
        notices.waker().wake();
        // Were the call lost, this would take an hour.
        notices.sleep(Duration::from_secs(3600));
    }

    #[test]
    fn the_wire_and_every_bell_end_a_sleep_on_it() {
        // Were any of them missed, this would take an hour.
        let hour = Duration::from_secs(3600);
        let (wire, mut far) = UnixStream::pair().unwrap();
        let notices = Arc::new(Notices::new(Some(Arc::new(wire.into()))).unwrap());
        notices.waker().wake();
        notices.sleep_on_wire(hour);
        notices.wake_helper();
        let sleepable = notices.sleepable.as_ref().unwrap();
        sleepable.sleep(&sleepable.helper, hour);
        assert!(notices.rest(Rest::For(hour)), "the command is still there");
        far.write_all(b"a").unwrap();
        notices.sleep_on_wire(hour);
        assert!(notices.rest(Rest::OnWire));
        notices.dismiss();
        assert!(!notices.rest(Rest::OnWire) && !notices.rest(Rest::For(hour)));
    }
}
