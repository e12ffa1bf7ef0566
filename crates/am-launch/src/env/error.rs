//! What can be wrong with the environment of a launcher or a rank.

use std::ffi::{OsStr, OsString};

/// What to do where only some of this crate's variables are set.
fn remedy(present: &str, value: &OsStr) -> String {
    match present {
        "AM_RANKS" => {
            format!(": `amrun -n {} PROGRAM` starts so many ranks, and sets what each needs", value.display())
        }
        _ if present.starts_with("AM_") => ": `amrun -n RANKS PROGRAM` sets what each rank needs".into(),
        _ => String::new(),
    }
}

/// What ranks on several hosts need.
const REMEDY: &str =
    ": set AM_RENDEZVOUS=HOST:PORT (rank 0's host, a free port) and AM_SECRET_FILE=FILE for every rank";

/// What is wrong with the environment of a rank.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvironmentError {
    /// A variable's value is not what it has to be: a number, one that fits, a time.
    #[error("{variable}={} in the environment is not {expected}", value.display())]
    Malformed {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: OsString,
        /// What it should be.
        expected: &'static str,
    },
    /// A variable with this family's prefix is none that anybody in it reads.
    #[error(
        "{variable} in the environment is no variable of active messages; the nearest is {nearest} (AM_IGNORE={variable} if \
         another program reads it)"
    )]
    Unknown {
        /// The variable.
        variable: String,
        /// The known variable whose name is most like it.
        nearest: &'static str,
    },
    /// What a transport, or another library, reads from the environment makes no sense to it.
    #[error("{reason}")]
    Setting {
        /// Which variable, and what is wrong with it.
        reason: String,
    },
    /// A variable's value is not text.
    #[error("{variable} in the environment is not UTF-8 text: {value:?}")]
    NotText {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: OsString,
    },
    /// A variable that goes with another one is missing.
    #[error("{present}={} is set in the environment but {missing} is not{}", value.display(), remedy(present, value))]
    Incomplete {
        /// The variable that is set.
        present: &'static str,
        /// Its value.
        value: OsString,
        /// The variable, or the choice of variables, that is missing.
        missing: &'static str,
    },
    /// The rank is not one of the job's.
    #[error(
        "{rank_variable}={rank} in the environment, but with {ranks_variable}={ranks} a rank is less than {ranks}"
    )]
    OutOfRange {
        /// The variable that has the rank.
        rank_variable: &'static str,
        /// The rank.
        rank: u32,
        /// The variable that has the number of ranks.
        ranks_variable: &'static str,
        /// The number of ranks.
        ranks: u32,
    },
    /// The ranks are spread over several hosts.
    #[error(
        "{local_variable}={local} of {ranks} ranks are on this host, and nothing says where ranks of several hosts meet{REMEDY}"
    )]
    SeveralHosts {
        /// The variable that has the number of ranks (or, for Slurm, of hosts) here.
        local_variable: &'static str,
        /// Its value.
        local: u32,
        /// The number of ranks.
        ranks: u32,
    },
    /// Slurm spread the step over several hosts.
    #[error(
        "{variable}={hosts}: the job step spans {hosts} hosts, and nothing says where ranks of several hosts meet{REMEDY}; or start \
         the step by `srun --mpi=pmi2`"
    )]
    SeveralNodes {
        /// The variable that has the number of hosts.
        variable: &'static str,
        /// The number of hosts.
        hosts: u32,
    },
}
