//! The interface of a node, as the simulation drives it: its processes, its units' stages, its timers.

use super::address::Address;
use super::errors::Fault;
use super::mutation::Defects;
use super::packetizer::{Mailbox, Packetizer};
use super::sequence::{Answers, UnderWay};
use super::transfer::{Arrivals, Cut, Notify, TransferId, Transfers};
use super::translation::Space;
use super::wire::{Body, Content, ReadRequest, Wire};
use crate::model::{Costs, Parameters};
use am_core::{Instant, PeerStatus, Span};
use fabric_sim::bytes::{Detached, Pool};
use fabric_sim::{Crossing, Device, DeviceContext, Directory, Packet, Stage};
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;

/// What all interfaces of a machine share.
pub struct Shared {
    pub(crate) directory: Directory<Address>,
    pub(crate) parameters: Parameters,
    pub(crate) costs: Costs,
    pub(crate) cut: Cut,
    /// How much longer arrivals may take, in picoseconds.
    pub(crate) jitter: u64,
    /// How often a block finds that a page was taken away, of 2^64.
    pub(crate) page_faults: u64,
    pub(crate) pool: Rc<Pool>,
    pub(crate) defects: Defects,
    /// Whether packets can be lost, so that silence has to be noticed.
    pub(crate) lossy: bool,
}

/// What an interface has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Units sent again because nothing was heard of them.
    pub resent: u64,
    /// Copies that came and were dropped.
    pub repeated: u64,
    /// What came spoilt and was dropped.
    pub spoilt: u64,
    /// Control packets that were refused here.
    pub refused: u64,
    /// Blocks that met a page that was not there, at either side.
    pub page_faults: u64,
    /// Units given up because their destination's node gave no sign.
    pub abandoned: u64,
    /// Control packets taken.
    pub packets: u64,
    /// Blocks taken.
    pub blocks: u64,
}

/// Whether a process has opened its context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Context {
    NotYet,
    Open,
    Closed,
}

/// A process of the node.
pub(crate) struct Process {
    pub(crate) rank: u32,
    pub(crate) address: Address,
    pub(crate) context: Context,
    pub(crate) packetizer: Packetizer,
    pub(crate) mailbox: Mailbox,
    pub(crate) space: Space,
    pub(crate) transfers: Transfers,
    /// Its writes that have not ended.
    pub(crate) writing: u32,
    /// Reads that the other side has not taken, with its rank.
    pub(crate) asking: Vec<(u32, ReadRequest)>,
    /// Reads that the other side has taken, with its rank, and whether a timer asks it for them.
    pub(crate) reading: Vec<(u32, TransferId)>,
    pub(crate) watches: bool,
    /// It was refused for want of room.
    pub(crate) wants_room: bool,
    /// It leaves the job as soon as all that it sent was taken.
    pub(crate) departing: Option<PeerStatus>,
    /// Whether a timer will send again what was refused.
    pub(crate) retries: bool,
    /// How often in a row it was planned to.
    pub(crate) refusals: u32,
}

/// What a write is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Origin {
    /// The process's own.
    Own(TransferId),
    /// A read of the process that is written to.
    Read(TransferId),
}

/// A transfer that this node makes.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    /// Whose memory is read, and its rank.
    pub(crate) process: u32,
    pub(crate) from: u32,
    pub(crate) source: u64,
    pub(crate) to: u32,
    pub(crate) destination: u64,
    pub(crate) len: u64,
    pub(crate) notify: Option<Notify>,
    pub(crate) origin: Origin,
    /// Its number among those to its node.
    pub(crate) number: u32,
    pub(crate) blocks: u64,
    /// The next block to send, those that were sent and not answered, and those that were taken.
    pub(crate) next: u64,
    pub(crate) under_way: u32,
    pub(crate) done: u64,
}

/// A unit that was not answered.
#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) kind: UnitKind,
    pub(crate) attempts: u32,
    /// When it is sent again, in picoseconds.
    pub(crate) again: u64,
}

#[derive(Debug)]
pub(crate) enum UnitKind {
    Packet {
        process: u32,
        channel: u32,
    },
    Read {
        process: u32,
        request: ReadRequest,
    },
    ReadFault(TransferId, Fault),
    /// Asks whether a read is still being served.
    Watch {
        process: u32,
        id: TransferId,
    },
    Block {
        write: u32,
        block: u64,
        /// Cells that were sent.
        cursor: u32,
        /// Whether it is in the engine's queue, and may go on.
        queued: bool,
        paused: bool,
    },
}

/// What goes to one node.
#[derive(Debug, Default)]
pub(crate) struct Outflow {
    pub(crate) units: UnderWay<Unit>,
    /// Numbers of the transfers that have not ended, oldest first, and the next number.
    pub(crate) live: Vec<u32>,
    pub(crate) transfers: u32,
    /// Writes that wait for room among the units.
    pub(crate) starved: Vec<u32>,
    /// Reads that cannot be served, with the process that was asked and the rank that asked.
    pub(crate) read_faults: Vec<(u32, u32, TransferId, Fault)>,
    /// When the timer that sends again runs out.
    pub(crate) timed: u64,
}

