//! The launcher: a builder of a job's description, and the way from there to running ranks, on this host or on
//! several.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::cluster::monitor;
use crate::cluster::options::Hosts;
use crate::env;
use crate::env::check::{check_own, try_own};
use crate::error::{LaunchError, quoted, system};
use crate::host::lifeline::Lifeline;
use crate::host::local_ranks::{LocalRanks, Shared};
use crate::host::signals::Signals;
use crate::host::subreaper::Subreaper;
use crate::host::supervise::supervise;
use crate::interface::{InterfaceWish, choose, interface_of};
use crate::manifest::{HostEntry, JobManifest};
use crate::outcome::Outcome;
use crate::secret::Secret;
use crate::spec::{JobSpec, MAX_RANKS, job_id};

/// Starts a program as N ranks, on this host or several, and waits for them: what `amrun` does, as a library.
///
/// ```no_run
/// let outcome = am_launch::Launcher::new("./solver").arg("--fast").ranks(4).launch()?;
/// assert!(outcome.is_success(), "rank {:?} failed", outcome.first_failure());
/// # Ok::<(), am_launch::LaunchError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Launcher {
    spec: JobSpec,
    hosts: Option<Hosts>,
}

impl Launcher {
    /// One rank of `program`, which is looked up in `PATH` unless its name has a slash.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self { spec: JobSpec::new(program.into()), hosts: None }
    }

    /// Appends one argument for every rank, passed on byte by byte.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.spec.args.push(arg.into());
        self
    }

    /// Appends arguments for every rank.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.spec.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets a variable in the environment of every rank, which otherwise is this process's.
    #[must_use]
    pub fn env(mut self, key: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.spec.environment.push((key.into(), value.into()));
        self
    }

    /// The number of ranks, 1 to [`MAX_RANKS`](crate::MAX_RANKS).
    #[must_use]
    pub fn ranks(mut self, ranks: u32) -> Self {
        self.spec.ranks = ranks;
        self
    }

    /// The name in front of the launcher's own messages on standard error.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.spec.name = name.into();
        self
    }

    /// Whether each line of output gets its rank in front, as in `[3] line`, and is never torn by another's.
    /// Without it (the default) ranks write to this process's streams themselves.
    #[must_use]
    pub fn prefix(mut self, prefix: bool) -> Self {
        self.spec.prefix = prefix;
        self
    }

    /// Whether the other ranks go on when one fails. By default they are ended.
    #[must_use]
    pub fn keep_going(mut self, keep_going: bool) -> Self {
        self.spec.keep_going = keep_going;
        self
    }

    /// Ends the job after this time; the ranks say before what they wait for.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.spec.time_limit = Some(limit);
        self
    }

    /// The time-out of every wait of every rank: sets `AM_TIMEOUT` for them. A wait beyond it fails with a report
    /// of what it waits for.
    #[must_use]
    pub fn wait_timeout(self, timeout: Duration) -> Self {
        self.env(env::TIMEOUT, format!("{}s", timeout.as_secs_f64()))
    }

    /// How long ranks that were told to end (SIGTERM) get before they are killed;
    /// [`DEFAULT_GRACE`](crate::DEFAULT_GRACE) by default.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.spec.grace = grace;
        self
    }

    /// Whether each rank is bound to one processor, in turn, of those this process may use. Off by default.
    #[must_use]
    pub fn bind(mut self, bind: bool) -> Self {
        self.spec.bind = bind;
        self
    }

    /// Whether processes that the ranks started and left behind belong to the job and are ended with it.
    ///
    /// For processes whose only purpose is to launch, such as `amrun`: for the time of the job *every* orphan
    /// among this process's descendants becomes its child, and all its other children are ended with the job. Off
    /// by default.
    #[must_use]
    pub fn adopt(mut self, adopt: bool) -> Self {
        self.spec.adopt = adopt;
        self
    }

    /// Makes it the launcher of this very program, with its arguments, for a job that the program starts by
    /// itself.
    pub(crate) fn of_this_program(mut self, file: PathBuf) -> Self {
        let mut args = std::env::args_os();
        self.spec.kind = env::LAUNCHER_ITSELF;
        self.spec.program = file.into();
        self.spec.arg0 = args.next();
        self.spec.args = args.collect();
        self
    }

    /// How many endpoints a rank has.
    pub(crate) fn endpoints_of_rank(&self) -> u16 {
        self.spec.endpoints
    }

    /// Endpoints of every rank (threads that communicate), 1 by default.
    #[must_use]
    pub fn endpoints(mut self, endpoints: u16) -> Self {
        self.spec.endpoints = endpoints;
        self
    }

    /// The address that ranks of a job on this host alone use among each other; by default that of the loopback
    /// interface.
    #[must_use]
    pub fn interface(mut self, wish: InterfaceWish) -> Self {
        self.spec.interface = Some(wish);
        self
    }

    /// The hosts to start the ranks on, instead of this one alone.
    ///
    /// An agent is started on each of them, which meets the launcher at one TCP port and dies with it.
    #[must_use]
    pub fn hosts(mut self, hosts: Hosts) -> Self {
        self.hosts = Some(hosts);
        self
    }

    /// Whether the launcher says on standard error which host, address, process and processors each rank has, and
    /// how and when it ends. Off by default.
    #[must_use]
    pub fn verbose(mut self, verbose: bool) -> Self {
        self.spec.verbose = verbose;
        self
    }

    /// Starts the ranks and waits until the last one has ended.
    ///
    /// Rank 0 inherits standard input, the others read from `/dev/null`. While it runs, the calling thread passes
    /// SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 on to the ranks, of which SIGQUIT makes them print
    /// what they wait for. In a process with other threads these may get the signals instead, and the end of a
    /// rank may be noticed 20 ms late. If the calling thread or process dies, the ranks die. A message on standard
    /// error names the first rank that fails, not one that failed because another one was lost.
    ///
    /// # Errors
    /// A wrong configuration, an unknown or senseless `AM_` variable, a program that can't be started, a host that
    /// can't be reached, or a refusing operating system. No rank is left running.
    pub fn launch(&self) -> Result<Outcome, LaunchError> {
        self.check()?;
        if let Some(hosts) = &self.hosts {
            return monitor::launch(&self.spec, hosts);
        }
        let signals = Signals::take().map_err(system("signal handling"))?;
        let manifest = self.manifest()?;
        let lifeline = Lifeline::new().map_err(system("a pipe"))?;
        let subreaper =
            if self.spec.adopt { Some(Subreaper::begin().map_err(system("adopting orphans"))?) } else { None };
        let program = quoted(&self.spec.program);
        self.spec
            .log_verbose(&format!("job {}: {} ranks of {program} on this host", manifest.job, self.spec.ranks));
        let shared = Shared { manifest: &manifest, lifeline: &lifeline, signals: &signals };
        let started = LocalRanks::of(&self.spec).start(shared)?;
        supervise(&self.spec, started, &signals, subreaper.as_ref())
    }

    fn check(&self) -> Result<(), LaunchError> {
        if !(1..=MAX_RANKS).contains(&self.spec.ranks) {
            return Err(LaunchError::RankCount { ranks: self.spec.ranks });
        }
        for (key, _) in &self.spec.environment {
            if env::SET_BY_LAUNCHER.iter().any(|ours| key == ours) {
                return Err(LaunchError::ReservedVariable { key: key.clone() });
            }
            let bytes = key.as_encoded_bytes();
            if bytes.is_empty() || bytes.contains(&b'=') {
                return Err(LaunchError::MalformedVariable { key: key.clone() });
            }
        }
        check_own(&self.spec.environment)?;
        // Other hosts have limits of their own, and ranks there make their own trials.
        if self.hosts.is_none() {
            try_own(&self.spec.environment, self.spec.ranks * u32::from(self.spec.endpoints))?;
        }
        Ok(())
    }

    /// The manifest of a job on this host alone.
    fn manifest(&self) -> Result<JobManifest, LaunchError> {
        let chosen = self.spec.interface.as_ref().map(choose).transpose();
        let chosen = chosen.map_err(|error| LaunchError::Interface { reason: error.to_string() })?;
        let address = chosen.map_or(IpAddr::from([127, 0, 0, 1]), |chosen| chosen.address);
        let interface = interface_of(address);
        Ok(JobManifest {
            job: job_id(),
            secret: Secret::random().map_err(system("the job's secret"))?,
            endpoints: self.spec.endpoints,
            hosts: vec![HostEntry { name: "localhost".into(), address, interface }],
            host_of: vec![0; self.spec.ranks as usize],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::{Lookup, Settings, register};
    use crate::parse_hosts;

    fn refuse(lookup: Lookup<'_>, endpoints: u32) -> Result<(), String> {
        lookup("AM_TEST_TRIAL").map_or(Ok(()), |value| Err(format!("{value} {endpoints}")))
    }

    /// Limits of this host say nothing of another one's.
    #[test]
    fn trials_are_made_for_ranks_of_this_host() {
        register(Settings::new(&["AM_TEST_TRIAL"], |_| Ok(())).trial(refuse));
        let launcher = Launcher::new("program").ranks(3).endpoints(2);
        assert!(launcher.check().is_ok());
        let launcher = launcher.env("AM_TEST_TRIAL", "no");
        let error = launcher.check().unwrap_err();
        assert!(matches!(error, LaunchError::Environment(_)), "{error:?}");
        assert_eq!(error.to_string(), "no 6");
        assert!(launcher.hosts(Hosts::new(parse_hosts("a,b").unwrap())).check().is_ok());
        // Ranks, which know the others of their host, make their own.
        assert!(check_own(&[("AM_TEST_TRIAL".into(), "no".into())]).is_ok());
    }
}
