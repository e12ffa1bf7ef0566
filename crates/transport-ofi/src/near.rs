//! How near interfaces are to the processors that this process may use, as Linux tells it.

use std::collections::BTreeSet;

/// Where Linux shows a device by its name, and the processors that are near to it.
const DEVICES: [&str; 3] = ["/sys/class/infiniband", "/sys/class/net", "/sys/class/cxi"];
const LOCAL: &str = "device/local_cpulist";
/// Where a process finds the processors that it may use, in the line that begins so.
const STATUS: &str = "/proc/self/status";
const ALLOWED: &str = "Cpus_allowed_list:";
/// More processors than a machine has: what is no list is not taken for a long one.
const MOST: u32 = 1 << 16;

/// A file's text; nothing of one that is not there.
type Files<'f> = &'f dyn Fn(&str) -> Option<String>;

/// The processors that this process may use, and how to ask for those of a device.
pub(crate) struct Surroundings<'f> {
    own: BTreeSet<u32>,
    files: Files<'f>,
}

/// A file of this machine.
pub(crate) fn file(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

impl<'f> Surroundings<'f> {
    /// Those of this process, by what these files say. Reads files.
    pub(crate) fn look(files: Files<'f>) -> Self {
        let status = files(STATUS).unwrap_or_default();
        let allowed = status.lines().find_map(|line| line.strip_prefix(ALLOWED)).and_then(processors);
        Self { own: allowed.unwrap_or_default(), files }
    }

    /// To how many of the processors that this process may use an interface is not near; to all of them where
    /// nobody knows. Reads files.
    pub(crate) fn distance(&self, domain: &str) -> usize {
        // Providers call a device by its name, perhaps with a kind of endpoint behind (`efa_0-rdm`).
        let device = domain.split('-').next().filter(|name| !name.is_empty() && !name.contains(['/', '.']));
        let near = |device| {
            DEVICES
                .iter()
                .find_map(|class| (self.files)(&format!("{class}/{device}/{LOCAL}")))
                .as_deref()
                .and_then(processors)
        };
        let near = device.and_then(near).unwrap_or_default();
        self.own.difference(&near).count()
    }
}

/// The processors of a list such as `0-3,8`; nothing of text that is none.
fn processors(list: &str) -> Option<BTreeSet<u32>> {
    let mut all = BTreeSet::new();
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        all.extend((last < MOST).then_some(first..=last)?);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(path: &str) -> Option<String> {
        let text = match path {
            "/proc/self/status" => "Name:\tprogram\nCpus_allowed:\tf0\nCpus_allowed_list:\t4-7\n",
            "/sys/class/infiniband/mlx5_0/device/local_cpulist" => "0-3\n",
            "/sys/class/infiniband/efa_1/device/local_cpulist" => "4-5,8\n",
            "/sys/class/net/eth1/device/local_cpulist" => "0-7\n",
            "/sys/class/net/odd/device/local_cpulist" => "0-4294967295",
            _ => return None,
        };
        Some(text.into())
    }

    #[test]
    fn devices_are_near_to_their_processors() {
        let around = Surroundings::look(&files);
        let distances =
            ["mlx5_0", "efa_1-rdm", "eth1", "lo", "odd", "", "../eth1"].map(|name| around.distance(name));
        assert_eq!(distances, [4, 2, 0, 4, 4, 4, 4]);
        // Of a process of which nothing is known, nothing is far.
        assert_eq!(Surroundings::look(&|_| None).distance("mlx5_0"), 0);
    }

    #[test]
    fn lists_of_processors_are_read_whole() {
        assert_eq!(processors("0-2,5\n"), Some([0, 1, 2, 5].into()));
        assert_eq!(["", "1-", "a", "3-1,x"].map(processors), [None, None, None, None]);
    }
}
