//! The interface of a node, as the simulation drives it: its processes, its units' stages, its timers.

use super::address::Address;
use super::channel::{Body, Channel, Frame, Inbound, Outbound, Wire};
use super::memory::Registrable;
use super::mutation::Defects;
use super::pairs::Pairs;
use super::rma::atu::Atu;
use super::rma::command_queue::Pace;
use super::rma::unit::Engine;
use super::velo::mailbox::{Slots, Valid};
use super::velo::unit::Post;
use crate::model::{Costs, Parameters};
use am_core::{Instant, Span};
use fabric_sim::bytes::{Detached, Pool};
use fabric_sim::{Crossing, Device, DeviceContext, Directory, Packet, Stage};
use std::rc::Rc;

/// Whether a process has opened its port.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Open {
    /// What comes waits.
    NotYet,
    Yes,
    /// What comes is dropped.
    NoMore,
}

/// The longest additional times of an [`AdversarialTiming`](crate::AdversarialTiming), in picoseconds.
#[derive(Clone, Copy)]
pub(crate) struct TimingLimits {
    pub(crate) jitter: u64,
    pub(crate) store_gap: u64,
}

/// What all interfaces of a machine share.
pub struct Shared {
    pub(crate) directory: Directory<Address>,
    pub(crate) parameters: Parameters,
    pub(crate) costs: Costs,
    pub(crate) pace: Pace,
    pub(crate) adversary: TimingLimits,
    pub(crate) pool: Rc<Pool>,
    pub(crate) slots: Slots,
    pub(crate) defects: Defects,
    /// Whether packets can be lost, so that they are kept for replay.
    pub(crate) lossy: bool,
}

/// A process of the node.
pub(crate) struct Process {
    pub(crate) rank: u32,
    pub(crate) address: Address,
    pub(crate) post: Post,
    pub(crate) engine: Engine,
}

/// What an interface has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Packets sent again.
    pub resent: u64,
    /// Packets that came a second time and were dropped.
    pub repeated: u64,
    /// Packets that came spoilt and were dropped.
    pub spoilt: u64,
    /// Packets that had to wait for room in a mailbox or notification queue.
    pub held: u64,
    /// Packets given up because their receiver gave no sign.
    pub abandoned: u64,
}

/// The EXTOLL interface of a node, as the simulation drives it. Ranks use it through [`Nic`](crate::Nic).
pub struct Extoll {
    pub(crate) shared: Rc<Shared>,
    pub(crate) processes: Vec<Process>,
    pub(crate) atu: Atu<Registrable>,
    pub(crate) outbound: Pairs<Outbound>,
    pub(super) inbound: Pairs<Inbound>,
    pub(crate) counters: Counters,
}

impl std::fmt::Debug for Extoll {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Extoll").field("counters", &self.counters).finish_non_exhaustive()
    }
}

pub(super) const VELO_TX: usize = 0;
const VELO_RX: usize = 1;
pub(super) const RMA_TX: usize = 2;
const RMA_RX: usize = 3;

/// What a timer is for: the lowest bits of its token; the others say which.
pub(super) const RESEND: u32 = 0;
pub(super) const OVERDUE: u32 = 1;
const COMMANDS: u32 = 2;
const STORE: u32 = 3;
/// Nothing has to be done; until then something counts as under way.
pub(super) const NOTHING: u32 = 4;
pub(super) const KINDS: u32 = 5;

impl Extoll {
    pub(crate) fn new(shared: Rc<Shared>, node: u32, ranks: &[u32]) -> Self {
        shared.directory.add(node, ranks);
        let (velo, rma, defects) = (&shared.parameters.velo, &shared.parameters.rma, shared.defects);
        let processes = ranks.iter().enumerate().map(|(vpid, rank)| Process {
            rank: *rank,
            address: Address { node: node as u16, vpid: vpid as u8 },
            post: Post::new(velo.segments, defects, &shared.slots, &Valid::default()),
            engine: Engine::new(rma.notifications),
        });
        Self {
            processes: processes.collect(),
            atu: Atu::new(rma.pages, defects),
            outbound: Pairs::new(),
            inbound: Pairs::new(),
            counters: Counters::default(),
            shared,
        }
    }

    /// What this interface has counted.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Slots in use in the mailbox of one of the node's processes, and messages that wait for room in it.
    ///
    /// # Panics
    /// If the node has no such process.
    pub fn mailbox(&self, vpid: u8) -> (u64, u32) {
        self.processes[usize::from(vpid)].post.occupancy()
    }

    /// Which of the node's processes a rank is.
    pub(super) fn local(&self, rank: u32) -> u32 {
        let address = self.shared.directory.of(rank);
        u32::from(address.vpid)
    }

    /// Sets a timer for a rank that counts as something under way from it: its departure is not known before.
    pub(super) fn set_aside(from: u32, to: u32, at: Instant, token: u32, port: &mut DeviceContext<'_, Wire>) {
        let (sent, body) = (port.now(), Wire(Body::Aside));
        port.defer(at, Packet { number: 0, from, to, bytes: 0, sent, corrupt: false, body }, token);
    }

