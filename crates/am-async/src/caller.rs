//! Callers and calls: the side that asks.

use crate::buffers;
use crate::error::{CallError, Refusal};
use crate::meter::End;
use crate::method::{Callable, Idempotent, MethodId, StreamMethod};
use crate::outcome::{Denied, Due, Ended, Entry, Outcome, Polled, Waiter};
use crate::shared::Shared;
use crate::trace::{self, Trace};
use crate::tree::Relay;
use crate::wire::Header;
use am_core::slab::Key;
use am_core::{Address, Destination, Instant, Span};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Makes calls through an endpoint, from any thread, and from futures on any executor. Clones are cheap.
///
/// The endpoint sends and receives whenever it is polled, or waits: a caller does nothing by itself.
#[derive(Clone)]
pub struct Caller {
    shared: Arc<Shared>,
    deadline: Option<Instant>,
    timeout: Option<Span>,
    /// What its calls are part of.
    trace: Trace,
    /// What the limits are to its calls.
    entry: Entry,
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// How calls are repeated that may be; see [`Caller::call_retrying`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retries {
    /// Calls in all, at least 1.
    pub attempts: u32,
    /// How long each may take.
    pub timeout: Option<Span>,
    /// The pause before the second; it doubles with each further one.
    pub pause: Span,
}

impl Retries {
    /// So many calls in all, each of which may take as long as it takes, with pauses of 1 ms, 2 ms and so on.
    pub const fn new(attempts: u32) -> Self {
        Self { attempts, timeout: None, pause: Span::from_millis(1) }
    }

    /// Sets how long each call may take.
    #[must_use]
    pub const fn timeout(mut self, timeout: Span) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the pause before the second call, which doubles with each further one.
    #[must_use]
    pub const fn pause(mut self, pause: Span) -> Self {
        self.pause = pause;
        self
    }
}

