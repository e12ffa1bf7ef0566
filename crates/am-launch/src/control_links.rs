//! The links between a launcher or agent and its ranks. Ranks exchange bytes over them ([`Allgather`]), which can't be
//! in the manifest that they inherit because they are known only when a program attaches, and learn whose process has
//! ended without taking leave. A rank says when its endpoints have taken leave.
//!
//! Deaths are known to launchers at once; without a word from them, a rank on another host is missed only after a
//! long silence.
//!
//! Both directions carry frames: a kind, the length of what follows as a little-endian word of 32 bits, and that.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use am_core::Rank;

/// From a rank: its part of an exchange.
const PART: u8 = 0;
/// From a rank: all its endpoints have taken leave.
const LEFT: u8 = 1;
/// From a rank: another endpoint has attached after that.
const BACK: u8 = 2;
/// To a rank: everybody's parts, by rank, each with its length before it.
const GATHERED: u8 = 3;
/// To a rank: the numbers of ranks that have ended without taking leave.
const FAILED: u8 = 4;

/// Bytes before what a frame carries.
const HEAD: usize = 5;
/// The longest part of an exchange.
pub(crate) const LONGEST_PART: usize = 64 << 10;

fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("a frame has less than 4 GiB");
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
}

impl ControlLink {
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

    /// Takes in what has come; returns whether the rank is still there.
    fn read(&mut self) -> bool {
        let mut bytes = [0; 4096];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return false,
                Ok(length) => self.arrived.extend_from_slice(&bytes[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
            if self.arrived.len() > HEAD + LONGEST_PART {
                return true;
            }
        }
    }

    /// The next whole frame; an error if what has come is none of a rank.
    fn next(&mut self) -> Result<Option<(u8, Vec<u8>)>, ()> {
        let Some(first) = self.arrived.first_chunk() else { return Ok(None) };
        let (kind, length) = head(*first);
        if kind > BACK || length > LONGEST_PART {
            return Err(());
        }
        if self.arrived.len() < HEAD + length {
            return Ok(None);
        }
        let frame = self.arrived.drain(..HEAD + length).skip(HEAD).collect();
        Ok(Some((kind, frame)))
    }
}

/// The launcher's ends of all links of a host. A link is dropped when its rank has hung up.
#[derive(Debug, Default)]
pub(crate) struct ControlLinks {
    links: Vec<Option<ControlLink>>,
    /// Whether the rank of each place has taken leave.
    left: Vec<bool>,
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
        self.links.push(Some(ControlLink { stream, arrived, backlog, taken: 0 }));
        Ok(())
    }

    /// What to wait for.
    pub(crate) fn ends(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.links.iter().flatten().map(|link| link.stream.as_fd())
    }

    /// Whether the rank of this place has not hung up.
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
            while sound {
                let there = link.read();
                sound = loop {
                    match link.next() {
                        Ok(Some((PART, part))) => parts.push((place, part)),
                        Ok(Some((kind, _))) => self.left[place] = kind == LEFT,
                        Ok(None) => break there,
                        Err(()) => break false,
                    }
                };
                // A whole frame may have filled the buffer.
                if sound && link.arrived.len() <= HEAD + LONGEST_PART {
                    break;
                }
            }
            // The rank has gone, or something else sits there.
            if !sound {
                *slot = None;
            }
        }
        parts
    }

    /// Tells every rank the parts of all.
    pub(crate) fn answer(&mut self, parts: &[Vec<u8>]) {
        let all = parts.iter().flat_map(|part| [&(part.len() as u32).to_le_bytes()[..], part].concat());
        self.broadcast(GATHERED, &all.collect::<Vec<u8>>());
    }

    /// Whether the rank of this place has said that it has taken leave. Complete for ranks whose processes have
    /// ended, once [`poll`](Self::poll) was called after that.
    pub(crate) fn has_left(&self, place: usize) -> bool {
        self.left.get(place).is_some_and(|left| *left)
    }

    /// Tells every rank that these have ended without taking leave.
    pub(crate) fn announce_failures(&mut self, dead: &[u32]) {
        if !dead.is_empty() {
            self.broadcast(FAILED, &dead.iter().flat_map(|rank| rank.to_le_bytes()).collect::<Vec<u8>>());
        }
    }

    fn broadcast(&mut self, kind: u8, body: &[u8]) {
        let frame: Arc<[u8]> = frame(kind, body).into();
        for link in self.links.iter_mut().flatten() {
            link.backlog.push_back(Arc::clone(&frame));
            link.flush();
        }
    }
}

/// One exchange after another among the ranks of a job: the parts as they become known.
#[derive(Debug)]
pub(crate) struct Allgather {
    parts: Vec<Option<Vec<u8>>>,
    gone: Vec<bool>,
}

impl Allgather {
    pub(crate) fn new(ranks: u32) -> Self {
        Self { parts: vec![None; ranks as usize], gone: vec![false; ranks as usize] }
    }

