//! How one rank of a host hands a file to others, through an abstract socket, which is in no file system and ends
//! with the process: the manifest of a job that another launcher started, or what a transport shares.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::thread;
use std::time::{Duration, Instant};

use am_core::Rank;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr, connect,
    getsockopt, recvmsg, sendmsg, socket, sockopt::PeerCredentials,
};
use nix::unistd::{close, geteuid, getppid};

use crate::cluster::channel::ChannelError;
use crate::rank::star::Spokes;

/// The first bytes of every conversation; they change with the protocol.
const GREETING: [u8; 8] = *b"am-meet2";
/// Why ranks may miss each other.
const HINT: &str = "; is it on another host, or does it belong to another job? (AM_JOB can name the job)";
/// How long a rank waits between attempts to reach the one that hands out, at most.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// How long a caller may take for its greeting, which ranks send at once.
const SILENCE: Duration = Duration::from_secs(5);
/// How many callers may owe their greeting at the same time.
const MOST_CALLERS: usize = 256;

/// How often it is looked whether somebody who is waited for has ended.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Where and until when the ranks of one job meet.
#[derive(Clone, Debug)]
pub(crate) struct LocalRendezvous {
    job: String,
    ranks: u32,
    limit: Duration,
    until: Instant,
}

/// Why the ranks of a job did not find each other.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LocalRendezvousError {
    /// Ranks did not come for what they are handed.
    #[error("job {job}: {missing} ranks, the first of them rank {rank}, did not turn up within {seconds} s{HINT}")]
    Missing {
        /// The job's name.
        job: String,
        /// The first rank that is missing.
        rank: u32,
        /// How many ranks are missing.
        missing: usize,
        /// How long they were waited for.
        seconds: f64,
    },
    /// The rank that hands out did not turn up.
    #[error("job {job}: rank {from} did not turn up within {seconds} s{HINT}")]
    Absent {
        /// The job's name.
        job: String,
        /// The rank that hands out.
        from: u32,
        /// How long this rank waited.
        seconds: f64,
    },
    /// The rank that hands out has ended, or takes part in nothing more.
    #[error("rank {from} is lost: it ended or left before this rank had met it")]
    Lost {
        /// The rank.
        from: u32,
    },
    /// Another process is rank 0 of a job of the same name, or keeps its name occupied.
    #[error(
        "job {job}: {} already listens at its meeting point, the abstract socket @{socket}: end that process, or \
         give this job a name of its own (AM_JOB=NAME for every rank)",
        holder(*holder_pid, *holder_uid)
    )]
    NameTaken {
        /// The job's name.
        job: String,
        /// The name of the abstract socket, as `/proc/net/unix` lists it behind an `@`.
        socket: String,
        /// The process that listens there, if it told before it ended or stopped taking calls.
        holder_pid: Option<i32>,
        /// The user that it belongs to.
        holder_uid: Option<u32>,
    },
    /// Two processes claim to be the same rank.
    #[error("job {job}: two processes claim to be rank {rank}; AM_JOB names a job uniquely")]
    Twice {
        /// The job's name.
        job: String,
        /// The rank.
        rank: u32,
    },
    /// A process has another idea of the job's size.
    #[error("job {job}: a process claims to be rank {rank} of {theirs}, but the job has {ours} ranks")]
    OtherSize {
        /// The job's name.
        job: String,
        /// The rank that it claims.
        rank: u32,
        /// The number of ranks that it claims.
        theirs: u32,
        /// The number of ranks that rank 0 was told.
        ours: u32,
    },
    /// Another user's process sits at the meeting point.
    #[error(
        "job {job}: {} poses as its rank 0 at the abstract socket @{socket}: give this job a name that other users \
         can't guess (AM_JOB=NAME for every rank)",
        holder(*pid, Some(*uid))
    )]
    Stranger {
        /// The job's name.
        job: String,
        /// The name of the abstract socket.
        socket: String,
        /// The other user's process, if it is in this process's pid namespace.
        pid: Option<i32>,
        /// The other user's id.
        uid: u32,
    },
    /// The rank that hands out hung up without doing so.
    #[error("job {job}: rank {from} refused rank {rank}")]
    Refused {
        /// The job's name.
        job: String,
        /// The rank that hands out.
        from: u32,
        /// This rank.
        rank: u32,
    },
    /// This rank was handed what it needs, and others were not.
    #[error("job {job}: not all ranks had met rank 0 within {seconds} s{HINT}")]
    Unmet {
        /// The job's name.
        job: String,
        /// How long this rank waited.
        seconds: f64,
    },
    /// The operating system refused something.
    #[error("job {job}: meeting the other ranks failed: {source}")]
    System {
        /// The job's name.
        job: String,
        /// The operating system's reason.
        source: io::Error,
    },
}

