//! The links between a launcher or agent and its ranks in a job with UDP: each rank says once how large its segment is, hears
//! how large everybody's is, and from then on whose process has ended without taking leave. What it says last is that it has
//! taken leave itself.
//!
//! Sizes are known only when a program attaches, so they can't be in the manifest that ranks inherit. Deaths are known to launchers
//! at once; without a word from them, a rank on another host is missed only after a long silence.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use am_core::Rank;

/// What a rank says in place of a size when all its endpoints have taken leave.
const LEFT: u64 = u64::MAX;
/// What it says when another endpoint attaches after that.
const BACK: u64 = u64::MAX - 1;

/// The launcher's end of one link.
#[derive(Debug)]
struct ControlLink {
    stream: UnixStream,
    /// What the rank has not taken yet.
    backlog: Vec<u8>,
}

impl ControlLink {
    /// Says as much of the backlog as the rank takes. A rank that is stopped must not stop its launcher.
    fn flush(&mut self) {
        while !self.backlog.is_empty() {
            match self.stream.write(&self.backlog) {
                Ok(taken) => drop(self.backlog.drain(..taken)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The rank has gone; `poll` finds that out.
                Err(_) => self.backlog.clear(),
            }
        }
    }
}

/// The launcher's ends of all links of a host. A link is dropped when its rank has hung up.
#[derive(Debug, Default)]
pub(crate) struct ControlLinks {
    links: Vec<Option<ControlLink>>,
    /// Whether the rank of each place has taken leave.
    left: Vec<bool>,
    /// Whether the ranks know the sizes, which they have to hear first.
    answered: bool,
    /// Who died before that.
    dead: Vec<u32>,
}

impl ControlLinks {
    /// A link for one more rank, and the end that the rank inherits.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn add(&mut self) -> io::Result<OwnedFd> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        self.left.push(false);
        self.links.push(Some(ControlLink { stream: ours, backlog: Vec::new() }));
        Ok(theirs.into())
    }

    /// What to wait for.
    pub(crate) fn ends(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.links.iter().flatten().map(|link| link.stream.as_fd())
    }

    /// Whether a rank has not taken all that was said to it, so that [`poll`](Self::poll) should be called again soon.
    pub(crate) fn is_behind(&self) -> bool {
        self.links.iter().flatten().any(|link| !link.backlog.is_empty())
    }

    /// What ranks have said since the last call: their places and the sizes of their segments in bytes. Says again what a rank
    /// could not take before.
    pub(crate) fn poll(&mut self) -> Vec<(usize, u64)> {
        let mut heard = Vec::new();
        for (place, slot) in self.links.iter_mut().enumerate() {
            let Some(link) = slot else { continue };
            link.flush();
            // A rank writes eight bytes at once, so they come at once.
            let mut bytes = [0; 8];
            loop {
                match link.stream.read(&mut bytes) {
                    Ok(8) if u64::from_le_bytes(bytes) == LEFT => self.left[place] = true,
                    Ok(8) if u64::from_le_bytes(bytes) == BACK => self.left[place] = false,
                    Ok(8) => heard.push((place, u64::from_le_bytes(bytes))),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    // The rank has gone, or something else sits there.
                    Ok(_) | Err(_) => {
                        *slot = None;
                        break;
                    }
                }
            }
        }
        heard
    }

    /// Tells every rank the sizes of all segments.
    pub(crate) fn answer(&mut self, segments: &[u64]) {
        self.broadcast(&segments.iter().flat_map(|bytes| bytes.to_le_bytes()).collect::<Vec<u8>>());
        self.answered = true;
        let dead = std::mem::take(&mut self.dead);
        self.announce_failures(&dead);
    }

    /// Whether the rank of this place has said that it has taken leave. Complete for ranks whose processes have ended, once
    /// [`poll`](Self::poll) was called after that.
    pub(crate) fn has_left(&self, place: usize) -> bool {
        self.left.get(place).is_some_and(|left| *left)
    }

    /// Tells every rank that these have ended without taking leave, as soon as it knows the sizes.
    pub(crate) fn announce_failures(&mut self, dead: &[u32]) {
        if self.answered {
            self.broadcast(&dead.iter().flat_map(|rank| rank.to_le_bytes()).collect::<Vec<u8>>());
        } else {
            self.dead.extend(dead);
        }
    }

    fn broadcast(&mut self, bytes: &[u8]) {
        for link in self.links.iter_mut().flatten() {
            link.backlog.extend_from_slice(bytes);
            link.flush();
        }
    }
}

/// The sizes of the segments of a job's ranks as they become known.
#[derive(Debug)]
pub(crate) struct Segments {
    sizes: Vec<Option<u64>>,
    missing: usize,
    told: bool,
}

