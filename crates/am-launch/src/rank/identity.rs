//! Who this process is in its job, read from the environment that a launcher left: ours, an MPI's or Slurm's.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::str::FromStr;

use am_core::Rank;

use crate::descriptors::Descriptor;
use crate::env;
use crate::env::error::EnvironmentError;
use crate::rank::kvs::KeyValueSpace;
use crate::rank::kvs::pmi::{PmiServer, Version};

/// How the ranks of a job were started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartedBy {
    /// By `amrun`, or by a [`Launcher`](crate::Launcher) in another program.
    Amrun,
    /// By the program itself: it was started plainly and executed itself once per rank.
    Itself,
    /// By an `mpirun` (`OMPI_COMM_WORLD_RANK`, `PMI_RANK` or `PMIX_RANK`).
    Mpirun,
    /// By Slurm's `srun` (`SLURM_PROCID` within a job step).
    Srun,
    /// By hand: somebody set `AM_RANK`, `AM_RANKS` and `AM_JOB` (on one host) or `AM_RENDEZVOUS` for each process.
    Hand,
}

impl fmt::Display for StartedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Amrun => "amrun",
            Self::Itself => "the program itself",
            Self::Mpirun => "mpirun",
            Self::Srun => "srun",
            Self::Hand => "hand",
        })
    }
}

/// One rank as its environment describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) rank: Rank,
    pub(crate) ranks: u32,
    pub(crate) local_rank: u32,
    pub(crate) started_by: StartedBy,
    /// The variable that has the rank.
    pub(crate) rank_variable: &'static str,
    /// Absent if the launcher names no job.
    pub(crate) job: Option<String>,
    pub(crate) launcher_pid: Option<u32>,
    pub(crate) lifeline_fd: Option<Descriptor>,
    pub(crate) notice_fd: Option<Descriptor>,
    /// What a launcher of this family leaves; absent if ranks have to meet first.
    pub(crate) inherited: Option<Inherited>,
    /// Where ranks meet that no launcher of this family started.
    pub(crate) rendezvous: Option<String>,
    /// Where ranks of several hosts tell each other where they meet, if nobody else does.
    pub(crate) space: Option<KeyValueSpace>,
}

/// The descriptors of a job's manifest and of the link to the launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inherited {
    pub(crate) manifest: Descriptor,
    pub(crate) control: Descriptor,
}

