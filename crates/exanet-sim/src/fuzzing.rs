//! What fuzzers and ordinary tests call alike: files that users write, and what ranks put into packets.

use crate::ExanetConfig;
use crate::model::Parameters;

/// The text of a machine's file, and a table of parameters: returns whether any of them is taken.
///
/// # Panics
/// If what was taken is refused when it is checked again.
pub fn machine(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let mut taken = false;
    if let Ok(config) = ExanetConfig::from_toml(text) {
        taken = true;
        assert_eq!(config.check(), Ok(()));
    }
    taken |= Parameters::from_toml(text).is_ok();
    taken
}

/// The bytes of a frame of the conduit and of a packet of MPI: returns whether they are any of them.
///
/// # Panics
/// If what was taken says that it has more bytes than there are.
pub fn frame(data: &[u8]) -> bool {
    let frame = crate::conduit::reads_as_frame(data);
    crate::mpi::reads_as_packet(data) | frame
}
