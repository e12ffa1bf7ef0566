//! The task of an executor: a future that serves the endpoint, and callers in any other task.

use crate::caller::Caller;
use crate::layer::Calls;
use crate::run::CallEndpoint;
use crate::shared::Shared;
use crate::wake_up::WakeUp;
use am_core::transport::Notify;
use am_core::{Endpoint, HasLayer, Instant, PollError, Span, Transport};
use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

#[cfg(feature = "tokio")]
mod ears;
#[cfg(feature = "tokio")]
use ears::Ears;

/// Polls of the endpoint in one turn of the task, after which other tasks have theirs.
const TURNS: usize = 32;

/// How long the task stays awake after it has last found something to do, where its endpoint has a processor to
/// itself: the answer to a call usually comes sooner than a sleep ends.
const LINGER: Span = Span::from_micros(100);

/// The part of [`LINGER`] in which it keeps its processor. After a sleep it does so only once it has had something
/// to do twice, as with a request and the answer to it: who sleeps mostly waits for somebody who slept, too, and
/// whom the system may have woken on this very processor.
const SPIN: Span = Span::from_micros(10);

/// The longest sleep of the task: how late it may notice that the endpoint's [stall
/// report](am_core::stall::request) is requested.
const LONGEST: Span = Span::from_secs(1);

/// Has a [`Driver`] end.
#[derive(Clone, Debug)]
pub struct StopHandle {
    stop: Arc<AtomicBool>,
    shared: Arc<Shared>,
}

impl StopHandle {
    /// Has the driver end and hand its endpoint back. What is under way stays so.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.shared.bell.ring();
    }
}

/// What a [`Driver`] ends with.
#[derive(Debug)]
#[non_exhaustive]
pub struct DriverEnd<T: Transport, S> {
    /// The endpoint, to be [finished](Endpoint::finish), which blocks: `tokio::task::spawn_blocking` is the place
    /// for that.
    pub endpoint: Endpoint<T, S>,
    /// What ended the driver, if it was not its [`StopHandle`]: the error of a handler of the program, or a bad
    /// message. Losses of ranks end it not.
    pub error: Option<PollError>,
}

/// A future that serves an endpoint: a task of tokio, or of any other executor, that [`Caller`]s in other tasks,
/// on any thread, call through. When it has had nothing to do for a tenth of a millisecond it sleeps, until the
/// transport calls its waker ([`Waiting::notify`](am_core::Waiting::notify)), a caller does, or something is due:
/// for that a thread of the process waits, so that the executor needs no timers. Until then it is ready, and other
/// tasks have their turns between its looks; where the job has more ranks than processors it sleeps at once. On a
/// transport that calls nobody, as the simulated ones, it is ready all the time.
///
/// On a runtime of one thread, calls belong into spawned tasks: the future of tokio's `block_on` itself has its
/// turn when tasks have had 61 (`event_interval`), or none is ready, which takes a tenth of a millisecond after a
/// call.
///
/// Dropping it drops the endpoint: the other ranks count this one as lost.
///
/// ```
/// use am_async::{CallEndpoint, Calls, Failure, Methods, drive};
/// use am_core::{Endpoint, Handlers, Rank, loopback};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
/// let mut methods = Methods::<u64>::new();
/// let add = methods.function("add", |total, _, number: u64| {
///     *total += number;
///     Ok::<u64, Failure>(*total)
/// })?;
/// let mut handlers = Handlers::new();
/// let calls = Calls::register(&mut handlers, methods, 0)?;
/// let endpoint = Endpoint::attach(loopback::single(), handlers, calls)?;
/// runtime.block_on(async {
///     let (caller, driver) = drive(endpoint);
///     let stop_handle = driver.stop_handle();
///     let driver = tokio::spawn(driver);
///     let tasks = (0..10).map(|number| {
///         let caller = caller.clone();
///         tokio::spawn(async move { caller.call(Rank(0), add, &number).await })
///     });
///     for task in tasks.collect::<Vec<_>>() {
///         task.await??;
///     }
///     assert_eq!(caller.call(Rank(0), add, &0).await, Ok(45));
///     stop_handle.stop();
///     let endpoint = driver.await?.endpoint;
///     tokio::task::spawn_blocking(|| endpoint.finish()).await??;
///     Ok(())
/// })
/// # }
/// ```
#[must_use = "a driver does nothing unless it is polled: `tokio::spawn` it"]
pub struct Driver<T: Transport, S, W> {
    endpoint: Option<Endpoint<T, S>>,
    stop_handle: StopHandle,
    /// Who the bell calls.
    waker: Option<Waker>,
    wake_up: WakeUp,
    /// When it is due.
    due: Option<Instant>,
    /// When it looks next whether a report is asked for, which nobody wakes it up for.
    next_look: Instant,
    /// Since when it has found nothing to do, if that is known.
    idle_since: Option<Instant>,
    /// Whether the transport is to call.
    armed: bool,
    /// How often it has found something to do since it last slept, up to twice.
    found: u8,
    #[cfg(feature = "tokio")]
    ears: Option<Ears>,
    lost: bool,
    world: PhantomData<fn(W)>,
}