impl LocalRendezvous {
    /// The meeting of a job, over after `limit`.
    pub(crate) fn new(job: String, ranks: u32, limit: Duration) -> Self {
        let now = Instant::now();
        let until = now.checked_add(limit).unwrap_or(now + Duration::from_secs(u32::MAX.into()));
        Self { job, ranks, limit, until }
    }

    /// Hands the descriptor to each of these ranks, and their connections to `served`. Blocks until all have it or
    /// are `lost`.
    pub(crate) fn serve(
        &self,
        whom: BTreeSet<u32>,
        file: BorrowedFd<'_>,
        lost: &dyn Fn(u32) -> bool,
        mut served: impl FnMut(u32, UnixStream),
    ) -> Result<(), LocalRendezvousError> {
        let mut missing = whom;
        if missing.is_empty() {
            return Ok(());
        }
        let address = SocketAddr::from_abstract_name(self.name()).map_err(|error| self.system(error))?;
        let listener = UnixListener::bind_addr(&address).map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => self.taken(),
            _ => self.system(source),
        })?;
        listener.set_nonblocking(true).map_err(|error| self.system(error))?;
        let mut callers: Vec<Caller> = Vec::new();
        loop {
            missing.retain(|rank| !lost(*rank));
            let Some(&rank) = missing.first() else { return Ok(()) };
            let Some(left) = self.left() else {
                let (job, seconds) = (self.job.clone(), self.limit.as_secs_f64());
                return Err(LocalRendezvousError::Missing { job, rank, missing: missing.len(), seconds });
            };
            // With so many callers that say nothing, others wait until the first of these has had its time.
            let full = callers.len() >= MOST_CALLERS;
            let mut ends =
                vec![PollFd::new(listener.as_fd(), if full { PollFlags::empty() } else { PollFlags::POLLIN })];
            ends.extend(callers.iter().map(|caller| PollFd::new(caller.stream.as_fd(), PollFlags::POLLIN)));
            let nap = left.min(LOOK_EVERY);
            let _ = poll(&mut ends, PollTimeout::try_from(nap).unwrap_or(PollTimeout::MAX));
            while callers.len() < MOST_CALLERS
                && let Ok((stream, _)) = listener.accept()
            {
                callers.extend(Caller::admit(stream));
            }
            let mut waiting = Vec::new();
            for mut caller in callers {
                // Whoever is not one of us, hangs up half-way or says nothing is no reason to give up on the
                // others.
                match caller.greeting() {
                    Ok(Some((rank, ranks))) => {
                        if self.hand_out(&caller, rank, ranks, &mut missing, file)? {
                            served(rank, caller.stream);
                        }
                    }
                    Ok(None) if caller.since.elapsed() < SILENCE => waiting.push(caller),
                    Ok(None) | Err(_) => {}
                }
            }
            callers = waiting;
        }
    }

    /// Hands the descriptor to one of the missing ranks; returns whether it took it.
    fn hand_out(
        &self,
        caller: &Caller,
        rank: u32,
        ranks: u32,
        missing: &mut BTreeSet<u32>,
        file: BorrowedFd<'_>,
    ) -> Result<bool, LocalRendezvousError> {
        if ranks != self.ranks {
            let (job, theirs, ours) = (self.job.clone(), ranks, self.ranks);
            return Err(LocalRendezvousError::OtherSize { job, rank, theirs, ours });
        }
        if !missing.contains(&rank) {
            return Err(LocalRendezvousError::Twice { job: self.job.clone(), rank });
        }
        let sent = sendmsg::<()>(
            caller.stream.as_raw_fd(),
            &[io::IoSlice::new(&GREETING)],
            &[ControlMessage::ScmRights(&[file.as_raw_fd()])],
            MsgFlags::MSG_NOSIGNAL,
            None,
        );
        Ok(sent.is_ok() && missing.remove(&rank))
    }

    /// Receives the descriptor that `from` hands out, and the connection to it. Blocks until it does, or is
    /// `lost`.
    pub(crate) fn fetch(
        &self,
        rank: Rank,
        from: Rank,
        lost: &dyn Fn() -> bool,
    ) -> Result<(OwnedFd, UnixStream), LocalRendezvousError> {
        let (mut stream, left) = self.connect(from, lost)?;
        let system = |error: io::Error| self.system(error);
        let who = getsockopt(&stream, PeerCredentials).map_err(|error| system(error.into()))?;
        if who.uid() != geteuid().as_raw() {
            let (pid, uid) = (known(who.pid()), who.uid());
            return Err(LocalRendezvousError::Stranger { job: self.job.clone(), socket: self.name(), pid, uid });
        }
        let greeting = [&GREETING[..], &rank.0.to_ne_bytes(), &self.ranks.to_ne_bytes()].concat();
        stream.set_read_timeout(Some(left)).map_err(system)?;
        match stream.write_all(&greeting).and_then(|()| received(&stream)) {
            Ok(Some(file)) => stream.set_read_timeout(None).map(|()| (file, stream)).map_err(system),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(self.absent(from)),
            Err(error) if !is_hang_up(&error) => Err(system(error)),
            Ok(None) | Err(_) if lost() => Err(LocalRendezvousError::Lost { from: from.0 }),
            Ok(None) | Err(_) => {
                Err(LocalRendezvousError::Refused { job: self.job.clone(), from: from.0, rank: rank.0 })
            }
        }
    }

    /// A connection to the rank that hands out, which may not be there yet, and the time that is left.
    fn connect(
        &self,
        from: Rank,
        lost: &dyn Fn() -> bool,
    ) -> Result<(UnixStream, Duration), LocalRendezvousError> {
        let address = self.address()?;
        let mut pause = Duration::from_millis(1);
        loop {
            let left = self.left().ok_or_else(|| self.absent(from))?;
            match call(&address) {
                Ok(stream) => return Ok((stream, left)),
                // Nobody listens yet, or too many ranks connect at once.
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::WouldBlock) =>
                {
                    if lost() {
                        return Err(LocalRendezvousError::Lost { from: from.0 });
                    }
                    thread::sleep(pause.min(left));
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Err(error) => return Err(self.system(error)),
            }
        }
    }

    /// The time that is left, unless it is over.
    fn left(&self) -> Option<Duration> {
        Some(self.until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
    }

    /// Opens the connections to the ranks that were met. Blocks until all of them do.
    pub(crate) fn open(&self, rank: Rank, spokes: &mut Spokes) -> Result<(), LocalRendezvousError> {
        match spokes.open(self.until) {
            Ok(()) => Ok(()),
            // Rank 0 tells of ranks that have ended meanwhile.
            Err(_) if rank == Rank(0) => Ok(()),
            Err(ChannelError::TimedOut) => {
                Err(LocalRendezvousError::Unmet { job: self.job.clone(), seconds: self.limit.as_secs_f64() })
            }
            Err(ChannelError::System(error)) => Err(self.system(error)),
            Err(_) => Err(LocalRendezvousError::Lost { from: 0 }),
        }
    }

    /// The name of the abstract socket.
    fn name(&self) -> String {
        format!("active-messages/{}/{}", geteuid(), self.job)
    }

    fn address(&self) -> Result<UnixAddr, LocalRendezvousError> {
        UnixAddr::new_abstract(self.name().as_bytes()).map_err(|error| self.system(error.into()))
    }

    /// Somebody else has the name: whoever it is that takes calls there.
    fn taken(&self) -> LocalRendezvousError {
        let stream = self.address().ok().and_then(|address| call(&address).ok());
        let who = stream.and_then(|stream| getsockopt(&stream, PeerCredentials).ok());
        LocalRendezvousError::NameTaken {
            job: self.job.clone(),
            socket: self.name(),
            holder_pid: who.and_then(|who| known(who.pid())),
            holder_uid: who.map(|who| who.uid()),
        }
    }

    fn absent(&self, from: Rank) -> LocalRendezvousError {
        LocalRendezvousError::Absent { job: self.job.clone(), from: from.0, seconds: self.limit.as_secs_f64() }
    }

    pub(super) fn system(&self, source: io::Error) -> LocalRendezvousError {
        LocalRendezvousError::System { job: self.job.clone(), source }
    }
}

