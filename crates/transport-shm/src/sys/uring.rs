//! A sleep on a word that the kernel sleeps in a program's stead (io_uring's wait for a futex): a descriptor that
//! an event loop can wait for becomes readable when the sleep ends.

use io_uring::opcode::{AsyncCancel, FutexWait};
use io_uring::{IoUring, Probe};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU32;
use std::{fmt, io};

/// Futexes of 32 bits, in memory that processes share (`FUTEX2_SIZE_U32` of `linux/futex.h`).
const SHARED_32_BITS: u32 = 2;

/// Whoever wakes the futex, whatever bits it names (`FUTEX_BITSET_MATCH_ANY`).
const EVERYONE: u64 = u32::MAX as u64;

/// What completions are of.
const SLEEP: u64 = 1;
const CANCEL: u64 = 2;

/// A place for one sleep at a time.
pub(crate) struct Uring(IoUring);

impl fmt::Debug for Uring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Uring").field(&self.0.as_raw_fd()).finish()
    }
}

impl Uring {
    /// Makes the place.
    ///
    /// # Errors
    /// Where the kernel has no such sleeps (before Linux 6.7), or does not permit them to this process.
    pub(crate) fn new() -> io::Result<Self> {
        let ring = IoUring::new(2)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        if !probe.is_supported(FutexWait::CODE) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Self(ring))
    }

    /// Another descriptor of what is readable from the end of a sleep to [`Uring::has_ended`].
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        // SAFETY: the ring is open as long as `self` is.
        unsafe { BorrowedFd::borrow_raw(self.0.as_raw_fd()) }.try_clone_to_owned()
    }

    /// Begins the sleep, which ends when `word` is woken, or at once if it does not hold `expected`. The one
    /// before has ended.
    ///
    /// # Errors
    /// The kernel's; the sleep may have begun and never end then.
    pub(crate) fn sleep(&mut self, word: &AtomicU32, expected: u32) -> io::Result<()> {
        let sleep =
            FutexWait::new(word.as_ptr(), expected.into(), EVERYONE, SHARED_32_BITS).build().user_data(SLEEP);
        // SAFETY: the kernel reads the word, atomically, while `submit` runs, for which it is borrowed. What it
        // keeps afterwards is the futex's key (a page of a file and a place in it), and it writes nothing there.
        unsafe { self.0.submission().push(&sleep) }.map_err(io::Error::other)?;
        self.0.submit().map(drop)
    }

    /// Ends the sleep that was begun, of whose end [`Uring::has_ended`] has not told yet and then does. It is
    /// the way out of a sleep that nobody can wake: a rank of the job may have moved it to another word
    /// (`FUTEX_REQUEUE`). Does not wait: if another thread began the sleep, it ends when that one next returns
    /// from the kernel.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        let cancel = AsyncCancel::new(SLEEP).build().user_data(CANCEL);
        // SAFETY: it names no memory.
        unsafe { self.0.submission().push(&cancel) }.map_err(io::Error::other)?;
        self.0.submit().map(drop)
    }

    /// Whether the sleep that was begun has ended, of which this tells once. No system call.
    ///
    /// # Errors
    /// The kernel could not sleep.
    pub(crate) fn has_ended(&mut self) -> io::Result<bool> {
        let mut ended = false;
        for completion in self.0.completion().filter(|completion| completion.user_data() == SLEEP) {
            match -completion.result() {
                // Woken; not begun, for the word had changed; or the thread that began it has ended, or `end` was
                // called.
                0 | libc::EAGAIN | libc::EINTR | libc::ECANCELED => ended = true,
                error => return Err(io::Error::from_raw_os_error(error)),
            }
        }
        Ok(ended)
    }
}

#[cfg(test)]
mod tests {
    use super::Uring;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::fd::AsFd;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