/// What comes from one node.
#[derive(Debug, Default)]
pub(crate) struct Inflow {
    pub(crate) answers: Answers,
    pub(crate) arrivals: Arrivals,
}

/// What a node exchanges with another.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) out: Outflow,
    pub(crate) inward: Inflow,
}

/// The ExaNet interface of a node, as the simulation drives it. Ranks use it through [`Nic`](crate::Nic).
pub struct Exanet {
    pub(crate) shared: Rc<Shared>,
    pub(crate) processes: Vec<Process>,
    /// Per node that there was something to exchange with.
    flows: Vec<Option<Box<Flow>>>,
    pub(crate) writes: Vec<Option<Write>>,
    pub(crate) free_writes: Vec<u32>,
    /// Reads of others that are being served.
    pub(crate) serving: u32,
    /// The engine's queue: nodes and numbers of blocks that have something to send.
    pub(crate) engine: VecDeque<(u32, u32)>,
    pub(crate) engine_busy: bool,
    /// It is being run: what it does may add to its queue.
    pub(crate) engine_runs: bool,
    /// Pages that are being fetched: processes and addresses.
    pub(crate) fetches: Vec<Option<(u32, u64)>>,
    pub(crate) counters: Counters,
}

impl fmt::Debug for Exanet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exanet").field("counters", &self.counters).finish_non_exhaustive()
    }
}

/// The units' stages.
pub(super) const PACKET_TX: usize = 0;
const PACKET_RX: usize = 1;
pub(super) const RDMA_TX: usize = 2;
const RDMA_RX: usize = 3;

/// What a timer is for: the lowest bits of its token; the others say which.
pub(super) const ENGINE: u32 = 0;
pub(super) const START: u32 = 1;
pub(super) const AGAIN: u32 = 2;
pub(super) const FETCHED: u32 = 3;
pub(super) const RETRY: u32 = 4;
pub(super) const WATCH: u32 = 5;
pub(super) const KINDS: u32 = 6;

impl Exanet {
    pub(crate) fn new(shared: Rc<Shared>, node: u32, ranks: &[u32]) -> Self {
        shared.directory.add(node, ranks);
        let Parameters { packetizer, rdma, .. } = &shared.parameters;
        let defects = shared.defects;
        let processes = ranks.iter().enumerate().map(|(context, rank)| Process {
            rank: *rank,
            address: Address { node: node as u16, context: context as u8 },
            context: Context::NotYet,
            packetizer: Packetizer::new(packetizer.channels),
            mailbox: Mailbox::new(packetizer.mailbox, defects),
            space: Space::new(rdma.page_bytes, defects),
            transfers: Transfers::new(rdma.queue),
            writing: 0,
            asking: Vec::new(),
            reading: Vec::new(),
            watches: false,
            wants_room: false,
            departing: None,
            retries: false,
            refusals: 0,
        });
        Self {
            processes: processes.collect(),
            flows: Vec::new(),
            writes: Vec::new(),
            free_writes: Vec::new(),
            serving: 0,
            engine: VecDeque::new(),
            engine_busy: false,
            engine_runs: false,
            fetches: Vec::new(),
            counters: Counters::default(),
            shared,
        }
    }

    /// What this interface has counted.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    pub(super) fn process(&mut self, local: u32) -> &mut Process {
        &mut self.processes[local as usize]
    }

    /// Which of the node's processes a rank is.
    pub(super) fn local(&self, rank: u32) -> u32 {
        let address = self.shared.directory.of(rank);
        address.context.into()
    }

    /// What there is to exchange with a node.
    pub(super) fn flow(&mut self, node: u32) -> &mut Flow {
        let node = node as usize;
        if node >= self.flows.len() {
            self.flows.resize_with(node + 1, || None);
        }
        self.flows[node].get_or_insert_with(|| {
            let out = Outflow { timed: u64::MAX, ..Outflow::default() };
            Box::new(Flow { out, inward: Inflow::default() })
        })
    }

    /// A page is not there: it will be after the time that the system takes.
    pub(super) fn fetch(&mut self, local: u32, page: u64, port: &mut DeviceContext<'_, Wire>) {
        let index = self.fetches.iter().position(Option::is_none).unwrap_or_else(|| {
            self.fetches.push(None);
            self.fetches.len() - 1
        });
        self.fetches[index] = Some((local, page));
        port.timer(port.now() + self.shared.costs.fetch, index as u32 * KINDS + FETCHED);
    }

    /// Whether the system has taken a page away that a block is about to use.
    pub(super) fn page_is_taken(&self, pageable: bool, port: &mut DeviceContext<'_, Wire>) -> bool {
        pageable && self.shared.page_faults != 0 && port.random() < self.shared.page_faults
    }

    fn arrived(&mut self, packet: Packet<Wire>, port: &mut DeviceContext<'_, Wire>) {
        let node = port.node_of(packet.from);
        let Packet { from, to, body: Wire(body), .. } = packet;
        match body {
            Body::Unit(number, Content::Cells(cells)) => self.take_cells(node, number, (from, to), &cells, port),
            Body::Unit(number, content) => self.take_control(node, number, (from, to), content, port),
            Body::Answer(number, answer) => self.answered(node, number, answer, port),
            Body::Notify(notify) => self.write_notification(from, to, notify, port),
        }
    }
}

