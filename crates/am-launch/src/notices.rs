//! Notices: what a rank tells its launcher or agent beside its exit code, through one pipe that all ranks of a
//! host share.
//!
//! A notice is written before its rank ends, so whoever reads the pipe after it has reaped a rank has all of that
//! rank's notices. They say which failure came first ([`Notice::Lost`], [`Notice::Left`]) and end whole jobs
//! ([`Notice::Exit`]).
//!
//! A pipe that is full, because its launcher is stopped or very busy, takes none. A rank keeps what it could not
//! write, tries again with every further notice, and waits up to [`ROOM`] for room when it leaves, fails or ends
//! the job. Notices are written whole; whatever else gets into the pipe is skipped byte by byte until the next
//! one.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use am_core::supervision::{self, Event};
use am_core::{Address, Rank};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{pipe2, write};

use crate::codec::wire;
use crate::descriptors::{Descriptor, FileKind, claim};
use crate::env;

/// How long a rank that fails over another one's loss waits with its own message, so that the other one's comes
/// first. The launcher usually ends it before.
const HOLD: Duration = Duration::from_secs(3);
/// How long a rank that has nothing more to do waits until the pipe takes its notices.
const ROOM: Duration = Duration::from_secs(1);
/// What every notice begins with; its kind follows.
const MARK: [u8; 3] = *b"amN";
/// The bytes of a notice: mark and kind, then rank, value and a check of all that, each a little-endian word of 32
/// bits.
const LENGTH: usize = 16;
/// A pipe holds 64 KiB, so one read takes all that is there.
const READ_AT_ONCE: usize = 64 << 10;

/// What a rank says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// `rank` has learned that `lost` is lost; if `rank` fails later, that may be why.
    Lost { rank: u32, lost: u32 },
    /// An endpoint of `rank` leaves without having finished, of its own accord.
    Left { rank: u32 },
    /// `rank` ends the whole job with this code.
    Exit { rank: u32, code: u8 },
}
wire!(enum Notice { 0 => Lost { rank, lost }, 1 => Left { rank }, 2 => Exit { rank, code } });

impl Notice {
    /// Who says it.
    pub(crate) fn rank(self) -> u32 {
        let (Self::Lost { rank, .. } | Self::Left { rank } | Self::Exit { rank, .. }) = self;
        rank
    }

    fn encode(self) -> [u8; LENGTH] {
        match self {
            Self::Lost { rank, lost } => encode_words(0, rank, lost),
            Self::Left { rank } => encode_words(1, rank, 0),
            Self::Exit { rank, code } => encode_words(2, rank, code.into()),
        }
    }

    /// `None` if the bytes are none.
    fn decode(bytes: &[u8; LENGTH]) -> Option<Self> {
        let [head, rank, value, sum] = std::array::from_fn(|index| {
            let word = bytes[4 * index..].first_chunk().expect("a notice has four words");
            u32::from_le_bytes(*word)
        });
        let kind = head.to_le_bytes().strip_prefix(&MARK).and_then(|kind| kind.first().copied())?;
        if sum != check([head, rank, value]) {
            return None;
        }
        match kind {
            0 => Some(Self::Lost { rank, lost: value }),
            1 if value == 0 => Some(Self::Left { rank }),
            2 => Some(Self::Exit { rank, code: u8::try_from(value).ok()? }),
            _ => None,
        }
    }
}

/// A notice of these numbers, whether there is one or not.
pub(crate) fn encode_words(kind: u8, rank: u32, value: u32) -> [u8; LENGTH] {
    let [m, a, n] = MARK;
    let words = [u32::from_le_bytes([m, a, n, kind]), rank, value];
    let mut bytes = [0; LENGTH];
    let all = words.into_iter().chain([check(words)]);
    bytes.chunks_exact_mut(4).zip(all).for_each(|(chunk, word)| chunk.copy_from_slice(&word.to_le_bytes()));
    bytes
}

/// A number that tells the words of a notice from others.
fn check(words: [u32; 3]) -> u32 {
    words.into_iter().fold(0x9e37_79b9, |sum, word| (sum.rotate_left(5) ^ word).wrapping_mul(0x85eb_ca6b))
}

