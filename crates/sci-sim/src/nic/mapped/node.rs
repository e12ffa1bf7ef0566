//! A node's own file, by which the others know that it lives, wake it, and trigger its interrupts.
//!
//! A living process holds a lock on its file; the system lets go of it when the process ends, however it ends. So
//! a file without a lock is that of a dead process: nobody takes it for a living one, and the node's next process
//! replaces it. A second lock, on a file of its own, keeps two processes from taking one node.

use super::config::MappedError;
use super::region::View;
use crate::nic::flag::Sleeper;
use crate::nic::kinds::NodeId;
use am_core::{LossCause, PeerStatus};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::stat::Mode;
use nix::sys::time::TimeSpec;
use nix::unistd::mkfifo;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;

/// What every file of a job begins with: its kind and the version of its layout.
const MAGIC: u64 = u64::from_le_bytes(*b"SCInode1");
const BYTES: usize = 4096;

const AT_MAGIC: usize = 0;
const AT_INCARNATION: usize = 8;
const AT_NODE: usize = 16;
const AT_DEPARTED: usize = 24;
const AT_SLEEPER: usize = 64;
const AT_NEWS: usize = 128;
const AT_INTERRUPTS: usize = 256;

/// Interrupts of a node. Each has two words: who it is, and how often it came.
pub(super) const INTERRUPTS: usize = 64;

pub(super) fn node_path(directory: &Path, node: NodeId) -> PathBuf {
    directory.join(format!("node-{}", node.0))
}

fn bell_path(directory: &Path, node: NodeId) -> PathBuf {
    directory.join(format!("wake-{}", node.0))
}

fn claim_path(directory: &Path, node: NodeId) -> PathBuf {
    directory.join(format!("claim-{}", node.0))
}

/// What the names of a node's segments begin with.
pub(super) fn segment_prefix(node: NodeId) -> String {
    format!("segment-{}-", node.0)
}

