//! The lines between a launcher or agent and its ranks in a job with UDP: each rank says once how large its segment is, hears
//! how large everybody's is, and from then on who has died.
//!
//! Sizes are known only when a program attaches, so they can't be in the book that ranks inherit. Deaths are known to launchers
//! at once; without a word from them, a rank on another host is missed only after a long silence.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use am_core::Rank;

/// The launcher's ends of all lines of a host. A line is dropped when its rank has hung up.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    lines: Vec<Option<UnixStream>>,
    /// Whether the ranks know the sizes, which they have to hear first.
    answered: bool,
    /// Who died before that.
    dead: Vec<u32>,
}

impl Lines {
    /// A line for one more rank, and the end that the rank inherits.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn add(&mut self) -> io::Result<OwnedFd> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        self.lines.push(Some(ours));
        Ok(theirs.into())
    }

    /// What to wait for.
    pub(crate) fn ends(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.lines.iter().flatten().map(AsFd::as_fd)
    }

    /// What ranks have said since the last call: their places and the sizes of their segments in bytes.
    pub(crate) fn hear(&mut self) -> Vec<(usize, u64)> {
        let mut heard = Vec::new();
        for (place, slot) in self.lines.iter_mut().enumerate() {
            let Some(line) = slot else { continue };
            // A rank writes its eight bytes at once, so they come at once.
            let mut bytes = [0; 8];
            match line.read(&mut bytes) {
                Ok(8) => heard.push((place, u64::from_le_bytes(bytes))),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                // The rank has gone, or something else sits there.
                Ok(_) | Err(_) => *slot = None,
            }
        }
        heard
    }

    /// Tells every rank the sizes of all segments.
    pub(crate) fn answer(&mut self, segments: &[u64]) {
        self.say(&segments.iter().flat_map(|bytes| bytes.to_le_bytes()).collect::<Vec<u8>>());
        self.answered = true;
        let dead = std::mem::take(&mut self.dead);
        self.bury(&dead);
    }

    /// Tells every rank that these are dead, as soon as it knows the sizes.
    pub(crate) fn bury(&mut self, dead: &[u32]) {
        if self.answered {
            self.say(&dead.iter().flat_map(|rank| rank.to_le_bytes()).collect::<Vec<u8>>());
        } else {
            self.dead.extend(dead);
        }
    }

    fn say(&self, bytes: &[u8]) {
        for mut line in self.lines.iter().flatten() {
            // It fits the socket's buffer. A rank that is stopped must not stop its launcher.
            let _ = line.write_all(bytes);
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

/// A rank's end: says its own size and waits for everybody's. What follows on the line is for [`hear_of_deaths`].
///
/// # Errors
/// The launcher has gone, or what it says makes no sense.
pub(crate) fn exchange(line: &mut UnixStream, bytes: u64, ranks: u32) -> io::Result<Vec<u64>> {
    line.write_all(&bytes.to_le_bytes())?;
    let mut all = vec![0; 8 * ranks as usize];
    line.read_exact(&mut all)?;
    Ok(all.chunks_exact(8).map(|size| u64::from_le_bytes(size.try_into().expect("chunks of eight"))).collect())
}

/// Calls `died` for every rank whose death the launcher tells, until the launcher has gone or the line is shut down. Blocks.
pub(crate) fn hear_of_deaths(mut line: &UnixStream, mut died: impl FnMut(Rank)) {
    let mut rank = [0; 4];
    while line.read_exact(&mut rank).is_ok() {
        died(Rank(u32::from_le_bytes(rank)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn everyone_hears_of_everyone_and_of_deaths() {
        let mut lines = Lines::default();
        let mut theirs: Vec<OwnedFd> = (0..3).map(|_| lines.add().unwrap()).collect();
        drop(theirs.pop());
        let rank = |rank: u64, line: OwnedFd| {
            let mut line = UnixStream::from(line);
            let sizes = exchange(&mut line, 10 + rank, 3).unwrap();
            let mut dead = Vec::new();
            hear_of_deaths(&line, |rank| dead.push(rank));
            (sizes, dead)
        };
        let ranks: Vec<_> =
            (0..).zip(theirs).map(|(number, line)| thread::spawn(move || rank(number, line))).collect();
        let mut segments = Segments::new(3);
        segments.note(2, 0);
        lines.bury(&[2]);
        let sizes = loop {
            for (place, bytes) in lines.hear() {
                segments.note(place as u32, bytes);
            }
            if let Some(sizes) = segments.complete() {
                break sizes;
            }
            thread::yield_now();
        };
        assert_eq!(sizes, [10, 11, 0]);
        assert_eq!(segments.complete(), None);
        lines.answer(&sizes);
        lines.bury(&[1, 0]);
        drop(lines);
        for rank in ranks {
            assert_eq!(rank.join().unwrap(), (vec![10, 11, 0], vec![Rank(2), Rank(1), Rank(0)]));
        }
    }

    #[test]
    fn a_launcher_that_is_gone_is_an_error() {
        let theirs = Lines::default().add().unwrap();
        assert!(exchange(&mut UnixStream::from(theirs), 0, 1).is_err());
    }
}
