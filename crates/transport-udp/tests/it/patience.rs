//! Scenarios in which nobody may be taken for dead.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

/// Runs a scenario with a permitted silence, and again with twice as much each time that it panics, up to sixteen
/// times as much.
///
/// A machine that runs many tests at once may keep a thread waiting for longer than a short silence. A protocol
/// that takes the living for dead does so at every silence.
pub(crate) fn patiently(silence: Duration, scenario: impl Fn(Duration)) {
    for doublings in 0.. {
        let silence = silence * (1 << doublings);
        match catch_unwind(AssertUnwindSafe(|| scenario(silence))) {
            Ok(()) => return,
            Err(panic) if doublings == 4 => resume_unwind(panic),
            Err(_) => println!("not with a permitted silence of {silence:?}"),
        }
    }
}
