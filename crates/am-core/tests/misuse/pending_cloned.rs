//! A pending reply cannot be cloned.

use am_core::*;

pub fn misuse(pending: PendingReply) {
    let _second = pending.clone(); //~ E0599
}
