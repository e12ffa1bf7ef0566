//! Real jobs of real processes: `amrun` and the library, from start to every kind of end.
//!
//! This program is both the tests and the ranks that they start: `jobs --role NAME ARGS...` plays a rank.

mod amrun;
mod causes;
mod harness;
mod hosts;
mod launchers;
mod library;
mod orphans;
mod rendezvous;
mod reports;
mod roles;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|flag| flag == "--role") {
        let role = args.next().expect("a role");
        return roles::play(role.to_str().expect("roles are text"), args.collect());
    }
    harness::run(
        &[
            amrun::TESTS,
            library::TESTS,
            launchers::TESTS,
            orphans::TESTS,
            hosts::TESTS,
            rendezvous::TESTS,
            causes::TESTS,
            reports::TESTS,
        ]
        .concat(),
    )
}
