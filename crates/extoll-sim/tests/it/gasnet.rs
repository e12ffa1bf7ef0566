//! The GASNet conduit itself: packet counts, the halves of Long messages in either order, credits, cuts, endings,
//! determinism.

use am_core::transport::{Body, Departure, Membership, ReplyBound, RequestHeader, Transport, WaitReason, Waiting};
use am_core::{
    Address, Endpoint, Handlers, LossCause, Payload, Peer, PeerStatus, Rank, Request, Span, Token, Words,
};
use extoll_sim::conduit::gasnet::{self, Gasnet, GasnetConfig, HostCosts, Implementation};
use extoll_sim::model::Parameters;
use extoll_sim::{AdversarialTiming, ExtollConfig};
use fabric_sim::{FaultEvent, Faults, Report, Scheduled, Stage, Topology};

/// What a rank has seen.
#[derive(Debug, Default)]
struct Seen {
    /// Numbers of messages with the time at which their handlers ran, in picoseconds.
    numbers: Vec<u32>,
    bytes: Vec<u8>,
    replies: u64,
}

struct Table {
    note: Request<Words>,
    ask: Request<u32>,
}

fn attach(transport: Gasnet<'_>) -> (Endpoint<Gasnet<'_>, Seen>, Table) {
    let mut handlers = Handlers::<Seen>::new();
    let note = handlers.one_way("note", |seen: &mut Seen, _: Address, words: Words, payload: Payload<'_>| {
        seen.numbers.push(words.word(0).unwrap_or(0));
        seen.bytes = payload.to_vec();
    });
    let reply =
        handlers.reply("reply", |seen: &mut Seen, _: Address, (): (), _: Payload<'_>| seen.replies += 1).unwrap();
    let ask =
        handlers.request("ask", move |seen: &mut Seen, token: Token<'_>, number: u32, bytes: Payload<'_>| {
            seen.numbers.push(number);
            match number % 4 {
                0 => token.reply(reply, ()).unwrap(),
                1 => token.reply_medium(reply, (), &bytes.to_vec()).unwrap(),
                2 => token.reply_long(reply, (), &bytes.to_vec(), 0).unwrap(),
                _ => {}
            }
        });
    let table = Table { note: note.unwrap(), ask: ask.unwrap() };
    (Endpoint::attach(transport, handlers, Seen::default()).unwrap(), table)
}

