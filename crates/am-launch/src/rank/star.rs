//! The connections of ranks that no launcher of this family started: one from rank 0 to each of the others. Rank
//! 0 carries their exchanges over them and tells of ranks that end, in a launcher's place.
//!
//! A thread of each rank hears what the others say, for as long as its process lives: a connection that ends
//! without a word of leave is that of a lost rank. What a rank says itself goes out in the call that says it,
//! since its process may end right afterwards. When rank 0 has gone, the others hear of nobody else any more.

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use am_core::Rank;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use crate::cluster::channel::{Channel, ChannelError, Side};
use crate::cluster::message::{Answer, FromRank, in_messages};
use crate::control_links::{Allgather, LONGEST_PART, LauncherMessage, Uplink, Word};
use crate::secret::Secret;

/// How long a rank that takes leave waits until the others have taken the word, which is only a matter of room
/// in their sockets.
const FAREWELL: Duration = Duration::from_secs(2);
/// Turns in which one connection is heard before the next one is.
const MOST_TURNS: usize = 16;
/// Connections that are looked at in one turn.
const AT_ONCE: usize = 64;
/// The stack of the thread that hears: a channel reads 64 KiB at once.
const STACK: usize = 256 << 10;

/// The connections of one rank, before anybody listens.
#[derive(Debug)]
pub(crate) enum Spokes {
    /// Rank 0's, to each of the others.
    Root(Vec<(u32, Channel)>),
    /// Another rank's, to rank 0, and what that has said beyond what was waited for.
    Leaf(Box<Channel>, Vec<Answer>),
}

impl Spokes {
    /// Rank 0's connections to the ranks of its host.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn root(streams: impl IntoIterator<Item = (u32, UnixStream)>, secret: &Secret) -> io::Result<Self> {
        let channel = |(rank, stream)| Ok((rank, Channel::local(stream, Side::Server, secret)?));
        streams.into_iter().map(channel).collect::<io::Result<_>>().map(Self::Root)
    }

    /// Another rank's connection to rank 0 of its host.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn leaf(stream: UnixStream, secret: &Secret) -> io::Result<Self> {
        Ok(Self::Leaf(Box::new(Channel::local(stream, Side::Client, secret)?), Vec::new()))
    }

    /// Sends what is queued to everyone who takes it.
    pub(crate) fn flush(&mut self, until: Instant) {
        match self {
            Self::Root(channels) => channels.iter_mut().for_each(|(_, channel)| flush(channel, until)),
            Self::Leaf(channel, _) => flush(channel, until),
        }
    }
}

/// Sends what is queued, at most until then. What the other end says meanwhile is heard later.
fn flush(channel: &mut Channel, until: Instant) {
    while channel.queued() > 0 && channel.push().is_ok() && channel.queued() > 0 {
        let left = until.saturating_duration_since(Instant::now());
        let mut ends = [PollFd::new(channel.as_fd(), PollFlags::POLLOUT)];
        if matches!(poll(&mut ends, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)), Ok(0)) {
            return;
        }
    }
}

/// Where a rank hears what it is told. It may say something itself meanwhile.
type Ear = Box<dyn Fn(LauncherMessage) + Send + Sync>;

/// A rank's connections, with the thread that hears the others.
pub(crate) struct Star {
    events: Epoll,
    state: Mutex<State>,
    told: Ear,
    /// What this process forks must not go on with its keys.
    process: u32,
}

