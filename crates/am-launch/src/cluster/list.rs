//! The hosts of a job as the user lists them: `--hosts a,b:4` and host files.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// One host to start ranks on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostSpec {
    /// What the remote command is given as the host.
    pub name: String,
    /// How many ranks it takes; without a number, the hosts that have none share what is left evenly.
    pub slots: Option<u32>,
    /// The address that other hosts reach it at, if that doesn't follow from the way it reaches the launcher.
    pub address: Option<IpAddr>,
}

impl HostSpec {
    /// A host without a number of slots.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), slots: None, address: None }
    }

    /// Reads `name` or `name:slots`. An IPv6 address with slots needs brackets: `[fd00::1]:4`.
    fn parse(text: &str) -> Result<Self, String> {
        let (name, slots) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((name, "")) => (name, None),
            Some((name, rest)) => (name, Some(rest.strip_prefix(':').unwrap_or(rest))),
            None if text.matches(':').count() == 1 => {
                text.split_once(':').map_or((text, None), |(name, slots)| (name, Some(slots)))
            }
            None => (text, None),
        };
        // A leading hyphen would be an option of the remote command.
        if name.is_empty() || name.starts_with('-') || name.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(format!("'{name}' is no host name"));
        }
        Ok(Self { slots: slots.map(number_of_slots).transpose()?, ..Self::new(name) })
    }
}

fn number_of_slots(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(slots) if slots > 0 => Ok(slots),
        _ => Err(format!("'{text}' is not a number of slots from 1")),
    }
}

/// Why a list of hosts can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostListError {
    /// An entry of `--hosts` makes no sense.
    #[error("--hosts {list}: {reason}; hosts are listed as NAME or NAME:SLOTS with commas between them")]
    Entry {
        /// The whole list.
        list: String,
        /// What is wrong.
        reason: String,
    },
    /// A line of a host file makes no sense.
    #[error("host file {}, line {line}: {reason}; a line is NAME [slots=N] [address=IP], # starts a comment", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line's number, from 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// A host file can't be read.
    #[error("host file {} can't be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// There is no host.
    #[error("{0} names no host")]
    Empty(String),
}

/// Reads the value of `--hosts`. A host that is named twice has the slots of both.
///
/// # Errors
/// [`HostListError`].
pub fn parse_hosts(list: &str) -> Result<Vec<HostSpec>, HostListError> {
    let wrong = |reason| HostListError::Entry { list: list.into(), reason };
    let hosts = list.split(',').map(|entry| HostSpec::parse(entry.trim()).map_err(wrong));
    merged(hosts.collect::<Result<_, _>>()?, || format!("--hosts {list}"))
}

/// Reads a host file: one host a line, `#` starts a comment.
///
/// # Errors
/// [`HostListError`] that names the line.
pub fn read_host_file(path: &Path) -> Result<Vec<HostSpec>, HostListError> {
    let unreadable = |source| HostListError::Unreadable { path: path.into(), source };
    host_file(&fs::read_to_string(path).map_err(unreadable)?, path)
}

/// The hosts of a host file's text.
pub(crate) fn host_file(text: &str, path: &Path) -> Result<Vec<HostSpec>, HostListError> {
    let mut hosts = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default();
        let wrong = |reason| HostListError::Line { path: path.into(), line: number, reason };
        hosts.extend(host_line(line).map_err(wrong)?);
    }
    merged(hosts, || format!("host file {}", path.display()))
}

/// The host of a line without its comment, if it has one.
fn host_line(line: &str) -> Result<Option<HostSpec>, String> {
    let mut words = line.split_whitespace();
    let Some(name) = words.next() else { return Ok(None) };
    let mut host = HostSpec::parse(name)?;
    for word in words {
        let taken = match word.split_once('=') {
            Some(("slots", slots)) => host.slots.replace(number_of_slots(slots)?).is_some(),
            Some(("address", address)) => {
                let address = address.parse().map_err(|_| format!("'{address}' is no IP address"))?;
                host.address.replace(address).is_some()
            }
            _ => return Err(format!("'{word}' is neither slots=N nor address=IP")),
        };
        if taken {
            return Err(format!("'{word}' is said twice"));
        }
    }
    Ok(Some(host))
}

/// Joins entries of the same name: their slots add up, an entry without a number counting one.
fn merged(hosts: Vec<HostSpec>, whole: impl FnOnce() -> String) -> Result<Vec<HostSpec>, HostListError> {
    let mut all: Vec<HostSpec> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for host in hosts {
        match places.get(&host.name) {
            Some(&place) => {
                let earlier = &mut all[place];
                earlier.slots = Some(earlier.slots.unwrap_or(1).saturating_add(host.slots.unwrap_or(1)));
                earlier.address = earlier.address.or(host.address);
            }
            None => {
                places.insert(host.name.clone(), all.len());
                all.push(host);
            }
        }
    }
    if all.is_empty() { Err(HostListError::Empty(whole())) } else { Ok(all) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(hosts: &[HostSpec]) -> Vec<(&str, Option<u32>)> {
        hosts.iter().map(|host| (&*host.name, host.slots)).collect()
    }

    #[test]
    fn lists() {
        let hosts = parse_hosts("a, b:4,[fd00::1]:2,fd00::2,[fd00::3],a,b").unwrap();
        let expected =
            [("a", Some(2)), ("b", Some(5)), ("fd00::1", Some(2)), ("fd00::2", None), ("fd00::3", None)];
        assert_eq!(slots(&hosts), expected);
        for (list, part) in [
            ("", "'' is no host name"),
            ("a,,b", "'' is no host name"),
            ("a:0", "'0' is not a number of slots from 1"),
            ("a:x", "'x' is not a number"),
            ("-oProxyCommand=x", "'-oProxyCommand=x' is no host name"),
            ("a b", "'a b' is no host name"),
        ] {
            let error = parse_hosts(list).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn files() {
        let path = std::env::temp_dir().join(format!("am-hosts-{}", std::process::id()));
        let read = |text: &str| {
            fs::write(&path, text).unwrap();
            read_host_file(&path)
        };
        let hosts = read("# two racks\n\na slots=2 # fast\n\tb:3 address=10.0.0.2\na\n").unwrap();
        assert_eq!(slots(&hosts), [("a", Some(3)), ("b", Some(3))]);
        assert_eq!(hosts[1].address, Some(IpAddr::from([10, 0, 0, 2])));
        for (text, part) in [
            ("a\nb slots=many\n", "line 2: 'many' is not a number of slots from 1;"),
            ("\n\na cores=2", "line 3: 'cores=2' is neither slots=N nor address=IP;"),
            ("a address=b", "line 1: 'b' is no IP address;"),
            ("a:2 slots=2", "line 1: 'slots=2' is said twice;"),
            ("# nobody\n", "names no host"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        fs::remove_file(&path).unwrap();
        assert!(matches!(read_host_file(&path), Err(HostListError::Unreadable { .. })));
    }
}
