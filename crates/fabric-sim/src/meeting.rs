//! Two threads that exchange what they have, round by round.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::{self, Thread};

/// Where two threads meet. Neither is more than one round ahead of the other.
pub(crate) struct Meeting<T> {
    sides: [Side<T>; 2],
}

/// What one thread leaves there. In a cache line of its own.
#[repr(align(128))]
struct Side<T> {
    /// Rounds for which it has left something.
    round: AtomicU64,
    /// It does not come any more.
    gone: AtomicBool,
    /// It sleeps until it is woken.
    asleep: AtomicBool,
    thread: OnceLock<Thread>,
    /// What it has left, for even and for odd rounds: while one is fetched the next may be left.
    left: [Mutex<Option<T>>; 2],
}

impl<T> Default for Side<T> {
    fn default() -> Self {
        Self {
            round: AtomicU64::new(0),
            gone: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            thread: OnceLock::new(),
            left: [const { Mutex::new(None) }; 2],
        }
    }
}

impl<T> Side<T> {
    /// Wakes the thread if it sleeps. What it sleeps for was written before, in the one order that both see.
    fn wake(&self) {
        if self.asleep.load(Ordering::SeqCst)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }
}

/// So often a thread looks before it sleeps.
const PATIENCE: u32 = 2000;

impl<T> Meeting<T> {
    pub(crate) fn new() -> Self {
        Self { sides: Default::default() }
    }

    /// The calling thread is a side, which is gone as soon as this is dropped.
    pub(crate) fn attend(&self, own: usize) -> Attendance<'_, T> {
        self.sides[own].thread.get_or_init(thread::current);
        Attendance { meeting: self, own }
    }
}

/// A thread's place at a meeting.
pub(crate) struct Attendance<'a, T> {
    meeting: &'a Meeting<T>,
    own: usize,
}

impl<T> Attendance<'_, T> {
    /// Leaves something for the other side, and waits for what that leaves in the same round. `None` if it is
    /// gone.
    pub(crate) fn exchange(&self, mine: T) -> Option<T> {
        let [own, other] = [self.own, 1 - self.own].map(|side| &self.meeting.sides[side]);
        let round = own.round.load(Ordering::Relaxed) + 1;
        let place = (round % 2) as usize;
        *own.left[place].lock().unwrap_or_else(PoisonError::into_inner) = Some(mine);
        own.round.store(round, Ordering::SeqCst);
        other.wake();
        let mut looks = 0;
        while other.round.load(Ordering::Acquire) < round {
            // One that has left something for this round before it went is heard.
            if other.gone.load(Ordering::Acquire) && other.round.load(Ordering::Acquire) < round {
                return None;
            }
            looks += 1;
            if looks < PATIENCE {
                spin_loop();
                continue;
            }
            own.asleep.store(true, Ordering::SeqCst);
            if other.round.load(Ordering::SeqCst) < round && !other.gone.load(Ordering::SeqCst) {
                thread::park();
            }
            own.asleep.store(false, Ordering::SeqCst);
        }
        other.left[place].lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl<T> Drop for Attendance<'_, T> {
    fn drop(&mut self) {
        self.meeting.sides[self.own].gone.store(true, Ordering::SeqCst);
        self.meeting.sides[1 - self.own].wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn each_round_brings_what_the_other_side_left() {
        let meeting = Meeting::new();
        let attend = |own: usize| {
            let place = meeting.attend(own);
            (0..1000).all(|round| place.exchange((own, round)) == Some((1 - own, round)))
        };
        thread::scope(|scope| {
            let other = scope.spawn(|| attend(1));
            assert!(attend(0) && other.join().unwrap());
        });
    }

    #[test]
    fn nobody_waits_for_one_that_is_gone() {
        let meeting = Meeting::new();
        let place = meeting.attend(0);
        thread::scope(|scope| {
            scope.spawn(|| assert_eq!(meeting.attend(1).exchange(1), Some(0)));
            assert_eq!(place.exchange(0), Some(1));
            assert_eq!(place.exchange(0), None);
        });
    }
}
