//! `amrun`: starts a program as N ranks on this host.

#![forbid(unsafe_code)]

mod cli;

use std::io::{self, Write};
use std::process::ExitCode;

use am_launch::EXIT_USAGE;

fn main() -> ExitCode {
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
