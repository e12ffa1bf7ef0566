//! How an endpoint sleeps in the event loop of its program (`epoll`): the kernel sleeps on the endpoint's word in
//! its stead, and a descriptor becomes readable when that sleep ends. Whoever wakes the endpoint does what it does
//! for all others, and no thread stands between them. Checked with loom, where stand-ins take the kernel's place:
//! announcements, sleeps that outlast them, and one that is ended from another thread since it was moved.
//!
//! Announcing, the last look and waking are those of [`Parking`]. A sleep that has begun outlasts the
//! announcement for which it was begun, when something else woke the endpoint: it is on the same word, so who
//! ends the next announcement ends it, too. One that has lasted for [`LONGEST`] is begun anew, since a faulty
//! rank of the job can move the kernel's sleep to another word.

#[cfg(am_loom)]
use crate::model::sys::Uring;
use crate::park::{LONGEST, Parking};
#[cfg(not(am_loom))]
use crate::sys::Uring;
use std::io;
use std::time::{Duration, Instant};

/// What has become of an announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// There may be something.
    Something,
    /// The descriptor will be readable once there is.
    NothingYet,
}

/// The sleep of one endpoint.
#[derive(Debug)]
pub(crate) struct Ear {
    kernel: Uring,
    /// Since when a sleep that is not known to have ended has lasted.
    sleeps: Option<Instant>,
}

impl Ear {
    /// An ear that listens for nothing yet.
    ///
    /// # Errors
    /// Where the kernel has no such sleeps.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { kernel: Uring::new()?, sleeps: None })
    }

    /// The sleep has lasted for the longest time.
    #[cfg(test)]
    pub(crate) fn grow_old(&mut self) {
        self.sleeps = self.sleeps.and_then(|since| since.checked_sub(LONGEST));
    }

    /// The kernel's side of it.
    pub(crate) fn kernel(&self) -> &Uring {
        &self.kernel
    }

    /// Announces sleep of at most `longest`, then asks `work` for a last look; unless that sees some, the
    /// descriptor becomes readable as soon as somebody wakes the endpoint, at times before. What has made it
    /// readable before is taken away.
    ///
    /// # Errors
    /// The kernel does not sleep, or not everyone can be made to fence, so that this sleep would have to be
    /// shorter than [`LONGEST`], or `longest` is. No sleep is announced then.
    pub(crate) fn listen(
        &mut self,
        parking: &Parking,
        fenced: bool,
        longest: Duration,
        work: impl FnOnce() -> bool,
    ) -> io::Result<Heard> {
        self.take()?;
        let Some(permitted) = parking.arm(fenced, longest, work) else { return Ok(Heard::Something) };
        let heard = self.begin(parking, permitted);
        if !matches!(heard, Ok(Heard::NothingYet)) {
            parking.end();
        }
        heard
    }

    fn begin(&mut self, parking: &Parking, permitted: Duration) -> io::Result<Heard> {
        // An event loop does not look for itself more often.
        if permitted < LONGEST {
            return Err(io::ErrorKind::Unsupported.into());
        }
        if self.sleeps.is_some_and(|since| since.elapsed() >= LONGEST) {
            self.kernel.end()?;
            // If it has not ended yet, its end will make the descriptor readable, and the next look begins anew.
            self.take()?;
        }
        if self.sleeps.is_none() {
            parking.doze_in(&mut self.kernel)?;
            self.sleeps = Some(Instant::now());
            // Somebody may have ended the announcement by now.
            if self.take()? {
                return Ok(Heard::Something);
            }
        }
        Ok(Heard::NothingYet)
    }

    /// Takes away that the descriptor is readable; whether it was.
    ///
    /// # Errors
    /// The kernel does not sleep.
    pub(crate) fn take(&mut self) -> io::Result<bool> {
        let ended = self.kernel.has_ended()?;
        if ended {
            self.sleeps = None;
        }
        Ok(ended)
    }
}

