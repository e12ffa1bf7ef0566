//! Ranks that have ended without taking leave, and who wants to hear of them.

use std::fmt;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use am_core::Rank;

/// Called with every rank that is lost.
pub(crate) type Listener = Box<dyn Fn(Rank) + Send>;

/// The stack of the thread that calls listeners.
const STACK: usize = 256 << 10;

/// Who has ended. Listeners are the program's code: they are called where nothing else waits for them.
#[derive(Default)]
pub(crate) struct Failures {
    /// Locked before what is known, and while they are called, which is without the lock of that.
    listeners: Mutex<Vec<Listening>>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    dead: Vec<Rank>,
    /// Wakes the thread that calls listeners, once there are some.
    news: Option<Sender<()>>,
}

/// A listener, and how many of the dead it was told.
struct Listening(Listener, usize);

impl fmt::Debug for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failures").field("dead", &self.known().dead).finish_non_exhaustive()
    }
}

impl Failures {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listeners(&self) -> MutexGuard<'_, Vec<Listening>> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this rank has ended.
    pub(crate) fn is_dead(&self, rank: Rank) -> bool {
        self.known().dead.contains(&rank)
    }

    /// These have ended, too. Calls nobody, so it takes no time.
    pub(crate) fn note(&self, dead: &[Rank]) {
        let mut known = self.known();
        known.dead.extend_from_slice(dead);
        if let Some(news) = &known.news {
            let _ = news.send(());
        }
    }

    /// Adds one who wants to know. Those that are known already it is told here, the others on a thread of the
    /// listeners.
    ///
    /// # Errors
    /// There can't be a thread.
    pub(crate) fn listen(self: &Arc<Self>, listener: Listener) -> io::Result<()> {
        let mut listeners = self.listeners();
        if listeners.is_empty() {
            let (sender, news) = channel();
            let failures = Arc::downgrade(self);
            let tells = move || {
                while news.recv().is_ok()
                    && let Some(failures) = failures.upgrade()
                {
                    failures.tell(&mut failures.listeners());
                }
            };
            thread::Builder::new().name("am-failures".into()).stack_size(STACK).spawn(tells)?;
            self.known().news = Some(sender);
        }
        listeners.push(Listening(listener, 0));
        self.tell(&mut listeners);
        Ok(())
    }

    /// Tells the listeners all that they have not heard.
    fn tell(&self, listeners: &mut [Listening]) {
        for Listening(listener, told) in listeners {
            let news = self.known().dead[*told..].to_vec();
            *told += news.len();
            for rank in news {
                // A panic of the program's code must not keep others from being told.
                let _ = panic::catch_unwind(AssertUnwindSafe(|| listener(rank)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn listeners_may_use_the_job_and_panic() {
        let failures = Arc::<Failures>::default();
        let (sender, received) = channel();
        let listen = |name: &'static str| {
            let (sender, failures_of_job) = (sender.clone(), Arc::downgrade(&failures));
            let listener = move |rank| {
                // As attaching an endpoint and taking leave do.
                assert!(failures_of_job.upgrade().unwrap().is_dead(rank));
                let _ = sender.send((name, rank.0));
            };
            failures.listen(Box::new(listener)).unwrap();
        };
        let next = |count: usize| -> Vec<(&str, u32)> {
            (0..count).map(|_| received.recv_timeout(Duration::from_secs(60)).unwrap()).collect()
        };
        failures.listen(Box::new(|_| panic!("a listener panics"))).unwrap();
        listen("first");
        failures.note(&[Rank(2), Rank(1)]);
        assert_eq!(next(2), [("first", 2), ("first", 1)]);
        listen("second");
        assert_eq!(next(2), [("second", 2), ("second", 1)]);
        failures.note(&[Rank(0)]);
        assert_eq!(next(2), [("first", 0), ("second", 0)]);
    }
}
