//! The links between a launcher or agent and its ranks. Ranks exchange bytes over them ([`Allgather`]), which
//! can't be in the manifest that they inherit because they are known only when a program attaches, and learn whose
//! process has ended without taking leave. A rank says when its endpoints have taken leave, and when it takes part
//! in no further exchange.
//!
//! Deaths are known to launchers at once; without a word from them, a rank on another host is missed only after a
//! long silence.
//!
//! Both directions carry frames: a kind, the length of what follows as a little-endian word of 32 bits, and that.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};

use am_core::Rank;

use crate::codec::wire;

/// From a rank: its part of an exchange.
const PART: u8 = 0;
/// From a rank: all its endpoints have taken leave.
const LEFT: u8 = 1;
/// From a rank: another endpoint has attached after that.
const BACK: u8 = 2;
/// From a rank: it takes part in no further exchange.
const DONE: u8 = 3;
/// From a rank: whether it wants to know who is done (a byte, 1 or 0).
const WATCH: u8 = 4;
/// To a rank: parts of an exchange in the order of ranks, each with its length before it, behind a byte that says
/// whether more follow.
const GATHERED: u8 = 5;
/// To a rank: the numbers of ranks that have ended without taking leave.
const FAILED: u8 = 6;
/// To a rank: the numbers of ranks that are done.
const OUT: u8 = 7;

/// Parts in one frame at most: with each of them as long as one may be, a frame has 8 MiB.
const PARTS_AT_ONCE: usize = 128;
/// Long frames that are taken of one rank before the next one has its turn: more than a socket holds, so that all
/// is received that a rank had said when it ended.
const MOST_FRAMES: usize = 64;
/// Ranks in one frame at most.
const RANKS_AT_ONCE: usize = 1 << 20;

/// Bytes before what a frame carries.
const HEAD: usize = 5;
/// The longest part of an exchange.
pub(crate) const LONGEST_PART: usize = 64 << 10;

/// What a rank says to whoever serves its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// Its part of an exchange.
    Part(Vec<u8>),
    /// All its endpoints have taken leave.
    Left,
    /// Another endpoint has attached after that.
    Back,
    /// It takes part in no further exchange.
    Done,
    /// Whether it wants to hear who is done.
    Watch(bool),
}
wire!(enum Word { 0 => Part(part), 1 => Left, 2 => Back, 3 => Done, 4 => Watch(on) });

/// A rank's way to whoever serves its job. What is said has gone out when the call returns.
pub(crate) trait Uplink: fmt::Debug + Send + Sync {
    /// Says something in one piece.
    ///
    /// # Errors
    /// Whoever serves the job has gone.
    fn say(&self, word: Word) -> io::Result<()>;
}

impl Uplink for UnixStream {
    fn say(&self, word: Word) -> io::Result<()> {
        let frame = match word {
            Word::Part(part) => frame(PART, &part),
            Word::Left => frame(LEFT, &[]),
            Word::Back => frame(BACK, &[]),
            Word::Done => frame(DONE, &[]),
            Word::Watch(on) => frame(WATCH, &[on.into()]),
        };
        (&*self).write_all(&frame)
    }
}

/// A link to a launcher, over which the threads of a rank speak one after the other.
impl Uplink for Mutex<Arc<UnixStream>> {
    fn say(&self, word: Word) -> io::Result<()> {
        self.lock().unwrap_or_else(PoisonError::into_inner).say(word)
    }
}

fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("long messages take several frames");
    [&[kind][..], &length.to_le_bytes(), body].concat()
}

/// The kind and the length of a frame with this head.
fn head([kind, length @ ..]: [u8; HEAD]) -> (u8, usize) {
    (kind, u32::from_le_bytes(length) as usize)
}

/// The launcher's end of one link.
#[derive(Debug)]
struct ControlLink {
    stream: UnixStream,
    /// What has come of a frame that is not whole.
    arrived: Vec<u8>,
    /// What the rank has not taken yet, and how much of the first it has. What all ranks are told is there once.
    backlog: VecDeque<Arc<[u8]>>,
    taken: usize,
    /// Whether the rank wants to know who is done.
    watching: bool,
    /// Whether it is done itself.
    done: bool,
}

