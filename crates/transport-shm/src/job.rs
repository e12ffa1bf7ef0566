//! The job: a memory file that all ranks of one host map. Making it, opening it, joining it, and the status of
//! everyone.

use crate::config::{JobConfig, JobConfigError};
use crate::layout::{self, Layout, endpoint, header};
use crate::park::{Parking, wake_all};
use crate::region::{Mapping, ShmMemory, Unshared, View};
use crate::sync::AtomicU64;
use crate::transport::Shm;
use am_core::{LossCause, Peer, PeerStatus, Rank, Segment, Shape};
use nix::fcntl::{FcntlArg, FdFlag, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::resource::{Resource, getrlimit};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// A job could not be made or opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// A size is out of range.
    #[error(transparent)]
    Config(#[from] JobConfigError),
    /// The operating system refused memory.
    #[error("shared memory for the job: {0}")]
    Memory(#[from] io::Error),
    /// This process may not make files as large as the job's memory file, most of which is never filled.
    #[error(
        "the job's memory file spans {needed} bytes, most of them never used, but this process may make files of {limit} \
         (ulimit -f): start it with `ulimit -f unlimited`"
    )]
    FileSize {
        /// Bytes that the file spans.
        needed: u64,
        /// The limit of this process in bytes.
        limit: u64,
    },
    /// The descriptor is not a job file.
    #[error("the descriptor is not a job file of this crate")]
    NotAJob,
    /// The job was made by a program with another memory layout.
    #[error(
        "the job has memory layout {found}, this program was built with {ours}: build all programs of a job alike"
    )]
    Layout {
        /// Version in the file.
        found: u64,
        /// Version of this program.
        ours: u64,
    },
    /// The job file's sizes contradict each other.
    #[error("the job file is damaged")]
    Damaged,
}

/// An endpoint could not join its job.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The job has no such rank or endpoint.
    #[error("rank {rank} endpoint {endpoint} is not in a job of {ranks} ranks with {endpoints} endpoint(s) each")]
    NoSuchEndpoint {
        /// Rank asked for.
        rank: u32,
        /// Endpoint asked for.
        endpoint: u16,
        /// Ranks of the job.
        ranks: u32,
        /// Endpoints of every rank.
        endpoints: u16,
    },
    /// Someone has already joined as this endpoint.
    #[error("rank {rank} endpoint {endpoint} has already joined this job")]
    Taken {
        /// The rank.
        rank: u32,
        /// The endpoint.
        endpoint: u16,
    },
    /// The segment asked for is too large.
    #[error("a segment of {bytes} bytes exceeds the limit of {limit}")]
    SegmentTooLarge {
        /// Bytes asked for.
        bytes: usize,
        /// Largest segment.
        limit: u64,
    },
    /// Two endpoints of a rank asked for segments of different sizes.
    #[error("endpoints of rank {rank} ask for segments of {a} and {b} bytes")]
    SegmentsDiffer {
        /// The rank.
        rank: u32,
        /// One size.
        a: u64,
        /// Another size.
        b: u64,
    },
    /// The endpoint's process is in another pid namespace than the job's first one, where process ids mean other
    /// processes.
    #[error(
        "this process is in pid namespace {ours}, but the job's first rank is in {first}: ranks over shared memory \
         watch each other by their process ids; start all ranks of a host in one pid namespace (docker, podman: \
         --pid=host or --pid=container:NAME), or let them talk over UDP (AM_TRANSPORT=udp)"
    )]
    PidNamespace {
        /// The inode of this process's namespace.
        ours: u64,
        /// The inode of the first endpoint's.
        first: u64,
    },
    /// The operating system refused memory or the death watch.
    #[error("joining the job: {0}")]
    System(#[from] io::Error),
}

/// What an endpoint asks for when it joins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct JoinOptions {
    /// Size of the rank's segment in bytes; the same for all endpoints of a rank. Only pages that somebody touches
    /// take memory, so a program that does not know its needs yet may ask for much more than it will use.
    pub segment_bytes: usize,
    /// The endpoint within the rank.
    pub endpoint: u16,
}