fn run<R: 'static>(
    config: &ExtollConfig,
    gasnet: &GasnetConfig,
    program: impl Fn(Endpoint<Gasnet<'_>, Seen>, Table) -> R + 'static,
) -> Report<R> {
    gasnet::run(config, gasnet, move |transport| {
        let (endpoint, table) = attach(transport);
        program(endpoint, table)
    })
    .unwrap()
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// VELO packets that node 0 sends for a Medium message of 8192 bytes with sixteen arguments.
fn packets_of_the_largest_medium(implementation: Implementation, packet: u32) -> u64 {
    let gasnet = GasnetConfig { implementation, packet, ..GasnetConfig::default() };
    let sent = |messages: u32| {
        let report = run(&ExtollConfig::pair(), &gasnet, move |mut endpoint, table| {
            if endpoint.rank() == Rank(0) {
                for _ in 0..messages {
                    endpoint
                        .request_medium(Rank(1), table.note, Words::from_slice(&[9; 16]).unwrap(), &pattern(8192))
                        .unwrap();
                }
            }
            endpoint.finish().unwrap().bytes == pattern(8192)
        });
        assert_eq!(report.results[1], Some(messages != 0));
        let stage = report.stages.iter().find(|stage| stage.name == "velo tx" && stage.node == 0);
        stage.expect("node 0 has sent something").packets
    };
    sent(1) - sent(0)
}

#[test]
fn the_largest_medium_takes_the_published_packets() {
    assert_eq!(packets_of_the_largest_medium(Implementation::Second, 56), 148);
    assert_eq!(packets_of_the_largest_medium(Implementation::Second, 64), 130);
    // One for the header, two for the arguments, and payload that does not top anything up.
    assert_eq!(packets_of_the_largest_medium(Implementation::First, 56), 1 + 2 + 147);
}

const LATE: Span = Span::from_micros(200);

/// A Long message and a Short one behind it; returns the order in which their handlers ran, and whether the data
/// lay in the segment while the handler of the Long one had not run yet.
fn halves(parameters: Parameters, implementation: Implementation, ordered: bool) -> (Vec<u32>, bool) {
    let config = ExtollConfig { parameters, ..ExtollConfig::pair() };
    let gasnet = GasnetConfig { implementation, ordered, ..GasnetConfig::default() };
    let report = run(&config, &gasnet, |mut endpoint, table| {
        let mut early = false;
        if endpoint.rank() == Rank(0) {
            let word = |number| Words::from_slice(&[number]).unwrap();
            endpoint.request_long(Rank(1), table.note, word(1), &pattern(3000), 77).unwrap();
            endpoint.request(Rank(1), table.note, word(2)).unwrap();
        } else {
            while endpoint.state().numbers.len() < 2 {
                endpoint.poll().unwrap();
                let there = endpoint.segment().view(77, 3000).unwrap().to_vec() == pattern(3000);
                let handled = endpoint.state().numbers.contains(&1);
                assert!(there || !handled, "the handler ran before its data was there");
                early |= there && !handled;
            }
        }
        (endpoint.finish().unwrap().numbers, early)
    });
    report.results.into_iter().nth(1).flatten().unwrap()
}

#[test]
fn a_long_handler_waits_for_its_data() {
    for implementation in [Implementation::First, Implementation::Second] {
        let mut slow = Parameters::cluster();
        slow.rma.tx = Stage { fixed_ns: LATE.0 as f64 / 1e3, ..slow.rma.tx };
        // Both came over VELO, so the header was there before the Short message, which waits only for the sake of
        // order.
        assert_eq!(halves(slow.clone(), implementation, false).0, [2, 1]);
        assert_eq!(halves(slow, implementation, true).0, [1, 2]);
    }
}

#[test]
fn a_long_handler_waits_for_its_header() {
    for implementation in [Implementation::First, Implementation::Second] {
        let mut slow = Parameters::cluster();
        slow.velo.rx = Stage { fixed_ns: LATE.0 as f64 / 1e3, ..slow.velo.rx };
        for ordered in [false, true] {
            assert_eq!(halves(slow.clone(), implementation, ordered), (vec![1, 2], true));
        }
    }
}

#[test]
fn long_payloads_are_cut_and_come_whole() {
    // Puts of at most a kilobyte, through four kilobytes of bounce buffers, with VELO and RMA overtaking each
    // other.
    let gasnet = GasnetConfig { put: 1000, bounce: 4096, segment: 1 << 20, ..GasnetConfig::default() };
    let adversary = AdversarialTiming { jitter_ns: 30_000.0, ..AdversarialTiming::default() };
    let report = run(&ExtollConfig { adversary, ..ExtollConfig::pair() }, &gasnet, |mut endpoint, table| {
        for len in [1, 999, 1000, 1001, 100_000, (1 << 20) - 3] {
            if endpoint.rank() == Rank(0) {
                let word = Words::from_slice(&[len]).unwrap();
                endpoint.request_long(Rank(1), table.note, word, &pattern(len as usize), 3).unwrap();
            }
            endpoint.drain().unwrap();
            endpoint.barrier().unwrap();
            assert!(endpoint.rank() == Rank(0) || endpoint.state().bytes == pattern(len as usize), "{len} bytes");
        }
        endpoint.finish().unwrap();
    });
    assert!(report.results.iter().all(Option::is_some));
}

/// Traffic of all kinds, then what every rank could send to every other.
fn everything(config: &ExtollConfig, gasnet: &GasnetConfig) -> Report<Vec<String>> {
    run(config, gasnet, |mut endpoint, table| {
        let (ranks, me) = (endpoint.ranks(), endpoint.rank().0);
        let all = |endpoint: &Endpoint<Gasnet<'_>, Seen>| {
            (0..ranks).map(|rank| format!("{:?}", endpoint.credits(Rank(rank)))).collect::<Vec<_>>()
        };
        let fresh = all(&endpoint);
        let mut due = 0;
        for number in 0..200 {
            let to = Rank((me + number) % ranks);
            match number % 3 {
                0 => endpoint.request(to, table.ask, number).unwrap(),
                1 => endpoint.request_medium(to, table.ask, number, &pattern(number as usize)).unwrap(),
                _ => endpoint.request_long(to, table.ask, number, &pattern(number as usize), 64).unwrap(),
            }
            due += u64::from(number % 4 != 3);
        }
        endpoint.wait_until(|seen| seen.replies == due).unwrap();
        endpoint.drain().unwrap();
        endpoint.barrier().unwrap();
        // The last credits are on their way.
        let waited = endpoint.wait_until_for(Span::from_micros(500), |_| false);
        waited.expect_err("nothing more comes");
        assert_eq!(all(&endpoint), fresh, "rank {me}");
        endpoint.finish().unwrap();
        fresh
    })
}