impl fmt::Debug for Star {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Star").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Star {
    /// Starts to hear what the others say in a job of so many ranks. The thread ends with the process, or when
    /// everybody has hung up.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn begin(
        spokes: Spokes,
        ranks: u32,
        told: impl Fn(LauncherMessage) + Send + Sync + 'static,
    ) -> io::Result<Arc<Self>> {
        let events = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let mut heard = Vec::new();
        let state = match spokes {
            Spokes::Root(channels) => {
                let mut spokes: Vec<Option<Spoke>> = (1..ranks).map(|_| None).collect();
                for (rank, channel) in channels {
                    spokes[rank as usize - 1] = Some(Spoke::begin(channel, rank, &events)?);
                }
                let mut root = Root {
                    spokes,
                    exchange: Allgather::new(ranks),
                    out: Vec::new(),
                    held: None,
                    ended: Vec::new(),
                };
                // All are there where ranks have met.
                let absent: Vec<u32> = (1..ranks).filter(|rank| root.spoke(*rank).is_none()).collect();
                absent.into_iter().for_each(|rank| root.done(rank, &mut heard));
                State::Root(root)
            }
            Spokes::Leaf(channel, early) => {
                let spoke = Some(Spoke::begin(*channel, 0, &events)?);
                let mut leaf = Leaf { spoke, ranks, gathered: Vec::new() };
                early.into_iter().for_each(|answer| leaf.take(answer, &mut heard));
                State::Leaf(leaf)
            }
        };
        heard.into_iter().for_each(&told);
        let (told, process): (Ear, _) = (Box::new(told), std::process::id());
        let star = Arc::new(Self { events, state: Mutex::new(state), told, process });
        let hears = Arc::clone(&star);
        thread::Builder::new().name("am-ranks".into()).stack_size(STACK).spawn(move || hears.serve())?;
        Ok(star)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hears the others until all have gone.
    fn serve(&self) {
        let mut events = [EpollEvent::empty(); AT_ONCE];
        while !self.state().is_over() {
            let count = match self.events.wait(&mut events, EpollTimeout::NONE) {
                Ok(count) => count,
                Err(Errno::EINTR) => continue,
                Err(_) => return,
            };
            let mut told = Vec::new();
            let mut state = self.state();
            events[..count].iter().for_each(|event| state.hear(event.data() as u32, &mut told));
            state.watch(&self.events);
            drop(state);
            told.into_iter().for_each(&self.told);
        }
    }
}

impl Uplink for Star {
    fn say(&self, word: Word) -> io::Result<()> {
        if self.process != std::process::id() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        // After either, this process may end.
        let (mut told, last) = (Vec::new(), matches!(word, Word::Left | Word::Done));
        let mut state = self.state();
        let said = match &mut *state {
            State::Root(root) => {
                root.note(0, word, &mut told);
                root.release(&mut told);
                Ok(())
            }
            State::Leaf(leaf) => leaf.say(word),
        };
        if last {
            let until = Instant::now() + FAREWELL;
            state.spokes().for_each(|spoke| flush(&mut spoke.channel, until));
        }
        state.watch(&self.events);
        drop(state);
        told.into_iter().for_each(&self.told);
        said
    }
}

/// One connection.
#[derive(Debug)]
struct Spoke {
    channel: Channel,
    rank: u32,
    /// Whether the rank at the other end has taken leave.
    left: bool,
    /// Whether it wants to hear who is done.
    watching: bool,
    /// Whether it is watched for room.
    behind: bool,
}

impl Spoke {
    fn begin(channel: Channel, rank: u32, events: &Epoll) -> io::Result<Self> {
        events.add(&channel, EpollEvent::new(EpollFlags::EPOLLIN, rank.into()))?;
        let mut spoke = Self { channel, rank, left: false, watching: false, behind: false };
        spoke.watch(events);
        Ok(spoke)
    }

    /// Sends as much as there is room for.
    fn say(&mut self, answer: &Answer) {
        self.channel.send(answer);
        // Whoever has gone is found by who listens.
        let _ = self.channel.push();
    }

    /// Watches the connection for room as long as something waits for it.
    fn watch(&mut self, events: &Epoll) {
        let behind = self.channel.queued() > 0;
        if behind != self.behind {
            let flags = if behind { EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT } else { EpollFlags::EPOLLIN };
            let changed = events.modify(&self.channel, &mut EpollEvent::new(flags, self.rank.into()));
            self.behind = if changed.is_ok() { behind } else { self.behind };
        }
    }
}

#[derive(Debug)]
enum State {
    Root(Root),
    Leaf(Leaf),
}

impl State {
    fn spokes(&mut self) -> impl Iterator<Item = &mut Spoke> {
        let (root, leaf) = match self {
            Self::Root(root) => (&mut root.spokes[..], None),
            Self::Leaf(leaf) => (&mut [][..], leaf.spoke.as_mut()),
        };
        root.iter_mut().flatten().chain(leaf)
    }

