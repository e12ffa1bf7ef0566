//! Runs the unit tests of the RandomAccess example's rules and command line: Cargo builds examples but runs none of the
//! tests inside them.
#![allow(dead_code, reason = "the example uses what these modules offer; here only their tests run")]

#[path = "../examples/random_access/buckets.rs"]
mod buckets;
#[path = "../examples/random_access/cli.rs"]
mod cli;
#[path = "../examples/random_access/error.rs"]
mod error;
#[path = "../examples/random_access/hpcc.rs"]
mod hpcc;
#[path = "../examples/random_access/report.rs"]
mod report;
#[path = "../examples/random_access/table.rs"]
mod table;
