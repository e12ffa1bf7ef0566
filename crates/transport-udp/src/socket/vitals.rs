//! Signs of life: what the helper sends to all peers while a handler of the program runs for so long that they would take
//! this endpoint for dead.
//!
//! Handlers run under the endpoint's lock, so nobody else can drive the machine meanwhile. What is sent here needs no more of
//! it than what it handed out when the sessions began: keep-alives have a key and a counter of their own.

use crate::proto::Keepalive;
use am_core::{Instant, Span};
use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Mutex, PoisonError};

/// What makes the datagrams for the peers that have a session with this endpoint.
#[derive(Debug)]
pub(super) struct Vitals {
    sessions: Mutex<HashMap<SocketAddr, Keepalive>>,
    /// How often they are sent.
    every: Span,
}

impl Vitals {
    /// Peers that miss this endpoint for `silence` take it for dead.
    pub(super) fn new(silence: Span) -> Self {
        Self { sessions: Mutex::default(), every: Span(silence.0 / 4) }
    }

    /// Notes sessions that have begun, and such as have ended.
    pub(super) fn note(&self, changed: impl Iterator<Item = (SocketAddr, Option<Keepalive>)>) {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        for (address, session) in changed {
            match session {
                Some(session) => drop(sessions.insert(address, session)),
                None => drop(sessions.remove(&address)),
            }
        }
    }

    /// To be called again and again while somebody holds the lock. `since` is when that began or the last signs were sent; it
    /// is noted here, and forgotten by the caller when the lock was free.
    pub(super) fn beat(&self, socket: &UdpSocket, since: &mut Option<Instant>, now: Instant) {
        let began = *since.get_or_insert(now);
        if now.since(began) < self.every {
            return;
        }
        *since = Some(now);
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        for (address, session) in sessions.iter_mut() {
            // One that can't be sent now counts as lost: the next one follows long before it is missed.
            let _ = socket.send_to(&session.next_datagram(), address);
        }
    }
}
