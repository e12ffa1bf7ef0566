//! What the operating system allows: whether there can be stacks for so many ranks, and whether their conduits fit
//! the memory that is there, said before the first one is made.

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
/// ```
/// let memory = fabric_sim::RankMemory { rank: 100_000, partner: 2_000, other: 10 };
/// assert_eq!(memory.bytes(1001), 1001 * (100_000 + 6 * 2_000 + 1000 * 10));
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
}

impl RankMemory {
    /// To how many others a rank is taken to talk, if there are as many: the neighbours in a torus of three
    /// dimensions.
    pub const PARTNERS: u32 = 6;

    /// Bytes of so many ranks.
    pub fn bytes(&self, ranks: u32) -> u64 {
        let others = u64::from(ranks.saturating_sub(1));
        let each = self.rank + self.partner * others.min(Self::PARTNERS.into()) + self.other * others;
        each.saturating_mul(ranks.into())
    }

    /// Checks that so many ranks fit the memory that the system says is available at this moment.
    ///
    /// # Errors
    /// [`ConfigError`] says how much they take, how much there is, and how many would fit.
    pub fn check(&self, ranks: u32) -> Result<(), ConfigError> {
        // Of what any system has, it need not be asked.
        if ASSUMED.get().is_none() && self.bytes(ranks) < 64 << 20 {
            return Ok(());
        }
        let asked = || Limits::now().available_kib.map(|kib| kib << 10);
        ASSUMED.get().or_else(asked).map_or(Ok(()), |available| self.check_in(ranks, available))
    }

    /// Checks that so many ranks fit so many bytes.
    ///
    /// # Errors
    /// As [`RankMemory::check`].
    pub fn check_in(&self, ranks: u32, available: u64) -> Result<(), ConfigError> {
        let (needed, mib) = (self.bytes(ranks), |bytes: u64| bytes.div_ceil(1 << 20));
        if needed <= available {
            return Ok(());
        }
        let (mut fit, mut too_many) = (0, ranks);
        while too_many - fit > 1 {
            let middle = fit + (too_many - fit) / 2;
            if self.bytes(middle) <= available { fit = middle } else { too_many = middle }
        }
        let limit = format!(
            "at most {fit}: {ranks} ranks of this conduit take {} MiB of memory ({} KiB each), and {} MiB are available; ask for \
             fewer ranks, or make memory free",
            mib(needed),
            needed / u64::from(ranks) / 1024,
            available >> 20
        );
        Err(ConfigError::range("ranks", ranks, limit))
    }
}

/// Limits of this process at this moment; what the system does not tell does not limit.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Most and used.
    mappings: Option<(u64, u64)>,
    available_kib: Option<u64>,
    /// Most and used.
    address_kib: Option<(u64, u64)>,
}

impl Limits {
    fn now() -> Self {
        let most = fs::read_to_string("/proc/sys/vm/max_map_count").ok().and_then(|text| text.trim().parse().ok());
        let used = fs::read("/proc/self/maps").ok().map(|text| text.iter().filter(|byte| **byte == b'\n').count());
        let memory = fs::read_to_string("/proc/meminfo").ok();
        let line =
            memory.as_deref().and_then(|text| text.lines().find_map(|line| line.strip_prefix("MemAvailable:")));
        let kib = |line: &str| line.trim().trim_end_matches("kB").trim_end().parse::<u64>().ok();
        let limits = fs::read_to_string("/proc/self/limits").ok();
        let space = limits.as_deref().and_then(|text| text.lines().find_map(|line| line.strip_prefix(ADDRESS)));
        // Most systems set no limit, and say so by a word.
        let space = space.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        let status = fs::read_to_string("/proc/self/status").ok();
        let mapped = status.as_deref().and_then(|text| text.lines().find_map(|line| line.strip_prefix("VmSize:")));
        Self {
            mappings: most.zip(used.map(|used| used as u64)),
            available_kib: line.and_then(kib),
            address_kib: space.map(|bytes| bytes / 1024).zip(mapped.and_then(kib)),
        }
    }

    fn check(self, ranks: u32, stack_bytes: usize) -> Result<(), ConfigError> {
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

/// The line of the system's limits of a process.
const ADDRESS: &str = "Max address space";

/// Checks that this process can have stacks of so many bytes for so many ranks.
pub(crate) fn check(ranks: u32, stack_bytes: usize) -> Result<(), ConfigError> {
    let large = ranks >= LARGE || stack_bytes as u64 * u64::from(ranks) >= 256 << 20;
    if large { Limits::now().check(ranks, stack_bytes) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STACK: usize = 256 << 10;

    #[test]
    fn too_many_ranks_name_what_they_are_too_many_for() {
        let limits = Limits { mappings: Some((65_530, 100)), available_kib: Some(1 << 20), address_kib: None };
        assert!(limits.check(32_587, STACK).is_ok());
        assert_eq!(
            limits.check(32_588, STACK).unwrap_err().to_string(),
            "ranks is 32588, but must be at most 32587: a rank's stack takes 2 memory mappings, of which this process has 100 \
             and the system allows 65530 (vm.max_map_count)"
        );
        let poor = Limits { available_kib: Some(120_000), ..limits };
        assert_eq!(
            poor.check(10_001, STACK).unwrap_err().to_string(),
            "ranks is 10001, but must be at most 10000: a rank takes 12 KiB of memory or more, and 117 MiB are available"
        );
        assert!(poor.check(10_000, STACK).is_ok());
        assert!(Limits { mappings: None, available_kib: None, address_kib: None }.check(u32::MAX, STACK).is_ok());
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
        let memory = RankMemory { rank: 100_000, partner: 19_000, other: 10 };
        assert_eq!(memory.bytes(1), 100_000);
        assert_eq!(memory.bytes(3), 3 * (100_000 + 2 * 19_000 + 2 * 10));
        assert!(memory.check_in(16_384, memory.bytes(16_384)).is_ok());
        let error = memory.check_in(16_384, 4 << 30).unwrap_err().to_string();
        assert_eq!(
            error,
            "ranks is 16384, but must be at most 12623: 16384 ranks of this conduit take 5904 MiB of memory (368 KiB each), and \
             4096 MiB are available; ask for fewer ranks, or make memory free"
        );
        assert!(memory.bytes(12_623) <= 4 << 30 && memory.bytes(12_624) > 4 << 30);
        assume_memory(Some(1 << 20));
        assert!(memory.check(3).is_ok() && memory.check(10).is_err());
        assume_memory(None);
        assert!(memory.check(10).is_ok());
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
