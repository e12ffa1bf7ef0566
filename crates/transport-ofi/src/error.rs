//! What can go wrong before an endpoint exists.

use am_core::{Address, Rank};
use std::io;
use std::sync::Arc;

/// An endpoint could not be made.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OfiError {
    /// libfabric is not installed, or not where the dynamic linker looks.
    #[error(
        "libfabric cannot be loaded; searched: {searched}. Install it (Debian, Ubuntu: apt-get install libfabric1; Fedora: dnf install \
         libfabric), or name its file in AM_OFI_LIBRARY"
    )]
    NoLibrary {
        /// Names and reasons.
        searched: String,
    },
    /// A library that was found is another one.
    #[error("{name} is not libfabric: it has no {symbol}; AM_OFI_LIBRARY has to name a libfabric.so.1")]
    NotLibfabric {
        /// Its name.
        name: String,
        /// A function that it lacks.
        symbol: String,
    },
    /// libfabric is older than this crate's interface.
    #[error(
        "{name} is libfabric {}.{}, but {}.{} or later is needed: install a newer one, or name its file in AM_OFI_LIBRARY",
        found.0, found.1, oldest.0, oldest.1
    )]
    TooOld {
        /// Its name.
        name: String,
        /// Its version.
        found: (u32, u32),
        /// The oldest that will do.
        oldest: (u32, u32),
    },
    /// No provider fits.
    #[error(
        "no provider of libfabric {asked}; this machine has: {there}. AM_FABRIC and AM_OFI_INTERFACE choose among them"
    )]
    NoProvider {
        /// What was asked for.
        asked: String,
        /// What there is, or why it is unknown.
        there: String,
    },
    /// A call of libfabric failed.
    #[error("{call} of libfabric's provider {provider} failed: {reason}{}", hint(*code))]
    Call {
        /// The function.
        call: &'static str,
        /// The provider, or what was asked for.
        provider: String,
        /// The error number.
        code: i32,
        /// What it means.
        reason: String,
    },
    /// It was opened before a fork, and is the parent's.
    #[error("this endpoint was opened before a fork and belongs to the parent: open one in the child")]
    Forked,
    /// The system has no memory, or no descriptors, for what an endpoint is made of.
    #[error("{} {what}: {reason}{}", lacking(reason), limit(reason))]
    Memory {
        /// For what.
        what: &'static str,
        /// What the system said.
        reason: Arc<io::Error>,
    },
    /// The process may not open as many descriptors as an endpoint with its connections takes.
    #[error(
        "an endpoint of libfabric's provider {provider} and its connections take up to {needed} descriptors, but `ulimit -n` permits \
         {limit}: raise it"
    )]
    Descriptors {
        /// The provider.
        provider: String,
        /// Descriptors that the process needs, those that are open among them.
        needed: u64,
        /// What it may open.
        limit: u64,
    },
    /// A setting makes no sense.
    #[error("{name}={value} in the settings of libfabric's transport is not {expected}")]
    Setting {
        /// Which.
        name: &'static str,
        /// What it is.
        value: String,
        /// What it must be.
        expected: &'static str,
    },
    /// The job has no such endpoint.
    #[error("endpoint {me} is not in a job of {ranks} ranks with {endpoints} endpoint(s) each")]
    NoSuchEndpoint {
        /// The endpoint asked for.
        me: Address,
        /// Ranks of the job.
        ranks: u32,
        /// Endpoints of every rank.
        endpoints: u16,
    },
    /// What a rank tells of itself makes no sense.
    #[error(
        "rank {rank} tells {what}, which is no card of an endpoint of this program: start all ranks from one build"
    )]
    Card {
        /// The rank.
        rank: Rank,
        /// The beginning of what it tells.
        what: String,
    },
    /// Two ranks use different providers or sizes.
    #[error(
        "rank {rank} uses {theirs}, but this rank {ours}: set AM_FABRIC and AM_OFI_INTERFACE alike for all ranks"
    )]
    Differs {
        /// The other rank.
        rank: Rank,
        /// What it uses.
        theirs: String,
        /// What this one uses.
        ours: String,
    },
}

/// What helps against an error number that people meet.
fn hint(code: i32) -> &'static str {
    match code.saturating_abs() {
        libc::ENOMEM => " (memory for registration is limited by `ulimit -l`: raise it to unlimited)",
        libc::EMFILE => " (descriptors are limited by `ulimit -n`: raise it)",
        libc::ENODEV | libc::EADDRNOTAVAIL => " (the interface is not there: AM_OFI_INTERFACE chooses one)",
        _ => "",
    }
}

/// What the system refuses: every thing of an endpoint takes memory, some of them descriptors, too.
fn lacking(reason: &io::Error) -> &'static str {
    match reason.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => "descriptors for",
        _ => "memory for",
    }
}

/// What helps against that.
fn limit(reason: &io::Error) -> &'static str {
    match reason.raw_os_error() {
        Some(libc::EMFILE) => hint(libc::EMFILE),
        _ => "",
    }
}

impl OfiError {
    pub(crate) fn memory(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |reason| Self::Memory { what, reason: Arc::new(reason) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_that_run_out_are_not_called_memory() {
        let said = |code| OfiError::memory("the endpoint")(io::Error::from_raw_os_error(code)).to_string();
        assert_eq!(
            said(libc::EMFILE),
            "descriptors for the endpoint: Too many open files (os error 24) (descriptors are limited by `ulimit -n`: \
             raise it)"
        );
        assert!(said(libc::ENFILE).starts_with("descriptors for the endpoint: "));
        assert_eq!(said(libc::ENOMEM), "memory for the endpoint: Cannot allocate memory (os error 12)");
    }
}
