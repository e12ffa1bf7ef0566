//! The progress engine of a rank: its connections, made on first use, and the messages on their way over them.
//!
//! Nothing here knows of matching or of active messages: whole messages are handed in and come out. The engine
//! works only when it is called; whoever waits calls [`Engine::step`] until that finds nothing, then lets the rank
//! idle. `send` and `receive` are its two halves, `plugins` what carries a connection, `rendezvous` what is
//! fetched instead of sent.

mod error;
mod plugins;
mod receive;
mod rendezvous;
mod send;

pub use error::LinkError;
pub use plugins::PluginCounts;
pub(super) use rendezvous::Offer;

use super::config::{Plugin, PscomConfig};
use super::header::{Envelope, Header, Kind};
use super::pinned::{Block, Pinned};
use super::ring::{Ring, SlotCosts};
use super::stream::{Assembler, Outgoing, Pool};
use crate::nic::Nic;
use crate::nic::pairs::ByWord;
use crate::nic::rma::Rma;
use crate::nic::sparse::{Chunks, Marks};
use crate::nic::velo::{self, Velo};
use am_core::transport::Departure;
use am_core::{Instant, PeerStatus, Span};
use fabric_sim::WaitFor;
use rendezvous::{Fetch, OFFER_BYTES};
use std::collections::{BTreeMap, VecDeque};

/// Message type of the packet that answers a greeting where there is no ring.
const REFUSAL: u8 = 1;
/// Message type of packets that belong to a stream of messages.
const DATA: u8 = 2;
/// Message type of packets that open a ring connection.
const HELLO: u8 = 3;
/// Packets taken in while a refused sender waits, before it tries again.
const RETRY_AFTER: u32 = 32;
/// [A] How long a departing rank tries to hand over what it has sent, without any progress: far beyond every
/// retry.
const LINGER: Span = Span::from_millis(100);

/// Steps that find something in rings before one looks into the mailbox all the same.
const LOOK_EVERY: u32 = 16;

/// Something for the layer above.
#[derive(Debug)]
pub(super) enum Arrival {
    /// A message with its data.
    Message { from: u32, envelope: Envelope, body: Vec<u8> },
    /// A message whose data waits at the sender until [`Engine::fetch`].
    Offer { from: u32, envelope: Envelope, offer: Offer },
    /// The data of an offer.
    Fetched { from: u32, envelope: Envelope, ticket: u64, body: Vec<u8> },
    /// A connection broke.
    Broken { peer: u32, error: LinkError },
}

/// What carries a connection.
enum Wire<'a> {
    /// The rank itself.
    Own,
    Velo {
        page: velo::Connection,
        /// The peer is to be told that there is no ring.
        refuses: bool,
    },
    Ring {
        ring: Box<Ring<'a>>,
        hello: velo::Connection,
        greeted: bool,
    },
}

struct Connection<'a> {
    peer: u32,
    wire: Wire<'a>,
    queue: VecDeque<(Outgoing, u64)>,
    /// Whether the connection is in the list of those that send.
    sending: bool,
    assembler: Assembler,
    /// Nothing more is sent: the peer has ended.
    gone: bool,
    /// Nothing more is taken either: the peer broke the protocol, or is out of reach.
    broken: bool,
}

/// What messages cost above the interface.
#[derive(Clone, Copy, Debug)]
struct Costs {
    velo_half: Span,
    velo_reassembly: Span,
    slot: SlotCosts,
}

/// The engine.
pub(super) struct Engine<'a> {
    nic: Nic<'a>,
    velo: Velo<'a>,
    rma: Option<Rma<'a>>,
    config: PscomConfig,
    costs: Costs,
    unit: usize,
    limit: u32,
    numbers: ByWord<u32>,
    connections: Vec<Connection<'a>>,
    /// Connections whose rings may have something to be taken or returned.
    rings: Marks,
    /// Connections with something to send, in turn.
    sending: VecDeque<u32>,
    /// All of them wait for their peers: for a greeting, or for tokens.
    stuck: bool,
    /// Refused for want of room in the network; counts what has been taken in since.
    refused: Option<u32>,
    /// Steps in a row that found something in rings.
    busy: u32,
    pool: Pool,
    pinned: Pinned,
    /// Unused parts of rings' buffers, and a slot between memory and buffer.
    chunks: Chunks,
    scratch: Vec<u8>,
    counts: PluginCounts,
    /// What waits here until its receiver has fetched it, with its ticket.
    offered: BTreeMap<u32, (Block, u32, u64)>,
    offers: u32,
    fetches: Vec<Fetch>,
    /// Where data lands for which no block of its own can be registered; there with the first ring.
    landing: Option<Block>,
    /// The fetches that take turns with it, and how much of the first has come.
    landings: VecDeque<Fetch>,
    landed: Vec<u8>,
    arrived: VecDeque<Arrival>,
    sent: VecDeque<u64>,
    unsent: usize,
    tickets: u64,
    /// Whether finished sends are noted in `sent`.
    notes_sends: bool,
}