impl JoinOptions {
    /// Sets the size of the rank's segment in bytes, 0 by default; the same for all endpoints of a rank.
    #[must_use]
    pub const fn segment_bytes(mut self, bytes: usize) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// Sets the endpoint within the rank, 0 by default.
    #[must_use]
    pub const fn endpoint(mut self, endpoint: u16) -> Self {
        self.endpoint = endpoint;
        self
    }
}

/// Status words of endpoints.
pub(crate) mod status {
    pub(crate) const ABSENT: u64 = 0;
    pub(crate) const ACTIVE: u64 = 1;
    pub(crate) const FINISHED: u64 = 2;
    pub(crate) const LEFT: u64 = 3;
    pub(crate) const PANICKED: u64 = 4;
    pub(crate) const DIED: u64 = 5;
    pub(crate) const FAULTY: u64 = 6;
}

/// The parts of a job that everyone watches. Shared by the endpoints of a process and their death watch.
#[derive(Debug)]
pub(crate) struct Board {
    pub(crate) layout: Layout,
    pub(crate) header: View<AtomicU64>,
    pub(crate) endpoints: Vec<View<AtomicU64>>,
    pub(crate) parking: Vec<Parking>,
}

impl Board {
    /// How often anyone's status has changed.
    pub(crate) fn changes(&self) -> u64 {
        // Acquire: pairs with the AcqRel in `set_status`; the new status is visible with the count.
        self.header[header::CHANGES].load(Acquire)
    }

    pub(crate) fn raw_status(&self, peer: usize) -> u64 {
        self.endpoints[peer][endpoint::STATUS].load(Acquire)
    }

    pub(crate) fn status(&self, peer: usize) -> PeerStatus {
        match self.raw_status(peer) {
            status::ABSENT | status::ACTIVE => PeerStatus::Active,
            status::FINISHED => PeerStatus::Finished,
            status::LEFT => PeerStatus::Lost(LossCause::Left),
            status::PANICKED => PeerStatus::Lost(LossCause::Panicked),
            status::FAULTY => PeerStatus::Lost(LossCause::Faulty),
            // `DIED`, or a word that nobody of sound mind writes.
            _ => PeerStatus::Lost(LossCause::Died),
        }
    }

    /// Whether an endpoint has said that it departs, after which it writes nothing, or its process has ended.
    /// One that broke the protocol may live.
    pub(crate) fn has_ended(&self, peer: usize) -> bool {
        let ended = [status::FINISHED, status::LEFT, status::PANICKED, status::DIED];
        ended.contains(&self.raw_status(peer))
    }

    /// Changes a status if it is one of `from`, and tells everyone. Returns whether it changed.
    pub(crate) fn set_status(&self, peer: usize, from: &[u64], to: u64) -> bool {
        self.change_status(peer, to, |old| from.contains(&old))
    }

    /// Records that an endpoint's process has ended, unless it was known to have ended otherwise. A status that
    /// makes no sense does not protect it.
    pub(crate) fn set_died(&self, peer: usize) {
        self.change_status(peer, status::DIED, |old| !(status::FINISHED..=status::FAULTY).contains(&old));
    }

    fn change_status(&self, peer: usize, to: u64, from: impl Fn(u64) -> bool) -> bool {
        let word = &self.endpoints[peer][endpoint::STATUS];
        // AcqRel: what the endpoint wrote before (its identity, its last frames) is visible with its status.
        let changed = word.fetch_update(AcqRel, Acquire, |old| from(old).then_some(to)).is_ok();
        if changed {
            // That somebody has joined concerns nobody, unless senders have to fence for it from now on.
            if to != status::ACTIVE || self.endpoints[peer][endpoint::NEEDS_FENCE].load(Relaxed) != 0 {
                self.tell_everyone();
            }
        }
        changed
    }

