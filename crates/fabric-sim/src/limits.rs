//! What the operating system allows: whether there can be stacks for so many ranks, and whether their conduits fit
//! the memory that is there, said before the first one is made.

use crate::available::{self, Available};
use crate::error::ConfigError;
use std::cell::Cell;
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
/// Address space left for everything else that the process may still map, in KiB.
const SPARE_KIB: u64 = 64 << 10;
/// Below a stack lies a page that nobody may touch.
const GUARD_KIB: u64 = 4;

thread_local! {
    /// Bytes that tests say are available.
    static ASSUMED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Lets runs of this thread find so many bytes of memory available; `None`: what the system says.
#[doc(hidden)]
pub fn assume_memory(bytes: Option<u64>) {
    ASSUMED.set(bytes);
}

/// What a rank of a conduit takes of the system's memory, with its stack, its interface and its part of the
/// engine. Each conduit has its own, as measured with small stacks and segments, and Mediums of 512 bytes
/// (`full_memory_of_ranks`, `lab-sim`). Not counted, since nobody knows before a run: pages of segments and deeper
/// stacks that a program touches, more partners than [`RankMemory::PARTNERS`], and a trace, which takes 64 bytes
/// for each stage of each packet.
///
/// What there is, is what the system says is available (`MemAvailable`), or what the limits of the control groups
/// that the process is in leave (a container's, versions 1 and 2) where that is less. The environment's
/// `AM_SIM_MEMORY_MIB` is used in its place; 0 lets every run begin.
///
/// ```
/// let memory = fabric_sim::RankMemory { rank: 100_000, partner: 2_000, other: 10, twice: 3_000 };
/// assert_eq!(memory.bytes(1001), 1001 * (100_000 + 6 * 2_000 + 1000 * 10));
/// assert_eq!(memory.in_halves().bytes(1001), 1001 * (103_000 + 6 * 2_000 + 1000 * 10));
/// memory.check_in(1001, 1 << 30).unwrap();
/// memory.check_in(1001, 100 << 20).unwrap_err();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankMemory {
    /// Bytes of a rank that talks to nobody.
    pub rank: u64,
    /// Bytes more for each other rank that it talks to.
    pub partner: u64,
    /// Bytes more for each other rank of the job, whether it talks to it or not.
    pub other: u64,
    /// Bytes more of a run in halves, of which each makes the interfaces of all nodes.
    pub twice: u64,
}

impl RankMemory {
    /// To how many others a rank is taken to talk, if there are as many: the neighbours in a torus of three
    /// dimensions.
    pub const PARTNERS: u32 = 6;

    /// What a rank takes in a run in halves.
    pub fn in_halves(&self) -> Self {
        Self { rank: self.rank + self.twice, ..*self }
    }

    /// Bytes of so many ranks.
    pub fn bytes(&self, ranks: u32) -> u64 {
        let others = u64::from(ranks.saturating_sub(1));
        let each = self.rank + self.partner * others.min(Self::PARTNERS.into()) + self.other * others;
        each.saturating_mul(ranks.into())
    }

    /// Checks that so many ranks fit the memory that this process may take at this moment.
    ///
    /// # Errors
    /// [`ConfigError`] says how much they take, how much there is and who says so, how many would fit, and what
    /// can be done; or that `AM_SIM_MEMORY_MIB` is no number.
    pub fn check(&self, ranks: u32) -> Result<(), ConfigError> {
        let available = match ASSUMED.get() {
            Some(bytes) => Some(Available::of(bytes)),
            // Of what any system has, it need not be asked.
            None if self.bytes(ranks) < 64 << 20 && !available::is_told() => None,
            None => Available::now()?,
        };
        available.map_or(Ok(()), |available| self.check_with(ranks, &available))
    }

    /// Checks that so many ranks fit so many bytes.
    ///
    /// # Errors
    /// As [`RankMemory::check`].
    pub fn check_in(&self, ranks: u32, available: u64) -> Result<(), ConfigError> {
        self.check_with(ranks, &Available::of(available))
    }

    fn check_with(&self, ranks: u32, available: &Available) -> Result<(), ConfigError> {
        let (needed, mib) = (self.bytes(ranks), |bytes: u64| bytes.div_ceil(1 << 20));
        if needed <= available.bytes {
            return Ok(());
        }
        let (mut fit, mut too_many) = (0, ranks);
        while too_many - fit > 1 {
            let middle = fit + (too_many - fit) / 2;
            if self.bytes(middle) <= available.bytes { fit = middle } else { too_many = middle }
        }
        let limit = format!(
            "at most {fit}: {ranks} ranks of this conduit take {} MiB of memory ({} KiB each, if each talks to {} others), and \
             {available}; ask for fewer ranks, {}",
            mib(needed),
            needed / u64::from(ranks) / 1024,
            ranks.saturating_sub(1).min(Self::PARTNERS),
            available.remedy()
        );
        Err(ConfigError::range("ranks", ranks, limit))
    }
}

/// Limits of this process at this moment; what the system does not tell does not limit.
#[derive(Clone, Debug)]
struct Limits {
    /// Most and used.
    mappings: Option<(u64, u64)>,
    available: Option<Available>,
    /// Most and used.
    address_kib: Option<(u64, u64)>,
}

