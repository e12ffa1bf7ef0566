//! The transport's descriptor in the event loop of tokio.

use am_core::Endpoint;
use am_core::transport::Transport;
use std::io::ErrorKind;
use std::task::{Context, Poll};
use tokio::net::unix::pipe::Receiver;

/// What a driver hears its transport by.
#[derive(Debug, Default)]
pub(super) enum Ears {
    /// Not yet asked for.
    #[default]
    Unopened,
    /// Readable when the transport has something.
    Open(Receiver),
    /// There is none.
    None,
}

impl Ears {
    /// Whether the transport has a descriptor, which it is asked for at the first time.
    ///
    /// # Panics
    /// Outside a runtime of tokio with input and output.
    pub(super) fn open<T: Transport, S>(&mut self, endpoint: &mut Endpoint<T, S>) -> bool {
        if matches!(self, Self::Unopened) {
            // Reading from it does not block, as its flags say already.
            let ears = endpoint.descriptor().map(Receiver::from_owned_fd_unchecked);
            *self = ears.and_then(Result::ok).map_or(Self::None, Self::Open);
        }
        matches!(self, Self::Open(_))
    }

    /// Whether the descriptor was readable, which it is no more; if not, the task is woken when it becomes so.
    pub(super) fn have_heard(&mut self, context: &mut Context<'_>) -> bool {
        let Self::Open(pipe) = self else { return true };
        while let Poll::Ready(ready) = pipe.poll_read_ready(context) {
            match ready.and_then(|()| pipe.try_read(&mut [0; 64])) {
                Ok(1..) => return true,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                // It is of no use, or the runtime ends.
                Ok(_) | Err(_) => {
                    *self = Self::None;
                    return true;
                }
            }
        }
        false
    }
}
