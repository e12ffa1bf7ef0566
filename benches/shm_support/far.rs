//! The tasks of the pgas bench over UDP: ranks as threads of this process that talk over loopback, on this layer
//! and on bare active messages, so that each figure has its baseline in the same run.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use active_messages::pgas::array::GlobalArray;
use active_messages::pgas::array::distribution::Distribution;
use active_messages::pgas::prelude::*;
use active_messages::pgas::{Pgas, Team};
use active_messages::{Category, Endpoint, Handlers, Payload, Rank, Request, Token};
use lab::random_access::hpcc;
use transport_udp::{LocalJob, LocalOptions, Udp, UdpConfig};
use zerocopy::IntoBytes as _;

/// Bytes of what is put at once, of a Long, and of the part of a segment that these rotate over.
pub(crate) const BLOCK: usize = 1 << 20;
const SPARE: usize = 8 << 20;
/// Operations of a batch.
const AT_ONCE: usize = 1 << 16;
/// Words of the table that each rank holds.
const WORDS: u64 = 1 << 20;
/// Puts that are under way at once.
const PUTS: usize = 8;
const OTHER: Rank = Rank(1);

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FarTask {
    /// A Short request and its Short reply.
    Trip,
    /// Values of eight bytes read from another rank's segment.
    Get,
    /// Longs of [`BLOCK`] bytes, until all are handled.
    Longs,
    /// Puts of [`BLOCK`] bytes with handles, until all are done.
    Puts,
    /// Barriers of a world of so many ranks.
    Barrier {
        /// The ranks.
        ranks: u32,
    },
    /// RandomAccess with aggregated updates, iterations counted per rank.
    RandomAccess,
    /// The same updates in buckets that the program fills and sends itself.
    OwnBuckets,
    /// Ones added to random elements of an array, iterations counted per rank.
    Histogram,
    /// Random elements of an array, iterations counted per rank.
    IndexGather,
}

/// Operations on other ranks' words, and what was sent for them.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    operations: u64,
    /// Bytes of the payloads of requests, and of all datagrams: those of answers and acknowledgements, too.
    payloads: u64,
    datagrams: u64,
}

impl FarTask {
    /// Does it with as many ranks as it needs, which are started at its first use.
    pub(crate) fn run(self, iterations: u64) -> Duration {
        let ranks = if let Self::Barrier { ranks } = self { ranks } else { 2 };
        CREWS.with_borrow_mut(|crews| {
            let at = crews.iter().position(|crew| crew.threads.len() as u32 + 1 == ranks);
            let at = at.unwrap_or_else(|| {
                crews.push(FarCrew::start(ranks));
                crews.len() - 1
            });
            crews[at].run(self, iterations)
        })
    }
}

thread_local! {
    static CREWS: RefCell<Vec<FarCrew>> = const { RefCell::new(Vec::new()) };
}

/// Ends all ranks, and tells what the two that updated tables have sent.
pub(crate) fn end() {
    CREWS.take().into_iter().for_each(FarCrew::end);
}

struct State {
    pgas: Pgas,
    replies: u64,
    part: Vec<u64>,
}
active_messages::pgas::pgas_state!(State, pgas);

/// One rank.
struct FarRank {
    endpoint: Endpoint<Udp, State>,
    world: Team,
    ask: Request<u64>,
    note: Request<u64>,
    updates: Aggregator<u64>,
    bucket: Request<()>,
    buckets: Vec<Vec<u64>>,
    table: GlobalArray<u64>,
    block: Vec<u64>,
    indices: Vec<u64>,
    out: Vec<u64>,
    stream: u64,
    /// What was sent for other ranks' words: with RandomAccess, histogram, index gather, and own buckets.
    sent: [Sent; 4],
}

