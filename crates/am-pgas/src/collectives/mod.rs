//! Collective operations on teams.

pub mod algorithms;
#[cfg(test)]
mod model;
pub mod schedule;
