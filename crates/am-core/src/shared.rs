//! An endpoint that several threads share behind a lock.
//!
//! Every operation locks for as long as it takes. No thread holds the lock while it sleeps in a wait of
//! [`SharedEndpoint`] (the waits of a locked [`Endpoint`] do hold it): of the threads that wait, one at a time
//! serves the endpoint and has the transport call it ([`Waiting::notify`](crate::Waiting::notify)), the others
//! sleep until it has served something. The fast mode is one endpoint per thread; this is the simple one.

use crate::address::{Address, Destination, Rank};
use crate::arguments::Arguments;
use crate::endpoint::{Dissemination, Endpoint, Rest};
use crate::error::{PollError, Rejected, SendError, WaitError};
use crate::handlers::{Reply, Request};
use crate::time::{Instant, Span};
use crate::token::PendingReply;
use crate::transport::{Body, Notify, PayloadWriter, Transport};
use std::collections::VecDeque;
use std::fmt;
use std::ops::{ControlFlow, Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

/// A clonable, locked [`Endpoint`].
///
/// Handlers run on whichever thread polls or waits. A handler must not use the shared endpoint it runs on: it
/// would wait for its own lock; this is reported as a panic where the lock can tell. Every method panics if
/// another thread panicked while it held the lock, since its handler may have left the state half changed.
pub struct SharedEndpoint<T: Transport, S> {
    inner: Arc<Shared<T, S>>,
}

struct Shared<T: Transport, S> {
    address: Address,
    locked: Mutex<Locked<T, S>>,
    /// Something was served, or the thread that served does so no more.
    served: Condvar,
    /// Held by the thread that takes part in a barrier.
    barrier: Mutex<()>,
}

struct Locked<T: Transport, S> {
    /// Gone once the endpoint has left the job.
    endpoint: Option<Endpoint<T, S>>,
    /// The thread that serves the endpoint for all that wait.
    server: Option<Thread>,
    /// Threads that wait for it to serve something.
    waiting: u32,
}

/// What a thread that waits does under the lock.
type Lock<'a, T, S> = MutexGuard<'a, Locked<T, S>>;

/// What the use of an endpoint says that has left its job.
const LEFT: &str = "this endpoint has left its job: finish and leave end all its handles";

/// Panics if the endpoint has left its job, without poisoning the lock: nothing is half changed.
fn still_here<T: Transport, S>(locked: Lock<'_, T, S>) -> Lock<'_, T, S> {
    if locked.endpoint.is_none() {
        drop(locked);
        panic!("{LEFT}");
    }
    locked
}

impl<T: Transport, S> Locked<T, S> {
    fn endpoint(&mut self) -> &mut Endpoint<T, S> {
        self.endpoint.as_mut().expect(LEFT)
    }
}

impl<T: Transport, S> Shared<T, S> {
    /// Has the threads that wait look again, after something was done without them; what was sent leaves.
    fn tell(&self, locked: &mut Locked<T, S>) {
        if locked.waiting != 0 {
            self.served.notify_all();
        }
        if let Some(server) = &locked.server {
            server.unpark();
            // The thread that serves sleeps, and only it would hand this over.
            if let Some(endpoint) = &mut locked.endpoint
                && !thread::panicking()
            {
                endpoint.flush();
            }
        }
    }
}

impl<T: Transport, S> Clone for SharedEndpoint<T, S> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<T: Transport, S> fmt::Debug for SharedEndpoint<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedEndpoint").finish_non_exhaustive()
    }
}

/// How long a thread sleeps where the transport calls nobody.
const STEP: Duration = Duration::from_micros(50);

/// Services of one thread after which others get the lock in any case.
const TURNS: u32 = 8;

/// Fruitless looks, with a yield after each, before a thread sleeps.
const SPINS: u32 = 100;

/// How long a thread sleeps before it looks for itself.
const LONGEST: Duration = Duration::from_millis(100);

