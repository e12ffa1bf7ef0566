//! `amrun`: starts a program as N ranks, on this host or on several.

#![forbid(unsafe_code)]

mod cli;

use std::io::{self, Write};
use std::process::ExitCode;

use am_launch::EXIT_USAGE;

fn main() -> ExitCode {
    // What amrun is on the other hosts of a job; nothing for users, so no flag of the command line's definition.
    if std::env::args_os().nth(1).is_some_and(|flag| flag == "--agent") {
        return am_launch::serve_as_agent();
    }
    let launcher = match cli::read(std::env::args_os()) {
        Ok(launcher) => launcher,
        Err(cli::Stop::Shown(text)) => {
            // A reader that has gone away has seen what it wanted.
            let _ = io::stdout().write_all(text.as_bytes());
            return ExitCode::SUCCESS;
        }
        Err(cli::Stop::Usage(line)) => return fail(&line, EXIT_USAGE),
    };
    match launcher.launch() {
        Ok(outcome) => ExitCode::from(outcome.code()),
        Err(error) => fail(&error.to_string(), error.code()),
    }
}

fn fail(line: &str, code: u8) -> ExitCode {
    let _ = io::stderr().write_all(format!("amrun: {line}\n").as_bytes());
    ExitCode::from(code)
}
