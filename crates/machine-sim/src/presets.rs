//! Machines that are built in: the files of the folder `machines`. Each says which of its values are published,
//! and where.
//!
//! ```
//! use machine_sim::presets;
//!
//! let torus = presets::open("torus").unwrap();
//! assert_eq!(torus.ranks, 64);
//! let error = presets::open("taurus").unwrap_err().to_string();
//! assert!(error.starts_with("machine is taurus, but must be a file such as my.toml, or one of "), "{error}");
//! ```

use crate::MachineConfig;
use fabric_sim::ConfigError;
use std::path::Path;

/// A machine that is built in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Preset {
    /// The name by which it is asked for.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// Its file.
    pub toml: &'static str,
}

/// All of them.
pub const PRESETS: [Preset; 4] = [
    Preset {
        name: "loggopsim",
        about: "64 ranks of pure LogGOPS with LogGOPSim's default parameters",
        toml: include_str!("../machines/loggopsim.toml"),
    },
    Preset {
        name: "torus",
        about: "64 nodes in a 3D torus, an example in round numbers",
        toml: include_str!("../machines/torus.toml"),
    },
    Preset {
        name: "hdr_fat_tree",
        about: "256 nodes in a fat tree at the rates of 200 Gb/s InfiniBand",
        toml: include_str!("../machines/hdr_fat_tree.toml"),
    },
    Preset {
        name: "slingshot_dragonfly",
        about: "256 nodes in a dragonfly at the rates of Slingshot",
        toml: include_str!("../machines/slingshot_dragonfly.toml"),
    },
];

/// The names of all of them, with commas between.
pub fn names() -> String {
    PRESETS.map(|preset| preset.name).join(", ")
}

/// A machine by the path of its file, or by its name if it is built in: what has neither a folder nor an ending is
/// a name. Reads the file; blocks that long.
///
/// # Errors
/// As [`MachineConfig::from_file`](fabric_sim::Machine::from_file); or there is no machine of this name.
pub fn open(place: impl AsRef<Path>) -> Result<MachineConfig, ConfigError> {
    let place = place.as_ref();
    if let Some(preset) = PRESETS.iter().find(|preset| place == Path::new(preset.name)) {
        return MachineConfig::from_toml(preset.toml);
    }
    if place.extension().is_none() && place.components().count() == 1 && !place.exists() {
        let limit = format!("a file such as my.toml, or one of {}", names());
        return Err(ConfigError::range("machine", place.display(), limit));
    }
    MachineConfig::from_file(place)
}
