//! A method of a rank as a service of the crates around `tower`.

use crate::caller::{Call, Caller};
use crate::error::CallError;
use crate::method::Callable;
use crate::outcome::Polled;
use crate::table::Closed;
use am_core::slab::Key;
use am_core::{Address, Destination};
use std::borrow::Borrow;
use std::fmt;
use std::task::{Context, Poll};
use tower_service::Service;

/// A method of one rank as a [`tower_service::Service`]: a request goes in, the future of its answer comes out.
/// [`Caller::service`] makes it.
///
/// It is ready when a call would not wait for others: as many are under way to a rank, and in all, as
/// [`CallConfig`](crate::CallConfig) allows. One that is ready keeps the place until it has called or is dropped,
/// also towards calls that are made without a service, which wait meanwhile: do not keep a service ready that does
/// not call. Services and calls that wait for a place to the same rank get it in the order in which they came. A
/// clone is another service, which is not ready.
///
/// Requests are `M::Request`, or what borrows as one: a vector for a [`SliceMethod`](crate::SliceMethod).
///
/// ```
/// use am_async::{CallEndpoint, Calls, Failure, Methods};
/// use am_core::{Endpoint, Handlers, Rank, loopback};
/// use std::future::poll_fn;
/// use tower_service::Service;
///
/// let mut methods = Methods::<u64>::new();
/// let add = methods.function("add", |total, _, number: u64| {
///     *total += number;
///     Ok::<u64, Failure>(*total)
/// })?;
/// let mut handlers = Handlers::new();
/// let calls = Calls::register(&mut handlers, methods, 0)?;
/// let mut endpoint = Endpoint::attach(loopback::single(), handlers, calls)?;
/// let sum = endpoint.run(|context| async move {
///     let mut service = context.service(Rank(0), add);
///     for number in 0..10 {
///         // What tower's own adapters do.
///         poll_fn(|context| Service::<u64>::poll_ready(&mut service, context)).await?;
///         service.call(number).await?;
///     }
///     service.call(0).await
/// })??;
/// assert_eq!(sum, 45);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct MethodService<M: Callable> {
    caller: Caller,
    to: Address,
    method: M,
    permit: Option<Key>,
}

impl<M: Callable> fmt::Debug for MethodService<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MethodService").field("to", &self.to).finish_non_exhaustive()
    }
}

impl<M: Callable> Clone for MethodService<M> {
    fn clone(&self) -> Self {
        Self { caller: self.caller.clone(), to: self.to, method: self.method, permit: None }
    }
}

impl Caller {
    /// A method of a rank as a service, whose calls have this caller's deadline and timeout.
    pub fn service<M: Callable>(&self, to: impl Destination, method: M) -> MethodService<M> {
        MethodService { caller: self.clone(), to: to.address(), method, permit: None }
    }
}

impl<M: Callable> MethodService<M> {
    fn end_permit(&mut self) {
        if let Some(permit) = self.permit.take() {
            let shared = self.caller.shared();
            let (waker, others) = shared.table().end_permit(permit);
            drop(waker);
            if others {
                shared.bell.ring();
            }
        }
    }
}

impl<M: Callable> Drop for MethodService<M> {
    fn drop(&mut self) {
        self.end_permit();
    }
}

impl<M: Callable, Q: Borrow<M::Request>> Service<Q> for MethodService<M> {
    type Response = M::Response;
    type Error = CallError<M::Error>;
    type Future = Call<M>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        let permit = self.caller.shared().table().permit(self.to, &mut self.permit, context.waker());
        match permit {
            Ok(Polled::Ready(())) => Poll::Ready(Ok(())),
            // An old waker is dropped here, where nothing is locked.
            Ok(Polled::Pending(_)) => Poll::Pending,
            Err(Closed) => Poll::Ready(Err(CallError::Closed)),
        }
    }

    /// Calls; one that was not ready waits in the queue of its caller.
    fn call(&mut self, request: Q) -> Call<M> {
        let Some(permit) = self.permit else { return self.caller.call(self.to, self.method, request.borrow()) };
        let call = self.caller.permitted(permit).call(self.to, self.method, request.borrow());
        // It was used, unless the call could not be made.
        self.end_permit();
        call
    }
}
