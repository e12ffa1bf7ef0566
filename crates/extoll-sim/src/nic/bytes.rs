//! What a packet carries: a few bytes in place, more of them shared.

use std::ops::Deref;
use std::rc::Rc;

/// Bytes that lie in the packet itself: as many as the largest VELO message has.
pub(crate) const INLINE: usize = 120;

/// Bytes under way. Clones of long ones share them, so that a packet kept for replay costs no copy.
#[derive(Clone)]
pub(crate) enum Bytes {
    Inline { len: u8, data: [u8; INLINE] },
    Shared(Rc<[u8]>),
}

impl Bytes {
    /// Copies bytes; allocates for more than [`INLINE`].
    pub(crate) fn new(bytes: &[u8]) -> Self {
        if bytes.len() > INLINE {
            return Self::Shared(bytes.into());
        }
        let mut data = [0; INLINE];
        data[..bytes.len()].copy_from_slice(bytes);
        Self::Inline { len: bytes.len() as u8, data }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Inline { len, data } => &data[..usize::from(*len)],
            Self::Shared(bytes) => bytes,
        }
    }
}