/// Calls a thread.
struct Call(Thread);

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The endpoint of a locked [`SharedEndpoint`], for several operations in a row. Letting it go has the threads
/// that wait look again.
pub struct Guard<'a, T: Transport, S> {
    shared: &'a Shared<T, S>,
    locked: Lock<'a, T, S>,
    /// Whether anything may have changed.
    used: bool,
}

impl<T: Transport, S> fmt::Debug for Guard<'_, T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}

impl<T: Transport, S> Deref for Guard<'_, T, S> {
    type Target = Endpoint<T, S>;

    fn deref(&self) -> &Endpoint<T, S> {
        self.locked.endpoint.as_ref().expect(LEFT)
    }
}

impl<T: Transport, S> DerefMut for Guard<'_, T, S> {
    fn deref_mut(&mut self) -> &mut Endpoint<T, S> {
        self.used = true;
        self.locked.endpoint()
    }
}

impl<T: Transport, S> Drop for Guard<'_, T, S> {
    fn drop(&mut self) {
        if self.used {
            self.shared.tell(&mut self.locked);
        }
    }
}

impl<T: Transport, S> SharedEndpoint<T, S> {
    /// Shares an endpoint.
    pub fn new(endpoint: Endpoint<T, S>) -> Self {
        let address = endpoint.address();
        let locked = Mutex::new(Locked { endpoint: Some(endpoint), server: None, waiting: 0 });
        Self { inner: Arc::new(Shared { address, locked, served: Condvar::new(), barrier: Mutex::new(()) }) }
    }