/// A connection to who listens there. Does not block: whoever has more callers than wait in line refuses with
/// [`WouldBlock`](io::ErrorKind::WouldBlock).
fn call(address: &UnixAddr) -> io::Result<UnixStream> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let end = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(end.as_raw_fd(), address)?;
    let stream = UnixStream::from(end);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// A process id as the kernel tells it; 0 stands for one of another namespace.
fn known(pid: i32) -> Option<i32> {
    Some(pid).filter(|&pid| pid != 0)
}

/// Who occupies a meeting point.
fn holder(pid: Option<i32>, uid: Option<u32>) -> String {
    match (pid, uid) {
        (Some(pid), Some(uid)) => format!("process {pid} of user {uid}"),
        (None, Some(uid)) => format!("a process of user {uid}"),
        _ => "another process".into(),
    }
}

/// Somebody who has connected to rank 0 and has not said all of its greeting.
struct Caller {
    stream: UnixStream,
    since: Instant,
    said: Vec<u8>,
}

impl Caller {
    /// Bytes of a rank's greeting: the word, the rank, the number of ranks.
    const LENGTH: usize = GREETING.len() + 8;

    /// A process of the same user.
    fn admit(stream: UnixStream) -> Option<Self> {
        let ours = getsockopt(&stream, PeerCredentials).is_ok_and(|who| who.uid() == geteuid().as_raw());
        let ready = ours && stream.set_nonblocking(true).is_ok();
        ready.then(|| Self { stream, since: Instant::now(), said: Vec::with_capacity(Self::LENGTH) })
    }