impl Segments {
    pub(crate) fn new(ranks: u32) -> Self {
        Self { sizes: vec![None; ranks as usize], missing: ranks as usize, told: false }
    }

    /// Notes a rank's size; only its first counts, and only until the others have been told.
    pub(crate) fn note(&mut self, rank: u32, bytes: u64) {
        if let Some(slot @ None) = self.sizes.get_mut(rank as usize) {
            *slot = Some(bytes);
            self.missing -= 1;
        }
    }

    /// The sizes, once, when all are known.
    pub(crate) fn complete(&mut self) -> Option<Vec<u64>> {
        if self.missing > 0 || std::mem::replace(&mut self.told, true) {
            return None;
        }
        Some(self.sizes.iter().map(|bytes| bytes.unwrap_or(0)).collect())
    }
}

/// A rank's end: says its own size and waits for everybody's. What follows on the link is for [`listen_for_failures`].
///
/// # Errors
/// The launcher has gone, or what it says makes no sense.
pub(crate) fn exchange_segment_sizes(link: &mut UnixStream, bytes: u64, ranks: u32) -> io::Result<Vec<u64>> {
    link.write_all(&bytes.to_le_bytes())?;
    let mut all = vec![0; 8 * ranks as usize];
    link.read_exact(&mut all)?;
    Ok(all.chunks_exact(8).map(|size| u64::from_le_bytes(size.try_into().expect("chunks of eight"))).collect())
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
            let _ = link.write_all(&BACK.to_le_bytes());
        }
        self.attached += 1;
    }

    /// One of them has taken leave.
    pub(crate) fn depart(&mut self, mut link: &UnixStream) {
        self.departed += 1;
        if self.departed == self.attached {
            let _ = link.write_all(&LEFT.to_le_bytes());
        }
    }
}

/// Calls `died` for every rank whose death the launcher tells, until the launcher has gone or the link is shut down. Blocks.
pub(crate) fn listen_for_failures(mut link: &UnixStream, mut died: impl FnMut(Rank)) {
    let mut rank = [0; 4];
    while link.read_exact(&mut rank).is_ok() {
        died(Rank(u32::from_le_bytes(rank)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn everyone_hears_of_everyone_and_of_deaths() {
        let mut links = ControlLinks::default();
        let mut theirs: Vec<OwnedFd> = (0..3).map(|_| links.add().unwrap()).collect();
        drop(theirs.pop());
        let rank = |rank: u64, link: OwnedFd| {
            let mut link = UnixStream::from(link);
            let sizes = exchange_segment_sizes(&mut link, 10 + rank, 3).unwrap();
            let mut dead = Vec::new();
            listen_for_failures(&link, |rank| dead.push(rank));
            (sizes, dead)
        };
        let ranks: Vec<_> =
            (0..).zip(theirs).map(|(number, link)| thread::spawn(move || rank(number, link))).collect();
        let mut segments = Segments::new(3);
        segments.note(2, 0);
        links.announce_failures(&[2]);
        let sizes = loop {
            for (place, bytes) in links.poll() {
                segments.note(place as u32, bytes);
            }
            if let Some(sizes) = segments.complete() {
                break sizes;
            }
            thread::yield_now();
        };
        assert_eq!(sizes, [10, 11, 0]);
        assert_eq!(segments.complete(), None);
        links.answer(&sizes);
        links.announce_failures(&[1, 0]);
        drop(links);
        for rank in ranks {
            assert_eq!(rank.join().unwrap(), (vec![10, 11, 0], vec![Rank(2), Rank(1), Rank(0)]));
        }
    }

    #[test]
    fn who_has_left_is_known_when_the_line_is_cut() {
        let mut links = ControlLinks::default();
        let theirs: Vec<UnixStream> = (0..2).map(|_| links.add().unwrap().into()).collect();
        for mut link in &theirs {
            link.write_all(&77u64.to_le_bytes()).unwrap();
        }
        let mut presence = Presence::default();
        presence.attach(&theirs[1]);
        presence.depart(&theirs[1]);
        drop(theirs);
        assert_eq!(links.poll(), [(0, 77), (1, 77)]);
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
        links.answer(&[0]);
        let mut said = 0;
        while !links.is_behind() {
            links.announce_failures(&[said]);
            said += 1;
        }
        let hear = thread::spawn(move || {
            let mut link = UnixStream::from(theirs);
            link.read_exact(&mut [0; 8]).unwrap();
            let mut heard = 0;
            listen_for_failures(&link, |rank| {
                assert_eq!(rank, Rank(heard));
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
    fn a_launcher_that_is_gone_is_an_error() {
        let theirs = ControlLinks::default().add().unwrap();
        assert!(exchange_segment_sizes(&mut UnixStream::from(theirs), 0, 1).is_err());
    }
}
