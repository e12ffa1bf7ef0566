//! Hosts made of network namespaces: joined by veth pairs through a bridge, made and removed by a test.

use std::fmt;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, id};

/// What all names start with; the process id follows.
const MARK: &str = "amt";

/// Some hosts in one network. Dropping it removes them.
#[derive(Debug)]
pub(crate) struct Network {
    hosts: u8,
}

/// Why there can be no namespaces here.
#[derive(Debug)]
pub(crate) struct NotPermitted(String);

impl fmt::Display for NotPermitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Runs `ip` with these words.
fn ip(words: &str) -> Result<(), NotPermitted> {
    let output = Command::new("ip").args(words.split(' ')).output();
    match output {
        Err(error) => Err(NotPermitted(format!("there is no ip command: {error}"))),
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(NotPermitted(format!("`ip {words}`: {}", said.trim())))
        }
    }
}

impl Network {
    /// Makes `hosts` namespaces, each with an interface `eth0` at [`address`](Self::address).
    pub(crate) fn new(hosts: u8) -> Result<Self, NotPermitted> {
        Self::with_masks(&vec![24; hosts.into()])
    }

    /// The same with a namespace for each of these lengths of a netmask: all reach each other, but those with
    /// different masks are not of one network for who asks the interface.
    pub(crate) fn with_masks(masks: &[u8]) -> Result<Self, NotPermitted> {
        sweep();
        let hosts = masks.len() as u8;
        let network = Self { hosts };
        let bridge = network.bridge();
        ip(&format!("link add {bridge} type bridge"))?;
        ip(&format!("addr add {}/24 dev {bridge}", network.launcher()))?;
        ip(&format!("link set {bridge} up"))?;
        for (host, mask) in (0..).zip(masks) {
            let (space, outside) = (network.name(host), network.outside(host));
            ip(&format!("netns add {space}"))?;
            ip(&format!("link add {outside} type veth peer name eth0 netns {space}"))?;
            ip(&format!("link set {outside} master {bridge} up"))?;
            ip(&format!("-n {space} addr add {}/{mask} dev eth0", network.address(host)))?;
            ip(&format!("-n {space} link set eth0 up"))?;
            ip(&format!("-n {space} link set lo up"))?;
        }
        Ok(network)
    }

    /// The namespace that is a host, also the host's name.
    pub(crate) fn name(&self, host: u8) -> String {
        format!("{MARK}{}n{host}", id())
    }

    /// All hosts as `--hosts` has them.
    pub(crate) fn list(&self) -> String {
        (0..self.hosts).map(|host| self.name(host)).collect::<Vec<_>>().join(",")
    }

    /// The address of a host.
    pub(crate) fn address(&self, host: u8) -> Ipv4Addr {
        let [a, b, c, _] = self.launcher().octets();
        Ipv4Addr::new(a, b, c, 2 + host)
    }

    /// The address of the namespace that the test itself runs in. Tests that run at the same time have other
    /// networks.
    pub(crate) fn launcher(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 128 + (id() % 100) as u8, (id() / 100 % 250) as u8, 1)
    }

    /// Cuts the cable of a host, or mends it.
    pub(crate) fn set_link(&self, host: u8, up: bool) {
        let state = if up { "up" } else { "down" };
        ip(&format!("link set {} {state}", self.outside(host))).expect("the link is there");
    }

    fn bridge(&self) -> String {
        format!("{MARK}{}b", id())
    }

    fn outside(&self, host: u8) -> String {
        format!("{MARK}{}v{host}", id())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for host in 0..self.hosts {
            // The pair goes with one of its ends at once; with its namespace only some time later.
            let _ = ip(&format!("link del {}", self.outside(host)));
            let _ = ip(&format!("netns del {}", self.name(host)));
        }
        let _ = ip(&format!("link del {}", self.bridge()));
    }
}

/// Removes what tests left behind that were killed.
fn sweep() {
    let stale = |name: &str| {
        let process: String = name.strip_prefix(MARK)?.chars().take_while(char::is_ascii_digit).collect();
        (!process.is_empty() && !Path::new("/proc").join(process).exists()).then(|| name.to_owned())
    };
    let names = |folder: &str| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    for name in names("/sys/class/net").iter().filter_map(|name| stale(name)) {
        let _ = ip(&format!("link del {name}"));
    }
    for name in names("/run/netns").iter().filter_map(|name| stale(name)) {
        let _ = ip(&format!("netns del {name}"));
    }
}