impl<'a> Engine<'a> {
    /// An engine for messages with bodies up to `limit` bytes. Opens the rank's ports.
    ///
    /// # Panics
    /// If a port is open already: a rank has one engine.
    pub(super) fn new(nic: &Nic<'a>, config: &PscomConfig, limit: u32, notes_sends: bool) -> Self {
        let (velo, parameters) = (nic.velo(), nic.parameters());
        velo.open().expect("the VELO port is this engine's own");
        let rma = config.uses_rma().then(|| nic.rma());
        if let Some(rma) = &rma {
            rma.open().expect("the RMA port is this engine's own, and the interface has one");
        }
        let half = |nanos: f64| Span((nanos * 500.0).round() as u64);
        Self {
            velo,
            rma,
            costs: Costs {
                velo_half: half(parameters.pscom.velo_software_ns),
                velo_reassembly: Span(2 * half(parameters.pscom.velo_reassembly_ns).0),
                slot: SlotCosts {
                    software: half(parameters.pscom.rma_software_ns),
                    copy_line: Span(2 * half(parameters.pscom.copy_line_ns).0),
                },
            },
            unit: parameters.velo.mtu as usize,
            nic: nic.clone(),
            config: config.clone(),
            limit,
            numbers: ByWord::default(),
            connections: Vec::new(),
            rings: Marks::default(),
            sending: VecDeque::new(),
            stuck: false,
            refused: None,
            busy: 0,
            pool: Pool::default(),
            pinned: Pinned::default(),
            chunks: Chunks::default(),
            scratch: vec![0; config.ring.buffer_bytes as usize],
            counts: PluginCounts::default(),
            offered: BTreeMap::new(),
            offers: 0,
            fetches: Vec::new(),
            landing: None,
            landings: VecDeque::new(),
            landed: Vec::new(),
            arrived: VecDeque::new(),
            sent: VecDeque::new(),
            unsent: 0,
            tickets: 0,
            notes_sends,
        }
    }

