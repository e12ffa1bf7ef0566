//! What an `async` method or program works with: the rank's state between awaits, calls to other ranks, time.

use crate::caller::Caller;
use crate::lent;
use crate::shared::Shared;
use crate::trace::Trace;
use am_core::{Address, Instant, Span};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A program's own task.
pub(crate) type Spawned = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What all futures of an endpoint share.
pub(crate) struct Environment<W> {
    pub(crate) shared: Arc<Shared>,
    /// Until the endpoint is gone.
    spawned: Mutex<Option<Vec<Spawned>>>,
    /// Whether there may be any.
    any: AtomicBool,
    world: PhantomData<fn(W)>,
}

impl<W> Environment<W> {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, spawned: Mutex::new(Some(Vec::new())), any: AtomicBool::new(false), world: PhantomData }
    }

    /// Tasks that were spawned since this was last asked.
    #[inline]
    pub(crate) fn take_spawned(&self) -> Option<Vec<Spawned>> {
        // SeqCst: whoever spawns rings afterwards.
        if !self.any.load(Ordering::SeqCst) || !self.any.swap(false, Ordering::SeqCst) {
            return None;
        }
        self.spawned().as_mut().map(std::mem::take)
    }

    /// Whether tasks were spawned since they were last asked for.
    #[inline]
    pub(crate) fn has_spawned(&self) -> bool {
        // SeqCst: as in `take_spawned`.
        self.any.load(Ordering::SeqCst)
    }

    /// The endpoint is gone: nothing is spawned any more. Returns what was and has not begun.
    pub(crate) fn close(&self) -> Option<Vec<Spawned>> {
        self.spawned().take()
    }

    fn spawned(&self) -> MutexGuard<'_, Option<Vec<Spawned>>> {
        self.spawned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn(&self, task: Spawned) {
        let mut spawned = self.spawned();
        match spawned.as_mut() {
            Some(tasks) => tasks.push(task),
            None => {
                // Its destructors are the program's.
                drop(spawned);
                return drop(task);
            }
        }
        drop(spawned);
        self.any.store(true, Ordering::SeqCst);
        self.shared.bell.ring();
    }
}

/// Where a request comes from, and until when its answer is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Origin {
    /// Who called.
    pub source: Address,
    /// The time that was left when the request came, if the call has a deadline. Deadlines travel as this, since
    /// the clocks of ranks differ.
    pub left: Option<Span>,
    /// The span of the work on the request, if calls have spans: [`CallConfig::tracing`](crate::CallConfig). Of
    /// the feature `tracing`.
    #[cfg(feature = "tracing")]
    pub trace: Option<crate::TraceContext>,
}

impl Origin {
    #[inline]
    pub(crate) fn new(source: Address, left: Option<Span>, trace: Trace) -> Self {
        #[cfg(not(feature = "tracing"))]
        let _ = trace;
        Self {
            source,
            left,
            #[cfg(feature = "tracing")]
            trace,
        }
    }

    pub(crate) fn trace(&self) -> Trace {
        #[cfg(feature = "tracing")]
        return self.trace;
        #[cfg(not(feature = "tracing"))]
        Trace::default()
    }
}

/// What an `async` method, or a future of [`Endpoint::run`](crate::CallEndpoint::run), works with.
///
/// The state `W` of the rank is there between awaits: [`Context::with`] lends it to a closure, which can not wait,
/// so that nothing holds it while another future runs.
///
/// ```compile_fail,E0728
/// # async fn method(context: am_async::Context<u64>) {
/// // The closure is not `async`.
/// context.with(|total| {
///     context.sleep(am_core::Span::from_micros(1)).await;
///     *total += 1;
/// });
/// # }
/// ```
///
/// ```compile_fail
/// # async fn method(context: am_async::Context<u64>) {
/// // Nor does the state leave it.
/// let total: &mut u64 = context.with(|total| total);
/// context.sleep(am_core::Span::from_micros(1)).await;
/// *total += 1;
/// # }
/// ```
///
/// ```
/// # async fn method(context: am_async::Context<u64>) {
/// context.with(|total| *total += 1);
/// context.sleep(am_core::Span::from_micros(1)).await;
/// context.with(|total| *total += 1);
/// # }
/// ```
pub struct Context<W> {
    environment: Arc<Environment<W>>,
    caller: Caller,
    origin: Origin,
    deadline: Option<Instant>,
}

impl<W> fmt::Debug for Context<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("origin", &self.origin).finish_non_exhaustive()
    }
}

impl<W> Clone for Context<W> {
    fn clone(&self) -> Self {
        let (origin, deadline) = (self.origin, self.deadline);
        Self { environment: Arc::clone(&self.environment), caller: self.caller.clone(), origin, deadline }
    }
}

/// Calls, and time.
impl<W> Deref for Context<W> {
    type Target = Caller;

    fn deref(&self) -> &Caller {
        &self.caller
    }
}

impl<W> Context<W> {
    pub(crate) fn new(environment: &Arc<Environment<W>>, origin: Origin, deadline: Option<Instant>) -> Self {
        let caller = Caller::new(Arc::clone(&environment.shared)).within(deadline).part_of(origin.trace());
        Self { environment: Arc::clone(environment), caller, origin, deadline }
    }

    /// Lends the rank's state to a closure.
    ///
    /// # Panics
    /// If the state is lent already, to a closure that this one is called in, and where the endpoint is not
    /// polling: on another thread, and in a future that was moved to another executor.
    pub fn with<R>(&self, look: impl FnOnce(&mut W) -> R) -> R
    where
        W: Send + 'static,
    {
        lent::with(&self.environment, look)
    }

    /// Where the request comes from; the rank itself, without a deadline, for a program's own futures. Calls that
    /// are made through the context have its deadline.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// When the caller no longer waits, in this rank's time.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Has the endpoint poll a future of the program beside everything else, whenever it polls. Allocates. What is
    /// unfinished when the endpoint leaves its job is dropped, and so is what is spawned afterwards.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.environment.spawn(Box::pin(task));
    }

    /// Ends after some time of the endpoint; of the machine, if it is simulated.
    pub fn sleep(&self, span: Span) -> crate::Sleep {
        self.caller.sleep(span)
    }
}
