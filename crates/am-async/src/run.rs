//! Calls on an endpoint: futures that it runs, and waits that block.

use crate::buffers;
use crate::caller::{Answers, Call, Caller, encoded, enqueue};
use crate::context::{Context, Origin};
use crate::error::CallError;
use crate::layer::{Calls, call_at_once, call_from_memory, is_long, send_at_once};
use crate::method::{Callable, StreamMethod};
use crate::outcome::{Due, Entry};
use crate::shared::Root;
use crate::trace::Trace;
use crate::wire::Header;
use am_core::{Destination, Endpoint, HasLayer, Transport, WaitError, WaitReason};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::task::{self, Poll, Waker};

/// Polls in a row of a future that wakes itself.
const YIELDS: usize = 64;

/// What an [`Endpoint`] with [`Calls`] can do. `W` is the state that methods work on.
pub trait CallEndpoint<W> {
    /// What makes calls, from any thread and any executor.
    fn caller(&mut self) -> Caller;

    /// Calls a method; see [`Caller::call`]. The answer is waited for with [`Call::wait`].
    ///
    /// A long slice is sent from where it lies, as far as its callee takes it at once, for which the endpoint
    /// polls; the rest is copied.
    fn call<M: Callable>(&mut self, to: impl Destination, method: M, request: &M::Request) -> Call<M>;

    /// Calls a method that answers any number of times; see [`Caller::stream`].
    fn stream<Q, R, E>(
        &mut self,
        to: impl Destination,
        method: StreamMethod<Q, R, E>,
        request: &Q,
    ) -> Answers<R, E>
    where
        Q: Serialize,
        R: DeserializeOwned,
        E: DeserializeOwned;

    /// Runs a future to its end, and serves the endpoint meanwhile. The future may call, wait for time, use the
    /// state between awaits, and borrow from where it is made; it sees calls of other ranks answered. On a
    /// simulated machine its time is the machine's. Blocks.
    ///
    /// Losses of ranks do not end it: calls to them fail, and the next poll or wait of the endpoint tells of them.
    ///
    /// # Errors
    /// An error of a handler or layer, and the endpoint's time-out; the future is dropped then.
    fn run<F, T>(&mut self, program: F) -> Result<T::Output, WaitError>
    where
        F: FnOnce(Context<W>) -> T,
        T: Future;

    /// Answers calls until `over` holds of the state that methods work on, for ranks that only serve. Blocks.
    ///
    /// # Errors
    /// As [`CallEndpoint::run`].
    fn serve_until(&mut self, over: impl FnMut(&W) -> bool) -> Result<(), WaitError>;
}

impl<T: Transport, S: HasLayer<Calls<W>>, W: Send + 'static> CallEndpoint<W> for Endpoint<T, S> {
    fn caller(&mut self) -> Caller {
        let (shape, waker, address) = (self.shape(), self.transport().waker(), self.address());
        let calls = self.layer_mut::<Calls<W>>();
        calls.has_callers();
        let shared = Arc::clone(&calls.environment().shared);
        shared.is_at(address);
        shared.bell.set_waker(waker);
        shared.table().set_shape(shape);
        Caller::new(shared)
    }

    fn call<M: Callable>(&mut self, to: impl Destination, method: M, request: &M::Request) -> Call<M> {
        let (to, id) = (to.address(), method.id());
        let calls = self.layer_unscheduled::<Calls<W>>();
        let (events, shared) = (calls.events(), calls.link());
        shared.is_at(self.address());
        let header = Header::new(id, 0);
        if let Some(bytes) = M::bytes(request).filter(|bytes| is_long(self, to, bytes.len())) {
            // What the caller puts before them.
            let begun = encoded(&shared, Trace::default(), to, id, |_| Ok(())).and_then(|(before, span)| {
                let key = call_from_memory(self, &shared, to, header, before, bytes).or_else(|before| {
                    let mut request = buffers::take_for(before.len() + bytes.len());
                    request.extend_from_slice(&before);
                    request.extend_from_slice(bytes);
                    buffers::give(before);
                    quietly(self, |caller| enqueue(caller.shared(), to, header, request, Due::Never, Entry::Waits))
                });
                Ok((key?, span))
            });
            return Call::new(shared, to, id, begun, None);
        }
        match encoded(&shared, Trace::default(), to, id, |into| M::encode(request, into)) {
            Ok((request, span)) => match call_at_once(self, &shared, to, header, request) {
                Ok((key, true)) => Call::under_way(shared, key, to, id, span, None).sent_at(events),
                // It may have ended, of which no event tells.
                Ok((key, false)) => Call::under_way(shared, key, to, id, span, None),
                Err(request) => {
                    let key = quietly(self, |caller| {
                        enqueue(caller.shared(), to, header, request, Due::Never, Entry::Waits)
                    });
                    Call::new(shared, to, id, key.map(|key| (key, span)), None)
                }
            },
            Err(error) => Call::failed(error, to, id, None),
        }
    }

    fn stream<Q, R, E>(
        &mut self,
        to: impl Destination,
        method: StreamMethod<Q, R, E>,
        request: &Q,
    ) -> Answers<R, E>
    where
        Q: Serialize,
        R: DeserializeOwned,
        E: DeserializeOwned,
    {
        quietly(self, |caller| caller.stream(to, method, request))
    }

    fn run<F, P>(&mut self, program: F) -> Result<P::Output, WaitError>
    where
        F: FnOnce(Context<W>) -> P,
        P: Future,
    {
        let source = self.address();
        let (shape, waker) = (self.shape(), self.transport().waker());
        let environment = Arc::clone(self.layer_mut::<Calls<W>>().environment());
        environment.shared.is_at(source);
        environment.shared.bell.set_waker(waker);
        environment.shared.table().set_shape(shape);
        let context = Context::new(&environment, Origin::new(source, None, Trace::default()), None);
        let root = Root::new(&environment.shared);
        let waker = Waker::from(Arc::clone(&root));
        self.layer_unscheduled::<Calls<W>>().set_root(Some((Arc::clone(&root), waker.clone())));
        let mut program = pin!(program(context));
        let outcome = wait(self, |endpoint| {
            for _ in 0..YIELDS {
                if !root.take() {
                    return None;
                }
                let poll = environment.shared.bell.poll(&waker);
                let calls = endpoint.layer_unscheduled::<Calls<W>>();
                let polled = calls.lend(|| program.as_mut().poll(&mut task::Context::from_waker(&waker)));
                if let Poll::Ready(output) = polled {
                    return Some(output);
                }
                let rang = poll.rang();
                drop(poll);
                if rang {
                    send_at_once(endpoint, &environment);
                }
                if !root.is_woken() {
                    return None;
                }
                // It has woken itself, to let others go on.
                endpoint.serve_through();
            }
            // Nor does the endpoint sleep before its next turn.
            environment.shared.bell.call();
            None
        });
        self.layer_unscheduled::<Calls<W>>().set_root(None);
        outcome
    }

    fn serve_until(&mut self, mut over: impl FnMut(&W) -> bool) -> Result<(), WaitError> {
        wait(self, |endpoint| over(endpoint.layer_unscheduled::<Calls<W>>().world()).then_some(()))
    }
}

