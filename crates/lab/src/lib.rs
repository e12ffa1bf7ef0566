//! What the project measures with, and is not published: [`random_access`], the benchmark as a library that runs
//! on any transport, [`workload`], what the other programs work on, [`mod@bench`], what every bench does alike,
//! and [`pipes`], how programs end whose output nobody reads.
//!
//! The benches between processes and the tests of the whole family are targets of this package; those on simulated
//! machines are targets of `lab-sim`.
//!
//! ```
//! use lab::random_access::hpcc::Stream;
//!
//! // The stream of HPCC RandomAccess begins with 2, each value the double of the one before.
//! let first: Vec<u64> = Stream::new(0, 0..3).collect();
//! assert_eq!(first, [2, 4, 8]);
//! ```

#![forbid(unsafe_code)]

pub mod bench;
pub mod pipes;
pub mod random_access;
pub mod workload;

use std::path::PathBuf;

/// The path of an example's program, beside the directory that the running test's own program lies in.
///
/// # Panics
/// If the example has not been built in the profile of the test: `cargo test` builds examples first, but a test
/// that is started alone takes the one that was built last.
pub fn example_program(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("a test knows its program");
    let profile = own.parent().and_then(|deps| deps.parent()).expect("<target>/<profile>/deps/<test>");
    let path = profile.join("examples").join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    assert!(path.exists(), "{} is missing: `cargo build --example {name}` makes it", path.display());
    path
}
