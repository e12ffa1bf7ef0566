//! Jobs on the simulated network: what happens without the ranks' help, cuts that heal and cuts that do not, hosts
//! that stop, narrow paths, and that a run is its seed's.

use am_core::transport::Membership;
use am_core::{
    Address, Endpoint, Handlers, Instant, LossCause, Payload, Peer, PeerStatus, PollError, Rank, Request, Span,
    WaitError,
};
use fabric_sim::{LinkFaults, Report};
use transport_udp::simulated::{Ethernet, EthernetJobConfig, SimUdp};

const MS: Span = Span::from_millis(1);
const fn at(millis: u64) -> Instant {
    Instant(Span::from_millis(millis).0)
}

/// What arrived: numbers in their order, and when the last came.
#[derive(Default)]
struct Seen {
    numbers: Vec<u32>,
    bytes: u64,
}

/// Attaches with a handler that notes numbers and payloads.
fn attach(transport: SimUdp<'_>) -> (Endpoint<SimUdp<'_>, Seen>, Request<(u32,)>) {
    let mut handlers = Handlers::<Seen>::new();
    let note = |seen: &mut Seen, _: Address, (number,): (u32,), payload: Payload<'_>| {
        seen.numbers.push(number);
        seen.bytes += payload.len() as u64;
    };
    let note = handlers.one_way("note", note).unwrap();
    (Endpoint::attach(transport, handlers, Seen::default()).unwrap(), note)
}

/// A job in which everyone sends numbers to everyone, in all categories.
fn chatter(job: &EthernetJobConfig, rounds: u32) -> Report<Vec<u32>> {
    let program = move |transport: SimUdp<'_>| {
        let (mut endpoint, note) = attach(transport);
        let ranks = endpoint.ranks();
        for number in 0..rounds {
            for to in (0..ranks).map(Rank) {
                match number % 3 {
                    0 => endpoint.request(to, note, (number,)).unwrap(),
                    1 => endpoint.request_medium(to, note, (number,), &[7; 3000]).unwrap(),
                    _ => endpoint.request_long(to, note, (number,), &[9; 5000], 0).unwrap(),
                }
            }
        }
        endpoint.wait_until(|seen| seen.numbers.len() as u32 == rounds * ranks).unwrap();
        endpoint.finish().unwrap().numbers
    };
    job.run(program).unwrap()
}

fn faulty(seed: u64, ranks: u32) -> EthernetJobConfig {
    EthernetJobConfig::new(ranks, &Ethernet::ten()).cabled().mischief(seed)
}

#[test]
fn a_seed_gives_the_same_run() {
    let [one, again, other] = [3, 3, 4].map(|seed| chatter(&faulty(seed, 3), 20));
    assert!(one.lost > 0 || one.corrupted > 0, "there is mischief under this seed");
    assert_eq!((one.hash, one.events, one.ended), (again.hash, again.events, again.ended));
    assert_ne!(one.hash, other.hash);
    assert_eq!(one.results, again.results);
}

/// Rank 0 sends and then computes without polling once. What the network loses is sent again nevertheless.
#[test]
fn retransmission_does_not_wait_for_the_application() {
    let job = EthernetJobConfig::new(2, &Ethernet::ten()).cut(0, 2, at(10), Span(20 * MS.0));
    let program = |transport: SimUdp<'_>| {
        let (mut endpoint, note) = attach(transport);
        if endpoint.rank() == Rank(0) {
            endpoint.charge(at(11) - endpoint.now());
            endpoint.request(Rank(1), note, (7,)).unwrap();
            // Two seconds in which it does nothing for the network.
            endpoint.charge(Span::from_secs(2));
            endpoint.leave();
            return Instant(0);
        }
        endpoint.wait_until(|seen| seen.numbers == [7]).unwrap();
        let arrived = endpoint.now();
        endpoint.leave();
        arrived
    };
    let report = job.run(program).unwrap();
    let arrived = report.results[1].unwrap();
    assert!(arrived > at(30), "the link was down until then");
    assert!(arrived < at(500), "it arrived at {} ns", arrived.0 / 1000);
    assert!(report.lost > 0);
}

/// Two halves of a job are parted for a while, shorter than the silence that they forgive.
#[test]
fn a_partition_that_heals_loses_nothing() {
    let job = EthernetJobConfig::new(4, &Ethernet::ten()).cabled().part(
        &[0, 1],
        Instant(Span::from_micros(300).0),
        Span::from_secs(3),
    );
    let report = chatter(&job, 30);
    assert!(report.ended > at(3000), "{}", report.ended.0);
    for numbers in report.results {
        assert_eq!(numbers.unwrap().len(), 4 * 30);
    }
}

/// How rank 0's wait for ever ends, and when.
fn waits_for_ever(job: &EthernetJobConfig) -> Vec<Option<(WaitError, Instant)>> {
    let program = |transport: SimUdp<'_>| {
        let (mut endpoint, _) = attach(transport);
        let error = endpoint.wait_until(|_| false).unwrap_err();
        let now = endpoint.now();
        endpoint.leave();
        (error, now)
    };
    job.run(program).unwrap().results
}

