//! Figures over providers of libfabric, each beside the provider called directly in the same run:
//! `cargo bench --bench ofi`, or `-- tcp shm` for some providers. Ranks are threads. With `--test` everything runs
//! once with tiny counts; with `--slots` each message has a receive buffer of its own; `--part=BYTES` and
//! `--parts=N` set the buffers of Long payloads. Without the library it says so and is skipped.

use am_core::{Address, Endpoint, HandlerResult, Handlers, Payload, Rank, Shape};
use std::collections::VecDeque;
use std::sync::Barrier;
use std::time::Instant;
use transport_ofi::wire::{Event, Fault, Operation, Receipt, Wire};
use transport_ofi::{OfiConfig, Opened, Port};

/// Bytes of a short message of the raw provider: as many as a Short with one argument has.
const SHORT: usize = 24;
/// Bytes of a Long message.
const LONG: usize = 1 << 20;
const SEGMENT: usize = 2 << 20;

/// How much is done.
#[derive(Clone, Copy)]
struct Counts {
    rounds: u32,
    flood: u32,
    longs: u32,
    /// Runs of which the median counts; raw and messages take turns.
    repeats: usize,
}

fn config(provider: &str) -> OfiConfig {
    let mut config = OfiConfig::default().provider(provider).interface("127.0.0.1");
    config.multi_receive = !std::env::args().any(|argument| argument == "--slots");
    let number = |name: &str| std::env::args().find_map(|argument| argument.strip_prefix(name)?.parse().ok());
    if let Some(bytes) = number("--part=") {
        config.chunk_bytes = bytes;
    }
    if let Some(parts) = number("--parts=") {
        config.chunks = parts as u32;
    }
    config
}

fn open(provider: &str) -> Result<[Opened; 2], transport_ofi::OfiError> {
    Ok([Opened::new(&config(provider), 2, SEGMENT)?, Opened::new(&config(provider), 2, SEGMENT)?])
}

/// Tries until it is accepted, polling meanwhile.
fn insist(port: &mut Port, events: &mut Vec<Event>, mut call: impl FnMut(&mut Port) -> Result<(), Fault>) {
    loop {
        match call(port) {
            Ok(()) => return,
            Err(Fault::Again) => poll(port, events),
            Err(Fault::Failed(code)) => panic!("the provider fails with {code}"),
        }
    }
}

fn poll(port: &mut Port, events: &mut Vec<Event>) {
    port.poll(events).expect("the provider works");
}

/// Polls until so many messages have come, those among `events` included, and offers their slots again.
fn receive(port: &mut Port, events: &mut Vec<Event>, mut messages: u32) {
    loop {
        for event in events.drain(..) {
            let free = match event {
                Event::Arrived(Receipt { slot, last, .. }) => {
                    messages -= 1;
                    last.then_some(slot)
                }
                Event::Done(Operation::Receive(slot)) => Some(slot),
                _ => None,
            };
            if let Some(slot) = free {
                // A slot that came free can be offered.
                port.post(slot).expect("there is room for it");
            }
        }
        if messages == 0 {
            return;
        }
        poll(port, events);
    }
}

/// Seconds of raw round trips, of a raw flood answered once, and of raw writes, all towards the second of two
/// endpoints.
fn raw(provider: &str, counts: Counts) -> [f64; 3] {
    let [a, b] = open(provider).expect("it opened before");
    let cards = [a.card(), b.card()];
    let cards = [Some(cards[0].as_str()), Some(cards[1].as_str())];
    let [mut a, mut b] = [a.into_wire(&cards).expect("its own card"), b.into_wire(&cards).expect("its own card")];
    let window = 32;
    let floods = counts.flood / window;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut events = Vec::with_capacity(1024);
            for _ in 0..=counts.rounds {
                receive(&mut b, &mut events, 1);
                insist(&mut b, &mut events, |port| port.inject(0, 0, SHORT));
            }
            for _ in 0..floods {
                receive(&mut b, &mut events, window);
                insist(&mut b, &mut events, |port| port.inject(0, 0, SHORT));
            }
            // Writes need somebody who polls; a message ends them.
            receive(&mut b, &mut events, 1);
        });
        let mut events = Vec::with_capacity(1024);
        let round = |a: &mut Port, events: &mut Vec<Event>| {
            insist(a, events, |port| port.inject(1, 0, SHORT));
            receive(a, events, 1);
        };
        // The first one connects.
        round(&mut a, &mut events);
        let began = Instant::now();
        (0..counts.rounds).for_each(|_| round(&mut a, &mut events));
        let rounds = began.elapsed().as_secs_f64();
        let began = Instant::now();
        for _ in 0..floods {
            (0..window).for_each(|_| insist(&mut a, &mut events, |port| port.inject(1, 0, SHORT)));
            receive(&mut a, &mut events, 1);
        }
        let flood = began.elapsed().as_secs_f64();
        let sizes = a.sizes();
        // Buffers take turns, as many as a payload fills: so as many bytes are read as a Long has, not the same
        // few.
        let parts = sizes.chunks.min(LONG.div_ceil(sizes.chunk_bytes) as u32);
        let mut free: VecDeque<u32> = (sizes.frames..sizes.frames + parts).collect();
        let began = Instant::now();
        for _ in 0..counts.longs {
            let mut at = 0;
            while at < LONG || free.len() < parts as usize {
                if at < LONG
                    && let Some(buffer) = free.pop_front()
                {
                    let len = sizes.chunk_bytes.min(LONG - at);
                    match a.write(1, buffer, len, at as u64) {
                        Ok(()) => at += len,
                        Err(_) => free.push_front(buffer),
                    }
                }
                events.clear();
                poll(&mut a, &mut events);
                free.extend(events.iter().filter_map(|event| match event {
                    Event::Done(Operation::Write(buffer)) => Some(*buffer),
                    _ => None,
                }));
            }
        }
        let longs = began.elapsed().as_secs_f64();
        events.clear();
        insist(&mut a, &mut events, |port| port.inject(1, 0, SHORT));
        (0..100).for_each(|_| {
            events.clear();
            poll(&mut a, &mut events);
        });
        [rounds, flood, longs]
    })
}

