//! A payload is never a slice: the sender may still write it.

use am_core::*;

pub fn misuse(payload: Payload<'_>) {
    let _bytes: &[u8] = &payload; //~ E0308
}
