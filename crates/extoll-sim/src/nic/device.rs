//! The interface of a node: it takes what the network brings and what its processes order, repairs what is lost, and hands
//! the rest to its two units.

use super::address::{Address, Directory};
use super::bytes::Pool;
use super::memory::HostMemory;
use super::mutation::{Defects, Mutation};
use super::pairs::Pairs;
use super::replay::{Progress, Receiver, Sender, Verdict, WINDOW};
use super::rma::atu::Atu;
use super::rma::lane::Pace;
use super::rma::unit::Engine;
use super::rma::wire::Message;
use super::velo::mailbox::Letter;
use super::velo::unit::Post;
use crate::model::{Costs, Parameters};
use am_core::{Instant, Span};
use fabric_sim::{About, Device, Outgoing, Packet, Port, Served, Stage};
use std::rc::Rc;

/// The channels of a pair of processes. Each is in order and reliable by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    Velo,
    /// Commands.
    Request,
    /// Answers, which must not wait behind commands.
    Response,
}

/// Whether a process has opened its port.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Open {
    /// What comes waits.
    NotYet,
    Yes,
    /// What comes is dropped.
    NoMore,
}

/// What travels on a channel.
#[derive(Clone)]
pub(crate) enum Frame {
    Velo(Letter),
    Rma(Message),
}

/// What packets of the simulated network carry. Opaque: only interfaces look inside.
#[derive(Clone)]
pub struct Wire(pub(crate) Body);

#[derive(Clone)]
pub(crate) enum Body {
    Frame {
        channel: Channel,
        sequence: u8,
        frame: Frame,
    },
    Progress {
        channel: Channel,
        progress: Progress,
        replay: bool,
    },
    /// Set aside in the sending interface until it is time to ask whether all has arrived.
    Overdue,
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wire")
    }
}

/// The longest additional times of an [`Adversary`](crate::Adversary), in picoseconds.
#[derive(Clone, Copy)]
pub(crate) struct Unkindness {
    pub(crate) jitter: u64,
    pub(crate) store_gap: u64,
}

/// What all interfaces of a machine share.
pub(crate) struct Shared {
    pub(crate) directory: Directory,
    pub(crate) parameters: Parameters,
    pub(crate) costs: Costs,
    pub(crate) pace: Pace,
    pub(crate) adversary: Unkindness,
    pub(crate) pool: Rc<Pool>,
    pub(crate) defects: Defects,
    /// Whether packets can be lost, so that they are kept for replay.
    pub(crate) lossy: bool,
}

/// How large a packet is and how it passes the units.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) bytes: u32,
    pub(crate) header: u32,
    /// Wire fragments.
    pub(crate) fragments: u32,
}

/// The sending side of a channel.
pub(crate) struct Outbound {
    from: u32,
    to: u32,
    channel: Channel,
    pub(crate) sender: Sender<(Frame, Size)>,
    /// When the last packet has left the unit.
    idle_at: Instant,
    timed: bool,
    deadline: Instant,
    tries: u32,
    /// The receiver is out of reach.
    pub(crate) broken: bool,
}

/// The receiving side of a channel.
pub(crate) struct Inbound {
    local: u32,
    from: u32,
    address: Address,
    channel: Channel,
    receiver: Receiver,
    /// When the last packet came out of the unit.
    last: Instant,
    /// A packet that waits for the next one to overtake it, if the interface is broken like that.
    swapped: Option<Box<Packet<Wire>>>,
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
    pub(crate) atu: Atu<HostMemory>,
    pub(crate) outbound: Pairs<Outbound>,
    inbound: Pairs<Inbound>,
    pub(crate) counters: Counters,
}

impl std::fmt::Debug for Extoll {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Extoll").field("counters", &self.counters).finish_non_exhaustive()
    }
}

const VELO_TX: usize = 0;
const VELO_RX: usize = 1;
const RMA_TX: usize = 2;
const RMA_RX: usize = 3;

/// What a timer is for: the lowest bits of its token; the others say which.
const RESEND: u32 = 0;
const OVERDUE: u32 = 1;
const LANE: u32 = 2;
const STORE: u32 = 3;
const KINDS: u32 = 4;