/// The same with active messages: Short requests with a reply each, one-way Shorts, Longs one after the other.
fn messages(provider: &str, counts: Counts) -> [f64; 3] {
    let opened = open(provider).expect("it opened before");
    let cards = opened.each_ref().map(Opened::card);
    let cards = [Some(cards[0].as_str()), Some(cards[1].as_str())];
    let attached = Barrier::new(2);
    let play = |rank: u32, opened: Opened| {
        let transport = opened.join(Address::new(Rank(rank), 0), Shape::new(2), 1, &cards).expect("its own card");
        let mut handlers = Handlers::<u64>::new();
        let pong = handlers.reply("pong", |count: &mut u64, _, (): (), _| *count += 1).expect("a free name");
        let ping = handlers.request("ping", move |_, token, (): (), _| -> HandlerResult {
            token.reply(pong, ())?;
            Ok(())
        });
        let ping = ping.expect("a free name");
        let count = handlers.one_way("count", |_, _, _: u32, _| {}).expect("a free name");
        let placed = handlers.request("placed", move |_, token, (): (), _: Payload<'_>| -> HandlerResult {
            token.reply(pong, ())?;
            Ok(())
        });
        let placed = placed.expect("a free name");
        let mut endpoint = Endpoint::attach(transport, handlers, 0).expect("both attach");
        attached.wait();
        let mut took = [0.0; 3];
        if rank == 0 {
            let mut expected = 0;
            for (place, repeats) in [(0, counts.rounds), (2, counts.longs)] {
                let bytes = vec![7; LONG];
                let began = Instant::now();
                for _ in 0..repeats {
                    expected += 1;
                    let sent = match place {
                        0 => endpoint.request(Rank(1), ping, ()),
                        _ => endpoint.request_long(Rank(1), placed, (), &bytes, 0),
                    };
                    sent.expect("the other is there");
                    endpoint.wait_until(|count| *count == expected).expect("the other answers");
                }
                took[place] = began.elapsed().as_secs_f64();
            }
            let began = Instant::now();
            (0..counts.flood)
                .for_each(|number| endpoint.request(Rank(1), count, number).expect("the other is there"));
            endpoint.drain().expect("the other handles all");
            took[1] = began.elapsed().as_secs_f64();
        }
        endpoint.finish().expect("both finish");
        took
    };
    let [a, b] = opened;
    std::thread::scope(|scope| {
        let other = scope.spawn(|| play(1, b));
        let took = play(0, a);
        other.join().expect("the other rank does not panic");
        took
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let test = arguments.iter().any(|argument| argument == "--test");
    let named: Vec<&str> = arguments.iter().map(String::as_str).filter(|name| !name.starts_with('-')).collect();
    let providers = if named.is_empty() { vec!["tcp", "shm"] } else { named };
    let counts = match test {
        true => Counts { rounds: 20, flood: 64, longs: 2, repeats: 1 },
        false => Counts { rounds: 5000, flood: 64_000, longs: 100, repeats: 5 },
    };
    for provider in providers {
        if let Err(error) = open(provider) {
            println!("SKIPPED: {provider}: {error}");
            continue;
        }
        let (mut raws, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..counts.repeats {
            raws.push(raw(provider, counts));
            ours.push(messages(provider, counts));
        }
        let of = |runs: &[[f64; 3]], place: usize| median(runs.iter().map(|run| run[place]).collect());
        let (trip, flood) = (1e6 / f64::from(counts.rounds), 1e-6 * f64::from(counts.flood));
        let bytes = f64::from(counts.longs) * LONG as f64 * 1e-9;
        let [r, o] = [&raws, &ours].map(|runs| [of(runs, 0) * trip, flood / of(runs, 1), bytes / of(runs, 2)]);
        println!(
            "{provider}: Short round trip {:.2} us, raw inject {:.2} us, ratio {:.2}",
            o[0],
            r[0],
            o[0] / r[0]
        );
        println!("{provider}: Short flood {:.3} M/s, raw inject {:.3} M/s, ratio {:.2}", o[1], r[1], o[1] / r[1]);
        println!("{provider}: Long 1 MiB {:.2} GB/s, raw write {:.2} GB/s, ratio {:.2}", o[2], r[2], o[2] / r[2]);
    }
}
