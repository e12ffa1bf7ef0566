//! A rank's ear for deaths: a thread that hears from the launcher which ranks have died and tells this rank's endpoints.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use am_core::Rank;
use am_core::segment::Memory;
use am_core::transport::LossCause;
use transport_udp::{Obituary, Udp};

use crate::lines::{Presence, hear_of_deaths};

/// What the thread and the endpoints share. The thread sleeps until somebody dies; it ends with the launcher, and so outlives
/// this, since endpoints do, too.
#[derive(Debug)]
pub(crate) struct Mourning {
    known: Arc<Mutex<Known>>,
    line: Arc<UnixStream>,
}

#[derive(Debug, Default)]
struct Known {
    endpoints: Vec<Obituary>,
    dead: Vec<Rank>,
    presence: Presence,
}

impl Mourning {
    /// Starts to listen on a line on which the sizes of segments have been told.
    ///
    /// # Errors
    /// Those of starting a thread.
    pub(crate) fn begin(line: UnixStream) -> io::Result<Self> {
        let known = Arc::new(Mutex::new(Known::default()));
        let line = Arc::new(line);
        let mourning = Self { known: Arc::clone(&known), line: Arc::clone(&line) };
        let listen = move || {
            hear_of_deaths(&line, |rank| {
                let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
                known.dead.push(rank);
                known.endpoints.iter().for_each(|endpoint| endpoint.lost(rank, LossCause::Died));
            });
        };
        thread::Builder::new().name("am-mourning".into()).stack_size(64 * 1024).spawn(listen)?;
        Ok(mourning)
    }

    /// Tells an endpoint of all deaths, also of those that are known already. As long as all endpoints that were told have taken
    /// leave, the launcher takes it that this rank has.
    pub(crate) fn tell<M: Memory>(&self, endpoint: &mut Udp<M>) {
        let (all, line) = (Arc::clone(&self.known), Arc::clone(&self.line));
        endpoint.when_departed(move || {
            all.lock().unwrap_or_else(PoisonError::into_inner).presence.depart(&line);
        });
        let endpoint = endpoint.obituary();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.presence.attach(&self.line);
        known.dead.iter().for_each(|&rank| endpoint.lost(rank, LossCause::Died));
        known.endpoints.push(endpoint);
    }
}
