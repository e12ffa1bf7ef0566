//! A rank's way into its job over libfabric.

use std::sync::{Mutex, PoisonError};

use am_core::{Address, LossCause, Segment, Shape};
use am_launch::env::Lookup;
use transport_ofi::{Ofi, OfiConfig, OfiMemory, Opened};
use transport_shm::JoinOptions;

use crate::job::{JobAttachError, RankJob};

/// What the endpoints of a rank share, once the first one has attached.
#[derive(Debug, Default)]
pub(crate) struct Fabric(Mutex<Option<Met>>);

/// A rank that has met the others.
#[derive(Debug)]
struct Met {
    segment_bytes: u64,
    tag: u32,
    /// By endpoint, until it attaches.
    opened: Vec<Option<Opened>>,
    /// By peer; nothing of one that has ended.
    cards: Vec<Option<String>>,
}

impl RankJob {
    /// Attaches an endpoint of this rank over libfabric, to all ranks: the transport for an [`Endpoint`](crate::Endpoint). `AM_FABRIC` and
    /// the other variables of [`OfiConfig::from_environment`] choose the provider. The first call of a rank is collective: it returns when
    /// every rank has called it or ended.
    ///
    /// # Errors
    /// [`JobAttachError::Ofi`] if there is no library or no provider that leads to all ranks, and as [`attach`](Self::attach).
    pub fn ofi(&self, options: JoinOptions) -> Result<Ofi, JobAttachError> {
        let JoinOptions { endpoint, segment_bytes, .. } = options;
        let (bytes, endpoints) = (segment_bytes as u64, self.endpoints());
        if endpoint >= endpoints {
            return Err(JobAttachError::NoSuchEndpoint { endpoint, endpoints });
        }
        let mut met = self.fabric.0.lock().unwrap_or_else(PoisonError::into_inner);
        let met = match &mut *met {
            Some(met) => met,
            none => none.insert(self.meet_over_fabric(segment_bytes)?),
        };
        if met.segment_bytes != bytes {
            return Err(JobAttachError::SegmentsDiffer { first: met.segment_bytes, second: bytes });
        }
        let opened = met.opened[usize::from(endpoint)].take().ok_or(JobAttachError::Taken { endpoint })?;
        let shape = Shape { ranks: self.ranks(), endpoints };
        let cards: Vec<Option<&str>> = met.cards.iter().map(Option::as_deref).collect();
        let mut ofi = opened.join(Address::new(self.rank(), endpoint), shape, met.tag, &cards)?;
        let notifier = ofi.failure_notifier();
        let leave = self.attach_endpoint()?;
        self.on_failure(move |rank| notifier.lost(rank, LossCause::Died))?;
        ofi.when_departed(move || leave.report());
        Ok(ofi)
    }

    /// Opens this rank's endpoints and exchanges cards with the other ranks.
    fn meet_over_fabric(&self, segment_bytes: usize) -> Result<Met, JobAttachError> {
        let mut config = OfiConfig::from_environment()?;
        if self.hosts().len() > 1 {
            config.several_hosts = true;
            // The interface by which the launcher knows this host, unless another one was asked for.
            let own = || self.hosts()[self.host_of(self.rank()) as usize].address.to_string();
            config.interface = Some(config.interface.unwrap_or_else(own));
        }
        let endpoints = usize::from(self.endpoints());
        let peers = self.ranks() * u32::from(self.endpoints());
        let no_memory = |error| JobAttachError::Memory(transport_shm::JobError::Memory(error));
        let memory = OfiMemory::new(segment_bytes).map_err(no_memory)?;
        let segment = Segment::new(memory, segment_bytes);
        let open = |_| Opened::with_segment(&config, peers, segment.clone());
        // A rank that cannot open tells the others by leaving: they do not wait for it.
        let opened = (0..endpoints).map(open).collect::<Result<Vec<_>, _>>()?;
        // Any number will do, as long as all ranks take the same and other jobs another: the first living rank's process id and time.
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
        Ok(Met { segment_bytes: segment_bytes as u64, tag: common.unwrap_or(tag), opened, cards })
    }
}

/// Whether the variables of libfabric's transport make sense.
pub(crate) fn check(lookup: Lookup<'_>) -> Result<(), String> {
    OfiConfig::from_variables(&|name| lookup(name)).map(drop).map_err(|error| error.to_string())
}
