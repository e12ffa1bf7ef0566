//! Handlers of signals, which libraries below libfabric install as they are loaded or first asked.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::{Mutex, PoisonError};

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
/// thread installs meanwhile is undone, too. One thread at a time: a second would keep what the first one's call
/// has just installed.
pub(super) fn kept<R>(call: impl FnOnce() -> R) -> R {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
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
    use std::sync::mpsc;
    use std::time::Duration;

    fn handler(signal: c_int) -> usize {
        let mut action = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: as above.
        assert_eq!(unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) }, 0);
        // SAFETY: as above.
        unsafe { action.assume_init() }.sa_sigaction
    }

    /// Signals whose handlers a test changes, of which another test knows nothing.
    static TESTS: Mutex<()> = Mutex::new(());

    fn ignore(signal: c_int) {
        // SAFETY: to be ignored is no code.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }

    /// The second call begins, if it may, while the first has installed its handler, and ends after the first.
    #[test]
    fn handlers_of_two_threads_do_not_stay() {
        let _alone = TESTS.lock().unwrap_or_else(PoisonError::into_inner);
        let before = handler(libc::SIGHUP);
        let (begun, has_begun) = mpsc::channel();
        let (over, is_over) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            kept(|| {
                ignore(libc::SIGHUP);
                scope.spawn(move || {
                    kept(|| {
                        let _ = begun.send(());
                        let _ = is_over.recv();
                    });
                });
                let _ = has_begun.recv_timeout(Duration::from_millis(200));
            });
            drop(over);
        });
        assert_eq!(handler(libc::SIGHUP), before);
    }

    #[test]
    fn handlers_of_others_do_not_stay() {
        let _alone = TESTS.lock().unwrap_or_else(PoisonError::into_inner);
        let before = SIGNALS.map(handler);
        let meanwhile = kept(|| {
            for signal in [libc::SIGTERM, libc::SIGSEGV] {
                ignore(signal);
            }
            handler(libc::SIGTERM)
        });
        assert_eq!(meanwhile, libc::SIG_IGN);
        assert_eq!(SIGNALS.map(handler), before);
    }
}
