//! Reproduces published figures on the simulated machines, and says how far off each one is.
//!
//! ```text
//! cargo run --release --example figures -- extoll             # every figure: plots, CSV, JSON in target/figures
//! cargo run --release --example figures -- extoll --quick     # the same lines from fewer points
//! cargo run --release --example figures -- sci                # SCI's
//! cargo run --release --example figures -- portals            # Portals'
//! cargo run --release --example figures -- exanet             # ExaNet's
//! cargo run --release --example figures -- collectives        # collective operations, beside LogP
//! cargo run --release --example figures -- fit extoll         # the parameters that follow from the training set
//! cargo run --release --example figures -- --help
//! ```
//!
//! Exits with 0 when every line is within its tolerance, with 1 when one is not or a simulation fails, and with 2
//! when the command line is wrong. The program itself is `lab_sim::figures`.

use std::process::ExitCode;

fn main() -> ExitCode {
    lab_sim::figures::main()
}