impl ControlLink {
    /// Tells the rank something, now or when it takes it.
    fn say(&mut self, frame: &Arc<[u8]>) {
        self.backlog.push_back(Arc::clone(frame));
        self.flush();
    }

    /// Says as much of the backlog as the rank takes. A rank that is stopped must not stop its launcher.
    fn flush(&mut self) {
        while let Some(first) = self.backlog.front() {
            match self.stream.write(&first[self.taken..]) {
                Ok(taken) => {
                    self.taken += taken;
                    if self.taken == first.len() {
                        self.taken = 0;
                        self.backlog.pop_front();
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The rank has gone; `poll` finds that out.
                Err(_) => self.backlog.clear(),
            }
        }
    }

    /// Takes in what has come, a little more than a frame at most.
    fn read(&mut self) -> Extent {
        let mut bytes = [0; 4096];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return Extent::Gone,
                Ok(length) => self.arrived.extend_from_slice(&bytes[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Extent::All,
                Err(_) => return Extent::Gone,
            }
            if self.arrived.len() > HEAD + LONGEST_PART {
                return Extent::Some;
            }
        }
    }

    /// The next whole frame; an error if what has come is none of a rank.
    fn next(&mut self) -> Result<Option<(u8, Vec<u8>)>, ()> {
        let Some(first) = self.arrived.first_chunk() else { return Ok(None) };
        let (kind, length) = head(*first);
        let sound = match kind {
            PART => length <= LONGEST_PART,
            LEFT | BACK | DONE => length == 0,
            WATCH => length == 1,
            _ => false,
        };
        if !sound {
            return Err(());
        }
        if self.arrived.len() < HEAD + length {
            return Ok(None);
        }
        let frame = self.arrived.drain(..HEAD + length).skip(HEAD).collect();
        Ok(Some((kind, frame)))
    }
}

/// What was read of a link.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// All that had come.
    All,
    /// There may be more.
    Some,
    /// The last that there will be.
    Gone,
}

/// The launcher's ends of all links of a host. A link is dropped when its rank has hung up.
#[derive(Debug, Default)]
pub(crate) struct ControlLinks {
    links: Vec<Option<ControlLink>>,
    /// Whether the rank of each place has taken leave.
    left: Vec<bool>,
    /// Places whose ranks take part in no further exchange, as far as that was not asked for yet.
    done: Vec<usize>,
    /// The ranks of which [`announce_done`](Self::announce_done) was told.
    out: Vec<u32>,
}

impl ControlLinks {
    /// A link for one more rank, and the end that the rank inherits.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn add(&mut self) -> io::Result<OwnedFd> {
        let (ours, theirs) = UnixStream::pair()?;
        self.adopt(ours)?;
        Ok(theirs.into())
    }

