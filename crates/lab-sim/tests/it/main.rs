//! The integration tests of lab-sim, one program: each module is a program that users run.

mod figures;
mod random_access;