    /// Makes every endpoint look at all statuses.
    fn tell_everyone(&self) {
        // AcqRel: pairs with the Acquire in `changes`.
        self.header[header::CHANGES].fetch_add(1, AcqRel);
        (0..self.endpoints.len()).for_each(|peer| self.add_news(peer));
        wake_all(&self.parking);
    }

    /// Makes an endpoint look for what has changed outside its lanes. The caller wakes it.
    pub(crate) fn add_news(&self, peer: usize) {
        // AcqRel: pairs with the Acquire load in `Shm::poll`; what is new is visible with the count.
        self.endpoints[peer][endpoint::NEWS].fetch_add(1, AcqRel);
    }

    /// Whether any endpoint of the job runs on a kernel without membarrier; then every send must fence.
    pub(crate) fn needs_fences(&self) -> bool {
        self.endpoints.iter().any(|block| block[endpoint::NEEDS_FENCE].load(Relaxed) != 0)
    }

    pub(crate) fn shape(&self) -> Shape {
        Shape { ranks: self.layout.ranks, endpoints: self.layout.endpoints }
    }
}

/// A job of one host: a memory file without a name, which disappears with the last process that has it open.
#[derive(Debug)]
pub struct Job {
    file: File,
    pub(crate) mapping: Arc<Mapping>,
    pub(crate) board: Arc<Board>,
}