impl Caller {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, deadline: None, timeout: None, trace: Trace::default(), entry: Entry::Waits }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// A caller whose calls end with [`CallError::TimedOut`] when they have taken so long. The time counts from
    /// when the endpoint first sees the call, travels with it, and includes waiting for others.
    #[must_use]
    pub fn timeout(&self, timeout: Span) -> Self {
        Self { timeout: Some(timeout), ..self.clone() }
    }

    /// A caller whose calls end with [`CallError::TimedOut`] at a time of the endpoint, or at this caller's
    /// deadline if that is earlier.
    #[must_use]
    pub fn deadline(&self, at: Instant) -> Self {
        self.clone().within(Some(at))
    }

    pub(crate) fn within(mut self, deadline: Option<Instant>) -> Self {
        self.deadline = match (self.deadline, deadline) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self
    }

    /// A caller that passes a request on.
    pub(crate) fn uncounted(&self) -> Self {
        Self { entry: Entry::Uncounted, ..self.clone() }
    }

    /// A caller whose next call has a permit.
    #[cfg(feature = "tower")]
    pub(crate) fn permitted(&self, permit: Key) -> Self {
        Self { entry: Entry::Permitted(permit), ..self.clone() }
    }

    pub(crate) fn trace(&self) -> Trace {
        self.trace
    }

    pub(crate) fn part_of(mut self, trace: Trace) -> Self {
        self.trace = trace;
        self
    }

    /// A caller whose calls are children of a span, maybe of another system's; see
    /// [`CallConfig::tracing`](crate::CallConfig).
    #[cfg(feature = "tracing")]
    #[must_use]
    pub fn traced(&self, span: crate::TraceContext) -> Self {
        self.clone().part_of(Some(span))
    }

    /// The method that passes requests on along a tree, which is the last one.
    pub(crate) fn relay(&self) -> Relay {
        let methods = &self.shared.methods;
        let digest = methods.last().map_or(0, |known| known.digest);
        Relay::new(MethodId { index: methods.len().saturating_sub(1) as u16, digest })
    }

    fn due(&self) -> Due {
        match (self.deadline, self.timeout) {
            (Some(at), None) => Due::At(at),
            (None, Some(span)) => Due::After(span),
            (None, None) => Due::Never,
            (Some(at), Some(span)) => Due::Within(at, span),
        }
    }

    fn begin<E>(
        &self,
        to: Address,
        id: MethodId,
        flags: u16,
        entry: Entry,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), String>,
    ) -> Result<(Key, trace::Span), CallError<E>> {
        let (request, span) = encoded(&self.shared, self.trace, to, id, encode)?;
        let key = enqueue(&self.shared, to, Header::new(id, flags), request, self.due(), entry)?;
        Ok((key, span))
    }

    /// Calls a method: the future yields the answer. The call is made now, whether the future is polled or not;
    /// dropping it cancels the call. Calls of one caller to one rank are sent in the order in which they were
    /// made. Where as many are under way as [`CallConfig`](crate::CallConfig) allows, further ones wait. Does not
    /// block; allocates only until buffers have been used.
    ///
    /// What can be wrong is the future's to tell.
    pub fn call<M: Callable>(&self, to: impl Destination, method: M, request: &M::Request) -> Call<M> {
        self.call_as(to.address(), method.id(), 0, |into| M::encode(request, into))
    }

    /// [`Caller::call`] of a method whose request is written so.
    #[inline]
    pub(crate) fn call_as<M: Callable>(
        &self,
        to: Address,
        id: MethodId,
        flags: u16,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), String>,
    ) -> Call<M> {
        let begun = self.begin(to, id, flags, self.entry, encode);
        Call::new(Arc::clone(&self.shared), to, id, begun, self.timeout)
    }

    /// [`Caller::call`], unless the call would wait for others.
    ///
    /// # Errors
    /// [`CallError::Busy`] if as many calls are under way as may be, and what `call` fails with before anything is
    /// sent.
    pub fn try_call<M: Callable>(
        &self,
        to: impl Destination,
        method: M,
        request: &M::Request,
    ) -> Result<Call<M>, CallError<M::Error>> {
        let to = to.address();
        let id = method.id();
        let begun = self.begin(to, id, 0, Entry::Immediate, |into| M::encode(request, into))?;
        Ok(Call::new(Arc::clone(&self.shared), to, id, Ok(begun), self.timeout))
    }

    /// Has a method run without an answer. Nothing tells whether it has run, or how it ended; its span ends here,
    /// without an outcome.
    ///
    /// # Errors
    /// What [`Caller::call`] fails with before anything is sent.
    pub fn one_way<M: Callable>(
        &self,
        to: impl Destination,
        method: M,
        request: &M::Request,
    ) -> Result<(), CallError<M::Error>> {
        self.begin(to.address(), method.id(), Header::ONE_WAY, self.entry, |into| M::encode(request, into))?;
        Ok(())
    }

    /// Calls a method that may be repeated until it answers, if the callee refused the request, or did not answer
    /// in time. This caller's [timeout](Caller::timeout) and [deadline](Caller::deadline) are those of all
    /// attempts together, with the pauses between them. Each attempt is a call of its own where calls are counted;
    /// their spans are children of one.
    ///
    /// # Errors
    /// As a call's, of the last attempt. The loss of the callee ends the attempts.
    pub async fn call_retrying<M: Callable>(
        &self,
        to: impl Destination,
        method: Idempotent<M>,
        request: &M::Request,
        retries: Retries,
    ) -> Result<M::Response, CallError<M::Error>> {
        let (to, mut pause) = (to.address(), retries.pause);
        let (span, trace) = self.shared.tracer.several(self.trace, "attempts", method.id().index);
        let mut end = match self.due() {
            Due::Never => None,
            due => Some(self.sleep_until(due)),
        };
        let caller = match retries.timeout {
            Some(timeout) => self.timeout(self.timeout.map_or(timeout, |all| all.min(timeout))),
            None => self.clone(),
        };
        let caller = caller.part_of(trace);
        let timed_out = Err(CallError::TimedOut { to, after: self.timeout });
        let mut attempt = 1;
        loop {
            let call = {
                let _entered = span.enter();
                caller.call(to, method, request)
            };
            match before(&mut end, call).await {
                None => return timed_out,
                Some(Err(CallError::TimedOut { .. } | CallError::Refused { .. }))
                    if attempt < retries.attempts =>
                {
                    attempt += 1;
                    if before(&mut end, self.sleep(pause)).await.is_none() {
                        return timed_out;
                    }
                    pause = Span(pause.0.saturating_mul(2));
                }
                Some(outcome) => return outcome,
            }
        }
    }

    /// Calls a method that answers any number of times. Answers come as they are taken: the callee waits when
    /// [`CallConfig::stream_window`](crate::CallConfig::stream_window) of them have not been. Dropping the stream
    /// cancels the call.
    pub fn stream<Q, R, E>(
        &self,
        to: impl Destination,
        method: StreamMethod<Q, R, E>,
        request: &Q,
    ) -> Answers<R, E>
    where
        Q: Serialize,
        R: DeserializeOwned,
        E: DeserializeOwned,
    {
        let to = to.address();
        let begun =
            self.begin(to, method.id, Header::STREAM, self.entry, |into| crate::method::encode(request, into));
        let (key, error, span) = match begun {
            Ok((key, span)) => (Some(key), None, span),
            Err(error) => (None, Some(error), trace::Span::default()),
        };
        Answers {
            shared: Arc::clone(&self.shared),
            index: method.id.index,
            key,
            error,
            to,
            timeout: self.timeout,
            span,
            types: PhantomData,
        }
    }

    /// Ends after some time of the endpoint; of the machine, if it is simulated. Dropping it leaves nothing
    /// behind.
    pub fn sleep(&self, span: Span) -> Sleep {
        self.sleep_until(Due::After(span))
    }

    /// The endpoint's time when it next looks at it, at once if it can; of the machine, if it is simulated. A
    /// [deadline](Caller::deadline) of a future is counted from here. Once the endpoint is gone, when it last
    /// looked.
    ///
    /// ```
    /// # use am_async::{CallError, Caller, Context, Method};
    /// # use am_core::{Rank, Span};
    /// # async fn method(context: Context<u64>, add: Method<u64, u64>) -> Result<u64, CallError> {
    /// // Both calls together have a millisecond.
    /// let until = context.now().await + Span::from_millis(1);
    /// let both = Caller::deadline(&context, until);
    /// let sum = both.call(Rank(1), add, &1).await?;
    /// both.call(Rank(2), add, &sum).await
    /// # }
    /// ```
    pub async fn now(&self) -> Instant {
        self.sleep(Span::ZERO).await;
        self.shared.table().now
    }

    fn sleep_until(&self, due: Due) -> Sleep {
        Sleep { shared: Arc::clone(&self.shared), due, key: None }
    }

    /// What the endpoint has counted of its calls, as a caller and as a callee, if
    /// [`CallConfig`](crate::CallConfig) asks for it. Any thread may ask; a call that has just ended is timed when
    /// the endpoint has looked after it. Allocates.
    #[cfg(feature = "metrics")]
    pub fn metrics(&self) -> Option<crate::metrics::Metrics> {
        self.shared.meter.snapshot()
    }

    /// Calls of this endpoint that are under way.
    pub fn under_way(&self) -> u32 {
        self.shared.table().under_way()
    }

    /// Calls of this endpoint that are held: queued, under way, or ended without their futures having been polled
    /// since.
    pub fn held(&self) -> usize {
        self.shared.table().len()
    }
}

