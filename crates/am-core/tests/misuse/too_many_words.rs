//! Arguments of more than sixteen words do not compile.

use am_core::loopback::Loopback;
use am_core::*;

pub fn misuse(endpoint: &mut Endpoint<Loopback, ()>, sixteen: Request<[u32; 16]>, more: Request<[u32; 17]>) {
    let _ = endpoint.request(Rank(0), sixteen, [0; 16]);
    let _ = endpoint.request(Rank(0), more, [0; 17]); //~~ E0080
}
