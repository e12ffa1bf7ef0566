//! The transport's descriptor in the event loop of tokio.

use am_core::Endpoint;
use am_core::transport::Transport;
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// What a driver hears its transport by.
#[derive(Debug, Default)]
pub(super) enum Ears {
    /// Not yet asked for.
    #[default]
    Unopened,
    /// Readable when the transport has something.
    Open(AsyncFd<OwnedFd>),
    /// There is none.
    None,
}

impl Ears {
    /// Has the task woken when the transport's descriptor becomes readable from now on; whether there is one,
    /// for which the transport is asked at the first time.
    ///
    /// # Panics
    /// Outside a runtime of tokio with input and output.
    pub(super) fn listen<T: Transport, S>(
        &mut self,
        endpoint: &mut Endpoint<T, S>,
        context: &mut Context<'_>,
    ) -> bool {
        if matches!(self, Self::Unopened) {
            let ears = endpoint.descriptor().map(register);
            *self = ears.and_then(Result::ok).map_or(Self::None, Self::Open);
        }
        let Self::Open(ears) = self else { return false };
        // That it has been readable is over, by the transport's own looks: what matters comes after them.
        while let Poll::Ready(ready) = ears.poll_read_ready(context) {
            let Ok(mut ready) = ready else {
                // The runtime ends.
                *self = Self::None;
                return false;
            };
            ready.clear_ready();
        }
        true
    }
}

#[allow(deprecated, reason = "sound for a descriptor that is owned; what follows it is new and unsafe")]
fn register(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(descriptor, Interest::READABLE)
}
