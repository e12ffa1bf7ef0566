//! The parts of the UDP bench: what raw sockets do, what active messages do, the cases, and how they are measured.

pub(crate) mod am;
pub(crate) mod cases;
pub(crate) mod measure;
pub(crate) mod picture;
pub(crate) mod random_access;
pub(crate) mod raw;
