//! The lifeline: a pipe whose hang-up tells every process of a job, however deep below the launcher, that it is
//! gone.
//!
//! A launcher's direct children die with it by the kernel's hand (see `spawn.rs`). A rank that runs below a
//! wrapper (a shell, a debugger) does not, so it watches the pipe that it inherited.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread;

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{getpid, pipe2};

/// The launcher's end; dropping it (or dying) cuts the line.
#[derive(Debug)]
pub(crate) struct Lifeline {
    /// Held open, never written.
    _held: OwnedFd,
    watched: Arc<OwnedFd>,
}

impl Lifeline {
    /// A new line, inherited by nobody yet.
    pub(crate) fn new() -> nix::Result<Self> {
        let (watched, held) = pipe2(OFlag::O_CLOEXEC)?;
        Ok(Self { _held: held, watched: Arc::new(watched) })
    }

    /// The end that ranks inherit.
    pub(crate) fn watched(&self) -> &Arc<OwnedFd> {
        &self.watched
    }
}

/// Kills this process, from a thread of its own, as soon as the line is cut.
///
/// # Errors
/// Those of starting a thread.
pub(crate) fn watch(line: File) -> io::Result<()> {
    thread::Builder::new().name("am-lifeline".into()).stack_size(64 * 1024).spawn(move || {
        let mut ends = [PollFd::new(line.as_fd(), PollFlags::POLLIN)];
        loop {
            match poll(&mut ends, PollTimeout::NONE) {
                Ok(_) => break,
                Err(nix::Error::EINTR) => {}
                // A line that can't be watched must not end a healthy rank.
                Err(_) => return,
            }
        }
        let _ = kill(getpid(), Signal::SIGKILL);
    })?;
    Ok(())
}