/// The bytes of a request, in a buffer that goes round, and the span of its call.
#[inline]
pub(crate) fn encoded<E>(
    shared: &Shared,
    trace: Trace,
    to: Address,
    id: MethodId,
    encode: impl FnOnce(&mut Vec<u8>) -> Result<(), String>,
) -> Result<(Vec<u8>, trace::Span), CallError<E>> {
    let known = shared.methods.get(usize::from(id.index)).filter(|known| known.digest == id.digest);
    let known = known.ok_or(CallError::ForeignMethod)?;
    let mut request = known.buffer();
    let span = shared.tracer.call(trace, id.index, to, &mut request);
    if let Err(text) = encode(&mut request) {
        buffers::give(request);
        return Err(CallError::Unserialisable(text));
    }
    known.had(request.len());
    Ok((request, span))
}

/// Puts a call into its peer's queue.
pub(crate) fn enqueue<E>(
    shared: &Shared,
    to: Address,
    header: Header,
    request: Vec<u8>,
    due: Due,
    entry: Entry,
) -> Result<Key, CallError<E>> {
    let waiter = if shared.bell.current_poll() == 0 { Waiter::Nobody } else { Waiter::Root };
    let started = shared.table().start(to, header, request, due, entry, waiter);
    match started {
        Ok(key) => {
            shared.bell.ring();
            Ok(key)
        }
        Err((denied, request)) => {
            buffers::give(request);
            Err(match denied {
                Denied::NoSuchRank { ranks } => CallError::NoSuchRank { to, ranks },
                Denied::RequestTooLarge { bytes, limit } => CallError::RequestTooLarge { bytes, limit },
                Denied::Busy(why) => CallError::Busy { to, why },
                Denied::Closed => CallError::Closed,
            })
        }
    }
}

