//! Groups of calls: one request to many ranks, and futures of which a bounded number is under way.

use crate::caller::{Call, Caller};
use crate::config::CallConfig;
use crate::error::CallError;
use crate::layer::Calls;
use crate::method::{Callable, MethodId};
use crate::table::Table;
use crate::trace;
use crate::tree::{self, Branch};
use am_core::{Address, Destination, Endpoint, HasLayer, Transport};
use std::fmt;
use std::pin::Pin;
use std::sync::MutexGuard;
use std::task::{Context, Poll};

type CallResult<M> = Result<<M as Callable>::Response, CallError<<M as Callable>::Error>>;

impl Caller {
    /// Calls a method with one request on each of some ranks, all at once; the future yields their outcomes in the
    /// same order. A call that fails leaves the others as they are. Dropping the future cancels what has not
    /// ended. Allocates.
    ///
    /// A long request to five ranks or more ([`CallConfig::tree_bytes`]) goes along a tree: ranks that have got it
    /// pass it on, and run the method for its caller, which [`Origin::source`](crate::Origin::source) names as
    /// ever. What differs then:
    ///
    /// - Answers come back the same way, each as soon as it is there. A rank that is lost, or that refuses to pass
    ///   the request on, ends the calls to all below it whose answers have not come through it with an error that
    ///   names it, also where the method has run.
    /// - The rank and what it passes on are one of the requests that [`CallConfig::tasks`] limits, and no calls
    ///   that other limits count.
    /// - Metrics count a rank's work as calls that it makes to itself, and spans are children of those of the
    ///   ranks between.
    ///
    /// ```
    /// use am_async::{CallEndpoint, Calls, Failure, Methods};
    /// use am_core::{Endpoint, Handlers, Rank, loopback};
    ///
    /// let mut methods = Methods::<u32>::new();
    /// let add = methods.function("add", |total: &mut u32, _, number: u32| {
    ///     *total += number;
    ///     Ok::<_, Failure>(*total)
    /// })?;
    /// let mut handlers = Handlers::new();
    /// let calls = Calls::register(&mut handlers, methods, 0)?;
    /// let mut endpoint = Endpoint::attach(loopback::single(), handlers, calls)?;
    /// let all = (0..endpoint.ranks()).map(Rank);
    /// let answers = endpoint.caller().call_each(all, add, &5).wait(&mut endpoint);
    /// assert_eq!(answers, [Ok(5)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn call_each<M: Callable>(
        &self,
        to: impl IntoIterator<Item = impl Destination>,
        method: M,
        request: &M::Request,
    ) -> CallEach<M> {
        let to: Vec<Address> = to.into_iter().map(Destination::address).collect();
        let outcomes = Vec::with_capacity(to.len());
        let (span, trace) = self.shared().tracer.several(self.trace(), "each", method.id().index);
        let caller = self.clone().part_of(trace);
        let parts: Vec<Part<M>> = {
            let _entered = span.enter();
            match caller.along_tree(&to, method, request) {
                Some(branches) => branches.into_iter().map(Part::Many).collect(),
                None => to.into_iter().map(|to| Part::One(caller.call(to, method, request))).collect(),
            }
        };
        CallEach { parts: parts.into_iter(), first: None, outcomes, span }
    }

    /// Sends a request along a tree, if it is worth that.
    fn along_tree<M: Callable>(&self, to: &[Address], method: M, request: &M::Request) -> Option<Vec<Branch>> {
        if to.len() < tree::RANKS {
            return None;
        }
        let CallConfig { tree_bytes, max_bytes, .. } = self.shared().table().config;
        let mut bytes = Vec::new();
        // What is wrong with a request or a destination, each call tells for itself.
        M::encode(request, &mut bytes).ok()?;
        let long =
            bytes.len() >= tree_bytes as usize && bytes.len() + tree::overhead(to.len()) <= max_bytes as usize;
        let known = |id: MethodId| {
            let known = self.shared().methods.get(usize::from(id.index));
            known.is_some_and(|known| known.digest == id.digest)
        };
        let all = |table: MutexGuard<'_, Table>| to.iter().all(|to| table.has(*to));
        let tree = long && known(method.id()) && all(self.shared().table());
        tree.then(|| tree::branches(self, None, method.id(), to, bytes))
    }
}

/// A call, or those of a part of a tree.
enum Part<M: Callable> {
    One(Call<M>),
    Many(Branch),
}

/// The outcomes of calls to several ranks; see [`Caller::call_each`].
#[must_use = "dropped calls are cancelled"]
pub struct CallEach<M: Callable> {
    parts: std::vec::IntoIter<Part<M>>,
    /// The first that has not ended.
    first: Option<Part<M>>,
    outcomes: Vec<CallResult<M>>,
    /// That of all calls.
    span: trace::Span,
}