    /// The rank's interface and time.
    pub(super) fn nic(&self) -> &Nic<'a> {
        &self.nic
    }

    /// Buffers for bodies.
    pub(super) fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// Sends a message: takes it over whole, sends what can be sent at once. Returns a ticket by which
    /// [`Engine::next_sent`] knows it.
    pub(super) fn send(&mut self, to: u32, envelope: Envelope, body: Vec<u8>) -> u64 {
        let number = self.connection(to);
        self.tickets += 1;
        let ticket = self.tickets;
        let header = Header { kind: Kind::Eager, body: body.len() as u32, envelope };
        match &self.connections[number as usize].wire {
            Wire::Own => {
                self.nic.charge(self.costs.velo_half);
                self.nic.charge(self.costs.velo_half);
                self.arrived.push_back(Arrival::Message { from: to, envelope, body });
                self.unsent += 1;
                self.finish(ticket);
            }
            Wire::Velo { .. } => {
                self.nic.charge(self.costs.velo_half);
                self.enqueue(number, Outgoing::new(header, body), ticket);
            }
            // Whether the data goes through the ring or is fetched is seen when its turn comes.
            Wire::Ring { .. } => self.enqueue(number, Outgoing::new(header, body), ticket),
        }
        ticket
    }

    /// The next thing for the layer above.
    pub(super) fn next_arrival(&mut self) -> Option<Arrival> {
        self.arrived.pop_front()
    }

    /// The ticket of the next message that has been sent, if they are noted: its data is no longer needed here.
    pub(super) fn next_sent(&mut self) -> Option<u64> {
        self.sent.pop_front()
    }

    /// Messages of which something is still here.
    pub(super) fn unsent(&self) -> usize {
        self.unsent
    }

    /// The number of the connection to a rank, if there is one.
    pub(super) fn known(&self, peer: u32) -> Option<u32> {
        self.numbers.get(&u64::from(peer)).copied()
    }

    /// The rank that a connection leads to.
    pub(super) fn rank_of(&self, number: u32) -> u32 {
        self.connections[number as usize].peer
    }

    /// Sends a chunk if that is possible now.
    pub(super) fn send_more(&mut self) -> bool {
        self.send_chunk()
    }

    /// The plugin of the connection to a rank, if there is a connection.
    pub(super) fn plugin(&self, to: u32) -> Option<Plugin> {
        match self.connections[*self.numbers.get(&u64::from(to))? as usize].wire {
            Wire::Own => None,
            Wire::Velo { .. } => Some(Plugin::Velo),
            Wire::Ring { .. } => Some(Plugin::Rma),
        }
    }

    /// Connections with a plugin, which are those in use.
    pub(super) fn connections(&self) -> impl Iterator<Item = (u32, Plugin)> + '_ {
        self.connections.iter().filter_map(|connection| Some((connection.peer, self.plugin(connection.peer)?)))
    }

    /// Gives up on a rank: what waits for it is dropped, and what comes from it.
    pub(super) fn abandon(&mut self, peer: u32) {
        if let Some(number) = self.numbers.get(&u64::from(peer)) {
            self.connections[*number as usize].broken = true;
            self.drop_queue(*number);
        }
    }

    /// Drops what waits for a rank.
    fn drop_queue(&mut self, number: u32) {
        let connection = &mut self.connections[number as usize];
        let peer = connection.peer;
        connection.gone = true;
        let dropped: Vec<_> = connection.queue.drain(..).collect();
        for (message, ticket) in dropped {
            self.pool.give(message.into_body());
            self.finish(ticket);
        }
        let theirs: Vec<u32> =
            self.offered.iter().filter(|(_, offered)| offered.1 == peer).map(|(number, _)| *number).collect();
        for number in theirs {
            self.withdraw(number);
        }
    }

    /// Drops what waits for ranks that have ended. What they sent before can still be taken.
    pub(super) fn forget_departed(&mut self) {
        for number in 0..self.connections.len() as u32 {
            let Connection { peer, gone, .. } = self.connections[number as usize];
            if !gone && self.nic.context().known_status(peer) != PeerStatus::Active {
                self.drop_queue(number);
            }
        }
    }

    /// One step of progress: sends a chunk, takes one in, finishes a get. Returns whether there was anything to
    /// do. A step that finds nothing costs an empty poll.
    pub(super) fn step(&mut self) -> bool {
        let sent = self.send_chunk();
        let mut taken = self.take_slots() | self.take_fetched();
        // Rings that are never empty must not keep others from opening theirs.
        self.busy = if taken { self.busy + 1 } else { 0 };
        if !taken || self.busy.is_multiple_of(LOOK_EVERY) {
            taken |= self.take_packet();
        }
        if !taken {
            // Nothing else to do, so the next step may try in vain.
            self.refused = None;
        }
        sent | taken
    }

    /// Lets the rank sleep until something may have changed.
    pub(super) fn idle(&mut self, until: Option<Instant>, wanted: WaitFor) {
        self.nic.idle(until, wanted);
        self.refused = None;
    }

    /// Sends everything that is here, for as long as that makes progress now and then. Nothing more is delivered.
    fn flush(&mut self) {
        let mut limit = self.nic.now() + LINGER;
        while self.unsent != 0 {
            self.forget_departed();
            if self.step() {
                limit = self.nic.now() + LINGER;
            } else if self.unsent != 0 {
                // A rank that unwinds cannot wait: what its interface does not take now is lost with it.
                if std::thread::panicking() || self.nic.now() >= limit {
                    return;
                }
                self.idle(Some(limit), WaitFor::Named("its last messages to be taken"));
            }
        }
    }

    /// Leaves the job once everything is sent: what comes from now on is dropped.
    pub(super) fn leave(&mut self, how: Departure) {
        self.flush();
        // Closing fails only if it has been done already.
        let _ = self.velo.close();
        self.nic.context().depart(how.status());
    }

    fn breaks(&mut self, number: u32, error: LinkError) {
        let peer = self.connections[number as usize].peer;
        if !self.connections[number as usize].broken {
            self.abandon(peer);
            self.arrived.push_back(Arrival::Broken { peer, error });
        }
    }
}