impl FarRank {
    fn join(job: &LocalJob, rank: u32) -> Self {
        let joining = Endpoint::builder(job.join(rank).expect("every rank joins once"));
        let (mut handlers, few) = (Handlers::<State>::new(), "there is room for all of them");
        let mut pgas = Pgas::register(&mut handlers).expect(few);
        let reply = handlers.reply("reply", |state: &mut State, _, _: u64, _: Payload<'_>| state.replies += 1);
        let reply = reply.expect(few);
        let ask = handlers.request("ask", move |_: &mut State, token: Token<'_>, value: u64, _: Payload<'_>| {
            token.reply(reply, value).expect("the asker waits");
        });
        let note = handlers.one_way("note", |_: &mut State, _, _: u64, _: Payload<'_>| {});
        let apply = |state: &mut State, updates: &[u64]| {
            updates.iter().for_each(|update| state.part[(update % WORDS) as usize] ^= update);
        };
        let bucket = handlers.one_way("bucket", |state: &mut State, _, (): (), bytes: Payload<'_>| {
            bytes.for_each_u64(|update| state.part[(update % WORDS) as usize] ^= update);
        });
        let config = AggregatorConfig::new().look_ahead(hpcc::LOOK_AHEAD);
        let updates = Aggregator::register_anonymous(&joining, &mut pgas, &mut handlers, "updates", config, apply);
        let (ask, note) = (ask.expect(few), note.expect(few));
        let (updates, bucket) = (updates.expect(few), bucket.expect(few));
        let buckets = vec![Vec::with_capacity(hpcc::LOOK_AHEAD); joining.shape().ranks as usize];
        let state = State { pgas, replies: 0, part: vec![0; WORDS as usize] };
        let mut endpoint = joining.attach(handlers, state).expect("all ranks have the same tables");
        let world = Team::world(&mut endpoint).expect("nobody is lost");
        let ranks = endpoint.ranks();
        let shape = Distribution::block([WORDS * u64::from(ranks)], ranks).expect("a power of two");
        let table = GlobalArray::new(&mut endpoint, shape).expect("the segment has room");
        let stream = hpcc::starts(i64::from(rank) << 40);
        let (block, indices, out) = (vec![1; BLOCK / 8], Vec::with_capacity(AT_ONCE), vec![0; AT_ONCE]);
        Self {
            endpoint,
            world,
            ask,
            note,
            updates,
            bucket,
            buckets,
            table,
            block,
            indices,
            out,
            stream,
            sent: [Sent::default(); 4],
        }
    }

    /// Does this rank's part; the time from the common start on.
    fn perform(&mut self, task: FarTask, iterations: u64) -> Duration {
        let there = "nobody is lost";
        let Self { endpoint, world, .. } = self;
        world.barrier(endpoint).expect(there);
        let (start, leads) = (Instant::now(), endpoint.rank() == Rank(0));
        match task {
            FarTask::Trip if leads => {
                for value in 0..iterations {
                    let due = endpoint.state().replies + 1;
                    endpoint.request(OTHER, self.ask, value).expect(there);
                    endpoint.wait_until(|state| state.replies == due).expect(there);
                }
            }
            FarTask::Get if leads => {
                for index in 0..iterations {
                    let from = GlobalPtr::<u64>::new(OTHER, index * 8 % SPARE as u64);
                    black_box(endpoint.get_value(from).expect(there));
                }
            }
            FarTask::Longs if leads => {
                for index in 0..iterations {
                    let at = index * BLOCK as u64 % SPARE as u64;
                    let bytes = self.block.as_slice().as_bytes();
                    endpoint.request_long(OTHER, self.note, index, bytes, at).expect(there);
                }
                endpoint.drain().expect(there);
            }
            FarTask::Puts if leads => {
                let mut under_way = VecDeque::with_capacity(PUTS);
                for index in 0..iterations {
                    if under_way.len() == PUTS {
                        let oldest = under_way.pop_front().expect("some are under way");
                        endpoint.wait(oldest).expect(there);
                    }
                    let to = GlobalPtr::<u64>::new(OTHER, index * BLOCK as u64 % SPARE as u64);
                    let put = endpoint.put_slice_nb(to.slice(BLOCK as u64 / 8), &self.block);
                    under_way.push_back(put.expect(there));
                }
                under_way.into_iter().for_each(|put| endpoint.wait(put).expect(there));
            }
            FarTask::Barrier { .. } => (0..iterations).for_each(|_| world.barrier(endpoint).expect(there)),
            FarTask::RandomAccess | FarTask::OwnBuckets | FarTask::Histogram | FarTask::IndexGather => {
                self.update(task, iterations);
            }
            FarTask::Trip | FarTask::Get | FarTask::Longs | FarTask::Puts => {}
        }
        let elapsed = start.elapsed();
        // Who does not lead serves here.
        self.world.barrier(&mut self.endpoint).expect(there);
        elapsed
    }

    /// Updates words of all ranks, or reads them, until everybody's are done.
    fn update(&mut self, task: FarTask, count: u64) {
        let Self { endpoint, world, table, stream, indices, out, buckets, bucket, .. } = self;
        let (there, me, before) = ("nobody is lost", endpoint.rank(), sent(endpoint));
        let ranks = endpoint.ranks() as usize;
        let (mut left, mut far, len) = (count, 0, table.distribution().len());
        while left > 0 {
            let batch = left.min(AT_ONCE as u64);
            left -= batch;
            indices.clear();
            indices.extend((0..batch).map(|_| {
                *stream = hpcc::step(*stream);
                *stream & (len - 1)
            }));
            let owner = |index: &u64| Rank((*index / WORDS) as u32);
            far += indices.iter().filter(|index| owner(index) != me).count() as u64;
            match task {
                FarTask::Histogram => table.batch_add(endpoint, indices, 1).expect(there),
                FarTask::IndexGather => {
                    table.batch_load(endpoint, indices, &mut out[..indices.len()]).expect(there);
                    black_box(&mut *out);
                }
                FarTask::OwnBuckets => {
                    for index in &*indices {
                        let to = owner(index);
                        if to == me {
                            endpoint.state_mut().part[(index % WORDS) as usize] ^= index;
                            continue;
                        }
                        let own = &mut buckets[to.0 as usize];
                        own.push(*index);
                        // All buckets together hold the look-ahead at most.
                        if own.len() == hpcc::LOOK_AHEAD / (ranks - 1) {
                            endpoint.request_medium(to, *bucket, (), own.as_bytes()).expect(there);
                            own.clear();
                            endpoint.poll().expect(there);
                        }
                    }
                }
                _ => {
                    let items = indices.iter().map(|index| (owner(index), *index));
                    endpoint.push_all(self.updates, items).expect(there);
                }
            }
        }
        match task {
            FarTask::RandomAccess => endpoint.done(self.updates).expect(there),
            FarTask::OwnBuckets => {
                for (to, own) in (0..).map(Rank).zip(buckets).filter(|(_, own)| !own.is_empty()) {
                    endpoint.request_medium(to, *bucket, (), own.as_bytes()).expect(there);
                    own.clear();
                }
                endpoint.drain().expect(there);
            }
            _ => {}
        }
        world.barrier(endpoint).expect(there);
        let (after, sent) = (sent(endpoint), &mut self.sent[kind(task)]);
        sent.operations += far;
        sent.payloads += after.payloads - before.payloads;
        sent.datagrams += after.datagrams - before.datagrams;
    }
}

/// The place of a task's counts.
fn kind(task: FarTask) -> usize {
    match task {
        FarTask::Histogram => 1,
        FarTask::IndexGather => 2,
        FarTask::OwnBuckets => 3,
        _ => 0,
    }
}

/// What an endpoint has sent so far.
fn sent(endpoint: &Endpoint<Udp, State>) -> Sent {
    let statistics = endpoint.statistics();
    let payloads = Category::ALL.into_iter().map(|category| statistics.requests_sent(category).bytes).sum();
    Sent { operations: 0, payloads, datagrams: endpoint.transport().counters().sent_bytes }
}

/// A task and how many iterations of it.
type Order = (FarTask, u64);

/// All ranks of a job: this thread's, and those of threads that sleep between two tasks.
struct FarCrew {
    rank: FarRank,
    threads: Vec<(Sender<Order>, JoinHandle<()>)>,
}

impl FarCrew {
    fn start(ranks: u32) -> Self {
        let options = LocalOptions::default().segment_bytes(SPARE + 8 * WORDS as usize + 4096);
        let job = LocalJob::with(ranks, options, UdpConfig::new([])).expect("loopback has free ports");
        let job = Arc::new(job);
        let threads = (1..ranks).map(|rank| {
            let (job, (orders, received)) = (Arc::clone(&job), mpsc::channel());
            (orders, thread::spawn(move || serve(&job, rank, &received)))
        });
        let threads = threads.collect();
        Self { rank: FarRank::join(&job, 0), threads }
    }