fn lock(kind: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// Locks a file for as long as it is open.
fn try_lock(file: &File) -> io::Result<bool> {
    match fcntl(file, FcntlArg::F_OFD_SETLK(&lock(libc::F_WRLCK))) {
        Ok(_) => Ok(true),
        Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Whether somebody else holds a lock on a file.
fn locked(file: &File) -> bool {
    let mut found = lock(libc::F_WRLCK);
    let asked = fcntl(file, FcntlArg::F_OFD_GETLK(&mut found));
    // What cannot be asked is not taken for dead.
    asked.is_err() || found.l_type != libc::F_UNLCK as libc::c_short
}

/// A random number that is not 0.
fn incarnation() -> u64 {
    RandomState::new().build_hasher().finish() | 1
}

/// The fields of a node's file, seen by itself or by others.
#[derive(Clone, Debug)]
struct Board(View);

impl Board {
    fn sleeper(&self) -> &Sleeper {
        self.0.sleeper(AT_SLEEPER)
    }

    /// How it departed, if it has.
    fn departed(&self) -> Option<PeerStatus> {
        // Acquire: pairs with the Release in `depart`: what it stored before is there.
        match self.0.word(AT_DEPARTED).load(Acquire) {
            0 => None,
            1 => Some(PeerStatus::Finished),
            3 => Some(PeerStatus::Lost(LossCause::Panicked)),
            4 => Some(PeerStatus::Lost(LossCause::Died)),
            5 => Some(PeerStatus::Lost(LossCause::Faulty)),
            _ => Some(PeerStatus::Lost(LossCause::Left)),
        }
    }

    fn interrupt(&self, slot: usize) -> usize {
        AT_INTERRUPTS + 16 * slot
    }
}

/// This process's node.
#[derive(Debug)]
pub(super) struct Post {
    directory: PathBuf,
    node: NodeId,
    board: Board,
    /// Others write a byte here to wake this process.
    bell: File,
    incarnation: u64,
    /// Locked as long as the process lives.
    _file: File,
    _claim: File,
}

impl Post {
    /// Takes a node: makes the directory, clears away what a dead process left, and tells that it lives.
    pub(super) fn take(directory: &Path, node: NodeId) -> Result<Self, MappedError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| MappedError::File { path, source }
        };
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed(directory))?;
        let path = claim_path(directory, node);
        let Some(claim) = claim(&path).map_err(failed(&path))? else {
            return Err(MappedError::Taken { node, directory: directory.into() });
        };
        clear_away(directory, node).map_err(failed(directory))?;
        let path = bell_path(directory, node);
        mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR).map_err(|error| failed(&path)(error.into()))?;
        let bell = open_bell(&path).map_err(failed(&path))?;
        // Made and locked under a name that nobody opens, so that whoever finds it finds it alive.
        let fresh = directory.join(format!("node-{}.new", node.0));
        let made = new_file(&fresh, BYTES).and_then(|file| {
            let view = View::new(&file, BYTES)?;
            let locked = try_lock(&file)?;
            if locked { Ok((file, view)) } else { Err(ErrorKind::WouldBlock.into()) }
        });
        let (file, view) = made.map_err(failed(&fresh))?;
        let incarnation = incarnation();
        view.word(AT_INCARNATION).store(incarnation, Relaxed);
        view.word(AT_NODE).store(u64::from(node.0), Relaxed);
        view.word(AT_MAGIC).store(MAGIC, Release);
        fs::rename(&fresh, node_path(directory, node)).map_err(failed(&fresh))?;
        let directory = directory.to_owned();
        Ok(Self { directory, node, board: Board(view), bell, incarnation, _file: file, _claim: claim })
    }

    pub(super) fn incarnation(&self) -> u64 {
        self.incarnation
    }

    pub(super) fn sleeper(&self) -> &Sleeper {
        self.board.sleeper()
    }

    /// How often others have told this process to look.
    pub(super) fn news(&self) -> u64 {
        // Acquire: pairs with the Release in `Peer::tell`.
        self.board.0.word(AT_NEWS).load(Acquire)
    }

    pub(super) fn departed(&self) -> Option<PeerStatus> {
        self.board.departed()
    }

    /// Tells that this process departs; only the first time counts. Returns whether it was.
    pub(super) fn depart(&self, how: PeerStatus) -> bool {
        let word = match how {
            PeerStatus::Finished => 1,
            PeerStatus::Lost(LossCause::Panicked) => 3,
            PeerStatus::Lost(LossCause::Died) => 4,
            PeerStatus::Lost(LossCause::Faulty) => 5,
            _ => 2,
        };
        // Release: pairs with the Acquire in `departed`.
        self.board.0.word(AT_DEPARTED).compare_exchange(0, word, Release, Relaxed).is_ok()
    }

    /// Sleeps until somebody rings, for at most this long.
    pub(super) fn sleep(&self, longest: Duration) {
        let mut bells = [PollFd::new(self.bell.as_fd(), PollFlags::POLLIN)];
        // Interrupted or not: the caller looks again.
        if ppoll(&mut bells, Some(TimeSpec::from_duration(longest)), None).is_ok_and(|rung| rung > 0) {
            let _ = (&self.bell).read(&mut [0; 64]);
        }
    }

    /// Words of an interrupt: who it is, how often it came.
    pub(super) fn interrupt(&self, slot: usize) -> (&std::sync::atomic::AtomicU64, &std::sync::atomic::AtomicU64) {
        let at = self.board.interrupt(slot);
        (self.board.0.word(at), self.board.0.word(at + 8))
    }

    /// Removes the node's files, and the directory if nothing is left in it.
    pub(super) fn clear(&self) {
        let _ = clear_away(&self.directory, self.node);
        let _ = fs::remove_file(claim_path(&self.directory, self.node));
        let _ = fs::remove_dir(&self.directory);
    }
}

/// Locks a node's claim. The file may be removed by its last owner between opening and locking it: then it is
/// another's.
fn claim(path: &Path) -> io::Result<Option<File>> {
    loop {
        let options =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        let file = match options {
            // Its last process has removed the directory behind itself.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let parent = path.parent().unwrap_or(Path::new("."));
                DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
                continue;
            }
            file => file?,
        };
        if !try_lock(&file)? {
            return Ok(None);
        }
        match fs::metadata(path) {
            Ok(found) if found.ino() == file.metadata()?.ino() => return Ok(Some(file)),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
}

/// Removes what a process of this node has left.
fn clear_away(directory: &Path, node: NodeId) -> io::Result<()> {
    // The node's own file first: without it nobody connects to a segment.
    let remove = |path: &Path| match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    remove(&node_path(directory, node))?;
    remove(&bell_path(directory, node))?;
    remove(&directory.join(format!("node-{}.new", node.0)))?;
    let prefix = segment_prefix(node);
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix)) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// A new file of a size, of zeros, which takes room as it is written to.
pub(super) fn new_file(path: &Path, len: usize) -> io::Result<File> {
    // Beyond its limit of file sizes the kernel would end this process with a signal.
    let (limit, _) = getrlimit(Resource::RLIMIT_FSIZE)?;
    if len as u64 > limit {
        let text = format!(
            "a file of {len} bytes, but this process may make files of {limit} (ulimit -f): start it with `ulimit -f unlimited`"
        );
        return Err(io::Error::new(ErrorKind::FileTooLarge, text));
    }
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
    file.set_len(len as u64)?;
    Ok(file)
}

