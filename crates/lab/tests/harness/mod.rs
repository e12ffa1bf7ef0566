//! How test programs list and run their tests that are launchers, ranks and agents besides, so that Rust's own
//! harness is not in their `main`.
//!
//! Each test runs in a process of its own: the files it has open, the names of its hosts and its folder are its
//! alone, so that tests, most of which wait for others' processes, run beside each other.

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::env;
use std::error::Error;
use std::process::{Command, ExitCode, Stdio};

/// What a test comes to.
pub(crate) type Outcomes = Result<(), Box<dyn Error>>;

/// A test that could not be made here, and why.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Skipped(pub(crate) String);

/// The word before the name of the test that a process is for.
const ALONE: &str = "--alone";
/// The code of such a process whose test has been [`Skipped`].
const SKIPPED: u8 = 77;
/// How many tests run at once.
const AT_ONCE: usize = 4;

/// A test of such a program.
pub(crate) struct Test {
    name: String,
    run: Box<dyn Fn() -> Outcomes>,
    ignored: bool,
}

/// A test, which may end with [`Skipped`]: it is listed as ignored then, with the reason.
pub(crate) fn test(name: impl Into<String>, run: impl Fn() -> Outcomes + 'static) -> Test {
    Test { name: name.into(), run: Box::new(run), ignored: false }
}

impl Test {
    /// A test of the full profile, which runs only if it is asked for.
    pub(crate) fn full(self) -> Self {
        Self { ignored: true, ..self }
    }

    fn trial(&self) -> Trial {
        let name = self.name.clone();
        Trial::ignorable_test(&self.name, move || {
            let program = env::current_exe().map_err(|error| Failed::from(error.to_string()))?;
            let output = Command::new(program).args([ALONE, &name]).stdin(Stdio::null()).output();
            let output = output.map_err(|error| Failed::from(error.to_string()))?;
            let said = |bytes| String::from_utf8_lossy(bytes).into_owned();
            let (out, err) = (said(&output.stdout), said(&output.stderr));
            match output.status.code() {
                Some(0) => Ok(Completion::Completed),
                Some(code) if code == i32::from(SKIPPED) => Ok(Completion::ignored_with(out.trim_end())),
                _ => Err(Failed::from(format!("{}: {out}{err}", output.status))),
            }
        })
        .with_ignored_flag(self.ignored)
    }

    /// In a process that is for this test.
    fn play(&self) -> ExitCode {
        match (self.run)() {
            Ok(()) => ExitCode::SUCCESS,
            Err(reason) if reason.is::<Skipped>() => {
                println!("{reason}");
                ExitCode::from(SKIPPED)
            }
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        }
    }
}

/// Runs the tests that the command line asks for.
pub(crate) fn run(tests: Vec<Test>) -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    if let [ALONE, name] = words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        return tests.iter().find(|test| test.name == name).expect("the process that asks has listed it").play();
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_ONCE);
    libtest_mimic::run(&arguments, tests.iter().map(Test::trial).collect()).exit_code()
}
