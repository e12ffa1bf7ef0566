//! Large broadcasts and allgathers are read in the memory of those who give.

use am_core::{Endpoint, Handlers, Span};
use am_pgas::Team;
use am_pgas::collectives::{CollectiveError, Collectives, Sum};
use std::sync::Barrier;
use transport_shm::{Job, JobConfig, JoinOptions, Shm};

type Ranks = Endpoint<Shm, Collectives>;

/// Runs ranks as threads of this process.
fn run(ranks: u32, work: impl Fn(&mut Ranks, &Team) + Sync) {
    let job = Job::create(&JobConfig::new(ranks)).expect("memory is there");
    std::thread::scope(|scope| {
        for rank in 0..ranks {
            let (job, work) = (&job, &work);
            scope.spawn(move || {
                let mut handlers = Handlers::new();
                let layer = Collectives::register(&mut handlers).unwrap();
                let shm = job.join_with(rank, JoinOptions::default().segment_bytes(4096)).unwrap();
                let mut endpoint = Endpoint::attach(shm, handlers, layer).unwrap();
                endpoint.set_timeout(Span::from_secs(20));
                let world = Team::world(&mut endpoint).unwrap();
                work(&mut endpoint, &world);
                endpoint.finish().unwrap();
            });
        }
    });
}

fn values(member: u32, salt: usize, len: usize) -> Vec<u64> {
    (0..len).map(|index| (index + salt) as u64 * 31 + (u64::from(member) << 40)).collect()
}

#[test]
fn everyone_gets_what_was_lent() {
    run(3, |endpoint, world| {
        let me = world.me();
        for (salt, len) in (0..).zip([8 << 10, (8 << 10) + 1, 128 << 10, (128 << 10) + 1, 300_001]) {
            for root in 0..3 {
                let mut found = values(me, salt, len);
                world.broadcast(endpoint, root, &mut found).unwrap();
                assert!(found == values(root, salt, len), "{len} numbers of member {root}");
                // Changed as soon as the call is over.
                found.fill(u64::MAX);
            }
            let (mut own, mut all) = (values(me, salt + 7, len), vec![0; 3 * len]);
            world.allgather(endpoint, &own, &mut all).unwrap();
            own.fill(u64::MAX);
            assert!(
                all == [0, 1, 2].map(|member| values(member, salt + 7, len)).concat(),
                "{len} numbers of each"
            );
        }
    });
}

/// A call that times out takes its elements back: the others get copies of what they were.
#[test]
fn what_a_time_out_takes_back_is_not_read() {
    let ended = Barrier::new(2);
    run(2, |endpoint, world| {
        const LEN: usize = 100_000;
        let (mut given, mut all) = (values(world.me(), 1, LEN), vec![0; 2 * LEN]);
        if world.me() == 0 {
            endpoint.set_timeout(Span::from_millis(2));
            let timed_out = world.broadcast(endpoint, 0, &mut given).unwrap_err();
            assert!(matches!(timed_out, CollectiveError::Wait(_)), "{timed_out}");
            let timed_out = world.allgather(endpoint, &given, &mut all).unwrap_err();
            assert!(matches!(timed_out, CollectiveError::Wait(_)), "{timed_out}");
            endpoint.set_timeout(Span::from_secs(20));
            given.fill(0);
            ended.wait();
        } else {
            ended.wait();
            world.broadcast(endpoint, 0, &mut given).unwrap();
            assert!(given == values(0, 1, LEN));
            world.allgather(endpoint, &values(1, 2, LEN), &mut all).unwrap();
            assert!(all == [values(0, 1, LEN), values(1, 2, LEN)].concat());
        }
        assert_eq!(world.allreduce_one(endpoint, 1u32, Sum).unwrap(), 2);
    });
}
