//! The descriptors that a launcher leaves to a rank: which file each is, and the claim of one by the process that
//! inherited it.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use nix::fcntl::{FcntlArg, FdFlag, OFlag, SealFlag, fcntl};
use nix::sys::socket::sockopt::SockType;
use nix::sys::socket::{SockType as NixSockType, UnixAddr, getsockname, getsockopt};
use nix::sys::stat::{SFlag, fstat};

/// A descriptor that a launcher leaves to a rank: its number, and which file it is, so that no other one is taken
/// for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub(crate) number: u32,
    device: u64,
    inode: u64,
}

impl Descriptor {
    /// An open descriptor as it is inherited.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn of(file: &OwnedFd) -> io::Result<Self> {
        let meta = fstat(file)?;
        Ok(Self { number: file.as_raw_fd() as u32, device: meta.st_dev, inode: meta.st_ino })
    }

    /// The same file at another number.
    #[cfg(test)]
    pub(crate) fn at(self, number: u32) -> Self {
        Self { number, ..self }
    }

    /// Whether that is the file.
    fn names(self, file: BorrowedFd<'_>) -> nix::Result<bool> {
        fstat(file).map(|meta| (meta.st_dev, meta.st_ino) == (self.device, self.inode))
    }
}

impl fmt::Display for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.number, self.device, self.inode)
    }
}

impl FromStr for Descriptor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.split(':').map(|part| part.parse::<u64>().map_err(drop));
        let mut next = || parts.next().unwrap_or(Err(()));
        let (number, device, inode) = (next()?, next()?, next()?);
        let number = u32::try_from(number).map_err(drop)?;
        if parts.next().is_some() { Err(()) } else { Ok(Self { number, device, inode }) }
    }
}

/// What an inherited descriptor has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// This memory file, with these seals at least.
    Memory(Descriptor, SealFlag),
    /// One end of this pair of stream sockets.
    Control(Descriptor),
    /// The end of this pipe that is read.
    Lifeline(Descriptor),
    /// The end of this pipe that is written.
    Notices(Descriptor),
    /// A stream socket to another launcher's server.
    Server,
}

impl FileKind {
    /// Whether a descriptor is so.
    fn is(self, file: BorrowedFd<'_>) -> nix::Result<bool> {
        let kind = SFlag::from_bits_truncate(fstat(file)?.st_mode) & SFlag::S_IFMT;
        Ok(match self {
            Self::Memory(memory, seals) => {
                let found = fcntl(file, FcntlArg::F_GET_SEALS).map(SealFlag::from_bits_truncate);
                kind == SFlag::S_IFREG && found.is_ok_and(|found| found.contains(seals)) && memory.names(file)?
            }
            Self::Control(line) => {
                kind == SFlag::S_IFSOCK
                    && getsockopt(&file, SockType)? == NixSockType::Stream
                    && getsockname::<UnixAddr>(file.as_raw_fd()).is_ok()
                    && line.names(file)?
            }
            Self::Lifeline(pipe) | Self::Notices(pipe) => {
                let mode = OFlag::from_bits_truncate(fcntl(file, FcntlArg::F_GETFL)?) & OFlag::O_ACCMODE;
                let access = if matches!(self, Self::Lifeline(_)) { OFlag::O_RDONLY } else { OFlag::O_WRONLY };
                kind == SFlag::S_IFIFO && mode == access && pipe.names(file)?
            }
            Self::Server => kind == SFlag::S_IFSOCK && getsockopt(&file, SockType)? == NixSockType::Stream,
        })
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(..) => f.write_str("the sealed memory file that the launcher left"),
            Self::Control(_) => f.write_str("the Unix stream socket that the launcher left"),
            Self::Lifeline(_) => f.write_str("the reading end of the pipe that the launcher left"),
            Self::Notices(_) => f.write_str("the writing end of the pipe that the launcher left"),
            Self::Server => f.write_str("the stream socket that the launcher left"),
        }
    }
}

/// Why a descriptor may be missing or be something else.
const NOT_INHERITED: &str = "only the process that a launcher starts inherits it, not that one's own children, which \
                             have to be started without the variables AM_*";