impl Job {
    /// Makes a job. Programs that this process starts do not inherit its descriptor, from the first moment on;
    /// [`Job::inherit`] has them do so.
    ///
    /// # Errors
    /// [`JobError::Config`] for sizes out of range, [`JobError::FileSize`] under a limit of file sizes,
    /// [`JobError::Memory`] from the system.
    pub fn create(config: &JobConfig) -> Result<Self, JobError> {
        config.check()?;
        let layout = Layout::new(config);
        let fd = memfd_create(c"active-messages", MFdFlags::MFD_ALLOW_SEALING | MFdFlags::MFD_CLOEXEC)
            .map_err(io::Error::from)?;
        let file = File::from(fd);
        // Beyond its limit of file sizes the kernel would end this process with a signal.
        let (limit, _) = getrlimit(Resource::RLIMIT_FSIZE).map_err(io::Error::from)?;
        if layout.file_bytes() > limit {
            return Err(JobError::FileSize { needed: layout.file_bytes(), limit });
        }
        file.set_len(layout.file_bytes())?;
        // Nobody can shrink the file any more, so no access to a mapping can fault because a peer truncated it;
        // nor add a seal that keeps others from joining.
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).map_err(io::Error::from)?;
        let job = Self::map(file, layout)?;
        let words = &job.board.header;
        for (index, value) in [
            (header::RANKS, u64::from(layout.ranks)),
            (header::ENDPOINTS, u64::from(layout.endpoints)),
            (header::REQUEST_CELLS, layout.request_cells as u64),
            (header::REQUEST_BYTES, layout.request_bytes as u64),
            (header::REPLY_CELLS, layout.reply_cells as u64),
            (header::REPLY_BYTES, layout.reply_bytes as u64),
            (header::DIGEST, layout.digest()),
            (header::VERSION, layout::VERSION),
        ] {
            words[index].store(value, Relaxed);
        }
        // Release: pairs with the Acquire in `open`; the sizes above are complete.
        words[header::MAGIC].store(layout::MAGIC, Release);
        Ok(job)
    }

    /// Opens a job through its descriptor, inherited or received.
    ///
    /// # Errors
    /// [`JobError`] if it is no job file, of another layout version, or cannot be mapped.
    pub fn open(fd: OwnedFd) -> Result<Self, JobError> {
        let file = File::from(fd);
        let seals = fcntl(&file, FcntlArg::F_GET_SEALS).map_err(|_| JobError::NotAJob)?;
        if !SealFlag::from_bits_truncate(seals).contains(SealFlag::F_SEAL_SHRINK) {
            return Err(JobError::NotAJob);
        }
        let size = file.metadata()?.len();
        if size < (header::WORDS * 8) as u64 {
            return Err(JobError::NotAJob);
        }
        let words = View::<AtomicU64>::new(&Mapping::new(&file, 0, header::WORDS * 8)?, 0, header::WORDS);
        // Acquire: pairs with the Release in `create`.
        if words[header::MAGIC].load(Acquire) != layout::MAGIC {
            return Err(JobError::NotAJob);
        }
        let word = |index: usize| words[index].load(Relaxed);
        if word(header::VERSION) != layout::VERSION {
            return Err(JobError::Layout { found: word(header::VERSION), ours: layout::VERSION });
        }
        let small = |index| u32::try_from(word(index)).map_err(|_| JobError::Damaged);
        let config = JobConfig::new(small(header::RANKS)?)
            .endpoints(u16::try_from(small(header::ENDPOINTS)?).map_err(|_| JobError::Damaged)?)
            .request_cells(small(header::REQUEST_CELLS)? as usize)
            .request_bytes(small(header::REQUEST_BYTES)? as usize)
            .reply_cells(small(header::REPLY_CELLS)? as usize)
            .reply_bytes(small(header::REPLY_BYTES)? as usize);
        config.check().map_err(|_| JobError::Damaged)?;
        let layout = Layout::new(&config);
        if size != layout.file_bytes() || word(header::DIGEST) != layout.digest() {
            return Err(JobError::Damaged);
        }
        Self::map(file, layout)
    }

    fn map(file: File, layout: Layout) -> Result<Self, JobError> {
        let mapping = Mapping::new(&file, 0, layout.control_bytes())?;
        let block = |peer| View::new(&mapping, layout.endpoint(peer), endpoint::WORDS);
        let park = |peer| Parking::new(View::new(&mapping, layout.endpoint(peer) + endpoint::PARK, 1));
        let board = Board {
            layout,
            header: View::new(&mapping, 0, header::WORDS),
            endpoints: (0..layout.peers()).map(block).collect(),
            parking: (0..layout.peers()).map(park).collect(),
        };
        Ok(Self { file, board: Arc::new(board), mapping })
    }

    /// The descriptor to hand to other processes.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Leaves the descriptor to all programs that this process starts from now on, which [`Job::open`] it.
    ///
    /// # Errors
    /// From the system.
    pub fn inherit(&self) -> io::Result<()> {
        fcntl(&self.file, FcntlArg::F_SETFD(FdFlag::empty())).map_err(io::Error::from).map(drop)
    }

    /// The shape of the job.
    pub fn shape(&self) -> Shape {
        self.board.shape()
    }

    /// Joins as endpoint 0 of a rank, without a segment.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn join(&self, rank: u32) -> Result<Shm, JoinError> {
        self.join_with(rank, JoinOptions::default())
    }

    /// Joins as an endpoint of a rank. Starts a thread that sleeps until a peer's process ends.
    ///
    /// # Errors
    /// [`JoinError`] if the endpoint does not exist or is taken, or for its segment.
    pub fn join_with(&self, rank: u32, options: JoinOptions) -> Result<Shm, JoinError> {
        let layout = &self.board.layout;
        let JoinOptions { segment_bytes, endpoint } = options;
        let Some(me) = self.shape().peer(am_core::Address::new(Rank(rank), endpoint)) else {
            let (ranks, endpoints) = (layout.ranks, layout.endpoints);
            return Err(JoinError::NoSuchEndpoint { rank, endpoint, ranks, endpoints });
        };
        if segment_bytes as u64 > layout::SEGMENT_STRIDE {
            let limit = layout::SEGMENT_STRIDE;
            return Err(JoinError::SegmentTooLarge { bytes: segment_bytes, limit });
        }
        Shm::join(self, me, rank, segment_bytes as u64)
    }

    /// Publishes the size of a rank's segment, unless another endpoint of the rank has published a different one.
    pub(crate) fn publish_segment(&self, rank: u32, bytes: u64) -> Result<(), JoinError> {
        let word = self.segment_word(rank);
        // Sizes are stored plus one, so that zero means "not yet known".
        match word.compare_exchange(0, bytes + 1, AcqRel, Acquire) {
            Err(other) if other != bytes + 1 => Err(JoinError::SegmentsDiffer { rank, a: other - 1, b: bytes }),
            _ => Ok(()),
        }
    }

    /// Notes the pid namespace of the first endpoint that joins, and compares those of the others with it. Where
    /// `/proc` does not tell, nothing is compared.
    pub(crate) fn check_pid_namespace(&self) -> Result<(), JoinError> {
        let Ok(ours) = std::fs::metadata("/proc/self/ns/pid").map(|namespace| namespace.ino()) else {
            return Ok(());
        };
        // Relaxed: nothing else is read by it.
        match self.board.header[header::PID_NAMESPACE].compare_exchange(0, ours, Relaxed, Relaxed) {
            Err(first) if first != ours => Err(JoinError::PidNamespace { ours, first }),
            _ => Ok(()),
        }
    }

    fn segment_word(&self, rank: u32) -> &AtomicU64 {
        let first = rank as usize * usize::from(self.board.layout.endpoints);
        &self.board.endpoints[first][endpoint::SEGMENT]
    }

    /// Maps the first `bytes` bytes of a rank's segment, at most its largest size, for everybody in this process.
    pub(crate) fn map_segment(&self, rank: Rank, bytes: u64) -> io::Result<Segment<ShmMemory>> {
        let (view, bytes) = self.map_bytes(rank, bytes)?;
        Ok(Segment::new(ShmMemory::new(view), bytes))
    }

    /// As [`map_segment`](Self::map_segment), for one purpose of one endpoint.
    pub(crate) fn map_unshared(&self, rank: Rank, bytes: u64) -> io::Result<Segment<Unshared>> {
        let (view, bytes) = self.map_bytes(rank, bytes)?;
        Ok(Segment::new(Unshared::new(view), bytes))
    }

    fn map_bytes(&self, rank: Rank, bytes: u64) -> io::Result<(View<AtomicU64>, usize)> {
        let bytes = bytes.min(layout::SEGMENT_STRIDE) as usize;
        let padded = bytes.next_multiple_of(4096).max(4096);
        let mapping = Mapping::new(&self.file, self.board.layout.segment(rank.0), padded)?;
        if bytes >= layout::LARGE_PAGE {
            mapping.advise_huge();
        }
        Ok((View::new(&mapping, 0, padded / 8), bytes))
    }

    /// The size of a rank's segment, if it has joined. A faulty rank may change what this says.
    pub(crate) fn segment_len(&self, rank: Rank) -> Option<u64> {
        let len = self.segment_word(rank.0).load(Acquire).checked_sub(1)?;
        Some(len.min(layout::SEGMENT_STRIDE))
    }

    /// Tells the survivors that a rank's process has ended. For launchers; ranks find out themselves about peers
    /// that have joined. A rank that has finished or is already lost stays as it is.
    ///
    /// # Panics
    /// If the job has no such rank.
    pub fn mark_dead(&self, rank: u32) {
        assert!(rank < self.board.layout.ranks, "rank {rank} is not in the job");
        let endpoints = usize::from(self.board.layout.endpoints);
        for peer in (rank as usize * endpoints..).take(endpoints) {
            self.board.set_died(peer);
        }
    }

    /// What is known of a rank's endpoint 0, or `None` outside the job; a rank that has not joined yet counts as
    /// active.
    pub fn status(&self, rank: u32) -> Option<PeerStatus> {
        let peer = self.shape().peer(Rank(rank).into())?;
        Some(self.board.status(peer.index()))
    }

    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        let file = self.file.try_clone()?;
        Ok(Self { file, mapping: Arc::clone(&self.mapping), board: Arc::clone(&self.board) })
    }

    pub(crate) fn taken(&self, me: Peer) -> JoinError {
        let address = self.shape().address(me);
        JoinError::Taken { rank: address.rank.0, endpoint: address.endpoint }
    }
}
