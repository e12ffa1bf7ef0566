//! The lines between a launcher or agent and its ranks in a job with UDP: each rank says once how large its segment is, and
//! hears how large everybody's is.
//!
//! That is known only when a program attaches, so it can't be in the book that ranks inherit.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// The launcher's ends of all lines of a host. A line is dropped when it has served.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    lines: Vec<Option<UnixStream>>,
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

    /// Tells every rank the sizes of all segments, and hangs up.
    pub(crate) fn answer(&mut self, segments: &[u64]) {
        let bytes: Vec<u8> = segments.iter().flat_map(|bytes| bytes.to_le_bytes()).collect();
        for line in self.lines.drain(..).flatten() {
            // It fits the socket's buffer. A rank that is stopped must not stop its launcher.
            let _ = (&line).write_all(&bytes);
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

/// A rank's end: says its own size and waits for everybody's.
///
/// # Errors
/// The launcher has gone, or what it says makes no sense.
pub(crate) fn exchange(line: OwnedFd, bytes: u64, ranks: u32) -> io::Result<Vec<u64>> {
    let mut line = UnixStream::from(line);
    line.write_all(&bytes.to_le_bytes())?;
    let mut all = vec![0; 8 * ranks as usize];
    line.read_exact(&mut all)?;
    Ok(all.chunks_exact(8).map(|size| u64::from_le_bytes(size.try_into().expect("chunks of eight"))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn everyone_hears_of_everyone_but_the_dead() {
        let mut lines = Lines::default();
        let mut theirs: Vec<OwnedFd> = (0..3).map(|_| lines.add().unwrap()).collect();
        drop(theirs.pop());
        let ranks: Vec<_> = theirs
            .into_iter()
            .enumerate()
            .map(|(rank, line)| thread::spawn(move || exchange(line, 10 + rank as u64, 3)))
            .collect();
        let mut segments = Segments::new(3);
        segments.note(2, 0);
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
        ranks.into_iter().for_each(|rank| assert_eq!(rank.join().unwrap().unwrap(), [10, 11, 0]));
    }

    #[test]
    fn a_launcher_that_is_gone_is_an_error() {
        let theirs = Lines::default().add().unwrap();
        assert!(exchange(theirs, 0, 1).is_err());
    }
}
