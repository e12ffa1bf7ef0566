//! Which transports a job uses: what the user asks for, what each pair of ranks gets, and the settings in the
//! environment.

use std::fmt;
use std::str::FromStr;

use am_launch::env::{self, Lookup};
use am_launch::{Launcher, RunOptions};
use transport_shm::{Job, JobConfig};
use transport_udp::UdpConfig;

/// Cells of every ring in shared memory.
pub(crate) const RING_CELLS: &str = "AM_SHM_RING_CELLS";
/// Payload bytes of every ring in shared memory.
pub(crate) const RING_BYTES: &str = "AM_SHM_RING_BYTES";
/// What is written in place of a transport to be told which there are.
const LIST: &str = env::LIST;
#[cfg(not(feature = "ofi"))]
const EXPECTED: &str = "one of auto, shm and udp";
#[cfg(feature = "ofi")]
const EXPECTED: &str =
    "one of auto, shm, udp, ofi, shm+ofi, ofi+udp and shm+ofi+udp, perhaps with :PROVIDER behind ofi";

/// What carries messages between two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Carrier {
    /// Shared memory.
    Shm,
    /// UDP.
    Udp,
    /// libfabric.
    #[cfg(feature = "ofi")]
    Ofi,
}

impl Carrier {
    /// Whether it leads from a rank to one on the same host, or on another one; of libfabric, where both share a
    /// fabric.
    fn reaches(self, same_host: bool) -> bool {
        match self {
            Self::Shm => same_host,
            Self::Udp => true,
            #[cfg(feature = "ofi")]
            Self::Ofi => true,
        }
    }
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shm => "shared memory",
            Self::Udp => "UDP",
            #[cfg(feature = "ofi")]
            Self::Ofi => "libfabric",
        })
    }
}

/// What the ranks of a job shall talk over: a list of carriers, of which each pair of ranks uses the first that
/// leads from one to the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportChoice {
    /// Shared memory between ranks of one host, UDP between hosts.
    #[default]
    Auto,
    /// Shared memory only: a job on one host.
    Shm,
    /// UDP only, also between ranks of one host.
    Udp,
    /// libfabric only, also between ranks of one host.
    #[cfg(feature = "ofi")]
    Ofi,
    /// Shared memory between ranks of one host, libfabric between hosts.
    #[cfg(feature = "ofi")]
    ShmOfi,
    /// libfabric between ranks that share a fabric, UDP between others.
    #[cfg(feature = "ofi")]
    OfiUdp,
    /// Shared memory between ranks of one host, libfabric between hosts that share a fabric, UDP between others.
    #[cfg(feature = "ofi")]
    ShmOfiUdp,
}

impl TransportChoice {
    /// All choices.
    const ALL: &[Self] = &[
        Self::Auto,
        Self::Shm,
        Self::Udp,
        #[cfg(feature = "ofi")]
        Self::Ofi,
        #[cfg(feature = "ofi")]
        Self::ShmOfi,
        #[cfg(feature = "ofi")]
        Self::OfiUdp,
        #[cfg(feature = "ofi")]
        Self::ShmOfiUdp,
    ];

    /// The carriers by priority.
    pub fn carriers(self) -> &'static [Carrier] {
        match self {
            Self::Auto => &[Carrier::Shm, Carrier::Udp],
            Self::Shm => &[Carrier::Shm],
            Self::Udp => &[Carrier::Udp],
            #[cfg(feature = "ofi")]
            Self::Ofi => &[Carrier::Ofi],
            #[cfg(feature = "ofi")]
            Self::ShmOfi => &[Carrier::Shm, Carrier::Ofi],
            #[cfg(feature = "ofi")]
            Self::OfiUdp => &[Carrier::Ofi, Carrier::Udp],
            #[cfg(feature = "ofi")]
            Self::ShmOfiUdp => &[Carrier::Shm, Carrier::Ofi, Carrier::Udp],
        }
    }

    /// Whether a carrier is among its own.
    pub(crate) fn has(self, carrier: Carrier) -> bool {
        self.carriers().contains(&carrier)
    }

    /// The first carrier that leads to a rank on the same host, or on another one, if all share a fabric.
    pub(crate) fn between(self, same_host: bool) -> Option<Carrier> {
        self.carriers().iter().copied().find(|carrier| carrier.reaches(same_host))
    }

    /// The choice in `AM_TRANSPORT`; the default if it is not set.
    pub(crate) fn read(lookup: Lookup<'_>) -> Result<Self, String> {
        Ok(read(lookup)?.0)
    }
}

