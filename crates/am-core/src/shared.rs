//! An endpoint that several threads share behind a lock.
//!
//! Every operation locks for as long as it takes; waits let go of the lock between their steps, so that other threads
//! can send and poll meanwhile. The fast mode is one endpoint per thread; this is the simple one.

use crate::address::Destination;
use crate::arguments::Arguments;
use crate::endpoint::Endpoint;
use crate::error::{PollError, SendError, WaitError};
use crate::handlers::Request;
use crate::time::Span;
use crate::transport::Transport;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

/// A clonable, locked [`Endpoint`].
///
/// Handlers run on whichever thread polls. A handler must not use the shared endpoint it runs on: it would wait for its
/// own lock; this is reported as a panic where the lock can tell.
pub struct SharedEndpoint<T: Transport, S> {
    inner: Arc<Mutex<Endpoint<T, S>>>,
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

/// How long a fruitless wait step may hold the lock.
const STEP: Span = Span::from_micros(50);

impl<T: Transport, S> SharedEndpoint<T, S> {
    /// Shares an endpoint.
    pub fn new(endpoint: Endpoint<T, S>) -> Self {
        Self { inner: Arc::new(Mutex::new(endpoint)) }
    }

    /// Locks the endpoint for several operations in a row.
    ///
    /// # Panics
    /// If another thread panicked while it held the lock (its handler may have left the state half changed).
    pub fn lock(&self) -> MutexGuard<'_, Endpoint<T, S>> {
        self.inner.lock().expect("no thread panicked inside the shared endpoint")
    }

    /// Takes the endpoint back if this is its last handle.
    ///
    /// # Errors
    /// This handle, if there are others.
    ///
    /// # Panics
    /// As [`SharedEndpoint::lock`].
    pub fn into_inner(self) -> Result<Endpoint<T, S>, Self> {
        let inner = Arc::try_unwrap(self.inner).map_err(|inner| Self { inner })?;
        Ok(inner.into_inner().expect("no thread panicked inside the shared endpoint"))
    }

    /// Retries a `try_` form until it has room, letting go of the lock in between.
    fn insist(
        &self,
        mut attempt: impl FnMut(&mut Endpoint<T, S>) -> Result<(), SendError>,
    ) -> Result<(), SendError> {
        let mut began = None;
        loop {
            let mut endpoint = self.lock();
            match attempt(&mut endpoint) {
                Err(SendError::WouldBlock { .. }) => {}
                other => return other,
            }
            endpoint.serve_step(STEP, &mut began)?;
        }
    }

    /// As [`Endpoint::request`].
    ///
    /// # Errors
    /// As [`Endpoint::request`].
    pub fn request<A: Arguments + Clone>(
        &self,
        to: impl Destination,
        handler: Request<A>,
        args: A,
    ) -> Result<(), SendError> {
        let to = to.address();
        self.insist(|endpoint| endpoint.try_request(to, handler, args.clone()))
    }

    /// As [`Endpoint::request_medium`].
    ///
    /// # Errors
    /// As [`Endpoint::request_medium`].
    pub fn request_medium<A: Arguments + Clone>(
        &self,
        to: impl Destination,
        handler: Request<A>,
        args: A,
        payload: &[u8],
    ) -> Result<(), SendError> {
        let to = to.address();
        self.insist(|endpoint| endpoint.try_request_medium(to, handler, args.clone(), payload))
    }

    /// As [`Endpoint::request_long`].
    ///
    /// # Errors
    /// As [`Endpoint::request_long`].
    pub fn request_long<A: Arguments + Clone>(
        &self,
        to: impl Destination,
        handler: Request<A>,
        args: A,
        payload: &[u8],
        offset: u64,
    ) -> Result<(), SendError> {
        let to = to.address();
        self.insist(|endpoint| endpoint.try_request_long(to, handler, args.clone(), payload, offset))
    }

    /// Serves what has arrived, unless another thread is doing so: then it returns 0 at once.
    ///
    /// # Errors
    /// As [`Endpoint::poll`].
    ///
    /// # Panics
    /// As [`SharedEndpoint::lock`].
    pub fn poll(&self) -> Result<usize, PollError> {
        match self.inner.try_lock() {
            Ok(mut endpoint) => endpoint.poll(),
            Err(TryLockError::WouldBlock) => Ok(0),
            Err(TryLockError::Poisoned(_)) => panic!("a thread panicked inside the shared endpoint"),
        }
    }

    /// Serves incoming messages until `done` holds, letting go of the lock between steps.
    ///
    /// # Errors
    /// As [`Endpoint::wait_until`].
    pub fn wait_until(&self, mut done: impl FnMut(&S) -> bool) -> Result<(), WaitError> {
        let mut began = None;
        loop {
            let mut endpoint = self.lock();
            if done(endpoint.state()) {
                return Ok(());
            }
            endpoint.serve_step(STEP, &mut began)?;
            drop(endpoint);
            std::thread::yield_now();
        }
    }
}
