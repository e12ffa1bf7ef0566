//! MPI over Portals as a program on the interface itself, with two copies: each message is copied to a bounce
//! buffer by its sender, put into a receive buffer, and copied out by its receiver.
//!
//! Each message is one put that nobody acknowledges, and one event at its receiver; a receive buffer is used again
//! after a message without bytes has said so, one for half of the buffers. What an MPI library's matching and its
//! own software cost is not in it, so that this is the least that an MPI of two copies can take. A conduit over it
//! has its own software at either end of each message.

use super::sources::{FLOOD, MEDIUM_TWO_COPIES, PUT_TWO_COPIES};
use super::{Context, pairs};
use crate::figures::plot::{Axis, Plot, Scale, Series, Style};
use crate::figures::report::{Failure, NotReproduced, Part};
use active_messages::Span;
use fabric_sim::RunError;
use portals_sim::PortalsConfig;
use portals_sim::conduit::{ConduitConfig, FlowControl};
use portals_sim::nic::p3::{Ack, Criteria, EqHandle, EventKind, Md, MdHandle, Options, P3, Position, Unlink};
use portals_sim::nic::{HostMemory, Nic};
use std::collections::VecDeque;

/// Bounce buffers, and receive buffers.
const BUFFERS: u64 = 16;
/// Exchanges before those that are timed, and timed ones.
const WARM_UP: u32 = 2;
const TIMED: u32 = 8;

/// What a rank of such an MPI has.
struct Mpi<'n, 'a> {
    nic: &'n Nic<'a>,
    p3: P3<'a>,
    events: EqHandle,
    source: MdHandle,
    /// Bytes of a buffer.
    room: u64,
    /// For each message that is sent or received, besides copies.
    overhead: Span,
    copy_ns: f64,
    sent: u64,
    /// Messages that have not left their bounce buffers.
    leaving: u64,
    arrived: VecDeque<u32>,
}

impl<'n, 'a> Mpi<'n, 'a> {
    fn new(nic: &'n Nic<'a>, bytes: u32, overhead: Span) -> Self {
        let (p3, room) = (nic.p3(), u64::from(bytes.max(8)));
        let memory = || HostMemory::new((room * BUFFERS) as usize);
        p3.init().expect("an interface can be used once");
        let events = p3.eq_alloc(256).expect("there are event queues");
        let options = Options::OP_PUT | Options::MANAGE_REMOTE | Options::EVENT_START_DISABLE;
        let md = |memory: &HostMemory| Md { eq: Some(events), ..Md::new(memory, options) };
        let entry = p3.me_attach(0, Criteria::bits(0, 0), Unlink::Retain, Position::After);
        p3.md_attach(entry.expect("there are entries"), &md(&memory()), Unlink::Retain)
            .expect("there are descriptors");
        let source = p3.md_bind(&md(&memory()), Unlink::Retain).expect("there are descriptors");
        let copy_ns = nic.parameters().software.copy_ns_per_byte;
        nic.launched();
        Self { nic, p3, events, source, room, overhead, copy_ns, sent: 0, leaving: 0, arrived: VecDeque::new() }
    }

    fn copy(&self, bytes: u32) {
        let copy = Span((f64::from(bytes) * self.copy_ns * 1e3) as u64);
        self.nic.charge(Span(copy.0 + self.overhead.0));
    }

    /// Takes an event, and waits for one if there is none.
    fn event(&mut self) {
        let event = self.p3.eq_wait(self.events, None).expect("the queue has room for all events");
        match event.kind {
            EventKind::SendEnd => self.leaving -= 1,
            EventKind::PutEnd => self.arrived.push_back(event.mlength),
            kind => panic!("nothing else was asked for: {kind:?}"),
        }
    }

    fn send(&mut self, bytes: u32) {
        while self.leaving == BUFFERS {
            self.event();
        }
        self.copy(bytes);
        let at = self.sent % BUFFERS * self.room;
        let other = self.nic.id(1 - self.nic.rank()).expect("there are two ranks");
        self.p3.put(self.source, at, bytes, Ack::None, other, 0, 0, at, 0).expect("the other one listens");
        (self.sent, self.leaving) = (self.sent + 1, self.leaving + 1);
    }

    fn receive(&mut self) -> u32 {
        loop {
            if let Some(bytes) = self.arrived.pop_front() {
                self.copy(bytes);
                return bytes;
            }
            self.event();
        }
    }
}

/// The time of a message of some bytes and its answer of others.
fn answered(machine: &PortalsConfig, [there, back]: [u32; 2], overhead: Span) -> Result<Span, RunError> {
    let report = portals_sim::run(machine, move |nic| {
        let mut mpi = Mpi::new(&nic, there.max(back), overhead);
        let mut took = 0;
        for round in 0..WARM_UP + TIMED {
            let began = nic.now();
            if nic.rank() == 0 {
                mpi.send(there);
                assert_eq!(mpi.receive(), back);
            } else {
                assert_eq!(mpi.receive(), there);
                mpi.send(back);
            }
            took += if round < WARM_UP { 0 } else { nic.now().since(began).0 };
        }
        took
    })?;
    Ok(Span(report.results[0].unwrap_or_default() / u64::from(TIMED)))
}