/// The error that an end without an answer means.
fn error_of<E>(
    outcome: Outcome,
    to: Address,
    after: Option<Span>,
    bytes: &[u8],
    decode_error: impl FnOnce(&[u8]) -> Option<E>,
) -> CallError<E> {
    match outcome {
        Outcome::Failed => decode_error(bytes).map_or(CallError::BadAnswer { to }, CallError::Failed),
        Outcome::Panicked => CallError::Panicked { to, text: String::from_utf8_lossy(bytes).into_owned() },
        Outcome::RefusedTasks => CallError::Refused { to, why: Refusal::Tasks },
        Outcome::RefusedMethod => CallError::Refused { to, why: Refusal::Method },
        Outcome::BadRequest => CallError::BadRequest { to },
        Outcome::Answer | Outcome::BadAnswer => CallError::BadAnswer { to },
        Outcome::RequestTooLarge { bytes, limit } => CallError::RequestTooLarge { bytes, limit },
        Outcome::AnswerTooLarge { bytes, limit } => CallError::AnswerTooLarge { bytes, limit },
        Outcome::TimedOut => CallError::TimedOut { to, after },
        Outcome::Lost(cause) => CallError::RankLost { rank: to.rank, cause },
        Outcome::Finished => CallError::Finished(to.rank),
        Outcome::Closed => CallError::Closed,
        Outcome::Send(error) => CallError::Send(error),
    }
}

/// How a call has ended that was counted so, once its answer has been read: what is no value of its type is not
/// one.
#[inline]
fn as_read<E>(shared: &Shared, index: u16, end: End, error: Option<&CallError<E>>) -> End {
    if matches!(error, Some(CallError::BadAnswer { .. })) && matches!(end, End::Answered | End::Failed) {
        shared.recount(index, end, End::Malformed);
        return End::Malformed;
    }
    end
}

/// How a call of a method ends for whoever made it.
type Answer<M> = Result<<M as Callable>::Response, CallError<<M as Callable>::Error>>;

/// A call under way: a future of its answer. Dropping it cancels the call, of which the callee learns.
///
/// Not on an executor, [`Call::wait`](crate::Call::wait) waits for it.
#[must_use = "a dropped call is cancelled; `one_way` is a call without an answer"]
pub struct Call<M: Callable> {
    /// Where the call is, until its answer was handed out.
    held: Option<(Arc<Shared>, Key)>,
    error: Option<CallError<M::Error>>,
    to: Address,
    timeout: Option<Span>,
    /// Of the crate `tracing`; it ends with the call.
    span: trace::Span,
    /// The method's place in the table.
    index: u16,
    /// The poll of the endpoint's future in which it was made, if it was: in that it does not end, and whoever
    /// polls it there as the endpoint does waits for it already.
    made_in: u64,
    /// The events of the endpoint, of those that may end calls, that were looked at by who waits for it.
    seen: Option<u64>,
    /// What stays until the call has ended.
    keeps: Option<Arc<dyn Any + Send + Sync>>,
    method: PhantomData<fn() -> M>,
}

impl<M: Callable> fmt::Debug for Call<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("to", &self.to).finish_non_exhaustive()
    }
}

impl<M: Callable> Unpin for Call<M> {}

impl<M: Callable> Call<M> {
    #[inline]
    pub(crate) fn new(
        shared: Arc<Shared>,
        to: Address,
        id: MethodId,
        begun: Result<(Key, trace::Span), CallError<M::Error>>,
        timeout: Option<Span>,
    ) -> Self {
        match begun {
            Ok((key, span)) => Self::under_way(shared, key, to, id, span, timeout),
            Err(error) => Self::failed(error, to, id, timeout),
        }
    }