/// What `AM_TRANSPORT` says: a choice, and the provider behind its colon.
fn read(lookup: Lookup<'_>) -> Result<(TransportChoice, Option<String>), String> {
    let Some(value) = lookup(env::TRANSPORT) else { return Ok((TransportChoice::default(), None)) };
    let (name, provider) = split_provider(&value);
    let wrong = |what: &str| Err(format!("{}={value} in the environment {what}", env::TRANSPORT));
    let carriers: Vec<&str> = name.split('+').collect();
    match (name.parse(), provider) {
        (Ok(choice), None) => Ok((choice, None)),
        (Ok(choice), Some(provider)) if !provider.is_empty() => Ok((choice, Some(provider.to_owned()))),
        _ if cfg!(not(feature = "ofi")) && carriers.contains(&"ofi") => wrong(
            "needs libfabric, which this program was built without: build it with active-messages' feature `ofi`",
        ),
        (Err(()), _)
            if carriers.len() > 1 && carriers.iter().all(|carrier| ["shm", "ofi", "udp"].contains(carrier)) =>
        {
            wrong(&format!(
                "names transports that are never used, as one before them leads to the same ranks: it has to be {EXPECTED}"
            ))
        }
        _ => wrong(&format!("is not {EXPECTED}")),
    }
}

/// A list of carriers without the provider behind `ofi`, and the provider.
fn split_provider(value: &str) -> (String, Option<&str>) {
    let provider = value.split('+').find_map(|carrier| carrier.strip_prefix("ofi:"));
    match provider {
        Some(provider) => (value.replacen(&format!("ofi:{provider}"), "ofi", 1), Some(provider)),
        None => (value.to_owned(), None),
    }
}

/// The provider that `AM_TRANSPORT` names.
#[cfg(feature = "ofi")]
pub(crate) fn provider(lookup: Lookup<'_>) -> Option<String> {
    read(lookup).ok()?.1
}

/// What this machine has and what would be taken of it, for people, if `AM_TRANSPORT=list` asks for that.
pub(crate) fn listing(lookup: Lookup<'_>) -> Option<String> {
    if lookup(env::TRANSPORT).as_deref() != Some(LIST) {
        return None;
    }
    let taken =
        |carrier: Carrier| match [true, false].map(|same| TransportChoice::Auto.between(same) == Some(carrier)) {
            [true, true] => "taken by auto, for all ranks",
            [true, false] => "taken by auto, for ranks of one host",
            [false, true] => "taken by auto, between hosts",
            [false, false] => "not taken by auto",
        };
    let mut text = format!("shm: shared memory, within a host; {}\n", taken(Carrier::Shm));
    text += &format!("udp: encrypted UDP, within a host and between hosts; {}\n", taken(Carrier::Udp));
    #[cfg(feature = "ofi")]
    {
        let ways =
            "ofi, for all ranks, or shm+ofi, between hosts, or shm+ofi+udp, between hosts that share a fabric";
        text += &format!("{ways}: libfabric, neither encrypted nor authenticated; {}\n", taken(Carrier::Ofi));
        text += &crate::libfabric::listing(lookup);
    }
    #[cfg(not(feature = "ofi"))]
    {
        text += "ofi, shm+ofi, shm+ofi+udp: not in this program: build it with active-messages' feature `ofi` for libfabric\n";
    }
    Some(text)
}

impl FromStr for TransportChoice {
    type Err = ();

    /// Reads a choice as it is displayed; `shm+udp` is another name of `auto`.
    fn from_str(text: &str) -> Result<Self, ()> {
        if text == "shm+udp" {
            return Ok(Self::Auto);
        }
        Self::ALL.iter().copied().find(|choice| choice.to_string() == text).ok_or(())
    }
}

impl fmt::Display for TransportChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Shm => "shm",
            Self::Udp => "udp",
            #[cfg(feature = "ofi")]
            Self::Ofi => "ofi",
            #[cfg(feature = "ofi")]
            Self::ShmOfi => "shm+ofi",
            #[cfg(feature = "ofi")]
            Self::OfiUdp => "ofi+udp",
            #[cfg(feature = "ofi")]
            Self::ShmOfiUdp => "shm+ofi+udp",
        })
    }
}