    /// Rank and number of ranks, once it has said both.
    fn greeting(&mut self) -> io::Result<Option<(u32, u32)>> {
        let mut bytes = [0; Self::LENGTH];
        match self.stream.read(&mut bytes[self.said.len()..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => {
                let from = self.said.len();
                self.said.extend_from_slice(&bytes[from..from + length]);
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
        let Some((word, numbers)) = self.said.split_at_checked(GREETING.len()) else { return Ok(None) };
        if word != GREETING {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let ([rank, ranks], []) = numbers.as_chunks::<4>() else { return Ok(None) };
        Ok(Some((u32::from_ne_bytes(*rank), u32::from_ne_bytes(*ranks))))
    }
}

/// What a process of the same user may say to rank 0, in two parts; the first byte is the length of the first one.
/// Returns whether it was taken for a rank's greeting.
///
/// # Panics
/// If anything but a whole greeting is, or a greeting isn't.
#[cfg(feature = "fuzzing")]
pub fn greeting(data: &[u8]) -> bool {
    let Some((first, words)) = data.split_first() else { return false };
    let (ours, mut theirs) = UnixStream::pair().expect("the system has two more descriptors");
    let mut caller = Caller::admit(ours).expect("both ends are this process");
    let (first, second) = words.split_at(words.len().min(usize::from(*first)));
    let mut greeting = Ok(None);
    for part in [first, second] {
        theirs.set_nonblocking(true).expect("a new socket can be set so");
        let _ = theirs.write(part);
        if let Ok(None) = greeting {
            greeting = caller.greeting();
        }
        assert!(caller.said.len() <= Caller::LENGTH);
    }
    let expected = words.first_chunk::<{ Caller::LENGTH }>().filter(|words| words.starts_with(&GREETING));
    assert_eq!(matches!(greeting, Ok(Some(_))), expected.is_some(), "{greeting:?}");
    expected.is_some()
}

/// The descriptor that arrives next; `None` if something else does, or nothing any more.
fn received(stream: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut greeting = [0; GREETING.len()];
    let mut parts = [io::IoSliceMut::new(&mut greeting)];
    let mut control = nix::cmsg_space!([std::os::fd::RawFd; 1]);
    let message = recvmsg::<()>(stream.as_raw_fd(), &mut parts, Some(&mut control), MsgFlags::MSG_CMSG_CLOEXEC)?;
    let rights = message.cmsgs()?.find_map(|part| match part {
        ControlMessageOwned::ScmRights(files) => files.first().copied(),
        _ => None,
    });
    let Some(number) = rights else { return Ok(None) };
    let file = reopen(number as u32);
    close(number)?;
    let file = file?;
    Ok((greeting == GREETING).then_some(file))
}

/// A descriptor of one's own for the memory behind descriptor `number`, which was just received and so
/// belongs to nobody in this program.
///
/// # Errors
/// There is no such descriptor, or it can't be read and written.
fn reopen(number: u32) -> io::Result<OwnedFd> {
    let file = fs::OpenOptions::new().read(true).write(true).open(format!("/proc/self/fd/{number}"))?;
    Ok(file.into())
}

fn is_hang_up(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// A name for what started the ranks of this job: the nearest ancestor that does not itself have this process's
/// value of the variable that carries the rank. A shell or a debugger around a rank has it, the launcher hasn't.
///
/// No other process of the host ever has the ancestor's number together with its time of birth.
pub(crate) fn launcher_name(variable: &str) -> String {
    let value = std::env::var_os(variable).unwrap_or_default();
    let entry = [variable.as_bytes(), b"=", value.as_bytes()].concat();
    let mut pid = getppid().as_raw();
    loop {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The name in front, in parentheses, may have spaces and parentheses of its own. After it, the parent is
        // the 2nd field and the time of birth the 20th.
        let fields: Vec<&str> = status.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let parent = fields.get(1).and_then(|field| field.parse().ok()).unwrap_or(0);
        if parent == 0 || !environment.split(|&byte| byte == 0).any(|other| other == entry) {
            return format!("child-of-{pid}-{}", fields.get(19).unwrap_or(&"0"));
        }
        pid = parent;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::memfd::{MFdFlags, memfd_create};
    use nix::sys::socket::{Backlog, bind, listen};

    const PATIENCE: Duration = Duration::from_secs(60);

    fn meeting(test: &str, ranks: u32, limit: Duration) -> LocalRendezvous {
        LocalRendezvous::new(format!("test-{}-{test}", std::process::id()), ranks, limit)
    }

    fn others(ranks: u32) -> BTreeSet<u32> {
        (1..ranks).collect()
    }

    fn memory(text: &str) -> OwnedFd {
        let file = memfd_create(c"test", MFdFlags::MFD_CLOEXEC).unwrap();
        fs::File::from(file.try_clone().unwrap()).write_all(text.as_bytes()).unwrap();
        file
    }

    #[test]
    fn everyone_gets_the_same_memory() {
        let meeting = meeting("same", 4, PATIENCE);
        thread::scope(|scope| {
            let fetch = |rank| {
                scope.spawn({
                    let meeting = &meeting;
                    move || meeting.fetch(Rank(rank), Rank(0), &|| false)
                })
            };
            let fetching: Vec<_> = (1..4).map(fetch).collect();
            let mut served = BTreeSet::new();
            let note = |rank, _| {
                served.insert(rank);
            };
            meeting.serve(others(4), memory("shared").as_fd(), &|_| false, note).unwrap();
            assert_eq!(served, others(4));
            for other in fetching {
                let mut text = String::new();
                fs::File::from(other.join().unwrap().unwrap().0).read_to_string(&mut text).unwrap();
                assert_eq!(text, "shared");
            }
        });
    }

    #[test]
    fn a_missing_rank_is_named_on_both_sides() {
        let short = Duration::from_millis(50);
        let error = meeting("zero", 2, short).fetch(Rank(1), Rank(0), &|| false).unwrap_err().to_string();
        assert!(error.contains("rank 0 did not turn up within 0.05 s"), "{error}");
        let error = meeting("others", 4, short)
            .serve(others(4), memory("").as_fd(), &|_| false, |_, _| ())
            .unwrap_err()
            .to_string();
        assert!(error.contains("3 ranks, the first of them rank 1, did not turn up within 0.05 s"), "{error}");
    }

    #[test]
    fn a_rank_that_comes_twice_and_another_size_are_refused() {
        let twice = meeting("twice", 3, PATIENCE);
        thread::scope(|scope| {
            let zero = scope.spawn(|| twice.serve(others(3), memory("").as_fd(), &|_| false, |_, _| ()));
            let (one, other) = {
                let fetch = || twice.fetch(Rank(1), Rank(0), &|| false);
                (fetch(), fetch())
            };
            assert!(one.is_ok());
            assert!(matches!(other, Err(LocalRendezvousError::Refused { rank: 1, .. })), "{other:?}");
            assert!(matches!(zero.join().unwrap(), Err(LocalRendezvousError::Twice { rank: 1, .. })));
        });
        let size = meeting("size", 2, PATIENCE);
        thread::scope(|scope| {
            let zero = scope.spawn(|| size.serve(others(2), memory("").as_fd(), &|_| false, |_, _| ()));
            let other = LocalRendezvous { ranks: 3, ..size.clone() }.fetch(Rank(2), Rank(0), &|| false);
            assert!(matches!(other, Err(LocalRendezvousError::Refused { .. })), "{other:?}");
            assert!(matches!(
                zero.join().unwrap(),
                Err(LocalRendezvousError::OtherSize { theirs: 3, ours: 2, .. })
            ));
        });
    }

    #[test]
    fn silent_callers_keep_nobody_waiting() {
        let meeting = meeting("silent", 2, PATIENCE);
        thread::scope(|scope| {
            let zero = scope.spawn(|| meeting.serve(others(2), memory("shared").as_fd(), &|_| false, |_, _| ()));
            let silent: Vec<UnixStream> =
                (0..10).map(|_| meeting.connect(Rank(0), &|| false).unwrap().0).collect();
            let mut slow = meeting.connect(Rank(0), &|| false).unwrap().0;
            slow.write_all(&GREETING[..3]).unwrap();
            assert!(meeting.fetch(Rank(1), Rank(0), &|| false).is_ok());
            // Rank 0 has gone on while they were still there.
            assert!(zero.join().unwrap().is_ok());
            drop((silent, slow));
        });
    }

    #[test]
    fn two_jobs_of_one_name_are_refused() {
        let meeting = meeting("name", 2, PATIENCE);
        let _taken = UnixListener::bind_addr(&SocketAddr::from_abstract_name(meeting.name()).unwrap()).unwrap();
        let error = meeting.serve(others(2), memory("").as_fd(), &|_| false, |_, _| ()).unwrap_err();
        let (pid, uid) = (std::process::id(), geteuid());
        let holder = format!("process {pid} of user {uid} already listens at its meeting point");
        let socket = format!("the abstract socket @active-messages/{uid}/{}: end that process", meeting.job);
        let text = error.to_string();
        assert!(text.contains(&holder) && text.contains(&socket) && text.contains("AM_JOB=NAME"), "{text}");
    }

    #[test]
    fn a_full_line_blocks_nobody() {
        let meeting = meeting("full", 2, Duration::from_millis(50));
        let address = meeting.address().unwrap();
        let taken = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
        bind(taken.as_raw_fd(), &address).unwrap();
        listen(&taken, Backlog::new(1).unwrap()).unwrap();
        let mut line = Vec::new();
        let refused = loop {
            match call(&address) {
                Ok(stream) => line.push(stream),
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        let fetched = meeting.fetch(Rank(1), Rank(0), &|| false);
        assert!(matches!(fetched, Err(LocalRendezvousError::Absent { from: 0, .. })), "{fetched:?}");
        let served = meeting.serve(others(2), memory("").as_fd(), &|_| false, |_, _| ());
        assert!(matches!(served, Err(LocalRendezvousError::NameTaken { holder_pid: None, .. })), "{served:?}");
    }

    #[test]
    fn nobody_waits_for_ranks_that_have_ended() {
        let meeting = meeting("ended", 3, PATIENCE);
        meeting
            .serve(others(3), memory("").as_fd(), &|_| true, |rank, _| panic!("rank {rank} has ended"))
            .unwrap();
        let error = meeting.fetch(Rank(1), Rank(0), &|| true).unwrap_err().to_string();
        assert_eq!(error, "rank 0 is lost: it ended or left before this rank had met it");
    }

    #[test]
    fn a_job_name_of_any_length_is_an_error_at_worst() {
        let long = LocalRendezvous::new("x".repeat(500), 2, PATIENCE);
        assert!(matches!(long.fetch(Rank(1), Rank(0), &|| false), Err(LocalRendezvousError::System { .. })));
    }

    #[test]
    fn the_launcher_has_a_name() {
        let name = launcher_name("AM_NO_SUCH_VARIABLE");
        assert!(name.starts_with(&format!("child-of-{}-", getppid())), "{name}");
        assert!(!name.ends_with("-0"), "{name}");
    }
}
