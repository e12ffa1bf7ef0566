//! A rank's way into its job over libfabric.

use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use am_core::{Address, LossCause, Memory, Rank, Segment, Shape};
use am_launch::env::Lookup;
use am_launch::{Bootstrap, RankError};
use transport_ofi::{Ofi, OfiConfig, OfiError, OfiMemory, Opened};
use transport_shm::JoinOptions;

use crate::job::{JobAttachError, RankJob};
use crate::transports::{Carrier, TransportChoice, provider, variable};

/// What the endpoints of a rank share that talk over libfabric alone, once the first one has attached: the bytes
/// of their segment, and whom they have met.
#[derive(Debug, Default)]
pub(crate) struct Fabric(Mutex<Option<(u64, Met<OfiMemory>)>>);

/// A rank that has met the others.
#[derive(Debug)]
pub(crate) struct Met<M: Memory> {
    tag: u32,
    /// By endpoint, until it attaches.
    opened: Vec<Option<Opened<M>>>,
    /// The ranks that libfabric leads to, this one among them. They are the ranks of its job, in this order.
    members: Vec<Rank>,
    /// By endpoint of these; nothing of one that has ended.
    cards: Vec<Option<String>>,
    /// Why this rank has no endpoint over libfabric.
    reason: Option<OfiError>,
}

impl<M: Memory> Met<M> {
    /// Whether libfabric leads to anybody else, or has to.
    pub(crate) fn is_of_use(&self) -> bool {
        !self.opened.is_empty()
    }

    /// The ranks that libfabric leads to, this one among them.
    pub(crate) fn members(&self) -> &[Rank] {
        &self.members
    }

    pub(crate) fn leads_to(&self, rank: Rank) -> bool {
        self.members.binary_search(&rank).is_ok()
    }

    pub(crate) fn reason(&self) -> Option<&OfiError> {
        self.reason.as_ref()
    }
}

/// What a rank tells the others, a line each: a number of the job, what its endpoints can reach, their cards.
struct Told {
    tag: u32,
    /// Nothing where it has no fabric.
    fabric: Option<String>,
    cards: Vec<String>,
}

impl Told {
    fn text(&self) -> String {
        let mut text = format!("{}\n{}", self.tag, self.fabric.as_deref().unwrap_or_default());
        self.cards.iter().for_each(|card| write!(text, "\n{card}").expect("text grows"));
        text
    }

    /// What a rank with so many endpoints has told; `None` if no rank tells that.
    fn read(text: &str, endpoints: usize) -> Option<Self> {
        let mut lines = text.split('\n');
        let tag = lines.next()?.parse().ok()?;
        let fabric = Some(lines.next()?).filter(|fabric| !fabric.is_empty()).map(str::to_owned);
        let cards: Vec<String> = lines.map(str::to_owned).collect();
        let expected = if fabric.is_some() { endpoints } else { 0 };
        (cards.len() == expected).then_some(Self { tag, fabric, cards })
    }
}

/// Whether a host simply has nothing of libfabric, so that another transport does its work. What is there and
/// fails is an error all the same.
fn is_absence(error: &OfiError) -> bool {
    matches!(error, OfiError::NoLibrary { .. } | OfiError::TooOld { .. } | OfiError::NoProvider { .. })
}

impl RankJob {
    /// Attaches an endpoint of this rank over libfabric, to all ranks: the transport for an
    /// [`Endpoint`](crate::Endpoint). `AM_FABRIC` and the other variables of [`OfiConfig::from_environment`]
    /// choose the provider. The first call of a rank is collective: it returns when every rank has called it or
    /// ended.
    ///
    /// # Errors
    /// [`JobAttachError::Ofi`] if there is no library or no provider that leads to all ranks, and as
    /// [`attach`](Self::attach).
    pub fn ofi(&self, options: JoinOptions) -> Result<Ofi, JobAttachError> {
        let JoinOptions { endpoint, segment_bytes, .. } = options;
        let (bytes, endpoints) = (segment_bytes as u64, self.endpoints());
        if endpoint >= endpoints {
            return Err(JobAttachError::NoSuchEndpoint { endpoint, endpoints });
        }
        let mut met = self.fabric.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (first, met) = match &mut *met {
            Some(met) => met,
            none => {
                let no_memory = |error| JobAttachError::Memory(transport_shm::JobError::Memory(error));
                let memory = OfiMemory::new(segment_bytes).map_err(no_memory)?;
                none.insert((bytes, self.meet_over_fabric(Segment::new(memory, segment_bytes), false)?))
            }
        };
        if *first != bytes {
            return Err(JobAttachError::SegmentsDiffer { first: *first, second: bytes });
        }
        self.join_fabric(met, endpoint)
    }

