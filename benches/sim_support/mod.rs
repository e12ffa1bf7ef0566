//! Everything behind the bench of the simulator: how figures of both kinds of time are measured, and one module
//! for each group of them.

pub(crate) mod collectives;
pub(crate) mod engine;
pub(crate) mod extoll;
pub(crate) mod fabric;
pub(crate) mod many;
pub(crate) mod measure;
pub(crate) mod parallel;
pub(crate) mod picture;
pub(crate) mod portals;
pub(crate) mod sci;
pub(crate) mod traffic;
