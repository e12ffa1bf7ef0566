//! What fuzzers and ordinary tests call alike: files that users write.

use crate::MachineConfig;
use crate::goal::Schedule;
use crate::model::Parameters;

pub use fabric_sim::fuzzing::graph;

/// The text of a machine's file, and a table of parameters: returns whether any of them is taken.
///
/// # Panics
/// If what was taken is refused when it is checked again.
pub fn machine(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let mut taken = false;
    if let Ok(config) = MachineConfig::from_toml(text) {
        taken = true;
        assert_eq!(config.check(), Ok(()));
    }
    taken |= Parameters::from_toml(text).is_ok();
    taken
}

/// The text of a schedule: returns whether it is one.
///
/// # Panics
/// If a refusal names a line that the text does not have.
pub fn schedule(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    match text.parse::<Schedule>() {
        Ok(_) => true,
        Err(error) => {
            assert!(error.line <= text.lines().count().max(1), "{error}");
            false
        }
    }
}
