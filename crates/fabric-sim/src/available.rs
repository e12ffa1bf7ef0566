//! How much memory this process may still take: what the system has left, what the control groups that the process
//! is in leave, or what the user says.

use crate::error::ConfigError;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// The variable by which a user says how much memory a run may take, in MiB; 0: whatever it asks for.
const VARIABLE: &str = "AM_SIM_MEMORY_MIB";

/// Memory that a run may take, and who says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Available {
    pub(crate) bytes: u64,
    by: By,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum By {
    System,
    /// The file with the limit.
    Group(PathBuf),
    User,
    /// The caller of a check.
    Caller,
}

impl Available {
    /// What a caller says.
    pub(crate) fn of(bytes: u64) -> Self {
        Self { bytes, by: By::Caller }
    }

    /// What there is at this moment; `None` where nobody limits it.
    ///
    /// # Errors
    /// The user's variable has no number.
    pub(crate) fn now() -> Result<Option<Self>, ConfigError> {
        let told = std::env::var_os(VARIABLE).map(|text| text.to_string_lossy().into_owned());
        Self::with(told.as_deref(), Path::new("/"))
    }

    /// The same where the user's variable is this, and the system's files are below a folder.
    fn with(told: Option<&str>, root: &Path) -> Result<Option<Self>, ConfigError> {
        let Some(told) = told else {
            let groups = of_groups(root).into_iter().map(|(bytes, file)| Self { bytes, by: By::Group(file) });
            let system = of_system(root).map(|bytes| Self { bytes, by: By::System });
            return Ok(groups.chain(system).min_by_key(|available| available.bytes));
        };
        match told.trim().parse::<u64>() {
            Ok(0) => Ok(None),
            Ok(mib) => Ok(Some(Self { bytes: mib.saturating_mul(1 << 20), by: By::User })),
            Err(_) => {
                Err(ConfigError::range(VARIABLE, format!("'{told}'"), "a whole number of MiB, 0 for no limit"))
            }
        }
    }

    /// What a user can do about it.
    pub(crate) fn remedy(&self) -> String {
        match &self.by {
            By::User => format!("or raise {VARIABLE}"),
            By::Group(_) => format!("raise that limit, or set {VARIABLE} to what the run may take (0: no limit)"),
            By::System | By::Caller => {
                format!("make memory free, or set {VARIABLE} to what the run may take (0: no limit)")
            }
        }
    }
}

impl fmt::Display for Available {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = self.bytes >> 20;
        match &self.by {
            By::System | By::Caller => write!(f, "{mib} MiB are available"),
            By::Group(file) => write!(f, "{mib} MiB are left of the limit in {}", file.display()),
            By::User => write!(f, "{VARIABLE} is {mib}"),
        }
    }
}

/// Whether the user says something.
pub(crate) fn is_told() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// What the system says it could give.
fn of_system(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().trim_end_matches("kB").trim_end().parse::<u64>().ok()? << 10)
}

/// What each control group that the process is in, and each group around it, leaves of its limit; and the file
/// that has the limit.
fn of_groups(root: &Path) -> Vec<(u64, PathBuf)> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mut all = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else { continue };
        // Of the second version there is one hierarchy, which has no controllers' names.
        let (mount, limit, used, reclaimed) = if controllers.is_empty() {
            ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file ")
        } else if controllers.split(',').any(|controller| controller == "memory") {
            ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file ")
        } else {
            continue;
        };
        let mount = root.join(mount);
        let number = |file: PathBuf| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
        // In a container the group may be told by its path outside, where there is none; the root is always there.
        let inside = mount.join(group.trim_start_matches('/'));
        for folder in inside.ancestors().take_while(|folder| folder.starts_with(&mount)) {
            let (Some(most), Some(taken)) = (number(folder.join(limit)), number(folder.join(used))) else {
                continue;
            };
            // Pages of files that nobody uses make room for others.
            let pages = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
            let pages = pages.lines().find_map(|line| line.strip_prefix(reclaimed)?.trim().parse::<u64>().ok());
            all.push((most.saturating_sub(taken.saturating_sub(pages.unwrap_or(0))), folder.join(limit)));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A system of these files.
    struct System(PathBuf);

    impl System {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("am-available-{name}-{}", std::process::id()));
            for (file, text) in files {
                let file = root.join(file);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, text).unwrap();
            }
            Self(root)
        }

        fn available(&self) -> (u64, String) {
            let found = Available::with(None, &self.0).unwrap().unwrap();
            (found.bytes, found.to_string().replace(&format!("{}/", self.0.display()), "/"))
        }
    }

    impl Drop for System {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const MEMORY: (&str, &str) =
        ("proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:   8388608 kB\nBuffers: 1 kB\n");

    #[test]
    fn a_group_around_limits_too() {
        let system = System::new(
            "two",
            &[
                MEMORY,
                ("proc/self/cgroup", "0::/jobs/mine\n"),
                ("sys/fs/cgroup/jobs/mine/memory.max", "max\n"),
                ("sys/fs/cgroup/jobs/mine/memory.current", "1000\n"),
                ("sys/fs/cgroup/jobs/memory.max", "1073741824\n"),
                ("sys/fs/cgroup/jobs/memory.current", "536870912\n"),
                ("sys/fs/cgroup/jobs/memory.stat", "anon 5\ninactive_file 134217728\n"),
            ],
        );
        let told = "640 MiB are left of the limit in /sys/fs/cgroup/jobs/memory.max".to_owned();
        assert_eq!(system.available(), (640 << 20, told));
    }

    #[test]
    fn groups_of_the_first_version_limit() {
        let system = System::new(
            "one",
            &[
                MEMORY,
                ("proc/self/cgroup", "12:cpu,cpuacct:/a\n4:hugetlb,memory:/docker/0815\n"),
                // As a container has it: the path is of the world outside.
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", "104857600\n"),
                ("sys/fs/cgroup/memory/memory.usage_in_bytes", "209715200\n"),
                ("sys/fs/cgroup/memory/memory.stat", "total_inactive_file 157286400\n"),
            ],
        );
        let told = "50 MiB are left of the limit in /sys/fs/cgroup/memory/memory.limit_in_bytes".to_owned();
        assert_eq!(system.available(), (50 << 20, told));
    }

    #[test]
    fn without_limits_the_system_says() {
        let unlimited = [
            MEMORY,
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/memory.max", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory.current", "5\n"),
        ];
        for files in [&unlimited[..1], &unlimited[..2], &unlimited[..]] {
            let system = System::new(&format!("none-{}", files.len()), files);
            assert_eq!(system.available(), (8 << 30, "8192 MiB are available".into()));
        }
        assert_eq!(Available::with(None, Path::new("/no/such/folder")), Ok(None));
    }

    #[test]
    fn the_user_has_the_last_word() {
        let system = System::new("user", &[MEMORY]);
        let with = |told| Available::with(Some(told), &system.0);
        assert_eq!(with("0"), Ok(None));
        let found = with(" 100 ").unwrap().unwrap();
        assert_eq!((found.bytes, found.to_string()), (100 << 20, "AM_SIM_MEMORY_MIB is 100".into()));
        assert_eq!(
            with("much").unwrap_err().to_string(),
            "AM_SIM_MEMORY_MIB is 'much', but must be a whole number of MiB, 0 for no limit"
        );
    }
}
