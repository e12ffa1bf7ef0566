//! Death notices: what somebody outside the protocol, such as the job's launcher, knows of a rank's end.
//!
//! A notice may come from any thread at any time, and who brings it does not wait for the endpoint's lock: it
//! stands in a line of its own until whoever drives the endpoint next takes it in. A program that sleeps is woken
//! for it.

use super::engine::Engine;
use super::service::Shared;
use am_core::transport::{LossCause, PeerStatus};
use am_core::{Address, Instant, Rank};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

/// Notices that have not been taken in.
#[derive(Debug, Default)]
pub(super) struct Notices {
    any: AtomicBool,
    line: Mutex<Vec<(Rank, LossCause)>>,
}

impl Notices {
    fn line(&self) -> MutexGuard<'_, Vec<(Rank, LossCause)>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, rank: Rank, cause: LossCause) {
        self.line().push((rank, cause));
        self.any.store(true, SeqCst);
    }

    /// Whether there are any; costs a load.
    #[inline]
    pub(super) fn any(&self) -> bool {
        // Relaxed: a notice that is not seen now is seen in the next round, and the bell ends the sleep before it.
        self.any.load(Relaxed)
    }

    /// Tells the machine of all of them.
    pub(super) fn take_in(&self, now: Instant, engine: &mut Engine) {
        // Before the line is read: a notice that comes while it is being read sets this once more.
        self.any.store(false, SeqCst);
        let shape = engine.machine.config().shape;
        let me = shape.address(engine.machine.config().me).rank;
        for (rank, cause) in self.line().drain(..) {
            for endpoint in 0..shape.endpoints {
                if rank != me
                    && let Some(peer) = shape.peer(Address::new(rank, endpoint))
                {
                    engine.machine.declare(now, peer, PeerStatus::Lost(cause));
                }
            }
        }
    }
}

/// Tells an endpoint, from any thread, that a rank of its job has ended; see
/// [`Udp::failure_notifier`](crate::Udp::failure_notifier).
///
/// Without it a rank whose process was killed is found out by its silence, after
/// [`ProtocolConfig::silence`](crate::proto::ProtocolConfig::silence).
#[derive(Clone, Debug)]
pub struct FailureNotifier {
    /// Does not keep the endpoint's socket open.
    shared: Weak<Shared>,
}

impl FailureNotifier {
    pub(super) fn new(shared: Weak<Shared>) -> Self {
        Self { shared }
    }

    /// Tells that a rank is lost, for this reason; usually [`LossCause::Died`]. The program learns of it with its
    /// next poll, as of every lost peer, and is woken if it waits. What the rank had sent and is not delivered yet
    /// is dropped, except for up to 31 messages that a poll under way has taken out already, unless its farewell
    /// has come and nothing is missing before it: then it left as it says.
    ///
    /// Does not wait for the program or its handlers; may be called from any thread, and as often as one likes:
    /// only the first end of a rank counts. Nothing happens if the job has no such rank, if it is the endpoint's
    /// own, or if the endpoint is no more. Allocates a few bytes.
    pub fn lost(&self, rank: Rank, cause: LossCause) {
        let Some(shared) = self.shared.upgrade().filter(|shared| !shared.process.is_other()) else { return };
        shared.notices.add(rank, cause);
        shared.ring();
    }
}