/// Options of transports for those who start ranks. They are variables in the environment of the ranks that are
/// started.
pub trait TransportOptions: Sized {
    /// Sets a variable of the ranks.
    #[must_use]
    fn variable(self, key: &'static str, value: String) -> Self;

    /// What the ranks talk over; wins over `AM_TRANSPORT`. Ranks that somebody else started talk over what that
    /// launcher was told.
    #[must_use]
    fn transport(self, choice: impl Into<Option<TransportChoice>>) -> Self {
        match choice.into() {
            Some(choice) => self.variable(env::TRANSPORT, choice.to_string()),
            None => self,
        }
    }

    /// The sizes of all rings between two endpoints in shared memory, in cells and payload bytes, unless they
    /// follow from the number of ranks. Each is a power of two.
    #[must_use]
    fn rings(self, cells: Option<usize>, bytes: Option<usize>) -> Self {
        [(RING_CELLS, cells), (RING_BYTES, bytes)].into_iter().fold(self, |options, (key, size)| match size {
            Some(size) => options.variable(key, size.to_string()),
            None => options,
        })
    }
}

impl TransportOptions for RunOptions {
    fn variable(self, key: &'static str, value: String) -> Self {
        self.launcher(|launcher| launcher.env(key, value))
    }
}

impl TransportOptions for Launcher {
    fn variable(self, key: &'static str, value: String) -> Self {
        self.env(key, value)
    }
}

/// The shared memory that the environment asks for, of a job of so many ranks and endpoints on one host.
pub(crate) fn rings(mut job: JobConfig, lookup: Lookup<'_>) -> Result<JobConfig, String> {
    let number = |variable: &str| match lookup(variable) {
        None => Ok(None),
        Some(value) => match value.trim().parse::<usize>() {
            Ok(size) => Ok(Some(size)),
            Err(_) => Err(format!("{variable}={value} in the environment is not a number")),
        },
    };
    if let Some(cells) = number(RING_CELLS)? {
        job = job.request_cells(cells).reply_cells(cells);
    }
    if let Some(bytes) = number(RING_BYTES)? {
        job = job.request_bytes(bytes).reply_bytes(bytes);
    }
    Ok(job)
}

/// What this process's environment says.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// Makes the variables of all transports known to the check of the environment.
pub(crate) fn register() {
    env::register(env::Settings::new(&[RING_CELLS, RING_BYTES], check_own));
    env::register(env::Settings::new(&UdpConfig::VARIABLES, check_udp));
    #[cfg(feature = "ofi")]
    if TransportChoice::read(&variable).is_ok_and(|choice| choice.has(Carrier::Ofi)) {
        // Before a thread is started. Where there is one, the provider keeps its default.
        transport_ofi::limit_provider_buffers();
    }
    #[cfg(feature = "ofi")]
    {
        let settings = env::Settings::new(&transport_ofi::OfiConfig::VARIABLES, crate::libfabric::check);
        env::register(settings.trial(crate::libfabric::rehearse));
    }
}

/// Says what this machine has, if that is what somebody wants to know; whether it was.
pub(crate) fn told_list() -> bool {
    let text = listing(&variable);
    if let Some(text) = &text {
        // Whoever has asked and does not read the answer misses nothing.
        let _ = std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes());
    }
    text.is_some()
}