    fn watch(&mut self, events: &Epoll) {
        self.spokes().for_each(|spoke| spoke.watch(events));
        let ended = match self {
            Self::Root(root) => std::mem::take(&mut root.ended),
            Self::Leaf(_) => Vec::new(),
        };
        // A child of this process may keep the connection open, and closing it here would not end the watch.
        for spoke in ended {
            let _ = events.delete(&spoke.channel);
        }
    }

    /// Whether everybody has hung up.
    fn is_over(&mut self) -> bool {
        self.spokes().next().is_none()
    }

    /// Hears what has come from this rank; `told` gets what this process's rank learns by that.
    fn hear(&mut self, from: u32, told: &mut Vec<LauncherMessage>) {
        match self {
            Self::Root(root) => {
                root.hear(from, told);
                root.release(told);
            }
            Self::Leaf(leaf) => leaf.hear(told),
        }
    }
}

/// Rank 0's part.
#[derive(Debug)]
struct Root {
    /// From rank 1 on; none to those that have gone.
    spokes: Vec<Option<Spoke>>,
    exchange: Allgather,
    /// Those that take part in no further exchange.
    out: Vec<u32>,
    /// What an exchange has brought, until the others have it: this process may end once its own rank knows.
    held: Option<Vec<Vec<u8>>>,
    /// Connections that have ended and are watched still.
    ended: Vec<Spoke>,
}

impl Root {
    fn spoke(&mut self, rank: u32) -> Option<&mut Spoke> {
        self.spokes.get_mut(rank.checked_sub(1)? as usize)?.as_mut()
    }

    fn hear(&mut self, rank: u32, told: &mut Vec<LauncherMessage>) {
        for _ in 0..MOST_TURNS {
            let Some(spoke) = self.spoke(rank) else { return };
            let words = match spoke.channel.pump::<FromRank>() {
                Ok(words) => words,
                Err(error) => return self.gone(rank, &error, told),
            };
            if words.is_empty() {
                return;
            }
            for word in words {
                match word {
                    // What follows a word that ended the connection is not heard.
                    FromRank::Said(word) if self.spoke(rank).is_some() => self.note(rank, word, told),
                    FromRank::Said(_) => return,
                    FromRank::Arrived(_) => return self.gone(rank, &ChannelError::Damaged, told),
                }
            }
        }
    }

    /// A rank, this one included, has said something.
    fn note(&mut self, rank: u32, word: Word, told: &mut Vec<LauncherMessage>) {
        match word {
            Word::Part(part) if part.len() > LONGEST_PART => self.gone(rank, &ChannelError::Damaged, told),
            Word::Part(part) => {
                self.exchange.note(rank, part);
                self.conclude();
            }
            Word::Done => self.done(rank, told),
            Word::Left | Word::Back if rank == 0 => self.tell(&Answer::Left(word == Word::Left)),
            Word::Left | Word::Back => {
                let left = word == Word::Left;
                self.spoke(rank).into_iter().for_each(|spoke| spoke.left = left);
            }
            Word::Watch(on) => {
                let out = on.then(|| Answer::Done(self.out.clone()));
                // Rank 0 hears of everyone anyhow.
                let Some(spoke) = self.spoke(rank) else { return };
                spoke.watching = on;
                out.iter().for_each(|out| spoke.say(out));
            }
        }
    }

    /// A rank takes part in no further exchange.
    fn done(&mut self, rank: u32, told: &mut Vec<LauncherMessage>) {
        self.out.push(rank);
        self.exchange.lose(rank);
        let answer = Answer::Done(vec![rank]);
        self.spokes.iter_mut().flatten().filter(|spoke| spoke.watching).for_each(|spoke| spoke.say(&answer));
        told.push(LauncherMessage::Done(vec![Rank(rank)]));
        self.conclude();
    }

