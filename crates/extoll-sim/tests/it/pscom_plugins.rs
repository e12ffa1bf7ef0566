//! Plugins that cannot connect are skipped: where translation entries run out, connections go over VELO instead of
//! a ring, at both ends, and everything still arrives. Data that finds no place of its own is sent, or fetched in
//! pieces.

use am_core::{Address, Endpoint, Handlers, Payload, Rank, Token};
use extoll_sim::ExtollConfig;
use extoll_sim::conduit::pscom::{self, Messenger, PairOverride, Plugin, PluginCounts, PscomConfig};
use fabric_sim::{Report, Topology};

/// Every rank asks every other one, with a payload that it gets back; returns what carried the connections of
/// each.
fn all_to_all(machine: &ExtollConfig, pscom: &PscomConfig, rounds: u32, bytes: usize) -> Vec<PluginCounts> {
    let report = pscom::run(machine, pscom, move |transport| {
        let mut handlers = Handlers::<u32>::new();
        let back = handlers.reply("back", |got: &mut u32, from: Address, number: u32, payload: Payload<'_>| {
            assert!(payload.to_vec().iter().all(|byte| *byte == (from.rank.0 + number) as u8), "from {from:?}");
            *got += 1;
        });
        let back = back.unwrap();
        let ask = move |_: &mut u32, token: Token<'_>, number: u32, payload: Payload<'_>| {
            let add = (number >> 16) as u8;
            let answer: Vec<u8> = payload.to_vec().iter().map(|byte| byte.wrapping_add(add)).collect();
            token.reply_medium(back, number & 0xffff, &answer).unwrap();
        };
        let ask = handlers.request_bounded("ask", bytes as u32, ask).unwrap();
        let mut endpoint = Endpoint::attach(transport, handlers, 0).unwrap();
        let (me, ranks) = (endpoint.rank().0, endpoint.shape().ranks);
        for round in 0..rounds {
            for step in 1..ranks {
                let to = (me + step) % ranks;
                // The answerer adds its rank to every byte.
                let payload = vec![round as u8; bytes];
                endpoint.request_medium(Rank(to), ask, round | to << 16, &payload).unwrap();
            }
            endpoint.wait_until(|got| *got == (round + 1) * (ranks - 1)).unwrap();
        }
        endpoint.drain().unwrap();
        let counts = endpoint.transport().plugin_counts();
        endpoint.finish().unwrap();
        counts
    });
    report.unwrap().results.into_iter().flatten().collect()
}

fn machine(ranks: u32, per_node: u32, pages: u32) -> ExtollConfig {
    let mut machine = ExtollConfig {
        ranks_per_node: per_node,
        ..ExtollConfig::new(ranks, Topology::Crossbar { nodes: ranks.div_ceil(per_node) })
    };
    machine.parameters.rma.pages = pages;
    machine
}

/// Point-to-point messages over rings.
fn messengers<R: 'static>(machine: &ExtollConfig, program: impl Fn(Messenger<'_>) -> R + 'static) -> Report<R> {
    extoll_sim::run(machine, move |nic| program(Messenger::new(&nic, &PscomConfig::with(Plugin::Rma)))).unwrap()
}

#[test]
fn a_small_table_leaves_connections_to_velo() {
    for (pages, rounds, bytes) in [(2048, 4, 100), (2048, 2, 3000), (300, 3, 2000), (5, 2, 2000)] {
        let counts = all_to_all(&machine(24, 4, pages), &PscomConfig::with(Plugin::Rma), rounds, bytes);
        for (rank, counts) in counts.iter().enumerate() {
            assert_eq!(counts.velo + counts.rma, 23, "rank {rank}: {counts:?}");
            assert_eq!(counts.without_ring, counts.velo, "rank {rank}: {counts:?}");
        }
        let rings: u32 = counts.iter().map(|counts| counts.rma).sum();
        assert!(rings < 24 * 23 && rings.is_multiple_of(2), "{rings} ends of rings with {pages} pages");
        assert_eq!(rings == 0, pages < 36, "{rings} ends of rings with {pages} pages");
    }
}

#[test]
fn a_table_of_the_right_size_leaves_none() {
    let counts = all_to_all(&machine(8, 4, 4 * (7 * 32 + 64)), &PscomConfig::with(Plugin::Rma), 3, 1500);
    assert!(counts.iter().all(|counts| (counts.rma, counts.velo, counts.without_ring) == (7, 0, 0)), "{counts:?}");
}

#[test]
fn what_is_chosen_counts_as_chosen() {
    let pairs = vec![PairOverride { ranks: [0, 1], plugin: Plugin::Rma }];
    let counts = all_to_all(&machine(3, 1, 4096), &PscomConfig { pairs, ..PscomConfig::default() }, 2, 10);
    let counts = counts.iter().map(|counts| (counts.velo, counts.rma, counts.without_ring)).collect::<Vec<_>>();
    assert_eq!(counts, [(1, 1, 0), (1, 1, 0), (2, 0, 0)]);
}

