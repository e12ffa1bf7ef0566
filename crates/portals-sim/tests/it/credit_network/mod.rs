//! The bank policy between several nodes: every schedule of a small network, random schedules of larger ones, and
//! deliberate mistakes that the checks must find.

mod exhaustive;
mod invariants;
mod mutations;
mod net;
mod random;
mod scenarios;
mod scheduler;
