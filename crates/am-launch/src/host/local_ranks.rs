//! The ranks of one host, from their description to running processes: what a launcher does on its own host and an
//! agent on another one.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use am_core::Rank;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::{Pid, getpid};

use crate::codec::wire;
use crate::control_links::ControlLinks;
use crate::descriptors::Descriptor;
use crate::env;
use crate::error::{LaunchError, system};
use crate::host::lifeline::Lifeline;
use crate::host::limits;
use crate::host::output::Stream;
use crate::host::signals::Signals;
use crate::host::spawn::{Inheritance, tie};
use crate::manifest::JobManifest;
use crate::notices::Notices;
use crate::spec::JobSpec;

/// What one host has to know to start its ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
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
wire!(struct LocalRanks {
    program, arg0, args, environment, directory, ranks, members, kind, prefix, bind, keep_going,
});

/// What the ranks of a host share.
pub(crate) struct Shared<'a> {
    pub(crate) manifest: &'a JobManifest,
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

    /// Starts every rank of this host, or none.
    ///
    /// # Errors
    /// The program can't be started, or the operating system refuses what it needs.
    pub(crate) fn start(&self, shared: Shared<'_>) -> Result<Started, LaunchError> {
        let processors = if self.bind { Some(processors().map_err(system("processor binding"))?) } else { None };
        limits::make_room(64 + if self.prefix { 3 } else { 1 } * self.members.len());
        let notices = Notices::new().map_err(system("a pipe"))?;
        let voice = Arc::clone(notices.inherited());
        let (members, ranks, pipes, links) =
            (self.members.clone(), Vec::new(), Vec::new(), ControlLinks::default());
        let mut started = Started { members, ranks, places: Places::new(), pipes, links, notices };
        let manifest = Arc::new(shared.manifest.file().map_err(system("a memory file"))?);
        for (local, &rank) in self.members.iter().enumerate() {
            let cpus = processors.as_ref().map(|usable| usable[local % usable.len()]);
            let mut files = vec![Arc::clone(shared.lifeline.watched()), Arc::clone(&voice)];
            let mut command = self.command(rank, local);
            command.env(env::JOB, &shared.manifest.job).env(env::LIFELINE_FD, named(&files[0])?);
            command.env(env::NOTICE_FD, named(&voice)?);
            let link = started.links.add().map_err(system("a link to a rank"))?;
            command.env(env::CONTROL_FD, named(&link)?).env(env::MANIFEST_FD, named(&manifest)?);
            files.extend([Arc::clone(&manifest), Arc::new(link)]);
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
