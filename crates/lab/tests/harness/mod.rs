//! How test programs list and run their tests that are launchers, ranks and agents besides, so that Rust's own harness is not in
//! their `main`.

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

/// What a test comes to.
pub(crate) type Outcomes = Result<(), Box<dyn Error>>;

/// A test that could not be made here, and why.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Skipped(pub(crate) String);

/// One test, as the test harness of other test programs would have it.
pub(crate) struct Test {
    name: String,
    ignored: bool,
    run: Box<dyn Fn() -> Outcomes>,
}

impl Test {
    /// A test, which may end with [`Skipped`].
    pub(crate) fn new(name: impl Into<String>, run: impl Fn() -> Outcomes + 'static) -> Self {
        Self { name: name.into(), ignored: false, run: Box::new(run) }
    }

    /// The same as a part of the full profile alone.
    pub(crate) fn ignored(self) -> Self {
        Self { ignored: true, ..self }
    }
}

/// Runs the tests that the command line asks for, by names or parts of names, `--list`, `--ignored` and `--include-ignored`.
pub(crate) fn run(tests: impl IntoIterator<Item = Test>) -> ExitCode {
    let (flags, names): (Vec<_>, Vec<_>) = env::args().skip(1).partition(|arg| arg.starts_with("--"));
    let flag = |name: &str| flags.iter().any(|flag| flag == name);
    let mut failed = 0;
    for Test { name, ignored, run } in tests {
        if !names.is_empty() && !names.iter().any(|part| name.contains(part.as_str())) {
            continue;
        }
        if flag("--list") {
            println!("{name}: test");
        } else if flag("--include-ignored") || ignored == flag("--ignored") {
            let began = Instant::now();
            let outcome = run();
            let took = began.elapsed().as_secs_f64();
            match outcome {
                Ok(()) => println!("test {name} ... ok ({took:.2} s)"),
                Err(error) if error.is::<Skipped>() => println!("test {name} ... skipped, {error}"),
                Err(error) => {
                    println!("test {name} ... FAILED ({took:.2} s)\n{error}");
                    failed += 1;
                }
            }
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