    /// Notes a rank's part; only its first of an exchange counts.
    pub(crate) fn note(&mut self, rank: u32, part: Vec<u8>) {
        if let Some(slot @ None) = self.parts.get_mut(rank as usize) {
            *slot = Some(part);
        }
    }

    /// Nobody has to wait for a rank that has ended: its parts are empty from now on. That it is lost shows later.
    pub(crate) fn lose(&mut self, rank: u32) {
        if let Some(gone) = self.gone.get_mut(rank as usize) {
            *gone = true;
        }
    }

    /// The parts, once, when those of all ranks that live are known; then the next exchange begins.
    pub(crate) fn complete(&mut self) -> Option<Vec<Vec<u8>>> {
        let begun = self.parts.iter().any(Option::is_some);
        if !begun || self.parts.iter().zip(&self.gone).any(|(part, gone)| part.is_none() && !gone) {
            return None;
        }
        Some(self.parts.iter_mut().map(|part| part.take().unwrap_or_default()).collect())
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
    pub(crate) fn attach(&mut self, mut link: &UnixStream) {
        if self.attached > 0 && self.attached == self.departed {
            let _ = link.write_all(&frame(BACK, &[]));
        }
        self.attached += 1;
    }

    /// One of them has taken leave.
    pub(crate) fn depart(&mut self, mut link: &UnixStream) {
        self.departed += 1;
        if self.departed == self.attached {
            let _ = link.write_all(&frame(LEFT, &[]));
        }
    }
}

/// A rank's end: sends its part of an exchange, of at most [`LONGEST_PART`] bytes. [`listen`] hears the parts of
/// all.
///
/// # Errors
/// The launcher has gone.
pub(crate) fn send_part(mut link: &UnixStream, part: &[u8]) -> io::Result<()> {
    debug_assert!(part.len() <= LONGEST_PART, "the bootstrap refuses longer parts");
    link.write_all(&frame(PART, part))
}

/// What a launcher tells a rank.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// The parts of an exchange, by rank.
    Gathered(Vec<Vec<u8>>),
    /// These have ended without taking leave.
    Failed(Vec<Rank>),
}

/// A rank's end: calls `told` for everything that the launcher says, until it has gone, says what makes no sense,
/// or the link is shut down. Blocks.
pub(crate) fn listen(mut link: &UnixStream, ranks: u32, mut told: impl FnMut(Told)) {
    let mut first = [0; HEAD];
    while link.read_exact(&mut first).is_ok() {
        let (kind, length) = head(first);
        if length > (LONGEST_PART + 4) * ranks as usize {
            return;
        }
        let mut body = vec![0; length];
        if link.read_exact(&mut body).is_err() {
            return;
        }
        let (words, _) = body.as_chunks::<4>();
        match kind {
            GATHERED => match split(&body, ranks) {
                Some(parts) => told(Told::Gathered(parts)),
                None => return,
            },
            FAILED => {
                let failed: Vec<Rank> = words.iter().map(|rank| Rank(u32::from_le_bytes(*rank))).collect();
                if failed.iter().any(|rank| rank.0 >= ranks) {
                    return;
                }
                told(Told::Failed(failed));
            }
            _ => return,
        }
    }
}

