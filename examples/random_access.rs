//! HPCC RandomAccess over active messages between real processes.
//!
//! ```text
//! cargo run --release --example random_access                        # 2^25 words on two ranks, in Mediums
//! cargo run --release --example random_access -- --variant short     # one message for each update
//! cargo run --release --example random_access -- --help
//! ```
//!
//! The program itself is `lab::random_access`; the same on simulated machines is the example `random_access_sim`.

use std::process::ExitCode;

fn main() -> ExitCode {
    lab::random_access::main()
}
