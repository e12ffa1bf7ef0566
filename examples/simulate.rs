//! A machine of one's own, measured and loaded in virtual time; `docs/machines.md` says how to write one.
//!
//! ```text
//! cargo run --release --example simulate -- --machine my.toml --measure latency --svg latency.svg
//! cargo run --release --example simulate -- --machine my.toml --pattern uniform --sweep load=0.1..1.0 --csv o.csv
//! cargo run --release --example simulate -- --machine loggopsim --goal schedule.goal --json
//! cargo run --release --example simulate -- --help
//! ```
//!
//! The program itself is `lab_sim::simulate`.

use std::process::ExitCode;

fn main() -> ExitCode {
    lab_sim::simulate::main()
}