/// The descriptors that this process has taken over.
static CLAIMED: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());

/// Whether an inherited descriptor that a variable of the launcher names can still be taken over, and is what the
/// launcher leaves there.
///
/// # Errors
/// There is no such descriptor, it is something else, or it has been taken over before.
pub(crate) fn unclaimed(number: u32, wanted: FileKind) -> io::Result<()> {
    checked(number, wanted, &CLAIMED.lock().unwrap_or_else(PoisonError::into_inner)).map(drop)
}

#[expect(unsafe_code, reason = "what a number stands for is asked of the descriptor, which somebody else may own")]
fn checked(number: u32, wanted: FileKind, claimed: &[RawFd]) -> io::Result<RawFd> {
    let number = look_up(number, claimed)?;
    // SAFETY: the descriptor is open, as was just seen, and is only looked at. Nobody in this process closes what
    // the launcher left; if the number stands for something else, its owner may close it meanwhile, and then an
    // error is the worst.
    let file = unsafe { BorrowedFd::borrow_raw(number) };
    if !wanted.is(file)? {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is not {wanted}; {NOT_INHERITED}")));
    }
    Ok(number)
}

fn look_up(number: u32, claimed: &[RawFd]) -> io::Result<RawFd> {
    let number = RawFd::try_from(number).map_err(|_| nix::Error::EBADF)?;
    if claimed.contains(&number) {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "this process has taken it over before, which it can do once",
        ));
    }
    // The standard streams belong to the standard library.
    if number <= 2 || !fs::exists(format!("/proc/self/fd/{number}"))? {
        return Err(io::Error::new(io::ErrorKind::NotFound, format!("it is not open; {NOT_INHERITED}")));
    }
    Ok(number)
}

