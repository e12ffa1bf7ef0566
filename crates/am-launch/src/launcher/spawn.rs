//! The two ends of a rank's inheritance: the few system calls between fork and exec, and the claim of what was inherited.
//! The crate's only unsafe code.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use nix::fcntl::{FcntlArg, FdFlag, OFlag, SealFlag, fcntl};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::resource::{Resource, rlim_t, setrlimit};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction, signal};
use nix::sys::socket::sockopt::SockType;
use nix::sys::socket::{SockType as NixSockType, UnixAddr, getsockname, getsockopt};
use nix::sys::stat::{SFlag, fstat};
use nix::unistd::{Pid, getpid, getppid};

/// What a rank's process gets from its launcher besides arguments and environment.
pub(crate) struct Inheritance {
    /// The signal mask to start with; the launcher's own blocks what it reads from a descriptor.
    pub(crate) mask: SigSet,
    /// Descriptors that stay open across the exec, under the same numbers.
    pub(crate) files: Vec<Arc<OwnedFd>>,
    /// The processors to run on, if bound.
    pub(crate) cpus: Option<CpuSet>,
    /// The limits of open files to start with, if the launcher has raised its own.
    pub(crate) files_before: Option<(rlim_t, rlim_t)>,
}

/// Makes a command's process die with the thread that spawns it, and gives it its inheritance.
///
/// The kernel ties the process to the spawning *thread*: that thread has to outlive the job.
#[expect(unsafe_code, reason = "only code between fork and exec reaches every program before it runs")]
pub(crate) fn tie(command: &mut Command, inheritance: Inheritance) {
    let launcher = getpid();
    let prepare = move || prepare(launcher, &inheritance);
    // SAFETY: between fork and exec only async-signal-safe work is allowed. `prepare` makes plain system calls on
    // values made before the fork; it neither allocates nor takes a lock, and its errors carry only a number.
    unsafe { command.pre_exec(prepare) };
}

/// Runs in the new process, before the program does.
fn prepare(launcher: Pid, inheritance: &Inheritance) -> io::Result<()> {
    inheritance.mask.thread_set_mask()?;
    set_pdeathsig(Signal::SIGKILL)?;
    // A launcher that died before the call above would have sent nothing.
    if getppid() != launcher {
        return Err(nix::Error::ESRCH.into());
    }
    for file in &inheritance.files {
        fcntl(file.as_fd(), FcntlArg::F_SETFD(FdFlag::empty()))?;
    }
    if let Some(cpus) = &inheritance.cpus {
        sched_setaffinity(Pid::from_raw(0), cpus)?;
    }
    if let Some((soft, hard)) = inheritance.files_before {
        setrlimit(Resource::RLIMIT_NOFILE, soft, hard)?;
    }
    Ok(())
}

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
    /// A memory file with these seals at least.
    Memory(SealFlag),
    /// One end of this pair of stream sockets.
    Control(Descriptor),
    /// The end of this pipe that is read.
    Lifeline(Descriptor),
    /// The end of this pipe that is written.
    Notices(Descriptor),
}

impl FileKind {
    /// Whether a descriptor is so.
    fn is(self, file: BorrowedFd<'_>) -> nix::Result<bool> {
        let kind = SFlag::from_bits_truncate(fstat(file)?.st_mode) & SFlag::S_IFMT;
        Ok(match self {
            Self::Memory(seals) => {
                let found = fcntl(file, FcntlArg::F_GET_SEALS).map(SealFlag::from_bits_truncate);
                kind == SFlag::S_IFREG && found.is_ok_and(|found| found.contains(seals))
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
        })
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(_) => f.write_str("a sealed memory file"),
            Self::Control(_) => f.write_str("the Unix stream socket that the launcher left"),
            Self::Lifeline(_) => f.write_str("the reading end of the pipe that the launcher left"),
            Self::Notices(_) => f.write_str("the writing end of the pipe that the launcher left"),
        }
    }
}

/// Why a descriptor may be missing or be something else.
const NOT_INHERITED: &str = "only the process that a launcher starts inherits it, not that one's own children, which \
                             have to be started without the variables AM_*";

/// The descriptors that this process has taken over.
static CLAIMED: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());

/// Whether an inherited descriptor that a variable of the launcher names can still be taken over, and is what the launcher leaves
/// there.
///
/// # Errors
/// There is no such descriptor, it is something else, or it has been taken over before.
pub(crate) fn unclaimed(number: u32, wanted: FileKind) -> io::Result<()> {
    checked(number, wanted, &CLAIMED.lock().unwrap_or_else(PoisonError::into_inner)).map(drop)
}

