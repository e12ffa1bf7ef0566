//! What fuzzers and ordinary tests call alike: each target turns bytes into what a faulty rank writes, and panics
//! if a sound one does what it must not.

pub use crate::transport::faulty::{frame, memory};