#[test]
fn every_credit_comes_back() {
    for implementation in [Implementation::First, Implementation::Second] {
        for gasnet in [GasnetConfig::smallest(), GasnetConfig::default()] {
            let gasnet = GasnetConfig { implementation, medium: 512, ..gasnet };
            everything(&ExtollConfig::new(5, Topology::Ring { nodes: 5 }), &gasnet);
        }
    }
}

#[test]
fn equal_runs_are_equal_and_other_seeds_are_other_runs() {
    let run = |seed| {
        let faults = Faults { seed, loss: 0.02, ..Faults::default() };
        let config = ExtollConfig { faults, ..ExtollConfig::new(4, Topology::Mesh { dims: vec![2, 2] }) };
        let report = everything(&config, &GasnetConfig::default());
        (report.hash, report.ended, report.events)
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).0, run(2).0);
    // Compare these between builds: `cargo test -p active-messages-extoll --test it equal -- --nocapture`, with
    // and without `--release`.
    println!("hash of seed 1: {:016x}", run(1).0);
}

#[test]
fn survivors_of_a_stopped_node_are_told_whom_they_lost() {
    let event = FaultEvent::NodeStop { node: 2 };
    let schedule = vec![Scheduled { at_ns: 300_000.0, event }];
    let faults = Faults { schedule, ..Faults::default() };
    let config = ExtollConfig { faults, ..ExtollConfig::new(3, Topology::Direct { nodes: 3 }) };
    let report = run(&config, &GasnetConfig::default(), |mut endpoint, table| {
        let victim = Rank(2);
        let error = loop {
            if let Err(error) = endpoint.request(victim, table.ask, 0) {
                break error;
            }
        };
        assert_eq!(error.lost_rank(), Some(victim));
        let status = endpoint.status(victim);
        endpoint.leave();
        status
    });
    let lost = Some(Some(PeerStatus::Lost(LossCause::Died)));
    assert_eq!(report.results, [lost, lost, None]);
}

/// Rank 1 sends rank 0 some packets past its conduit; returns what rank 0 makes of it.
fn nonsense(packets: &'static [(u8, &'static [u8])]) -> PeerStatus {
    let report = run(&ExtollConfig::pair(), &GasnetConfig::default(), move |mut endpoint, _| {
        if endpoint.rank() == Rank(1) {
            let velo = endpoint.transport().nic().velo();
            let to = velo.connect(endpoint.transport().nic().address(0).unwrap()).unwrap();
            for (mtt, packet) in packets {
                velo.send(to, packet, 0, *mtt).unwrap();
            }
        }
        let waited = endpoint.wait_until_for(Span::from_micros(100), |_| false);
        let told = matches!(&waited, Err(error) if error.to_string().contains("malformed"));
        let status = endpoint.status(Rank(1)).unwrap();
        assert_eq!(told, endpoint.rank() == Rank(0) && status != PeerStatus::Active, "{waited:?}");
        endpoint.leave();
        status
    });
    report.results[0].unwrap()
}

#[test]
fn a_peer_that_sends_nonsense_is_lost() {
    let faulty = PeerStatus::Lost(LossCause::Faulty);
    assert_eq!(nonsense(&[]), PeerStatus::Active);
    // Too short for a header; a kind that does not exist; payload that belongs to nothing; more bytes than the
    // header tells.
    assert_eq!(nonsense(&[(0, &[1, 2, 3])]), faulty);
    assert_eq!(nonsense(&[(0, &[15, 0, 0, 0, 0, 0, 0, 0])]), faulty);
    assert_eq!(nonsense(&[(2, &[0; 56])]), faulty);
    assert_eq!(nonsense(&[(0, &[0; 9])]), faulty);
    // Credits for a request that nobody sent.
    assert_eq!(nonsense(&[(3, &[10, 0, 0, 0, 0, 0x10, 0, 0])]), faulty);
}

