//! What runs on the simulated machines and is not published: [`figures`], which reproduces published results and judges the
//! residuals, and [`random_access`], the benchmark in virtual time.
//!
//! The programs are the examples `figures` and `random_access_sim`; the benches in virtual time are targets of this package.

#![forbid(unsafe_code)]

pub mod figures;
pub mod random_access;