fn check_own(lookup: Lookup<'_>) -> Result<(), String> {
    TransportChoice::read(lookup)?;
    let job = rings(JobConfig::new(1), lookup)?;
    // The sizes are looked at alone: whether there is memory for all ranks shows when they attach.
    if [RING_CELLS, RING_BYTES].iter().any(|name| lookup(name).is_some()) {
        Job::create(&job).map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn check_udp(lookup: Lookup<'_>) -> Result<(), String> {
    // Any secret will do: only the settings are looked at.
    UdpConfig::from_variables([0; 32], lookup).map(drop).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(variables: &[(&str, &str)]) -> Result<(), String> {
        let lookup =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        check_own(&lookup).and_then(|()| check_udp(&lookup))
    }

    #[test]
    fn the_first_carrier_that_reaches() {
        let both = |choice: TransportChoice| (choice.between(true), choice.between(false));
        assert_eq!(both(TransportChoice::Auto), (Some(Carrier::Shm), Some(Carrier::Udp)));
        assert_eq!(both(TransportChoice::Shm), (Some(Carrier::Shm), None));
        assert_eq!(both(TransportChoice::Udp), (Some(Carrier::Udp), Some(Carrier::Udp)));
    }

    #[cfg(feature = "ofi")]
    #[test]
    fn libfabric_with_and_without_a_provider() {
        let both = |choice: TransportChoice| (choice.between(true), choice.between(false));
        assert_eq!(both(TransportChoice::Ofi), (Some(Carrier::Ofi), Some(Carrier::Ofi)));
        assert_eq!(both(TransportChoice::ShmOfi), (Some(Carrier::Shm), Some(Carrier::Ofi)));
        let said = |text: &'static str| read(&move |_| Some(text.to_owned()));
        assert_eq!(said("ofi"), Ok((TransportChoice::Ofi, None)));
        assert_eq!(said("shm+ofi:udp;ofi_rxd"), Ok((TransportChoice::ShmOfi, Some("udp;ofi_rxd".into()))));
        assert_eq!(said("shm+ofi:verbs+udp"), Ok((TransportChoice::ShmOfiUdp, Some("verbs".into()))));
        assert_eq!(said("ofi+udp"), Ok((TransportChoice::OfiUdp, None)));
        let three = [Carrier::Shm, Carrier::Ofi, Carrier::Udp];
        assert_eq!(TransportChoice::ShmOfiUdp.carriers(), three);
        for useless in ["udp+ofi", "ofi+shm", "shm+shm", "ofi:tcp+shm+udp"] {
            let error = said(useless).unwrap_err();
            assert!(error.contains("never used") && error.contains("shm+ofi+udp"), "{error}");
        }
    }

    #[test]
    fn choices_are_read_as_displayed() {
        for choice in TransportChoice::ALL {
            assert_eq!(choice.to_string().parse(), Ok(*choice));
        }
        assert_eq!("shm+udp".parse(), Ok(TransportChoice::Auto));
        assert_eq!("shm+".parse::<TransportChoice>(), Err(()));
    }

    #[test]
    fn a_listing_says_what_is_taken() {
        let text = listing(&|name| (name == "AM_TRANSPORT").then(|| "list".into())).unwrap();
        assert!(
            text.contains("shm: shared memory, within a host; taken by auto, for ranks of one host\n"),
            "{text}"
        );
        assert!(
            text.contains("udp: encrypted UDP, within a host and between hosts; taken by auto, between hosts\n")
        );
        assert!(text.contains("ofi") && listing(&|_| None).is_none());
    }

    #[test]
    fn settings_without_sense_are_named() {
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(check(&[("AM_TRANSPORT", "udp"), ("AM_SHM_RING_CELLS", "4"), ("AM_UDP_SILENCE", "1")]), Ok(()));
        for (name, value, message) in [
            ("AM_TRANSPORT", "tcp", "AM_TRANSPORT=tcp in the environment is not one of auto, shm"),
            ("AM_TRANSPORT", "udp:tcp", "AM_TRANSPORT=udp:tcp in the environment is not one of auto, shm"),
            #[cfg(not(feature = "ofi"))]
            (
                "AM_TRANSPORT",
                "ofi:tcp",
                "AM_TRANSPORT=ofi:tcp in the environment needs libfabric, which this program",
            ),
            #[cfg(feature = "ofi")]
            ("AM_TRANSPORT", "ofi:", "AM_TRANSPORT=ofi: in the environment is not one of auto, shm"),
            ("AM_SHM_RING_CELLS", "few", "AM_SHM_RING_CELLS=few in the environment is not a number"),
            (
                "AM_SHM_RING_BYTES",
                "100",
                "a request lane's number of payload bytes of 100 is not a power of two from",
            ),
            ("AM_UDP_SILENCE", "never", "AM_UDP_SILENCE is \"never\", but must be a number of seconds"),
        ] {
            let error = check(&[(name, value)]).unwrap_err();
            assert!(error.starts_with(message), "{error}");
        }
    }
}