#[expect(unsafe_code, reason = "what a number stands for is asked of the descriptor, which somebody else may own")]
fn checked(number: u32, wanted: FileKind, claimed: &[RawFd]) -> io::Result<RawFd> {
    let number = look_up(number, claimed)?;
    // SAFETY: the descriptor is open, as was just seen, and is only looked at. Nobody in this process closes what the launcher
    // left; if the number stands for something else, its owner may close it meanwhile, and then an error is the worst.
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

/// Takes over an inherited descriptor that a variable of the launcher names, once, if it is what the launcher leaves there;
/// programs that this one starts don't get it. Anything else stays open and as it is.
///
/// # Errors
/// There is no such descriptor, it is something else, or it has been taken over before.
#[expect(unsafe_code, reason = "an inherited socket, unlike a memory file, can't be opened again by its number")]
pub(crate) fn claim(number: u32, wanted: FileKind) -> io::Result<OwnedFd> {
    let mut claimed = CLAIMED.lock().unwrap_or_else(PoisonError::into_inner);
    let number = checked(number, wanted, &claimed)?;
    // SAFETY: the descriptor is open, and nobody else in this process owns it: it is what only the launcher can have left
    // under this number, opened in this process for this call before the program ran, and the list lets only one call have it.
    let file = unsafe { OwnedFd::from_raw_fd(number) };
    claimed.push(number);
    fcntl(&file, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    Ok(file)
}

/// Gives signals that a launcher made its child ignore their usual meaning back, so that ranks start with it.
///
/// # Errors
/// Those of `sigaction(2)`; none is expected.
#[expect(unsafe_code, reason = "nix has no safe call that restores a default disposition")]
pub(crate) fn restore_signals(signals: &[Signal]) -> nix::Result<()> {
    for &which in signals {
        // SAFETY: the default disposition runs no code of ours.
        unsafe { signal(which, SigHandler::SigDfl) }?;
    }
    Ok(())
}

/// Makes a command's process die with the thread that spawns it, and deaf to the terminal's signals: its launcher decides
/// what they mean for other hosts.
#[expect(unsafe_code, reason = "only code between fork and exec reaches every program before it runs")]
pub(crate) fn shield(command: &mut Command, mask: SigSet, deaf_to: &'static [Signal]) {
    let launcher = getpid();
    let prepare = move || {
        for &which in deaf_to {
            // SAFETY: ignoring a signal runs no code of ours.
            unsafe { signal(which, SigHandler::SigIgn) }?;
        }
        prepare(launcher, &Inheritance { mask, files: Vec::new(), cpus: None, files_before: None })
    };
    // SAFETY: between fork and exec only async-signal-safe work is allowed. The closure makes plain system calls on values
    // made before the fork; an empty vector allocates nothing.
    unsafe { command.pre_exec(prepare) };
}

/// Makes sure that this process hears of its children's end: a parent may have handed it SIGCHLD as ignored, and then
/// the kernel would reap them unseen. A handler that the program has set stays.
///
/// # Errors
/// Those of `sigaction(2)`; none is expected.
#[expect(unsafe_code, reason = "nix has no safe call that restores a default disposition")]
pub(crate) fn hear_of_children() -> nix::Result<()> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap_or_default();
    let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap_or_default();
    if ignored & (1 << (Signal::SIGCHLD as u64 - 1)) == 0 {
        return Ok(());
    }
    // SAFETY: the default disposition runs no code of ours.
    unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) }.map(drop)
}

/// Makes SIGQUIT ask every endpoint of this process for its stall report, unless the program has a handler of its own.
///
/// # Errors
/// Those of `sigaction(2)`; none is expected.
#[expect(unsafe_code, reason = "nix has no safe call that sets a handler")]
pub(crate) fn report_on_quit() -> nix::Result<()> {
    extern "C" fn request(_: nix::libc::c_int) {
        am_core::stall::request();
    }
    // System calls of the program go on after the signal, on whichever stack it came.
    let flags = SaFlags::SA_RESTART | SaFlags::SA_ONSTACK;
    let ours = SigAction::new(SigHandler::Handler(request), flags, SigSet::empty());
    // SAFETY: the handler increments one atomic number, which is async-signal-safe, and touches nothing else.
    let before = unsafe { sigaction(Signal::SIGQUIT, &ours) }?;
    if !matches!(before.handler(), SigHandler::SigDfl | SigHandler::SigIgn) {
        // SAFETY: what the program had set is what it had made sure of.
        unsafe { sigaction(Signal::SIGQUIT, &before) }?;
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use nix::sys::memfd::{MFdFlags, memfd_create};
    use nix::sys::signal::raise;
    use nix::unistd::pipe;
    use std::net::UdpSocket;
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicBool, AtomicI32, Ordering, Ordering::SeqCst};

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
        let [_, line, lifeline, notices, _] = files.each_ref().map(|file| Descriptor::of(file).unwrap());
        let wishes = [
            FileKind::Control(line),
            FileKind::Lifeline(lifeline),
            FileKind::Notices(notices),
            FileKind::Memory(SEALS),
        ];
        for (place, file) in files.iter().enumerate() {
            for (other, wanted) in wishes.into_iter().enumerate() {
                if place != other + 1 {
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
        let wish = |file: &OwnedFd, launchers: &OwnedFd| Descriptor {
            number: file.as_raw_fd() as u32,
            ..Descriptor::of(launchers).unwrap()
        };
        for (file, wanted) in [
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
        let [of_line, of_reading] = [&line, &reading].map(|file| Descriptor::of(file).unwrap());
        let files: [(OwnedFd, FileKind); 3] = [
            (line, FileKind::Control(of_line)),
            (reading, FileKind::Lifeline(of_reading)),
            (memory(SEALS | SealFlag::F_SEAL_GROW), FileKind::Memory(SEALS)),
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
        for number in [0, 2, 99_999, u32::MAX] {
            assert!(claim(number, FileKind::Memory(SEALS)).is_err());
        }
    }

    static HANDLED: AtomicBool = AtomicBool::new(false);

    extern "C" fn own(_: nix::libc::c_int) {
        HANDLED.store(true, SeqCst);
    }

    #[test]
    #[expect(unsafe_code, reason = "a program's own handler has to be set")]
    fn a_programs_own_handler_for_quit_stays() {
        // Without one it is ours, twice in a row, too.
        report_on_quit().unwrap();
        report_on_quit().unwrap();
        raise(Signal::SIGQUIT).unwrap();
        assert!(!HANDLED.load(SeqCst));
        let action = SigAction::new(SigHandler::Handler(own), SaFlags::empty(), SigSet::empty());
        // SAFETY: the handler stores one atomic flag, which is async-signal-safe.
        unsafe { sigaction(Signal::SIGQUIT, &action) }.unwrap();
        report_on_quit().unwrap();
        raise(Signal::SIGQUIT).unwrap();
        assert!(HANDLED.load(SeqCst));
    }
}
