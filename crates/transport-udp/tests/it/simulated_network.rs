//! What the protocol makes of a simulated network: throughput under loss, incast, fairness, large jobs. Times are
//! virtual, so the figures are the same on every machine and are gated.
//!
//! `cargo test --release -p active-messages-udp --test it simulated_network -- --nocapture --test-threads 1`
//! prints the tables, and with `--include-ignored` the larger ones.

use am_core::{Address, Endpoint, Handlers, Instant, Payload, Peer, Rank, Request, Span, Token};
use fabric_sim::LinkFaults;
use transport_udp::simulated::{Ethernet, EthernetJobConfig, SimUdp};

/// Bytes of Long payloads handled from each rank.
struct Taken {
    from: Vec<u64>,
}

impl Taken {
    fn all(&self) -> u64 {
        self.from.iter().sum()
    }
}

fn attach(transport: SimUdp<'_>) -> (Endpoint<SimUdp<'_>, Taken>, Request<()>) {
    let ranks = am_core::Membership::shape(&transport).ranks;
    let mut handlers = Handlers::<Taken>::new();
    let take = |taken: &mut Taken, from: Address, (): (), payload: Payload<'_>| {
        taken.from[from.rank.0 as usize] += payload.len() as u64;
    };
    let take = handlers.one_way("take", take).unwrap();
    (Endpoint::attach(transport, handlers, Taken { from: vec![0; ranks as usize] }).unwrap(), take)
}

const MIB: usize = 1 << 20;

/// Rate in MB/s (10^6 bytes) at which rank 1 takes `count` Long payloads of 1 MiB from rank 0, and how many
/// datagrams were sent for one that was needed.
fn stream(job: &EthernetJobConfig, count: u64) -> f64 {
    let mut job = job.clone();
    job.segment_bytes = MIB;
    let program = move |transport: SimUdp<'_>| {
        let (mut endpoint, take) = attach(transport);
        endpoint.barrier().unwrap();
        let began = endpoint.now();
        let payload = vec![5; MIB];
        if endpoint.rank() == Rank(0) {
            (0..count).for_each(|_| endpoint.request_long(Rank(1), take, (), &payload, 0).unwrap());
        } else {
            endpoint.wait_until(|taken| taken.all() == count * MIB as u64).unwrap();
        }
        let took = endpoint.now() - began;
        endpoint.finish().unwrap();
        took
    };
    let took = job.run(program).unwrap().results[1].unwrap();
    count as f64 * MIB as f64 / took.as_secs_f64() / 1e6
}

fn lossy(ethernet: &Ethernet, loss: f64) -> EthernetJobConfig {
    let mut job = EthernetJobConfig::new(2, ethernet);
    (job.fabric.faults.loss, job.fabric.faults.seed) = (loss, 11);
    job
}

/// The bars of the project: 1 % of loss costs at most 20 % of the throughput of Long, 10 % still makes steady
/// progress, 30 % loses nothing. `loss` is that of each of the two links of a way.
fn loss_table(ethernets: &[Ethernet], count: u64) {
    println!("Long 1 MiB, MB/s of payload (share of the rate without loss), by loss of each datagram on its way");
    let losses = [0.0_f64, 0.001, 0.01, 0.05, 0.1, 0.3];
    println!(
        "{:<8} {:>9} {}",
        "",
        "link",
        losses.map(|loss| format!("{:>16}", format!("{} %", loss * 100.0))).join("")
    );
    for ethernet in ethernets {
        let rates = losses.map(|loss| {
            // Of two links each loses half of it.
            let count = if loss > 0.2 { count / 8 + 1 } else { count };
            stream(&lossy(ethernet, 1.0 - (1.0 - loss).sqrt()), count)
        });
        let cells = rates.map(|rate| format!("{:>16}", format!("{rate:.1} ({:.0} %)", 100.0 * rate / rates[0])));
        println!("{:<8} {:>9} {}", ethernet.name, ethernet.link_mb_s, cells.join(""));
        assert!(rates[2] >= 0.8 * rates[0], "{}: 1 % of loss costs more than 20 %", ethernet.name);
        assert!(rates[4] >= 0.05 * rates[0], "{}: 10 % of loss stops progress", ethernet.name);
        assert!(rates[5] > 0.0);
    }
}

#[test]
fn loss_costs_little() {
    loss_table(&[Ethernet::ten()], 16);
}

#[test]
#[ignore = "prints the whole table; takes a minute in release"]
fn loss_costs_little_everywhere() {
    loss_table(&[Ethernet::ten(), Ethernet::twenty_five(), Ethernet::hundred()], 64);
}

