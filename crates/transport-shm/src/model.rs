//! What stands in for the machine when the rings, the parking and the calling of wakers are model-checked with
//! loom: atomics, fences, the futex.
//!
//! Only compiled with `--cfg am_loom`:
//! `RUSTFLAGS="--cfg am_loom" cargo test -p active-messages-shm --release --lib loom`. The checked code is that of
//! `ring`, `park`, `calls` and `ear` itself. To show that the checks can fail, the stand-ins can be made weaker
//! than the code asks for ([`fails_without`]), and some models do a step of the protocol at the wrong moment.

#[cfg(test)]
mod loom_calls;
#[cfg(test)]
mod loom_park;
#[cfg(test)]
mod loom_ring;

use std::cell::Cell;
use std::ops::Deref;
use std::sync::Arc;

/// What to weaken, to show that it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weak {
    /// Release stores are relaxed.
    Stores,
    /// Acquire loads are relaxed.
    Loads,
    /// There are no fences.
    Fences,
}

thread_local! {
    // Loom runs the threads of a model as coroutines of the thread that called it, so this reaches all of them.
    static WEAK: Cell<Option<Weak>> = const { Cell::new(None) };
}

/// Runs a model with something weakened, which loom must find wrong in the way that `complaint` says.
#[track_caller]
pub(crate) fn fails_without(weak: Weak, complaint: &str, model: impl Fn() + Send + Sync + 'static) {
    WEAK.set(Some(weak));
    let found = complaint_about(model);
    WEAK.set(None);
    assert!(found.contains(complaint), "{weak:?} weakened gave '{found}', not '{complaint}'");
}

/// Runs a model that loom must find wrong in the way that `complaint` says.
#[track_caller]
pub(crate) fn fails(complaint: &str, model: impl Fn() + Send + Sync + 'static) {
    let found = complaint_about(model);
    assert!(found.contains(complaint), "the wrong model gave '{found}', not '{complaint}'");
}

/// What loom, or an assertion in the model, finds wrong with a model; empty if nothing.
fn complaint_about(model: impl Fn() + Send + Sync + 'static) -> String {
    let Err(panic) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(model))) else {
        return String::new();
    };
    let text = panic.downcast_ref::<&str>().map(|text| String::from(*text));
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without text".into())
}

