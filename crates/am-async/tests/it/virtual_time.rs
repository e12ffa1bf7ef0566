//! The endpoint's executor on a simulated machine: timers are the machine's, and every run is the same.

use am_async::{CallConfig, CallEndpoint, Calls, Context, Failure, Methods, join};
use am_core::{Endpoint, Handlers, Instant, Rank, Span, Transport};
use machine_sim::conduit::ConduitConfig;
use machine_sim::crossbar;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::RngCore;

const RANKS: u32 = 4;
const CALLS: u32 = 60;

/// When each of a rank's calls ended, by its number.
type Ends = Vec<(u32, Instant)>;

/// A program that knows no machine: calls of all ranks to all others, some of which call on, with sleeps at both
/// sides, so many at a time that they end in another order than they were made.
fn program<T: Transport>(transport: T, seed: u64) -> Ends {
    let mut methods = Methods::<()>::new();
    let later = methods.asynchronous("later", |context: Context<()>, nanos: u64| async move {
        context.sleep(Span::from_nanos(nanos)).await;
        Ok::<_, Failure>(nanos)
    });
    let later = later.unwrap();
    let via = methods.asynchronous("via", move |context: Context<()>, (to, nanos): (u32, u64)| async move {
        Ok::<_, Failure>(context.call(Rank(to), later, &nanos).await?)
    });
    let via = via.unwrap();
    let mut handlers = Handlers::new();
    let calls = Calls::register_with(&mut handlers, methods, (), CallConfig::new()).unwrap();
    let mut endpoint = Endpoint::attach(transport, handlers, calls).unwrap();
    let me = endpoint.rank().0;
    let mut random = Pcg64::new(seed.into(), me.into());
    let mut below = move |limit: u64| random.next_u64() % limit;
    let plan: Vec<(u32, u32, u64)> =
        (0..CALLS).map(|_| (below(RANKS.into()) as u32, below(RANKS.into()) as u32, below(5000))).collect();
    let mut ends = Vec::new();
    let noted = std::cell::RefCell::new(&mut ends);
    let all = endpoint.run(async |context| {
        let calls = (0..).zip(&plan).map(async |(number, (to, next, nanos))| {
            context.sleep(Span::from_nanos(nanos / 7)).await;
            let answer = match number % 3 {
                0 => context.call(Rank(*to), via, &(*next, *nanos)).await,
                _ => context.call(Rank(*to), later, nanos).await,
            };
            assert_eq!(answer, Ok(*nanos));
            let now = context.now().await;
            noted.borrow_mut().push((number, now));
        });
        join(16, calls).await;
    });
    all.unwrap();
    endpoint.finish().unwrap();
    ends
}

fn simulated(seed: u64) -> Vec<Ends> {
    let report = machine_sim::conduit::run(&crossbar(RANKS), &ConduitConfig::default(), move |transport| {
        program(transport, seed)
    });
    report.unwrap().results.into_iter().map(|ends| ends.unwrap()).collect()
}

#[test]
fn every_run_is_the_same() {
    let (first, other) = (simulated(1), simulated(2));
    assert_eq!(first, simulated(1), "calls of one seed end at other times");
    assert_ne!(first, other);
    let crossed = |ends: &Ends| ends.is_sorted_by_key(|(number, _)| *number);
    assert!(!first.iter().all(crossed), "some end in another order than they were made");
    // The same program where time is not simulated.
    let network = am_core::loopback::network(RANKS, am_core::loopback::LoopbackConfig::default());
    let ranks: Vec<_> = network.into_iter().map(|rank| std::thread::spawn(|| program(rank, 1))).collect();
    for rank in ranks {
        assert_eq!(rank.join().unwrap().len(), CALLS as usize);
    }
}

/// A day passes at once, to the picosecond.
#[test]
fn sleeps_take_the_machines_time() {
    const DAY: Span = Span::from_secs(86_400);
    let config = ConduitConfig::default();
    let report = machine_sim::conduit::run(&crossbar(1), &config, |transport| {
        let mut handlers = Handlers::new();
        let calls = Calls::register(&mut handlers, Methods::<()>::new(), ()).unwrap();
        let mut endpoint = Endpoint::attach(transport, handlers, calls).unwrap();
        let slept = endpoint.run(async |context| {
            let before = context.now().await;
            context.sleep(DAY).await;
            context.now().await - before
        });
        endpoint.finish().unwrap();
        slept.unwrap()
    });
    let slept = report.unwrap().results.remove(0).unwrap();
    assert!((DAY.0..DAY.0 + 1_000_000).contains(&slept.0), "{slept:?}");
}
