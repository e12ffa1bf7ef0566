//! A rank's way into its job over libfabric.

use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use am_core::{Address, LossCause, Memory, Segment, Shape};
use am_launch::env::Lookup;
use transport_ofi::{Ofi, OfiConfig, OfiMemory, Opened};
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
    /// By peer; nothing of one that has ended.
    cards: Vec<Option<String>>,
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
                none.insert((bytes, self.meet_over_fabric(Segment::new(memory, segment_bytes))?))
            }
        };
        if *first != bytes {
            return Err(JobAttachError::SegmentsDiffer { first: *first, second: bytes });
        }
        self.join_fabric(met, endpoint)
    }

    /// Opens this rank's endpoints with a segment and exchanges cards with the other ranks. Collective.
    pub(crate) fn meet_over_fabric<M>(&self, segment: Segment<M>) -> Result<Met<M>, JobAttachError>
    where
        M: Memory + Clone + Send + Sync + 'static,
    {
        let mut config = config(&variable)?;
        if self.hosts().len() > 1 {
            config.several_hosts = true;
            config.host = Some(self.hosts()[self.host_of(self.rank()) as usize].address);
        }
        let endpoints = usize::from(self.endpoints());
        let peers = self.ranks() * u32::from(self.endpoints());
        let open = |_| Opened::with_segment(&config, peers, segment.clone());
        // A rank that cannot open tells the others by leaving: they do not wait for it.
        let opened = (0..endpoints).map(open).collect::<Result<Vec<_>, _>>()?;
        // Any number will do, as long as all ranks take the same and other jobs another: the first living rank's
        // process id and time.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let tag = std::process::id() ^ now.subsec_nanos().rotate_left(7);
        let lines: Vec<String> = std::iter::once(tag.to_string()).chain(opened.iter().map(Opened::card)).collect();
        let said = self.allgather(lines.join("\n").as_bytes())?;
        let (mut common, mut cards) = (None, Vec::with_capacity(peers as usize));
        for (rank, part) in (0..).map(am_core::Rank).zip(said) {
            if part.is_empty() {
                cards.extend((0..endpoints).map(|_| None));
                continue;
            }
            let text = String::from_utf8_lossy(&part);
            let mut words = text.lines();
            let said = words.next().and_then(|word| word.parse::<u32>().ok());
            let theirs: Vec<Option<String>> = words.map(|card| Some(card.to_owned())).collect();
            let (Some(said), true) = (said, theirs.len() == endpoints) else {
                return Err(JobAttachError::Part { rank, part: text.chars().take(100).collect() });
            };
            common.get_or_insert(said);
            cards.extend(theirs);
        }
        let opened = opened.into_iter().map(Some).collect();
        Ok(Met { tag: common.unwrap_or(tag), opened, cards })
    }

    /// Joins as an endpoint, once the ranks have met.
    pub(crate) fn join_fabric<M>(&self, met: &mut Met<M>, endpoint: u16) -> Result<Ofi<M>, JobAttachError>
    where
        M: Memory + Clone + Send + Sync + 'static,
    {
        let opened = met.opened[usize::from(endpoint)].take().ok_or(JobAttachError::Taken { endpoint })?;
        let shape = Shape { ranks: self.ranks(), endpoints: self.endpoints() };
        let cards: Vec<Option<&str>> = met.cards.iter().map(Option::as_deref).collect();
        let mut ofi = opened.join(Address::new(self.rank(), endpoint), shape, met.tag, &cards)?;
        let notifier = ofi.failure_notifier();
        let leave = self.attach_endpoint()?;
        self.on_failure(move |rank| notifier.lost(rank, LossCause::Died))?;
        ofi.when_departed(move || leave.report());
        Ok(ofi)
    }
}

/// The settings in the environment; a provider in `AM_TRANSPORT` wins over `AM_FABRIC`.
fn config(lookup: Lookup<'_>) -> Result<OfiConfig, transport_ofi::OfiError> {
    let config = OfiConfig::from_variables(&|name| lookup(name))?;
    Ok(match provider(lookup) {
        Some(name) => config.provider(name),
        None => config,
    })
}

/// Whether the variables of libfabric's transport make sense, and, where it is asked for, whether there is a
/// provider.
pub(crate) fn check(lookup: Lookup<'_>) -> Result<(), String> {
    let config = config(lookup).map_err(|error| error.to_string())?;
    if TransportChoice::read(lookup).is_ok_and(|choice| choice.has(Carrier::Ofi)) {
        transport_ofi::choose(&config).map_err(|error| error.to_string())?;
    }
    Ok(())
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
            Ok(offer) => writeln!(text, "  between hosts: {offer}").expect("text grows"),
            Err(error) => writeln!(text, "  between hosts: {error}").expect("text grows"),
        }
        Ok(text)
    });
    listed.unwrap_or_else(|error| format!("  {error}\n"))
}
