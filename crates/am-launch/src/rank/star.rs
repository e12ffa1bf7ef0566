//! The connections of ranks that no launcher of this family started: one from rank 0 to each of the others. Rank
//! 0 carries their exchanges over them and tells of ranks that end, in a launcher's place.
//!
//! A thread of each rank hears what the others say, for as long as its process lives: a connection that ends
//! without a word of leave is that of a lost rank. What a rank says itself goes out in the call that says it,
//! since its process may end right afterwards. When rank 0 has gone, the others hear of nobody else any more.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use am_core::Rank;
use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use crate::cluster::channel::{Channel, ChannelError, Side};
use crate::cluster::message::{Answer, FromRank, in_message};
use crate::control_links::{Allgather, LONGEST_PART, LauncherMessage, Uplink, Word};
use crate::secret::Secret;

/// How long a rank that takes leave waits until the others have taken the word, which is only a matter of room
/// in their sockets.
const FAREWELL: Duration = Duration::from_secs(2);
/// Turns in which one connection is heard, and messages that are sealed for it, before the next one's turn.
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
        self.channels().for_each(|channel| drop(flush(channel, until)));
    }

    /// Opens the connections: what is said over them later needs nothing from the other end, which may be busy
    /// then while this process ends.
    ///
    /// # Errors
    /// Why the first one that can't be opened can't. The others are open, and those that are not end when they are
    /// heard.
    pub(crate) fn open(&mut self, until: Instant) -> Result<(), ChannelError> {
        let mut opened = Ok(());
        for channel in self.channels() {
            opened = opened.and(open(channel, until));
        }
        opened
    }

    fn channels(&mut self) -> impl Iterator<Item = &mut Channel> {
        let (root, leaf) = match self {
            Self::Root(channels) => (&mut channels[..], None),
            Self::Leaf(channel, _) => (&mut [][..], Some(&mut **channel)),
        };
        root.iter_mut().map(|(_, channel)| channel).chain(leaf)
    }
}

/// Proves both ends to each other.
fn open(channel: &mut Channel, until: Instant) -> Result<(), ChannelError> {
    while !channel.prove()? {
        channel.rest(until)?;
    }
    flush(channel, until)
}