/// Time of a Short request and its reply, and Shorts of one 64-bit argument that rank 1 takes from rank 0 per
/// second.
fn small_messages(ethernet: &Ethernet) -> (Span, f64) {
    const PINGS: u64 = 200;
    const FLOOD: u64 = 50_000;
    let program = |transport: SimUdp<'_>| {
        let mut handlers = Handlers::<u64>::new();
        let reply =
            handlers.reply("reply", |count: &mut u64, _: Address, (): (), _: Payload<'_>| *count += 1).unwrap();
        let ask = move |_: &mut u64, token: Token<'_>, (): (), _: Payload<'_>| {
            token.reply(reply, ()).unwrap();
        };
        let ask = handlers.request("ask", ask).unwrap();
        let note = |count: &mut u64, _: Address, _: u64, _: Payload<'_>| *count += 1;
        let note = handlers.one_way("note", note).unwrap();
        let mut endpoint = Endpoint::attach(transport, handlers, 0).unwrap();
        endpoint.barrier().unwrap();
        let began = endpoint.now();
        if endpoint.rank() == Rank(0) {
            for count in 1..=PINGS {
                endpoint.request(Rank(1), ask, ()).unwrap();
                endpoint.wait_until(|replies| *replies == count).unwrap();
            }
        }
        let pinged = endpoint.now();
        endpoint.barrier().unwrap();
        let flooded = endpoint.now();
        if endpoint.rank() == Rank(0) {
            (0..FLOOD).for_each(|number| endpoint.request(Rank(1), note, number).unwrap());
        } else {
            endpoint.wait_until(|count| *count == FLOOD).unwrap();
        }
        let ended = endpoint.now();
        endpoint.finish().unwrap();
        (pinged - began, ended - flooded)
    };
    let results = EthernetJobConfig::new(2, ethernet).run(program).unwrap().results;
    let round_trip = Span(results[0].unwrap().0.picos() / PINGS);
    (round_trip, FLOOD as f64 / results[1].unwrap().1.as_secs_f64())
}

/// A round trip is what the table's parts add up to, and the flood is bound by the processors' work per message.
#[test]
fn small_messages_cost_what_the_table_says() {
    for ethernet in [Ethernet::ten(), Ethernet::twenty_five(), Ethernet::hundred()] {
        let (round_trip, rate) = small_messages(&ethernet);
        println!("{}: Short request and reply {round_trip}, flood of Shorts {:.1} M/s", ethernet.name, rate / 1e6);
        let host = ethernet.host;
        let parts = ethernet.interface_tx_ns + ethernet.interface_rx_ns + 2.0 * ethernet.link_ns;
        let once = Span::from_nanos(parts as u64).picos() + host.send.picos() + host.receive.picos();
        // Headers on the wire, kernels, bytes, messages and polls come on top.
        assert!(round_trip.picos() > 2 * once, "{round_trip}");
        assert!(round_trip.picos() < 2 * once + 4_000_000, "{round_trip}");
        assert!(rate > 2e6 && rate < 1e12 / host.message.picos() as f64, "{rate}");
    }
}

/// All ranks but 0 send `bytes` to rank 0 at once, through a switch that holds `queue` bytes for it. Returns the
/// share of the link's rate that arrives as payload.
fn incast(senders: u32, bytes: usize, queue: u32) -> f64 {
    let ethernet = Ethernet::ten();
    let mut job = EthernetJobConfig::new(senders + 1, &ethernet);
    let shallow = LinkFaults { to: Some(0), queue_bytes: Some(queue), ..LinkFaults::default() };
    job.fabric.faults.links.push(shallow);
    job.segment_bytes = bytes;
    let due = u64::from(senders) * bytes as u64;
    let program = move |transport: SimUdp<'_>| {
        let (mut endpoint, take) = attach(transport);
        endpoint.barrier().unwrap();
        let began = endpoint.now();
        if endpoint.rank() == Rank(0) {
            endpoint.wait_until(|taken| taken.all() == due).unwrap();
        } else {
            endpoint.request_long(Rank(0), take, (), &vec![1; bytes], 0).unwrap();
        }
        let took = endpoint.now() - began;
        endpoint.finish().unwrap();
        took
    };
    let report = job.run(program).unwrap();
    let took = report.results[0].unwrap();
    let share = due as f64 / took.as_secs_f64() / (ethernet.link_mb_s * 1e6);
    println!(
        "incast of {senders} ranks, {bytes} bytes each, {queue} bytes of switch: {took}, {:.1} % of the link, {:.1} % lost",
        100.0 * share,
        100.0 * report.lost as f64 / report.sent as f64
    );
    share
}

#[test]
fn an_incast_does_not_collapse() {
    assert!(incast(32, 64 << 10, 256 << 10) > 0.2);
}

#[test]
#[ignore = "takes a minute in release"]
fn an_incast_of_512_does_not_collapse() {
    assert!(incast(512, 64 << 10, 1 << 20) > 0.2);
}