    fn is_readable(descriptor: &impl AsFd) -> bool {
        poll(&mut [PollFd::new(descriptor.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO).expect("it is open")
            != 0
    }

    /// Waits for a minute at most.
    fn wait_readable(descriptor: &impl AsFd) {
        let mut waits = [PollFd::new(descriptor.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut waits, PollTimeout::from(60_000_u16)).expect("it is open"), 1, "it lasts");
    }

    /// A sleep ends by a wake-up and not before, whatever the word holds meanwhile; one on a changed word at once.
    #[test]
    fn a_sleep_ends_when_it_is_woken() {
        let Ok(mut ring) = Uring::new() else {
            eprintln!("SKIPPED: the kernel has no sleeps on futexes by io_uring, or does not permit them");
            return;
        };
        let (descriptor, word) = (ring.descriptor().expect("a descriptor is left"), AtomicU32::new(1));
        ring.sleep(&word, 1).expect("the kernel has such sleeps");
        word.store(0, Relaxed);
        word.store(1, Relaxed);
        assert!(!is_readable(&descriptor));
        assert!(!ring.has_ended().expect("it can sleep"));
        crate::sys::futex_wake(&word);
        assert!(is_readable(&descriptor));
        assert!(ring.has_ended().expect("it can sleep"));
        assert!(!is_readable(&descriptor));
        assert!(!ring.has_ended().expect("it can sleep"));
        ring.sleep(&word, 0).expect("the kernel has such sleeps");
        assert!(is_readable(&descriptor));
        assert!(ring.has_ended().expect("it can sleep"));
    }

    /// A sleep that somebody has moved to another word can be ended, and the next one is woken as ever.
    #[test]
    fn a_sleep_that_nobody_can_wake_can_be_ended() {
        let Ok(mut ring) = Uring::new() else { return };
        let (descriptor, words) = (ring.descriptor().expect("a descriptor is left"), [1, 1].map(AtomicU32::new));
        for round in 0..2 {
            ring.sleep(&words[0], 1).expect("the kernel has such sleeps");
            let moved = crate::sys::futex_requeue(&words[0], &words[1]);
            assert_eq!(moved, 1, "round {round}");
            crate::sys::futex_wake(&words[0]);
            assert!(!is_readable(&descriptor));
            ring.end().expect("it can be cancelled");
            assert!(is_readable(&descriptor));
            assert!(ring.has_ended().expect("it can sleep"));
            assert!(!is_readable(&descriptor));
        }
        // One that has ended before.
        ring.sleep(&words[0], 0).expect("the kernel has such sleeps");
        ring.end().expect("it can be cancelled");
        assert!(ring.has_ended().expect("it can sleep"));
        ring.sleep(&words[0], 1).expect("the kernel has such sleeps");
        crate::sys::futex_wake(&words[0]);
        assert!(is_readable(&descriptor) && ring.has_ended().expect("it can sleep"));
    }

    /// A sleep whose thread ends does so, too, or goes on as ever, which depends on the kernel: it is woken, or
    /// can be ended.
    #[test]
    fn a_sleep_whose_thread_has_ended_is_not_lost() {
        let Ok(mut ring) = Uring::new() else { return };
        let descriptor = ring.descriptor().expect("a descriptor is left");
        for ends in [false, true] {
            let word = AtomicU32::new(1);
            std::thread::scope(|scope| {
                scope.spawn(|| ring.sleep(&word, 1).expect("the kernel has such sleeps"));
            });
            if ends {
                ring.end().expect("it can be cancelled")
            } else {
                crate::sys::futex_wake(&word)
            }
            wait_readable(&descriptor);
            // That it has been cancelled may be told before its end.
            if !ring.has_ended().expect("it can sleep") {
                wait_readable(&descriptor);
                assert!(ring.has_ended().expect("it can sleep"));
            }
        }
    }

    /// Ends the other thread, also if the test fails.
    struct Ends<'a>(&'a AtomicBool, std::thread::Thread);

    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
            self.1.unpark();
        }
    }

    /// A sleep that another thread has begun is ended, whether that thread sleeps in the kernel or runs; the next
    /// one is this thread's.
    #[test]
    fn a_sleep_of_another_thread_can_be_ended() {
        let Ok(mut ring) = Uring::new() else { return };
        let descriptor = ring.descriptor().expect("a descriptor is left");
        for runs in [false, true] {
            let (words, over) = ([1, 1].map(AtomicU32::new), AtomicBool::new(false));
            let (begun, beginning) = std::sync::mpsc::channel();
            std::thread::scope(|scope| {
                let (ring, words, over) = (&mut ring, &words, &over);
                let other = scope.spawn(move || {
                    ring.sleep(&words[0], 1).expect("the kernel has such sleeps");
                    begun.send(ring).expect("it is waited for");
                    while !over.load(Relaxed) {
                        if runs { std::hint::spin_loop() } else { std::thread::park() }
                    }
                });
                let ring = beginning.recv().expect("the thread has begun it");
                let _end = Ends(over, other.thread().clone());
                // Nobody can wake it.
                assert_eq!(crate::sys::futex_requeue(&words[0], &words[1]), 1);
                ring.end().expect("it can be cancelled");
                // That it has been cancelled may be told before its end.
                wait_readable(&descriptor);
                if !ring.has_ended().expect("it can sleep") {
                    wait_readable(&descriptor);
                    assert!(ring.has_ended().expect("it can sleep"));
                }
                assert!(!is_readable(&descriptor) && !ring.has_ended().expect("it can sleep"));
                ring.sleep(&words[0], 1).expect("the kernel has such sleeps");
                assert!(!is_readable(&descriptor));
                crate::sys::futex_wake(&words[0]);
                assert!(is_readable(&descriptor) && ring.has_ended().expect("it can sleep"));
            });
        }
    }
}
