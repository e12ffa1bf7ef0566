//! One rank's whole run on any transport: fill the table, update it between two barriers, verify it, report.

use super::OFI;
use super::cli::{Options, Variant, name};
use super::error::RunError;
use super::hpcc::{Distribution, Stream};
use super::messages;
use super::progress::Progress;
use super::report::{RankReport, Report};
use super::shared::{self, SharedTable};
use super::table::{Deferred, Part, Words, allocate};
use active_messages::pgas::aggregate::{Aggregation, Aggregator};
use active_messages::{
    Address, Category, Endpoint, Handlers, HasLayer, Joining, Payload, Rank, Request, Resource, Segment,
    Statistics, Transport,
};
use zerocopy::IntoBytes;

/// What the handlers work on.
pub struct State {
    /// This rank's part of the table; empty where the table lies in segments.
    pub part: Part<&'static mut [u64]>,
    /// Updates that wait until their words have been fetched.
    deferred: Deferred,
    /// There where the variant has an aggregator.
    aggregation: Option<Aggregation>,
    /// The reports that have arrived at rank 0.
    reports: Vec<Result<RankReport, serde_json::Error>>,
}

impl State {
    /// Applies updates of this rank's words, once these have been fetched.
    #[inline(always)]
    pub fn defer(&mut self, updates: &[u64]) {
        self.deferred.push(updates, &mut self.part);
    }

    /// The same for all updates of a message.
    fn defer_message(&mut self, updates: Payload<'_>) {
        /// Updates that are copied out of the message in one go.
        const PIECE: usize = 64;
        /// Updates of a cache line.
        const LINE: usize = 8;
        /// How many bytes ahead the message's lines are fetched.
        const AHEAD: usize = 1024;
        let mut piece = [0; PIECE];
        for start in (0..updates.len()).step_by(size_of_val(&piece)) {
            let count = updates.copy_from(start, piece.as_mut_bytes()) / size_of::<u64>();
            for (index, line) in piece[..count].chunks(LINE).enumerate() {
                updates.prefetch(start + AHEAD + index * size_of::<[u64; LINE]>());
                self.defer(line);
            }
        }
    }
}

/// Why a rank whose variant has an aggregator has its layer.
const REGISTERED: &str = "only the variant that registers the layer uses it";

impl HasLayer<Aggregation> for State {
    fn as_layer(&self) -> &Aggregation {
        self.aggregation.as_ref().expect(REGISTERED)
    }

    fn as_layer_mut(&mut self) -> &mut Aggregation {
        self.aggregation.as_mut().expect(REGISTERED)
    }
}

/// The handlers of this program.
#[derive(Clone, Copy)]
pub struct Protocol {
    /// Applies one update, which is its argument.
    pub update: Request<u64>,
    /// Applies updates many at a time.
    pub updates: Request<()>,
    /// Gathers updates by their owner, where the variant asks for it.
    aggregated: Option<Aggregator<u64>>,
    /// Takes in a rank's report, as JSON.
    report: Request<()>,
}

impl Protocol {
    fn register<T: Transport>(
        job: &Joining<T>,
        handlers: &mut Handlers<State>,
        aggregation: Option<&mut Aggregation>,
    ) -> Result<Self, RunError> {
        let push = |state: &mut State, updates: &[u64]| state.defer(updates);
        let aggregated = aggregation.map(|layer| {
            Aggregator::register_anonymous(job, layer, handlers, "aggregated", messages::aggregation(), push)
        });
        let update = |state: &mut State, _: Address, update: u64, _: Payload<'_>| state.defer(&[update]);
        let updates = |state: &mut State, _: Address, (): (), updates: Payload<'_>| state.defer_message(updates);
        let report = |state: &mut State, _: Address, (): (), json: Payload<'_>| {
            state.reports.push(serde_json::from_slice(&json.to_vec()));
        };
        Ok(Self {
            update: handlers.one_way("update", update)?,
            updates: handlers.one_way("updates", updates)?,
            aggregated: aggregated.transpose()?,
            report: handlers.one_way("report", report)?,
        })
    }
}

/// What a rank has to do.
pub struct Work {
    /// Who owns which word.
    pub distribution: Distribution,
    /// The samples that this rank makes.
    pub stream: Stream,
    /// Blocks of samples between two polls, where messages carry many updates.
    pub blocks: u64,
    /// The bar that shows how far it is.
    pub progress: Progress,
}

