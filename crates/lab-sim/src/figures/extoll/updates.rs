//! RandomAccess on the raw interface, on the conduit's active messages, on two-sided messages: the programs do the
//! same. A process sends each update of its part of the HPCC stream to the owner of the word, who acknowledges it
//! before the next; or, on the raw interface, each update in a packet of its own without waiting for any; or as a
//! program in UPC does. Every run is verified. A process has done its part when it has made its updates and taken
//! as many as the stream has for it, so that no protocol for ending is timed.

use crate::figures::report::Failure;
use active_messages::transport::Membership;
use active_messages::{Address, Endpoint, Handlers, Instant, Payload, Rank, Reply, Request, Token};
use extoll_sim::conduit::gasnet::{self, Gasnet, GasnetConfig, Implementation};
use extoll_sim::conduit::pscom::{Messenger, PscomConfig, ReceiveRequest, Received};
use extoll_sim::nic::Nic;
use extoll_sim::nic::velo::{Connection, Message, Velo, VeloError};
use extoll_sim::{self, ExtollConfig};
use fabric_sim::{Report, WaitFor};
use lab::random_access::hpcc::{Distribution, Stream};
use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::rc::Rc;

/// What carries the updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layer {
    /// A VELO packet for each update and one for each acknowledgement.
    Raw,
    /// A Short request for each update and a reply.
    Conduit,
    /// A message for each update and one for each acknowledgement.
    TwoSided,
    /// A VELO packet for each update, without acknowledgements: as many as the network takes.
    Stream,
    /// As a UPC program updates a shared array on the conduit's active messages: a get of the word and then a put,
    /// each a request and its reply. Updates of one word at the same time may be lost, as the benchmark allows.
    Upc(Implementation),
}

/// A RandomAccess run.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// Updates of each process.
    pub(super) updates: u32,
    /// The rank that each process is; the other ranks of the machine do nothing. Without it every rank is the
    /// process of its number. Only [`Layer::Stream`] knows it.
    pub(super) ranks: Option<Rc<[u32]>>,
}

impl Job {
    /// Every rank is a process.
    pub(super) const fn new(updates: u32) -> Self {
        Self { updates, ranks: None }
    }

    fn processes(&self, machine: &ExtollConfig) -> u32 {
        self.ranks.as_ref().map_or(machine.ranks, |ranks| ranks.len() as u32)
    }
}

/// Words of a process's part of the table.
const LOG2_WORDS: u32 = 10;

/// Where in the HPCC stream the updates begin. Its first samples have few bits and so few owners, and so have
/// those around powers of two; a short run anywhere else is as even as a long one.
const SEED: u64 = 123_456_789_012_345;

/// What a process has to do, and what it is told by others.
struct Share {
    distribution: Distribution,
    stream: Stream,
    /// Updates that others will send.
    expected: u64,
    table: Vec<u64>,
    first: u64,
    me: u32,
}

impl Share {
    fn new(job: &Job, me: u32, ranks: u32, expected: &[u64]) -> Self {
        let distribution = distribution(ranks);
        let owned = distribution.owned(me);
        let section = distribution.section(me, u64::from(job.updates) * u64::from(ranks));
        Self {
            expected: expected[me as usize],
            stream: Stream::new(SEED, section),
            table: owned.clone().collect(),
            first: owned.start,
            distribution,
            me,
        }
    }

    /// The next update with its owner; updates of own words are made at once.
    fn next(&mut self) -> Option<(u32, u64)> {
        loop {
            let sample = self.stream.next()?;
            let owner = self.distribution.owner(self.distribution.word(sample)) as u32;
            if owner != self.me {
                return Some((owner, sample));
            }
            self.apply(sample);
        }
    }

    fn apply(&mut self, sample: u64) {
        let word = self.distribution.word(sample) - self.first;
        self.table[word as usize] ^= sample;
    }
}

fn distribution(ranks: u32) -> Distribution {
    Distribution::new(LOG2_WORDS + ranks.next_power_of_two().trailing_zeros(), ranks)
}

/// For each process, the updates that others send it.
fn expected(job: &Job, ranks: u32) -> Rc<[u64]> {
    let distribution = distribution(ranks);
    let updates = u64::from(job.updates) * u64::from(ranks);
    let mut counts = vec![0; ranks as usize];
    for rank in 0..ranks {
        for sample in Stream::new(SEED, distribution.section(rank, updates)) {
            let owner = distribution.owner(distribution.word(sample));
            counts[owner as usize] += u64::from(owner != u64::from(rank));
        }
    }
    counts.into()
}

