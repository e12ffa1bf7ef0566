//! Handlers of signals, which libraries below libfabric install as they are loaded or first asked.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;

/// Those for which psm and psm2 install handlers that write a trace and end the process. With that of psm for
/// `SIGTERM` a rank at times does not end when its launcher asks it to.
const SIGNALS: [c_int; 8] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGILL,
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGSEGV,
    libc::SIGTERM,
];

/// Calls something that may install handlers of signals, and puts back those that were there before. What another
/// thread installs meanwhile is undone, too.
pub(super) fn kept<R>(call: impl FnOnce() -> R) -> R {
    let before = SIGNALS.map(|signal| {
        let mut action = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: it installs nothing, and writes what is there to a place that has room for it.
        let code = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
        // SAFETY: a call that succeeds has written all of it.
        (code == 0).then(|| unsafe { action.assume_init() })
    });
    let result = call();
    for (signal, action) in SIGNALS.into_iter().zip(&before) {
        let Some(action) = action else { continue };
        // SAFETY: this was installed before the call, and the code of handlers stays. It takes what it is given.
        unsafe { libc::sigaction(signal, action, ptr::null_mut()) };
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handler(signal: c_int) -> usize {
        let mut action = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: as above.
        assert_eq!(unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) }, 0);
        // SAFETY: as above.
        unsafe { action.assume_init() }.sa_sigaction
    }

    #[test]
    fn handlers_of_others_do_not_stay() {
        let before = SIGNALS.map(handler);
        let meanwhile = kept(|| {
            for signal in [libc::SIGTERM, libc::SIGSEGV] {
                // SAFETY: to be ignored is no code.
                unsafe { libc::signal(signal, libc::SIG_IGN) };
            }
            handler(libc::SIGTERM)
        });
        assert_eq!(meanwhile, libc::SIG_IGN);
        assert_eq!(SIGNALS.map(handler), before);
    }
}
