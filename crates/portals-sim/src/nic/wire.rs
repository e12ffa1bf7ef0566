//! What interfaces send each other.

use super::HostMemory;
use super::p3;
use super::p4::{self, CtEvent, CtHandle};
use fabric_sim::bytes::Bytes;

/// What packets of the simulated network carry. Opaque: only interfaces look inside.
#[derive(Clone)]
pub struct Wire(pub(crate) Body);

#[derive(Clone)]
pub(crate) enum Body {
    P3(p3::unit::Message),
    P4(p4::unit::Message),
    /// A counter of Portals 4 moves; it never leaves the interface.
    Count(CtHandle, CtEvent),
    /// A message whose bytes are read when it leaves; in this form it never leaves the interface.
    Held(Box<(Body, Option<(HostMemory, usize)>)>),
}

impl Body {
    /// The bytes that it carries.
    pub(crate) fn data(&mut self) -> Option<&mut Bytes> {
        match self {
            Self::P3(message) => message.data(),
            Self::P4(message) => message.data(),
            Self::Count(..) => None,
            Self::Held(held) => held.0.data(),
        }
    }
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wire")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Millions of them may be under way.
    #[test]
    fn messages_are_small() {
        assert!(size_of::<Wire>() <= 72, "{} bytes", size_of::<Wire>());
        assert!(size_of::<p3::unit::Message>() <= 64, "{} bytes", size_of::<p3::unit::Message>());
    }
}