impl<T: Transport, S, W> fmt::Debug for Driver<T, S, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}

impl<T: Transport, S, W> Unpin for Driver<T, S, W> {}

/// Makes a [`Driver`] of an endpoint with [`Calls`], and a [`Caller`] that calls through it.
pub fn drive<T: Transport, S: HasLayer<Calls<W>>, W: Send + 'static>(
    mut endpoint: Endpoint<T, S>,
) -> (Caller, Driver<T, S, W>) {
    let caller = endpoint.caller();
    let stop_handle = StopHandle { stop: Arc::default(), shared: Arc::clone(caller.shared()) };
    let (endpoint, wake_up) = (Some(endpoint), WakeUp::default());
    let next_look = Instant(0);
    let driver = Driver {
        endpoint,
        stop_handle,
        waker: None,
        wake_up,
        due: None,
        next_look,
        idle_since: None,
        armed: false,
        found: 0,
        #[cfg(feature = "tokio")]
        ears: None,
        lost: false,
        world: PhantomData,
    };
    (caller, driver)
}

impl<T: Transport, S, W> Driver<T, S, W> {
    /// What ends this driver.
    pub fn stop_handle(&self) -> StopHandle {
        self.stop_handle.clone()
    }
}

impl<T: Transport, S: HasLayer<Calls<W>>, W: Send + 'static> Driver<T, S, W> {
    /// Has tokio's own event loop wait for the transport, where that has a descriptor for it
    /// ([`Waiting::descriptor`](am_core::Waiting::descriptor)), as between ranks of one host (from Linux 6.7 on,
    /// where io_uring is permitted): no thread stands between a rank that sleeps and the one that wakes it.
    /// Without this, and for other transports, the transport calls the task's waker from a thread of its own.
    ///
    /// The descriptor belongs to the runtime of the first sleep: a driver that goes on in another runtime while
    /// the first is not driven is woken once a second only. After a fork, a child that drops the driver or its
    /// runtime takes the descriptor out of the parent's `epoll`, with the same effect there: fork before, or
    /// execute a program at once. In a runtime of several threads the kernel reports through the thread that
    /// slept first, which has to be scheduled for that.
    ///
    /// # Panics
    /// The driver, at its first sleep and only where there is a descriptor, unless it is polled in a task of a
    /// tokio runtime with input and output (`enable_io`, `enable_all` or `#[tokio::main]`).
    #[cfg(feature = "tokio")]
    pub fn on_tokio(mut self) -> Self {
        self.ears = Some(Ears::default());
        self
    }

    /// Has the transport call when there is something.
    fn arm(&mut self, context: &mut Context<'_>) -> Notify {
        let endpoint = self.endpoint.as_mut().expect("a driver that has ended is not polled again");
        #[cfg(feature = "tokio")]
        if let Some(ears) = &mut self.ears
            && ears.listen(endpoint, context)
        {
            return endpoint.notify_readable(context.waker());
        }
        endpoint.notify(context.waker())
    }

    fn end(&mut self, error: Option<PollError>) -> DriverEnd<T, S> {
        let mut endpoint = self.endpoint.take().expect("a driver that has ended is not polled again");
        // From now on the endpoint's own waits are what sleeps.
        self.stop_handle.shared.bell.set_waker(endpoint.transport().waker());
        if self.lost {
            endpoint.report_loss_again();
        }
        DriverEnd { endpoint, error }
    }

    /// Serves the endpoint on this thread until the [`StopHandle`] ends it, as the future does in a task: for a
    /// thread of its own, such as those of `tokio::task::spawn_blocking`, through which tasks of the runtime call.
    /// Blocks: neither a lost rank nor the endpoint's time-out, which is for waits of a program, ends it. The
    /// thread sleeps on the transport itself, and no executor is woken for what other ranks send.
    pub fn block(mut self) -> DriverEnd<T, S> {
        let endpoint = self.endpoint.as_mut().expect("a driver that has ended is not polled again");
        self.stop_handle.shared.bell.set_waker(endpoint.transport().waker());
        let stop = Arc::clone(&self.stop_handle.stop);
        let error = loop {
            if stop.load(Ordering::SeqCst) {
                break None;
            }
            endpoint.layer_mut::<Calls<W>>();
            endpoint.tell_if_asked(None);
            match endpoint.poll_or_idle(LONGEST) {
                Ok(_) => {}
                Err(PollError::PeerLost { .. }) => self.lost = true,
                Err(error) => break Some(error),
            }
        };
        self.end(error)
    }

    /// Serves the endpoint once; whether there may be more to do.
    fn serve(&mut self) -> Result<bool, PollError> {
        let endpoint = self.endpoint.as_mut().expect("a driver that has ended is not polled again");
        endpoint.layer_mut::<Calls<W>>();
        let served = endpoint.poll().and_then(|handled| Ok(handled != 0 || endpoint.progress_layers()?));
        match served {
            Err(PollError::PeerLost { .. }) => {
                self.lost = true;
                Ok(true)
            }
            served => Ok(served? || self.stop_handle.shared.bell.is_rung()),
        }
    }
}

