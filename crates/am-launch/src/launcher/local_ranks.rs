//! The ranks of one host, from their description to running processes: what a launcher does on its own host and an agent
//! on another one.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use am_core::Rank;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::{Pid, getpid};
use serde::{Deserialize, Serialize};
use transport_udp::UdpError;

use crate::control_links::ControlLinks;
use crate::env;
use crate::launcher::error::{LaunchError, system};
use crate::launcher::lifeline::Lifeline;
use crate::launcher::limits;
use crate::launcher::output::Stream;
use crate::launcher::signals::Signals;
use crate::launcher::spawn::{Descriptor, Inheritance, tie};
use crate::launcher::spec::JobSpec;
use crate::manifest::JobManifest;
use crate::notices::Notices;

/// What one host has to know to start its ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LocalRanks {
    pub(crate) program: OsString,
    pub(crate) arg0: Option<OsString>,
    pub(crate) args: Vec<OsString>,
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// Where the ranks run, if not where their launcher does.
    pub(crate) directory: Option<PathBuf>,
    /// The number of ranks of the whole job.
    pub(crate) ranks: u32,
    /// The ranks of this host, in order.
    pub(crate) members: Vec<u32>,
    pub(crate) kind: String,
    pub(crate) prefix: bool,
    pub(crate) bind: bool,
    pub(crate) keep_going: bool,
}

/// What the ranks of a host share.
pub(crate) struct Shared<'a> {
    pub(crate) job: &'a str,
    /// The shared memory.
    pub(crate) segment: Option<OwnedFd>,
    /// The manifest, and the sockets of each rank of this host.
    pub(crate) net: Option<(&'a JobManifest, Vec<Vec<UdpSocket>>)>,
    pub(crate) lifeline: &'a Lifeline,
    pub(crate) signals: &'a Signals,
}

impl LocalRanks {
    /// All ranks of a job, on this host.
    pub(crate) fn of(spec: &JobSpec) -> Self {
        Self {
            program: spec.program.clone(),
            arg0: spec.arg0.clone(),
            args: spec.args.clone(),
            environment: spec.environment.clone(),
            directory: None,
            ranks: spec.ranks,
            members: (0..spec.ranks).collect(),
            kind: spec.kind.into(),
            prefix: spec.prefix,
            bind: spec.bind,
            keep_going: spec.keep_going,
        }
    }

    /// Starts every rank of this host, or none. The sockets are closed here: a rank that dies takes its port with it.
    ///
    /// # Errors
    /// The program can't be started, or the operating system refuses what it needs.
    pub(crate) fn start(&self, shared: Shared<'_>) -> Result<Started, LaunchError> {
        let processors = if self.bind { Some(processors().map_err(system("processor binding"))?) } else { None };
        limits::make_room(64 + if self.prefix { 2 * self.members.len() } else { 0 });
        let segment = shared.segment.map(Arc::new);
        let notices = Notices::new().map_err(system("a pipe"))?;
        let voice = Arc::clone(notices.inherited());
        let (members, ranks, pipes, links) =
            (self.members.clone(), Vec::new(), Vec::new(), ControlLinks::default());
        let mut started = Started { members, ranks, places: Places::new(), pipes, links, notices };
        let (mut manifest, mut sockets) = (None, Vec::new().into_iter());
        if let Some((pages, all)) = shared.net {
            manifest = Some(Arc::new(pages.file().map_err(system("a memory file"))?));
            sockets = all.into_iter();
        }
        for (local, &rank) in self.members.iter().enumerate() {
            let cpus = processors.as_ref().map(|usable| usable[local % usable.len()]);
            let mut files = vec![Arc::clone(shared.lifeline.watched()), Arc::clone(&voice)];
            let mut command = self.command(rank, local);
            command.env(env::JOB, shared.job).env(env::LIFELINE_FD, named(&files[0])?);
            command.env(env::NOTICE_FD, named(&voice)?);
            if let Some(segment) = &segment {
                command.env(env::SHM_FD, number(segment));
                files.push(Arc::clone(segment));
            }
            if let Some(manifest) = &manifest {
                // A link takes the place of the sockets, which close here: the launcher's files don't become more.
                let sockets = sockets.next().expect("every rank has sockets");
                let sockets: Vec<OwnedFd> = sockets.into_iter().map(OwnedFd::from).collect();
                let link = started.links.add().map_err(system("a link to a rank"))?;
                let numbers: Vec<String> = sockets.iter().map(number).collect();
                command.env(env::UDP_FDS, numbers.join(",")).env(env::CONTROL_FD, named(&link)?);
                command.env(env::MANIFEST_FD, number(manifest));
                files.push(Arc::clone(manifest));
                files.extend(sockets.into_iter().chain([link]).map(Arc::new));
            }
            let files_before = limits::before();
            tie(&mut command, Inheritance { mask: shared.signals.before(), files, cpus, files_before });
            let mut child = command.spawn().map_err(|source| self.not_started(rank, source))?;
            let out = child.stdout.take().map(|pipe| (Rank(rank), Stream::Out, pipe.into()));
            let err = child.stderr.take().map(|pipe| (Rank(rank), Stream::Err, pipe.into()));
            started.pipes.extend(out.into_iter().chain(err));
            started.places.insert(child.id(), local);
            started.ranks.push(Some(child));
        }
        Ok(started)
    }

