//! What the operating system allows: whether there can be stacks for so many ranks, said before the first one is
//! made.

use crate::error::ConfigError;
use std::fs;

/// Memory mappings of a rank: its stack, and a page that nobody may touch below it.
const MAPPINGS: u64 = 2;
/// Memory that a rank takes at least, in KiB: two pages of its stack, and what the kernel and the machine keep for
/// it.
const MEMORY_KIB: u64 = 12;
/// Mappings left for everything else that the process may still do.
const SPARE: u64 = 256;
/// Runs with fewer ranks are not worth the look.
const LARGE: u32 = 1024;

/// Limits of this process at this moment; what the system does not tell does not limit.
#[derive(Clone, Copy, Debug)]
struct Limits {
    mappings: Option<(u64, u64)>,
    available_kib: Option<u64>,
}

impl Limits {
    fn now() -> Self {
        let most = fs::read_to_string("/proc/sys/vm/max_map_count").ok().and_then(|text| text.trim().parse().ok());
        let used = fs::read("/proc/self/maps").ok().map(|text| text.iter().filter(|byte| **byte == b'\n').count());
        let memory = fs::read_to_string("/proc/meminfo").ok();
        let line =
            memory.as_deref().and_then(|text| text.lines().find_map(|line| line.strip_prefix("MemAvailable:")));
        Self {
            mappings: most.zip(used.map(|used| used as u64)),
            available_kib: line.and_then(|line| line.trim().trim_end_matches("kB").trim_end().parse().ok()),
        }
    }

    fn check(self, ranks: u32) -> Result<(), ConfigError> {
        if let Some((most, used)) = self.mappings {
            let possible = most.saturating_sub(used + SPARE) / MAPPINGS;
            if u64::from(ranks) > possible {
                let limit = format!(
                    "at most {possible}: a rank's stack takes {MAPPINGS} memory mappings, of which this process has {used} and \
                     the system allows {most} (vm.max_map_count)"
                );
                return Err(ConfigError::range("ranks", ranks, limit));
            }
        }
        if let Some(available) = self.available_kib {
            let possible = available / MEMORY_KIB;
            if u64::from(ranks) > possible {
                let limit = format!(
                    "at most {possible}: a rank takes {MEMORY_KIB} KiB of memory or more, and {} MiB are available",
                    available / 1024
                );
                return Err(ConfigError::range("ranks", ranks, limit));
            }
        }
        Ok(())
    }
}

/// Checks that this process can have the stacks of so many ranks.
pub(crate) fn check(ranks: u32) -> Result<(), ConfigError> {
    if ranks < LARGE { Ok(()) } else { Limits::now().check(ranks) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_ranks_name_what_they_are_too_many_for() {
        let limits = Limits { mappings: Some((65_530, 100)), available_kib: Some(1 << 20) };
        assert!(limits.check(32_587).is_ok());
        assert_eq!(
            limits.check(32_588).unwrap_err().to_string(),
            "ranks is 32588, but must be at most 32587: a rank's stack takes 2 memory mappings, of which this process has 100 \
             and the system allows 65530 (vm.max_map_count)"
        );
        let poor = Limits { available_kib: Some(120_000), ..limits };
        assert_eq!(
            poor.check(10_001).unwrap_err().to_string(),
            "ranks is 10001, but must be at most 10000: a rank takes 12 KiB of memory or more, and 117 MiB are available"
        );
        assert!(poor.check(10_000).is_ok());
        assert!(Limits { mappings: None, available_kib: None }.check(u32::MAX).is_ok());
    }

    #[test]
    fn a_linux_system_tells_its_limits() {
        let limits = Limits::now();
        if cfg!(target_os = "linux") {
            assert!(limits.mappings.is_some_and(|(most, used)| most > used && used > 0), "{limits:?}");
            assert!(limits.available_kib.is_some_and(|available| available > 0), "{limits:?}");
        }
    }
}
