//! The job's manifest: who is where, at which addresses, and the secret. A launcher writes it into a sealed memory
//! file that its ranks inherit; ranks that met by themselves hold the same.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use am_core::{Rank, Shape};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::resource::{Resource, getrlimit};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::launcher::spawn::{FileKind, claim, unclaimed};
use crate::secret::{Secret, encode_wiped};
use crate::transport::{Carrier, TransportChoice};

/// The first bytes of a manifest's file; they change with its form.
const MAGIC: [u8; 8] = *b"am-mnft1";

/// Nobody can change a manifest's file.
const SEALS: SealFlag = SealFlag::F_SEAL_SHRINK
    .union(SealFlag::F_SEAL_GROW)
    .union(SealFlag::F_SEAL_WRITE)
    .union(SealFlag::F_SEAL_SEAL);
/// The most bytes that are read of a manifest's file.
const LONGEST: u64 = 64 << 20;

/// One host of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostEntry {
    /// Its name, as the user gave it or as it calls itself.
    pub name: String,
    /// Its address towards the other hosts.
    pub address: IpAddr,
    /// The interface that has this address.
    pub interface: String,
}

/// Where one rank is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RankEntry {
    /// Its host, as an index.
    pub(crate) host: u32,
    /// Its UDP address, one per endpoint; none where the job has no UDP.
    pub(crate) udp: Vec<SocketAddr>,
}

/// What all ranks of a job know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobManifest {
    pub(crate) job: String,
    pub(crate) secret: Secret,
    pub(crate) choice: TransportChoice,
    pub(crate) endpoints: u16,
    pub(crate) hosts: Vec<HostEntry>,
    pub(crate) ranks: Vec<RankEntry>,
}

impl JobManifest {
    pub(crate) fn shape(&self) -> Shape {
        Shape { ranks: self.ranks.len() as u32, endpoints: self.endpoints }
    }

    /// The ranks of a host, in order.
    pub(crate) fn members(&self, host: u32) -> Vec<Rank> {
        (0..).zip(&self.ranks).filter(|(_, card)| card.host == host).map(|(rank, _)| Rank(rank)).collect()
    }

    /// What carries messages between two ranks of the job.
    pub(crate) fn carrier(&self, a: Rank, b: Rank) -> Carrier {
        let host = |rank: Rank| self.ranks[rank.0 as usize].host;
        match self.choice {
            TransportChoice::Auto | TransportChoice::Shm if host(a) == host(b) => Carrier::Shm,
            _ => Carrier::Udp,
        }
    }

    /// Whether any pair of ranks needs UDP.
    pub(crate) fn needs_udp(&self) -> bool {
        self.choice == TransportChoice::Udp || self.hosts.len() > 1
    }

    /// The manifest as a file that is inherited by nobody yet and that nobody can change.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn file(&self) -> io::Result<OwnedFd> {
        let flags = MFdFlags::MFD_ALLOW_SEALING | MFdFlags::MFD_CLOEXEC;
        let mut file = File::from(memfd_create(c"active-messages-manifest", flags)?);
        let pages = encode_wiped(self)?;
        let needed = (MAGIC.len() + pages.len()) as u64;
        // Beyond its limit of file sizes the kernel would end this process with a signal.
        let (limit, _) = getrlimit(Resource::RLIMIT_FSIZE)?;
        if needed > limit {
            return Err(io::Error::other(format!(
                "{needed} bytes for the ranks' addresses, but this process may make files of {limit} (ulimit -f): start it \
                 with `ulimit -f unlimited`"
            )));
        }
        file.write_all(&MAGIC)?;
        file.write_all(&pages)?;
        fcntl(&file, FcntlArg::F_ADD_SEALS(SEALS))?;
        Ok(file.into())
    }

    /// Reads the manifest that a launcher left, and closes it.
    ///
    /// # Errors
    /// The descriptor is not there, or no manifest of this version; then it stays open.
    pub(crate) fn inherited(number: u32) -> io::Result<Self> {
        unclaimed(number)?;
        let file = File::open(format!("/proc/self/fd/{number}"))?;
        // Room for all of it, so that no part is left behind in memory when it grows.
        let length = file.metadata()?.len().min(LONGEST);
        let mut bytes = Zeroizing::new(Vec::with_capacity(length as usize + 64));
        file.take(length).read_to_end(&mut bytes)?;
        let other =
            || io::Error::new(io::ErrorKind::InvalidData, "it was written by another version of the launcher");
        let manifest: Self =
            postcard::from_bytes(bytes.strip_prefix(&MAGIC).ok_or_else(other)?).map_err(|_| other())?;
        let sound = manifest.ranks.iter().all(|card| (card.host as usize) < manifest.hosts.len());
        if !sound {
            return Err(other());
        }
        claim(number, FileKind::Memory(SEALS)).map(|_| manifest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launcher::spawn::tests::unused;
    use std::os::fd::AsRawFd;

    fn manifest(choice: TransportChoice) -> JobManifest {
        let host = |name: &str, last| HostEntry {
            name: name.into(),
            address: IpAddr::from([10, 0, 0, last]),
            interface: "eth0".into(),
        };
        let rank = |host| RankEntry { host, udp: vec![SocketAddr::from(([10, 0, 0, 1 + host as u8], 4000))] };
        JobManifest {
            job: "job".into(),
            secret: Secret::random().unwrap(),
            choice,
            endpoints: 1,
            hosts: vec![host("a", 1), host("b", 2)],
            ranks: [0, 1, 0].map(rank).to_vec(),
        }
    }

    #[test]
    fn a_book_is_read_as_it_was_written_and_cannot_be_changed() {
        let manifest = manifest(TransportChoice::Auto);
        let file = manifest.file().unwrap();
        assert!(File::from(file.try_clone().unwrap()).write_all(b"x").is_err());
        assert_eq!(JobManifest::inherited(unused(&file)).unwrap(), manifest);
    }

    #[test]
    fn other_files_are_no_books() {
        let file = memfd_create(c"test", MFdFlags::MFD_CLOEXEC).unwrap();
        assert!(JobManifest::inherited(file.as_raw_fd() as u32).is_err());
        assert!(fcntl(&file, FcntlArg::F_GETFD).is_ok(), "it is still open");
    }

    #[test]
    fn near_ranks_share_memory_unless_told_otherwise() {
        let auto = manifest(TransportChoice::Auto);
        assert_eq!(auto.carrier(Rank(0), Rank(2)), Carrier::Shm);
        assert_eq!(auto.carrier(Rank(0), Rank(1)), Carrier::Udp);
        assert_eq!(auto.members(0), [Rank(0), Rank(2)]);
        assert_eq!(manifest(TransportChoice::Udp).carrier(Rank(0), Rank(2)), Carrier::Udp);
    }
}