    /// Sets a timer that runs a command queue of a process.
    pub(crate) fn time_commands(&self, local: u32, which: u32, at: Instant, port: &mut DeviceContext<'_, Wire>) {
        let rank = self.processes[local as usize].rank;
        Self::set_aside(rank, rank, at, (local * 2 + which) * KINDS + COMMANDS, port);
    }

    /// Sets a timer for the next write to a process's mailbox.
    pub(crate) fn time_store(local: u32, at: Instant, port: &mut DeviceContext<'_, Wire>) {
        port.timer(at, local * KINDS + STORE);
    }

    /// Passes the receiving unit.
    pub(super) fn pass(
        &mut self,
        number: u32,
        packet: Packet<Wire>,
        channel: Channel,
        port: &mut DeviceContext<'_, Wire>,
    ) {
        let now = port.now();
        let mut leaves = if channel == Channel::Velo {
            port.serve(VELO_RX, now, packet.bytes, &packet).leaves
        } else {
            // All fragments but the last have been worked on while the last was on its way.
            let others = self.shared.pace.fragments(packet.bytes) - 1;
            let earlier = port.slowed(Span(self.shared.costs.rx_gap.0 * u64::from(others)));
            let served = port.serve(RMA_RX, Instant(now.0.saturating_sub(earlier.0)), packet.bytes, &packet);
            served.leaves + port.slowed(self.shared.costs.translate)
        };
        let jitter = self.shared.adversary.jitter;
        let inbound = self.inbound.at(number);
        if jitter != 0 {
            leaves = leaves + Span(port.random() % (jitter + 1));
        }
        leaves = leaves.max(inbound.last);
        inbound.last = leaves;
        if leaves > now {
            port.defer(leaves, packet, number);
        } else {
            self.deliver(packet, number, port);
        }
    }

    fn deliver(&mut self, packet: Packet<Wire>, number: u32, port: &mut DeviceContext<'_, Wire>) {
        let local = self.inbound.at(number).local;
        let Wire(Body::Frame { frame, .. }) = packet.body else {
            unreachable!("only frames pass the receiving units");
        };
        match frame {
            Frame::Velo(letter) => self.velo_deliver(local, number, letter, port),
            Frame::Rma(message) => self.rma_deliver(local, number, message, port),
        }
    }
}

impl Crossing for Extoll {
    type Sent = Wire<Detached>;

    fn send_over(body: Wire) -> Wire<Detached> {
        body.map(|bytes| Detached::new(&bytes))
    }

    fn take_over(&self, sent: Wire<Detached>) -> Wire {
        sent.map(|bytes| bytes.lend(&self.shared.pool))
    }
}

impl Device for Extoll {
    type Body = Wire;

    fn stages(&self) -> Vec<(&'static str, Stage)> {
        let Parameters { velo, rma, .. } = &self.shared.parameters;
        vec![("velo tx", velo.tx), ("velo rx", velo.rx), ("rma tx", rma.tx), ("rma rx", rma.rx)]
    }

    fn arrive(&mut self, packet: Packet<Wire>, port: &mut DeviceContext<'_, Wire>) {
        match packet.body {
            Wire(Body::Frame { channel, sequence, .. }) => self.take(packet, channel, sequence, port),
            Wire(Body::Progress { channel, progress, replay }) if !packet.corrupt => {
                self.progress(&packet, channel, progress, replay, port);
            }
            Wire(Body::Progress { .. }) => self.counters.spoilt += 1,
            Wire(Body::Aside) => unreachable!("it never leaves the interface"),
        }
    }

    fn due(&mut self, packet: Packet<Wire>, token: u32, port: &mut DeviceContext<'_, Wire>) {
        match packet.body {
            Wire(Body::Aside) => self.timer(token, port),
            _ => self.deliver(packet, token, port),
        }
    }

    fn timer(&mut self, token: u32, port: &mut DeviceContext<'_, Wire>) {
        let which = token / KINDS;
        match token % KINDS {
            RESEND => self.resend(which, port),
            OVERDUE => self.overdue(which, port),
            COMMANDS => {
                self.processes[which as usize / 2].engine.command_queues[which as usize % 2].timed = false;
                self.run_commands(which / 2, which % 2, port);
            }
            STORE => self.velo_store(which, port),
            _ => {}
        }
    }

    fn explain(&self, rank: u32) -> Option<String> {
        let process = self.processes.iter().find(|process| process.rank == rank)?;
        let waiting = self.outbound.all().iter().filter(|outbound| outbound.from == rank);
        let uncommitted: u32 = waiting.map(|outbound| u32::from(outbound.sender.uncommitted())).sum();
        let (post, engine) = (process.post.explain(), process.engine.explain());
        Some(format!("{post}, {engine}; {uncommitted} packets uncommitted"))
    }
}