    /// A link for one more rank over this stream, whose other end the rank has.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn adopt(&mut self, stream: UnixStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        self.left.push(false);
        let (arrived, backlog) = (Vec::new(), VecDeque::new());
        self.links.push(Some(ControlLink { stream, arrived, backlog, taken: 0, watching: false, done: false }));
        Ok(())
    }

    /// What to wait for.
    pub(crate) fn ends(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.links.iter().flatten().map(|link| link.stream.as_fd())
    }

    /// Whether the rank of this place has not hung up.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn is_open(&self, place: usize) -> bool {
        self.links.get(place).is_some_and(Option::is_some)
    }

    /// Whether a rank has not taken all that was said to it, so that [`poll`](Self::poll) should be called again
    /// soon.
    pub(crate) fn is_behind(&self) -> bool {
        self.links.iter().flatten().any(|link| !link.backlog.is_empty())
    }

    /// Parts of an exchange that ranks have sent since the last call, and their places. Says again what a rank
    /// could not take before.
    pub(crate) fn poll(&mut self) -> Vec<(usize, Vec<u8>)> {
        let mut parts = Vec::new();
        for (place, slot) in self.links.iter_mut().enumerate() {
            let Some(link) = slot else { continue };
            link.flush();
            let mut sound = true;
            for _ in 0..MOST_FRAMES {
                let extent = link.read();
                sound = loop {
                    match link.next() {
                        Ok(Some((PART, part))) => parts.push((place, part)),
                        Ok(Some((DONE, _))) => {
                            let news = !std::mem::replace(&mut link.done, true);
                            self.done.extend(news.then_some(place));
                        }
                        Ok(Some((WATCH, body))) => {
                            link.watching = body == [1];
                            if link.watching {
                                rank_frames(OUT, &self.out).for_each(|frame| link.say(&frame));
                            }
                        }
                        Ok(Some((kind, _))) => self.left[place] = kind == LEFT,
                        Ok(None) => break extent != Extent::Gone,
                        Err(()) => break false,
                    }
                };
                if !sound || extent != Extent::Some {
                    break;
                }
            }
            // The rank has gone, or something else sits there.
            if !sound {
                self.done.extend((!link.done).then_some(place));
                *slot = None;
            }
        }
        parts
    }

    /// Places whose ranks take part in no further exchange, because they have said so or hung up: those that were
    /// found since the last call.
    pub(crate) fn take_done(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.done)
    }

    /// Tells every rank that waits for others, now or later, that these take part in no further exchange.
    pub(crate) fn announce_done(&mut self, ranks: &[u32]) {
        self.out.extend_from_slice(ranks);
        for frame in rank_frames(OUT, ranks) {
            self.links.iter_mut().flatten().filter(|link| link.watching).for_each(|link| link.say(&frame));
        }
    }

    /// Tells every rank the parts of all.
    pub(crate) fn answer(&mut self, parts: &[Vec<u8>]) {
        let last = parts.len().div_ceil(PARTS_AT_ONCE).saturating_sub(1);
        for (index, parts) in parts.chunks(PARTS_AT_ONCE).enumerate() {
            let mut body = vec![u8::from(index < last)];
            for part in parts {
                body.extend_from_slice(&(part.len() as u32).to_le_bytes());
                body.extend_from_slice(part);
            }
            self.broadcast(&frame(GATHERED, &body).into());
        }
    }

    /// Whether the rank of this place has said that it has taken leave. Complete for ranks whose processes have
    /// ended, once [`poll`](Self::poll) was called after that.
    pub(crate) fn has_left(&self, place: usize) -> bool {
        self.left.get(place).is_some_and(|left| *left)
    }

    /// Tells every rank that these have ended without taking leave.
    pub(crate) fn announce_failures(&mut self, dead: &[u32]) {
        rank_frames(FAILED, dead).for_each(|frame| self.broadcast(&frame));
    }

    fn broadcast(&mut self, frame: &Arc<[u8]>) {
        self.links.iter_mut().flatten().for_each(|link| link.say(frame));
    }
}

/// The numbers of these ranks as frames; none for none.
fn rank_frames(kind: u8, ranks: &[u32]) -> impl Iterator<Item = Arc<[u8]>> {
    let body = |ranks: &[u32]| ranks.iter().flat_map(|rank| rank.to_le_bytes()).collect::<Vec<u8>>();
    ranks.chunks(RANKS_AT_ONCE).map(move |ranks| frame(kind, &body(ranks)).into())
}

/// One exchange after another among the ranks of a job: the parts as they become known. A rank's first part is
/// that of the first
/// exchange, its second part that of the second, and so on.
#[derive(Debug)]
pub(crate) struct Allgather {
    /// The parts of each rank that no exchange has had yet: several where the rank has given up waiting for an
    /// exchange.
    parts: Vec<VecDeque<Vec<u8>>>,
    gone: Vec<bool>,
}

/// How many exchanges a rank may be ahead of the others.
pub(crate) const MOST_AHEAD: usize = 64;

impl Allgather {
    pub(crate) fn new(ranks: u32) -> Self {
        Self { parts: vec![VecDeque::new(); ranks as usize], gone: vec![false; ranks as usize] }
    }

