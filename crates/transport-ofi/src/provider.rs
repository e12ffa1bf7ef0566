//! Providers: what this machine offers, and which of it is taken.

use crate::config::OfiConfig;
use crate::error::OfiError;
use crate::near::{self, Surroundings};
use crate::sys::{Infos, LOCAL, Library, Query};
use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

/// What a provider of libfabric offers on one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Offer {
    /// The provider, such as `tcp;ofi_rxm` or `cxi`.
    pub provider: String,
    /// The fabric: what endpoints have to share to reach each other.
    pub fabric: String,
    /// The domain, usually the interface: `eth0`, `mlx5_0`.
    pub domain: String,
    /// The IP address of an endpoint, where the provider has that.
    pub address: Option<IpAddr>,
    /// Bytes of the largest injected message.
    pub inject: usize,
    /// Operations that can be under way.
    pub sends: usize,
    /// Receipts that can be on offer.
    pub receives: usize,
    /// Bytes of the largest message.
    pub largest: usize,
    /// Whether messages between two endpoints arrive in the order in which they were sent.
    pub ordered: bool,
    /// Whether the provider protects its queues and peers' from overruns.
    pub managed: bool,
    /// Whether it takes several messages into one buffer.
    pub several: bool,
}

/// Providers by speed, fastest first, by a part of their names; the word behind says what they are for.
const RANKING: [(&str, &str); 12] = [
    ("cxi", "Slingshot"),
    ("efa", "Elastic Fabric Adapter"),
    ("opx", "Omni-Path"),
    ("psm3", "Intel Ethernet, RoCE"),
    ("verbs", "InfiniBand, RoCE"),
    ("psm2", "Omni-Path"),
    ("shm", "one host"),
    ("tcp", "any IP network"),
    ("net", "any IP network, an experiment of libfabric"),
    ("sockets", "any IP network, deprecated"),
    ("udp", "any IP network, for tests"),
    ("", "unknown to this program"),
];

impl Offer {
    /// The place in the ranking of speed, 0 is fastest.
    fn place(&self) -> usize {
        let named = |name: &str| self.provider.split(';').any(|part| part == name);
        RANKING.iter().position(|(name, _)| name.is_empty() || named(name)).unwrap_or(RANKING.len())
    }

    /// Whether it leads to one host only.
    fn is_local(&self) -> bool {
        self.provider == LOCAL
    }

    /// Why it cannot be used for what the settings ask, if so.
    fn obstacle(&self, config: &OfiConfig) -> Option<String> {
        if let Some(wanted) = &config.provider
            && !self.answers(wanted)
        {
            return Some(format!("AM_FABRIC asks for {wanted}"));
        }
        if self.is_local() && config.several_hosts {
            return Some("the job spans several hosts".into());
        }
        if let Some(interface) = &config.interface
            && !self.is_local()
            && !self.is_at(interface)
        {
            return Some(format!("it is not at {interface}"));
        }
        let loopback = |address: &Option<IpAddr>| address.is_some_and(|own| own.is_loopback());
        if config.several_hosts && config.interface.is_none() && loopback(&self.address) && !loopback(&config.host)
        {
            return Some("the job spans several hosts, and it is at a loopback address".into());
        }
        let needed = config.frame_bytes();
        if self.largest < needed {
            return Some(format!("its messages have at most {} bytes, {needed} are needed", self.largest));
        }
        None
    }

    /// Whether somebody who asks for this provider means it: its whole name, or the parts of it that are named.
    fn answers(&self, wanted: &str) -> bool {
        self.provider == wanted
            || wanted.split(';').all(|part| self.provider.split(';').any(|own| own == part))
                && (wanted.contains(';') || self.provider.split(';').next() == Some(wanted))
    }

