//! The integration tests of lab-sim, one program: each module is a program that users run.

mod calls_lost;
mod exanet_programs;
mod figures;
mod limits;
mod pictures;
mod random_access;
mod scale;
mod simulate;