/// The launcher's end of the pipe.
#[derive(Debug)]
pub(crate) struct Notices {
    read: File,
    /// The beginning of a notice whose rest has not come.
    rest: Vec<u8>,
    /// What ranks inherit; held here as well, so that the pipe never ends.
    inherited: Arc<OwnedFd>,
}

impl Notices {
    /// A new pipe, inherited by nobody yet.
    pub(crate) fn new() -> nix::Result<Self> {
        // A rank must not block because its launcher is stopped, nor the launcher because ranks are silent.
        let (read, inherited) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        Ok(Self { read: read.into(), rest: Vec::new(), inherited: Arc::new(inherited) })
    }

    /// The end that ranks inherit.
    pub(crate) fn inherited(&self) -> &Arc<OwnedFd> {
        &self.inherited
    }

    /// Readable when there are notices.
    pub(crate) fn arrivals(&self) -> BorrowedFd<'_> {
        self.read.as_fd()
    }

    /// What the ranks among `members` have said since the last call, in that order; at most what a pipe holds.
    pub(crate) fn receive(&mut self, members: &[u32]) -> Vec<Notice> {
        let mut bytes = std::mem::take(&mut self.rest);
        let from = bytes.len();
        bytes.resize(from + READ_AT_ONCE, 0);
        // An empty pipe is an error like any other here.
        let length = self.read.read(&mut bytes[from..]).unwrap_or(0);
        bytes.truncate(from + length);
        let (mut notices, mut unread) = (Vec::new(), &bytes[..]);
        while let Some(next) = unread.first_chunk() {
            match Notice::decode(next) {
                Some(notice) => {
                    notices.push(notice);
                    unread = &unread[LENGTH..];
                }
                None => unread = &unread[1..],
            }
        }
        self.rest = unread.to_vec();
        notices.retain(|notice| members.binary_search(&notice.rank()).is_ok());
        notices
    }
}

/// The rank's end.
#[derive(Debug)]
struct Voice {
    rank: Rank,
    /// The process that speaks for the rank: its forks do not.
    process: u32,
    pipe: OwnedFd,
    /// What the pipe has not taken yet.
    unsaid: Mutex<VecDeque<Notice>>,
    /// Whom this rank has been told to be lost.
    lost: Mutex<Vec<Rank>>,
    /// Whether it is too late, or no use, to hold a failure back.
    held: AtomicBool,
}

static VOICE: OnceLock<Voice> = OnceLock::new();

/// Takes the pipe that the launcher left over, once, and tells what happens to this rank's endpoints through it.
///
/// # Errors
/// There is no such descriptor.
pub(crate) fn begin(rank: Rank, file: Descriptor) -> io::Result<()> {
    if VOICE.get().is_some() {
        return Ok(());
    }
    let pipe = claim(file.number, FileKind::Notices(file))?;
    // Where the others go on, nobody ends those that fail over a loss, and each has its say at once.
    let held = AtomicBool::new(std::env::var_os(env::KEEP_GOING).is_some());
    let (unsaid, lost) = (Mutex::default(), Mutex::default());
    if VOICE.set(Voice { rank, process: std::process::id(), pipe, unsaid, lost, held }).is_ok() {
        supervision::observe(observed);
    }
    Ok(())
}

/// Tells the launcher of an endpoint's event.
fn observed(whose: Address, event: Event) {
    // Endpoints of other jobs within this process, simulated ones for instance, have nothing to do with its rank.
    let Some(voice) = VOICE.get().filter(|voice| voice.rank == whose.rank) else { return };
    let rank = voice.rank.0;
    match event {
        Event::LossTold(lost) => {
            let mut known = voice.lost.lock().unwrap_or_else(PoisonError::into_inner);
            if !known.contains(&lost) {
                known.push(lost);
                voice.say(Notice::Lost { rank, lost: lost.0 });
            }
        }
        Event::Left => {
            voice.say(Notice::Left { rank });
            voice.insist();
        }
        _ => {}
    }
}