/// Round trips of Short messages between two ranks: the virtual time of one in microseconds, and the simulation's
/// events.
fn round_trips(count: u64, args: usize, gasnet: &GasnetConfig, config: &ExtollConfig) -> (f64, u64) {
    let report = gasnet::run(config, gasnet, move |transport| {
        let mut handlers = Handlers::<u64>::new();
        let pong = handlers.reply("pong", |count: &mut u64, _: Address, _: Words, _: Payload<'_>| *count += 1);
        let pong = pong.unwrap();
        let ping =
            handlers.request("ping", move |count: &mut u64, token: Token<'_>, words: Words, _: Payload<'_>| {
                *count += 1;
                token.reply(pong, words).unwrap();
            });
        let ping = ping.unwrap();
        let mut endpoint = Endpoint::attach(transport, handlers, 0).unwrap();
        let began = endpoint.now();
        if endpoint.rank() == Rank(0) {
            let words = Words::from_slice(&vec![7; args]).unwrap();
            for done in 0..count {
                endpoint.request(Rank(1), ping, words).unwrap();
                endpoint.wait_until(|count| *count > done).unwrap();
            }
        } else {
            endpoint.wait_until(|done| *done == count).unwrap();
        }
        let took = endpoint.now() - began;
        endpoint.finish().unwrap();
        took.as_secs_f64() * 1e6 / count as f64
    });
    let report = report.unwrap();
    (report.results[0].unwrap(), report.events)
}

#[test]
fn the_second_implementation_is_better_by_what_it_does() {
    let latency = |implementation, args| {
        let gasnet = GasnetConfig { implementation, ..GasnetConfig::default() };
        round_trips(20, args, &gasnet, &ExtollConfig::pair()).0
    };
    for args in [0, 4, 16] {
        let (first, second) = (latency(Implementation::First, args), latency(Implementation::Second, args));
        println!(
            "{args} arguments: {first:.2} us against {second:.2} us, {:.0} %",
            100.0 * (first / second - 1.0)
        );
        assert!(second < first && first < 2.0 * second, "{first} us against {second} us");
    }
}

#[test]
fn a_job_without_costs_passes_the_same_messages() {
    let gasnet = GasnetConfig { costs: HostCosts::free(), ..GasnetConfig::default() };
    everything(&ExtollConfig { parameters: Parameters::free(), ..ExtollConfig::pair() }, &gasnet);
}

/// Learning the others' endpoints costs each rank as much as there are others; a lock costs each frame and each
/// poll.
#[test]
fn joining_and_locking_cost() {
    let machine = ExtollConfig::new(4, Topology::Direct { nodes: 4 });
    let with = |lock_ns, exchange_ns| {
        let costs = HostCosts { lock_ns, exchange_ns, ..HostCosts::default() };
        GasnetConfig { costs, ..GasnetConfig::default() }
    };
    let joined = |gasnet: &GasnetConfig| {
        let report = gasnet::run(&machine, gasnet, |transport| transport.now().0).unwrap();
        report.results[2].unwrap()
    };
    assert_eq!(joined(&with(0.0, 5_000.0)) - joined(&with(0.0, 0.0)), 15_000_000);
    let asked = |gasnet: &GasnetConfig| {
        let report = run(&ExtollConfig::pair(), gasnet, |mut endpoint, table| {
            let mut took = Span::ZERO;
            if endpoint.rank() == Rank(0) {
                let began = endpoint.now();
                endpoint.request(Rank(1), table.ask, 0).unwrap();
                endpoint.wait_until(|seen| seen.replies == 1).unwrap();
                took = endpoint.now().since(began);
            }
            endpoint.finish().unwrap();
            took
        });
        report.results[0].unwrap().0
    };
    let (without, locked) = (asked(&with(0.0, 0.0)), asked(&with(40.0, 0.0)));
    assert!(locked >= without + 4 * 40_000, "two frames and two polls: {without} and {locked} ps");
}

/// A rank ends between another's question whether everything was handled and its idling, while a wait for room,
/// say, takes the word of it.
#[test]
fn an_end_before_idling_is_noticed() {
    let report = gasnet::run(&ExtollConfig::pair(), &GasnetConfig::default(), |mut transport| {
        if transport.local_peer() == Peer(1) {
            transport.charge(Span::from_micros(100));
            transport.depart(Departure::Finished);
            return true;
        }
        let header = RequestHeader::new(0, ReplyBound::None);
        transport.send(Peer(1), header, &Words::default(), Body::None).unwrap();
        let wait_for_messages = |transport: &mut Gasnet<'_>, span| {
            let until = transport.now() + span;
            while transport.now() < until {
                transport.idle(Some(until), WaitReason::Message);
            }
        };
        // What the interface has to say of what was sent is heard before.
        wait_for_messages(&mut transport, Span::from_micros(50));
        assert!(!transport.is_quiescent());
        wait_for_messages(&mut transport, Span::from_micros(100));
        let until = transport.now() + Span::from_secs(1);
        transport.idle(Some(until), WaitReason::Handling);
        transport.now() < until && transport.is_quiescent()
    });
    assert_eq!(report.unwrap().results, [Some(true), Some(true)]);
}