    /// Opens this rank's endpoints with a segment and exchanges cards with the other ranks. Where another
    /// transport leads to all, ranks that share no fabric with this one are left to it. Collective.
    pub(crate) fn meet_over_fabric<M>(&self, segment: Segment<M>, another: bool) -> Result<Met<M>, JobAttachError>
    where
        M: Memory + Clone + Send + Sync + 'static,
    {
        let config = config_of(self)?;
        let endpoints = usize::from(self.endpoints());
        let peers = self.ranks() * u32::from(self.endpoints());
        let open = |_| Opened::with_segment(&config, peers, segment.clone());
        // A rank that cannot open tells the others by leaving: they do not wait for it.
        let (opened, reason) = match (0..endpoints).map(open).collect::<Result<Vec<_>, _>>() {
            Ok(opened) => (opened, None),
            Err(error) if another && is_absence(&error) => (Vec::new(), Some(error)),
            Err(error) => return Err(error.into()),
        };
        // Any number will do, as long as all ranks take the same and other jobs another: the first living rank's
        // process id and time.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let tag = std::process::id() ^ now.subsec_nanos().rotate_left(7);
        let fabric = opened.first().map(|opened| format!("{} {}", opened.offer().provider, opened.offer().fabric));
        let own = Told { tag, fabric, cards: opened.iter().map(Opened::card).collect() };
        let said = self.allgather(own.text().as_bytes())?;
        let (mut common, mut members, mut cards) = (None, Vec::new(), Vec::new());
        for (rank, part) in (0..).map(Rank).zip(said) {
            let told = match &part[..] {
                [] => None,
                part => {
                    let text = String::from_utf8_lossy(part);
                    let wrong = || JobAttachError::Part { rank, part: text.chars().take(100).collect() };
                    Some(Told::read(&text, endpoints).ok_or_else(wrong)?)
                }
            };
            common = common.or(told.as_ref().map(|told| told.tag));
            let shared = told.as_ref().is_some_and(|told| told.fabric.is_some() && told.fabric == own.fabric);
            if shared || !another {
                members.push(rank);
                match told {
                    Some(told) => cards.extend(told.cards.into_iter().map(Some)),
                    None => cards.extend((0..endpoints).map(|_| None)),
                }
            }
        }
        let alone = another && members.len() < 2;
        let opened = if alone { Vec::new() } else { opened.into_iter().map(Some).collect() };
        Ok(Met { tag: common.unwrap_or(tag), opened, members, cards, reason })
    }

    /// Joins as an endpoint, once the ranks have met.
    pub(crate) fn join_fabric<M>(&self, met: &mut Met<M>, endpoint: u16) -> Result<Ofi<M>, JobAttachError>
    where
        M: Memory + Clone + Send + Sync + 'static,
    {
        let opened = met.opened[usize::from(endpoint)].take().ok_or(JobAttachError::Taken { endpoint })?;
        let local = |members: &[Rank], rank| members.binary_search(&rank).ok().map(|place| Rank(place as u32));
        let me = local(&met.members, self.rank()).expect("a rank shares its own fabric");
        let shape = Shape { ranks: met.members.len() as u32, endpoints: self.endpoints() };
        let cards: Vec<Option<&str>> = met.cards.iter().map(Option::as_deref).collect();
        let joined = opened.join(Address::new(me, endpoint), shape, met.tag, &cards);
        let mut ofi = joined.map_err(|error| of_job(error, &met.members))?;
        let (notifier, members) = (ofi.failure_notifier(), met.members.clone());
        let leave = self.attach_endpoint()?;
        self.on_failure(move |rank| {
            if let Some(rank) = local(&members, rank) {
                notifier.lost(rank, LossCause::Died);
            }
        })?;
        ofi.when_departed(move || leave.report());
        Ok(ofi)
    }
}

