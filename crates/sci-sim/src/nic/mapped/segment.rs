//! A segment's file: a page that tells whether one may connect and who has, then the memory itself.

use super::node::{Peer, new_file, segment_prefix};
use super::region::View;
use crate::nic::code::Code;
use crate::nic::flag::barrier;
use crate::nic::kinds::{NodeId, SegmentId, SegmentReason};
use nix::fcntl::posix_fallocate;
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32};

const MAGIC: u64 = u64::from_le_bytes(*b"SCIsegm1");

const AT_MAGIC: usize = 0;
const AT_INCARNATION: usize = 8;
const AT_ID: usize = 16;
const AT_SIZE: usize = 24;
const AT_BASE: usize = 32;
const AT_AVAILABLE: usize = 64;
const AT_CONNECTIONS: usize = 128;

/// Where the memory begins.
const MEMORY: usize = 4096;

/// Connections of a segment at once.
pub(super) const CONNECTIONS: usize = 480;

/// Events of a segment that have not been looked at: what comes beyond is dropped.
pub(super) const EVENTS: usize = 256;

fn path(directory: &Path, node: NodeId, id: SegmentId) -> PathBuf {
    directory.join(format!("{}{:08x}", segment_prefix(node), id.0))
}

fn pages(view: &View, size: usize) -> View {
    view.part(MEMORY, size)
}

/// Size of the file of a segment: whole words, so that memory can be seen as words.
fn file_len(size: usize) -> usize {
    MEMORY + size.next_multiple_of(8)
}

/// A segment of this node.
#[derive(Debug)]
pub(super) struct Local {
    pub(super) id: SegmentId,
    pub(super) size: usize,
    pub(super) session: Arc<AtomicU32>,
    path: PathBuf,
    file: File,
    head: View,
    pub(super) memory: View,
    pub(super) prepared: AtomicBool,
    pub(super) maps: AtomicU32,
    pub(super) transfers: AtomicU32,
    pub(super) callback: bool,
    pub(super) events: Mutex<VecDeque<(NodeId, SegmentReason)>>,
    /// The connections as they were when they were last looked at.
    seen: Mutex<Vec<u64>>,
}

/// What a new segment is made of.
pub(super) struct New<'a> {
    pub(super) directory: &'a Path,
    pub(super) node: NodeId,
    pub(super) id: SegmentId,
    pub(super) size: usize,
    pub(super) base: u64,
    pub(super) incarnation: u64,
    pub(super) callback: bool,
    pub(super) session: Arc<AtomicU32>,
}

/// In the mark of a connection: it is there. Without it, it has ended, which its owner has not seen yet.
const HERE: u64 = 1;

/// Who is connected: the node in the upper half, a part of its process's number in the lower.
fn mark(node: NodeId, incarnation: u64) -> u64 {
    (u64::from(node.0) + 1) << 32 | u64::from(incarnation as u32) | HERE
}

fn marked_node(mark: u64) -> NodeId {
    NodeId(((mark >> 32) as u16).wrapping_sub(1))
}

impl Local {
    pub(super) fn create(new: New<'_>) -> io::Result<Self> {
        let New { directory, node, id, size, base, incarnation, callback, session } = new;
        let path = path(directory, node, id);
        let len = file_len(size);
        let file = new_file(&path, len)?;
        let mapped = View::new(&file, len);
        if mapped.is_err() {
            let _ = std::fs::remove_file(&path);
        }
        let view = mapped?;
        for (at, value) in
            [(AT_INCARNATION, incarnation), (AT_ID, id.0.into()), (AT_SIZE, size as u64), (AT_BASE, base)]
        {
            view.word(at).store(value, Relaxed);
        }
        // Release: pairs with the Acquire in `Remote::connect`.
        view.word(AT_MAGIC).store(MAGIC, Release);
        Ok(Self {
            id,
            size,
            session,
            path,
            file,
            memory: pages(&view, size.next_multiple_of(8)),
            head: view,
            prepared: AtomicBool::new(false),
            maps: AtomicU32::new(0),
            transfers: AtomicU32::new(0),
            callback,
            events: Mutex::default(),
            seen: Mutex::new(vec![0; CONNECTIONS]),
        })
    }

    /// Takes the room on the file system, so that no store finds it full.
    pub(super) fn prepare(&self) -> Result<(), Code> {
        use nix::errno::Errno;
        match posix_fallocate(&self.file, 0, file_len(self.size) as i64) {
            Ok(()) | Err(Errno::EOPNOTSUPP) => Ok(()),
            Err(Errno::ENOSPC | Errno::EFBIG) => Err(Code::NoSpace),
            Err(_) => Err(Code::System),
        }
    }

    pub(super) fn offer(&self, available: bool) {
        self.head.word(AT_AVAILABLE).store(u64::from(available), SeqCst);
    }