impl Voice {
    /// Writes a notice, or keeps it until the pipe takes it.
    fn say(&self, notice: Notice) {
        if self.process != std::process::id() {
            return;
        }
        self.unsaid.lock().unwrap_or_else(PoisonError::into_inner).push_back(notice);
        self.flush();
    }

    /// Writes what the pipe takes; returns whether that is all.
    fn flush(&self) -> bool {
        let mut unsaid = self.unsaid.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(next) = unsaid.front() {
            match write(&self.pipe, &next.encode()) {
                Err(Errno::EAGAIN) => return false,
                Err(Errno::EINTR) => {}
                // So few bytes are written whole. A launcher that is gone needs no word.
                Ok(_) | Err(_) => drop(unsaid.pop_front()),
            }
        }
        true
    }

    /// Waits until the pipe has taken everything, for at most [`ROOM`]: a rank must not stay because its launcher
    /// is stopped.
    fn insist(&self) {
        if self.process != std::process::id() {
            return;
        }
        let until = Instant::now() + ROOM;
        while !self.flush() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let timeout = PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
            let _ = poll(&mut [PollFd::new(self.pipe.as_fd(), PollFlags::POLLOUT)], timeout);
        }
    }
}

/// Lets a rank that is about to fail wait if it has been told of a loss: the lost rank's own failure is the reason
/// that the user needs, and when the launcher knows it, it ends this rank. Waits once per process.
pub(crate) fn hold_back() {
    let Some(voice) = VOICE.get() else { return };
    voice.insist();
    let secondary = !voice.lost.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
    // Relaxed: nothing else is shared; of two threads that fail at once one waits.
    if secondary && !voice.held.swap(true, Relaxed) {
        thread::sleep(HOLD);
    }
}

/// Ends the whole job with `code`, at once and from any rank, like `gasnet_exit`: nothing is waited for, no
/// destructor runs, and messages that are under way may be lost. Does not return.
///
/// The launcher ends all other ranks (SIGTERM, and SIGKILL after its grace period), on every host, and exits with
/// `code`. Of several ranks that call this the first one counts; a job that is ending already, over a failure or
/// its time limit, keeps its own code. Standard output is flushed, and functions registered with `atexit` run, as
/// by [`std::process::exit`].
///
/// Under `mpirun`, `srun` or a debugger there is no launcher of this family to tell: this process exits with
/// `code`, its peers find it lost, and what happens then is up to them and to that launcher.
pub fn exit_job(code: u8) -> ! {
    if let Some(voice) = VOICE.get() {
        voice.say(Notice::Exit { rank: voice.rank.0, code });
        voice.insist();
    }
    std::process::exit(code.into())
}

