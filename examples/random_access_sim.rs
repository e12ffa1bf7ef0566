//! HPCC RandomAccess on simulated machines, in virtual time.
//!
//! ```text
//! cargo run --release --example random_access_sim -- --backend extoll --ranks 64 --topology mesh3d:4x4x4 \
//!     --log2-table 16
//! cargo run --release --example random_access_sim -- --backend sci --ranks 8 --sci mapped --log2-table 20
//! cargo run --release --example random_access_sim -- --backend sim --machine my.toml --ranks 1024
//! cargo run --release --example random_access_sim -- --help
//! ```
//!
//! The program itself is `lab_sim::random_access`; the same between processes is the example `random_access`.

use std::process::ExitCode;

fn main() -> ExitCode {
    lab_sim::random_access::main()
}
