//! An endpoint that has left is gone.

use am_core::loopback::Loopback;
use am_core::*;

pub fn misuse(mut endpoint: Endpoint<Loopback, ()>) {
    endpoint.leave();
    let _ = endpoint.barrier(); //~ E0382
}
