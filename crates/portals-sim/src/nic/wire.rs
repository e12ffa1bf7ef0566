//! What interfaces send each other.

use super::HostMemory;
use super::p3;
use super::p4::{self, CtEvent, CtHandle};
use fabric_sim::bytes::{Bytes, Detached, Pool};

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

/// What crosses between the halves of a machine. Opaque, as [`Wire`] is.
pub struct Crossed(CrossedBody);

enum CrossedBody {
    P3(p3::unit::Message<Detached>),
    P4(p4::unit::Message<Detached>),
}

impl Wire {
    /// It leaves its half of the machine.
    pub(crate) fn cross(self) -> Crossed {
        let detach = |bytes: Bytes| Detached::new(&bytes);
        Crossed(match self.0 {
            Body::P3(message) => CrossedBody::P3(message.map(detach)),
            Body::P4(message) => CrossedBody::P4(message.map(detach)),
            Body::Count(..) | Body::Held(_) => unreachable!("it never leaves the interface"),
        })
    }

    /// It comes into another half.
    pub(crate) fn crossed(Crossed(body): Crossed, pool: &Pool) -> Self {
        Self(match body {
            CrossedBody::P3(message) => Body::P3(message.map(|bytes| bytes.fill(pool))),
            CrossedBody::P4(message) => Body::P4(message.map(|bytes| bytes.fill(pool))),
        })
    }
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