impl<M: Callable> fmt::Debug for CallEach<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallEach").field("ended", &self.outcomes.len()).finish_non_exhaustive()
    }
}

impl<M: Callable> Unpin for CallEach<M> {}

impl<M: Callable> Future for CallEach<M> {
    type Output = Vec<CallResult<M>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let each = self.get_mut();
        // All of them are under way: it takes no longer to wait for one after the other.
        while let Some(mut part) = each.first.take().or_else(|| each.parts.next()) {
            let ended = match &mut part {
                Part::One(call) => match Pin::new(call).poll(context) {
                    Poll::Ready(outcome) => {
                        each.outcomes.push(outcome);
                        true
                    }
                    Poll::Pending => false,
                },
                Part::Many(branch) => match branch.take::<M>(context.waker()) {
                    Some(outcomes) => {
                        each.outcomes.extend(outcomes);
                        true
                    }
                    None => false,
                },
            };
            if !ended {
                each.first = Some(part);
                return Poll::Pending;
            }
        }
        Poll::Ready(std::mem::take(&mut each.outcomes))
    }
}

impl<M: Callable> CallEach<M> {
    /// Waits for all of them, and serves the endpoint meanwhile. Blocks.
    ///
    /// # Panics
    /// If the calls were made through another endpoint.
    pub fn wait<T: Transport, S: HasLayer<Calls<W>>, W: Send + 'static>(
        self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Vec<CallResult<M>> {
        let Self { parts, first, mut outcomes, span: _span } = self;
        for part in first.into_iter().chain(parts) {
            match part {
                Part::One(call) => outcomes.push(call.wait(endpoint)),
                Part::Many(branch) => outcomes.extend(branch.wait::<M, T, S, W>(endpoint)),
            }
        }
        outcomes
    }
}

/// Runs futures, of which at most `limit` are under way at a time, at least 1; yields what they do, in their
/// order. They are taken from the iterator when their turn has come, so that calls are not made earlier. Whenever
/// one of those under way can go on, all of them are looked at. Allocates for each.
///
/// ```
/// # use am_async::{CallEndpoint, Calls, Failure, Methods, join};
/// # use am_core::{Endpoint, Handlers, Rank, loopback};
/// # let mut methods = Methods::<()>::new();
/// # let double = methods.function("double", |_, _, number: u32| Ok::<_, Failure>(2 * number))?;
/// # let mut handlers = Handlers::new();
/// # let calls = Calls::register(&mut handlers, methods, ())?;
/// # let mut endpoint = Endpoint::attach(loopback::single(), handlers, calls)?;
/// let doubled = endpoint.run(|context| async move {
///     let calls = (0..100u32).map(|number| context.call(Rank(0), double, &number));
///     join(8, calls).await.into_iter().collect::<Result<Vec<_>, _>>()
/// })??;
/// assert_eq!(doubled[99], 198);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn join<I: IntoIterator<Item: Future>>(limit: usize, futures: I) -> Join<I::IntoIter> {
    Join {
        futures: futures.into_iter(),
        limit: limit.max(1),
        under_way: Vec::new(),
        outputs: Vec::new(),
        over: false,
    }
}

/// Futures with a bounded number under way; see [`join`].
#[must_use = "futures do nothing unless they are awaited"]
pub struct Join<I: Iterator<Item: Future>> {
    futures: I,
    limit: usize,
    /// With their places in the order.
    under_way: Vec<(usize, Pin<Box<I::Item>>)>,
    outputs: Vec<Option<<I::Item as Future>::Output>>,
    /// Whether no more are to come.
    over: bool,
}

impl<I: Iterator<Item: Future>> fmt::Debug for Join<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Join").field("under_way", &self.under_way.len()).finish_non_exhaustive()
    }
}

impl<I: Iterator<Item: Future>> Unpin for Join<I> {}

impl<I: Iterator<Item: Future>> Future for Join<I> {
    type Output = Vec<<I::Item as Future>::Output>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let join = self.get_mut();
        loop {
            let outputs = &mut join.outputs;
            join.under_way.retain_mut(|(place, future)| match future.as_mut().poll(context) {
                Poll::Ready(output) => {
                    outputs[*place] = Some(output);
                    false
                }
                Poll::Pending => true,
            });
            // New ones take the places of those that have ended, and are looked at, too.
            let before = join.under_way.len();
            while !join.over && join.under_way.len() < join.limit {
                match join.futures.next() {
                    Some(future) => {
                        join.under_way.push((join.outputs.len(), Box::pin(future)));
                        join.outputs.push(None);
                    }
                    None => join.over = true,
                }
            }
            if join.under_way.is_empty() {
                return Poll::Ready(join.outputs.drain(..).flatten().collect());
            }
            if join.under_way.len() == before {
                return Poll::Pending;
            }
        }
    }
}
