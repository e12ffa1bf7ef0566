//! The process that an endpoint belongs to. A fork of it has the same keys and counters, and would seal other
//! datagrams with nonces that its parent uses, too; so nothing of the endpoint may be used there.

use forkguard::atfork::Guard;
use std::io;

/// The process that this was made in.
///
/// The C library counts forks (`pthread_atfork`), so asking costs a load and no system call. A fork that goes past
/// the C library, by a bare system call, is not noticed.
#[derive(Clone, Debug)]
pub(super) struct Process(Guard);

impl Process {
    /// The process that asks.
    pub(super) fn current() -> io::Result<Self> {
        Guard::try_new().map(Self).map_err(|error| io::Error::from_raw_os_error(error.code().get()))
    }

    /// Whether another process asks: a fork of it.
    #[inline]
    pub(super) fn is_other(&self) -> bool {
        self.0.clone().detected_fork()
    }
}
