//! What the loss of a rank costs those that call, on every simulated machine, whose time is exact: how soon calls
//! to it fail after the transport tells, and how much longer calls to others take.

use active_messages::calls::{CallEndpoint, CallError, Calls, Failure, Methods};
use active_messages::{Endpoint, Handlers, Instant, PeerStatus, Rank, Span, Transport};
use fabric_sim::Topology;
use lab_sim::conduits::{Conduit, Program, Room};

/// Calls to the rank that is lost, under way then.
const LOST: usize = 100;
/// Calls to the two others, by turns.
const CALLS: usize = 600;
const VICTIM: Rank = Rank(3);

/// Rank 0 calls two ranks while the last has calls of it, which it does not answer; if it is to be lost, it ends.
#[derive(Clone, Copy)]
struct Loss(bool);

#[derive(Clone, Debug, PartialEq)]
enum Seen {
    /// When it ended.
    Victim(Instant),
    Caller {
        /// How long each of the calls to others took.
        spans: Vec<Span>,
        /// When a look between two calls first found the rank lost, by what the transport says, and all calls to
        /// it ended.
        told: Option<Instant>,
        ended: Option<Instant>,
    },
    Other,
}

impl Program for Loss {
    type Result = Seen;

    fn play<T: Transport>(self, transport: T) -> Seen {
        let mut methods = Methods::<bool>::new();
        let echo = methods.function("echo", |_, _, number: u64| Ok::<_, Failure>(number)).unwrap();
        let never = methods.asynchronous("never", |_, ()| std::future::pending::<Result<(), Failure>>()).unwrap();
        let over = methods.function("over", |over: &mut bool, _, ()| {
            *over = true;
            Ok::<_, Failure>(())
        });
        let over = over.unwrap();
        let mut handlers = Handlers::new();
        let calls = Calls::register(&mut handlers, methods, false).unwrap();
        let mut endpoint = Endpoint::attach(transport, handlers, calls).unwrap();
        match endpoint.rank() {
            VICTIM if self.0 => {
                let _ = endpoint.wait_until_for(Span::from_micros(900), |_| false);
                // It ends without a word to anyone.
                return Seen::Victim(endpoint.now());
            }
            Rank(0) => {}
            _ => {
                endpoint.serve_until(|over| *over).unwrap();
                endpoint.leave();
                return Seen::Other;
            }
        }
        let waiting: Vec<_> = (0..LOST).map(|_| endpoint.call(VICTIM, never, &())).collect();
        let (mut spans, mut told, mut ended) = (Vec::new(), None, None);
        for number in 0..CALLS {
            let began = endpoint.now();
            let answer = endpoint.call(Rank(1 + number as u32 % 2), echo, &(number as u64)).wait(&mut endpoint);
            assert_eq!(answer, Ok(number as u64));
            let now = endpoint.now();
            spans.push(now - began);
            if matches!(endpoint.status(VICTIM), Some(PeerStatus::Lost(_))) {
                told = told.or(Some(now));
            }
            if waiting.iter().all(|call| call.is_ready()) {
                ended = ended.or(Some(now));
            }
        }
        let others = if self.0 {
            for call in waiting {
                let outcome = call.wait(&mut endpoint);
                assert!(matches!(outcome, Err(CallError::RankLost { rank: VICTIM, .. })), "{outcome:?}");
            }
            1..3
        } else {
            drop(waiting);
            1..4
        };
        others.for_each(|rank| endpoint.call(Rank(rank), over, &()).wait(&mut endpoint).unwrap());
        endpoint.leave();
        Seen::Caller { spans, told, ended }
    }
}

fn play(conduit: Conduit, lose: bool) -> Vec<Seen> {
    let topology = Topology::Torus { dims: vec![2, 2] };
    let report = conduit.run(4, topology, Room::Usual, Loss(lose)).unwrap_or_else(|error| panic!("{error}"));
    report.results.into_iter().flatten().collect()
}

/// All calls to a lost rank have failed at the first look, one round trip apart, that finds it lost or at the
/// next, and no call to another rank takes longer by more than a round trip.
#[test]
fn every_machine_tells_callers_in_time() {
    for conduit in Conduit::ALL {
        let name = conduit.name();
        let (without, with) = (play(conduit, false), play(conduit, true));
        let (Seen::Caller { spans: usual, .. }, Seen::Caller { spans, told, ended }) = (&without[0], &with[0])
        else {
            panic!("rank 0 calls")
        };
        let Seen::Victim(died) = with[3] else { panic!("the last rank ends") };
        let (told, ended) = (told.expect("the transport tells"), ended.expect("all calls end"));
        let longest = |spans: &[Span]| spans.iter().copied().max().unwrap();
        let mut sorted = usual.clone();
        sorted.sort_unstable();
        let trip = sorted[CALLS / 2];
        println!(
            "{name}: a round trip {trip}; lost {} before a look finds it so, calls ended {} later; the longest call \
             to others {}, without a loss {}",
            told - died,
            ended - told,
            longest(spans),
            longest(usual),
        );
        let most = Span(longest(usual).0 + trip.0);
        assert!(ended - told <= most, "{name}: calls end {} after the news", ended - told);
        assert!(longest(spans) <= most, "{name}: {} after {}", longest(spans), longest(usual));
    }
}