/// The settings of a rank.
fn config_of(job: &Bootstrap) -> Result<OfiConfig, OfiError> {
    let mut config = config(&variable)?;
    if job.hosts().len() > 1 {
        config.several_hosts = true;
        config.host = Some(job.hosts()[job.host_of(job.rank()) as usize].address);
    }
    Ok(config)
}

/// Finds out, before the program begins, whether each rank could open an endpoint under the limits of its host,
/// and whether all ranks of a job that has nothing but libfabric between some of them would take the same
/// provider. Collective.
///
/// # Errors
/// As [`Bootstrap::refuse`]: there is none, a limit is in the way, or ranks differ. Where `another` transport
/// leads to all ranks, those without libfabric are left to it, and those that differ, too.
pub(crate) fn agree(job: &Bootstrap, another: bool) -> Result<(), RankError> {
    // Ranks of one host have the same limits.
    let first = (0..job.rank().0).all(|rank| job.host_of(Rank(rank)) != job.host_of(job.rank()));
    let peers = job.ranks() * u32::from(job.endpoints());
    let open = |config: &_| match first {
        true => transport_ofi::rehearse(config, peers),
        false => transport_ofi::choose(config),
    };
    let chosen = config_of(job).and_then(|config| Ok((open(&config)?, config)));
    let own = match &chosen {
        Ok((offer, config)) => format!("{} with Mediums of {} bytes", offer.provider, config.medium),
        Err(error) if another && is_absence(error) => "nothing".to_owned(),
        Err(error) => format!("{OBSTACLE}{error}"),
    };
    match (job.allgather(own.as_bytes()), chosen) {
        (Ok(said), _) => match obstacle(&said).or_else(|| difference(&said).filter(|_| !another)) {
            Some(text) => Err(job.refuse(text)),
            None => Ok(()),
        },
        (Err(_), Err(error)) if !(another && is_absence(&error)) => Err(job.refuse(error.to_string())),
        // Who cannot say it cannot attach either, which is an error of its own.
        (Err(_), _) => Ok(()),
    }
}

/// What a rank says first that cannot open an endpoint; why follows.
const OBSTACLE: char = '!';

/// Why the first rank that cannot open an endpoint cannot, with its number unless all say the same.
fn obstacle(said: &[Vec<u8>]) -> Option<String> {
    let reason = |text: &Vec<u8>| String::from_utf8_lossy(text).strip_prefix(OBSTACLE).map(str::to_owned);
    let (rank, first) = (0u32..).zip(said).find_map(|(rank, text)| Some((rank, reason(text)?)))?;
    let living = said.iter().filter(|text| !text.is_empty());
    let common = living.map(reason).all(|other| other.as_ref() == Some(&first));
    Some(if common { first } else { format!("rank {rank}: {first}") })
}

/// The first two ranks that do not say the same, and what; ranks that have ended say nothing.
fn difference(said: &[Vec<u8>]) -> Option<String> {
    let mut living = (0u32..).zip(said).filter(|(_, text)| !text.is_empty());
    let (first, expected) = living.next()?;
    let (other, found) = living.find(|(_, text)| *text != expected)?;
    let [expected, found] = [expected, found].map(|text| String::from_utf8_lossy(text));
    Some(format!(
        "rank {first} uses {expected}, but rank {other} {found}: set AM_FABRIC, AM_OFI_INTERFACE and AM_OFI_MEDIUM alike for all ranks"
    ))
}

/// An error that names a rank as the job does, not as those do who share a fabric.
fn of_job(mut error: OfiError, members: &[Rank]) -> OfiError {
    if let OfiError::Differs { rank, .. } | OfiError::Card { rank, .. } = &mut error {
        *rank = members[rank.0 as usize];
    }
    error
}