impl Crossing for Exanet {
    type Sent = Wire<Detached>;

    fn send_over(body: Wire) -> Wire<Detached> {
        body.map(|bytes| Detached::new(&bytes))
    }

    fn take_over(&self, sent: Wire<Detached>) -> Wire {
        sent.map(|bytes| bytes.lend(&self.shared.pool))
    }
}

impl Device for Exanet {
    type Body = Wire;

    fn stages(&self) -> Vec<(&'static str, Stage)> {
        let Parameters { packetizer, rdma, .. } = &self.shared.parameters;
        vec![("packetizer", packetizer.tx), ("mailbox", packetizer.rx), ("rdma tx", rdma.tx), ("rdma rx", rdma.rx)]
    }

    fn arrive(&mut self, packet: Packet<Wire>, port: &mut DeviceContext<'_, Wire>) {
        if packet.corrupt {
            self.counters.spoilt += 1;
            return;
        }
        let now = port.now();
        let stage = match packet.body.0 {
            Body::Unit(_, Content::Cells(_)) => RDMA_RX,
            Body::Unit(..) => PACKET_RX,
            Body::Answer(..) | Body::Notify(_) => return self.arrived(packet, port),
        };
        let mut leaves = if stage == RDMA_RX {
            // The engine has been taking the bytes in since the first of them came.
            let came = Instant(now.0.saturating_sub(self.shared.on_the_link(packet.bytes).0));
            let written = port.serve(stage, came, packet.bytes, &packet).leaves;
            written.max(now + port.slowed(self.shared.costs.place))
        } else {
            port.serve(stage, now, packet.bytes, &packet).leaves
        };
        let jitter = self.shared.jitter;
        if jitter != 0 {
            leaves = leaves + Span(port.random() % (jitter + 1));
        }
        if leaves > now {
            port.defer(leaves, packet, 0);
        } else {
            self.arrived(packet, port);
        }
    }

    fn due(&mut self, packet: Packet<Wire>, _: u32, port: &mut DeviceContext<'_, Wire>) {
        self.arrived(packet, port);
    }

    fn timer(&mut self, token: u32, port: &mut DeviceContext<'_, Wire>) {
        let which = token / KINDS;
        match token % KINDS {
            ENGINE => {
                self.engine_busy = false;
                self.run_engine(port);
            }
            START => self.advance(which, port),
            AGAIN => self.send_again(which, port),
            FETCHED => {
                let fetched = self.fetches[which as usize].take();
                let (local, page) = fetched.expect("a page that is being fetched has its entry");
                self.process(local).space.fetched(page);
            }
            RETRY => self.retry(which, port),
            WATCH => self.watch(which, port),
            _ => {}
        }
    }

    fn explain(&self, rank: u32) -> Option<String> {
        let process = self.processes.iter().find(|process| process.rank == rank)?;
        let (state, mail) = (process.packetizer.state(), process.mailbox.len());
        let (busy, refused) = (state.busy.count_ones(), state.refused.count_ones());
        Some(format!(
            "mailbox: {mail} packets; channels: {busy} busy, {refused} refused; {} transfers, {} writes under way",
            process.transfers.live(),
            process.writing
        ))
    }
}

impl Shared {
    /// How long the cells of some bytes take on a link.
    pub(super) fn on_the_link(&self, bytes: u32) -> Span {
        let headers = bytes.div_ceil(self.cut.cell) * self.parameters.cell.header_bytes;
        let picos = f64::from(bytes + headers) * 1e6 / self.parameters.link.bandwidth_mb_s;
        // Rounded down, so that nothing takes longer here than on the link itself.
        Span(picos as u64)
    }

    /// When a unit that was sent is sent again unless it is answered, in picoseconds.
    pub(super) fn timeout(&self, sent: Instant, attempts: u32) -> u64 {
        // Rule 3 of the sheet: what is not answered is sent again, and given up in the end.
        if !self.lossy || self.defects.has(super::mutation::Mutation::NoRetransmission) {
            return u64::MAX;
        }
        sent.0 + (self.costs.timeout.0 << attempts.min(6))
    }
}