    fn run(&mut self, task: FarTask, iterations: u64) -> Duration {
        for (orders, _) in &self.threads {
            orders.send((task, iterations)).expect("every rank is there");
        }
        self.rank.perform(task, iterations)
    }

    fn end(self) {
        let all = ["RandomAccess, aggregated", "histogram", "index gather", "RandomAccess, own buckets"]
            .into_iter()
            .zip(self.rank.sent);
        let all: Vec<_> = all.filter(|(_, sent)| sent.operations > 0).collect();
        for (name, sent) in &all {
            let each = |bytes: u64| bytes as f64 / sent.operations as f64;
            let first = all.first().map(|(_, first)| first.datagrams as f64 / first.operations as f64);
            println!(
                "over UDP, {name}: for each operation on a remote word a rank sends {:.2} bytes of datagrams \
                 ({:.2} of payloads of requests), {:.2} x the operations of the first for each byte",
                each(sent.datagrams),
                each(sent.payloads),
                first.unwrap_or(1.0) / each(sent.datagrams)
            );
        }
        for (orders, thread) in self.threads {
            drop(orders);
            thread.join().expect("the rank ends well");
        }
        self.rank.endpoint.leave();
    }
}

fn serve(job: &LocalJob, rank: u32, orders: &Receiver<Order>) {
    let mut this = FarRank::join(job, rank);
    while let Ok((task, iterations)) = orders.recv() {
        this.perform(task, iterations);
    }
    this.endpoint.leave();
}
