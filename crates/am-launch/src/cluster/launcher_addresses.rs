//! At which of its addresses the launcher can be reached from each host, and which addresses of hosts reach each
//! other; finds out names that mean something else elsewhere.

use std::net::IpAddr;

use crate::cluster::list::HostSpec;
use crate::error::LaunchError;
use crate::interface::{InterfaceWish, addresses, choose, interface_of, outward, resolve};
use crate::manifest::HostEntry;

/// What a host's name means here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// An address, and that of ours from which it is reached.
    Reached(IpAddr, Option<IpAddr>),
    /// Nothing: the remote command may know better.
    Unknown,
}

/// Looks a host up by its address in the host file, else by its name.
pub(crate) fn meaning(host: &HostSpec) -> Meaning {
    match host.address.or_else(|| resolve(&host.name)) {
        Some(address) => Meaning::Reached(address, outward(address).ok()),
        None => Meaning::Unknown,
    }
}

/// Whether a host is the one that this process runs on.
pub(crate) fn is_here(meaning: Meaning) -> bool {
    matches!(meaning, Meaning::Reached(address, _) if address.is_loopback() || interface_of(address) != "?")
}

/// The addresses of the launcher for each host, likeliest first, and the explanation of what is odd about a host's
/// name.
pub(crate) fn addresses_for(
    hosts: &[(&HostSpec, Meaning)],
    wish: Option<&InterfaceWish>,
) -> Vec<(Vec<IpAddr>, Option<String>)> {
    let ours = addresses().unwrap_or_default();
    let wished = wish.and_then(|wish| choose(wish).ok()).map(|chosen| chosen.address);
    let is_loopback = |meaning: &Meaning| matches!(meaning, Meaning::Reached(address, _) if address.is_loopback());
    let all_here = hosts.iter().all(|(_, meaning)| is_loopback(meaning));
    // The address of ours that reaches the first host that is elsewhere.
    let to_others = hosts.iter().find_map(|(host, meaning)| match meaning {
        Meaning::Reached(address, Some(own)) if !address.is_loopback() && !own.is_loopback() => {
            Some((&host.name, *own))
        }
        _ => None,
    });
    let mut outside: Vec<IpAddr> = ours.iter().map(|own| own.address).filter(|own| !own.is_loopback()).collect();
    if outside.is_empty() {
        outside.extend(ours.iter().map(|own| own.address));
    }
    let for_one = |&(host, meaning): &(&HostSpec, Meaning)| {
        if let Some(wished) = wished {
            return (vec![wished], None);
        }
        match meaning {
            Meaning::Reached(address, _) if address.is_loopback() && all_here => (vec![address], None),
            Meaning::Reached(address, _) if address.is_loopback() => {
                let name = &host.name;
                let odd =
                    format!("host {name} resolves to {address} here, an address that other hosts can't reach");
                let remedy = "give its address= in the host file, or choose one with --interface";
                match to_others {
                    Some((other, own)) => (
                        vec![own],
                        Some(format!("{odd}; using {own}, which reaches {other} (to change that, {remedy})")),
                    ),
                    None => (outside.clone(), Some(format!("{odd}; trying all others of this host ({remedy})"))),
                }
            }
            Meaning::Reached(_, Some(own)) => (vec![own], None),
            Meaning::Reached(_, None) | Meaning::Unknown => (outside.clone(), None),
        }
    };
    hosts.iter().map(for_one).collect()
}

/// Refuses addresses that can't reach each other: those that make sense on one host only next to others, and two
/// families.
pub(crate) fn check_addresses<'a>(hosts: impl Iterator<Item = &'a HostEntry>) -> Result<(), LaunchError> {
    let hosts: Vec<&HostEntry> = hosts.collect();
    let pair = |fits: fn(&HostEntry) -> bool| {
        let one = hosts.iter().find(|host| fits(host))?;
        hosts.iter().find(|host| !fits(host)).map(|other| (*one, *other))
    };
    if let Some((inside, outside)) = pair(|host| host.address.is_loopback()) {
        return Err(LaunchError::Loopback {
            host: inside.name.clone(),
            address: inside.address,
            interface: inside.interface.clone(),
            other: outside.name.clone(),
            other_address: outside.address,
        });
    }
    match pair(|host| host.address.is_ipv4()) {
        Some((v4, v6)) => Err(LaunchError::Families {
            host: v4.name.clone(),
            address: v4.address,
            other: v6.name.clone(),
            other_address: v6.address,
        }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::list::parse_hosts;

    #[test]
    fn addresses_that_cannot_reach_each_other_are_named() {
        let host = |name: &str, address: &str| HostEntry {
            name: name.into(),
            address: address.parse().unwrap(),
            interface: "if0".into(),
        };
        let check = |hosts: &[HostEntry]| check_addresses(hosts.iter()).map_err(|error| error.to_string());
        assert_eq!(check(&[host("a", "10.0.0.1"), host("b", "10.0.0.2")]), Ok(()));
        assert_eq!(check(&[host("a", "127.0.0.1"), host("b", "127.0.0.2")]), Ok(()));
        let error = check(&[host("a", "10.0.0.1"), host("b", "127.0.1.1")]).unwrap_err();
        let start = "host b would be reached at 127.0.1.1 (if0), an address that a at 10.0.0.1 can't reach: give its address=";
        assert!(error.starts_with(start), "{error}");
        let error = check(&[host("a", "fd00::1"), host("b", "10.0.0.2")]).unwrap_err();
        assert!(error.starts_with("host b would be reached at 10.0.0.2 and a at fd00::1, which"), "{error}");
    }

    fn reached(address: &str, own: &str) -> Meaning {
        Meaning::Reached(address.parse().unwrap(), Some(own.parse().unwrap()))
    }

    #[test]
    fn a_loopback_name_among_remote_hosts_is_explained() {
        let hosts = parse_hosts("a,b,c").unwrap();
        let meanings = [reached("127.0.1.1", "127.0.0.1"), reached("10.0.0.2", "10.0.0.1"), Meaning::Unknown];
        let pairs: Vec<_> = hosts.iter().zip(meanings).collect();
        let launcher_addresses = addresses_for(&pairs, None);
        assert_eq!(launcher_addresses[0].0, [IpAddr::from([10, 0, 0, 1])]);
        let note = launcher_addresses[0].1.as_ref().unwrap();
        assert!(
            note.starts_with("host a resolves to 127.0.1.1 here, an address that other hosts can't reach;"),
            "{note}"
        );
        assert!(note.contains("using 10.0.0.1, which reaches b") && note.contains("address="), "{note}");
        assert_eq!(launcher_addresses[1], (vec![IpAddr::from([10, 0, 0, 1])], None));
        assert!(!launcher_addresses[2].0.is_empty() && launcher_addresses[2].1.is_none());
    }

    #[test]
    fn loopback_is_fine_among_itself() {
        let hosts = parse_hosts("127.0.0.1,127.0.0.2").unwrap();
        let pairs: Vec<_> = hosts.iter().map(|host| (host, meaning(host))).collect();
        assert!(pairs.iter().all(|&(_, meaning)| is_here(meaning)));
        let launcher_addresses = addresses_for(&pairs, None);
        assert_eq!(launcher_addresses[1], (vec![IpAddr::from([127, 0, 0, 2])], None));
        let wish = "127.0.0.9".parse().unwrap();
        assert_eq!(addresses_for(&pairs, Some(&wish))[0].0, [IpAddr::from([127, 0, 0, 9])]);
    }
}
