//! Which of a host's addresses its ranks use towards other hosts, and what is wrong with a choice.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::str::FromStr;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;

/// What the user asks for: an interface's name, a network, or an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterfaceWish {
    /// The interface of this name.
    Name(String),
    /// An address within this network: its address and the length of its prefix in bits.
    Network(IpAddr, u8),
}

impl FromStr for InterfaceWish {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some((address, bits)) = text.split_once('/') {
            let wrong = || format!("'{text}' is no network such as 10.1.0.0/16");
            let address: IpAddr = address.parse().map_err(|_| wrong())?;
            let bits = bits.parse().ok().filter(|&bits| bits <= width(address)).ok_or_else(wrong)?;
            return Ok(Self::Network(address, bits));
        }
        match text.parse() {
            Ok(address) => Ok(Self::Network(address, width(address))),
            Err(_) if text.is_empty() => Err("an interface has a name".into()),
            Err(_) => Ok(Self::Name(text.into())),
        }
    }
}

impl fmt::Display for InterfaceWish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Network(address, bits) if *bits == width(*address) => address.fmt(f),
            Self::Network(address, bits) => write!(f, "{address}/{bits}"),
        }
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// An address of this host and the interface that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub(crate) address: IpAddr,
    pub(crate) interface: String,
}

/// No address of this host is what the user asks for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InterfaceError {
    /// No interface that is up fits.
    #[error("no interface fits {wish}; there are {there}: choose with --interface or AM_INTERFACE")]
    None {
        /// What was asked for.
        wish: String,
        /// What this host has.
        there: String,
    },
    /// The system doesn't list interfaces.
    #[error("listing this host's interfaces failed: {0}")]
    System(#[from] io::Error),
}

/// The addresses of this host's interfaces that are up, loopback last. Addresses that make sense on one link only
/// are left out.
pub(crate) fn addresses() -> io::Result<Vec<Chosen>> {
    let mut all = Vec::new();
    for entry in getifaddrs()? {
        let Some(storage) = entry.address else { continue };
        let v4 = storage.as_sockaddr_in().map(|address| IpAddr::from(address.ip()));
        let v6 = storage.as_sockaddr_in6().map(|address| address.ip());
        let v6 = v6.filter(|ip| !ip.is_unicast_link_local()).map(IpAddr::from);
        if let Some(address) = v4.or(v6).filter(|_| entry.flags.contains(InterfaceFlags::IFF_UP)) {
            all.push(Chosen { address, interface: entry.interface_name });
        }
    }
    all.sort_by_key(|chosen| (chosen.address.is_loopback(), chosen.address.is_ipv6()));
    Ok(all)
}

/// The address that fits a wish; of several the first IPv4 one.
///
/// # Errors
/// [`InterfaceError`] that lists what there is.
pub(crate) fn choose(wish: &InterfaceWish) -> Result<Chosen, InterfaceError> {
    let all = addresses()?;
    let fits = |chosen: &&Chosen| match wish {
        InterfaceWish::Name(name) => chosen.interface == *name,
        InterfaceWish::Network(network, bits) => within(chosen.address, *network, *bits),
    };
    if let Some(chosen) = all.iter().find(fits) {
        return Ok(chosen.clone());
    }
    // Every address of 127.0.0.0/8 is this host's, though only one is listed.
    if let InterfaceWish::Network(address, bits) = *wish
        && address.is_loopback()
        && bits == width(address)
    {
        return Ok(Chosen { address, interface: interface_of(address) });
    }
    let there: Vec<String> =
        all.iter().map(|chosen| format!("{} ({})", chosen.address, chosen.interface)).collect();
    Err(InterfaceError::None { wish: wish.to_string(), there: there.join(", ") })
}

fn within(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    let number = |address: IpAddr| match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
        IpAddr::V6(v6) => v6.to_bits(),
    };
    let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
    address.is_ipv4() == network.is_ipv4() && number(address) & mask == number(network) & mask
}

/// The name of the interface that has an address of this host.
pub(crate) fn interface_of(address: IpAddr) -> String {
    let all = addresses().unwrap_or_default();
    let exact = all.iter().find(|chosen| chosen.address == address);
    let found = exact.or_else(|| all.iter().find(|chosen| address.is_loopback() && chosen.address.is_loopback()));
    found.map_or_else(|| "?".into(), |chosen| chosen.interface.clone())
}

/// The address of this host from which it would reach another one; nothing is sent.
///
/// # Errors
/// There is no route.
pub(crate) fn outward(towards: IpAddr) -> io::Result<IpAddr> {
    let any: IpAddr = if towards.is_ipv4() { [0; 4].into() } else { [0u16; 8].into() };
    let socket = UdpSocket::bind((any, 0))?;
    // A datagram socket's connect looks the route up. The port counts for nothing.
    socket.connect((towards, 9))?;
    Ok(socket.local_addr()?.ip())
}

/// The address of a host by its name, IPv4 before IPv6, if it resolves. Asks the system's resolver, which may take
/// its time.
pub(crate) fn resolve(name: &str) -> Option<IpAddr> {
    let mut found: Vec<IpAddr> =
        (name, 0).to_socket_addrs().ok()?.map(|address: SocketAddr| address.ip()).collect();
    found.sort_by_key(|address| address.is_ipv6());
    found.first().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_are_read() {
        let read = |text: &str| text.parse::<InterfaceWish>();
        assert_eq!(read("eth0"), Ok(InterfaceWish::Name("eth0".into())));
        assert_eq!(read("10.1.0.0/16"), Ok(InterfaceWish::Network([10, 1, 0, 0].into(), 16)));
        assert_eq!(read("10.1.2.3").map(|wish| wish.to_string()), Ok("10.1.2.3".into()));
        for wrong in ["", "10.1.0.0/33", "10.1/16", "x/8"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn networks() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(within(ip("10.1.2.3"), ip("10.1.0.0"), 16));
        assert!(!within(ip("10.2.2.3"), ip("10.1.0.0"), 16));
        assert!(within(ip("10.2.2.3"), ip("0.0.0.0"), 0));
        assert!(!within(ip("fd00::1"), ip("0.0.0.0"), 0));
        assert!(within(ip("fd00::1"), ip("fd00::"), 64) && !within(ip("fd01::1"), ip("fd00::"), 64));
    }

    #[test]
    fn this_host_has_a_loopback_interface() {
        let chosen = choose(&"127.0.0.0/8".parse().unwrap()).unwrap();
        assert_eq!(choose(&InterfaceWish::Name(chosen.interface.clone())).unwrap().interface, chosen.interface);
        assert_eq!(choose(&"127.0.0.9".parse().unwrap()).unwrap().address, IpAddr::from([127, 0, 0, 9]));
        assert_eq!(interface_of([127, 0, 0, 9].into()), chosen.interface);
        assert_eq!(outward([127, 0, 0, 1].into()).unwrap(), IpAddr::from([127, 0, 0, 1]));
        assert_eq!(resolve("127.0.0.3"), Some([127, 0, 0, 3].into()));
        let error = choose(&InterfaceWish::Name("none0".into())).unwrap_err().to_string();
        assert!(
            error.starts_with("no interface fits none0; there are ") && error.contains("127.0.0.1"),
            "{error}"
        );
    }
}
