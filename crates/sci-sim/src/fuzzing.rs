//! What fuzzers and ordinary tests call alike: files that users write.

use crate::SciConfig;
use crate::conduit::NodeMap;
use crate::model::Parameters;

/// The text of a machine's file, a table of parameters, and a conduit's configuration with a job file behind a
/// line `---`: returns whether any of them is taken.
///
/// # Panics
/// If what was taken is refused when it is checked again, or a rank of a job has no machine.
pub fn machine(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let mut taken = false;
    if let Ok(config) = SciConfig::from_toml(text) {
        taken = true;
        assert_eq!(config.check(), Ok(()));
    }
    taken |= Parameters::from_toml(text).is_ok();
    let (configuration, job) =
        text.split_once("---\n").map_or((text, None), |(first, second)| (first, Some(second)));
    if let Ok(map) = NodeMap::parse(configuration, job) {
        taken = true;
        assert!(map.ranks() > 0);
        for rank in 0..map.ranks() {
            assert!(map.node(rank).is_some() && map.name(rank).and_then(|name| map.rank_of(name)) == Some(rank));
        }
    }
    taken
}