impl Limits {
    fn now() -> Result<Self, ConfigError> {
        let most = fs::read_to_string("/proc/sys/vm/max_map_count").ok().and_then(|text| text.trim().parse().ok());
        let used = fs::read("/proc/self/maps").ok().map(|text| text.iter().filter(|byte| **byte == b'\n').count());
        let kib = |line: &str| line.trim().trim_end_matches("kB").trim_end().parse::<u64>().ok();
        let limits = fs::read_to_string("/proc/self/limits").ok();
        let space = limits.as_deref().and_then(|text| text.lines().find_map(|line| line.strip_prefix(ADDRESS)));
        // Most systems set no limit, and say so by a word.
        let space = space.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        let status = fs::read_to_string("/proc/self/status").ok();
        let mapped = status.as_deref().and_then(|text| text.lines().find_map(|line| line.strip_prefix("VmSize:")));
        Ok(Self {
            mappings: most.zip(used.map(|used| used as u64)),
            available: Available::now()?,
            address_kib: space.map(|bytes| bytes / 1024).zip(mapped.and_then(kib)),
        })
    }

    fn check(&self, ranks: u32, stack_bytes: usize) -> Result<(), ConfigError> {
        if let Some((most, used)) = self.address_kib {
            let (room, each) = (most.saturating_sub(used + SPARE_KIB), stack_bytes as u64 / 1024 + GUARD_KIB);
            let possible = room / each;
            if u64::from(ranks) > possible {
                let limit = format!(
                    "at most {possible}: {ranks} stacks take {} MiB of address space, of which this process has {} MiB and may \
                     have {} (ulimit -v); ask for fewer ranks, lower stack_bytes, which is {stack_bytes}, or raise that limit",
                    (each * u64::from(ranks)).div_ceil(1024),
                    used / 1024,
                    most / 1024
                );
                return Err(ConfigError::range("ranks", ranks, limit));
            }
        }
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
        if let Some(available) = &self.available {
            let possible = (available.bytes >> 10) / MEMORY_KIB;
            if u64::from(ranks) > possible {
                let limit = format!(
                    "at most {possible}: a rank takes {MEMORY_KIB} KiB of memory or more, and {available}; ask for fewer ranks, {}",
                    available.remedy()
                );
                return Err(ConfigError::range("ranks", ranks, limit));
            }
        }
        Ok(())
    }
}

/// The line of the system's limits of a process.
const ADDRESS: &str = "Max address space";

/// Checks that this process can have stacks of so many bytes for so many ranks.
pub(crate) fn check(ranks: u32, stack_bytes: usize) -> Result<(), ConfigError> {
    let large = ranks >= LARGE || stack_bytes as u64 * u64::from(ranks) >= 256 << 20;
    if large { Limits::now()?.check(ranks, stack_bytes) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STACK: usize = 256 << 10;

    #[test]
    fn too_many_ranks_name_what_they_are_too_many_for() {
        let limits =
            Limits { mappings: Some((65_530, 100)), available: Some(Available::of(1 << 30)), address_kib: None };
        assert!(limits.check(32_587, STACK).is_ok());
        assert_eq!(
            limits.check(32_588, STACK).unwrap_err().to_string(),
            "ranks is 32588, but must be at most 32587: a rank's stack takes 2 memory mappings, of which this process has 100 \
             and the system allows 65530 (vm.max_map_count)"
        );
        let poor = Limits { available: Some(Available::of(120_000 << 10)), ..limits.clone() };
        assert_eq!(
            poor.check(10_001, STACK).unwrap_err().to_string(),
            "ranks is 10001, but must be at most 10000: a rank takes 12 KiB of memory or more, and 117 MiB are available; \
             ask for fewer ranks, make memory free, or set AM_SIM_MEMORY_MIB to what the run may take (0: no limit)"
        );
        assert!(poor.check(10_000, STACK).is_ok());
        assert!(Limits { mappings: None, available: None, address_kib: None }.check(u32::MAX, STACK).is_ok());
        // 1000 stacks and their guards are 256,000 KiB.
        let narrow = Limits { address_kib: Some((400_000, 400_000 - SPARE_KIB - 260_000)), ..limits };
        assert!(narrow.check(1000, STACK).is_ok());
        assert_eq!(
            narrow.check(1001, STACK).unwrap_err().to_string(),
            "ranks is 1001, but must be at most 1000: 1001 stacks take 255 MiB of address space, of which this process has 72 MiB \
             and may have 390 (ulimit -v); ask for fewer ranks, lower stack_bytes, which is 262144, or raise that limit"
        );
    }

    #[test]
    fn a_conduit_that_does_not_fit_is_told_with_all_numbers() {
        let memory = RankMemory { rank: 100_000, partner: 19_000, other: 10, twice: 0 };
        assert_eq!(memory.bytes(1), 100_000);
        assert_eq!(memory.bytes(3), 3 * (100_000 + 2 * 19_000 + 2 * 10));
        assert!(memory.check_in(16_384, memory.bytes(16_384)).is_ok());
        let error = memory.check_in(16_384, 4 << 30).unwrap_err().to_string();
        assert_eq!(
            error,
            "ranks is 16384, but must be at most 12623: 16384 ranks of this conduit take 5904 MiB of memory (368 KiB \
             each, if each talks to 6 others), and 4096 MiB are available; ask for fewer ranks, make memory free, \
             or set AM_SIM_MEMORY_MIB to what the run may take (0: no limit)"
        );
        assert!(memory.bytes(12_623) <= 4 << 30 && memory.bytes(12_624) > 4 << 30);
        assume_memory(Some(1 << 20));
        assert!(memory.check(3).is_ok() && memory.check(10).is_err());
        assume_memory(None);
        assert!(memory.check(10).is_ok());
    }

    #[test]
    fn a_linux_system_tells_its_limits() {
        let limits = Limits::now().unwrap();
        if cfg!(target_os = "linux") {
            assert!(limits.mappings.is_some_and(|(most, used)| most > used && used > 0), "{limits:?}");
            assert!(limits.available.as_ref().is_some_and(|available| available.bytes > 0), "{limits:?}");
        }
    }
}
