//! What happens to a process before it runs a program: the few system calls between fork and exec, and signals'
//! dispositions.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::resource::{Resource, rlim_t, setrlimit};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction, signal};
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

/// Makes a command's process die with the thread that spawns it, and deaf to the terminal's signals: its launcher
/// decides what they mean for other hosts.
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
    // SAFETY: between fork and exec only async-signal-safe work is allowed. The closure makes plain system calls
    // on values made before the fork; an empty vector allocates nothing.
    unsafe { command.pre_exec(prepare) };
}

/// Makes sure that this process hears of its children's end: a parent may have handed it SIGCHLD as ignored, and
/// then the kernel would reap them unseen. A handler that the program has set stays.
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

/// Makes SIGQUIT ask every endpoint of this process for its stall report, unless the program has a handler of its
/// own.
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
mod tests {
    use super::*;
    use nix::sys::signal::raise;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

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
