//! An endpoint that has finished is gone.

use am_core::loopback::Loopback;
use am_core::*;

pub fn misuse(mut endpoint: Endpoint<Loopback, ()>) {
    let _ = endpoint.finish();
    let _ = endpoint.poll(); //~ E0382
}
