//! What one rank of a crew holds and every task it knows: the raw arena, the raw table and its active-message
//! rank.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use active_messages::shm::{Job, JobConfig};
use serde::{Deserialize, Serialize};

use super::am::{AmRank, AmTask};
use super::bells::{BellTask, Bells};
use super::calls::{CallRank, CallTask};
use super::mapping::{Shared, open_descriptor};
use super::p2p::{AnyP2pRank, P2pTask};
use super::pgas::{PgasRank, PgasTask};
use super::placed::{Places, within};
use super::random_access;
use super::raw::{ARENA_BYTES, Arena, RawTask};
use super::table::{BATCH, OwnTable, RawTable};
#[cfg(feature = "tarpc")]
use super::tarpc_calls::{TarpcRank, TarpcTask};
use super::tokio_calls::{TokioRank, TokioTask};

/// The shape of a crew, and where its ranks find the memory they share.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WorldPlan {
    /// Processes of the crew, this one included.
    pub(crate) processes: usize,
    /// The CPU to which all of them are confined, if they are.
    pub(crate) cpu: Option<usize>,
    /// Words of the raw table for each process; 0 for none.
    table_words: u64,
    /// Whether every process is a rank of a job with all layers of am-pgas, too.
    pgas: bool,
    /// Whether every process is a rank of a job with two-sided messages, too.
    p2p: bool,
    /// Whether its endpoint is of the type that programs get which choose between networks.
    either: bool,
    /// Whether every process is a rank of two jobs with typed calls, too, one of them on tokio.
    calls: bool,
    /// Active-message ranks; 0 for none. Those beyond the processes join from rank 1's process and stay silent.
    am_ranks: usize,
    owner: u32,
    arena: RawFd,
    table: RawFd,
    job: RawFd,
    pgas_job: RawFd,
    p2p_job: RawFd,
    calls_job: RawFd,
    tokio_job: RawFd,
    bells: [RawFd; 4],
}

impl WorldPlan {
    /// A crew of `processes`, each of them an active-message rank.
    pub(crate) fn new(processes: usize) -> Self {
        let nothing = -1;
        Self {
            processes,
            cpu: None,
            table_words: 0,
            pgas: false,
            p2p: false,
            either: false,
            calls: false,
            am_ranks: processes,
            owner: std::process::id(),
            arena: nothing,
            table: nothing,
            job: nothing,
            pgas_job: nothing,
            p2p_job: nothing,
            calls_job: nothing,
            tokio_job: nothing,
            bells: [nothing; 4],
        }
    }

    /// The same with a raw table of `words` words for each rank, a power of two.
    pub(crate) fn with_table(self, words: u64) -> Self {
        Self { table_words: words, ..self }
    }

    /// The same with the layers of am-pgas, whose array is as large as the raw table.
    pub(crate) fn with_pgas(self) -> Self {
        Self { pgas: true, ..self }
    }

    /// The same with two-sided messages.
    pub(crate) fn with_p2p(self) -> Self {
        Self { p2p: true, ..self }
    }

    /// The same by endpoints of programs that choose between networks.
    pub(crate) fn with_p2p_on_either(self) -> Self {
        Self { p2p: true, either: true, ..self }
    }

    /// The same with typed calls.
    pub(crate) fn with_calls(self) -> Self {
        Self { calls: true, ..self }
    }

    /// The same with `ranks` active-message ranks, of which those without a process stay silent.
    pub(crate) fn with_silent_ranks(self, ranks: usize) -> Self {
        Self { am_ranks: ranks, ..self }
    }

    /// The same with all processes confined to one CPU.
    pub(crate) fn on_cpu(self, cpu: usize) -> Self {
        Self { cpu: Some(cpu), ..self }
    }

    /// Creates the shared memory of the crew.
    pub(crate) fn create(mut self) -> Resources {
        let arena = Shared::create(ARENA_BYTES, false).expect("the system has room for the raw arena");
        self.arena = arena.descriptor();
        let table = (self.table_words > 0)
            .then(|| Shared::create(self.table_bytes(), true).expect("the system has room for the raw table"));
        self.table = table.as_ref().map_or(-1, Shared::descriptor);
        let job = create_job(self.am_ranks as u32);
        self.job = job.fd().as_raw_fd();
        let pgas = self.pgas.then(|| create_job(self.processes as u32));
        self.pgas_job = pgas.as_ref().map_or(-1, |job| job.fd().as_raw_fd());
        let p2p = self.p2p.then(|| create_job(self.processes as u32));
        self.p2p_job = p2p.as_ref().map_or(-1, |job| job.fd().as_raw_fd());
        let calls = self.calls.then(|| create_job(self.processes as u32));
        self.calls_job = calls.as_ref().map_or(-1, |job| job.fd().as_raw_fd());
        let tokio = self.calls.then(|| create_job(self.processes as u32));
        self.tokio_job = tokio.as_ref().map_or(-1, |job| job.fd().as_raw_fd());
        let bells = self.calls.then(Bells::create);
        self.bells = bells.as_ref().map_or(self.bells, Bells::numbers);
        Resources { plan: self, arena, table, job, pgas, p2p, calls, tokio, bells }
    }

