//! The job's manifest: its hosts, the host of every rank, and the secret. A launcher writes it into a sealed
//! memory file that its ranks inherit; ranks that met by themselves hold the same.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use am_core::Rank;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::resource::{Resource, getrlimit};
use zeroize::Zeroizing;

use crate::codec::{decode, encode, wire};
use crate::descriptors::{Descriptor, FileKind, claim, unclaimed};
use crate::secret::Secret;

/// The first bytes of a manifest's file; they change with its form, and with what ranks and their launcher say to
/// each other.
pub(crate) const MAGIC: [u8; 8] = *b"am-mnft3";

/// Nobody can change a manifest's file.
const SEALS: SealFlag = SealFlag::F_SEAL_SHRINK
    .union(SealFlag::F_SEAL_GROW)
    .union(SealFlag::F_SEAL_WRITE)
    .union(SealFlag::F_SEAL_SEAL);
/// The most bytes that are read of a manifest's file.
const LONGEST: u64 = 64 << 20;

/// One host of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostEntry {
    /// Its name, as the user gave it or as it calls itself.
    pub name: String,
    /// Its address towards the other hosts.
    pub address: IpAddr,
    /// The interface that has this address.
    pub interface: String,
}
wire!(struct HostEntry { name, address, interface });

/// What all ranks of a job know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JobManifest {
    pub(crate) job: String,
    pub(crate) secret: Secret,
    pub(crate) endpoints: u16,
    pub(crate) hosts: Vec<HostEntry>,
    /// The host of each rank, as an index.
    pub(crate) host_of: Vec<u32>,
}
wire!(struct JobManifest { job, secret, endpoints, hosts, host_of });

impl JobManifest {
    pub(crate) fn ranks(&self) -> u32 {
        self.host_of.len() as u32
    }

    /// The ranks of a host, in order.
    pub(crate) fn members(&self, host: u32) -> Vec<Rank> {
        (0..).zip(&self.host_of).filter(|(_, its)| **its == host).map(|(rank, _)| Rank(rank)).collect()
    }

    /// The manifest as a file that is inherited by nobody yet and that nobody can change.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn file(&self) -> io::Result<OwnedFd> {
        let flags = MFdFlags::MFD_ALLOW_SEALING | MFdFlags::MFD_CLOEXEC;
        let mut file = File::from(memfd_create(c"active-messages-manifest", flags)?);
        let pages = encode(self);
        let needed = (MAGIC.len() + pages.len()) as u64;
        // Beyond its limit of file sizes the kernel would end this process with a signal.
        let (limit, _) = getrlimit(Resource::RLIMIT_FSIZE)?;
        if needed > limit {
            return Err(io::Error::other(format!(
                "{needed} bytes for the places of the ranks, but this process may make files of {limit} (ulimit -f): start it \
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
    pub(crate) fn inherited(file: Descriptor) -> io::Result<Self> {
        let (number, kind) = (file.number, FileKind::Memory(file, SEALS));
        // What is no memory file may block who opens it.
        unclaimed(number, kind)?;
        let manifest = Self::read(File::open(format!("/proc/self/fd/{number}"))?)?;
        claim(number, kind).map(|_| manifest)
    }

    /// Reads a manifest from its file.
    ///
    /// # Errors
    /// It is no manifest of this version.
    pub(crate) fn read(mut file: File) -> io::Result<Self> {
        // Room for all of it, so that no part is left behind in memory when it grows.
        let length = file.metadata()?.len().min(LONGEST);
        let mut bytes = Zeroizing::new(Vec::with_capacity(length as usize + 64));
        file.rewind()?;
        file.take(length).read_to_end(&mut bytes)?;
        let other =
            || io::Error::new(io::ErrorKind::InvalidData, "it was written by another version of the launcher");
        Self::decode(&bytes).ok_or_else(other)
    }

    /// The manifest that a file holds; `None` if it holds none of this version.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let manifest: Self = decode(bytes.strip_prefix(&MAGIC)?)?;
        Some(manifest).filter(Self::is_sound)
    }

    /// Whether every rank is on one of the hosts.
    pub(crate) fn is_sound(&self) -> bool {
        self.host_of.iter().all(|host| (*host as usize) < self.hosts.len())
    }
}

/// What a manifest's file may hold. Returns whether it was taken for a manifest.
///
/// # Panics
/// If a rank of it has no host, or it is not read back as it is written.
#[cfg(feature = "fuzzing")]
pub fn manifest(data: &[u8]) -> bool {
    let Some(manifest) = JobManifest::decode(data) else { return false };
    for rank in 0..manifest.ranks() {
        let host = manifest.host_of[rank as usize];
        assert!((host as usize) < manifest.hosts.len(), "rank {rank} is on host {host}");
    }
    let pages = encode(&manifest);
    assert_eq!(JobManifest::decode(&[&MAGIC[..], &pages].concat()).as_ref(), Some(&manifest));
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptors::tests::unused;
    use std::os::fd::AsRawFd;

    fn manifest() -> JobManifest {
        let host = |name: &str, last| HostEntry {
            name: name.into(),
            address: IpAddr::from([10, 0, 0, last]),
            interface: "eth0".into(),
        };
        JobManifest {
            job: "job".into(),
            secret: Secret::random().unwrap(),
            endpoints: 1,
            hosts: vec![host("a", 1), host("b", 2)],
            host_of: vec![0, 1, 0],
        }
    }

    #[test]
    fn files_are_read_back_and_sealed() {
        let manifest = manifest();
        let file = manifest.file().unwrap();
        assert!(File::from(file.try_clone().unwrap()).write_all(b"x").is_err());
        let inherited = Descriptor::of(&file).unwrap().at(unused(&file));
        assert_eq!(JobManifest::inherited(inherited).unwrap(), manifest);
    }

    /// As in a child of a rank that uses this library, too.
    #[test]
    fn another_jobs_manifest_stays_open() {
        let [ours, other] = [(); 2].map(|()| manifest().file().unwrap());
        let inherited = Descriptor::of(&ours).unwrap().at(other.as_raw_fd() as u32);
        assert!(JobManifest::inherited(inherited).is_err());
        assert!(fcntl(&other, FcntlArg::F_GETFD).is_ok(), "it is still open");
    }

    #[test]
    fn other_files_are_refused() {
        let file = memfd_create(c"test", MFdFlags::MFD_CLOEXEC).unwrap();
        assert!(JobManifest::inherited(Descriptor::of(&file).unwrap()).is_err());
        assert!(fcntl(&file, FcntlArg::F_GETFD).is_ok(), "it is still open");
    }

    #[test]
    fn what_is_no_memory_file_is_not_opened() {
        // Opening a pipe that nobody writes to would block.
        let (reading, writing) = nix::unistd::pipe().unwrap();
        let inherited = Descriptor::of(&reading).unwrap().at(unused(&reading));
        drop(writing);
        let refused = JobManifest::inherited(inherited).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{refused}");
    }

    #[test]
    fn members_of_a_host() {
        assert_eq!(
            [0, 1, 2].map(|host| manifest().members(host)),
            [vec![Rank(0), Rank(2)], vec![Rank(1)], vec![]]
        );
    }

    #[test]
    fn ranks_without_a_host_are_refused() {
        let mut manifest = manifest();
        manifest.host_of[1] = 2;
        let file = manifest.file().unwrap();
        assert!(JobManifest::read(file.into()).is_err());
    }
}