impl<T: Transport, S: HasLayer<Calls<W>>, W: Send + 'static> Future for Driver<T, S, W> {
    type Output = DriverEnd<T, S>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<DriverEnd<T, S>> {
        let driver = self.get_mut();
        if !driver.waker.as_ref().is_some_and(|known| known.will_wake(context.waker())) {
            driver.waker = Some(context.waker().clone());
            driver.due = None;
            driver.stop_handle.shared.bell.set_waker(driver.waker.clone());
        }
        if let Some(endpoint) = &mut driver.endpoint {
            endpoint.tell_if_asked(None);
            if std::mem::take(&mut driver.armed) {
                endpoint.end_notify();
                driver.found = 0;
            }
        }
        let (mut served, mut gives_way) = (false, false);
        for _ in 0..TURNS {
            if driver.stop_handle.stop.load(Ordering::SeqCst) {
                return Poll::Ready(driver.end(None));
            }
            match driver.serve() {
                Err(error) => return Poll::Ready(driver.end(Some(error))),
                Ok(true) => {
                    (served, driver.idle_since) = (true, None);
                    driver.found = (driver.found + 1).min(2);
                    continue;
                }
                Ok(false) => {}
            }
            let endpoint = driver.endpoint.as_mut().expect("a driver that has ended is not polled again");
            if endpoint.transport().spins() {
                endpoint.flush();
                let now = endpoint.now();
                let idle = now - *driver.idle_since.get_or_insert(now);
                gives_way = driver.found < 2 || idle >= SPIN;
                if idle < LINGER {
                    // Who has been woken goes on first.
                    if served || gives_way {
                        break;
                    }
                    continue;
                }
            }
            match driver.arm(context) {
                Notify::Ready => continue,
                Notify::Never => break,
                Notify::Armed => {}
            }
            driver.armed = true;
            let endpoint = driver.endpoint.as_mut().expect("a driver that has ended is not polled again");
            let now = endpoint.now();
            if driver.next_look <= now {
                driver.next_look = now + LONGEST;
            }
            let due = endpoint.wake_time().map_or(driver.next_look, |at| at.min(driver.next_look));
            if due <= now {
                continue;
            }
            // What was set for this time before is still to come, unless it came a little early.
            if driver.due != Some(due) || !driver.wake_up.is_set() {
                driver.wake_up.set(std::time::Instant::now() + Duration::from(due - now), context.waker());
            }
            driver.due = Some(due);
            return Poll::Pending;
        }
        // Others have their turn, and other programs theirs once nothing has come for a while.
        if gives_way {
            std::thread::yield_now();
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
