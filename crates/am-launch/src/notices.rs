//! Notices: what a rank tells its launcher or agent beside its exit code, through one pipe that all ranks of a host share.
//!
//! A notice is written at once and before its rank ends, so whoever reads the pipe after it has reaped a rank has all of that
//! rank's notices. They say which failure came first ([`Notice::Lost`], [`Notice::Left`]) and end whole jobs
//! ([`Notice::Exit`]).

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use am_core::supervision::{self, Event};
use am_core::{Address, Rank};
use nix::fcntl::OFlag;
use nix::unistd::{pipe2, write};
use serde::{Deserialize, Serialize};

use crate::contract;
use crate::spawn::{Legacy, claim};

/// How long a rank that fails over another one's loss waits with its own message, so that the other one's comes first. The
/// launcher usually ends it before.
const HOLD: Duration = Duration::from_secs(3);
/// The bytes of a notice: kind, rank, and a value, each a little-endian word of 32 bits.
const LENGTH: usize = 12;
/// A pipe holds 64 KiB, so one read takes all that is there.
const READ_AT_ONCE: usize = (64 << 10) / LENGTH * LENGTH;

/// What a rank says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Notice {
    /// `rank` has learned that `lost` is lost; if `rank` fails later, that may be why.
    Lost { rank: u32, lost: u32 },
    /// An endpoint of `rank` leaves without having finished, of its own accord.
    Left { rank: u32 },
    /// `rank` ends the whole job with this code.
    Exit { rank: u32, code: u8 },
}

impl Notice {
    /// Who says it.
    pub(crate) fn rank(self) -> u32 {
        let (Self::Lost { rank, .. } | Self::Left { rank } | Self::Exit { rank, .. }) = self;
        rank
    }

    fn encode(self) -> [u8; LENGTH] {
        let words = match self {
            Self::Lost { rank, lost } => [0, rank, lost],
            Self::Left { rank } => [1, rank, 0],
            Self::Exit { rank, code } => [2, rank, code.into()],
        };
        let mut bytes = [0; LENGTH];
        bytes.chunks_exact_mut(4).zip(words).for_each(|(chunk, word)| chunk.copy_from_slice(&word.to_le_bytes()));
        bytes
    }

    /// `None` if the bytes are none.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let word = |index: usize| bytes.get(4 * index..4 * index + 4)?.try_into().ok().map(u32::from_le_bytes);
        let rank = word(1)?;
        match (word(0)?, word(2)?) {
            (0, lost) => Some(Self::Lost { rank, lost }),
            (1, _) => Some(Self::Left { rank }),
            (2, code) => Some(Self::Exit { rank, code: u8::try_from(code).ok()? }),
            _ => None,
        }
    }
}

/// The launcher's end of the pipe.
#[derive(Debug)]
pub(crate) struct Notices {
    read: File,
    /// What ranks inherit; held here as well, so that the pipe never ends.
    inherited: Arc<OwnedFd>,
}

impl Notices {
    /// A new pipe, inherited by nobody yet.
    pub(crate) fn new() -> nix::Result<Self> {
        // A rank must not block because its launcher is stopped, nor the launcher because ranks are silent.
        let (read, inherited) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        Ok(Self { read: read.into(), inherited: Arc::new(inherited) })
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
    pub(crate) fn hear(&mut self, members: &[u32]) -> Vec<Notice> {
        let mut bytes = vec![0; READ_AT_ONCE];
        // Every notice is written at once, so none is torn; an empty pipe is an error like any other here.
        let length = self.read.read(&mut bytes).unwrap_or(0);
        let notices = bytes[..length].chunks_exact(LENGTH).filter_map(Notice::decode);
        notices.filter(|notice| members.binary_search(&notice.rank()).is_ok()).collect()
    }
}

/// The rank's end.
#[derive(Debug)]
struct Voice {
    rank: Rank,
    /// The process that speaks for the rank: its forks do not.
    process: u32,
    pipe: OwnedFd,
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
pub(crate) fn begin(rank: Rank, number: u32) -> io::Result<()> {
    if VOICE.get().is_some() {
        return Ok(());
    }
    let pipe = claim(number, Legacy::Notices)?;
    // Where the others go on, nobody ends those that fail over a loss, and each has its say at once.
    let held = AtomicBool::new(std::env::var_os(contract::KEEP_GOING).is_some());
    if VOICE.set(Voice { rank, process: std::process::id(), pipe, lost: Mutex::default(), held }).is_ok() {
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
        Event::Left => voice.say(Notice::Left { rank }),
        _ => {}
    }
}

impl Voice {
    /// Writes a notice; a launcher that doesn't read misses it.
    fn say(&self, notice: Notice) {
        if self.process != std::process::id() {
            return;
        }
        let _ = write(&self.pipe, &notice.encode());
    }
}

/// Lets a rank that is about to fail wait if it has been told of a loss: the lost rank's own failure is the reason that the
/// user needs, and when the launcher knows it, it ends this rank. Waits once per process.
pub(crate) fn hold_back() {
    let Some(voice) = VOICE.get() else { return };
    let secondary = !voice.lost.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
    // Relaxed: nothing else is shared; of two threads that fail at once one waits.
    if secondary && !voice.held.swap(true, Relaxed) {
        thread::sleep(HOLD);
    }
}

/// Ends the whole job with `code`, at once and from any rank, like `gasnet_exit`: nothing is waited for, no destructor runs,
/// and messages that are under way may be lost. Does not return.
///
/// The launcher ends all other ranks (SIGTERM, and SIGKILL after its grace period), on every host, and exits with `code`. Of
/// several ranks that call this the first one counts; a job that is ending already, over a failure or its time limit, keeps
/// its own code. Standard output is flushed, and functions registered with `atexit` run, as by
/// [`std::process::exit`].
///
/// Under `mpirun`, `srun` or a debugger there is no launcher of this family to tell: this process exits with `code`, its peers
/// find it lost, and what happens then is up to them and to that launcher.
pub fn exit_job(code: u8) -> ! {
    if let Some(voice) = VOICE.get() {
        voice.say(Notice::Exit { rank: voice.rank.0, code });
    }
    std::process::exit(code.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_arrive_in_order_and_only_those_of_members() {
        let mut notices = Notices::new().unwrap();
        assert_eq!(notices.hear(&[1, 3]), []);
        let said = [
            Notice::Left { rank: 3 },
            Notice::Exit { rank: 2, code: 0 },
            Notice::Lost { rank: 1, lost: 3 },
            Notice::Exit { rank: 1, code: 255 },
        ];
        for notice in said {
            assert_eq!(write(notices.inherited(), &notice.encode()), Ok(LENGTH));
        }
        assert_eq!(notices.hear(&[1, 3]), [said[0], said[2], said[3]]);
        assert_eq!(notices.hear(&[1, 3]), []);
        // No kind, and no code.
        for words in [[3, 1, 0], [2, 1, 256]] {
            assert_eq!(Notice::decode(&words.map(u32::to_le_bytes).concat()), None);
        }
    }
}