    /// Locks the endpoint for several operations in a row. A wait of the endpoint itself, such as
    /// [`Endpoint::wait_until`], holds the lock as long as it lasts.
    ///
    /// # Panics
    /// If the endpoint has left its job.
    pub fn lock(&self) -> Guard<'_, T, S> {
        Guard { shared: &self.inner, locked: still_here(self.locked()), used: false }
    }

    fn locked(&self) -> Lock<'_, T, S> {
        self.inner.locked.lock().expect("no thread panicked inside the shared endpoint")
    }

    /// Takes the endpoint back if this is its last handle.
    ///
    /// # Errors
    /// This handle, if there are others, or if the endpoint has left its job.
    pub fn into_inner(self) -> Result<Endpoint<T, S>, Self> {
        let inner = Arc::try_unwrap(self.inner).map_err(|inner| Self { inner })?;
        let address = inner.address;
        let locked = inner.locked.into_inner().expect("no thread panicked inside the shared endpoint");
        locked.endpoint.ok_or_else(|| {
            let locked = Mutex::new(Locked { endpoint: None, server: None, waiting: 0 });
            Self { inner: Arc::new(Shared { address, locked, served: Condvar::new(), barrier: Mutex::new(()) }) }
        })
    }

    /// The endpoint's address.
    pub fn address(&self) -> Address {
        self.inner.address
    }

    /// The endpoint's rank.
    pub fn rank(&self) -> Rank {
        self.inner.address.rank
    }

    /// Repeats a step until it yields something, serving and sleeping in between without the lock. The step runs
    /// under the lock, at first and whenever something was served. `until` ends the wait with `None`.
    fn wait<R>(
        &self,
        until: Option<Instant>,
        mut step: impl FnMut(&mut Endpoint<T, S>) -> Result<Option<R>, WaitError>,
    ) -> Result<Option<R>, WaitError> {
        let (mut locked, mut rest) = (self.locked(), Rest::default());
        loop {
            locked = still_here(locked);
            if let Some(done) = step(locked.endpoint())? {
                if locked.server.is_some() {
                    self.inner.tell(&mut locked);
                }
                return Ok(Some(done));
            }
            let now = locked.endpoint().now();
            if until.is_some_and(|until| now >= until) {
                return Ok(None);
            }
            locked.endpoint().look_at_clock(&mut rest)?;
            if locked.server.is_some() {
                // Another thread serves: it tells when something was, and when it does so no more.
                let longest = until.map_or(LONGEST, |until| Duration::from(until - now).min(LONGEST));
                locked.waiting += 1;
                let waited = self.inner.served.wait_timeout(locked, longest);
                locked = waited.expect("no thread panicked inside the shared endpoint").0;
                locked.waiting -= 1;
                continue;
            }
            locked.server = Some(thread::current());
            let mut service = Service { shared: self, locked: Some(locked) };
            let outcome = service.serve(until, &mut rest);
            locked = service.end();
            if let Err(error) = outcome {
                let endpoint = locked.endpoint();
                if endpoint.serve_last_words(&error)
                    && let Some(done) = step(endpoint)?
                {
                    endpoint.report_loss_again();
                    return Ok(Some(done));
                }
                return Err(error);
            }
        }
    }

    /// Retries a form that does not wait until it has room.
    fn insist(
        &self,
        mut attempt: impl FnMut(&mut Endpoint<T, S>) -> Result<(), SendError>,
    ) -> Result<(), SendError> {
        let mut failed = None;
        let sent = self.wait(None, |endpoint| match attempt(endpoint) {
            Ok(()) => Ok(Some(())),
            Err(SendError::WouldBlock { .. }) => Ok(None),
            Err(error) => {
                failed = Some(error);
                Ok(Some(()))
            }
        });
        sent?;
        failed.map_or(Ok(()), Err)
    }

    fn send<A: Arguments>(
        &self,
        to: Address,
        handler: Request<A>,
        args: &A,
        body: Body<'_>,
    ) -> Result<(), SendError> {
        self.insist(|endpoint| endpoint.try_send(to, handler, args, body))
    }

    /// As [`Endpoint::request`].
    ///
    /// # Errors
    /// As [`Endpoint::request`].
    pub fn request<A: Arguments>(
        &self,
        to: impl Destination,
        handler: Request<A>,
        args: A,
    ) -> Result<(), SendError> {
        self.send(to.address(), handler, &args, Body::None)
    }

    /// As [`Endpoint::request_medium`].
    ///
    /// # Errors
    /// As [`Endpoint::request_medium`].
    pub fn request_medium<A: Arguments>(
        &self,
        to: impl Destination,
        handler: Request<A>,
        args: A,
        payload: &[u8],
    ) -> Result<(), SendError> {
        self.send(to.address(), handler, &args, Body::Copy(payload))
    }

    /// As [`Endpoint::request_long`].
    ///
    /// # Errors
    /// As [`Endpoint::request_long`].
    pub fn request_long<A: Arguments>(
        &self,
        to: impl Destination,
        handler: Request<A>,
        args: A,
        payload: &[u8],
        offset: u64,
    ) -> Result<(), SendError> {
        self.send(to.address(), handler, &args, Body::Place(payload, offset))
    }

    /// As [`Endpoint::try_request`].
    ///
    /// # Errors
    /// As [`Endpoint::try_request`].
    pub fn try_request<A: Arguments>(
        &self,
        to: impl Destination,
        handler: Request<A>,
        args: A,
    ) -> Result<(), SendError> {
        self.lock().try_request(to, handler, args)
    }

    /// As [`Endpoint::try_request_medium`].
    ///
    /// # Errors
    /// As [`Endpoint::try_request_medium`].
    pub fn try_request_medium<A: Arguments>(
        &self,
        to: impl Destination,
        handler: Request<A>,
        args: A,
        payload: &[u8],
    ) -> Result<(), SendError> {
        self.lock().try_request_medium(to, handler, args, payload)
    }

    /// As [`Endpoint::try_request_long`].
    ///
    /// # Errors
    /// As [`Endpoint::try_request_long`].
    pub fn try_request_long<A: Arguments>(
        &self,
        to: impl Destination,
        handler: Request<A>,
        args: A,
        payload: &[u8],
        offset: u64,
    ) -> Result<(), SendError> {
        self.lock().try_request_long(to, handler, args, payload, offset)
    }

    /// Sends a Medium request of `len` bytes that `fill` writes into the transport's own buffer, under the lock.
    /// Waits for room as [`SharedEndpoint::request`] does.
    ///
    /// # Errors
    /// As [`Endpoint::reserve_medium`]; `fill` was not called then.
    pub fn request_medium_with<A: Arguments + Clone>(
        &self,
        to: impl Destination,
        handler: Request<A>,
        args: A,
        len: usize,
        mut fill: impl FnMut(&mut dyn PayloadWriter),
    ) -> Result<(), SendError> {
        let to = to.address();
        self.insist(|endpoint| {
            let mut reserved = endpoint.try_reserve_medium(to, handler, args.clone(), len)?;
            fill(&mut reserved);
            reserved.commit();
            Ok(())
        })
    }

    /// As [`Endpoint::answer`].
    ///
    /// # Errors
    /// As [`Endpoint::answer`].
    pub fn answer<A: Arguments>(
        &self,
        pending: PendingReply,
        handler: Reply<A>,
        args: A,
    ) -> Result<(), Rejected<PendingReply>> {
        self.lock().answer(pending, handler, args)
    }

    /// Serves what has arrived; `None` if another thread holds the lock, and serves it or is about to.
    ///
    /// # Errors
    /// As [`Endpoint::poll`].
    pub fn poll(&self) -> Result<Option<usize>, PollError> {
        let locked = match self.inner.locked.try_lock() {
            Ok(locked) => locked,
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Poisoned(_)) => panic!("a thread panicked inside the shared endpoint"),
        };
        let mut guard = Guard { shared: &self.inner, locked: still_here(locked), used: false };
        guard.poll().map(Some)
    }

    /// As [`Endpoint::wait_until`]; sleeps without the lock.
    ///
    /// # Errors
    /// As [`Endpoint::wait_until`].
    pub fn wait_until(&self, mut done: impl FnMut(&S) -> bool) -> Result<(), WaitError> {
        self.wait(None, |endpoint| Ok(done(endpoint.state()).then_some(()))).map(|_| ())
    }

    /// As [`Endpoint::wait_until_for`]; sleeps without the lock.
    ///
    /// # Errors
    /// As [`Endpoint::wait_until_for`].
    pub fn wait_until_for(&self, span: Span, mut done: impl FnMut(&S) -> bool) -> Result<(), WaitError> {
        let began = self.lock().now();
        match self.wait(Some(began + span), |endpoint| Ok(done(endpoint.state()).then_some(())))? {
            Some(()) => Ok(()),
            None => Err(WaitError::TimedOut(Box::new(self.locked().endpoint().report_of(began)))),
        }
    }

    /// As [`Endpoint::drain`], for what all threads have sent; sleeps without the lock.
    ///
    /// # Errors
    /// As [`Endpoint::drain`].
    pub fn drain(&self) -> Result<(), WaitError> {
        self.lock().flush();
        self.wait(None, |endpoint| Ok(endpoint.is_drained().then_some(()))).map(|_| ())
    }

    /// As [`Endpoint::barrier`], for one thread of each endpoint; sleeps without the lock. Of several threads that
    /// call it, one after the other takes part in a barrier of its own. While one is in it, no thread may call a
    /// barrier, or another operation of all ranks, through [`SharedEndpoint::lock`]: the ranks would wait for each
    /// other's rounds.
    ///
    /// # Errors
    /// As [`Endpoint::barrier`].
    pub fn barrier(&self) -> Result<(), WaitError> {
        // Nothing is half changed if a thread panicked here: the endpoint's own lock tells.
        let _alone = self.inner.barrier.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut barrier, mut deferred) = (Dissemination::barrier(), VecDeque::new());
        let outcome = loop {
            let came =
                self.wait(None, |endpoint| endpoint.barrier_step(&mut barrier).map(ControlFlow::break_value));
            match came {
                Ok(Some(all)) => break Ok(all),
                Ok(None) => {}
                Err(error) => match self.lock().past_barrier(error, &barrier, &mut deferred) {
                    Ok(()) => {}
                    Err(error) => break Err(error),
                },
            }
        };
        let mut guard = self.lock();
        guard.end_barrier(&outcome, deferred);
        guard.is_barrier(outcome?)
    }

    /// Leaves the job properly as [`Endpoint::finish`] does, whatever other handles there are: using one of them
    /// panics from now on. Returns the state.
    ///
    /// # Errors
    /// As [`Endpoint::finish`].
    pub fn finish(self) -> Result<S, WaitError> {
        self.drain()?;
        self.taken().finish()
    }

    /// Leaves the job without waiting for anyone as [`Endpoint::leave`] does, whatever other handles there are:
    /// using one of them panics from now on. Returns the state.
    pub fn leave(self) -> S {
        self.taken().leave()
    }

    fn taken(&self) -> Endpoint<T, S> {
        let mut locked = still_here(self.locked());
        let endpoint = locked.endpoint.take();
        self.inner.tell(&mut locked);
        endpoint.expect(LEFT)
    }
}