    /// Compares who is connected with the last look. `alive` says whether a node's process of that mark still is.
    /// Tells what has changed, and returns how many are connected.
    pub(super) fn survey(
        &self,
        alive: impl Fn(NodeId, &dyn Fn(u64) -> bool) -> bool,
        mut tell: impl FnMut(NodeId, SegmentReason),
    ) -> usize {
        // Orders what this process has published, as that one may no longer connect, before the look; pairs with
        // the barrier in `Remote::connect`.
        barrier();
        let mut seen = self.seen.lock().expect("nobody panics with the connections in hand");
        let mut connected = 0;
        for (slot, before) in seen.iter_mut().enumerate() {
            let word = self.head.word(AT_CONNECTIONS + 8 * slot);
            // Acquire: pairs with the Release of who connects or disconnects.
            let now = word.load(Acquire);
            if now == 0 && *before == 0 {
                continue;
            }
            let (node, here) = (marked_node(now), now & HERE != 0);
            if *before != 0 && *before != now | HERE {
                tell(marked_node(*before), SegmentReason::Disconnect);
            }
            if now != 0 && *before != now | HERE {
                tell(node, SegmentReason::Connect);
            }
            *before = now;
            if now != 0 && (!here || !alive(node, &|incarnation| mark(node, incarnation) == now)) {
                tell(node, if here { SegmentReason::Lost } else { SegmentReason::Disconnect });
                *before = 0;
                // Unless somebody else has the slot already.
                let _ = word.compare_exchange(now, 0, AcqRel, Relaxed);
                continue;
            }
            connected += usize::from(now != 0);
        }
        connected
    }

    /// Whether new connections are let in.
    pub(super) fn available(&self) -> bool {
        self.head.word(AT_AVAILABLE).load(SeqCst) != 0
    }

    /// Unlinks the file. Who is connected keeps what it has mapped.
    pub(super) fn unlink(&self) {
        self.offer(false);
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A connection to a segment of another node.
#[derive(Debug)]
pub(super) struct Remote {
    pub(super) id: SegmentId,
    pub(super) peer: Arc<Peer>,
    pub(super) size: usize,
    pub(super) base: u64,
    pub(super) session: Arc<AtomicU32>,
    pub(super) memory: View,
    head: View,
    slot: usize,
    mark: u64,
    pub(super) maps: AtomicU32,
    pub(super) transfers: AtomicU32,
    pub(super) callback: bool,
    pub(super) lost: AtomicBool,
    pub(super) events: Mutex<VecDeque<SegmentReason>>,
}

/// Who connects to what.
pub(super) struct Wish<'a> {
    pub(super) directory: &'a Path,
    pub(super) id: SegmentId,
    pub(super) me: NodeId,
    pub(super) incarnation: u64,
    pub(super) callback: bool,
    pub(super) session: Arc<AtomicU32>,
    /// A defect: whether or not it is available.
    pub(super) anyway: bool,
}

impl Remote {
    pub(super) fn connect(wish: Wish<'_>, peer: Arc<Peer>) -> Result<Self, Code> {
        let Wish { directory, id, me, incarnation, callback, session, anyway } = wish;
        let path = path(directory, peer.node, id);
        let file = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(Code::NoSuchSegment),
            Err(_) => return Err(Code::System),
        };
        // A file that is not finished, or of an earlier process, is no segment.
        let len = file.metadata().map_err(|_| Code::System)?.len();
        if len <= MEMORY as u64 {
            return Err(Code::NoSuchSegment);
        }
        let len = usize::try_from(len).map_err(|_| Code::System)?;
        let head = View::new(&file, len).map_err(|_| Code::System)?;
        // Acquire: pairs with the Release in `Local::create`.
        let finished = head.word(AT_MAGIC).load(Acquire) == MAGIC;
        let field = |at: usize| head.word(at).load(Relaxed);
        let (size, base) = (field(AT_SIZE), field(AT_BASE));
        let fits = usize::try_from(size).is_ok_and(|size| size != 0 && file_len(size) == len);
        let ours = field(AT_INCARNATION) == peer.incarnation() && field(AT_ID) == u64::from(id.0);
        if !finished || !ours || !fits || base >> 48 != 0 {
            return Err(Code::NoSuchSegment);
        }
        let size = size as usize;
        let mark = mark(me, incarnation);
        let open = |head: &View| anyway || head.word(AT_AVAILABLE).load(SeqCst) != 0;
        if !open(&head) {
            return Err(Code::ConnectionRefused);
        }
        let free = |free: fn(u64) -> bool| {
            (0..CONNECTIONS).find(|slot| {
                let word = head.word(AT_CONNECTIONS + 8 * slot);
                let found = word.load(Relaxed);
                free(found) && word.compare_exchange(found, mark, AcqRel, Relaxed).is_ok()
            })
        };
        // Only if need be in the place of one that has ended and that the owner should have seen.
        let slot = free(|found| found == 0).or_else(|| free(|found| found & HERE == 0));
        let slot = slot.ok_or(Code::NoSpace)?;
        // Either this look finds that the segment is not available any more, or its owner finds the connection.
        barrier();
        if !open(&head) {
            head.word(AT_CONNECTIONS + 8 * slot).store(0, Release);
            return Err(Code::ConnectionRefused);
        }
        peer.tell();
        Ok(Self {
            id,
            size,
            base,
            session,
            memory: pages(&head, size.next_multiple_of(8)),
            head,
            slot,
            mark,
            peer,
            maps: AtomicU32::new(0),
            transfers: AtomicU32::new(0),
            callback,
            lost: AtomicBool::new(false),
            events: Mutex::default(),
        })
    }

    /// Gives the connection up; once is enough.
    pub(super) fn disconnect(&self) {
        let word = self.head.word(AT_CONNECTIONS + 8 * self.slot);
        // Release: what was stored is there when the owner sees that nobody is connected.
        if word.compare_exchange(self.mark, self.mark & !HERE, Release, Relaxed).is_ok() {
            self.peer.tell();
        }
    }
}
