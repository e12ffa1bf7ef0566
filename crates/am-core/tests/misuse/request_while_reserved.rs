//! Nothing else is sent while a reservation is open.

use am_core::loopback::Loopback;
use am_core::*;

pub fn misuse(endpoint: &mut Endpoint<Loopback, ()>, note: Request<()>) {
    if let Ok(room) = endpoint.reserve_medium(Rank(0), note, (), 8) {
        let _ = endpoint.request(Rank(0), note, ()); //~ E0499
        room.commit();
    }
}