/// Reads the identity through `lookup`, which is `std::env::var_os` outside of tests. `None` means that nobody
/// launched this process as a rank.
pub(crate) fn identify(
    lookup: &dyn Fn(&'static str) -> Option<OsString>,
) -> Result<Option<Identity>, EnvironmentError> {
    let environment = Environment { lookup };
    for scheme in [ours, open_mpi, pmi, srun, pmix] {
        if let Some(identity) = scheme(&environment)? {
            return Ok(Some(identity));
        }
    }
    Ok(None)
}

/// The variables of this family; they win, since `amrun` may itself run below another launcher.
fn ours(environment: &Environment<'_>) -> Result<Option<Identity>, EnvironmentError> {
    let Some(pair) = environment.pair(env::RANK, env::RANKS)? else { return Ok(None) };
    let launcher = environment.raw(env::LAUNCHER);
    let started_by = match launcher.as_deref().map(OsStr::as_encoded_bytes) {
        Some(b"self") => StartedBy::Itself,
        Some(_) => StartedBy::Amrun,
        None => StartedBy::Hand,
    };
    let inherited = environment.inherited()?;
    // A launcher of this family is the ranks' meeting point itself.
    let rendezvous = if launcher.is_none() { environment.text(env::RENDEZVOUS)? } else { None };
    let job = environment.text(env::JOB)?;
    if job.is_none() && rendezvous.is_none() {
        return Err(environment.incomplete(env::RANK, "AM_JOB (on one host) or AM_RENDEZVOUS"));
    }
    if let (None, Some(value)) = (inherited, launcher) {
        let (present, missing) = (env::LAUNCHER, env::MANIFEST_FD);
        return Err(EnvironmentError::Incomplete { present, value, missing });
    }
    if inherited.is_none() {
        environment.one_host(env::LOCAL_RANKS, pair.ranks)?;
    }
    Ok(Some(Identity {
        inherited,
        rendezvous,
        local_rank: environment.rank(env::LOCAL_RANK)?.unwrap_or(pair.rank.0),
        launcher_pid: environment.number(env::LAUNCHER_PID, "a process id")?,
        lifeline_fd: environment.file(env::LIFELINE_FD)?,
        notice_fd: environment.file(env::NOTICE_FD)?,
        ..pair.identity(started_by, job)
    }))
}

/// Open MPI's `mpirun`, and PRRTE's, which sets the same variables.
fn open_mpi(environment: &Environment<'_>) -> Result<Option<Identity>, EnvironmentError> {
    let Some(pair) = environment.pair("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")? else { return Ok(None) };
    let one_host = environment.one_host("OMPI_COMM_WORLD_LOCAL_SIZE", pair.ranks);
    let space = environment.space_unless(one_host)?;
    let job = environment.first_text(&[env::JOB, "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"])?;
    let local_rank = environment.rank("OMPI_COMM_WORLD_LOCAL_RANK")?.unwrap_or(pair.rank.0);
    let rendezvous = environment.text(env::RENDEZVOUS)?;
    Ok(Some(Identity { local_rank, rendezvous, space, ..pair.identity(StartedBy::Mpirun, job) }))
}

/// MPICH, Intel MPI, MVAPICH and `srun --mpi=pmi2`.
fn pmi(environment: &Environment<'_>) -> Result<Option<Identity>, EnvironmentError> {
    let Some(pair) = environment.pair("PMI_RANK", "PMI_SIZE")? else { return Ok(None) };
    let one_host = environment.one_host("MPI_LOCALNRANKS", pair.ranks).and_then(|()| environment.one_node());
    let space = environment.space_unless(one_host)?;
    let job = environment.first_text(&[env::JOB, "PMI_JOBID"])?.or(environment.slurm_step()?);
    let local_rank = environment.rank("MPI_LOCALRANKID")?.unwrap_or(pair.rank.0);
    let rendezvous = environment.text(env::RENDEZVOUS)?;
    Ok(Some(Identity { local_rank, rendezvous, space, ..pair.identity(StartedBy::Mpirun, job) }))
}

/// Slurm's `srun`. A batch script and the programs that it starts plainly have `SLURM_PROCID=0` as well, but no
/// job step (or a step with one of Slurm's reserved numbers): such a program, and a step of one task, is not a
/// rank.
fn srun(environment: &Environment<'_>) -> Result<Option<Identity>, EnvironmentError> {
    let Some(step) = environment.slurm_step()? else { return Ok(None) };
    let Some(rank) = environment.rank("SLURM_PROCID")? else { return Ok(None) };
    let mut ranks = None;
    for variable in ["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"] {
        ranks = ranks.or(environment.count(variable)?.map(|ranks| (variable, ranks)));
    }
    let Some((ranks_variable, ranks)) = ranks else {
        return Err(environment.incomplete("SLURM_PROCID", "SLURM_NTASKS"));
    };
    let pair = Pair::checked(("SLURM_PROCID", rank), (ranks_variable, ranks))?;
    if pair.ranks == 1 {
        return Ok(None);
    }
    let rendezvous = match environment.text(env::RENDEZVOUS)? {
        None => environment.slurm_rendezvous()?,
        given => given,
    };
    let space = match &rendezvous {
        None => environment.space_unless(environment.one_node())?,
        Some(_) => None,
    };
    let job = environment.text(env::JOB)?.unwrap_or(step);
    let local_rank = environment.rank("SLURM_LOCALID")?.unwrap_or(rank);
    Ok(Some(Identity { local_rank, rendezvous, space, ..pair.identity(StartedBy::Srun, Some(job)) }))
}

/// A PMIx launcher that sets nothing else: PMIx hands the number of ranks out through its library only, so
/// `AM_RANKS` has to say it.
fn pmix(environment: &Environment<'_>) -> Result<Option<Identity>, EnvironmentError> {
    // A step of one task was found above not to be a job of ranks; its PMIx variables don't change that.
    if environment.slurm_step()?.is_some() {
        return Ok(None);
    }
    let Some(rank) = environment.rank("PMIX_RANK")? else { return Ok(None) };
    let Some(ranks) = environment.count(env::RANKS)? else {
        return Err(environment.incomplete("PMIX_RANK", "a number of ranks (OMPI_COMM_WORLD_SIZE or AM_RANKS)"));
    };
    let pair = Pair::checked(("PMIX_RANK", rank), (env::RANKS, ranks))?;
    let job = environment.first_text(&[env::JOB, "PMIX_NAMESPACE"])?;
    let rendezvous = environment.text(env::RENDEZVOUS)?;
    Ok(Some(Identity { rendezvous, ..pair.identity(StartedBy::Mpirun, job) }))
}

/// A rank and a number of ranks that fit together.
struct Pair {
    rank_variable: &'static str,
    rank: Rank,
    ranks: u32,
}

impl Pair {
    fn checked(
        (rank_variable, rank): (&'static str, u32),
        (ranks_variable, ranks): (&'static str, u32),
    ) -> Result<Self, EnvironmentError> {
        if rank >= ranks {
            return Err(EnvironmentError::OutOfRange { rank_variable, rank, ranks_variable, ranks });
        }
        Ok(Self { rank_variable, rank: Rank(rank), ranks })
    }

    fn identity(&self, started_by: StartedBy, job: Option<String>) -> Identity {
        Identity {
            rank: self.rank,
            ranks: self.ranks,
            local_rank: self.rank.0,
            started_by,
            rank_variable: self.rank_variable,
            job,
            launcher_pid: None,
            lifeline_fd: None,
            notice_fd: None,
            inherited: None,
            rendezvous: None,
            space: None,
        }
    }
}

/// Typed reading of variables.
struct Environment<'a> {
    lookup: &'a dyn Fn(&'static str) -> Option<OsString>,
}

impl Environment<'_> {
    fn raw(&self, variable: &'static str) -> Option<OsString> {
        (self.lookup)(variable)
    }

    fn text(&self, variable: &'static str) -> Result<Option<String>, EnvironmentError> {
        let text = self.raw(variable).map(OsString::into_string).transpose();
        text.map_err(|value| EnvironmentError::NotText { variable, value })
    }

    /// The first of these that is set.
    fn first_text(&self, variables: &[&'static str]) -> Result<Option<String>, EnvironmentError> {
        for &variable in variables {
            if let Some(text) = self.text(variable)? {
                return Ok(Some(text));
            }
        }
        Ok(None)
    }

    fn number<T: FromStr>(
        &self,
        variable: &'static str,
        expected: &'static str,
    ) -> Result<Option<T>, EnvironmentError> {
        let Some(value) = self.raw(variable) else { return Ok(None) };
        match value.to_str().map(str::parse) {
            Some(Ok(number)) => Ok(Some(number)),
            _ => Err(EnvironmentError::Malformed { variable, value, expected }),
        }
    }

    fn rank(&self, variable: &'static str) -> Result<Option<u32>, EnvironmentError> {
        self.number(variable, "a rank")
    }

    fn count(&self, variable: &'static str) -> Result<Option<u32>, EnvironmentError> {
        let expected = "a number of ranks";
        match self.number(variable, expected)? {
            Some(0) => Err(EnvironmentError::Malformed { variable, value: "0".into(), expected }),
            count => Ok(count),
        }
    }

    /// Both, or neither, and in range. A lone number of ranks doesn't make a rank, unless it is one of ours.
    fn pair(&self, rank: &'static str, ranks: &'static str) -> Result<Option<Pair>, EnvironmentError> {
        match (self.rank(rank)?, self.count(ranks)?) {
            (Some(number), Some(count)) => Pair::checked((rank, number), (ranks, count)).map(Some),
            (Some(_), None) => Err(self.incomplete(rank, ranks)),
            (None, Some(_)) if ranks == env::RANKS && self.raw("PMIX_RANK").is_none() => {
                Err(self.incomplete(ranks, rank))
            }
            (None, _) => Ok(None),
        }
    }

    fn incomplete(&self, present: &'static str, missing: &'static str) -> EnvironmentError {
        EnvironmentError::Incomplete { present, value: self.raw(present).unwrap_or_default(), missing }
    }

    fn file(&self, variable: &'static str) -> Result<Option<Descriptor>, EnvironmentError> {
        self.number(variable, "a file descriptor as NUMBER:DEVICE:INODE")
    }

    /// What a launcher leaves: all of it or nothing.
    fn inherited(&self) -> Result<Option<Inherited>, EnvironmentError> {
        let Some(manifest) = self.file(env::MANIFEST_FD)? else { return Ok(None) };
        let control = self.file(env::CONTROL_FD)?;
        let control = control.ok_or_else(|| self.incomplete(env::MANIFEST_FD, env::CONTROL_FD))?;
        Ok(Some(Inherited { manifest, control }))
    }

    /// Whether ranks on several hosts have a place to meet.
    fn has_rendezvous(&self) -> bool {
        self.raw(env::RENDEZVOUS).is_some()
    }

    /// Fails if a launcher says that only some of the ranks are here.
    fn one_host(&self, local_variable: &'static str, ranks: u32) -> Result<(), EnvironmentError> {
        if self.has_rendezvous() {
            return Ok(());
        }
        match self.count(local_variable)? {
            Some(local) if local < ranks => Err(EnvironmentError::SeveralHosts { local_variable, local, ranks }),
            _ => Ok(()),
        }
    }

    /// Fails if Slurm says that the step spans several hosts.
    fn one_node(&self) -> Result<(), EnvironmentError> {
        let variable = "SLURM_STEP_NUM_NODES";
        if self.has_rendezvous() {
            return Ok(());
        }
        match self.number(variable, "a number of hosts")? {
            Some(hosts) if hosts > 1 => Err(EnvironmentError::SeveralNodes { variable, hosts }),
            _ => Ok(()),
        }
    }

    /// The launcher's key-value space, where ranks are not on one host; what that says if there is none.
    fn space_unless(
        &self,
        one_host: Result<(), EnvironmentError>,
    ) -> Result<Option<KeyValueSpace>, EnvironmentError> {
        match one_host {
            Err(EnvironmentError::SeveralHosts { .. } | EnvironmentError::SeveralNodes { .. }) => {}
            other => return other.map(|()| None),
        }
        if let Some(number) = self.number("PMI_FD", "the number of a socket")? {
            // Who says `srun --mpi=pmi2` asks for version 2.
            let first = if self.slurm_step()?.is_some() { Version::Two } else { Version::One };
            return Ok(Some(KeyValueSpace::Pmi(PmiServer { socket: number, first })));
        }
        match self.raw("PMIX_NAMESPACE") {
            Some(_) => Ok(Some(KeyValueSpace::Pmix)),
            None => one_host.map(|()| None),
        }
    }

    /// Where the ranks of a job step on several hosts meet if nobody says so: on its first host, where Slurm puts
    /// rank 0, at a port that follows from the step's number. Only for ranks that have a secret to meet with.
    fn slurm_rendezvous(&self) -> Result<Option<String>, EnvironmentError> {
        let hosts: Option<u32> = self.number("SLURM_STEP_NUM_NODES", "a number of hosts")?;
        if hosts.is_none_or(|hosts| hosts < 2) || self.raw(env::SECRET_FILE).is_none() {
            return Ok(None);
        }
        let list = self.first_text(&["SLURM_STEP_NODELIST", "SLURM_NODELIST"])?;
        let step: Option<u32> = self.number("SLURM_STEP_ID", "a job step")?;
        let mut job: Option<u32> = None;
        for variable in ["SLURM_JOB_ID", "SLURM_JOBID"] {
            job = job.or(self.number(variable, "a job's number")?);
        }
        let (job, step) = (job.unwrap_or_default(), step.unwrap_or_default());
        // Below the ports that systems hand out by themselves, and seldom the same for two steps on one host.
        let port = 20_000 + job.wrapping_mul(61).wrapping_add(step) % 12_000;
        Ok(list.as_deref().and_then(first_host).map(|host| format!("{host}:{port}")))
    }

    /// A name for the Slurm job step that this process belongs to, if it is one that `srun` started.
    fn slurm_step(&self) -> Result<Option<String>, EnvironmentError> {
        /// From here on Slurm numbers batch scripts, interactive shells and the like.
        const FIRST_RESERVED: u32 = 0xffff_fff0;
        let step: Option<u32> = self.number("SLURM_STEP_ID", "a job step")?;
        let job = self.first_text(&["SLURM_JOB_ID", "SLURM_JOBID"])?;
        Ok(step
            .filter(|&step| step < FIRST_RESERVED)
            .map(|step| format!("slurm-{}.{step}", job.unwrap_or_default())))
    }
}

/// The first host of a list as Slurm writes it: `a1,b`, or `rack[03-07,9]-x`.
fn first_host(list: &str) -> Option<String> {
    let end = list.find(['[', ',']).unwrap_or(list.len());
    let (start, rest) = list.split_at(end);
    let host = match rest.strip_prefix('[') {
        Some(rest) => {
            let (numbers, after) = rest.split_once(']')?;
            let number = numbers.split(['-', ',']).next().unwrap_or_default();
            format!("{start}{number}{}", after.split(',').next().unwrap_or_default())
        }
        None => start.to_owned(),
    };
    Some(host).filter(|host| !host.is_empty() && !host.contains(['[', ']']))
}

#[cfg(test)]
mod tests;
