//! The two ends of a rank's inheritance: the few system calls between fork and exec, and the claim of what was inherited.
//! The crate's only unsafe code.

use std::fs;
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::resource::{Resource, rlim_t, setrlimit};
use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
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

/// Takes over an inherited descriptor that a variable of the launcher names, once; programs that this one starts don't get
/// it.
///
/// # Errors
/// There is no such descriptor, or it has been taken over before.
#[expect(unsafe_code, reason = "an inherited socket, unlike a memory file, can't be opened again by its number")]
pub(crate) fn claim(number: u32) -> io::Result<OwnedFd> {
    let number = RawFd::try_from(number).map_err(|_| nix::Error::EBADF)?;
    static CLAIMED: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());
    let mut claimed = CLAIMED.lock().unwrap_or_else(PoisonError::into_inner);
    // The standard streams belong to the standard library.
    if number <= 2 || claimed.contains(&number) || !fs::exists(format!("/proc/self/fd/{number}"))? {
        return Err(nix::Error::EBADF.into());
    }
    // SAFETY: the descriptor is open, and nobody else in this process owns it: the launcher opened it in this process for
    // this call before the program ran, and the list above lets only one call have it.
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
