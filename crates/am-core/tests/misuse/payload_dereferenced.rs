//! A payload does not dereference to a slice.

use am_core::*;

pub fn misuse(payload: Payload<'_>) {
    let _bytes = &payload[..]; //~ E0608
}
