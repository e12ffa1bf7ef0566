//! The benchmarks of messages that the field quotes: latency, bandwidth, bidirectional bandwidth and multi-pair
//! message rate as the OSU micro-benchmarks print them, and PingPong, SendRecv and Exchange as the Intel MPI
//! benchmarks do, on any backend.
//!
//! `cargo run --release --example osu -- --ranks 2 --bench latency`; `--help` lists the flags.

use active_messages::anywhere::{Flags, Options, Part, Program, Report};
use active_messages::p2p::{
    Communicator, MessageConfig, MessageError, P2p, Protocol, ReceiveRequest, SegmentReceive, SegmentSend,
    SendRequest,
};
use active_messages::pgas::allocator::{AllocationError, LocalArray, SegmentAllocation};
use active_messages::pgas::collectives::{Max, Min, Sum};
use active_messages::pgas::pointer::GlobalSlice;
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
    /// Which buffers are in segments: what is sent, what is received.
    placed: [bool; 2],
    json: bool,
}

/// A rank's part.
struct Side<T: Transport> {
    endpoint: Endpoint<T, P2p>,
    world: Communicator,
    out: Buffer,
    into: Buffer,
}

/// A rank's memory for messages: of its own, or of its segment.
enum Buffer {
    Own(Vec<u8>),
    Placed(LocalArray<u8>),
}

/// The first bytes of an array of the segment.
fn first(array: &LocalArray<u8>, len: usize) -> GlobalSlice<u8> {
    array.slice().range(0..len as u64).expect("buffers are as long as the largest message")
}

enum Sending {
    Own(SendRequest),
    Placed(SegmentSend<GlobalSlice<u8>>),
}

enum Receiving {
    Own(ReceiveRequest<u8>),
    Placed(SegmentReceive<GlobalSlice<u8>>),
}

type Outcome = Result<(), MessageError>;

impl<T: Transport> Side<T> {
    fn send(&mut self, to: u32, len: usize) -> Outcome {
        match &self.out {
            Buffer::Own(out) => self.world.send(&mut self.endpoint, to, 1, &out[..len]),
            Buffer::Placed(out) => self.world.send_segment(&mut self.endpoint, to, 1, &first(out, len)),
        }
    }

    fn receive(&mut self, from: u32, len: usize) -> Outcome {
        match &mut self.into {
            Buffer::Own(into) => self.world.receive_into(&mut self.endpoint, from, 1, &mut into[..len]).map(drop),
            Buffer::Placed(into) => {
                self.world.receive_segment(&mut self.endpoint, from, 1, first(into, len)).map(drop)
            }
        }
    }

    fn begin_receive(&mut self, from: u32, tag: i32, len: usize) -> Result<Receiving, MessageError> {
        let Self { endpoint, world, into, .. } = self;
        Ok(match into {
            Buffer::Own(_) => Receiving::Own(world.immediate_receive(endpoint, from, tag, len)?),
            Buffer::Placed(into) => {
                Receiving::Placed(world.immediate_receive_segment(endpoint, from, tag, first(into, len))?)
            }
        })
    }

    fn end_receive(&mut self, receive: Receiving, len: usize) -> Outcome {
        match (receive, &mut self.into) {
            (Receiving::Own(request), Buffer::Own(into)) => {
                request.wait_into(&mut self.endpoint, &mut into[..len]).map(drop)
            }
            (Receiving::Own(request), Buffer::Placed(_)) => request.wait(&mut self.endpoint).map(drop),
            (Receiving::Placed(request), _) => request.wait(&mut self.endpoint).map(drop),
        }
    }

    fn begin_send(&mut self, to: u32, tag: i32, len: usize) -> Result<Sending, MessageError> {
        let Self { endpoint, world, out, .. } = self;
        Ok(match out {
            Buffer::Own(out) => Sending::Own(world.immediate_send(endpoint, to, tag, &out[..len])?),
            Buffer::Placed(out) => {
                Sending::Placed(world.immediate_send_segment(endpoint, to, tag, first(out, len))?)
            }
        })
    }