    #[inline]
    pub(crate) fn under_way(
        shared: Arc<Shared>,
        key: Key,
        to: Address,
        id: MethodId,
        span: trace::Span,
        timeout: Option<Span>,
    ) -> Self {
        let (made_in, held) = (shared.bell.current_poll(), Some((shared, key)));
        let (error, index, seen, keeps, method) = (None, id.index, None, None, PhantomData);
        Self { held, error, to, timeout, span, index, made_in, seen, keeps, method }
    }

    /// A call that came to nothing before it was made.
    pub(crate) fn failed(error: CallError<M::Error>, to: Address, id: MethodId, timeout: Option<Span>) -> Self {
        let (held, error, span, index, made_in) = (None, Some(error), trace::Span::default(), id.index, 0);
        Self { held, error, to, timeout, span, index, made_in, seen: None, keeps: None, method: PhantomData }
    }

    /// It was sent when the endpoint had counted so many events that may end calls: only later ones end it.
    #[inline]
    pub(crate) fn sent_at(mut self, events: u64) -> Self {
        self.seen = Some(events);
        self
    }

    /// The events that were looked at.
    pub(crate) fn seen(&mut self) -> &mut Option<u64> {
        &mut self.seen
    }

    /// Whether the answer was handed out.
    pub(crate) fn is_over(&self) -> bool {
        self.held.is_none() && self.error.is_none()
    }

    /// Where the call is, until its answer was handed out.
    pub(crate) fn held(&self) -> Option<&(Arc<Shared>, Key)> {
        self.held.as_ref()
    }

    /// Has something stay until the call has ended.
    pub(crate) fn keeping(mut self, what: Arc<dyn Any + Send + Sync>) -> Self {
        self.keeps = Some(what);
        self
    }

    /// Who was called.
    pub fn callee(&self) -> Address {
        self.to
    }

    /// Whether the answer, or an error, is there.
    pub fn is_ready(&self) -> bool {
        self.held.as_ref().is_none_or(|(shared, key)| shared.table().is_done(*key))
    }

    /// The answer, if it is there. Once it was handed out, there is none.
    pub(crate) fn take(&mut self, waker: Option<&Waker>) -> Option<Result<M::Response, CallError<M::Error>>> {
        if let Some(error) = self.error.take() {
            return Some(Err(error));
        }
        let (shared, key) = self.held.as_ref()?;
        if waker.is_some_and(|waker| shared.bell.is_polled(self.made_in, waker)) {
            return None;
        }
        // Whoever else polls it in between may be the one that waits then.
        self.made_in = 0;
        let polled = shared.table().poll(*key, waker);
        let Polled::Ready(ended) = polled else { return None };
        Some(self.read(ended).0)
    }

    /// The answer of a call that has ended and is in its table no longer, and what it held of that.
    #[inline]
    pub(crate) fn read(&mut self, (outcome, bytes): Ended) -> (Answer<M>, Option<Arc<Shared>>) {
        let shared = self.held.take().map(|(shared, _)| shared);
        let end = End::of_outcome(&outcome);
        let outcome = match outcome {
            Outcome::Answer => M::decode(&bytes).map_err(|_| CallError::BadAnswer { to: self.to }),
            outcome => Err(error_of(outcome, self.to, self.timeout, &bytes, |bytes| M::decode_error(bytes).ok())),
        };
        let end = match &shared {
            Some(shared) => as_read(shared, self.index, end, outcome.as_ref().err()),
            None => end,
        };
        self.span.ended(|| end);
        buffers::give(bytes);
        self.keeps = None;
        (outcome, shared)
    }
}

impl<M: Callable> Future for Call<M> {
    type Output = Result<M::Response, CallError<M::Error>>;

    /// # Panics
    /// If the answer was handed out before.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let call = self.get_mut();
        assert!(!call.is_over(), "a call was polled after it had yielded its answer");
        call.take(Some(context.waker())).map_or(Poll::Pending, Poll::Ready)
    }
}

impl<M: Callable> Drop for Call<M> {
    fn drop(&mut self) {
        if let Some((shared, key)) = self.held.take() {
            self.span.ended(|| End::Cancelled);
            let waker = shared.table().cancel(key);
            drop(waker);
            shared.bell.ring();
        }
    }
}