    /// A rank's connection has ended. Rank 0 itself is told last: its process may end once it knows.
    fn gone(&mut self, rank: u32, error: &ChannelError, told: &mut Vec<LauncherMessage>) {
        let Some(spoke) = self.spokes.get_mut(rank as usize - 1).and_then(Option::take) else { return };
        // A network that fails is no proof of a rank's end.
        if !spoke.left && !matches!(error, ChannelError::System(_)) {
            self.tell(&Answer::Failed(vec![rank]));
            told.push(LauncherMessage::Failed(vec![Rank(rank)]));
        }
        self.ended.push(spoke);
        self.done(rank, told);
    }

    fn conclude(&mut self) {
        let Some(parts) = self.exchange.complete() else { return };
        in_messages(&parts).for_each(|(parts, more)| self.tell(&Answer::Gathered { parts, more }));
        self.held = Some(parts);
    }

    /// Hands this rank what an exchange has brought once it has left for all others.
    fn release(&mut self, told: &mut Vec<LauncherMessage>) {
        if self.spokes.iter().flatten().all(|spoke| spoke.channel.queued() == 0) {
            told.extend(self.held.take().map(LauncherMessage::Gathered));
        }
    }

    fn tell(&mut self, answer: &Answer) {
        self.spokes.iter_mut().flatten().for_each(|spoke| spoke.say(answer));
    }
}

/// Another rank's part.
#[derive(Debug)]
struct Leaf {
    /// To rank 0, unless that has gone.
    spoke: Option<Spoke>,
    ranks: u32,
    /// Parts of an exchange, as far as they have come.
    gathered: Vec<Vec<u8>>,
}

impl Leaf {
    fn say(&mut self, word: Word) -> io::Result<()> {
        let spoke = self.spoke.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        spoke.channel.send(&FromRank::Said(word));
        // That rank 0 has gone is found by who listens, after all that it has said.
        let _ = spoke.channel.push();
        Ok(())
    }

    fn hear(&mut self, told: &mut Vec<LauncherMessage>) {
        for _ in 0..MOST_TURNS {
            let Some(spoke) = &mut self.spoke else { return };
            match spoke.channel.pump::<Answer>() {
                Ok(answers) if answers.is_empty() => return,
                Ok(answers) => answers.into_iter().for_each(|answer| self.take(answer, told)),
                Err(error) => self.end(&error, told),
            }
        }
    }

    /// Rank 0 has said something.
    fn take(&mut self, answer: Answer, told: &mut Vec<LauncherMessage>) {
        let named = |ranks: Vec<u32>| -> Option<Vec<Rank>> {
            let known = ranks.iter().all(|rank| *rank < self.ranks);
            known.then(|| ranks.into_iter().map(Rank).collect())
        };
        let sound = match answer {
            Answer::Gathered { parts, more } => self.gather(parts.0, more, told),
            Answer::Failed(ranks) => named(ranks).map(|ranks| told.push(LauncherMessage::Failed(ranks))),
            Answer::Done(ranks) => named(ranks).map(|ranks| told.push(LauncherMessage::Done(ranks))),
            Answer::Left(left) => self.spoke.as_mut().map(|spoke| spoke.left = left),
            Answer::Table(..) | Answer::Refused(_) => None,
        };
        if sound.is_none() {
            self.end(&ChannelError::Damaged, told);
        }
    }

    fn gather(&mut self, parts: Vec<Vec<u8>>, more: bool, told: &mut Vec<LauncherMessage>) -> Option<()> {
        self.gathered.extend(parts);
        let ranks = self.ranks as usize;
        if more == (self.gathered.len() >= ranks) || self.gathered.len() > ranks {
            return None;
        }
        if !more {
            told.push(LauncherMessage::Gathered(std::mem::take(&mut self.gathered)));
        }
        Some(())
    }

    /// The connection has ended.
    fn end(&mut self, error: &ChannelError, told: &mut Vec<LauncherMessage>) {
        let Some(spoke) = self.spoke.take() else { return };
        if !spoke.left && !matches!(error, ChannelError::System(_)) {
            told.push(LauncherMessage::Failed(vec![Rank(0)]));
        }
        told.push(LauncherMessage::Over);
    }
}

#[cfg(test)]
mod tests;
