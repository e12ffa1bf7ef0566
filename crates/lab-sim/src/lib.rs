//! What runs on the simulated machines and is not published: [`figures`], which reproduces published results and
//! judges the residuals, [`random_access`], the benchmark in virtual time, and [`simulate`], which measures and
//! loads a machine of one's own.
//!
//! [`conduits`] runs a program on any of them.
//!
//! The programs are the examples `figures`, `random_access_sim` and `simulate`; the benches in virtual time are
//! targets of this package.

#![forbid(unsafe_code)]

pub mod conduits;
pub mod figures;
pub mod random_access;
pub mod simulate;
