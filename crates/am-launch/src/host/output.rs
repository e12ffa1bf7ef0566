//! The ranks' output on its way through the launcher: whole lines, each with its rank in front, stream by stream.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};

use am_core::Rank;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{pipe2, write};

/// Longer lines are passed on in pieces of this many bytes, so that a rank that never ends its line takes bounded
/// memory.
const LONGEST_LINE: usize = 1 << 20;
/// How much is read from one rank before the next gets its turn: as much as a pipe holds, so that one read empties
/// it.
const READ_BYTES: usize = 64 << 10;

/// Which of the launcher's streams something belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Out,
    Err,
}

/// Whether somebody may still read this process's standard output: whether it is not a pipe or socket without a
/// reader.
pub(crate) fn is_read() -> bool {
    let out = io::stdout();
    let mut ends = [PollFd::new(out.as_fd(), PollFlags::empty())];
    let _ = poll(&mut ends, PollTimeout::ZERO);
    !ends[0].revents().unwrap_or(PollFlags::empty()).contains(PollFlags::POLLERR)
}

/// The thread that merges output. A thread of its own, because a reader downstream may block it for any time, and
/// the launcher has to keep hearing signals meanwhile.
#[derive(Debug)]
pub(crate) struct Merger {
    thread: JoinHandle<()>,
    /// Held until the ranks are gone.
    stop: Option<OwnedFd>,
    finished: OwnedFd,
    writing: Arc<AtomicBool>,
}

impl Merger {
    /// Starts merging the given pipes.
    pub(crate) fn start(sources: Vec<Source>) -> io::Result<Self> {
        let (stopped, stop) = pipe2(OFlag::O_CLOEXEC)?;
        let (finished, finish) = pipe2(OFlag::O_CLOEXEC)?;
        let writing = Arc::new(AtomicBool::new(false));
        let busy = Arc::clone(&writing);
        let thread = thread::Builder::new().name("am-output".into()).spawn(move || {
            // Dropped at the end, which hangs `finished` up.
            let _finish = finish;
            merge(sources, &stopped, &busy);
        })?;
        Ok(Self { thread, stop: Some(stop), finished, writing })
    }

    /// The ranks are gone: pass on what they left in their pipes, then finish, whoever else holds the pipes open.
    pub(crate) fn drain(&mut self) {
        self.stop = None;
    }

    /// Hangs up when everything has been passed on.
    pub(crate) fn finished(&self) -> BorrowedFd<'_> {
        self.finished.as_fd()
    }

    /// Whether everything has been passed on.
    pub(crate) fn is_finished(&self) -> bool {
        let mut ends = [PollFd::new(self.finished.as_fd(), PollFlags::POLLIN)];
        matches!(poll(&mut ends, PollTimeout::ZERO), Ok(1))
    }

    /// Whether something is just being passed on, to a reader that may take its time.
    pub(crate) fn is_writing(&self) -> bool {
        // Relaxed: who asks asks again.
        self.writing.load(Relaxed)
    }

    /// Waits for the end of the thread: not for long after the hang-up.
    pub(crate) fn join(self) {
        // The thread panics only over a bug of its own, which it has reported by then.
        let _ = self.thread.join();
    }
}

/// One rank's or host's pipe and the beginning of a line that came through it.
pub(crate) struct Source {
    stream: Stream,
    pipe: File,
    prefix: Vec<u8>,
    partial: Vec<u8>,
}

impl Source {
    /// The pipe of a rank, whose lines get its number.
    pub(crate) fn of_rank((rank, stream, pipe): (Rank, Stream, OwnedFd)) -> Self {
        Self { stream, pipe: pipe.into(), prefix: format!("[{rank}] ").into_bytes(), partial: Vec::new() }
    }

    /// The pipe of a host, whose lines stay as they are; `read` has come through it already.
    pub(crate) fn of_host(stream: Stream, pipe: OwnedFd, read: Vec<u8>) -> Self {
        Self { stream, pipe: pipe.into(), prefix: Vec::new(), partial: read }
    }