/// The settings in the environment; a provider in `AM_TRANSPORT` wins over `AM_FABRIC`.
fn config(lookup: Lookup<'_>) -> Result<OfiConfig, transport_ofi::OfiError> {
    let config = OfiConfig::from_variables(&|name| lookup(name))?;
    Ok(match provider(lookup) {
        Some(name) => config.provider(name),
        None => config,
    })
}

/// Whether the variables of libfabric's transport make sense.
pub(crate) fn check(lookup: Lookup<'_>) -> Result<(), String> {
    config(lookup).map(drop).map_err(|error| error.to_string())
}

/// Whether this host has a provider and this process may open an endpoint, where the ranks shall use libfabric.
pub(crate) fn rehearse(lookup: Lookup<'_>, endpoints: u32) -> Result<(), String> {
    let choice = TransportChoice::read(lookup).unwrap_or_default();
    if !choice.has(Carrier::Ofi) {
        return Ok(());
    }
    match config(lookup).and_then(|config| transport_ofi::rehearse(&config, endpoints)) {
        // Another transport leads to all ranks.
        Err(error) if choice.has(Carrier::Udp) && is_absence(&error) => Ok(()),
        other => other.map(drop).map_err(|error| error.to_string()),
    }
}

/// What libfabric offers on this machine, a line each, indented.
pub(crate) fn listing(lookup: Lookup<'_>) -> String {
    let listed = config(lookup).and_then(|config| {
        let ((major, minor), verdicts) = (transport_ofi::version()?, transport_ofi::list(&config)?);
        let mut text = format!(
            "  libfabric {major}.{minor}, of which would be taken, by * (AM_FABRIC and AM_OFI_INTERFACE choose):\n"
        );
        for verdict in verdicts {
            writeln!(text, "  {verdict}").expect("text grows");
        }
        match transport_ofi::choose(&config.several_hosts(true)) {
            Ok(offer) => {
                writeln!(text, "  between hosts: {offer}; its fabric: {}", offer.fabric).expect("text grows");
            }
            Err(error) => writeln!(text, "  between hosts: {error}").expect("text grows"),
        }
        Ok(text)
    });
    listed.unwrap_or_else(|error| format!("  {error}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ranks_tell_is_read_or_refused() {
        let cards = vec!["ofi3 a".to_owned(), "ofi3 b".to_owned()];
        let told = Told { tag: 7, fabric: Some("tcp;ofi_rxm 10.0.0.0/24".into()), cards };
        let read = Told::read(&told.text(), 2).unwrap();
        assert_eq!((read.tag, &read.fabric, &read.cards), (7, &told.fabric, &told.cards));
        assert!(Told::read(&told.text(), 1).is_none());
        let none = Told { tag: 7, fabric: None, cards: Vec::new() };
        assert_eq!(Told::read(&none.text(), 2).unwrap().fabric, None);
        for wrong in ["", "x\n", "7", "7\nfabric", "7\n\ncard\ncard"] {
            assert!(Told::read(wrong, 2).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn who_cannot_open_an_endpoint_is_named() {
        let said =
            |texts: &[&str]| obstacle(&texts.iter().map(|text| text.as_bytes().to_vec()).collect::<Vec<_>>());
        assert_eq!(said(&["", "tcp", "tcp", ""]), None);
        assert_eq!(said(&["!no library", "", "!no library"]).unwrap(), "no library");
        assert_eq!(said(&["", "tcp", "!no library"]).unwrap(), "rank 2: no library");
    }

    #[test]
    fn ranks_that_differ_are_named() {
        let said =
            |texts: &[&str]| difference(&texts.iter().map(|text| text.as_bytes().to_vec()).collect::<Vec<_>>());
        assert_eq!(said(&["", "tcp", "tcp", ""]), None);
        let text = said(&["", "tcp", "tcp", "shm"]).unwrap();
        assert!(text.starts_with("rank 1 uses tcp, but rank 3 shm: set AM_FABRIC"), "{text}");
    }

    #[test]
    fn errors_name_ranks_as_the_job_does() {
        let error = OfiError::Card { rank: Rank(1), what: String::new() };
        assert!(of_job(error, &[Rank(0), Rank(3)]).to_string().starts_with("rank 3 tells"));
    }
}
