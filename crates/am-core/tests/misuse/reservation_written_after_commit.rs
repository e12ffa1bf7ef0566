//! A committed reservation cannot be written any more.

use am_core::loopback::Loopback;
use am_core::*;

pub fn misuse(endpoint: &mut Endpoint<Loopback, ()>, note: Request<()>) {
    if let Ok(mut room) = endpoint.reserve_medium(Rank(0), note, (), 8) {
        room.commit();
        room.write_u64(0, 1); //~ E0382
    }
}