    /// Notes a rank's part of its next exchange, unless it is too far ahead.
    pub(crate) fn note(&mut self, rank: u32, part: Vec<u8>) {
        if let Some(parts) = self.parts.get_mut(rank as usize).filter(|parts| parts.len() < MOST_AHEAD) {
            parts.push_back(part);
        }
    }

    /// Whether a rank is so far ahead of the others that no more of its parts are taken.
    pub(crate) fn is_far_ahead(&self, rank: u32) -> bool {
        self.parts.get(rank as usize).is_some_and(|parts| parts.len() >= MOST_AHEAD)
    }

    /// Nobody has to wait for a rank that has ended or is done: what it has not said is empty. That it is lost
    /// shows later. Returns
    /// whether that is news.
    pub(crate) fn lose(&mut self, rank: u32) -> bool {
        self.gone.get_mut(rank as usize).is_some_and(|gone| !std::mem::replace(gone, true))
    }

    /// The parts, once, when those of all ranks that live are known; then the next exchange begins.
    pub(crate) fn complete(&mut self) -> Option<Vec<Vec<u8>>> {
        let begun = self.parts.iter().any(|parts| !parts.is_empty());
        if !begun || self.parts.iter().zip(&self.gone).any(|(parts, gone)| parts.is_empty() && !gone) {
            return None;
        }
        Some(self.parts.iter_mut().map(|parts| parts.pop_front().unwrap_or_default()).collect())
    }
}

/// A rank's endpoints as its launcher has to know them: whether all of them have taken leave.
#[derive(Debug, Default)]
pub(crate) struct Presence {
    attached: usize,
    departed: usize,
}

impl Presence {
    /// One more endpoint is there. A launcher that is gone needs no word, here and below.
    pub(crate) fn attach(&mut self, link: &dyn Uplink) {
        if self.attached > 0 && self.attached == self.departed {
            let _ = link.say(Word::Back);
        }
        self.attached += 1;
    }

    /// One of them has taken leave.
    pub(crate) fn depart(&mut self, link: &dyn Uplink) {
        self.departed += 1;
        if self.departed == self.attached {
            let _ = link.say(Word::Left);
        }
    }
}

/// A rank's end: sends its part of an exchange, of at most [`LONGEST_PART`] bytes. [`listen`] receives the parts
/// of all.
///
/// # Errors
/// The launcher has gone.
pub(crate) fn send_part(link: &dyn Uplink, part: &[u8]) -> io::Result<()> {
    debug_assert!(part.len() <= LONGEST_PART, "the bootstrap refuses longer parts");
    link.say(Word::Part(part.to_vec()))
}

/// A rank's end: says that it takes part in no further exchange. A launcher that is gone needs no word.
pub(crate) fn send_done(link: &dyn Uplink) {
    let _ = link.say(Word::Done);
}

/// A rank's end: asks to be told who is done, those of before included, or no longer to be told. A launcher that
/// is gone is found by who listens.
pub(crate) fn send_watch(link: &dyn Uplink, on: bool) {
    let _ = link.say(Word::Watch(on));
}

/// What a launcher tells a rank.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LauncherMessage {
    /// The parts of an exchange, by rank.
    Gathered(Vec<Vec<u8>>),
    /// These have ended without taking leave.
    Failed(Vec<Rank>),
    /// These take part in no further exchange.
    Done(Vec<Rank>),
    /// Nothing more: the launcher has gone, for this reason.
    Over(io::ErrorKind),
}

/// A rank's end: calls `on_message` for all that the launcher sends, until it has gone, sends what is malformed,
/// or the link is shut down. Blocks.
pub(crate) fn listen(mut link: &UnixStream, ranks: u32, mut on_message: impl FnMut(LauncherMessage)) {
    let mut first = [0; HEAD];
    let mut gathered = Vec::new();
    while link.read_exact(&mut first).is_ok() {
        let (kind, length) = head(first);
        let most = match kind {
            GATHERED => 1 + (4 + LONGEST_PART) * PARTS_AT_ONCE,
            FAILED | OUT => 4 * RANKS_AT_ONCE,
            _ => return,
        };
        if length > most {
            return;
        }
        let mut body = vec![0; length];
        if link.read_exact(&mut body).is_err() {
            return;
        }
        if kind == GATHERED {
            let Some(more) = parts_of(&body, ranks as usize, &mut gathered) else { return };
            if !more {
                on_message(LauncherMessage::Gathered(std::mem::take(&mut gathered)));
            }
            continue;
        }
        let (words, []) = body.as_chunks::<4>() else { return };
        let named: Vec<Rank> = words.iter().map(|rank| Rank(u32::from_le_bytes(*rank))).collect();
        if named.iter().any(|rank| rank.0 >= ranks) {
            return;
        }
        on_message(if kind == FAILED { LauncherMessage::Failed(named) } else { LauncherMessage::Done(named) });
    }
}