/// When a process began and ended, and its part of the table.
struct Done {
    process: u32,
    began: Instant,
    ended: Instant,
    table: Vec<u64>,
}

/// Microseconds from the first process's beginning to the last one's end.
///
/// # Errors
/// [`Failure`] if the simulation ends early, or the table is wrong.
pub(super) fn run(machine: &ExtollConfig, layer: Layer, job: &Job) -> Result<f64, Failure> {
    let what = "RandomAccess";
    let expected = expected(job, job.processes(machine));
    let small = GasnetConfig { medium: 64, request_slots: 64, reply_slots: 64, ..GasnetConfig::default() };
    let of_run = job.clone();
    let report = match layer {
        Layer::Raw => extoll_sim::run(machine, move |nic| Ok(raw(&nic, &of_run, &expected))),
        Layer::Stream => extoll_sim::run(machine, move |nic| Ok(stream(&nic, &of_run, &expected))),
        Layer::Conduit => gasnet::run(machine, &small, move |transport| {
            conduit(transport, &of_run, &expected).map_err(|error| error.to_string())
        }),
        Layer::Upc(implementation) => {
            let config = GasnetConfig { implementation, ..small };
            gasnet::run(machine, &config, move |transport| {
                upc(transport, &of_run, &expected).map_err(|error| error.to_string())
            })
        }
        Layer::TwoSided => {
            let config = PscomConfig::default();
            extoll_sim::run(machine, move |nic| {
                two_sided(&nic, &config, &of_run, &expected).map_err(|error| error.to_string())
            })
        }
    };
    // The benchmark allows one update in a hundred to be lost where updates are no single operation.
    let lost = if matches!(layer, Layer::Upc(_)) { 0.01 } else { 0.0 };
    conclude(report.map_err(Failure::of(what))?, job, lost).map_err(|error| Failure::Program { what, error })
}

/// Verifies the table against one made without messages: of its updates, so many may be lost.
fn conclude(report: Report<Result<Done, String>>, job: &Job, lost: f64) -> Result<f64, String> {
    let mut done: Vec<Done> = report.results.into_iter().flatten().collect::<Result<_, _>>()?;
    done.retain(|done| !done.table.is_empty());
    done.sort_by_key(|done| done.process);
    let distribution = distribution(done.len() as u32);
    let mut table: Vec<u64> = (0..distribution.words()).collect();
    for sample in Stream::new(SEED, 0..u64::from(job.updates) * done.len() as u64) {
        table[distribution.word(sample) as usize] ^= sample;
    }
    let found = done.iter().flat_map(|done| &done.table);
    let errors = found.zip(&table).filter(|(found, right)| found != right).count();
    if errors as f64 > lost * f64::from(job.updates) * done.len() as f64 {
        return Err(format!("{errors} words of the table are wrong"));
    }
    let began = done.iter().map(|done| done.began).min().unwrap_or_default();
    let ended = done.iter().map(|done| done.ended).max().unwrap_or_default();
    Ok(ended.since(began).0 as f64 / 1e6)
}

/// Tags of raw packets and of two-sided messages.
const UPDATE: u8 = 0;
const DONE: u8 = 1;
const NO_ANSWER: u8 = 2;

/// A process on the raw interface.
struct Raw<'a> {
    nic: Nic<'a>,
    velo: Velo<'a>,
    share: Share,
    connections: BTreeMap<u32, Connection>,
    /// Ranks whose updates have to be acknowledged.
    owed: VecDeque<u32>,
    received: u64,
    under_way: bool,
}

fn raw(nic: &Nic<'_>, job: &Job, expected: &[u64]) -> Done {
    let mut raw = Raw::new(nic, job, [nic.rank(), nic.ranks()], expected);
    let began = nic.now();
    while let Some((owner, sample)) = raw.share.next() {
        while !raw.send(owner, &sample.to_le_bytes(), UPDATE) {
            raw.wait();
        }
        raw.under_way = true;
        while raw.under_way {
            raw.wait();
        }
    }
    while raw.received < raw.share.expected || !raw.owed.is_empty() {
        raw.wait();
    }
    raw.done(began)
}

impl<'a> Raw<'a> {
    fn new(nic: &Nic<'a>, job: &Job, [process, processes]: [u32; 2], expected: &[u64]) -> Self {
        let velo = nic.velo();
        velo.open().expect("the port is free");
        let share = Share::new(job, process, processes, expected);
        let (nic, connections, owed) = (nic.clone(), BTreeMap::new(), VecDeque::new());
        Self { nic, velo, share, connections, owed, received: 0, under_way: false }
    }

