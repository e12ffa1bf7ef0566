//! Active messages and point-to-point messages on the interface, as published.

pub mod pscom;