#[cfg(all(test, not(am_loom)))]
mod tests {
    use super::*;
    use crate::sys;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::fd::AsFd;
    use std::sync::atomic::AtomicU32;

    /// A rank of the job moves the sleep of another to a word that nobody wakes: after the longest time the next
    /// announcement is heard again.
    #[test]
    fn a_sleep_that_was_moved_is_begun_anew() {
        let job = crate::Job::create(&crate::JobConfig::new(2)).expect("memory is there");
        let parking = &job.board.parking[0];
        let Ok(mut ear) = Ear::new() else {
            eprintln!("SKIPPED: the kernel has no sleeps on futexes by io_uring, or does not permit them");
            return;
        };
        let descriptor = ear.kernel().descriptor().expect("a descriptor is left");
        let is_readable = || {
            let mut waits = [PollFd::new(descriptor.as_fd(), PollFlags::POLLIN)];
            poll(&mut waits, PollTimeout::ZERO).expect("it is open") != 0
        };
        let fenced = !sys::register_for_fences();
        let Ok(heard) = ear.listen(parking, fenced, LONGEST, || false) else {
            eprintln!("SKIPPED: not everyone can be made to fence");
            return;
        };
        assert_eq!(heard, Heard::NothingYet);
        let elsewhere = AtomicU32::new(0);
        assert_eq!(parking.move_sleepers(&elsewhere), 1);
        parking.wake();
        assert!(!is_readable(), "nobody hears it");
        ear.grow_old();
        assert_eq!(ear.listen(parking, fenced, LONGEST, || false).expect("it sleeps"), Heard::NothingYet);
        parking.wake();
        assert!(is_readable());
        assert!(ear.take().expect("it can sleep"));
    }

    /// The same where another thread began the sleep, which is asleep itself: its end may come late, and is heard.
    #[test]
    fn a_moved_sleep_of_another_thread_is_begun_anew() {
        let job = crate::Job::create(&crate::JobConfig::new(2)).expect("memory is there");
        let parking = &job.board.parking[0];
        let Ok(mut ear) = Ear::new() else {
            eprintln!("SKIPPED: the kernel has no sleeps on futexes by io_uring, or does not permit them");
            return;
        };
        let descriptor = ear.kernel().descriptor().expect("a descriptor is left");
        let wait_readable = || {
            let mut waits = [PollFd::new(descriptor.as_fd(), PollFlags::POLLIN)];
            assert_eq!(poll(&mut waits, PollTimeout::from(60_000_u16)).expect("it is open"), 1);
        };
        let fenced = !sys::register_for_fences();
        let (over, asleep) = std::sync::mpsc::channel::<()>();
        let (begun, first) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let ear = &mut ear;
            scope.spawn(move || {
                begun.send((ear.listen(parking, fenced, LONGEST, || false), ear)).expect("it is waited for");
                // It stays until the others are done.
                let _ = asleep.recv();
            });
            let (heard, ear) = first.recv().expect("the thread has begun it");
            let Ok(heard) = heard else {
                eprintln!("SKIPPED: not everyone can be made to fence");
                return drop(over);
            };
            assert_eq!(heard, Heard::NothingYet);
            assert_eq!(parking.move_sleepers(&AtomicU32::new(0)), 1);
            ear.grow_old();
            // The end of the old sleep may make it readable before the wake-up does.
            assert_eq!(ear.listen(parking, fenced, LONGEST, || false).expect("it sleeps"), Heard::NothingYet);
            let mut looks = 0;
            while ear.sleeps.is_none_or(|since| since.elapsed() >= LONGEST) {
                wait_readable();
                assert_eq!(ear.listen(parking, fenced, LONGEST, || false).expect("it sleeps"), Heard::NothingYet);
                looks += 1;
                assert!(looks < 5, "the end of a sleep is heard once");
            }
            parking.wake();
            wait_readable();
            assert!(ear.take().expect("it can sleep"));
            drop(over);
        });
    }
}