    /// Reads once and moves whole lines into `lines`; false at the pipe's end.
    fn read(&mut self, buffer: &mut [u8], lines: &mut Vec<u8>) -> bool {
        match self.pipe.read(buffer) {
            Ok(length) if length > 0 => {
                self.take(&buffer[..length], lines);
                true
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => true,
            Ok(_) | Err(_) => {
                self.finish_line(lines);
                false
            }
        }
    }

    /// Moves what has arrived into `lines`; an unfinished line stays behind.
    fn take(&mut self, mut arrived: &[u8], lines: &mut Vec<u8>) {
        while let Some(end) = arrived.iter().position(|&byte| byte == b'\n') {
            let (line, rest) = arrived.split_at(end + 1);
            lines.extend_from_slice(&self.prefix);
            lines.append(&mut self.partial);
            lines.extend_from_slice(line);
            arrived = rest;
        }
        self.partial.extend_from_slice(arrived);
        if self.partial.len() >= LONGEST_LINE {
            self.finish_line(lines);
        }
    }

    /// Ends an unfinished line.
    fn finish_line(&mut self, lines: &mut Vec<u8>) {
        if !self.partial.is_empty() {
            lines.extend_from_slice(&self.prefix);
            lines.append(&mut self.partial);
            lines.push(b'\n');
        }
    }
}

/// Passes lines on until every pipe has ended, or until `stopped` hangs up and each pipe was emptied once more.
fn merge(mut sources: Vec<Source>, stopped: &OwnedFd, busy: &AtomicBool) {
    let mut buffer = vec![0; READ_BYTES];
    let mut lines = Vec::new();
    let mut last_round = false;
    while !sources.is_empty() {
        let mut ends: Vec<_> = sources.iter().map(|source| watch(&source.pipe)).collect();
        ends.push(watch(stopped));
        match poll(&mut ends, PollTimeout::NONE) {
            Ok(_) => {}
            Err(nix::Error::EINTR) => continue,
            Err(_) => break,
        }
        let mut ready: Vec<bool> = ends.iter().map(|end| end.any().unwrap_or(true)).collect();
        let stop = ready.pop().unwrap_or(true);

        let mut ready = ready.into_iter();
        let mut unread = None;
        sources.retain_mut(|source| {
            if !ready.next().unwrap_or(false) || unread == Some(source.stream) {
                return true;
            }
            let goes_on = source.read(&mut buffer, &mut lines);
            busy.store(true, Relaxed);
            if pass_on(source.stream, &lines).is_err() {
                unread = Some(source.stream);
            }
            busy.store(false, Relaxed);
            lines.clear();
            goes_on
        });
        // Nobody reads the stream any more: closing its pipes lets the ranks find that out as they would without a
        // launcher in between.
        sources.retain(|source| unread != Some(source.stream));

        if last_round {
            break;
        }
        // What the ranks wrote last may have come after the poll above.
        last_round = stop;
    }
    for mut source in sources {
        source.finish_line(&mut lines);
        let _ = pass_on(source.stream, &lines);
        lines.clear();
    }
}

fn watch(end: &impl AsFd) -> PollFd<'_> {
    PollFd::new(end.as_fd(), PollFlags::POLLIN)
}

/// Writes everything to one of the launcher's own streams, past the standard library's buffers.
fn pass_on(stream: Stream, mut bytes: &[u8]) -> nix::Result<()> {
    let (out, err) = (io::stdout(), io::stderr());
    let target = match stream {
        Stream::Out => out.as_fd(),
        Stream::Err => err.as_fd(),
    };
    while !bytes.is_empty() {
        match write(target, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(nix::Error::EINTR) => {}
            // Someone upstream made the stream non-blocking; waiting is still right for a launcher.
            Err(nix::Error::EAGAIN) => {
                let _ = poll(&mut [PollFd::new(target, PollFlags::POLLOUT)], PollTimeout::NONE);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> Source {
        let (read, _write) = pipe2(OFlag::O_CLOEXEC).unwrap();
        Source::of_rank((Rank(3), Stream::Out, read))
    }

    #[test]
    fn lines_leave_whole_and_prefixed() {
        let (mut source, mut lines) = (source(), Vec::new());
        source.take(b"one\n\ntw", &mut lines);
        assert_eq!(lines, b"[3] one\n[3] \n");
        lines.clear();
        source.take(b"o\xff\0", &mut lines);
        assert_eq!(lines, b"");
        source.take(b"\r\nthree", &mut lines);
        assert_eq!(lines, b"[3] two\xff\0\r\n");
        lines.clear();
        source.finish_line(&mut lines);
        assert_eq!(lines, b"[3] three\n");
        lines.clear();
        source.finish_line(&mut lines);
        assert_eq!(lines, b"");
    }

    #[test]
    fn an_endless_line_is_cut() {
        let (mut source, mut lines) = (source(), Vec::new());
        let mut given = 0;
        while lines.is_empty() {
            source.take(&[b'x'; READ_BYTES], &mut lines);
            given += READ_BYTES;
        }
        assert_eq!(given, LONGEST_LINE);
        assert_eq!(lines.len(), LONGEST_LINE + "[3] \n".len());
        assert_eq!(source.partial, b"");
    }
}