/// Opens a FIFO for both directions: so it never waits for the other side, and writing never finds nobody.
fn open_bell(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path)
}

/// Another process's node.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) node: NodeId,
    board: Board,
    bell: File,
    file: File,
    incarnation: u64,
    /// Its lock has gone: its process has ended, with or without a last word.
    died: AtomicU32,
}

impl Peer {
    /// The process that lives at a node; none if there is none yet, or any more.
    pub(super) fn find(directory: &Path, node: NodeId) -> io::Result<Option<Self>> {
        let absent = |error: io::Error| if error.kind() == ErrorKind::NotFound { Ok(None) } else { Err(error) };
        let file = match OpenOptions::new().read(true).write(true).open(node_path(directory, node)) {
            Ok(file) => file,
            Err(error) => return absent(error),
        };
        let view = View::new(&file, BYTES)?;
        // Acquire: pairs with the Release in `Post::take`.
        let good = view.word(AT_MAGIC).load(Acquire) == MAGIC
            && view.word(AT_NODE).load(Relaxed) == u64::from(node.0)
            && locked(&file);
        if !good {
            return Ok(None);
        }
        let bell = match open_bell(&bell_path(directory, node)) {
            Ok(bell) => bell,
            Err(error) => return absent(error),
        };
        let incarnation = view.word(AT_INCARNATION).load(Relaxed);
        Ok(Some(Self { node, board: Board(view), bell, file, incarnation, died: AtomicU32::new(0) }))
    }

    pub(super) fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Whether its process is known to have ended. Cheap.
    #[inline]
    pub(super) fn dead(&self) -> bool {
        self.died.load(Relaxed) != 0
    }

    /// What is known of it. Cheap.
    pub(super) fn status(&self) -> PeerStatus {
        let lost = if self.dead() { PeerStatus::Lost(LossCause::Died) } else { PeerStatus::Active };
        self.board.departed().unwrap_or(lost)
    }

    /// Asks the system whether it lives; returns its status.
    pub(super) fn look(&self) -> PeerStatus {
        if !locked(&self.file) {
            self.died.store(1, Relaxed);
        }
        self.status()
    }

    /// Whether its memory is of any use: it lives, or has only told that it is about to end.
    pub(super) fn gone(&self) -> bool {
        self.dead() || matches!(self.board.departed(), Some(PeerStatus::Lost(_)))
    }

    /// Wakes it if it sleeps; to be called after whatever it is to find.
    #[inline]
    pub(super) fn wake(&self) {
        if self.board.sleeper().rouse() {
            self.ring();
        }
    }

    #[cold]
    fn ring(&self) {
        // A full FIFO has woken it already.
        let _ = (&self.bell).write(&[1]);
    }

    /// Tells it to look at its segments, interrupts and peers.
    pub(super) fn tell(&self) {
        // Release: pairs with the Acquire in `news`.
        self.board.0.word(AT_NEWS).fetch_add(1, Release);
        self.wake();
    }

    /// The slot and mark of an interrupt with a number.
    pub(super) fn find_interrupt(&self, number: u32) -> Option<(usize, u64)> {
        (0..INTERRUPTS).find_map(|slot| {
            // Acquire: pairs with the Release of its owner.
            let mark = self.board.0.word(self.board.interrupt(slot)).load(Acquire);
            (mark != 0 && mark as u32 == number).then_some((slot, mark))
        })
    }

    /// Triggers an interrupt; false if it is not there any more.
    pub(super) fn trigger(&self, slot: usize, mark: u64) -> bool {
        let at = self.board.interrupt(slot);
        if self.board.0.word(at).load(Acquire) != mark {
            return false;
        }
        self.board.0.word(at + 8).fetch_add(1, AcqRel);
        self.tell();
        true
    }
}
