//! The conformance suite over shared memory, with the ranks as threads of one process.

use am_conformance::{Buffers, Fabric, Needs, Plan, Profile, all_cases, concrete_cases, run};
use am_core::Rank;
use transport_shm::{Job, JobConfig, JoinOptions, Shm};

/// Makes jobs whose ranks are threads.
struct Threads;

impl Fabric for Threads {
    type Transport = Shm;
    type Job = (Job, u16);

    fn name(&self) -> String {
        "shared memory between threads".into()
    }

    fn create(&self, ranks: u32, needs: &Needs) -> (Job, u16) {
        let config = match needs.buffers {
            Buffers::Default => JobConfig::new(ranks),
            Buffers::Smallest => JobConfig::smallest(ranks),
        };
        let job =
            Job::create(&config.endpoints(needs.endpoints)).expect("the sizes are valid and memory is there");
        (job, needs.endpoints)
    }

    fn join(&self, (job, endpoints): &(Job, u16), rank: Rank) -> Vec<Shm> {
        let join = |endpoint| {
            let options = JoinOptions::default().segment_bytes(SEGMENT).endpoint(endpoint);
            job.join_with(rank.0, options).expect("every endpoint joins once")
        };
        (0..*endpoints).map(join).collect()
    }
}

/// Bytes of every rank's segment: not a multiple of anything but eight.
const SEGMENT: usize = (1 << 18) + 8;

#[test]
fn quick() {
    run(Threads, all_cases(), &Plan::from_environment(Profile::Quick)).check();
}

#[test]
fn without_trait_objects() {
    run(Threads, concrete_cases(), &Plan::from_environment(Profile::Quick)).check();
}

/// So many ranks that a poll looks at some of them only.
#[test]
fn crowd() {
    for only in ["token-facts", "statistics", "finish-together", "panics", "survivors", "leaves"] {
        let plan = Plan { ranks: vec![70], only: Some(only.into()), ..Plan::from_environment(Profile::Quick) };
        run(Threads, all_cases(), &plan).check();
    }
}

/// Takes minutes: `cargo test --release -p active-messages-shm --test it -- --ignored conformance:: --nocapture`.
#[test]
#[ignore = "the full profile takes minutes"]
fn full() {
    run(Threads, all_cases(), &Plan::from_environment(Profile::Full)).check();
}
