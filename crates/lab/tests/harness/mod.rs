//! How test programs list and run their tests that are launchers, ranks and agents besides, so that Rust's own
//! harness is not in their `main`.

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::error::Error;
use std::process::ExitCode;

/// What a test comes to.
pub(crate) type Outcomes = Result<(), Box<dyn Error>>;

/// A test that could not be made here, and why.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Skipped(pub(crate) String);

/// A test, which may end with [`Skipped`]: it is listed as ignored then, with the reason.
pub(crate) fn test(name: impl Into<String>, run: impl Fn() -> Outcomes + Send + 'static) -> Trial {
    Trial::ignorable_test(name, move || match run() {
        Ok(()) => Ok(Completion::Completed),
        Err(error) if error.is::<Skipped>() => Ok(Completion::ignored_with(error.to_string())),
        Err(error) => Err(Failed::from(error.to_string())),
    })
}

/// Runs the tests that the command line asks for, one after the other.
pub(crate) fn run(tests: Vec<Trial>) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, tests).exit_code()
}
