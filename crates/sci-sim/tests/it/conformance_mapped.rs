//! The conformance suite over the conduit between threads and between processes whose segments are mapped files.

use am_conformance::{Buffers, Fabric, Needs, Plan, Profile, World, cases, judge, run, run_with};
use am_core::Rank;
use sci_sim::conduit::{Conduit, ConduitConfig, MappedJob};
use sci_sim::nic::{Mapped, TransferErrors};
use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// The conduit with ranks as threads.
struct Threads {
    name: &'static str,
    config: ConduitConfig,
    errors: TransferErrors,
}

/// Jobs of this process so far: each has a directory of its own.
static JOBS: AtomicU32 = AtomicU32::new(0);

/// A name that no other job has.
fn job_name() -> String {
    format!("conformance-{}-{}", std::process::id(), JOBS.fetch_add(1, Ordering::Relaxed))
}

/// The same with the smallest slots, where a case wants that.
fn sized(config: &ConduitConfig, buffers: Buffers) -> ConduitConfig {
    let ConduitConfig { requests, slot, dma_queue, .. } = ConduitConfig::smallest();
    match buffers {
        Buffers::Default => config.clone(),
        Buffers::Smallest => ConduitConfig { requests, slot, dma_queue, ..config.clone() },
    }
}

impl Fabric for Threads {
    type Transport = Conduit<Mapped>;
    type Job = MappedJob;

    fn name(&self) -> String {
        self.name.into()
    }

    fn create(&self, ranks: u32, needs: &Needs) -> MappedJob {
        let config = sized(&self.config, needs.buffers);
        MappedJob::named(&job_name(), ranks, config).errors(self.errors.clone())
    }

    fn join(&self, job: &MappedJob, rank: Rank) -> Vec<Conduit<Mapped>> {
        vec![job.join(rank.0).expect("all ranks join")]
    }
}

fn plan(ranks: &[u32]) -> Plan {
    Plan::with_ranks(Profile::Quick, ranks)
}

fn suite(name: &'static str, config: ConduitConfig, errors: TransferErrors, plan: &Plan) {
    run(Threads { name, config, errors }, cases(), plan).check();
}

#[test]
fn conforms_between_threads() {
    suite("sci, mapped", ConduitConfig::default(), TransferErrors::default(), &plan(&[1, 3]));
}

#[test]
fn conforms_as_published_between_threads() {
    suite(
        "sci, mapped, published",
        ConduitConfig::paper(),
        TransferErrors::default(),
        &plan(&[2]).sample("published"),
    );
}

#[test]
fn conforms_between_threads_under_transfer_errors() {
    let errors =
        TransferErrors { seed: 5, retriable: 0.02, not_retriable: 0.002, pending: 0.002, planned: Vec::new() };
    suite(
        "sci, mapped, with transfer errors",
        ConduitConfig::default(),
        errors,
        &plan(&[3]).sample("transfer errors"),
    );
}

/// What makes this program a rank: `case job rank ranks seed full`.
const ROLE: &str = "SCI_SIM_CONFORMANCE_ROLE";

/// Runs one case with a process per rank, each this program again with nothing to do but its part.
fn processes(plan: &Plan) {
    let program = env::current_exe().expect("a test knows its program");
    let report = run_with("sci, mapped, processes", plan, |case, ranks, world| {
        let job = job_name();
        let start = |rank| {
            let full = world.profile == Profile::Full;
            let role = format!("{} {job} {rank} {ranks} {} {full}", case.name, world.seed);
            let mut command = Command::new(&program);
            command.args(["--ignored", "--exact", "conformance_mapped::as_a_rank", "--nocapture"]).env(ROLE, role);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a rank can be started")
        };
        let started: Vec<_> = (0..ranks).map(start).collect();
        let mut problems = Vec::new();
        for (rank, process) in started.into_iter().enumerate() {
            let output = process.wait_with_output().expect("a rank that was started can be waited for");
            if !output.status.success() {
                problems.push(format!("rank {rank}: {}", String::from_utf8_lossy(&output.stderr).trim_end()));
            }
        }
        problems
    });
    report.check();
}

#[test]
fn conforms_between_processes() {
    processes(&plan(&[3]).sample("processes"));
}

#[test]
#[ignore = "a rank of the tests between processes, which start it"]
fn as_a_rank() {
    let Ok(role) = env::var(ROLE) else { return };
    let words: Vec<&str> = role.split(' ').collect();
    let &[name, job, rank, ranks, seed, full] = words.as_slice() else {
        panic!("the role '{role}' has six words")
    };
    let number = |text: &str| text.parse::<u64>().expect("a role's numbers are numbers");
    let world = World::new(if full == "true" { Profile::Full } else { Profile::Quick }, number(seed));
    let case = cases().into_iter().find(|case| case.description.name == name).expect("a role names a case");
    let config = sized(&ConduitConfig::default(), case.description.needs.buffers);
    let transport = MappedJob::named(job, number(ranks) as u32, config).join(number(rank) as u32);
    let transport = transport.unwrap_or_else(|error| panic!("rank {rank} cannot join: {error}"));
    let outcome = catch_unwind(AssertUnwindSafe(|| case.run(&world, vec![transport])));
    if let Some(problem) = judge(&case.description, outcome) {
        panic!("{name}: {problem}");
    }
}

/// `cargo test --release -p active-messages-sci --test it -- --ignored conformance_mapped::full`
#[test]
#[ignore = "the full profile takes minutes"]
fn full_between_processes() {
    processes(&Plan::with_ranks(Profile::Full, &[1, 2, 3, 5, 8]));
}

/// `cargo test --release -p active-messages-sci --test it -- --ignored conformance_mapped::full`
#[test]
#[ignore = "the full profile takes minutes"]
fn full() {
    let plan = Plan::with_ranks(Profile::Full, &[1, 2, 3, 5, 8]);
    suite("sci, mapped, full", ConduitConfig::tuned(), TransferErrors::default(), &plan);
}
