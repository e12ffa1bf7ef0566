//! Everything behind the bench of SCI's mapped conduit.

pub(crate) mod cases;
pub(crate) mod pair;
pub(crate) mod picture;