/// Two ranks stream to rank 0 through one link, the second from `late` on; their shares from then on, and of the
/// link.
fn two_flows(seed: u64, late: Span, span: Span) -> (f64, f64) {
    let ethernet = Ethernet::ten();
    let mut job = EthernetJobConfig::new(3, &ethernet);
    let queue = LinkFaults { to: Some(0), queue_bytes: Some(256 << 10), ..LinkFaults::default() };
    job.fabric.faults.links.push(queue);
    // Hosts are never exact: without a little noise drops fall into step with one of the flows.
    (job.fabric.faults.delay, job.fabric.faults.delay_ns, job.fabric.faults.seed) = (0.01, 3000.0, seed);
    job.segment_bytes = MIB;
    let program = move |transport: SimUdp<'_>| {
        let (mut endpoint, take) = attach(transport);
        endpoint.barrier().unwrap();
        let began = endpoint.now();
        let (both, end) = (began + late, began + late + span);
        if endpoint.rank() == Rank(0) {
            let _ = endpoint.wait_until_for(both - endpoint.now(), |_| false);
            let before = endpoint.state().from.clone();
            let _ = endpoint.wait_until_for(end - endpoint.now(), |_| false);
            let after = endpoint.state().from.clone();
            endpoint.finish().unwrap();
            return [after[1] - before[1], after[2] - before[2]];
        }
        if endpoint.rank() == Rank(2) {
            let _ = endpoint.wait_until_for(late, |_| false);
        }
        let payload = vec![3; 64 << 10];
        while endpoint.now() < end {
            endpoint.request_long(Rank(0), take, (), &payload, 0).unwrap();
        }
        endpoint.finish().unwrap();
        [0; 2]
    };
    let shares = job.run(program).unwrap().results[0].unwrap().map(|bytes| bytes as f64);
    let sum = shares[0] + shares[1];
    let jain = sum * sum / (2.0 * (shares[0] * shares[0] + shares[1] * shares[1]));
    let used = sum / span.as_secs_f64() / (ethernet.link_mb_s * 1e6);
    println!(
        "two flows over one link for {span}, the second {late} later: {:.0} and {:.0} MB, Jain index {jain:.3}, {:.1} % of the link",
        shares[0] / 1e6,
        shares[1] / 1e6,
        100.0 * used
    );
    (jain, used)
}

#[test]
fn two_flows_share_a_link() {
    for seed in 1..4 {
        let (jain, used) = two_flows(seed, Span::ZERO, Span::from_millis(100));
        assert!(jain > 0.8 && used > 0.7, "{jain} {used}");
    }
}

#[test]
#[ignore = "takes a minute in release"]
fn a_late_flow_gets_its_share() {
    let (jain, used) = two_flows(5, Span::from_millis(200), Span::from_secs(1));
    assert!(jain > 0.8 && used > 0.7, "{jain} {used}");
}

/// A job of many ranks starts, meets at a barrier and ends. Returns how long that took, and the most sessions of a
/// rank.
fn crowd(ranks: u32) -> (Instant, usize) {
    let mut job = EthernetJobConfig::new(ranks, &Ethernet::ten()).smallest();
    (job.segment_bytes, job.machine.receive_budget) = (4096, 4096 + 2 * ranks);
    let program = move |transport: SimUdp<'_>| {
        let (mut endpoint, _) = attach(transport);
        endpoint.barrier().unwrap();
        let sessions = endpoint
            .transport()
            .machine(|machine| (0..ranks).filter(|peer| machine.is_connected(Peer(*peer))).count());
        endpoint.finish().unwrap();
        sessions
    };
    let report = job.run(program).unwrap();
    let sessions = report.results.iter().flatten().max().copied().unwrap_or(0);
    println!(
        "{ranks} ranks started, met and ended in {} of virtual time with {} datagrams; at most {sessions} sessions per rank",
        report.ended.since(Instant(0)),
        report.sent
    );
    (report.ended, sessions)
}

/// With itself, and with those that a dissemination barrier (and its reverse) has as partners.
fn partners(ranks: u32) -> usize {
    1 + 2 * ranks.next_power_of_two().ilog2() as usize
}

#[test]
fn a_job_of_256_ranks_starts_meets_and_ends() {
    let (ended, sessions) = crowd(256);
    assert!(sessions <= partners(256), "{sessions} sessions");
    assert!(ended < Instant(0) + Span::from_secs(1), "{}", ended.0);
}

#[test]
#[ignore = "takes a minute in release"]
fn a_job_of_4096_ranks_starts_meets_and_ends() {
    let (_, sessions) = crowd(4096);
    assert!(sessions <= partners(4096), "{sessions} sessions");
}