fn lost(rank: u32, cause: LossCause) -> WaitError {
    WaitError::Poll(PollError::PeerLost { rank: Rank(rank), cause })
}

#[test]
fn a_lasting_partition_is_an_error_on_both_sides() {
    let job = EthernetJobConfig::new(2, &Ethernet::ten()).cabled().part(&[0], at(100), Span::from_secs(1000));
    for (rank, result) in waits_for_ever(&job).into_iter().enumerate() {
        let (error, when) = result.unwrap();
        assert_eq!(error, lost(1 - rank as u32, LossCause::Silent));
        let after = when.since(at(100));
        assert!(after > Span::from_secs(9) && after < Span::from_secs(14), "rank {rank}: after {after}");
    }
}

/// One direction is cut for good: the other is of no use without it.
#[test]
fn a_link_that_is_cut_one_way_is_cut() {
    let job = EthernetJobConfig::new(2, &Ethernet::ten()).cabled().cut(0, 1, at(100), Span::from_secs(1000));
    let results = waits_for_ever(&job);
    assert_eq!(results[1].as_ref().unwrap().0, lost(0, LossCause::Silent), "rank 1 hears nothing");
    // Rank 0 hears pings that it cannot answer until rank 1 gives up.
    let WaitError::Poll(PollError::PeerLost { rank: Rank(1), .. }) = results[0].as_ref().unwrap().0 else {
        panic!("{:?}", results[0])
    };
}

#[test]
fn a_stopped_host_is_reported() {
    let mut job = EthernetJobConfig::new(3, &Ethernet::ten()).stop(2, at(50));
    for (launcher, cause, soon) in [(true, LossCause::Died, true), (false, LossCause::Silent, false)] {
        job.launcher = launcher;
        let results = waits_for_ever(&job);
        assert!(results[2].is_none());
        for (error, when) in results.into_iter().flatten() {
            assert_eq!(error, lost(2, cause));
            assert_eq!(when < at(100), soon, "{} ns", when.0 / 1000);
        }
    }
}

/// Sizes of datagrams from each of two ranks to the other after a while, when one direction is narrow.
#[test]
fn each_direction_finds_the_size_of_its_path() {
    let narrow = 1300;
    let mut job = EthernetJobConfig::new(2, &Ethernet::ten().jumbo()).cabled().narrow(0, 1, narrow);
    job.segment_bytes = 1 << 20;
    let program = |transport: SimUdp<'_>| {
        let mut handlers = Handlers::<u64>::new();
        let note = |bytes: &mut u64, _: Address, (): (), payload: Payload<'_>| *bytes += payload.len() as u64;
        let note = handlers.one_way("note", note).unwrap();
        let me = transport.local_peer();
        let mut endpoint = Endpoint::attach(transport, handlers, 0).unwrap();
        for _ in 0..20 {
            endpoint.request_long(Rank(1 - me.0), note, (), &[3; 1 << 20], 0).unwrap();
        }
        endpoint.wait_until(|bytes| *bytes == 20 << 20).unwrap();
        endpoint.barrier().unwrap();
        let size = endpoint.transport().machine(|machine| machine.datagram_size(Peer(1 - me.0))).unwrap();
        endpoint.finish().unwrap();
        size
    };
    let sizes: Vec<u16> = job.run(program).unwrap().results.into_iter().flatten().collect();
    assert!((narrow as u16 - 16..=narrow as u16).contains(&sizes[0]), "{sizes:?}");
    assert_eq!(sizes[1], 8972, "the other direction carries jumbo frames");
}

/// A direction that loses, delays and narrows does not keep the other from being used.
#[test]
fn asymmetric_links_carry_everything() {
    let bad =
        LinkFaults { loss: Some(0.3), latency_ns: Some(2e6), queue_bytes: Some(30_000), ..LinkFaults::default() };
    let job = EthernetJobConfig::new(3, &Ethernet::twenty_five()).cabled().link(0, 1, bad).narrow(1, 2, 1250);
    let report = chatter(&job, 60);
    for numbers in report.results {
        let mut numbers = numbers.unwrap();
        numbers.sort_unstable();
        assert!(numbers.iter().enumerate().all(|(index, number)| *number == index as u32 / 3));
    }
}

/// A finished rank's words are delivered after its program has returned.
#[test]
fn messages_sent_before_leaving_arrive() {
    let job = EthernetJobConfig::new(2, &Ethernet::ten()).cut(0, 2, at(10), Span(300 * MS.0));
    let program = |transport: SimUdp<'_>| {
        let (mut endpoint, note) = attach(transport);
        if endpoint.rank() == Rank(0) {
            endpoint.charge(at(11) - endpoint.now());
            (0..50).for_each(|number| endpoint.request(Rank(1), note, (number,)).unwrap());
            endpoint.leave();
            return Vec::new();
        }
        while endpoint.status(Rank(0)) == Some(PeerStatus::Active) {
            let _ = endpoint.wait_until_for(MS, |_| false);
        }
        endpoint.leave().numbers
    };
    let report = job.run(program).unwrap();
    assert_eq!(report.results[1].as_ref().unwrap(), &(0..50).collect::<Vec<_>>());
}