/// Tries every schedule with at most three preemptions, and every value that each load may see.
pub(crate) fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// Loom's atomics and fences, weakened on demand.
pub(crate) mod atomics {
    use super::{WEAK, Weak};
    use loom::sync::atomic as checked;
    use loom::sync::{Condvar, Mutex, MutexGuard};
    use std::sync::Arc;
    use std::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};

    fn unless(weak: Weak, from: Ordering, order: Ordering) -> Ordering {
        if order == from && WEAK.get() == Some(weak) { Relaxed } else { order }
    }

    #[derive(Debug)]
    pub(crate) struct AtomicU64(checked::AtomicU64);

    impl AtomicU64 {
        pub(crate) fn new(value: u64) -> Self {
            Self(checked::AtomicU64::new(value))
        }

        pub(crate) fn load(&self, order: Ordering) -> u64 {
            self.0.load(unless(Weak::Loads, Acquire, order))
        }

        pub(crate) fn store(&self, value: u64, order: Ordering) {
            self.0.store(value, unless(Weak::Stores, Release, order));
        }
    }

    /// A word that can be slept on.
    #[derive(Debug)]
    pub(crate) struct AtomicU32 {
        word: checked::AtomicU32,
        /// What the kernel has for the sleepers of a word: comparing and falling asleep are one step for wakers.
        /// Beside the threads, whom it sleeps for.
        sleepers: (Mutex<Vec<Arc<Slept>>>, Condvar),
    }

    impl AtomicU32 {
        pub(crate) fn new(value: u32) -> Self {
            Self { word: checked::AtomicU32::new(value), sleepers: (Mutex::new(Vec::new()), Condvar::new()) }
        }

        pub(crate) fn load(&self, order: Ordering) -> u32 {
            self.word.load(order)
        }

        pub(crate) fn store(&self, value: u32, order: Ordering) {
            self.word.store(value, order);
        }

        pub(crate) fn compare_exchange(
            &self,
            current: u32,
            new: u32,
            success: Ordering,
            failure: Ordering,
        ) -> Result<u32, u32> {
            self.word.compare_exchange(current, new, success, failure)
        }

        pub(super) fn sleep_while(&self, expected: u32) {
            let (queue, signal) = &self.sleepers;
            let queue = queue.lock().expect("no model panics while it holds the lock");
            if self.word.load(Relaxed) == expected {
                drop(signal.wait(queue).expect("no model panics while it holds the lock"));
            }
        }

        /// Ends `slept` when the word is woken, or at once if it is not as expected.
        pub(super) fn sleep_for(&self, slept: &Arc<Slept>, expected: u32) {
            let mut queue = self.sleepers.0.lock().expect("no model panics while it holds the lock");
            slept.begin();
            if self.word.load(Relaxed) == expected {
                queue.push(Arc::clone(slept));
            } else {
                slept.end();
            }
        }

        /// Moves those that the kernel sleeps for to another word.
        pub(crate) fn move_sleepers(&self, to: &Self) {
            let moved: Vec<_> =
                self.sleepers.0.lock().expect("no model panics while it holds the lock").drain(..).collect();
            to.sleepers.0.lock().expect("no model panics while it holds the lock").extend(moved);
        }

        pub(super) fn wake_sleepers(&self) {
            let (queue, signal) = &self.sleepers;
            let mut queue = queue.lock().expect("no model panics while it holds the lock");
            queue.drain(..).for_each(|slept| slept.end());
            signal.notify_all();
        }
    }

    /// A sleep by the kernel alone, whose end is readable.
    #[derive(Debug)]
    pub(super) struct Slept {
        state: Mutex<Sleep>,
        readable: Condvar,
    }

    #[derive(Debug, Default)]
    struct Sleep {
        /// Whether it has begun, and nothing has ended it.
        lasts: bool,
        /// Whether its end has not been taken.
        ended: bool,
    }

    impl Slept {
        pub(super) fn new() -> Self {
            Self { state: Mutex::new(Sleep::default()), readable: Condvar::new() }
        }

        fn state(&self) -> MutexGuard<'_, Sleep> {
            self.state.lock().expect("no model panics while it holds the lock")
        }

        fn begin(&self) {
            let mut state = self.state();
            assert!(!state.lasts && !state.ended, "the sleep before has ended, and its end was taken");
            state.lasts = true;
        }

        /// Ends it, unless something has.
        pub(super) fn end(&self) {
            let mut state = self.state();
            if std::mem::take(&mut state.lasts) {
                state.ended = true;
                self.readable.notify_all();
            }
        }

        /// Whether it has ended, once.
        pub(super) fn take(&self) -> bool {
            std::mem::take(&mut self.state().ended)
        }

        /// Waits until it has ended.
        pub(super) fn wait(&self) {
            let mut state = self.state();
            while !state.ended {
                state = self.readable.wait(state).expect("no model panics while it holds the lock");
            }
        }
    }

    pub(crate) fn fence(order: Ordering) {
        if WEAK.get() != Some(Weak::Fences) {
            checked::fence(order);
        }
    }

    /// Where the code has a compiler fence the sleeper's membarrier fences the processor too.
    pub(crate) fn compiler_fence(order: Ordering) {
        fence(order);
    }
}

/// The system calls of the parking. Sleeps have no time limit here, so that a lost wake-up is a deadlock that loom
/// reports.
pub(crate) mod sys {
    use super::atomics::{AtomicU32, Slept};
    use std::io;
    use std::sync::Arc;
    use std::time::Duration;

    pub(crate) fn futex_wait(word: &AtomicU32, expected: u32, _: Duration) {
        word.sleep_while(expected);
    }

    pub(crate) fn futex_wake(word: &AtomicU32) {
        word.wake_sleepers();
    }

    pub(crate) fn fence_everyone() -> bool {
        true
    }

    /// The kernel's sleeps in a program's stead.
    #[derive(Debug)]
    pub(crate) struct Uring(Arc<Slept>);

    impl Uring {
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Self(Arc::new(Slept::new())))
        }

        pub(crate) fn sleep(&mut self, word: &AtomicU32, expected: u32) -> io::Result<()> {
            word.sleep_for(&self.0, expected);
            Ok(())
        }

        /// Another thread ends it, some time later: the one that began it, when that next returns from the kernel.
        pub(crate) fn end(&mut self) -> io::Result<()> {
            let slept = Arc::clone(&self.0);
            loom::thread::spawn(move || slept.end());
            Ok(())
        }

        pub(crate) fn has_ended(&mut self) -> io::Result<bool> {
            Ok(self.0.take())
        }

        /// An event loop that waits for this alone.
        pub(crate) fn wait_readable(&self) {
            self.0.wait();
        }
    }
}

/// Shared memory: plain memory of the model.
#[derive(Debug)]
pub(crate) struct View<T>(Arc<[T]>);

impl<T> Clone for View<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> View<T> {
    pub(crate) fn of(items: impl IntoIterator<Item = T>) -> Self {
        Self(items.into_iter().collect())
    }
}

impl<T> Deref for View<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}
