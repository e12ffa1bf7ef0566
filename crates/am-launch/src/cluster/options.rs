//! What a user says about a job on several hosts.

use std::path::PathBuf;
use std::time::Duration;

use crate::cluster::list::HostSpec;
use crate::cluster::place::Placement;
use crate::cluster::remote::Remote;
use crate::interface::InterfaceWish;

/// How long the hosts of a job get by default to report, beside what [`default_start_limit`] adds for each of
/// them.
pub const DEFAULT_START_LIMIT: Duration = Duration::from_secs(60);
/// What every host adds: its remote command is started and its agent is met after those of the others.
const START_PER_HOST: Duration = Duration::from_millis(250);
/// After how long of silence launcher and agents give each other up by default.
pub const DEFAULT_LOST_AFTER: Duration = Duration::from_secs(30);

/// How long so many hosts get to report where nobody says otherwise: [`DEFAULT_START_LIMIT`] and a quarter of a
/// second for each.
pub fn default_start_limit(hosts: usize) -> Duration {
    DEFAULT_START_LIMIT + START_PER_HOST.saturating_mul(u32::try_from(hosts).unwrap_or(u32::MAX))
}

/// The hosts of a job and how they are reached.
///
/// ```
/// use am_launch::{Hosts, Placement, parse_hosts};
///
/// let hosts = Hosts::new(parse_hosts("a:4,b:4")?).placement(Placement::Cyclic).remote("ssh -p 2222".parse()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Hosts {
    pub(crate) list: Vec<HostSpec>,
    pub(crate) placement: Placement,
    pub(crate) remote: Remote,
    pub(crate) agent: PathBuf,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) port: u16,
    pub(crate) start_limit: Duration,
    pub(crate) lost_after: Duration,
    pub(crate) interface: Option<InterfaceWish>,
}

impl Hosts {
    /// These hosts, reached by ssh, with an `amrun` in their `PATH`.
    pub fn new(list: Vec<HostSpec>) -> Self {
        let start_limit = default_start_limit(list.len());
        Self {
            list,
            placement: Placement::Block,
            remote: Remote::default(),
            agent: "amrun".into(),
            directory: None,
            port: 0,
            start_limit,
            lost_after: DEFAULT_LOST_AFTER,
            interface: None,
        }
    }

    /// The number of ranks of a job whose user doesn't say: one for each slot, a host without a number counting
    /// one.
    pub fn default_ranks(&self) -> u32 {
        super::place::default_ranks(&self.list)
    }

    /// The order in which hosts are filled.
    #[must_use]
    pub fn placement(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// The command that starts a program on another host. With the default one, `ssh`, ranks of this host are
    /// started without it.
    #[must_use]
    pub fn remote(mut self, remote: Remote) -> Self {
        self.remote = remote;
        self
    }

    /// The `amrun` of the other hosts.
    #[must_use]
    pub fn agent(mut self, program: impl Into<PathBuf>) -> Self {
        self.agent = program.into();
        self
    }

    /// Where ranks run on every host; by default in the directory of this process's name there.
    #[must_use]
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// The TCP port at which agents report; 0, the default, lets the system choose.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// How long the hosts get to report; [`default_start_limit`] by default.
    #[must_use]
    pub fn start_limit(mut self, limit: Duration) -> Self {
        self.start_limit = limit;
        self
    }

    /// After how long of silence a host is lost, and the launcher for its hosts; [`DEFAULT_LOST_AFTER`] by
    /// default. A link that is cut for less than half of it does no harm.
    #[must_use]
    pub fn lost_after(mut self, time: Duration) -> Self {
        self.lost_after = time.max(Duration::from_millis(100));
        self
    }

    /// The interface that carries the traffic between hosts; by default the one that reaches the launcher.
    #[must_use]
    pub fn interface(mut self, wish: InterfaceWish) -> Self {
        self.interface = Some(wish);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::list::parse_hosts;

    #[test]
    fn more_hosts_get_more_time() {
        let limit = |count: usize| {
            let names: Vec<String> = (0..count).map(|host| format!("host{host}")).collect();
            Hosts::new(parse_hosts(&names.join(",")).unwrap()).start_limit
        };
        assert_eq!([1, 4, 1000].map(limit), [60_250, 61_000, 310_000].map(Duration::from_millis));
        assert!(default_start_limit(usize::MAX) > Duration::from_secs(1 << 30));
    }
}
