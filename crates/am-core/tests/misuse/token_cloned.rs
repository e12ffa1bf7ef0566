//! A token cannot be cloned.

use am_core::*;

pub fn misuse(token: Token<'_>) {
    let _second = token.clone(); //~ E0599
}