/// Adds the parts of a frame to those of earlier ones; returns whether more follow. `None` unless there are as
/// many as ranks in the end.
fn parts_of(body: &[u8], ranks: usize, gathered: &mut Vec<Vec<u8>>) -> Option<bool> {
    let (more, mut rest) = body.split_first()?;
    while let Some((length, behind)) = rest.split_first_chunk() {
        let (part, behind) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        if gathered.len() == ranks || part.len() > LONGEST_PART {
            return None;
        }
        gathered.push(part.to_vec());
        rest = behind;
    }
    let more = match more {
        0 => false,
        1 => true,
        _ => return None,
    };
    (rest.is_empty() && more == (gathered.len() < ranks)).then_some(more)
}

/// What one end of a link may say to the other: an even first byte says it to a launcher, in two parts of which
/// the second byte is the length of the first; an odd one to a rank of a job whose size is the second byte.
/// Returns whether anything was understood.
///
/// # Panics
/// If a launcher takes anything but what the frames say, or a rank is told of ranks that its job does not have.
#[cfg(feature = "fuzzing")]
pub fn control(data: &[u8]) -> bool {
    let Some(([side, number], bytes)) = data.split_first_chunk::<2>() else { return false };
    // What a socket takes before anybody reads it.
    let bytes = &bytes[..bytes.len().min(100 << 10)];
    let (ours, theirs) = UnixStream::pair().expect("the system has two more descriptors");
    if side & 1 == 1 {
        (&theirs).write_all(bytes).expect("the other end is there");
        drop(theirs);
        let (ranks, mut understood) = (u32::from(*number), false);
        listen(&ours, ranks, |message| {
            understood = true;
            match message {
                LauncherMessage::Gathered(parts) => assert_eq!(parts.len(), ranks as usize),
                LauncherMessage::Failed(named) | LauncherMessage::Done(named) => {
                    assert!(named.iter().all(|rank| rank.0 < ranks), "{named:?}");
                }
                LauncherMessage::Over(_) => unreachable!("whoever listens finds that out"),
            }
        });
        return understood;
    }
    let mut links = ControlLinks::default();
    links.adopt(ours).expect("a new socket can be set so");
    let (first, second) = bytes.split_at(bytes.len().min(usize::from(*number)));
    let mut parts = Vec::new();
    for words in [first, second] {
        // A launcher that has cut the link takes nothing.
        let _ = (&theirs).write_all(words);
        parts.extend(links.poll().into_iter().map(|(_, part)| part));
    }
    let (mut expected, mut left, mut done, mut rest, mut sound) = (Vec::new(), false, false, bytes, true);
    while let Some((first, behind)) = rest.split_first_chunk() {
        let (kind, length) = head(*first);
        sound = match kind {
            PART => length <= LONGEST_PART,
            WATCH => length == 1,
            kind => kind <= DONE && length == 0,
        };
        let Some((body, behind)) = behind.split_at_checked(length).filter(|_| sound) else { break };
        match kind {
            PART => expected.push(body.to_vec()),
            DONE => done = true,
            WATCH => {}
            kind => left = kind == LEFT,
        }
        rest = behind;
    }
    assert!(parts == expected, "{} parts of {}", parts.len(), expected.len());
    assert_eq!((links.has_left(0), links.is_open(0)), (left, sound));
    assert_eq!(links.take_done().len(), usize::from(done || !sound));
    rest.len() < bytes.len()
}

#[cfg(test)]
mod tests;