/// Makes a call without waking the endpoint, which is here.
fn quietly<T: Transport, S: HasLayer<Calls<W>>, W: Send + 'static, R>(
    endpoint: &mut Endpoint<T, S>,
    make: impl FnOnce(&Caller) -> R,
) -> R {
    let (shape, address) = (endpoint.shape(), endpoint.address());
    // What is made is work for the layer.
    let shared = Arc::clone(&endpoint.layer_mut::<Calls<W>>().environment().shared);
    shared.is_at(address);
    shared.table().set_shape(shape);
    let before = shared.bell.enter();
    let caller = Caller::new(shared);
    let made = make(&caller);
    caller.shared().bell.leave(before);
    made
}

/// Serves the endpoint until `done` yields something. What is due ends the endpoint's sleep, since the layer asks
/// for that.
fn wait<T: Transport, S: HasLayer<Calls<W>>, W: Send + 'static, R>(
    endpoint: &mut Endpoint<T, S>,
    mut done: impl FnMut(&mut Endpoint<T, S>) -> Option<R>,
) -> Result<R, WaitError> {
    endpoint.wait_through(|endpoint| {
        if let Some(result) = done(endpoint) {
            return Ok(ControlFlow::Break(result));
        }
        // What has been left to do, or lost, is the layer's to look at in the next poll.
        let losses = endpoint.losses();
        let calls = endpoint.layer_unscheduled::<Calls<W>>();
        if calls.is_behind(losses) {
            calls.look_again();
        }
        if calls.is_pending() {
            endpoint.layer_mut::<Calls<W>>();
        }
        Ok(ControlFlow::Continue(WaitReason::Message))
    })
}

impl<M: Callable> Call<M> {
    /// Waits for the answer, and serves the endpoint meanwhile. Blocks.
    ///
    /// # Errors
    /// As the call's; [`CallError::Wait`] if serving the endpoint failed, or the endpoint's time-out ran out: the
    /// call is cancelled then.
    ///
    /// # Panics
    /// If the call is under way at another endpoint, or its answer was handed out before.
    pub fn wait<T: Transport, S: HasLayer<Calls<W>>, W: Send + 'static>(
        mut self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<M::Response, CallError<M::Error>> {
        let calls = endpoint.layer_unscheduled::<Calls<W>>();
        let same = self.held().is_none_or(|(shared, _)| Arc::ptr_eq(&calls.environment().shared, shared));
        assert!(same, "the call was made through another endpoint");
        assert!(!self.is_over(), "a call was waited for after it had yielded its answer");
        calls.await_call(self.held().map(|(_, key)| *key));
        let waited = wait(endpoint, |endpoint| {
            let calls = endpoint.layer_unscheduled::<Calls<W>>();
            if let Some(ended) = calls.take_handed() {
                let (answer, link) = self.read(ended);
                calls.keep_link(link);
                return Some(answer);
            }
            let events = Some(calls.events());
            // Nothing else ends a call.
            if std::mem::replace(self.seen(), events) == events { None } else { self.take(None) }
        });
        if let Some((_, bytes)) = endpoint.layer_unscheduled::<Calls<W>>().await_call(None) {
            // It has ended in the very step in which waiting failed.
            buffers::give(bytes);
        }
        waited?
    }
}

impl<R: DeserializeOwned, E: DeserializeOwned> Answers<R, E> {
    /// Waits for the next answer, and serves the endpoint meanwhile; `None` after the last one. Blocks.
    ///
    /// # Errors
    /// As [`Call::wait`].
    ///
    /// # Panics
    /// If the call was made through another endpoint.
    pub fn wait_next<T: Transport, S: HasLayer<Calls<W>>, W: Send + 'static>(
        &mut self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Option<Result<R, CallError<E>>> {
        let shared = &endpoint.layer_unscheduled::<Calls<W>>().environment().shared;
        assert!(Arc::ptr_eq(shared, &self.shared), "the call was made through another endpoint");
        let waited = wait(endpoint, |_| match self.take(None) {
            Poll::Ready(next) => Some(next),
            Poll::Pending => None,
        });
        waited.unwrap_or_else(|error| Some(Err(error.into())))
    }
}
