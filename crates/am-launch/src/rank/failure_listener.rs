//! How a rank learns of failures: a thread that hears from the launcher which ranks have died and tells this rank's endpoints.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use am_core::Rank;
use am_core::segment::Memory;
use am_core::transport::LossCause;
use transport_udp::{Obituary, Udp};

use crate::control_links::{Presence, listen_for_failures};

/// What the thread and the endpoints share. The thread sleeps until somebody dies; it ends with the launcher, and so outlives
/// this, since endpoints do, too.
#[derive(Debug)]
pub(crate) struct FailureListener {
    known: Arc<Mutex<Known>>,
    link: Arc<UnixStream>,
}

#[derive(Debug, Default)]
struct Known {
    endpoints: Vec<Obituary>,
    dead: Vec<Rank>,
    presence: Presence,
}

impl FailureListener {
    /// Starts to listen on a link on which the sizes of segments have been told.
    ///
    /// # Errors
    /// Those of starting a thread.
    pub(crate) fn begin(link: UnixStream) -> io::Result<Self> {
        let known = Arc::new(Mutex::new(Known::default()));
        let link = Arc::new(link);
        let listener = Self { known: Arc::clone(&known), link: Arc::clone(&link) };
        let listen = move || {
            listen_for_failures(&link, |rank| {
                let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
                known.dead.push(rank);
                known.endpoints.iter().for_each(|endpoint| endpoint.lost(rank, LossCause::Died));
            });
        };
        thread::Builder::new().name("am-failures".into()).stack_size(64 * 1024).spawn(listen)?;
        Ok(listener)
    }

    /// Tells an endpoint of all deaths, also of those that are known already. As long as all endpoints that were told have taken
    /// leave, the launcher takes it that this rank has.
    pub(crate) fn subscribe<M: Memory>(&self, endpoint: &mut Udp<M>) {
        let (all, link) = (Arc::clone(&self.known), Arc::clone(&self.link));
        endpoint.when_departed(move || {
            all.lock().unwrap_or_else(PoisonError::into_inner).presence.depart(&link);
        });
        let endpoint = endpoint.obituary();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.presence.attach(&self.link);
        known.dead.iter().for_each(|&rank| endpoint.lost(rank, LossCause::Died));
        known.endpoints.push(endpoint);
    }
}