/// Takes over an inherited descriptor that a variable of the launcher names, once, if it is what the launcher
/// leaves there; programs that this one starts don't get it. Anything else stays open and as it is.
///
/// # Errors
/// There is no such descriptor, it is something else, or it has been taken over before.
#[expect(unsafe_code, reason = "an inherited socket, unlike a memory file, can't be opened again by its number")]
pub(crate) fn claim(number: u32, wanted: FileKind) -> io::Result<OwnedFd> {
    let mut claimed = CLAIMED.lock().unwrap_or_else(PoisonError::into_inner);
    let number = checked(number, wanted, &claimed)?;
    // SAFETY: the descriptor is open, and nobody else in this process owns it: it is what only the launcher can
    // have left under this number, opened in this process for this call before the program ran, and the list lets
    // only one call have it.
    let file = unsafe { OwnedFd::from_raw_fd(number) };
    claimed.push(number);
    fcntl(&file, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    Ok(file)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use nix::sys::memfd::{MFdFlags, memfd_create};
    use nix::unistd::pipe;
    use std::net::UdpSocket;
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicI32, Ordering};

    const SEALS: SealFlag = SealFlag::F_SEAL_SHRINK;

    /// A descriptor of a number that no other test has had: each number is taken over once.
    pub(crate) fn unused(file: &OwnedFd) -> u32 {
        static NEXT: AtomicI32 = AtomicI32::new(300);
        fcntl(file, FcntlArg::F_DUPFD(NEXT.fetch_add(10, Ordering::Relaxed))).unwrap() as u32
    }

    fn memory(seals: SealFlag) -> OwnedFd {
        let file = memfd_create(c"test", MFdFlags::MFD_ALLOW_SEALING).unwrap();
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).unwrap();
        file
    }

    #[test]
    fn other_files_stay_open() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (reading, writing) = pipe().unwrap();
        let files: [OwnedFd; 5] =
            [socket.into(), UnixStream::pair().unwrap().0.into(), reading, writing, memory(SealFlag::F_SEAL_GROW)];
        let [_, line, lifeline, notices, memory] = files.each_ref().map(|file| Descriptor::of(file).unwrap());
        let wishes = [
            FileKind::Control(line),
            FileKind::Lifeline(lifeline),
            FileKind::Notices(notices),
            FileKind::Memory(memory, SEALS),
        ];
        for (place, file) in files.iter().enumerate() {
            for (other, wanted) in wishes.into_iter().enumerate() {
                // The memory file is the right one, but without the seals.
                if place != other + 1 || place == 4 {
                    assert!(claim(file.as_raw_fd() as u32, wanted).is_err(), "{file:?} is not {wanted}");
                }
            }
        }
        let error = claim(files[0].as_raw_fd() as u32, wishes[0]).unwrap_err().to_string();
        assert_eq!(error, format!("it is not {}; {NOT_INHERITED}", wishes[0]));
        assert!(files.iter().all(|file| fcntl(file, FcntlArg::F_GETFD).is_ok()), "all of them are still open");
    }

    /// As in a child of a rank, where other files have the numbers.
    #[test]
    fn other_files_of_the_kind_stay_open() {
        let (reading, writing) = pipe().unwrap();
        let (of_launcher, of_launcher_too) = pipe().unwrap();
        let [line, other] = [(); 2].map(|()| OwnedFd::from(UnixStream::pair().unwrap().0));
        let wish =
            |file: &OwnedFd, launchers: &OwnedFd| Descriptor::of(launchers).unwrap().at(file.as_raw_fd() as u32);
        let [sealed, manifest] = [(); 2].map(|()| memory(SEALS));
        for (file, wanted) in [
            (&sealed, FileKind::Memory(wish(&sealed, &manifest), SEALS)),
            (&reading, FileKind::Lifeline(wish(&reading, &of_launcher))),
            (&writing, FileKind::Notices(wish(&writing, &of_launcher_too))),
            (&line, FileKind::Control(wish(&line, &other))),
        ] {
            let error = claim(file.as_raw_fd() as u32, wanted).unwrap_err().to_string();
            assert_eq!(error, format!("it is not {wanted}; {NOT_INHERITED}"));
            assert!(fcntl(file, FcntlArg::F_GETFD).is_ok(), "it is still open");
        }
    }

    #[test]
    fn descriptors_are_read_as_they_are_written() {
        let descriptor = Descriptor { number: 7, device: 14, inode: u64::MAX };
        assert_eq!(descriptor.to_string().parse(), Ok(descriptor));
        for text in ["", "7", "7:1", "7:1:2:3", "x:1:2", "4294967296:1:2", "-1:1:2"] {
            assert_eq!(text.parse::<Descriptor>(), Err(()), "{text}");
        }
    }

    #[test]
    fn each_kind_is_taken_over_once() {
        let (reading, _writing) = pipe().unwrap();
        let line = OwnedFd::from(UnixStream::pair().unwrap().0);
        let memory = memory(SEALS | SealFlag::F_SEAL_GROW);
        let [of_line, of_reading, of_memory] =
            [&line, &reading, &memory].map(|file| Descriptor::of(file).unwrap());
        let files: [(OwnedFd, FileKind); 3] = [
            (line, FileKind::Control(of_line)),
            (reading, FileKind::Lifeline(of_reading)),
            (memory, FileKind::Memory(of_memory, SEALS)),
        ];
        let claimed = files.map(|(file, wanted)| {
            let number = unused(&file);
            let file = claim(number, wanted).unwrap();
            let flags = FdFlag::from_bits_truncate(fcntl(&file, FcntlArg::F_GETFD).unwrap());
            assert!(flags.contains(FdFlag::FD_CLOEXEC), "{wanted} is for this program alone");
            let again = claim(number, wanted).unwrap_err();
            assert!(again.to_string().contains("taken it over before"), "{again}");
            file
        });
        assert!(unclaimed(claimed[0].as_raw_fd() as u32, FileKind::Control(of_line)).is_err());
    }

    #[test]
    fn closed_descriptors_and_standard_streams_are_refused() {
        let memory = Descriptor::of(&memory(SEALS)).unwrap();
        for number in [0, 2, 99_999, u32::MAX] {
            assert!(claim(number, FileKind::Memory(memory, SEALS)).is_err());
        }
    }
}