/// The parts of so many ranks, each behind its length.
fn split(mut body: &[u8], ranks: u32) -> Option<Vec<Vec<u8>>> {
    let mut parts = Vec::with_capacity(ranks as usize);
    while let Some((length, rest)) = body.split_first_chunk() {
        let (part, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        parts.push(part.to_vec());
        body = rest;
    }
    Some(parts).filter(|parts| body.is_empty() && parts.len() == ranks as usize)
}

/// What one end of a link may say to the other: an even first byte says it to a launcher, in two parts of which the second byte is
/// the length of the first; an odd one to a rank of a job whose size is the second byte. Returns whether anything was understood.
///
/// # Panics
/// If a launcher takes anything but what the frames say, or a rank hears of ranks that its job does not have.
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
        listen(&ours, ranks, |told| {
            understood = true;
            match told {
                Told::Gathered(parts) => assert_eq!(parts.len(), ranks as usize),
                Told::Failed(failed) => assert!(failed.iter().all(|rank| rank.0 < ranks), "{failed:?}"),
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
    let (mut expected, mut left, mut rest, mut sound) = (Vec::new(), false, bytes, true);
    while let Some((first, behind)) = rest.split_first_chunk() {
        let (kind, length) = head(*first);
        sound = kind <= BACK && length <= LONGEST_PART;
        let Some((body, behind)) = behind.split_at_checked(length).filter(|_| sound) else { break };
        match kind {
            PART => expected.push(body.to_vec()),
            kind => left = kind == LEFT,
        }
        rest = behind;
    }
    assert!(parts == expected, "{} parts of {}", parts.len(), expected.len());
    assert_eq!((links.has_left(0), links.is_open(0)), (left, sound));
    rest.len() < bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn everyone_hears_everyone_and_of_deaths() {
        let mut links = ControlLinks::default();
        let mut theirs: Vec<OwnedFd> = (0..3).map(|_| links.add().unwrap()).collect();
        drop(theirs.pop());
        // Two exchanges, of which the second has the longest parts.
        let rank = |rank: u8, link: OwnedFd| {
            let link = UnixStream::from(link);
            send_part(&link, &[10 + rank]).unwrap();
            let mut heard = Vec::new();
            listen(&link, 3, |told| {
                if heard.is_empty() {
                    send_part(&link, &vec![rank; LONGEST_PART]).unwrap();
                }
                heard.push(told);
            });
            heard
        };
        let ranks: Vec<_> =
            (0..).zip(theirs).map(|(number, link)| thread::spawn(move || rank(number, link))).collect();
        let mut exchange = Allgather::new(3);
        exchange.lose(2);
        assert_eq!(exchange.complete(), None, "it has not begun");
        let expected =
            [vec![vec![10], vec![11], vec![]], vec![vec![0; LONGEST_PART], vec![1; LONGEST_PART], vec![]]];
        for expected in &expected {
            let parts = loop {
                links.poll().into_iter().for_each(|(place, part)| exchange.note(place as u32, part));
                if let Some(parts) = exchange.complete() {
                    break parts;
                }
                thread::yield_now();
            };
            assert!(parts == *expected);
            links.answer(&parts);
        }
        links.announce_failures(&[2]);
        links.announce_failures(&[]);
        links.announce_failures(&[1, 0]);
        while links.is_behind() {
            links.poll();
        }
        drop(links);
        let [first, second] = expected.map(Told::Gathered);
        let told = [first, second, Told::Failed(vec![Rank(2)]), Told::Failed(vec![Rank(1), Rank(0)])];
        for rank in ranks {
            assert!(rank.join().unwrap() == told);
        }
    }

    #[test]
    fn who_has_left_is_known_when_the_link_is_cut() {
        let mut links = ControlLinks::default();
        let theirs: Vec<UnixStream> = (0..2).map(|_| links.add().unwrap().into()).collect();
        for link in &theirs {
            send_part(link, &[77]).unwrap();
        }
        let mut presence = Presence::default();
        presence.attach(&theirs[1]);
        presence.depart(&theirs[1]);
        drop(theirs);
        assert_eq!(links.poll(), [(0, vec![77]), (1, vec![77])]);
        assert_eq!([0, 1, 2].map(|place| links.has_left(place)), [false, true, false]);
        assert_eq!(links.ends().count(), 0);
    }

    #[test]
    fn a_rank_has_left_when_its_last_endpoint_has() {
        let mut links = ControlLinks::default();
        let link: UnixStream = links.add().unwrap().into();
        let (mut presence, mut seen) = (Presence::default(), Vec::new());
        // One endpoint comes and goes before the other attaches.
        for step in [Presence::attach, Presence::depart, Presence::attach, Presence::depart] {
            step(&mut presence, &link);
            assert!(links.poll().is_empty());
            seen.push(links.has_left(0));
        }
        assert_eq!(seen, [false, true, false, true]);
        // Two of them at the same time.
        presence.attach(&link);
        presence.attach(&link);
        presence.depart(&link);
        assert!(links.poll().is_empty() && !links.has_left(0));
    }

    #[test]
    fn a_rank_that_does_not_listen_misses_nothing() {
        let mut links = ControlLinks::default();
        let theirs = links.add().unwrap();
        let mut said = 0;
        while !links.is_behind() {
            links.announce_failures(&[said]);
            said += 1;
        }
        let hear = thread::spawn(move || {
            let mut heard = 0;
            listen(&UnixStream::from(theirs), u32::MAX, |told| {
                assert_eq!(told, Told::Failed(vec![Rank(heard)]));
                heard += 1;
            });
            heard
        });
        while links.is_behind() {
            assert!(links.poll().is_empty());
        }
        drop(links);
        assert_eq!(hear.join().unwrap(), said);
    }

    #[test]
    fn what_no_rank_says_cuts_the_link() {
        for words in [[9, 0, 0, 0, 0], [PART, 0xff, 0xff, 0xff, 0]] {
            let mut links = ControlLinks::default();
            let mut link: UnixStream = links.add().unwrap().into();
            link.write_all(&words).unwrap();
            assert!(links.poll().is_empty());
            assert_eq!(links.ends().count(), 0);
        }
        let (ours, theirs) = UnixStream::pair().unwrap();
        (&ours).write_all(&frame(GATHERED, &[1, 0, 0, 0])).unwrap();
        listen(&theirs, 1, |told| panic!("{told:?}"));
    }

    #[test]
    fn a_launcher_that_is_gone_is_an_error() {
        let theirs = UnixStream::from(ControlLinks::default().add().unwrap());
        assert!(send_part(&theirs, &[1]).is_err());
        listen(&theirs, 1, |told| panic!("{told:?}"));
    }
}
