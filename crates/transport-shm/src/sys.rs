//! The system calls that no crate wraps safely: futex, membarrier, pidfd, one kind of madvise and io_uring.

use memmap2::MmapRaw;
use std::fs::File;
use std::io;
use std::os::fd::FromRawFd;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

#[cfg(feature = "event-loop")]
mod uring;
#[cfg(feature = "event-loop")]
pub(crate) use uring::Uring;

const MEMBARRIER_CMD_GLOBAL_EXPEDITED: libc::c_int = 1 << 1;
const MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED: libc::c_int = 1 << 2;

/// Sleeps while `word` holds `expected`, for at most `limit`. May return early. The word may lie in shared memory.
pub(crate) fn futex_wait(word: &AtomicU32, expected: u32, limit: Duration) {
    let time = libc::timespec {
        tv_sec: libc::time_t::try_from(limit.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(limit.subsec_nanos() as i32),
    };
    // SAFETY: the word outlives the call and is only read atomically by the kernel; the time is valid. Every
    // outcome (woken, value changed, interrupted, timed out) is a legal early return.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, expected, &raw const time) };
}

/// Wakes whoever sleeps on `word`.
pub(crate) fn futex_wake(word: &AtomicU32) {
    // SAFETY: the word outlives the call; waking does not touch memory.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

/// Moves all sleepers of a word to another one; how many, or a negative number.
#[cfg(all(test, feature = "event-loop"))]
pub(crate) fn futex_requeue(word: &AtomicU32, to: &AtomicU32) -> i64 {
    // SAFETY: both words live until the call returns; the kernel does not write to them.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_REQUEUE, 0, i32::MAX as i64, to.as_ptr(), 0)
    }
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the call takes no pointers.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Registers this process as one that [`fence_everyone`] reaches. False where the kernel has no such thing.
pub(crate) fn register_for_fences() -> bool {
    membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED)
}

/// Makes every running thread of all registered processes execute a full memory fence. False if that was not
/// possible.
pub(crate) fn fence_everyone() -> bool {
    membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED)
}

/// Makes private memory read as zeros in children that this process forks.
///
/// # Errors
/// Where the kernel has no such thing.
pub(crate) fn wipe_on_fork(memory: &MmapRaw) -> io::Result<()> {
    // SAFETY: the range is one whole mapping, which is alive; the advice changes nothing in this process.
    let outcome = unsafe { libc::madvise(memory.as_mut_ptr().cast(), memory.len(), libc::MADV_WIPEONFORK) };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A descriptor that becomes readable when the process ends, even before its parent has collected it.
///
/// # Errors
/// `ESRCH` if there is no such process; others where the kernel has no pidfds.
pub(crate) fn pidfd_open(pid: i32) -> io::Result<File> {
    // SAFETY: the call takes no pointers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    let fd = i32::try_from(fd).expect("descriptors are small numbers");
    // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
    Ok(unsafe { File::from_raw_fd(fd) })
}
