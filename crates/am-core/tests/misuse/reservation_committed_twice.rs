//! A reservation is used up by its commit.

use am_core::loopback::Loopback;
use am_core::*;

pub fn misuse(endpoint: &mut Endpoint<Loopback, ()>, note: Request<()>) {
    if let Ok(room) = endpoint.reserve_medium(Rank(0), note, (), 8) {
        room.commit();
        room.commit(); //~ E0382
    }
}