/// One end has entries for a ring and the other has not, whoever begins, or both at once.
#[test]
fn one_end_without_entries_is_enough() {
    for beginner in [Some(0), Some(1), None] {
        for late in [0, 3_000_000, 40_000_000] {
            // Three ranks on the first node: ranks 1 and 2 take the entries.
            let mut machine = machine(4, 3, 100);
            machine.topology = Topology::Direct { nodes: 2 };
            let report = messengers(&machine, move |mut messenger| {
                let me = messenger.rank();
                if me == 1 || me == 2 {
                    messenger.send_receive((3 - me, 1), &[1; 9], (Some(3 - me), Some(1))).unwrap();
                }
                if me == 0 || me == 3 {
                    let other = 3 - me;
                    messenger.charge(am_core::Span(100_000_000 + if me == 0 { late } else { 0 }));
                    if beginner.is_none_or(|rank| (rank == 0) == (me == 0)) {
                        messenger.send(other, 7, &[me as u8; 5000]).unwrap();
                        assert_eq!(messenger.receive(Some(other), Some(7)).unwrap().data, [other as u8; 5000]);
                    } else {
                        assert_eq!(messenger.receive(Some(other), Some(7)).unwrap().data, [other as u8; 5000]);
                        messenger.send(other, 7, &[me as u8; 5000]).unwrap();
                    }
                }
                let plugins = messenger.connections();
                messenger.finish();
                plugins
            });
            let plugins: Vec<_> = report.results.into_iter().flatten().collect();
            let what = format!("{beginner:?} begins, rank 0 is {late} ps late");
            assert_eq!(plugins[0], [(3, Plugin::Velo)], "{what}");
            assert_eq!(plugins[3], [(0, Plugin::Velo)], "{what}");
            assert_eq!(plugins[1], [(2, Plugin::Rma)], "{what}");
        }
    }
}

/// Large messages where no more memory can be registered for them: the ring and the landing block are all there
/// is.
#[test]
fn data_without_a_place_of_its_own_arrives() {
    let sizes = [1024, 16_384, 16_385, 100_000, 40_000, 5_000];
    for pages in [36, 37, 40, 60, 200] {
        let report = messengers(&machine(2, 1, pages), move |mut messenger| {
            let other = 1 - messenger.rank();
            let fill = |rank: u32, size: usize| -> Vec<u8> {
                (0..size).map(|at| (at / 7 + at / 4096 + rank as usize) as u8).collect()
            };
            let requests: Vec<_> = sizes.iter().map(|_| messenger.irecv(Some(other), None).unwrap()).collect();
            let me = messenger.rank();
            let sends: Vec<_> =
                sizes.iter().map(|size| messenger.isend(other, 0, &fill(me, *size)).unwrap()).collect();
            for (request, size) in requests.into_iter().zip(sizes) {
                assert!(messenger.wait_receive(request).unwrap().data == fill(other, size), "{size} bytes");
            }
            sends.into_iter().for_each(|send| messenger.wait_send(send).unwrap());
            let counts = messenger.plugin_counts();
            messenger.finish();
            (counts.rma, counts.without_ring)
        });
        assert_eq!(report.results, [Some((1, 0)); 2], "{pages} pages");
    }
}

fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
}

/// `cargo test --release -p active-messages-extoll --test it -- --ignored memory --nocapture`
#[test]
#[ignore = "takes a minute; tells the memory of 256 ranks that all talk to each other by rings"]
fn memory_of_many_rings() {
    for rounds in [1, 20] {
        let began = std::time::Instant::now();
        let counts = all_to_all(&machine(256, 16, 1 << 20), &PscomConfig::with(Plugin::Rma), rounds, 500);
        assert!(counts.iter().all(|counts| counts.rma == 255));
        println!("256 ranks, {rounds} rounds: at most {} MiB, {:?}", resident_mib(), began.elapsed());
    }
}

/// `cargo test --release -p active-messages-extoll --test it -- --ignored thousand --nocapture`
#[test]
#[ignore = "takes a minute"]
fn a_thousand_ranks_run_out_of_entries_and_go_on() {
    for pages in [262_144, 4096] {
        let began = std::time::Instant::now();
        let mut machine = machine(1024, 16, pages);
        machine.topology = Topology::Mesh { dims: vec![4, 4, 4] };
        let counts = all_to_all(&machine, &PscomConfig::with(Plugin::Rma), 1, 100);
        let (rma, velo): (u32, u32) = (counts.iter().map(|c| c.rma).sum(), counts.iter().map(|c| c.velo).sum());
        println!(
            "{pages} pages: {rma} ends of rings, {velo} over VELO, {} MiB, {:?}",
            resident_mib(),
            began.elapsed()
        );
        assert_eq!(rma + velo, 1024 * 1023);
    }
}
