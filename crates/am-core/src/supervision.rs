//! What the supervisor of a process is told of its endpoints: losses that the program has learned of, and
//! departures without [`Endpoint::finish`](crate::Endpoint::finish).
//!
//! A launcher that hears of both can tell the rank that failed first from those that failed because of it.

use std::sync::OnceLock;

use crate::address::{Address, Rank};

/// What has happened to an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The program is about to learn, from an error, that this rank was lost. Told once for each endpoint and
    /// loss.
    LossTold(Rank),
    /// The endpoint is about to leave without having finished, and not because it had been told of a loss. No peer
    /// knows of it yet.
    Left,
}

/// What is called for each event; it runs inside the endpoint and must neither block nor panic.
pub type Observer = fn(Address, Event);

static OBSERVER: OnceLock<Observer> = OnceLock::new();

/// Sets what is told of the events of all endpoints of this process; the first call counts. Returns whether it was
/// this one.
pub fn observe(observer: Observer) -> bool {
    OBSERVER.set(observer).is_ok()
}

/// Tells the observer, if there is one.
#[cold]
pub(crate) fn tell(whose: Address, event: Event) {
    if let Some(observer) = OBSERVER.get() {
        observer(whose, event);
    }
}
