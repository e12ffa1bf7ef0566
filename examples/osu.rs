//! The benchmarks of messages that the field quotes: latency, bandwidth, bidirectional bandwidth and multi-pair
//! message rate as the OSU micro-benchmarks print them, and PingPong, SendRecv and Exchange as the Intel MPI
//! benchmarks do, on any backend.
//!
//! `cargo run --release --example osu -- --ranks 2 --bench latency`; `--help` lists the flags.

use active_messages::anywhere::{Flags, Options, Part, Program, Report};
use active_messages::p2p::{Communicator, MessageConfig, P2p, Protocol};
use active_messages::pgas::collectives::{Max, Min, Sum};
use active_messages::prelude::*;

/// Which benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bench {
    Latency,
    Bandwidth,
    Bidirectional,
    MessageRate,
    PingPong,
    SendRecv,
    Exchange,
}

const BENCHES: [(&str, Bench); 7] = [
    ("latency", Bench::Latency),
    ("bw", Bench::Bandwidth),
    ("bibw", Bench::Bidirectional),
    ("mbw_mr", Bench::MessageRate),
    ("pingpong", Bench::PingPong),
    ("sendrecv", Bench::SendRecv),
    ("exchange", Bench::Exchange),
];

/// Messages under way at once.
const WINDOW: usize = 64;
/// From this size on, fewer repetitions are made, as the OSU benchmarks do.
const LARGE: usize = 8192;

struct Osu {
    bench: Bench,
    largest: usize,
    repetitions: u32,
    protocol: Protocol,
    eager: usize,
    json: bool,
}

/// A rank's part.
struct Side<T: Transport> {
    endpoint: Endpoint<T, P2p>,
    world: Communicator,
    out: Vec<u8>,
    into: Vec<u8>,
}

type Outcome = Result<(), active_messages::p2p::MessageError>;

impl<T: Transport> Side<T> {
    fn send(&mut self, to: u32, len: usize) -> Outcome {
        self.world.send(&mut self.endpoint, to, 1, &self.out[..len])
    }

    fn receive(&mut self, from: u32, len: usize) -> Outcome {
        self.world.receive_into(&mut self.endpoint, from, 1, &mut self.into[..len]).map(drop)
    }

    /// The least and the most of the ranks' times, and their average.
    fn over_ranks(&mut self, mine: f64) -> Result<[f64; 3], active_messages::p2p::MessageError> {
        let (team, endpoint) = (self.world.team(), &mut self.endpoint);
        let (least, most) = (team.allreduce_one(endpoint, mine, Min)?, team.allreduce_one(endpoint, mine, Max)?);
        Ok([least, most, team.allreduce_one(endpoint, mine, Sum)? / f64::from(team.size())])
    }

    fn barrier(&mut self) -> Outcome {
        Ok(self.world.team().barrier(&mut self.endpoint)?)
    }

    /// One message there, one back, between this rank and another.
    fn ping_pong(&mut self, other: u32, len: usize) -> Outcome {
        if self.world.rank() < other {
            self.send(other, len)?;
            self.receive(other, len)
        } else {
            self.receive(other, len)?;
            self.send(other, len)
        }
    }

    /// A window of messages out, or in, or both, and an answer.
    fn window(&mut self, other: u32, len: usize, sends: bool, receives: bool) -> Outcome {
        let Self { endpoint, world, out, into } = self;
        let mut receiving = Vec::with_capacity(WINDOW);
        if receives {
            for _ in 0..WINDOW {
                receiving.push(world.immediate_receive::<_, _, u8>(endpoint, other, 1, len)?);
            }
        }
        if sends {
            let mut sending = Vec::with_capacity(WINDOW);
            for _ in 0..WINDOW {
                sending.push(world.immediate_send(endpoint, other, 1, &out[..len])?);
            }
            for request in sending {
                request.wait(endpoint)?;
            }
        }
        for request in receiving {
            request.wait_into(endpoint, &mut into[..len])?;
        }
        // The side that only received answers.
        match (sends, receives) {
            (true, true) => Ok(()),
            (true, false) => world.receive_into(endpoint, other, 2, &mut into[..0]).map(drop),
            _ => world.send(endpoint, other, 2, &out[..0]),
        }
    }

    /// A message to the next rank and one from the one before.
    fn send_receive(&mut self, len: usize) -> Outcome {
        let Self { endpoint, world, out, into } = self;
        let (me, size) = (world.rank(), world.size());
        let (next, previous) = ((me + 1) % size, (me + size - 1) % size);
        world.send_receive_into(endpoint, (next, 1), &out[..len], (previous, 1), &mut into[..len]).map(drop)
    }