    /// Takes up the shared memory that the parent created.
    pub(crate) fn open(self) -> Resources {
        let held = "the parent holds its memory open";
        let arena = Shared::open(self.owner, self.arena, false).expect(held);
        let table = (self.table >= 0).then(|| Shared::open(self.owner, self.table, true).expect(held));
        let job = open_job(self.owner, self.job);
        let pgas = self.pgas.then(|| open_job(self.owner, self.pgas_job));
        let p2p = self.p2p.then(|| open_job(self.owner, self.p2p_job));
        let calls = self.calls.then(|| open_job(self.owner, self.calls_job));
        let tokio = self.calls.then(|| open_job(self.owner, self.tokio_job));
        let bells = self.calls.then(|| Bells::open(self.bells));
        Resources { plan: self, arena, table, job, pgas, p2p, calls, tokio, bells }
    }

    fn table_bytes(&self) -> usize {
        self.processes * self.table_words as usize * 8
    }
}

/// The shared memory of a crew, before this process has a rank in it.
pub(crate) struct Resources {
    plan: WorldPlan,
    arena: Shared,
    table: Option<Shared>,
    job: Job,
    pgas: Option<Job>,
    p2p: Option<Job>,
    calls: Option<Job>,
    tokio: Option<Job>,
    bells: Option<Bells>,
}

impl Resources {
    /// The plan with the descriptors filled in.
    pub(crate) fn plan(&self) -> &WorldPlan {
        &self.plan
    }

    /// Takes the place of `rank`, and waits until all others have taken theirs.
    pub(crate) fn join(self, rank: usize) -> World {
        let Self { plan, arena, table, job, pgas, p2p, calls, tokio, bells } = self;
        let ranks = plan.processes;
        let silent = if rank == 1 { join_silently(&plan, ranks) } else { Vec::new() };
        World {
            rank,
            arena: Arena::new(arena, rank, ranks),
            table: table.map(|memory| RawTable::new(memory, plan.table_words, rank, ranks)),
            own_table: None,
            am: AmRank::join(&job, rank as u32),
            pgas: pgas.map(|job| PgasRank::join(&job, rank as u32, plan.table_words)),
            p2p: p2p.map(|job| AnyP2pRank::join(&job, rank as u32, plan.either)),
            calls: calls.map(|job| CallRank::join(&job, rank as u32)),
            tokio: tokio.map(|job| TokioRank::join(&job, rank as u32)),
            bells,
            #[cfg(feature = "tarpc")]
            tarpc: None,
            _silent: silent,
            plan,
        }
    }
}

/// A job of active-message ranks with the default rings.
pub(crate) fn create_job(ranks: u32) -> Job {
    Job::create(&JobConfig::new(ranks)).expect("the system has room for a job")
}

/// Opens the job behind descriptor `fd` of the process `owner`.
pub(crate) fn open_job(owner: u32, fd: RawFd) -> Job {
    let file = open_descriptor(owner, fd).expect("the parent holds its job open");
    Job::open(OwnedFd::from(file)).expect("the parent runs this very program")
}

/// Lets every rank without a process join from a thread that then sleeps until the process ends.
fn join_silently(plan: &WorldPlan, first: usize) -> Vec<Sender<()>> {
    let join = |rank: usize| {
        let (sender, receiver) = channel();
        let (owner, fd) = (plan.owner, plan.job);
        std::thread::spawn(move || {
            let rank = AmRank::join(&open_job(owner, fd), rank as u32);
            let _ = receiver.recv();
            rank.leave();
        });
        sender
    };
    (first..plan.am_ranks).map(join).collect()
}

/// Work that all ranks of a crew do together; the iterations are counted per rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Without a library.
    Raw(RawTask),
    /// Updates of the raw table by every rank.
    Table,
    /// Updates by every rank of a part of the table that it alone has.
    OwnTable {
        /// How many updates ahead it prefetches.
        ahead: usize,
    },
    /// Ones added to random words of the raw table by every rank, or loads of them, with indices from a list.
    TableBatches {
        /// Whether ones are added.
        add: bool,
    },
    /// Active messages.
    Am(AmTask),
    /// One-sided access, collective operations and arrays.
    Pgas(PgasTask),
    /// Two-sided messages.
    P2p(P2pTask),
    /// Typed calls.
    Calls(CallTask),
    /// Typed calls on tokio.
    Tokio(TokioTask),
    /// Eventfds.
    Bells(BellTask),
    /// Another task with all processes so placed.
    Placed(Places, Box<Task>),
    /// Calls by `tarpc`.
    #[cfg(feature = "tarpc")]
    Tarpc(TarpcTask),
    /// Whole runs of the RandomAccess example with these arguments.
    RandomAccess {
        /// What the example gets on its command line.
        arguments: Vec<String>,
        /// The job made for this run.
        job: RawFd,
    },
}