/// Sends what is queued, at most until then. What the other end says meanwhile is heard later.
fn flush(channel: &mut Channel, until: Instant) -> Result<(), ChannelError> {
    loop {
        // What waits for the other end's greeting needs that first.
        let proven = channel.prove()?;
        channel.push()?;
        if channel.queued() == 0 {
            return Ok(());
        }
        // What the other end has said stays unread, and would end every wait for it at once.
        if proven {
            channel.rest_until_room(until)?;
        } else {
            channel.rest(until)?;
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
                    held: VecDeque::new(),
                    ended: Vec::new(),
                };
                // All are there where ranks have met.
                let absent: Vec<u32> = (1..ranks).filter(|rank| root.spoke(*rank).is_none()).collect();
                absent.into_iter().for_each(|rank| root.done(rank, &mut heard));
                State::Root(root)
            }
            Spokes::Leaf(channel, early) => {
                let spoke = Some(Spoke::begin(*channel, 0, &events)?);
                let mut leaf = Leaf { spoke, ranks, gathered: Vec::new(), over: io::ErrorKind::BrokenPipe };
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
            state.spokes().for_each(|spoke| spoke.flush(until));
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
    /// Whether it takes part in no further exchange.
    done: bool,
    /// Whether it is watched for room.
    behind: bool,
    /// What it has not been told yet, in this order.
    backlog: VecDeque<Saying>,
}

/// What one rank is to be told. What all are told is there once: it is sealed for a rank when that has taken what
/// was sealed before.
#[derive(Debug)]
enum Saying {
    Answer(Answer),
    /// The parts of an exchange, of which those from that rank's on have not been sealed.
    Parts(Arc<Vec<Vec<u8>>>, usize),
}

impl Spoke {
    fn begin(channel: Channel, rank: u32, events: &Epoll) -> io::Result<Self> {
        events.add(&channel, EpollEvent::new(EpollFlags::EPOLLIN, rank.into()))?;
        let (left, watching, done, behind, backlog) = (false, false, false, false, VecDeque::new());
        let mut spoke = Self { channel, rank, left, watching, done, behind, backlog };
        spoke.watch(events);
        Ok(spoke)
    }

    /// Says something after all that was said before, now or once there is room.
    fn say(&mut self, saying: Saying) {
        self.backlog.push_back(saying);
        // Whoever has gone is found by who listens.
        let _ = self.push();
    }

    /// Sends as much as there is room for, a few messages at most.
    fn push(&mut self) -> Result<(), ChannelError> {
        self.channel.push()?;
        for _ in 0..MOST_TURNS {
            if self.channel.queued() > 0 {
                return Ok(());
            }
            match self.backlog.pop_front() {
                None => return Ok(()),
                Some(Saying::Answer(answer)) => self.channel.send(&answer),
                Some(Saying::Parts(all, from)) => {
                    let (parts, more, next) = in_message(&all, from);
                    self.channel.send(&Answer::Gathered { parts, more });
                    if more {
                        self.backlog.push_front(Saying::Parts(all, next));
                    }
                }
            }
            self.channel.push()?;
        }
        Ok(())
    }

    /// Sends all that waits, at most until then.
    fn flush(&mut self, until: Instant) {
        while flush(&mut self.channel, until).is_ok() && !self.backlog.is_empty() && self.push().is_ok() {}
    }

    /// Whether the other end has all that it was told.
    fn is_through(&self) -> bool {
        self.backlog.is_empty() && self.channel.queued() == 0
    }

    /// Watches the connection for room as long as something waits for it.
    fn watch(&mut self, events: &Epoll) {
        // What waits for the other end's greeting waits for no room.
        let stuck = self.channel.interest().contains(PollFlags::POLLOUT);
        let behind = stuck || self.channel.queued() == 0 && !self.backlog.is_empty();
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
    /// What exchanges have brought, until the others have it: this process may end once its own rank knows.
    held: VecDeque<Arc<Vec<Vec<u8>>>>,
    /// Connections that have ended and are watched still.
    ended: Vec<Spoke>,
}

impl Root {
    fn spoke(&mut self, rank: u32) -> Option<&mut Spoke> {
        self.spokes.get_mut(rank.checked_sub(1)? as usize)?.as_mut()
    }

    /// Hears a rank, and says what there is room for now.
    fn hear(&mut self, rank: u32, told: &mut Vec<LauncherMessage>) {
        for _ in 0..MOST_TURNS {
            let Some(spoke) = self.spoke(rank) else { return };
            let words = match spoke.channel.pump::<FromRank>() {
                Ok(words) => words,
                Err(error) => return self.gone(rank, &error, told),
            };
            if words.is_empty() {
                // Whoever has gone is found at the next turn.
                let _ = spoke.push();
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
            Word::Part(_) if self.exchange.is_far_ahead(rank) => self.gone(rank, &ChannelError::Damaged, told),
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
                out.into_iter().for_each(|out| spoke.say(Saying::Answer(out)));
            }
        }
    }

    /// A rank takes part in no further exchange.
    fn done(&mut self, rank: u32, told: &mut Vec<LauncherMessage>) {
        if !self.exchange.lose(rank) {
            return;
        }
        self.out.push(rank);
        self.spoke(rank).into_iter().for_each(|spoke| spoke.done = true);
        for spoke in self.spokes.iter_mut().flatten().filter(|spoke| spoke.watching) {
            spoke.say(Saying::Answer(Answer::Done(vec![rank])));
        }
        told.push(LauncherMessage::Done(vec![Rank(rank)]));
        self.conclude();
    }

    /// A rank's connection has ended. Rank 0 itself is told last: its process may end once it knows.
    fn gone(&mut self, rank: u32, error: &ChannelError, told: &mut Vec<LauncherMessage>) {
        let slot = rank.checked_sub(1).and_then(|place| self.spokes.get_mut(place as usize));
        let Some(spoke) = slot.and_then(Option::take) else { return };
        if !spoke.left && proves_an_end(error) {
            self.tell(&Answer::Failed(vec![rank]));
            told.push(LauncherMessage::Failed(vec![Rank(rank)]));
        }
        self.ended.push(spoke);
        self.done(rank, told);
    }

    fn conclude(&mut self) {
        while let Some(parts) = self.exchange.complete() {
            let parts = Arc::new(parts);
            for spoke in self.spokes.iter_mut().flatten().filter(|spoke| !spoke.done) {
                spoke.say(Saying::Parts(Arc::clone(&parts), 0));
            }
            self.held.push_back(parts);
        }
    }

    /// Hands this rank what exchanges have brought once it has left for all others.
    fn release(&mut self, told: &mut Vec<LauncherMessage>) {
        if self.spokes.iter().flatten().all(Spoke::is_through) {
            told.extend(self.held.drain(..).map(|parts| LauncherMessage::Gathered(Arc::unwrap_or_clone(parts))));
        }
    }

    fn tell(&mut self, answer: &Answer) {
        self.spokes.iter_mut().flatten().for_each(|spoke| spoke.say(Saying::Answer(answer.clone())));
    }
}

/// Whether a connection that ended so is that of a process that has: a network that fails proves nothing.
fn proves_an_end(error: &ChannelError) -> bool {
    !matches!(error, ChannelError::System(_) | ChannelError::TimedOut)
}

/// Another rank's part.
#[derive(Debug)]
struct Leaf {
    /// To rank 0, unless that has gone.
    spoke: Option<Spoke>,
    ranks: u32,
    /// Parts of an exchange, as far as they have come.
    gathered: Vec<Vec<u8>>,
    /// Why the connection has ended, if it has.
    over: io::ErrorKind,
}

impl Leaf {
    fn say(&mut self, word: Word) -> io::Result<()> {
        let spoke = self.spoke.as_mut().ok_or(self.over)?;
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
        if !spoke.left && proves_an_end(error) {
            told.push(LauncherMessage::Failed(vec![Rank(0)]));
        }
        self.over = error.kind();
        told.push(LauncherMessage::Over(self.over));
    }
}

#[cfg(test)]
mod tests;