    /// Whether an interface, an address or a domain, is this one's. Providers without addresses are everywhere.
    fn is_at(&self, interface: &str) -> bool {
        match (interface.parse::<IpAddr>(), self.address) {
            (Ok(wanted), Some(own)) => wanted == own,
            (Ok(_), None) => true,
            (Err(_), _) => self.domain == interface,
        }
    }
}

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.provider, self.domain)?;
        if let Some(address) = self.address {
            write!(f, " ({address})")?;
        }
        write!(f, ", for {}", RANKING[self.place().min(RANKING.len() - 1)].1)
    }
}

/// An offer, and why it would be taken or not.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verdict {
    /// What is offered.
    pub offer: Offer,
    /// Whether it would be taken.
    pub taken: bool,
    /// Why, or why not.
    pub reason: String,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.taken { "*" } else { " " };
        write!(f, "{mark} {}: {}", self.offer, self.reason)
    }
}

/// What libfabric offers on this machine, and which of it an endpoint with these settings would take, and why.
/// Blocks while providers look around; allocates.
///
/// # Errors
/// [`OfiError`] if there is no library, or it fails.
///
/// ```no_run
/// for verdict in transport_ofi::list(&transport_ofi::OfiConfig::from_environment()?)? {
///     println!("{verdict}");
/// }
/// # Ok::<(), transport_ofi::OfiError>(())
/// ```
pub fn list(config: &OfiConfig) -> Result<Vec<Verdict>, OfiError> {
    let infos = Infos::ask(Library::get()?, Query::default())?;
    Ok(judge(infos.offers(), config, &Surroundings::look(&near::file)))
}

/// The version of the library that is loaded, major and minor.
///
/// # Errors
/// [`OfiError`] if there is none.
pub fn version() -> Result<(u32, u32), OfiError> {
    Ok(Library::get()?.version())
}

/// What would be taken of some offers: the fastest that is no obstacle; of several equals the one at the host's
/// address, of these the one nearest to the processors that this process may use, or the first.
fn judge(offers: Vec<Offer>, config: &OfiConfig, around: &Surroundings<'_>) -> Vec<Verdict> {
    let chosen = best(&offers, config, around);
    let verdict = |(index, offer): (usize, Offer)| {
        let reason = match (offer.obstacle(config), chosen) {
            (Some(reason), _) => reason,
            (None, Some(best)) if best == index => "taken: the fastest that fits".into(),
            (None, _) => "fits, but another one is faster, nearer or comes first".into(),
        };
        Verdict { offer, taken: chosen == Some(index), reason }
    };
    let mut verdicts: Vec<Verdict> = offers.into_iter().enumerate().map(verdict).collect();
    // Providers offer the same with settings that make no difference here.
    let mut told = BTreeSet::new();
    verdicts.retain(|verdict| verdict.taken || told.insert(verdict.offer.to_string()));
    let taken: Vec<String> = verdicts.iter().filter(|v| v.taken).map(|v| v.offer.to_string()).collect();
    verdicts.retain(|verdict| verdict.taken || !taken.contains(&verdict.offer.to_string()));
    verdicts
}

fn best(offers: &[Offer], config: &OfiConfig, around: &Surroundings<'_>) -> Option<usize> {
    let usable = || offers.iter().enumerate().filter(|(_, offer)| offer.obstacle(config).is_none());
    let elsewhere = |offer: &Offer| config.host.is_some() && offer.address != config.host;
    let rank = |offer: &Offer| (offer.place(), elsewhere(offer));
    let (_, first) = usable().min_by_key(|(_, offer)| rank(offer))?;
    // Ranks may be near to different interfaces: they reach each other within one fabric.
    let alike = |offer: &Offer| {
        rank(offer) == rank(first) && (&offer.provider, &offer.fabric) == (&first.provider, &first.fabric)
    };
    let alike = usable().filter(|(_, offer)| alike(offer));
    alike.min_by_key(|(_, offer)| around.distance(&offer.domain)).map(|(index, _)| index)
}

/// The offer that an endpoint with these settings takes. Blocks while providers look around; allocates.
///
/// # Errors
/// [`OfiError`] if there is no library, or nothing fits.
pub fn choose(config: &OfiConfig) -> Result<Offer, OfiError> {
    select(config).map(|(_, _, offer)| offer)
}