/// Fruitless retries after which a sender's departure no longer waits for what is under way.
const PATIENT_TRIES: u32 = 8;

/// Bytes of a progress report on the wire.
const REPORT: u32 = 16;

/// Packets that are committed before their sender is told, where nothing is lost.
const TELL_EVERY: u8 = 64;

impl Extoll {
    pub(crate) fn new(shared: Rc<Shared>, node: u32, ranks: &[u32]) -> Self {
        shared.directory.add(node, ranks);
        let (velo, rma, defects) = (&shared.parameters.velo, &shared.parameters.rma, shared.defects);
        let processes = ranks.iter().enumerate().map(|(vpid, rank)| Process {
            rank: *rank,
            address: Address { node: node as u16, vpid: vpid as u8 },
            post: Post::new(velo.segments, defects),
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

    fn local(&self, rank: u32) -> u32 {
        let address = self.shared.directory.address(rank).expect("packets are for ranks of the job");
        u32::from(address.vpid)
    }

    /// The sending side of a channel, by number.
    pub(crate) fn outbound(&mut self, local: u32, to: u32, channel: Channel) -> u32 {
        let from = self.processes[local as usize].rank;
        let plain = self.shared.defects.has(Mutation::PlainCompare);
        self.outbound.number(local, to, channel as u8, || Outbound {
            from,
            to,
            channel,
            sender: if plain { Sender::broken() } else { Sender::default() },
            idle_at: Instant::default(),
            timed: false,
            deadline: Instant::default(),
            tries: 0,
            broken: false,
        })
    }

    /// Sends a frame on a channel that has room. Returns when it was in the unit.
    pub(crate) fn dispatch(&mut self, number: u32, frame: Frame, size: Size, port: &mut Port<'_, Wire>) -> Served {
        let timeout = self.shared.costs.timeout;
        let lossy = self.shared.lossy;
        let outbound = self.outbound.at(number);
        let sequence = outbound.sender.push(lossy.then(|| (frame.clone(), size)));
        let served = self.transmit(number, sequence, frame, size, port);
        let outbound = self.outbound.at(number);
        if lossy && !outbound.timed {
            (outbound.timed, outbound.deadline) = (true, served.leaves + timeout);
            self.time_overdue(number, port);
        }
        served
    }

    fn transmit(
        &mut self,
        number: u32,
        sequence: u8,
        frame: Frame,
        size: Size,
        port: &mut Port<'_, Wire>,
    ) -> Served {
        let outbound = self.outbound.at(number);
        let Outbound { from, to, channel, .. } = *outbound;
        let about = About { number: port.number(), from, to };
        let (stage, translate) = match channel {
            Channel::Velo => (VELO_TX, Span::ZERO),
            _ => (RMA_TX, self.shared.costs.translate),
        };
        let served = port.serve(stage, port.now(), size.bytes, about);
        // The first fragment of several goes out while the unit works on the others.
        let others = Span(self.shared.costs.tx_gap.0 * u64::from(size.fragments - 1));
        let at = Instant((served.leaves + port.slowed(translate)).0 - port.slowed(others).0);
        outbound.idle_at = at;
        let body = Wire(Body::Frame { channel, sequence, frame });
        let (bytes, header, at) = (size.bytes, Some(size.header), Some(at));
        let number = Some(about.number);
        port.send_as(Outgoing { header, at, number, ..Outgoing::new(from, to, bytes, body) });
        served
    }

    /// A packet of a channel has found its place. Tells its sender once in a while.
    #[inline]
    pub(crate) fn commit(&mut self, number: u32, port: &mut Port<'_, Wire>) {
        let every = if self.shared.lossy { 1 } else { TELL_EVERY };
        if self.inbound.at(number).receiver.commit(every) {
            self.tell(number, false, port);
        }
    }

    /// Who sends on a channel: its address.
    pub(crate) fn partner(&mut self, number: u32) -> Address {
        self.inbound.at(number).address
    }

    /// Who sends on a channel, and which of the two RMA channels it is.
    pub(crate) fn sender(&mut self, number: u32) -> (u32, Channel) {
        let Inbound { from, channel, .. } = self.inbound.at(number);
        (*from, *channel)
    }

    /// The number of the channel that a packet comes by.
    fn inbound_number(&mut self, packet: &Packet<Wire>, channel: Channel) -> u32 {
        let (local, from, directory) = (self.local(packet.to), packet.from, &self.shared.directory);
        let make = || Inbound {
            local,
            from,
            address: directory.address(from).expect("senders are ranks of the job"),
            channel,
            receiver: Receiver::default(),
            last: Instant(0),
            swapped: None,
        };
        self.inbound.number(local, from, channel as u8, make)
    }

    fn tell(&mut self, number: u32, replay: bool, port: &mut Port<'_, Wire>) {
        let Inbound { local, from, channel, receiver, .. } = self.inbound.at(number);
        let body = Wire(Body::Progress { channel: *channel, progress: receiver.tell(), replay });
        let rank = self.processes[*local as usize].rank;
        port.send_as(Outgoing { header: Some(REPORT), ..Outgoing::new(rank, *from, 0, body) });
    }

    /// A receiver has told how far it is.
    fn progress(
        &mut self,
        packet: &Packet<Wire>,
        channel: Channel,
        progress: Progress,
        replay: bool,
        port: &mut Port<'_, Wire>,
    ) {
        let local = self.local(packet.to);
        let number = self.outbound(local, packet.from, channel);
        let timeout = self.shared.costs.timeout;
        let outbound = self.outbound.at(number);
        let (moved, open) = outbound.sender.progress(progress);
        if moved {
            (outbound.tries, outbound.deadline) = (0, port.now() + timeout);
        }
        if replay {
            self.flag(number, port);
        }
        if open {
            self.room(number, port);
        }
    }

    /// Puts the retry flag up and plans to send again once the sender is idle.
    fn flag(&mut self, number: u32, port: &mut Port<'_, Wire>) {
        if self.shared.defects.has(Mutation::NoReplay) {
            return;
        }
        let idle = port.slowed(self.shared.costs.idle);
        let outbound = self.outbound.at(number);
        if outbound.sender.flag() {
            port.timer(outbound.idle_at.max(port.now()) + idle, number * KINDS + RESEND);
        }
    }

    fn resend(&mut self, number: u32, port: &mut Port<'_, Wire>) {
        let outbound = self.outbound.at(number);
        if !outbound.sender.retrying() {
            return;
        }
        let (packets, open) = outbound.sender.replay();
        for (sequence, (frame, size)) in packets {
            self.counters.resent += 1;
            self.transmit(number, sequence, frame, size, port);
        }
        if open {
            self.room(number, port);
        }
    }

    /// The deadline of a channel may have passed.
    fn overdue(&mut self, number: u32, port: &mut Port<'_, Wire>) {
        let (timeout, limit) = (self.shared.costs.timeout, self.shared.parameters.retry.limit);
        let outbound = self.outbound.at(number);
        outbound.timed = false;
        // What has been delivered will be committed, if only the process reads; that matters when nothing more may be sent.
        if outbound.sender.undelivered() == 0 && outbound.sender.uncommitted() < WINDOW {
            return;
        }
        if outbound.deadline <= port.now() {
            outbound.tries += 1;
            if outbound.tries > limit {
                // It has everything and only does not read; it will tell when it does.
                if outbound.sender.undelivered() == 0 {
                    return;
                }
                outbound.broken = true;
                self.counters.abandoned += u64::from(outbound.sender.abandon());
                return self.room(number, port);
            }
            outbound.deadline = port.now() + Span(timeout.0 << outbound.tries.min(40));
            self.flag(number, port);
        }
        self.outbound.at(number).timed = true;
        self.time_overdue(number, port);
    }

    /// Asks at its deadline whether what a channel has sent has arrived. Until then something counts as under way, so that a
    /// rank's departure is not known before its last packets have come, unless the receiver seems to be gone.
    fn time_overdue(&mut self, number: u32, port: &mut Port<'_, Wire>) {
        let Outbound { from, to, deadline, tries, .. } = *self.outbound.at(number);
        let token = number * KINDS + OVERDUE;
        if tries > PATIENT_TRIES {
            return port.timer(deadline, token);
        }
        let (sent, body) = (port.now(), Wire(Body::Overdue));
        port.defer(deadline, Packet { number: 0, from, to, bytes: 0, sent, corrupt: false, body }, token);
    }

    /// A channel that refused has room now.
    fn room(&mut self, number: u32, port: &mut Port<'_, Wire>) {
        let Outbound { from, channel, .. } = *self.outbound.at(number);
        let local = self.local(from);
        match channel {
            Channel::Velo => port.wake(from),
            Channel::Request => self.run_lane(local, 0, port),
            Channel::Response => self.run_lane(local, 1, port),
        }
    }

    /// Sets a timer that runs a lane of a process.
    pub(crate) fn time_lane(local: u32, lane: u32, at: Instant, port: &mut Port<'_, Wire>) {
        port.timer(at, (local * 2 + lane) * KINDS + LANE);
    }

    /// Sets a timer for the next write to a process's mailbox.
    pub(crate) fn time_store(local: u32, at: Instant, port: &mut Port<'_, Wire>) {
        port.timer(at, local * KINDS + STORE);
    }

    /// A frame has reached the interface: it is judged by its number and passes the receiving unit.
    fn take(&mut self, mut packet: Packet<Wire>, channel: Channel, sequence: u8, port: &mut Port<'_, Wire>) {
        let number = self.inbound_number(&packet, channel);
        let inbound = self.inbound.at(number);
        if packet.corrupt {
            self.counters.spoilt += 1;
            let Wire(Body::Frame { frame: Frame::Velo(letter), .. }) = &mut packet.body else { return };
            if !self.shared.defects.has(Mutation::TakeSpoilt) {
                return;
            }
            letter.error = true;
        }
        if self.shared.defects.has(Mutation::AnySequence) {
            inbound.receiver.take_any();
        } else {
            match inbound.receiver.judge(sequence) {
                Verdict::Take => {}
                Verdict::Known => {
                    self.counters.repeated += 1;
                    return self.tell(number, false, port);
                }
                Verdict::Missing => return self.tell(number, true, port),
                Verdict::Waiting => return,
            }
        }
        if self.shared.defects.has(Mutation::SwapPackets) && channel == Channel::Velo {
            let Some(earlier) = inbound.swapped.take() else {
                inbound.swapped = Some(Box::new(packet));
                return;
            };
            self.pass(number, packet, channel, port);
            return self.pass(number, *earlier, channel, port);
        }
        self.pass(number, packet, channel, port);
    }

    /// Passes the receiving unit.
    fn pass(&mut self, number: u32, packet: Packet<Wire>, channel: Channel, port: &mut Port<'_, Wire>) {
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

    fn deliver(&mut self, packet: Packet<Wire>, number: u32, port: &mut Port<'_, Wire>) {
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

impl Device for Extoll {
    type Body = Wire;

    fn stages(&self) -> Vec<(&'static str, Stage)> {
        let Parameters { velo, rma, .. } = &self.shared.parameters;
        vec![("velo tx", velo.tx), ("velo rx", velo.rx), ("rma tx", rma.tx), ("rma rx", rma.rx)]
    }

    fn arrive(&mut self, packet: Packet<Wire>, port: &mut Port<'_, Wire>) {
        match packet.body {
            Wire(Body::Frame { channel, sequence, .. }) => self.take(packet, channel, sequence, port),
            Wire(Body::Progress { channel, progress, replay }) if !packet.corrupt => {
                self.progress(&packet, channel, progress, replay, port);
            }
            Wire(Body::Progress { .. }) => self.counters.spoilt += 1,
            Wire(Body::Overdue) => unreachable!("it never leaves the interface"),
        }
    }

    fn due(&mut self, packet: Packet<Wire>, token: u32, port: &mut Port<'_, Wire>) {
        if let Wire(Body::Overdue) = packet.body {
            return self.overdue(token / KINDS, port);
        }
        self.deliver(packet, token, port);
    }

    fn timer(&mut self, token: u32, port: &mut Port<'_, Wire>) {
        let which = token / KINDS;
        match token % KINDS {
            RESEND => self.resend(which, port),
            OVERDUE => self.overdue(which, port),
            LANE => {
                self.processes[which as usize / 2].engine.lanes[which as usize % 2].timed = false;
                self.run_lane(which / 2, which % 2, port);
            }
            _ => self.velo_store(which, port),
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
