//! Waking an endpoint that sleeps in an event loop, where a word can wake nobody: a pipe of its own, which others
//! open by what the endpoint's block says of it when they first find the endpoint asleep so. A pair that never
//! does costs no descriptor, and no thread stands between sender and sleeper.
//!
//! A pipe of another process is opened as `/proc/PID/fd/N`, which the system permits to processes of one user,
//! also where Yama forbids debugging. Who cannot open it says so in the block, and the endpoint sleeps by its
//! thread ([`crate::bell`]) from then on; the first wake-up is lost then, and the endpoint finds what has come
//! when it looks for itself, within a second.
//!
//! The block lies in memory that every rank can write: what is opened is a pipe with the inode that the block
//! says, and all that is done with it is to write a byte. A faulty rank could do that itself, and as the same
//! user.

use crate::layout::endpoint;
use crate::region::View;
use crate::sync::{AtomicU64, Mutex, Relaxed};
use nix::fcntl::OFlag;
use nix::sys::prctl;
use nix::unistd::pipe2;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::sync::PoisonError;

/// Which pipe an endpoint has: what its block says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name {
    pid: u64,
    number: u64,
    inode: u64,
}

/// The way to an endpoint's pipe, for all of this process who wake it.
#[derive(Debug)]
pub(crate) struct Door {
    block: View<AtomicU64>,
    opened: Mutex<Option<(Name, File)>>,
}

impl Door {
    /// To the endpoint of a block.
    pub(crate) fn new(block: View<AtomicU64>) -> Self {
        Self { block, opened: Mutex::new(None) }
    }

    /// Wakes the endpoint, which has announced that it sleeps on its pipe. Opens that at the first time.
    #[cold]
    pub(crate) fn ring(&self) {
        let word = |index: usize| self.block[index].load(Relaxed);
        let name = Name { pid: word(endpoint::PID), number: word(endpoint::PIPE), inode: word(endpoint::INODE) };
        // Nothing panics while it holds the lock.
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if opened.as_ref().is_none_or(|(known, _)| *known != name) {
            *opened = name.open().map(|pipe| (name, pipe));
        }
        let written = opened.as_mut().map(|(_, pipe)| pipe.write(&[1]));
        let rung = match written {
            Some(Ok(_)) => true,
            // It is full, so readable.
            Some(Err(error)) => error.kind() == ErrorKind::WouldBlock,
            None => false,
        };
        if !rung {
            self.block[endpoint::UNHEARD].store(1, Relaxed);
        }
    }

    /// Whether somebody has tried to wake the endpoint so in vain.
    pub(crate) fn is_unheard(&self) -> bool {
        self.block[endpoint::UNHEARD].load(Relaxed) != 0
    }
}

impl Name {
    fn open(self) -> Option<File> {
        let number = self.number.checked_sub(1)?;
        // For reading, too: then writing never fails, nor raises a signal, for want of a reader.
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(OFlag::O_NONBLOCK.bits());
        let pipe = options.open(format!("/proc/{}/fd/{number}", self.pid)).ok()?;
        let found = pipe.metadata().ok()?;
        (found.file_type().is_fifo() && found.ino() == self.inode).then_some(pipe)
    }
}

/// An endpoint's own pipe.
#[derive(Debug)]
pub(crate) struct Pipe {
    reader: OwnedFd,
    /// Without a writer, the reader would always be at its end.
    _writer: OwnedFd,
}

impl Pipe {
    /// Makes the pipe of the endpoint of a block, and says there which it is; `None` if the system refuses, or
    /// nobody could open it.
    pub(crate) fn make(block: &View<AtomicU64>) -> Option<Self> {
        if !prctl::get_dumpable().is_ok_and(|dumpable| dumpable) {
            return None;
        }
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).ok()?;
        let file = File::from(reader);
        let inode = file.metadata().ok()?.ino();
        let reader = OwnedFd::from(file);
        block[endpoint::INODE].store(inode, Relaxed);
        // Plus one, so that zero means none. Sleep on it is announced later, in sequentially consistent order.
        block[endpoint::PIPE].store(reader.as_raw_fd() as u64 + 1, Relaxed);
        Some(Self { reader, _writer: writer })
    }

    /// Another descriptor of what becomes readable.
    pub(crate) fn reader(&self) -> Option<OwnedFd> {
        self.reader.try_clone().ok()
    }
}
