//! What fuzzers and ordinary tests call alike: files that users write.

use crate::ExtollConfig;
use crate::model::Parameters;

/// The text of a machine's file, and a table of parameters: returns whether any of them is taken.
///
/// # Panics
/// If what was taken is refused when it is checked again.
pub fn machine(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let mut taken = false;
    if let Ok(config) = ExtollConfig::from_toml(text) {
        taken = true;
        assert_eq!(config.check(), Ok(()));
    }
    taken |= Parameters::from_toml(text).is_ok();
    taken
}