    fn done(self, began: Instant) -> Done {
        Done { process: self.share.me, began, ended: self.nic.now(), table: self.share.table }
    }

    /// Takes all packets that are there.
    fn take_all(&mut self) {
        while let Ok(message) = self.velo.probe_recv(None) {
            self.take(&message);
        }
    }

    /// Sends a packet; says whether there was room.
    fn send(&mut self, to: u32, bytes: &[u8], tag: u8) -> bool {
        let connection = *self.connections.entry(to).or_insert_with(|| {
            let address = self.nic.address(to).expect("owners are ranks of the job");
            self.velo.connect(address).expect("the port is open")
        });
        match self.velo.send(connection, bytes, tag, 0) {
            Ok(()) => true,
            Err(VeloError::TryAgain { .. }) => false,
            Err(error) => panic!("the packet and its connection are right: {error}"),
        }
    }

    fn take(&mut self, message: &Message) {
        if message.tag == DONE {
            self.under_way = false;
            return;
        }
        for sample in message.data().chunks_exact(8) {
            self.share.apply(u64::from_le_bytes(sample.try_into().expect("chunks are exact")));
            self.received += 1;
        }
        if message.tag == NO_ANSWER {
            return;
        }
        self.owed.push_back(self.nic.rank_at(message.from).expect("packets come from ranks of the job"));
        self.acknowledge();
    }

    fn acknowledge(&mut self) {
        while let Some(to) = self.owed.front().copied() {
            if !self.send(to, &[], DONE) {
                return;
            }
            self.owed.pop_front();
        }
    }

    /// Takes what is there, or waits until something changes.
    fn wait(&mut self) {
        self.acknowledge();
        match self.velo.probe_recv(None) {
            Ok(message) => self.take(&message),
            Err(_) => self.nic.idle(None, WaitFor::Arrival),
        }
    }
}

/// Each update in a packet of its own, without waiting for any; after each packet the process takes what has come.
fn stream(nic: &Nic<'_>, job: &Job, expected: &[u64]) -> Done {
    let ranks = job.ranks.as_deref();
    let process = ranks.map_or(Some(nic.rank()), |ranks| {
        ranks.iter().position(|rank| *rank == nic.rank()).map(|process| process as u32)
    });
    let Some(process) = process else {
        return Done { process: 0, began: nic.now(), ended: nic.now(), table: Vec::new() };
    };
    let processes = ranks.map_or(nic.ranks(), |ranks| ranks.len() as u32);
    let mut raw = Raw::new(nic, job, [process, processes], expected);
    let began = nic.now();
    while let Some((owner, sample)) = raw.share.next() {
        let to = ranks.map_or(owner, |ranks| ranks[owner as usize]);
        while !raw.send(to, &sample.to_le_bytes(), NO_ANSWER) {
            raw.wait();
        }
        raw.take_all();
    }
    while raw.received < raw.share.expected {
        raw.wait();
    }
    raw.done(began)
}

/// What the handlers of the conduit work on.
struct State {
    share: Share,
    received: u64,
    under_way: bool,
}

fn conduit(transport: Gasnet<'_>, job: &Job, expected: &[u64]) -> Result<Done, Box<dyn Error>> {
    let mut handlers = Handlers::new();
    let done: Reply<()> = handlers.reply("done", |state: &mut State, _: Address, (): (), _: Payload<'_>| {
        state.under_way = false;
    })?;
    let update = move |state: &mut State, token: Token<'_>, sample: u64, _: Payload<'_>| {
        state.share.apply(sample);
        state.received += 1;
        token.reply(done, ()).expect("room for the reply was set aside");
    };
    let update: Request<u64> = handlers.request_bounded("update", 0, update)?;
    let (me, ranks) = (transport.local_peer().0, transport.shape().ranks);
    let state = State { share: Share::new(job, me, ranks, expected), received: 0, under_way: false };
    let mut endpoint = Endpoint::attach(transport, handlers, state)?;
    endpoint.barrier()?;
    let began = endpoint.now();
    while let Some((owner, sample)) = endpoint.state_mut().share.next() {
        endpoint.state_mut().under_way = true;
        endpoint.request(Rank(owner), update, sample)?;
        endpoint.wait_until(|state| !state.under_way)?;
    }
    endpoint.wait_until(|state| state.received == state.share.expected)?;
    let ended = endpoint.now();
    let state = endpoint.finish()?;
    Ok(Done { process: me, began, ended, table: state.share.table })
}