/// Bytes per second of a flood of messages.
fn flood(machine: &PortalsConfig, bytes: u32, count: u64) -> Result<f64, RunError> {
    let half = BUFFERS / 2;
    let report = portals_sim::run(machine, move |nic| {
        let mut mpi = Mpi::new(&nic, bytes, Span::ZERO);
        let began = nic.now();
        for message in 0..count {
            if nic.rank() == 0 {
                // The first halves of the buffers are free, the others once somebody has said so.
                if message >= BUFFERS && message.is_multiple_of(half) {
                    mpi.receive();
                }
                mpi.send(bytes);
            } else {
                assert_eq!(mpi.receive(), bytes);
                if (message + 1).is_multiple_of(half) {
                    mpi.send(0);
                }
            }
        }
        // The last buffers are told of, too.
        if nic.rank() == 0 {
            (0..2).for_each(|_| assert_eq!(mpi.receive(), 0));
        }
        nic.now().since(began).0
    })?;
    let took = report.results[0].unwrap_or_default() as f64 * 1e-12;
    Ok(count as f64 * f64::from(bytes) / took)
}

pub(super) fn run(context: &Context<'_>) -> Result<Part, Failure> {
    let machine = context.pair();
    let conduit = Span((context.parameters.software.gasnet_ns * 1e3) as u64);
    let us = |took: Span| took.0 as f64 * 1e-6;
    let (puts, mediums, floods) = (context.sizes(0..=11), context.sizes(0..=10), context.sizes(8..=21));
    let curve = |sizes: &[u32], of: &dyn Fn(u32) -> Result<f64, RunError>| {
        let points = sizes.iter().map(|size| Ok((f64::from(*size), of(*size).map_err(Failure::of("MPI"))?)));
        points.collect::<Result<Vec<_>, Failure>>()
    };
    let put = curve(&puts, &|size| Ok(us(pairs::put(&machine, size, TIMED)?)))?;
    let raw = curve(&puts, &|size| Ok(us(answered(&machine, [size, 0], Span::ZERO)?)))?;
    let over = curve(&puts, &|size| Ok(us(answered(&machine, [size, 0], conduit)?)))?;
    let bank = ConduitConfig::with(FlowControl::Bank);
    let medium = curve(&mediums, &|size| Ok(us(pairs::round_trip(&machine, &bank, size, TIMED)?)))?;
    let medium_over = curve(&mediums, &|size| Ok(us(answered(&machine, [size; 2], conduit)?)))?;
    let count = |size: u32| (1 << 24 >> size.ilog2()).clamp(BUFFERS as u32, 512);
    let put_flood = curve(&floods, &|size| Ok(1e-6 * pairs::flood(&machine, size, count(size))?))?;
    let mpi_flood = curve(&floods, &|size| Ok(1e-6 * flood(&machine, size, count(size).into())?))?;
    let ratios = |one: &[(f64, f64)], other: &[(f64, f64)]| {
        one.iter().zip(other).map(|(one, other)| one.1 / other.1).collect::<Vec<_>>()
    };
    let least = |ratios: Vec<f64>| ratios.into_iter().fold(f64::INFINITY, f64::min);
    let most = |ratios: Vec<f64>| ratios.into_iter().fold(0.0, f64::max);
    let lines = vec![
        PUT_TWO_COPIES.at_least(
            "put, MPI of two copies with answer / Portals, smallest",
            "",
            1.0,
            least(ratios(&raw, &put)),
        ),
        PUT_TWO_COPIES.at_least(
            "put, over MPI of two copies / Portals, smallest",
            "",
            1.0,
            least(ratios(&over, &put)),
        ),
        MEDIUM_TWO_COPIES.at_most(
            "Medium, Portals / over MPI of two copies, largest",
            "",
            1.0,
            most(ratios(&medium, &medium_over)),
        ),
    ];
    let each = |name: &str, points: &[(f64, f64)]| {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.0} B {y:.2}")).collect();
        format!("{name}: {}", points.join(", "))
    };
    let notes = vec![
        each("put, us", &put),
        each("MPI's message and answer, us", &raw),
        each("put over MPI, us", &over),
        each("Medium round trip, us", &medium),
        each("Medium round trip over MPI, us", &medium_over),
        each("flood of puts, MB/s", &put_flood),
        each("flood of MPI's messages, MB/s", &mpi_flood),
    ];
    let floods = ratios(&put_flood, &mpi_flood).into_iter().zip(&put_flood);
    let floods: Vec<String> =
        floods.map(|(ratio, (bytes, _))| format!("{:+.1} % at {bytes:.0} B", 100.0 * (ratio - 1.0))).collect();
    let missing = NotReproduced {
        source: FLOOD.source,
        sentence: FLOOD.sentence,
        tried: format!(
            "MPI simulated on the interface, with two copies, beside which a flood of puts has {}: one interface paces \
             short ones of both, and puts are acknowledged",
            floods.join(", ")
        ),
    };
    let line = |name, style, colour, points| Series { name, style, colour, points };
    let plot = Plot {
        name: "two-copies",
        title: "Portals: floods of puts and of MPI's messages",
        subtitle: "between neighbouring XT4 nodes; MPI on the interface itself, copied at either end",
        x: Axis { label: "bytes", scale: Scale::Binary },
        y: Axis { label: "bandwidth, MB/s", scale: Scale::Linear },
        series: vec![
            line("conduit over Portals", Style::Line, 0, put_flood),
            line("MPI of two copies", Style::Dashed, 2, mpi_flood),
        ],
    };
    let title = "Beside MPI of two copies, simulated (XT4)";
    Ok(Part { title, lines, notes, not_reproduced: vec![missing], plots: vec![plot] })
}