/// What ranks may write to the pipe of their notices, in two parts; the first byte is the length of the first one.
/// Returns whether a notice was received.
///
/// # Panics
/// If what is received depends on the parts, is of somebody else than a member, or is not there.
#[cfg(feature = "fuzzing")]
pub fn notices(data: &[u8]) -> bool {
    const MEMBERS: [u32; 3] = [1, 2, 300];
    let Some((first, bytes)) = data.split_first() else { return false };
    // A pipe takes so much at once.
    let bytes = &bytes[..bytes.len().min(32 << 10)];
    let received = |parts: [&[u8]; 2]| {
        let mut notices = Notices::new().expect("the system has two more descriptors");
        let mut received = Vec::new();
        for part in parts {
            assert_eq!(write(notices.inherited(), part), Ok(part.len()));
            received.extend(notices.receive(&MEMBERS));
        }
        received
    };
    let whole = received([bytes, &[]]);
    let (head, tail) = bytes.split_at(bytes.len().min(usize::from(*first)));
    assert_eq!(received([head, tail]), whole);
    for notice in &whole {
        assert!(MEMBERS.contains(&notice.rank()), "{notice:?}");
        assert!(bytes.windows(LENGTH).any(|window| window == notice.encode()), "{notice:?}");
    }
    !whole.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranks and launchers of different versions must not misunderstand each other: who changes these bytes
    /// changes the manifest's first ones as well.
    #[test]
    fn notices_have_these_bytes() {
        for (notice, words) in [
            (Notice::Lost { rank: 1, lost: 2 }, [0x004e_6d61, 1, 2, 0x4e5f_225b]),
            (Notice::Left { rank: 2 }, [0x014e_6d61, 2, 0, 0x2cc6_f1d9]),
            (Notice::Exit { rank: 300, code: 7 }, [0x024e_6d61, 300, 7, 0xcd49_e29b_u32]),
        ] {
            let bytes = words.map(u32::to_le_bytes).concat();
            assert_eq!(notice.encode()[..], bytes, "{notice:?}");
            assert_eq!(Notice::decode(&notice.encode()), Some(notice));
        }
        // Nothing else is a notice.
        for (kind, value) in [(1, 1), (2, 256), (3, 0), (255, 0)] {
            assert_eq!(Notice::decode(&encode_words(kind, 1, value)), None, "{kind} {value}");
        }
    }

    #[test]
    fn notices_arrive_in_order_and_only_those_of_members() {
        let mut notices = Notices::new().unwrap();
        assert_eq!(notices.receive(&[1, 3]), []);
        let said = [
            Notice::Left { rank: 3 },
            Notice::Exit { rank: 2, code: 0 },
            Notice::Lost { rank: 1, lost: 3 },
            Notice::Exit { rank: 1, code: 255 },
        ];
        for notice in said {
            assert_eq!(write(notices.inherited(), &notice.encode()), Ok(LENGTH));
        }
        assert_eq!(notices.receive(&[1, 3]), [said[0], said[2], said[3]]);
        assert_eq!(notices.receive(&[1, 3]), []);
    }

    #[test]
    fn what_is_no_notice_is_skipped() {
        let mut notices = Notices::new().unwrap();
        let said =
            [Notice::Left { rank: 1 }, Notice::Lost { rank: 1, lost: 2 }, Notice::Exit { rank: 1, code: 3 }];
        let [first, second, third] = said.map(Notice::encode);
        // Half a notice, a kind that is none, a code that is none, a notice in two parts.
        let mut unknown = [u32::from_le_bytes(*b"amN\x07"), 1, 0];
        let wrong = |words: [u32; 3]| {
            words.into_iter().chain([check(words)]).flat_map(u32::to_le_bytes).collect::<Vec<_>>()
        };
        let kind = wrong(unknown);
        unknown = [u32::from_le_bytes(*b"amN\x02"), 1, 256];
        let code = wrong(unknown);
        let parts: [&[u8]; 6] = [&first[..7], &first, b"junk", &kind, &code, &second];
        for part in parts {
            write(notices.inherited(), part).unwrap();
        }
        write(notices.inherited(), &third[..5]).unwrap();
        assert_eq!(notices.receive(&[1]), said[..2]);
        write(notices.inherited(), &third[5..]).unwrap();
        assert_eq!(notices.receive(&[1]), said[2..]);
    }

    #[test]
    fn a_full_pipe_loses_nothing() {
        let mut notices = Notices::new().unwrap();
        let pipe = notices.inherited().try_clone().unwrap();
        let (unsaid, lost, held) = (Mutex::default(), Mutex::default(), AtomicBool::new(true));
        let voice = Voice { rank: Rank(1), process: std::process::id(), pipe, unsaid, lost, held };
        // More than a pipe holds.
        let said = (64 << 10) / LENGTH as u32 + 100;
        (0..said).for_each(|lost| voice.say(Notice::Lost { rank: 1, lost }));
        let mut received = thread::scope(|scope| {
            let leaving = scope.spawn(|| {
                voice.say(Notice::Left { rank: 1 });
                voice.insist();
            });
            let mut received = Vec::new();
            while !leaving.is_finished() {
                received.extend(notices.receive(&[1]));
            }
            received
        });
        received.extend(notices.receive(&[1]));
        let all = (0..said).map(|lost| Notice::Lost { rank: 1, lost }).chain([Notice::Left { rank: 1 }]);
        assert!(received.iter().copied().eq(all), "{} of {}", received.len(), said + 1);
    }
}