/// What the handlers of UPC's gets and puts work on.
struct Shared {
    share: Share,
    word: Option<u64>,
    under_way: bool,
}

fn upc(transport: Gasnet<'_>, job: &Job, expected: &[u64]) -> Result<Done, Box<dyn Error>> {
    let mut handlers = Handlers::new();
    let word: Reply<u64> =
        handlers.reply("word", |state: &mut Shared, _: Address, word: u64, _: Payload<'_>| {
            state.word = Some(word);
        })?;
    let stored: Reply<()> =
        handlers.reply("stored", |state: &mut Shared, _: Address, (): (), _: Payload<'_>| {
            state.under_way = false;
        })?;
    let load = move |state: &mut Shared, token: Token<'_>, index: u64, _: Payload<'_>| {
        let found = state.share.table[(index - state.share.first) as usize];
        token.reply(word, found).expect("room for the reply was set aside");
    };
    let load: Request<u64> = handlers.request_bounded("load", 0, load)?;
    let store = move |state: &mut Shared, token: Token<'_>, (index, value): (u64, u64), _: Payload<'_>| {
        let at = (index - state.share.first) as usize;
        state.share.table[at] = value;
        token.reply(stored, ()).expect("room for the reply was set aside");
    };
    let store: Request<(u64, u64)> = handlers.request_bounded("store", 0, store)?;
    let (me, ranks) = (transport.local_peer().0, transport.shape().ranks);
    let share = Share::new(job, me, ranks, expected);
    let state = Shared { share, word: None, under_way: false };
    let mut endpoint = Endpoint::attach(transport, handlers, state)?;
    endpoint.barrier()?;
    let began = endpoint.now();
    while let Some((owner, sample)) = endpoint.state_mut().share.next() {
        let index = endpoint.state().share.distribution.word(sample);
        endpoint.request(Rank(owner), load, index)?;
        endpoint.wait_until(|state| state.word.is_some())?;
        let found = endpoint.state_mut().word.take().expect("the wait is over");
        endpoint.state_mut().under_way = true;
        endpoint.request(Rank(owner), store, (index, found ^ sample))?;
        endpoint.wait_until(|state| !state.under_way)?;
    }
    // Whoever has ended serves the others; how they come to know is not part of what is timed.
    let ended = endpoint.now();
    endpoint.barrier()?;
    let state = endpoint.finish()?;
    Ok(Done { process: me, began, ended, table: state.share.table })
}

/// A process with two-sided messages.
struct TwoSided<'a> {
    messenger: Messenger<'a>,
    /// The receive that is always posted.
    posted: Option<ReceiveRequest>,
    share: Share,
    received: u64,
    under_way: bool,
}

fn two_sided(nic: &Nic<'_>, config: &PscomConfig, job: &Job, expected: &[u64]) -> Result<Done, Box<dyn Error>> {
    let messenger = Messenger::new(nic, config);
    let share = Share::new(job, nic.rank(), nic.ranks(), expected);
    let mut process = TwoSided { messenger, posted: None, share, received: 0, under_way: false };
    process.posted = Some(process.messenger.irecv(None, None)?);
    let began = process.messenger.now();
    while let Some((owner, sample)) = process.share.next() {
        process.messenger.send(owner, UPDATE.into(), &sample.to_le_bytes())?;
        process.under_way = true;
        while process.under_way {
            process.wait()?;
        }
    }
    while process.received < process.share.expected {
        process.wait()?;
    }
    let ended = process.messenger.now();
    process.messenger.finish();
    Ok(Done { process: process.share.me, began, ended, table: process.share.table })
}

impl TwoSided<'_> {
    fn wait(&mut self) -> Result<(), Box<dyn Error>> {
        let posted = self.posted.take().expect("a receive is always posted");
        let received = self.messenger.wait_receive(posted)?;
        self.take(received)
    }

    fn take(&mut self, received: Received) -> Result<(), Box<dyn Error>> {
        self.posted = Some(self.messenger.irecv(None, None)?);
        if received.tag == u32::from(DONE) {
            self.under_way = false;
            return Ok(());
        }
        let sample = received.data[..].try_into()?;
        self.share.apply(u64::from_le_bytes(sample));
        self.received += 1;
        Ok(self.messenger.send(received.source, DONE.into(), &[])?)
    }
}