/// One rank of a crew.
pub(crate) struct World {
    plan: WorldPlan,
    rank: usize,
    arena: Arena,
    table: Option<RawTable>,
    /// From its first task on.
    own_table: Option<OwnTable>,
    am: AmRank,
    pgas: Option<PgasRank>,
    p2p: Option<AnyP2pRank>,
    calls: Option<CallRank>,
    tokio: Option<TokioRank>,
    bells: Option<Bells>,
    /// From its first task on.
    #[cfg(feature = "tarpc")]
    tarpc: Option<TarpcRank>,
    _silent: Vec<Sender<()>>,
}

impl World {
    /// Does this rank's part of `task` and returns its time from the common start on.
    pub(crate) fn perform(&mut self, task: &Task, iterations: u64) -> Duration {
        let elapsed = match task {
            Task::Placed(places, task) => {
                return within(*places, self.rank, || self.perform(task, iterations));
            }
            Task::Raw(raw) => self.arena.perform(*raw, iterations),
            Task::Table => self.on_table(|table| table.update(iterations)),
            Task::OwnTable { ahead } => {
                let (words, rank) = (self.plan.table_words, self.rank);
                let table = self.own_table.get_or_insert_with(|| OwnTable::new(words, rank));
                self.arena.barrier();
                let start = Instant::now();
                table.update(*ahead, iterations);
                self.arena.barrier();
                start.elapsed()
            }
            Task::TableBatches { add } => {
                let (mut indices, mut out) = (Vec::with_capacity(BATCH), vec![0; BATCH]);
                self.on_table(|table| table.batches(iterations, *add, &mut indices, &mut out))
            }
            Task::Am(am) => {
                self.arena.barrier();
                self.am.perform(*am, iterations)
            }
            Task::Pgas(task) => {
                let pgas = self.pgas.as_mut().expect("the plan has these layers");
                self.arena.barrier();
                pgas.perform(*task, iterations)
            }
            Task::P2p(task) => {
                let p2p = self.p2p.as_mut().expect("the plan has this layer");
                self.arena.barrier();
                p2p.perform(*task, iterations)
            }
            Task::Calls(task) => {
                let calls = self.calls.as_mut().expect("the plan has this layer");
                self.arena.barrier();
                calls.perform(*task, iterations)
            }
            Task::Tokio(task) => {
                let tokio = self.tokio.as_mut().expect("the plan has this layer");
                self.arena.barrier();
                tokio.perform(*task, iterations)
            }
            Task::Bells(task) => {
                let bells = self.bells.as_ref().expect("the plan has them");
                self.arena.barrier();
                bells.perform(self.rank, *task, iterations)
            }
            #[cfg(feature = "tarpc")]
            Task::Tarpc(task) => {
                let (owner, rank) = (self.plan.owner, self.rank);
                let tarpc = self.tarpc.get_or_insert_with(|| TarpcRank::join(owner, rank));
                self.arena.barrier();
                tarpc.perform(*task, iterations)
            }
            Task::RandomAccess { arguments, job } => {
                random_access::run(&open_job(self.plan.owner, *job), self.rank as u32, arguments)
            }
        };
        self.arena.publish(elapsed);
        elapsed
    }

    fn on_table(&mut self, work: impl FnOnce(&mut RawTable)) -> Duration {
        let table = self.table.as_mut().expect("the plan has a table");
        table.fill();
        self.arena.barrier();
        table.touch();
        self.arena.barrier();
        let start = Instant::now();
        work(table);
        self.arena.barrier();
        start.elapsed()
    }

    /// What the ranks reported at the end of the last task: the time of each, and the CPU it stood on.
    pub(crate) fn reports(&self) -> Vec<(Duration, u64)> {
        self.arena.reports()
    }

    /// The largest Medium payload for a round trip.
    pub(crate) fn largest_medium(&self) -> usize {
        self.am.largest_medium()
    }

    /// Leaves the job; the peers leave too.
    pub(crate) fn leave(self) {
        self.am.leave();
        if let Some(pgas) = self.pgas {
            pgas.leave();
        }
        if let Some(p2p) = self.p2p {
            p2p.leave();
        }
        if let Some(calls) = self.calls {
            calls.leave();
        }
    }
}
