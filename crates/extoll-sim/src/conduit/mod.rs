//! Active messages and point-to-point messages on the interface, as published.

pub mod gasnet;
pub mod pscom;