/// Everyone asks a neighbour, and all finish.
fn neighbours(ranks: u32, config: &ExtollConfig, gasnet: &GasnetConfig) {
    let report = run(config, gasnet, move |mut endpoint, table| {
        let to = Rank((endpoint.rank().0 + 1) % ranks);
        endpoint.request(to, table.ask, 0).unwrap();
        endpoint.wait_until(|seen| seen.replies == 1).unwrap();
        endpoint.barrier().unwrap();
        endpoint.finish().unwrap().numbers.len()
    });
    assert!(report.results.iter().all(|seen| *seen == Some(1)));
}

#[test]
fn a_job_of_1024_ranks_on_the_cluster() {
    neighbours(1024, &extoll_sim::cluster(1024), &GasnetConfig { segment: 4096, ..GasnetConfig::default() });
}

/// `cargo test --release -p active-messages-extoll --test it -- --ignored 16384`
#[test]
#[ignore = "takes half a minute and gigabytes"]
fn a_job_of_16384_ranks() {
    let mut config = ExtollConfig { ranks_per_node: 256, ..extoll_sim::cluster(16_384) };
    config.stack_bytes = 64 << 10;
    neighbours(16_384, &config, &GasnetConfig { segment: 4096, ..GasnetConfig::default() });
}

/// `cargo test --release -p active-messages-extoll --test it -- --ignored rate --nocapture`
#[test]
#[ignore = "tells a rate by the clock on the wall, which is not judged"]
fn rate_of_round_trips() {
    for (name, parameters) in [("cluster", Parameters::cluster()), ("free", Parameters::free())] {
        let config = ExtollConfig { parameters, ..ExtollConfig::pair() };
        let (count, began) = (1_000_000, std::time::Instant::now());
        let (latency, events) = round_trips(count, 2, &GasnetConfig::default(), &config);
        let (rate, events) = (count as f64 / began.elapsed().as_secs_f64(), events as f64 / count as f64);
        println!(
            "{name}: {:.2} M round trips a second, {latency:.3} us and {events:.1} events each in virtual time",
            rate / 1e6
        );
    }
}

/// `cargo test --release -p active-messages-extoll --test it -- --ignored updates --nocapture`
#[test]
#[ignore = "tells a rate by the clock on the wall, which is not judged"]
fn rate_of_updates_between_1024_ranks() {
    const EACH: u64 = 512;
    let began = std::time::Instant::now();
    let report = gasnet::run(&extoll_sim::cluster(1024), &GasnetConfig::default(), |transport| {
        let mut handlers = Handlers::<u64>::new();
        let update = |sum: &mut u64, _: Address, number: u64, _: Payload<'_>| *sum ^= number;
        let update = handlers.one_way("update", update).unwrap();
        let mut endpoint = Endpoint::attach(transport, handlers, 0).unwrap();
        let mut random = u64::from(endpoint.rank().0) + 1;
        for count in 0..EACH {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            endpoint.request(Rank((random >> 54) as u32), update, random).unwrap();
            if count % 16 == 0 {
                endpoint.poll().unwrap();
            }
        }
        endpoint.finish().unwrap()
    });
    let (report, took) = (report.unwrap(), began.elapsed().as_secs_f64());
    let (updates, events) = (1024.0 * EACH as f64 / took / 1e6, report.events as f64 / took / 1e6);
    println!("{updates:.3} M updates a second, {events:.2} M events, {took:.2} s, hash {:016x}", report.hash);
}