/// The answers of a method that has several, as they come. Dropping it cancels the call.
#[must_use = "a dropped stream of answers is cancelled"]
pub struct Answers<R, E> {
    pub(crate) shared: Arc<Shared>,
    /// The method's place in the table.
    index: u16,
    key: Option<Key>,
    error: Option<CallError<E>>,
    to: Address,
    timeout: Option<Span>,
    /// Of the crate `tracing`; it ends with the call.
    span: trace::Span,
    types: PhantomData<fn() -> R>,
}

impl<R, E> fmt::Debug for Answers<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answers").field("to", &self.to).finish_non_exhaustive()
    }
}

impl<R, E> Unpin for Answers<R, E> {}

impl<R: DeserializeOwned, E: DeserializeOwned> Answers<R, E> {
    /// The next answer, or `None` after the last one. After an error there is none.
    pub async fn next(&mut self) -> Option<Result<R, CallError<E>>> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// [`Answers::next`] as a step of another future.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<R, CallError<E>>>> {
        self.take(Some(context.waker()))
    }

    pub(crate) fn take(&mut self, waker: Option<&Waker>) -> Poll<Option<Result<R, CallError<E>>>> {
        if let Some(error) = self.error.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let Some(key) = self.key else { return Poll::Ready(None) };
        let polled = self.shared.table().poll_stream(key, waker);
        let Polled::Ready(next) = polled else { return Poll::Pending };
        let outcome = match next {
            Ok(bytes) => {
                // The callee may be told of it.
                self.shared.bell.ring();
                let value = crate::method::decode(&bytes).map_err(|_| CallError::BadAnswer { to: self.to });
                buffers::give(bytes);
                Some(value)
            }
            Err((outcome, bytes)) => {
                self.key = None;
                let end = End::of_outcome(&outcome);
                let error = match outcome {
                    Outcome::Answer => None,
                    outcome => Some(error_of(outcome, self.to, self.timeout, &bytes, |bytes| {
                        crate::method::decode(bytes).ok()
                    })),
                };
                let end = as_read(&self.shared, self.index, end, error.as_ref());
                self.span.ended(|| end);
                buffers::give(bytes);
                error.map(Err)
            }
        };
        if let Some(Err(_)) = outcome {
            self.give_up(End::Malformed);
        }
        Poll::Ready(outcome)
    }
}

impl<R, E> Answers<R, E> {
    /// The time that it has, if that was given as a span.
    pub(crate) fn time(&self) -> Option<Span> {
        self.timeout
    }

    /// Cancels the call, for this reason.
    fn give_up(&mut self, end: End) {
        if let Some(key) = self.key.take() {
            self.span.ended(|| end);
            let mut table = self.shared.table();
            let counted = table.end_of(key).unwrap_or(End::Cancelled);
            let waker = table.cancel(key);
            drop(table);
            drop(waker);
            if end == End::Malformed {
                self.shared.recount(self.index, counted, end);
            }
            self.shared.bell.ring();
        }
    }
}

impl<R, E> Drop for Answers<R, E> {
    fn drop(&mut self) {
        self.give_up(End::Cancelled);
    }
}

/// What a future yields, unless a time comes before.
async fn before<F: Future + Unpin>(end: &mut Option<Sleep>, mut future: F) -> Option<F::Output> {
    std::future::poll_fn(|context| match (Pin::new(&mut future).poll(context), &mut *end) {
        (Poll::Ready(output), _) => Poll::Ready(Some(output)),
        (Poll::Pending, Some(end)) => Pin::new(end).poll(context).map(|()| None),
        (Poll::Pending, None) => Poll::Pending,
    })
    .await
}

/// A future that ends after some time, and at once if the endpoint is gone; see [`Caller::sleep`].
#[derive(Debug)]
#[must_use = "a sleep does nothing unless it is awaited"]
pub struct Sleep {
    shared: Arc<Shared>,
    due: Due,
    key: Option<Key>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let sleep = self.get_mut();
        let mut table = sleep.shared.table();
        let Some(key) = sleep.key else {
            sleep.key = table.sleep(sleep.due, context.waker());
            drop(table);
            if sleep.key.is_none() {
                return Poll::Ready(());
            }
            sleep.shared.bell.ring();
            return Poll::Pending;
        };
        let slept = table.slept(key, context.waker());
        drop(table);
        if let Polled::Ready(()) = slept { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let waker = self.shared.table().end_sleep(key);
            drop(waker);
        }
    }
}
