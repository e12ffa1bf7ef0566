//! Signs of life: what the helper sends to all peers while a handler of the program runs for so long that they would take
//! this endpoint for dead.
//!
//! Handlers run under the endpoint's lock, so nobody else can drive the machine meanwhile. The datagrams sent here have been
//! made beforehand, when the sessions began.

use crate::proto::SIGN_OF_LIFE;
use am_core::{Instant, Span};
use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Mutex, PoisonError};

/// The datagrams for the peers that have a session with this endpoint.
#[derive(Debug)]
pub(super) struct Vitals {
    signs: Mutex<HashMap<SocketAddr, [u8; SIGN_OF_LIFE]>>,
    /// How often they are sent.
    every: Span,
}

impl Vitals {
    /// Peers that miss this endpoint for `silence` take it for dead.
    pub(super) fn new(silence: Span) -> Self {
        Self { signs: Mutex::default(), every: Span(silence.0 / 4) }
    }

    /// Notes sessions that have begun, and such as have ended.
    pub(super) fn note(&self, changed: impl Iterator<Item = (SocketAddr, Option<[u8; SIGN_OF_LIFE]>)>) {
        let mut signs = self.signs.lock().unwrap_or_else(PoisonError::into_inner);
        for (address, sign) in changed {
            match sign {
                Some(sign) => drop(signs.insert(address, sign)),
                None => drop(signs.remove(&address)),
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
        let signs = self.signs.lock().unwrap_or_else(PoisonError::into_inner);
        for (address, sign) in signs.iter() {
            // One that can't be sent now counts as lost: the next one follows long before it is missed.
            let _ = socket.send_to(sign, address);
        }
    }
}