/// The offers, and the number of the one that is taken.
pub(crate) fn select(config: &OfiConfig) -> Result<(Infos, usize, Offer), OfiError> {
    let infos = Infos::ask(Library::get()?, Query { provider: config.provider.as_deref() })?;
    let offers = infos.offers();
    if let Some(index) = best(&offers, config, &Surroundings::look(&near::file)) {
        let offer = offers[index].clone();
        return Ok((infos, index, offer));
    }
    let mut asked = "has reliable messages and remote writes".to_owned();
    if let Some(provider) = &config.provider {
        asked += &format!(" and is called {provider}");
    }
    if let Some(interface) = &config.interface {
        asked += &format!(" and is at {interface}");
    }
    if config.several_hosts {
        asked += " and leads to other hosts";
    }
    let there = match list(config) {
        Ok(verdicts) if verdicts.is_empty() => "nothing of that kind".into(),
        Ok(verdicts) => {
            let offers: Vec<Offer> = verdicts.into_iter().map(|verdict| verdict.offer).collect();
            what_is_there(&offers, config)
        }
        Err(error) => error.to_string(),
    };
    Err(OfiError::NoProvider { asked, there })
}

/// The names of offers of which none can be used; one that the settings name has its obstacle beside it.
fn what_is_there(offers: &[Offer], config: &OfiConfig) -> String {
    let line = |offer: &Offer| {
        let name = format!("{} at {}", offer.provider, offer.domain);
        let named = config.provider.as_ref().is_some_and(|wanted| offer.answers(wanted));
        match offer.obstacle(config).filter(|_| named) {
            Some(obstacle) => (false, format!("{name} (installed, but {obstacle})")),
            None => (true, name),
        }
    };
    // What is asked for comes first.
    let lines: BTreeSet<(bool, String)> = offers.iter().map(line).collect();
    lines.into_iter().map(|(_, line)| line).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(provider: &str, domain: &str, address: Option<&str>) -> Offer {
        Offer {
            provider: provider.into(),
            fabric: "fabric".into(),
            domain: domain.into(),
            address: address.map(|text| text.parse().unwrap()),
            inject: 64,
            sends: 256,
            receives: 256,
            largest: 1 << 30,
            ordered: true,
            managed: true,
            several: true,
        }
    }

    fn machine() -> Vec<Offer> {
        vec![
            offer("udp;ofi_rxd", "eth0", Some("10.0.0.1")),
            offer("tcp;ofi_rxm", "lo", Some("127.0.0.1")),
            offer("tcp;ofi_rxm", "eth0", Some("10.0.0.1")),
            offer("shm", "shm", None),
            offer("verbs;ofi_rxm", "mlx5_0", Some("10.1.0.1")),
        ]
    }

    fn taken(config: &OfiConfig) -> Option<usize> {
        let verdicts = judge(machine(), config, &Surroundings::look(&|_| None));
        assert!(verdicts.iter().filter(|verdict| verdict.taken).count() <= 1);
        verdicts.iter().position(|verdict| verdict.taken)
    }

    #[test]
    fn the_fastest_that_fits_is_taken() {
        let config = OfiConfig::default();
        assert_eq!(taken(&config), Some(4));
        for (provider, interface, hosts, expected) in [
            (Some("tcp"), None, true, Some(2)),
            (Some("tcp"), None, false, Some(1)),
            (Some("tcp"), Some("lo"), true, Some(1)),
            (Some("tcp"), Some("eth0"), true, Some(2)),
            (Some("tcp;ofi_rxm"), Some("10.0.0.1"), true, Some(2)),
            (Some("shm"), Some("10.0.0.1"), false, Some(3)),
            (Some("shm"), None, true, None),
            (Some("ofi_rxm"), None, true, None),
            (Some("cxi"), None, true, None),
            (None, Some("eth0"), true, Some(2)),
            (None, Some("10.9.9.9"), true, None),
        ] {
            let config = OfiConfig {
                provider: provider.map(Into::into),
                interface: interface.map(Into::into),
                several_hosts: hosts,
                ..OfiConfig::default()
            };
            assert_eq!(taken(&config), expected, "{provider:?} {interface:?} {hosts}");
        }
    }

    /// The launcher knows hosts by an address of any network: that does not rule out a faster one.
    #[test]
    fn the_address_of_the_host_chooses_among_equals() {
        for (provider, host, expected) in [
            (None, "10.0.0.1", Some(4)),
            (Some("verbs"), "10.0.0.1", Some(4)),
            (Some("tcp"), "10.0.0.1", Some(2)),
            (Some("tcp"), "10.2.0.1", Some(5)),
            (Some("tcp"), "10.9.9.9", Some(2)),
            (Some("tcp"), "127.0.0.1", Some(1)),
        ] {
            let host = host.parse().ok();
            let config = OfiConfig {
                provider: provider.map(Into::into),
                several_hosts: true,
                host,
                ..OfiConfig::default()
            };
            let mut offers = machine();
            offers.push(offer("tcp;ofi_rxm", "eth1", Some("10.2.0.1")));
            assert_eq!(best(&offers, &config, &Surroundings::look(&|_| None)), expected, "{provider:?} {host:?}");
        }
    }

    /// Of several interfaces of one fabric each rank takes the near one; of another fabric none, and none that the
    /// launcher did not name.
    #[test]
    fn the_near_one_of_a_fabric_is_taken() {
        let mut offers: Vec<Offer> =
            (0..3).map(|number| offer("verbs;ofi_rxm", &format!("mlx5_{number}"), None)).collect();
        offers[2].fabric = "another".into();
        let near = |processor: u32, config: &OfiConfig| {
            let files = move |path: &str| {
                let device =
                    |number: u32| path == format!("/sys/class/infiniband/mlx5_{number}/device/local_cpulist");
                let local = (0..3).find(|number| device(*number)).map(|number| number.to_string());
                (path == "/proc/self/status").then(|| format!("Cpus_allowed_list:\t{processor}\n")).or(local)
            };
            best(&offers, config, &Surroundings::look(&files))
        };
        let config = OfiConfig::default();
        assert_eq!([0, 1, 2].map(|processor| near(processor, &config)), [Some(0), Some(1), Some(0)]);
        assert_eq!(near(1, &config.interface("mlx5_0")), Some(0));
    }

    #[test]
    fn every_verdict_says_why() {
        let config = OfiConfig { provider: Some("tcp".into()), ..OfiConfig::default() };
        let lines: Vec<String> =
            judge(machine(), &config, &Surroundings::look(&|_| None)).iter().map(ToString::to_string).collect();
        assert_eq!(
            lines[0],
            "  udp;ofi_rxd at eth0 (10.0.0.1), for any IP network, for tests: AM_FABRIC asks for tcp"
        );
        assert_eq!(lines[1], "* tcp;ofi_rxm at lo (127.0.0.1), for any IP network: taken: the fastest that fits");
        assert!(lines[2].ends_with("fits, but another one is faster, nearer or comes first"), "{}", lines[2]);
    }

    #[test]
    fn a_provider_that_is_named_and_cannot_be_used_has_its_obstacle() {
        let config = OfiConfig { provider: Some("shm".into()), several_hosts: true, ..OfiConfig::default() };
        let others = "tcp;ofi_rxm at eth0, tcp;ofi_rxm at lo, udp;ofi_rxd at eth0, verbs;ofi_rxm at mlx5_0";
        let told = what_is_there(&machine(), &config);
        assert_eq!(told, format!("shm at shm (installed, but the job spans several hosts), {others}"));
        let config = OfiConfig::default().provider("verbs").interface("ib9");
        let told = what_is_there(&machine(), &config);
        assert!(
            told.starts_with("verbs;ofi_rxm at mlx5_0 (installed, but it is not at ib9), shm at shm"),
            "{told}"
        );
    }
}
