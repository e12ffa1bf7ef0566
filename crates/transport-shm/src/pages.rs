//! Whether the system gives large pages to segments that ask for them.

use crate::layout::LARGE_PAGE;
use std::fmt;

/// Where the system says what it does when shared memory asks for large pages.
const SETTING: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

/// What the system does when a segment of 2 MiB or more asks for large pages. A segment that gets none works as
/// well, but random accesses to much of it are slower.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LargePages {
    /// It gives them, as far as there are any.
    Given,
    /// It gives small ones, by this setting.
    Refused {
        /// The word of the setting that is in force.
        setting: String,
    },
    /// The system does not say: it has no such setting.
    Unknown,
}

impl LargePages {
    /// What the system says at present.
    pub fn of_system() -> Self {
        std::fs::read_to_string(SETTING).map_or(Self::Unknown, |text| Self::of(&text))
    }

    /// What a setting means: a row of words, of which that in brackets is in force.
    fn of(text: &str) -> Self {
        let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        match chosen.map(|(setting, _)| setting) {
            Some("always" | "within_size" | "advise" | "force") => Self::Given,
            Some(setting) => Self::Refused { setting: setting.into() },
            None => Self::Unknown,
        }
    }

    /// What to tell the user of a segment of so many bytes: nothing where it has large pages, or is smaller than
    /// one.
    pub fn fallback(&self, segment_bytes: usize) -> Option<String> {
        match self {
            Self::Refused { setting } if segment_bytes >= LARGE_PAGE => {
                Some(format!("segments in small pages ({SETTING} is {setting}; advise gives segments large ones)"))
            }
            _ => None,
        }
    }
}

impl fmt::Display for LargePages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given => f.write_str("given"),
            Self::Refused { setting } => write!(f, "refused ({setting})"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_in_force_counts() {
        let refused = |setting: &str| LargePages::Refused { setting: setting.into() };
        for (text, expected) in [
            ("always within_size advise [never] deny force\n", refused("never")),
            ("always within_size advise never [deny] force\n", refused("deny")),
            ("always within_size [advise] never deny force\n", LargePages::Given),
            ("[always] within_size advise never deny force\n", LargePages::Given),
            ("always within_size advise never deny [force]\n", LargePages::Given),
            ("", LargePages::Unknown),
        ] {
            assert_eq!(LargePages::of(text), expected, "{text}");
        }
    }

    #[test]
    fn large_segments_in_small_pages_are_told() {
        let refused = LargePages::of("[never]");
        assert!(
            refused.fallback(LARGE_PAGE).is_some_and(|told| told.contains("never") && told.contains("advise"))
        );
        assert_eq!(refused.fallback(LARGE_PAGE - 1), None);
        assert_eq!(LargePages::of("[advise]").fallback(1 << 30), None);
        assert_eq!(LargePages::Unknown.fallback(1 << 30), None);
    }
}
