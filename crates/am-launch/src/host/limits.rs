//! How many files a process may have open: raised for a job that needs more, and as before in its ranks.

use std::sync::OnceLock;

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};

/// The soft and the hard limit that this process started with, once they have been changed.
static BEFORE: OnceLock<(rlim_t, rlim_t)> = OnceLock::new();

/// Makes room for `more` files beside those that are open, as far as the system lets this process, for the rest of
/// its life. Too little room shows when a file can't be opened.
pub(crate) fn make_room(more: usize) {
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let needed = (open + more) as rlim_t;
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return };
    if soft < needed && soft < hard {
        BEFORE.get_or_init(|| (soft, hard));
        let _ = setrlimit(Resource::RLIMIT_NOFILE, needed.min(hard), hard);
    }
}

/// The limits that a process that is started now should have, if they aren't the present ones.
pub(crate) fn before() -> Option<(rlim_t, rlim_t)> {
    BEFORE.get().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_made_and_the_old_limit_known() {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        if soft == hard {
            println!("skipped: the limit of {hard} files can't be raised");
            return;
        }
        make_room(soft as usize);
        assert_eq!(before(), Some((soft, hard)));
        assert!(getrlimit(Resource::RLIMIT_NOFILE).unwrap().0 > soft);
    }
}
