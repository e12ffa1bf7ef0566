//! Wakes at a time, on any executor: one thread of the process, which is there while somebody waits for a time.
//!
//! An executor's own timers would bind drivers to it, and tokio's have the granularity of a millisecond.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

/// How long the thread waits for another one to wake before it ends.
const LINGER: Duration = Duration::from_secs(5);

struct Queue {
    /// The process that it is of: a fork has no thread, and drivers of its own only.
    process: u32,
    waiting: BTreeMap<(Instant, u64), Waker>,
    next: u64,
    /// Whether the thread is there.
    running: bool,
    /// Until when it sleeps.
    until: Option<Instant>,
}

static QUEUE: Mutex<Queue> =
    Mutex::new(Queue { process: 0, waiting: BTreeMap::new(), next: 0, running: false, until: None });
static SOONER: Condvar = Condvar::new();

fn queue() -> MutexGuard<'static, Queue> {
    let mut queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
    let process = process::id();
    if std::mem::replace(&mut queue.process, process) != process {
        // The parent's wakers would call, and be dropped, where nothing of theirs is used.
        std::mem::forget(std::mem::take(&mut queue.waiting));
        (queue.running, queue.until) = (false, None);
    }
    queue
}

/// One time to be woken at. Dropping it takes it back.
#[derive(Debug, Default)]
pub(crate) struct WakeUp {
    key: Option<(Instant, u64)>,
}

impl WakeUp {
    /// Has a waker called once, at a time, and not at the one that was set before.
    pub(crate) fn set(&mut self, at: Instant, waker: &Waker) {
        // Wakers are cloned, called and dropped outside the lock: they may do anything.
        let waker = waker.clone();
        let mut queue = queue();
        let before = self.key.take().and_then(|key| queue.waiting.remove(&key));
        let key = (at, queue.next);
        queue.next += 1;
        queue.waiting.insert(key, waker);
        self.key = Some(key);
        if !queue.running {
            queue.running = true;
            let thread = std::thread::Builder::new().name("calls-wake-up".into()).spawn(run);
            if thread.is_err() {
                // Without a thread, whoever waits looks for itself.
                queue.running = false;
                let waker = queue.waiting.remove(&key);
                drop(queue);
                waker.into_iter().for_each(Waker::wake);
                return;
            }
        } else if queue.until.is_some_and(|until| at < until) {
            SOONER.notify_one();
        }
        drop(queue);
        drop(before);
    }

    /// Whether a waker is still to be called.
    pub(crate) fn is_set(&self) -> bool {
        self.key.is_some_and(|key| queue().waiting.contains_key(&key))
    }
}

impl Drop for WakeUp {
    /// Has nobody called.
    fn drop(&mut self) {
        let waker = self.key.take().and_then(|key| queue().waiting.remove(&key));
        drop(waker);
    }
}

fn run() {
    let mut queue = queue();
    loop {
        let now = Instant::now();
        match queue.waiting.first_key_value().map(|(key, _)| key.0) {
            Some(at) if at <= now => {
                let waker = queue.waiting.pop_first().map(|(_, waker)| waker);
                drop(queue);
                // A waker that panics has been called.
                let _ = catch_unwind(AssertUnwindSafe(|| waker.into_iter().for_each(Waker::wake)));
                queue = self::queue();
            }
            first => {
                let until = first.unwrap_or(now + LINGER);
                queue.until = Some(until);
                let slept = SOONER.wait_timeout(queue, until - now).unwrap_or_else(PoisonError::into_inner);
                queue = slept.0;
                queue.until = None;
                if first.is_none() && slept.1.timed_out() && queue.waiting.is_empty() {
                    queue.running = false;
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::{Sender, channel};
    use std::task::Wake;

    struct Tell(u32, Mutex<Sender<u32>>);

    impl Wake for Tell {
        fn wake(self: Arc<Self>) {
            self.1.lock().unwrap().send(self.0).unwrap();
        }
    }

    #[test]
    fn wakers_are_called_in_order_of_time_unless_taken_back() {
        let (sender, woken) = channel();
        let waker = |number| Waker::from(Arc::new(Tell(number, Mutex::new(sender.clone()))));
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut all: Vec<WakeUp> = (0..4).map(|_| WakeUp::default()).collect();
        all[0].set(at(3_600_000), &waker(0));
        all[1].set(at(900), &waker(1));
        all[2].set(at(600), &waker(2));
        all[3].set(at(3_600_000), &waker(3));
        // Another time, and none.
        all[0].set(at(300), &waker(4));
        drop(std::mem::take(&mut all[3]));
        assert_eq!(woken.iter().take(3).collect::<Vec<_>>(), [4, 2, 1]);
        assert!(Instant::now() >= at(900));
    }

    struct Panics;

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("on purpose");
        }
    }

    #[test]
    fn wakers_that_panic_keep_nobody_asleep() {
        let (sender, woken) = channel();
        let (mut bad, mut good) = (WakeUp::default(), WakeUp::default());
        bad.set(Instant::now(), &Waker::from(Arc::new(Panics)));
        good.set(Instant::now() + Duration::from_millis(50), &Waker::from(Arc::new(Tell(7, Mutex::new(sender)))));
        assert_eq!(woken.recv_timeout(Duration::from_secs(60)), Ok(7));
    }
}