    /// Messages to both neighbours and from both.
    fn exchange(&mut self, len: usize) -> Outcome {
        let Self { endpoint, world, out, into } = self;
        let (me, size) = (world.rank(), world.size());
        let (next, previous) = ((me + 1) % size, (me + size - 1) % size);
        let left = world.immediate_receive::<_, _, u8>(endpoint, previous, 1, len)?;
        let right = world.immediate_receive::<_, _, u8>(endpoint, next, 2, len)?;
        let a = world.immediate_send(endpoint, next, 1, &out[..len])?;
        let b = world.immediate_send(endpoint, previous, 2, &out[..len])?;
        left.wait_into(endpoint, &mut into[..len])?;
        right.wait_into(endpoint, &mut into[..len])?;
        a.wait(endpoint)?;
        b.wait(endpoint)
    }
}

impl Osu {
    /// One repetition on a rank; `None` for ranks that take no part.
    fn step<T: Transport>(&self, side: &mut Side<T>, len: usize) -> Outcome {
        let (me, size) = (side.world.rank(), side.world.size());
        let pairs = size / 2;
        let (first, second) = (me == 0, me == 1);
        match self.bench {
            Bench::Latency | Bench::PingPong if me < 2 => side.ping_pong(1 - me, len),
            Bench::Bandwidth if me < 2 => side.window(1 - me, len, first, second),
            Bench::Bidirectional if me < 2 => side.window(1 - me, len, true, true),
            Bench::MessageRate if me < 2 * pairs => {
                let (sends, other) = if me < pairs { (true, me + pairs) } else { (false, me - pairs) };
                side.window(other, len, sends, !sends)
            }
            Bench::SendRecv => side.send_receive(len),
            Bench::Exchange => side.exchange(len),
            _ => Ok(()),
        }
    }

    fn repetitions(&self, len: usize) -> u32 {
        if len > LARGE { (self.repetitions / 10).max(1) } else { self.repetitions }
    }

    fn head(&self, ranks: u32) -> String {
        match self.bench {
            Bench::Latency => "# OSU-style Latency Test\n# Size          Latency (us)".into(),
            Bench::Bandwidth => "# OSU-style Bandwidth Test\n# Size      Bandwidth (MB/s)".into(),
            Bench::Bidirectional => {
                "# OSU-style Bi-Directional Bandwidth Test\n# Size      Bandwidth (MB/s)".into()
            }
            Bench::MessageRate => format!(
                "# OSU-style Multiple Bandwidth / Message Rate Test\n# [ pairs: {} ] [ window size: {WINDOW} ]\n\
                 # Size                  MB/s        Messages/s",
                ranks / 2
            ),
            Bench::PingPong => {
                "# Benchmarking PingPong\n# #processes = 2\n       #bytes #repetitions      t[usec]   Mbytes/sec"
                    .into()
            }
            Bench::SendRecv | Bench::Exchange => {
                let name = if self.bench == Bench::SendRecv { "Sendrecv" } else { "Exchange" };
                format!(
                    "# Benchmarking {name}\n# #processes = {ranks}\n       #bytes #repetitions  t_min[usec]  \
                     t_max[usec]  t_avg[usec]   Mbytes/sec"
                )
            }
        }
    }

    /// A line, of the seconds that a repetition takes on the ranks: the least, the most and the average; and the
    /// figure for the report. Bandwidths are of the rank that takes longest.
    fn line(&self, len: usize, [least, seconds, average]: [f64; 3], ranks: u32) -> (String, f64) {
        let (us, moved) = (1e6 * seconds, |count: usize| (count * len) as f64 / seconds / 1e6);
        let imb = |repetitions: u32, moved: f64| {
            let [least, average] = [1e6 * least, 1e6 * average];
            (format!("{len:>13}{repetitions:>13}{least:>13.2}{us:>13.2}{average:>13.2}{moved:>13.2}"), average)
        };
        let repetitions = self.repetitions(len);
        match self.bench {
            Bench::Latency => (format!("{len:<10}{:>18.2}", us / 2.0), us / 2.0),
            Bench::Bandwidth => (format!("{len:<10}{:>18.2}", moved(WINDOW)), moved(WINDOW)),
            Bench::Bidirectional => (format!("{len:<10}{:>18.2}", moved(2 * WINDOW)), moved(2 * WINDOW)),
            Bench::MessageRate => {
                let messages = WINDOW * (ranks / 2) as usize;
                let rate = messages as f64 / seconds;
                (format!("{len:<10}{:>18.2}{rate:>18.2}", moved(messages)), rate)
            }
            Bench::PingPong => {
                let line = format!("{len:>13}{repetitions:>13}{:>13.2}{:>13.2}", us / 2.0, moved(2));
                (line, us / 2.0)
            }
            Bench::SendRecv => imb(repetitions, moved(2)),
            Bench::Exchange => imb(repetitions, moved(4)),
        }
    }
}

