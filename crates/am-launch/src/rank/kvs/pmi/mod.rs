//! PMI's wire protocols, over the socket `PMI_FD`: version 1.1, which the servers of MPICH, Intel MPI and Slurm's
//! plugin `pmi2` speak ([`lines`]), and version 2.0, which those of MPICH and Slurm speak ([`frames`]). Both begin
//! with a line each way that agrees on one. ("PMI v2 and Slurm", slurm.schedmd.com/mpi_guide.html; MPICH's
//! `src/pmi/maint/pmi-1.1.txt` and `pmi-2.0.txt`.)

mod frames;
mod lines;
#[cfg(test)]
mod tests;

use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use zeroize::Zeroizing;

use crate::descriptors::{FileKind, claim};

/// Bytes of the longest answer that is read.
const LONGEST: usize = 4096;

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// 1.1.
    One,
    /// 2.0.
    Two,
}

impl Version {
    const fn other(self) -> Self {
        match self {
            Self::One => Self::Two,
            Self::Two => Self::One,
        }
    }

    /// Its number and the one behind the dot.
    const fn numbers(self) -> (&'static str, &'static str) {
        match self {
            Self::One => ("1", "1"),
            Self::Two => ("2", "0"),
        }
    }
}

/// A server of PMI: the number of the socket to it, and the version that it is asked for first. It is asked for
/// the other one if it refuses that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PmiServer {
    pub(crate) socket: u32,
    pub(crate) first: Version,
}

/// A rank, as its server knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member<'a> {
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
    pub(crate) job: &'a str,
}

/// Has every rank know the value that rank 0 gives. Takes over the socket, and takes leave of the server.
///
/// # Errors
/// Those of the socket, and what the server says.
pub(super) fn share(
    server: PmiServer,
    me: Member<'_>,
    value: Option<&str>,
    limit: Duration,
) -> io::Result<Zeroizing<String>> {
    let socket = UnixStream::from(claim(server.socket, FileKind::Server)?);
    // The barrier waits for all ranks.
    socket.set_read_timeout(Some(limit.max(Duration::from_millis(1))))?;
    talk(socket, server.first, me, value)
}

fn talk(
    stream: impl Read + Write,
    first: Version,
    me: Member<'_>,
    value: Option<&str>,
) -> io::Result<Zeroizing<String>> {
    let mut server = Server(BufReader::new(stream));
    match server.agree(first)? {
        Version::One => lines::exchange(&mut server, value),
        Version::Two => frames::exchange(&mut server, me, value),
    }
}

/// The other end of the socket.
struct Server<S>(BufReader<S>);

impl<S: Read + Write> Server<S> {
    /// The version that both sides speak.
    fn agree(&mut self, first: Version) -> io::Result<Version> {
        for version in [first, first.other()] {
            let (number, behind) = version.numbers();
            self.send(&format!("cmd=init pmi_version={number} pmi_subversion={behind}\n"))?;
            let line = self.line("response_to_init")?;
            let spoken = field(&line, "pmi_version").unwrap_or(number);
            let known = [Version::One, Version::Two].into_iter().find(|known| known.numbers().0 == spoken);
            match (field(&line, "rc").unwrap_or("0"), known) {
                ("0", Some(known)) => return Ok(known),
                ("0", None) => return Err(wrong("speaks a version that is neither 1 nor 2")),
                // It says what else it speaks.
                (_, Some(other)) if version == first && other != first => {}
                (code, _) => return Err(refusal("init", code, field(&line, "msg"))),
            }
        }
        Err(wrong("refuses the version that it offers"))
    }

    fn send(&mut self, text: &str) -> io::Result<()> {
        let stream = self.0.get_mut();
        stream.write_all(text.as_bytes())?;
        stream.flush()
    }

    /// The next answer, a line, which has to be of this kind.
    fn line(&mut self, kind: &str) -> io::Result<Zeroizing<String>> {
        let mut line = Zeroizing::new(String::with_capacity(LONGEST));
        let read = (&mut self.0).take(LONGEST as u64).read_line(&mut line).map_err(silence)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if !line.ends_with('\n') {
            return Err(wrong("gives an answer that does not end"));
        }
        if field(&line, "cmd") != Some(kind) {
            return Err(wrong("gives an answer of another kind"));
        }
        Ok(line)
    }

    /// The next bytes.
    fn bytes(&mut self, place: &mut [u8]) -> io::Result<()> {
        self.0.read_exact(place).map_err(silence)
    }
}

/// What it means that the server says nothing.
fn silence(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::new(io::ErrorKind::TimedOut, "not all ranks take part"),
        _ => error,
    }
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the server {what}"))
}

fn refusal(command: &str, code: &str, reason: Option<&str>) -> io::Error {
    let reason = reason.unwrap_or("for no reason that it tells");
    io::Error::other(format!("the server refuses {command} with {code}: {reason}"))
}

/// The value of a key in a line.
fn field<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

/// A conversation of which the server's part is these bytes, behind one that chooses the version that is asked for
/// first, and whether the rank has a value to give: whether it hears one.
///
/// # Panics
/// If the value is none of what the server has said.
#[cfg(any(test, feature = "fuzzing"))]
pub fn conversation(data: &[u8]) -> bool {
    /// Reads what there is, and writes nowhere.
    struct Script<'a>(&'a [u8]);

    impl Read for Script<'_> {
        fn read(&mut self, place: &mut [u8]) -> io::Result<usize> {
            self.0.read(place)
        }
    }

    impl Write for Script<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let Some((first, said)) = data.split_first() else { return false };
    let (version, gives) = (first & 1, first & 4 != 0);
    let first = if version == 1 { Version::One } else { Version::Two };
    let me = Member { rank: 1, ranks: 2, job: "7.0" };
    let value = gives.then_some("told");
    match talk(Script(said), first, me, value) {
        Ok(heard) => {
            // A semicolon is written twice.
            let written = heard.replace(';', ";;");
            let said =
                |text: &str| text.is_empty() || said.windows(text.len()).any(|part| part == text.as_bytes());
            assert!(said(&heard) || said(&written), "{heard:?} was not said");
            assert!(heard.len() < LONGEST);
            true
        }
        Err(_) => false,
    }
}
