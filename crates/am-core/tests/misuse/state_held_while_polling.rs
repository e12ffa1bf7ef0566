//! The state is not seen while handlers may change it.

use am_core::loopback::Loopback;
use am_core::*;

pub fn misuse(endpoint: &mut Endpoint<Loopback, u64>) -> u64 {
    let state = endpoint.state();
    let _ = endpoint.poll(); //~ E0502
    *state
}