    fn end_send(&mut self, send: Sending) -> Outcome {
        match send {
            Sending::Own(request) => request.wait(&mut self.endpoint),
            Sending::Placed(request) => request.wait(&mut self.endpoint).map(drop),
        }
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
        let mut receiving = Vec::with_capacity(WINDOW);
        if receives {
            for _ in 0..WINDOW {
                receiving.push(self.begin_receive(other, 1, len)?);
            }
        }
        if sends {
            let mut sending = Vec::with_capacity(WINDOW);
            for _ in 0..WINDOW {
                sending.push(self.begin_send(other, 1, len)?);
            }
            for request in sending {
                self.end_send(request)?;
            }
        }
        for request in receiving {
            self.end_receive(request, len)?;
        }
        // The side that only received answers.
        match (sends, receives) {
            (true, true) => Ok(()),
            (true, false) => self.world.receive_into(&mut self.endpoint, other, 2, &mut [0u8; 0]).map(drop),
            _ => self.world.send(&mut self.endpoint, other, 2, &[0u8; 0]),
        }
    }

    /// A message to the next rank and one from the one before.
    fn send_receive(&mut self, len: usize) -> Outcome {
        let (me, size) = (self.world.rank(), self.world.size());
        let (next, previous) = ((me + 1) % size, (me + size - 1) % size);
        let Self { endpoint, world, out, into } = self;
        match (&*out, into) {
            (Buffer::Own(out), Buffer::Own(into)) => {
                let into = &mut into[..len];
                world.send_receive_into(endpoint, (next, 1), &out[..len], (previous, 1), into).map(drop)
            }
            (Buffer::Placed(out), Buffer::Placed(into)) => {
                let (out, into) = (first(out, len), first(into, len));
                world.send_receive_segment(endpoint, (next, 1), &out, (previous, 1), into).map(drop)
            }
            // Memory of both kinds.
            _ => {
                let receive = self.begin_receive(previous, 1, len)?;
                let send = self.begin_send(next, 1, len)?;
                self.end_receive(receive, len)?;
                self.end_send(send)
            }
        }
    }

    /// Messages to both neighbours and from both.
    fn exchange(&mut self, len: usize) -> Outcome {
        let (me, size) = (self.world.rank(), self.world.size());
        let (next, previous) = ((me + 1) % size, (me + size - 1) % size);
        let left = self.begin_receive(previous, 1, len)?;
        let right = self.begin_receive(next, 2, len)?;
        let a = self.begin_send(next, 1, len)?;
        let b = self.begin_send(previous, 2, len)?;
        self.end_receive(left, len)?;
        self.end_receive(right, len)?;
        self.end_send(a)?;
        self.end_send(b)
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
        let mut buffer = |placed: bool, byte: u8| -> Result<Buffer, AllocationError> {
            if !placed {
                return Ok(Buffer::Own(vec![byte; self.largest]));
            }
            endpoint.allocate_local(self.largest as u64).map(Buffer::Placed)
        };
        let (out, into) = (buffer(self.placed[0], b'a')?, buffer(self.placed[1], b'b')?);
        let mut side = Side { endpoint, world, out, into };
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
    let memories = [("own", [false; 2]), ("out", [true, false]), ("into", [false, true]), ("both", [true; 2])];
    let names: Vec<&str> = memories.iter().map(|(name, _)| *name).collect();
    let help = format!("which buffers are in segments: {} (own: none)", names.join(", "));
    let memory = flags.value("--segments", "WHICH", "own".to_owned(), &help);
    let placed = memories.iter().find(|(name, _)| *name == memory).map(|(_, placed)| *placed);
    flags.require(placed.is_some(), "--segments is none of those that --help lists");
    let bench = BENCHES.iter().find(|(other, _)| *other == name).map(|(_, bench)| *bench);
    let chosen = Protocol::named(&protocol);
    flags.require(bench.is_some(), "--bench is none of those that --help lists");
    flags.require(chosen.is_some(), "--protocol is none of those that --help lists");
    flags.require(flags.ranks() >= 2, "--ranks is at least 2");
    flags.require(largest <= 64 << 20 && repetitions > 0, "--max is at most 64 MiB, --iterations at least 1");
    flags.segment_bytes((8 * largest).clamp(1 << 20, 64 << 20));
    let (bench, protocol) = (bench.unwrap_or(Bench::Latency), chosen.unwrap_or_default());
    let json = flags.json();
    let placed = placed.unwrap_or_default();
    flags.run(Osu { bench, largest, repetitions, protocol, eager, placed, json })
}