    fn command(&self, rank: u32, local: usize) -> Command {
        let mut command = Command::new(&self.program);
        if let Some(arg0) = &self.arg0 {
            command.arg0(arg0);
        }
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        // None of another job's variables: which of them are set says what kind of job this is.
        for variable in env::SET_BY_LAUNCHER {
            command.env_remove(variable);
        }
        command
            .env_remove(env::RENDEZVOUS)
            .args(&self.args)
            .envs(self.environment.iter().map(|(key, value)| (key, value)))
            .env(env::RANK, rank.to_string())
            .env(env::RANKS, self.ranks.to_string())
            .env(env::LOCAL_RANK, local.to_string())
            .env(env::LOCAL_RANKS, self.members.len().to_string())
            .env(env::LAUNCHER, &self.kind)
            .env(env::LAUNCHER_PID, getpid().to_string());
        if self.keep_going {
            command.env(env::KEEP_GOING, "1");
        }
        if rank > 0 {
            command.stdin(Stdio::null());
        }
        if self.prefix {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        command
    }

    fn not_started(&self, rank: u32, source: io::Error) -> LaunchError {
        let program = self.program.clone();
        if let Some(directory) = self.directory.as_deref().filter(|directory| !directory.is_dir()) {
            return LaunchError::NoDirectory { directory: directory.to_owned() };
        }
        match nix::Error::from_raw(source.raw_os_error().unwrap_or_default()) {
            nix::Error::ENOENT | nix::Error::ENOTDIR => LaunchError::NotFound { program, source },
            nix::Error::EAGAIN | nix::Error::ENOMEM | nix::Error::EMFILE | nix::Error::ENFILE => {
                LaunchError::System { what: format!("starting rank {rank} of {}", self.ranks), source }
            }
            _ => LaunchError::NotExecutable { program, source },
        }
    }
}

fn number(file: &OwnedFd) -> String {
    file.as_raw_fd().to_string()
}

/// A descriptor's number and which file it is.
fn named(file: &OwnedFd) -> Result<String, LaunchError> {
    Descriptor::of(file).map(|file| file.to_string()).map_err(system("a descriptor"))
}

/// The running ranks of a host by the numbers of their processes: their places.
pub(crate) type Places = BTreeMap<u32, usize>;

/// The running ranks of a host; those that haven't ended when this is dropped are killed and waited for.
#[derive(Debug)]
pub(crate) struct Started {
    /// The rank of each process.
    pub(crate) members: Vec<u32>,
    /// By place among the members; `None` once waited for.
    pub(crate) ranks: Vec<Option<Child>>,
    /// The places by process.
    pub(crate) places: Places,
    pub(crate) pipes: Vec<(Rank, Stream, OwnedFd)>,
    /// Those of a job with UDP.
    pub(crate) links: ControlLinks,
    pub(crate) notices: Notices,
}

impl Drop for Started {
    fn drop(&mut self) {
        for child in self.ranks.iter_mut().flatten() {
            let _ = child.kill();
        }
        for child in self.ranks.iter_mut().flatten() {
            let _ = child.wait();
        }
    }
}

/// Binds UDP sockets for the ranks of a host, `endpoints` for each, all on one address.
///
/// # Errors
/// [`UdpError::Bind`].
pub(crate) fn bind_sockets(
    address: IpAddr,
    ranks: usize,
    endpoints: u16,
) -> Result<Vec<Vec<UdpSocket>>, UdpError> {
    let endpoints = usize::from(endpoints);
    limits::make_room(64 + ranks * endpoints);
    let one_rank = |_| (0..endpoints).map(|_| transport_udp::bind((address, 0).into())).collect();
    (0..ranks).map(one_rank).collect()
}

/// The addresses of bound sockets.
///
/// # Errors
/// Those of the system.
pub(crate) fn addresses_of(sockets: &[UdpSocket]) -> io::Result<Vec<SocketAddr>> {
    sockets.iter().map(UdpSocket::local_addr).collect()
}

/// One set per processor that this process may run on.
fn processors() -> nix::Result<Vec<CpuSet>> {
    let usable = sched_getaffinity(Pid::from_raw(0))?;
    (0..CpuSet::count())
        .filter(|&cpu| usable.is_set(cpu).unwrap_or(false))
        .map(|cpu| {
            let mut one = CpuSet::new();
            one.set(cpu).map(|()| one)
        })
        .collect()
}

/// How many processors this process may run on; at least 1.
pub fn usable_processors() -> u32 {
    processors().ok().and_then(|usable| u32::try_from(usable.len()).ok()).unwrap_or(1).max(1)
}