/// Runs this rank; returns the report of all ranks at rank 0. Collective; blocks.
///
/// `backend` names in the report what carries the messages.
///
/// # Errors
/// [`RunError`]; the rank has then left its job, and the others learn of that.
pub fn run<T: Transport>(transport: T, options: &Options, backend: &str) -> Result<Option<Report>, RunError> {
    let (ranks, rank) = (transport.shape().ranks, transport.shape().address(transport.local_peer()).rank.0);
    let distribution = Distribution::new(options.log2_table, ranks);
    let owned = distribution.owned(rank);
    let words = owned.end - owned.start;
    let segment = transport.segment().clone();
    let mut in_segment = None;
    let part = if options.variant.is_message() {
        let memory = allocate(words).map_err(|source| RunError::Memory { words, source })?;
        Part::new(memory, &distribution, rank)
    } else {
        in_segment = Some(Part::new(&segment.words()[..words as usize], &distribution, rank));
        Part::none()
    };

    let mut handlers = Handlers::new();
    let job = Endpoint::builder(transport);
    let aggregates = options.variant == Variant::Aggregated;
    let mut aggregation = aggregates.then(|| Aggregation::register(&mut handlers)).transpose()?;
    let protocol = Protocol::register(&job, &mut handlers, aggregation.as_mut())?;
    let state = State { part, deferred: Deferred::default(), aggregation, reports: Vec::new() };
    let mut endpoint = job.attach(handlers, state)?;
    let segments = match in_segment {
        Some(_) => native_segments(&endpoint, options.variant)?,
        None => Vec::new(),
    };

    let shared = SharedTable::new(distribution, &segments);
    let section = distribution.section(rank, options.update_count());
    let updates = section.end - section.start;
    let work = Work {
        distribution,
        stream: Stream::new(options.seed, section),
        // A poll takes system calls there, and some loads elsewhere.
        blocks: if backend == OFI { 4 } else { 1 },
        progress: Progress::new(rank == 0, "updating", updates),
    };
    endpoint.barrier()?;
    let (before, start) = (endpoint.statistics(), endpoint.now());
    match options.variant {
        Variant::Short => messages::short(&mut endpoint, protocol.update, work)?,
        Variant::Medium => messages::medium(&mut endpoint, protocol.updates, work)?,
        Variant::Aggregated => messages::aggregated(&mut endpoint, protocol.aggregated.expect(REGISTERED), work)?,
        Variant::Atomic => shared::atomic(&shared, work),
        Variant::PutGet => shared::put_get(&shared, work)?,
        Variant::Direct => shared::direct(&shared, work),
    }
    endpoint.drain()?;
    endpoint.barrier()?;
    // Every update has arrived; after these and one more barrier, every update has been applied.
    let state = endpoint.state_mut();
    state.deferred.apply(&mut state.part);
    endpoint.barrier()?;
    let seconds = (endpoint.now() - start).picos() as f64 / 1e12;

    let mut report = RankReport { rank, words, updates, seconds, ..RankReport::default() };
    count_traffic(&mut report, &before, &endpoint.statistics());
    report.errors = options.verify.then(|| match &mut in_segment {
        Some(part) => verify(part, options, rank),
        None => verify(&mut endpoint.state_mut().part, options, rank),
    });
    let reports = gather(&mut endpoint, protocol.report, report)?;
    endpoint.finish()?;
    Ok((rank == 0).then(|| Report::new(options, backend, reports)))
}

/// The segments of all ranks, for direct access.
fn native_segments<T: Transport>(
    endpoint: &Endpoint<T, State>,
    variant: Variant,
) -> Result<Vec<Segment<T::Memory>>, RunError> {
    let segment = |rank| {
        let segment = endpoint.remote_segment(Rank(rank)).cloned();
        segment.ok_or_else(|| RunError::NoNativeAccess { variant: name(variant), rank })
    };
    (0..endpoint.ranks()).map(segment).collect()
}

/// Notes what an endpoint counted between two moments.
fn count_traffic(report: &mut RankReport, before: &Statistics, after: &Statistics) {
    for category in Category::ALL {
        let (old, new) = (before.requests_sent(category), after.requests_sent(category));
        report.messages += new.messages - old.messages;
        report.bytes += new.bytes - old.bytes;
    }
    for resource in Resource::ALL {
        let stalls = after.stalls(resource) - before.stalls(resource);
        if stalls > 0 {
            report.stalls.push((resource.to_string(), stalls));
        }
    }
    report.idles = after.idles - before.idles;
}

/// Repeats the whole stream without messages, applying what falls into this rank's part; returns how many of its
/// words then differ from their first value. Two equal updates cancel, so that none should.
///
/// Nothing of what carried the updates takes part in this, so that it cannot make the same mistake twice.
fn verify<W: Words>(part: &mut Part<W>, options: &Options, rank: u32) -> u64 {
    const STRIP: usize = 1 << 16;
    let updates = options.update_count();
    let mut progress = Progress::new(rank == 0, "verifying", updates);
    let mut stream = Stream::new(options.seed, 0..updates);
    while stream.left() > 0 {
        let strip = stream.by_ref().take(STRIP);
        strip.for_each(|update| part.apply(update));
        progress.advance(STRIP);
    }
    part.errors()
}

/// Brings the reports of all ranks together at rank 0; elsewhere there are none.
fn gather<T: Transport>(
    endpoint: &mut Endpoint<T, State>,
    handler: Request<()>,
    report: RankReport,
) -> Result<Vec<RankReport>, RunError> {
    if endpoint.rank() != Rank(0) {
        endpoint.request_medium(Rank(0), handler, (), &serde_json::to_vec(&report)?)?;
        return Ok(Vec::new());
    }
    let ranks = endpoint.ranks() as usize;
    endpoint.state_mut().reports.push(Ok(report));
    endpoint.wait_until(|state| state.reports.len() == ranks)?;
    let reports = std::mem::take(&mut endpoint.state_mut().reports);
    Ok(reports.into_iter().collect::<Result<_, _>>()?)
}
