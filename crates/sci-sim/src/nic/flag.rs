//! Flags in shared memory: a byte that several processes set and one clears, and a word that tells that a process
//! sleeps. Model-checked with loom, as are the protocols that are built on them, so they are written with atomics
//! that can be loom's.
//!
//! Compile with `--cfg am_loom` for that; then this module and the protocols are all there is of the crate.

#[cfg(not(am_loom))]
use std::sync::atomic::{AtomicU8, AtomicU32, fence};

#[cfg(am_loom)]
use loom::sync::atomic::{AtomicU8, AtomicU32, fence};

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

/// One byte of shared memory, accessed as a whole.
#[derive(Debug)]
#[repr(transparent)]
pub struct Flag(AtomicU8);

impl Flag {
    /// A flag of its own, for models and tests; those of programs lie in segments.
    pub fn new(value: u8) -> Self {
        Self(AtomicU8::new(value))
    }

    /// Sets a flag that several may set. Everything stored before it is visible to whoever sees it, or sees what
    /// another set over it.
    #[inline]
    pub fn set(&self, value: u8) {
        // Release: pairs with the Acquire of `look` and `take`. Acquire, in one step with it: hands on what those
        // have released whose value is overwritten here, so that one look at the last value shows the stores of
        // all.
        self.0.swap(value, AcqRel);
    }

    /// Sets a flag that nobody else sets at the same time. Everything stored before it is visible to whoever sees
    /// it.
    #[inline]
    pub fn set_alone(&self, value: u8) {
        // Release: pairs with the Acquire of `look` and `take`.
        self.0.store(value, Release);
    }

    /// The value now. What was stored before it is visible then.
    #[inline]
    pub fn look(&self) -> u8 {
        // Acquire: pairs with the Release of `set`.
        self.0.load(Acquire)
    }

    /// The value now, and nothing about what was stored before it: for looks that mostly find nothing.
    #[inline]
    pub fn glance(&self) -> u8 {
        self.0.load(Relaxed)
    }

    /// Clears the flag and returns what it was.
    #[inline]
    pub fn take(&self) -> u8 {
        // Acquire: pairs with the Release of `set`. In one step with the store: what is set later stays.
        self.0.swap(0, AcqRel)
    }
}

/// Everything stored before is visible to others before anything stored or loaded afterwards is.
#[inline]
pub fn barrier() {
    // SeqCst: also orders stores before loads, as a look at whether the receiver sleeps needs it.
    fence(SeqCst);
}

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;

/// Whether a process sleeps and wants to be woken. The sleeper announces it, looks for work once more, and sleeps;
/// whoever has made work asks whether to wake it. Either the sleeper's last look finds the work, or the other
/// finds the announcement.
#[derive(Debug)]
#[repr(transparent)]
pub struct Sleeper(AtomicU32);

impl Sleeper {
    /// A word of its own, for models and tests.
    pub fn new() -> Self {
        Self(AtomicU32::new(AWAKE))
    }

    /// Announces sleep. The caller looks for work once more before it sleeps.
    pub fn announce(&self) {
        self.0.store(ASLEEP, Relaxed);
        // Orders the announcement before the last look; pairs with the barrier in `rouse`.
        barrier();
    }

    /// Takes the announcement back.
    pub fn rise(&self) {
        // Relaxed: a wake-up that comes all the same is harmless.
        self.0.store(AWAKE, Relaxed);
    }

    /// Whether the sleeper has to be woken now, by this caller. To be asked after the work is there.
    #[inline]
    pub fn rouse(&self) -> bool {
        // Orders the work before the look; pairs with the barrier in `announce`.
        barrier();
        self.0.load(Relaxed) == ASLEEP && self.0.swap(AWAKE, Relaxed) == ASLEEP
    }
}

impl Default for Sleeper {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, am_loom))]
mod loom_models {
    use super::*;
    use loom::sync::atomic::AtomicBool;
    use loom::thread;
    use std::sync::Arc;

    /// A wake-up that a sleeper waits for: the model's FIFO.
    #[derive(Default)]
    struct Bell(loom::sync::Mutex<bool>, loom::sync::Condvar);

    impl Bell {
        fn ring(&self) {
            *self.0.lock().unwrap() = true;
            self.1.notify_one();
        }

        fn wait(&self) {
            let mut rung = self.0.lock().unwrap();
            while !*rung {
                rung = self.1.wait(rung).unwrap();
            }
            *rung = false;
        }
    }

    /// A receiver that sleeps until `senders` have each set the flag once; `work` is set before it by each.
    fn sleep_and_wake(announce: fn(&Sleeper), last_look: bool) -> impl Fn() + Send + Sync + 'static {
        move || {
            let shared = Arc::new((Sleeper::new(), Flag::new(0), Bell::default(), AtomicBool::new(false)));
            let theirs = Arc::clone(&shared);
            let sender = thread::spawn(move || {
                let (sleeper, flag, bell, work) = &*theirs;
                work.store(true, Relaxed);
                flag.set(1);
                if sleeper.rouse() {
                    bell.ring();
                }
            });
            let (sleeper, flag, bell, work) = &*shared;
            while flag.take() == 0 {
                announce(sleeper);
                if !last_look || flag.glance() == 0 {
                    bell.wait();
                }
                sleeper.rise();
            }
            assert!(work.load(Relaxed), "what was stored before the flag is there");
            sender.join().unwrap();
        }
    }

    #[test]
    fn loom_no_wake_up_is_lost() {
        loom::model(sleep_and_wake(Sleeper::announce, true));
    }

    #[test]
    #[should_panic(expected = "deadlock")]
    fn loom_an_announcement_without_a_barrier_is_found() {
        loom::model(sleep_and_wake(|sleeper| sleeper.0.store(ASLEEP, Relaxed), true));
    }

    #[test]
    #[should_panic(expected = "deadlock")]
    fn loom_sleeping_without_a_last_look_is_found() {
        loom::model(sleep_and_wake(Sleeper::announce, false));
    }

    /// Two senders store data and set one flag; the receiver takes it once and must see the data of both if both
    /// have set it.
    fn two_setters(set: fn(&Flag)) -> impl Fn() + Send + Sync + 'static {
        move || {
            let shared = Arc::new((Flag::new(0), [Flag::new(0), Flag::new(0)]));
            let senders: Vec<_> = (0..2)
                .map(|me| {
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || {
                        shared.1[me].set_alone(1);
                        set(&shared.0);
                    })
                })
                .collect();
            let taken = shared.0.take();
            let seen = shared.1.iter().filter(|flag| flag.glance() != 0).count();
            senders.into_iter().for_each(|sender| sender.join().unwrap());
            // What was not seen then is announced by a flag that was set later.
            assert!(taken == 0 || seen == 2 || shared.0.take() != 0, "a message without its wake-up");
        }
    }

    #[test]
    fn loom_the_last_setter_hands_on_what_the_others_stored() {
        loom::model(two_setters(|flag| flag.set(1)));
    }

    #[test]
    #[should_panic(expected = "a message without its wake-up")]
    fn loom_a_flag_of_several_that_is_only_stored_is_found() {
        loom::model(two_setters(|flag| flag.set_alone(1)));
    }
}
