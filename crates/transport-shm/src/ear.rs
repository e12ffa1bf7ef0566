//! How an endpoint sleeps in the event loop of its program (`epoll`): the kernel sleeps on the endpoint's word in
//! its stead, and a descriptor becomes readable when that sleep ends. Whoever wakes the endpoint does what it does
//! for all others, and no thread stands between them. Checked with loom.
//!
//! Announcing, the last look and waking are those of [`Parking`]. A sleep that has begun outlasts the announcement
//! for which it was begun, when something else woke the endpoint: it is on the same word, so who ends the next
//! announcement ends it, too.

#[cfg(am_loom)]
use crate::model::sys::Uring;
use crate::park::{LONGEST, Parking};
#[cfg(not(am_loom))]
use crate::sys::Uring;
use std::io;
use std::time::Duration;

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
    /// Whether a sleep has begun and is not known to have ended.
    sleeps: bool,
}

impl Ear {
    /// An ear that listens for nothing yet.
    ///
    /// # Errors
    /// Where the kernel has no such sleeps.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { kernel: Uring::new()?, sleeps: false })
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
        if !self.sleeps {
            parking.doze_in(&mut self.kernel)?;
            self.sleeps = true;
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
        self.sleeps &= !ended;
        Ok(ended)
    }
}