/// A thread that serves the endpoint for all that wait, until it is done or unwinds.
struct Service<'a, T: Transport, S> {
    shared: &'a SharedEndpoint<T, S>,
    locked: Option<Lock<'a, T, S>>,
}

impl<'a, T: Transport, S> Service<'a, T, S> {
    /// Serves what is there; else sleeps until something may be, without the lock.
    fn serve(&mut self, until: Option<Instant>, rest: &mut Rest) -> Result<(), WaitError> {
        let locked = self.locked.as_mut().expect("a service that has not ended has the lock");
        rest.steps = rest.steps.wrapping_add(1);
        if locked.endpoint().serve_what_is_there(rest)? {
            if locked.waiting != 0 {
                self.shared.inner.served.notify_all();
            }
            // Others get the lock at times even while messages come without end.
            if rest.steps.is_multiple_of(TURNS) {
                self.relock(thread::yield_now);
            }
            return Ok(());
        }
        let now = locked.endpoint().now();
        let until = locked.endpoint().wakes_by(until);
        let longest = until.map_or(LONGEST, |until| Duration::from(until - now).min(LONGEST));
        // Whom this thread waits for is usually about to answer: sleeping at once would cost more than it saves.
        let armed = if rest.fruitless < SPINS {
            Notify::Ready
        } else {
            locked.endpoint().notify(&Waker::from(Arc::new(Call(thread::current()))))
        };
        self.relock(|| match armed {
            // Bounded, since another thread that served meanwhile may have taken what the call was for.
            Notify::Armed => thread::park_timeout(longest),
            Notify::Ready => thread::yield_now(),
            Notify::Never => thread::sleep(longest.min(STEP)),
        });
        Ok(())
    }

    /// Does something without the lock.
    fn relock(&mut self, meanwhile: impl FnOnce()) {
        self.locked = None;
        meanwhile();
        self.locked = Some(self.shared.locked());
    }

    fn end(mut self) -> Lock<'a, T, S> {
        self.locked.take().map_or_else(
            || self.shared.locked(),
            |mut locked| {
                locked.server = None;
                if locked.waiting != 0 {
                    // One of them serves from now on, or finds what it waits for.
                    self.shared.inner.served.notify_all();
                }
                locked
            },
        )
    }
}

impl<T: Transport, S> Drop for Service<'_, T, S> {
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        // A handler unwinds, or one has: the threads that wait learn that the lock is poisoned, and none waits for
        // this one.
        let locked = self.locked.take().map_or_else(|| self.shared.inner.locked.lock(), Ok);
        locked.unwrap_or_else(PoisonError::into_inner).server = None;
        self.shared.inner.served.notify_all();
    }
}