impl Program for Osu {
    fn rank<T: Transport>(&self, rank: Joining<T>) -> Part {
        let mut handlers = Handlers::<P2p>::new();
        let config = MessageConfig::new().protocol(self.protocol).eager(self.eager);
        let p2p = P2p::register_with(&mut handlers, config)?;
        let mut endpoint = rank.attach(handlers, p2p)?;
        let world = Communicator::world(&mut endpoint)?;
        let (me, ranks) = (world.rank(), world.size());
        let mut side = Side { endpoint, world, out: vec![b'a'; self.largest], into: vec![b'b'; self.largest] };
        if me == 0 && !self.json {
            println!("{}", self.head(ranks));
        }
        // Rates have no messages without bytes, as their originals.
        let none = !matches!(self.bench, Bench::Bandwidth | Bench::Bidirectional | Bench::MessageRate);
        let sizes = std::iter::successors(Some(usize::from(!none)), |size| Some((2 * size).max(1)));
        let (began, mut figures, mut done) = (side.endpoint.now(), Vec::new(), 0u64);
        for len in sizes.take_while(|size| *size <= self.largest) {
            let repetitions = self.repetitions(len);
            for _ in 0..(repetitions / 10).max(1) {
                self.step(&mut side, len)?;
            }
            side.barrier()?;
            let start = side.endpoint.now();
            for _ in 0..repetitions {
                self.step(&mut side, len)?;
            }
            let mine = side.endpoint.now() - start;
            let mut times = [mine.picos() as f64 / 1e12 / f64::from(repetitions); 3];
            if matches!(self.bench, Bench::SendRecv | Bench::Exchange) {
                times = side.over_ranks(times[0])?;
            } else if self.bench == Bench::MessageRate {
                side.barrier()?;
                times = [(side.endpoint.now() - start).picos() as f64 / 1e12 / f64::from(repetitions); 3];
            }
            done += u64::from(repetitions);
            let (line, figure) = self.line(len, times, ranks);
            figures.push(figure);
            if me == 0 && !self.json {
                println!("{line}");
            }
        }
        side.barrier()?;
        let time = side.endpoint.now() - began;
        side.endpoint.finish()?;
        if me != 0 || !self.json {
            return Ok(());
        }
        let report = Report::new("osu", ranks, time).work(done as f64, "repetitions/s");
        let (first, last) = (figures.first().copied(), figures.last().copied());
        report.with("smallest", first.unwrap_or(0.0)).with("largest", last.unwrap_or(0.0)).print(true)
    }
}

fn main() -> std::process::ExitCode {
    let mut flags = Flags::new("Measures messages.", Options::new().default_ranks(2));
    let names: Vec<&str> = BENCHES.iter().map(|(name, _)| *name).collect();
    let help = format!("one of {}", names.join(", "));
    let name = flags.value("--bench", "NAME", "latency".to_owned(), &help);
    let largest = flags.value("--max", "BYTES", 4usize << 20, "largest message");
    let repetitions = flags.value("--iterations", "N", 1000, "repetitions, a tenth beyond 8 KiB");
    let protocols: Vec<&str> = Protocol::ALL.iter().map(|protocol| protocol.name()).collect();
    let help = format!("how long messages travel: {}", protocols.join(", "));
    let protocol = flags.value("--protocol", "NAME", Protocol::default().name().to_owned(), &help);
    let eager = flags.value("--eager", "BYTES", MessageConfig::default().eager, "largest eager message");
    let bench = BENCHES.iter().find(|(other, _)| *other == name).map(|(_, bench)| *bench);
    let chosen = Protocol::named(&protocol);
    flags.require(bench.is_some(), "--bench is none of those that --help lists");
    flags.require(chosen.is_some(), "--protocol is none of those that --help lists");
    flags.require(flags.ranks() >= 2, "--ranks is at least 2");
    flags.require(largest <= 64 << 20 && repetitions > 0, "--max is at most 64 MiB, --iterations at least 1");
    flags.segment_bytes((8 * largest).clamp(1 << 20, 64 << 20));
    let (bench, protocol) = (bench.unwrap_or(Bench::Latency), chosen.unwrap_or_default());
    let json = flags.json();
    flags.run(Osu { bench, largest, repetitions, protocol, eager, json })
}
