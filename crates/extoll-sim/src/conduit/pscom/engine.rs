//! The progress engine of a rank: its connections, made on first use, and the messages on their way over them.
//!
//! Nothing here knows of matching or of active messages: whole messages are handed in and come out. The engine works only
//! when it is called; whoever waits calls [`Engine::step`] until that finds nothing, then lets the rank idle.

use super::config::{Plugin, PscomConfig};
use super::header::{Envelope, Header, Kind};
use super::pinned::{Block, Pinned};
use super::ring::{Ring, RingError};
use super::stream::{Assembler, Incoming, Outgoing, Pool, StreamError};
use crate::nic::Nic;
use crate::nic::rma::{Nla, Notify, Rma, RmaError};
use crate::nic::velo::{self, Message, Velo, VeloError};
use am_core::{Instant, PeerStatus, Span};
use std::collections::{BTreeMap, HashMap, VecDeque};
use thiserror::Error;

/// Message type of packets that belong to a stream of messages.
const DATA: u8 = 2;
/// Message type of packets that open a ring connection.
const HELLO: u8 = 3;
/// Bytes of such a packet: where the sender's receive buffers are.
const HELLO_BYTES: usize = 8;
/// Bytes of an offer: address, length and number of what waits at the sender.
const OFFER_BYTES: usize = 16;
/// Packets taken in while a refused sender waits, before it tries again.
const RETRY_AFTER: u32 = 32;

/// Steps that find something in rings before one looks into the mailbox all the same.
const LOOK_EVERY: u32 = 16;

/// Why a connection is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The peer sent chunks that make no sense.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The ring broke.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// The interface does not get through to the peer.
    #[error(transparent)]
    Velo(#[from] VeloError),
    /// The peer sent something that is part of no conversation.
    #[error("unexpected: {0}")]
    Unexpected(&'static str),
}

impl LinkError {
    /// Whether the peer is out of reach, rather than wrong.
    pub(super) fn is_silence(&self) -> bool {
        matches!(self, Self::Velo(_))
    }
}

impl From<RmaError> for LinkError {
    fn from(error: RmaError) -> Self {
        Self::Ring(error.into())
    }
}

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

/// Data that waits at a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    nla: Nla,
    len: u32,
    number: u32,
}

impl Offer {
    /// Its length in bytes.
    pub(super) fn len(&self) -> u32 {
        self.len
    }
}

/// What carries a connection.
enum Wire<'a> {
    /// The rank itself.
    Own,
    Velo(velo::Connection),
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

/// A get under way.
struct Fetch {
    from: u32,
    envelope: Envelope,
    offer: Offer,
    block: Block,
    ticket: u64,
}

/// What messages cost above the interface.
#[derive(Clone, Copy, Debug)]
struct Costs {
    velo_half: Span,
    velo_reassembly: Span,
    rma_half: Span,
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
    numbers: HashMap<u32, u32>,
    connections: Vec<Connection<'a>>,
    /// Connections with a ring, in the order in which they were made.
    rings: Vec<u32>,
    /// Connections with something to send, in turn.
    sending: VecDeque<u32>,
    /// Refused for want of room in the network; counts what has been taken in since.
    refused: Option<u32>,
    /// Steps in a row that found something in rings.
    busy: u32,
    pool: Pool,
    pinned: Pinned,
    /// What waits here until its receiver has fetched it, with its ticket.
    offered: BTreeMap<u32, (Block, u32, u64)>,
    offers: u32,
    fetches: Vec<Fetch>,
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
                rma_half: half(parameters.pscom.rma_software_ns),
            },
            unit: parameters.velo.mtu as usize,
            nic: nic.clone(),
            config: config.clone(),
            limit,
            numbers: HashMap::new(),
            connections: Vec::new(),
            rings: Vec::new(),
            sending: VecDeque::new(),
            refused: None,
            busy: 0,
            pool: Pool::default(),
            pinned: Pinned::default(),
            offered: BTreeMap::new(),
            offers: 0,
            fetches: Vec::new(),
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

    /// Sends a message: takes it over whole, sends what can be sent at once. Returns a ticket by which [`Engine::next_sent`]
    /// knows it.
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
            Wire::Velo(_) => {
                self.nic.charge(self.costs.velo_half);
                self.enqueue(number, Outgoing::new(header, body), ticket);
            }
            Wire::Ring { .. } => {
                let rendezvous = self.config.rendezvous as usize;
                let gone = self.connections[number as usize].gone;
                if rendezvous != 0 && body.len() >= rendezvous && !gone {
                    self.offer(number, envelope, body, ticket);
                } else {
                    self.enqueue(number, Outgoing::new(header, body), ticket);
                }
            }
        }
        ticket
    }

    /// Gets the data of an offer; [`Arrival::Fetched`] brings it under the ticket.
    pub(super) fn fetch(&mut self, from: u32, envelope: Envelope, offer: Offer, ticket: u64) {
        let number = self.connection(from);
        if let Err(error) = self.try_fetch(number, envelope, offer, ticket) {
            self.breaks(number, error);
        }
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
        self.numbers.get(&peer).copied()
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
        match self.connections[*self.numbers.get(&to)? as usize].wire {
            Wire::Own => None,
            Wire::Velo(_) => Some(Plugin::Velo),
            Wire::Ring { .. } => Some(Plugin::Rma),
        }
    }

    /// Connections with a plugin, which are those in use.
    pub(super) fn connections(&self) -> impl Iterator<Item = (u32, Plugin)> + '_ {
        self.connections.iter().filter_map(|connection| Some((connection.peer, self.plugin(connection.peer)?)))
    }

    /// Gives up on a rank: what waits for it is dropped, and what comes from it.
    pub(super) fn abandon(&mut self, peer: u32) {
        if let Some(number) = self.numbers.get(&peer) {
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

    /// One step of progress: sends a chunk, takes one in, finishes a get. Returns whether there was anything to do. A step
    /// that finds nothing costs an empty poll.
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
    pub(super) fn idle(&mut self, until: Option<Instant>, wanted: fabric_sim::WaitFor) {
        self.nic.idle(until, wanted);
        self.refused = None;
    }

    /// Sends everything that is here, for as long as that makes progress now and then. Nothing more is delivered.
    pub(super) fn flush(&mut self) {
        let linger = Span((self.config.linger_ns * 1e3) as u64);
        let mut limit = self.nic.now() + linger;
        while self.unsent != 0 {
            self.forget_departed();
            if self.step() {
                limit = self.nic.now() + linger;
            } else if self.unsent != 0 {
                // A rank that unwinds cannot wait: what its interface does not take now is lost with it.
                if std::thread::panicking() || self.nic.now() >= limit {
                    return;
                }
                self.idle(Some(limit), fabric_sim::WaitFor::Named("its last messages to be taken"));
            }
        }
    }

    /// Closes the mailbox: what comes from now on is dropped.
    pub(super) fn close(&mut self) {
        // Closing fails only if it has been done already.
        let _ = self.velo.close();
    }

    /// The number of the connection to a rank, which is made if there is none.
    pub(super) fn connection(&mut self, peer: u32) -> u32 {
        if let Some(number) = self.numbers.get(&peer) {
            return *number;
        }
        let number = self.connections.len() as u32;
        let wire = self.wire(peer);
        if let Wire::Ring { .. } = wire {
            self.rings.push(number);
        }
        let assembler = Assembler::new(self.limit.max(OFFER_BYTES as u32));
        self.connections.push(Connection {
            peer,
            wire,
            queue: VecDeque::new(),
            sending: false,
            assembler,
            gone: false,
            broken: false,
        });
        self.numbers.insert(peer, number);
        if self.rings.last() == Some(&number) {
            self.sends(number);
        }
        number
    }

    fn wire(&self, peer: u32) -> Wire<'a> {
        let own = self.nic.rank();
        if peer == own {
            return Wire::Own;
        }
        let address = self.nic.address(peer).expect("messages go to ranks of the job");
        let page = self.velo.connect(address).expect("the port is open and the process exists");
        match (self.config.plugin_of(own, peer), &self.rma) {
            (Plugin::Rma, Some(rma)) => {
                let ring = Ring::open(rma, address, self.config.ring, self.costs.rma_half);
                let ring = Box::new(ring.expect("the translation table has room for the ring"));
                Wire::Ring { ring, hello: page, greeted: false }
            }
            _ => Wire::Velo(page),
        }
    }

    fn enqueue(&mut self, number: u32, message: Outgoing, ticket: u64) {
        self.unsent += 1;
        let connection = &mut self.connections[number as usize];
        if connection.gone {
            self.pool.give(message.into_body());
            return self.finish(ticket);
        }
        connection.queue.push_back((message, ticket));
        self.sends(number);
        if self.connections[number as usize].queue.len() == 1 {
            self.send_chunk();
        }
    }

    /// Puts a connection into the list of those that send.
    fn sends(&mut self, number: u32) {
        if !std::mem::replace(&mut self.connections[number as usize].sending, true) {
            self.sending.push_back(number);
        }
    }

    fn finish(&mut self, ticket: u64) {
        self.unsent -= 1;
        if ticket != 0 && self.notes_sends {
            self.sent.push_back(ticket);
        }
    }

    fn breaks(&mut self, number: u32, error: LinkError) {
        let peer = self.connections[number as usize].peer;
        if !self.connections[number as usize].broken {
            self.abandon(peer);
            self.arrived.push_back(Arrival::Broken { peer, error });
        }
    }

    /// Sends a chunk of the connection whose turn it is. Connections that are busy wait for their next turn.
    fn send_chunk(&mut self) -> bool {
        if self.refused.is_some_and(|taken| taken < RETRY_AFTER) {
            return false;
        }
        for _ in 0..self.sending.len() {
            let Some(number) = self.sending.pop_front() else { break };
            match self.send_of(number) {
                Ok(Some(more)) => {
                    self.connections[number as usize].sending = more;
                    if more {
                        self.sending.push_back(number);
                    }
                    return true;
                }
                Ok(None) => self.sending.push_back(number),
                Err(error) => {
                    self.connections[number as usize].sending = false;
                    self.breaks(number, error);
                    return true;
                }
            }
        }
        false
    }

    /// Sends a chunk of a connection. `None`: it is busy; otherwise whether it has more to send.
    fn send_of(&mut self, number: u32) -> Result<Option<bool>, LinkError> {
        let connection = &mut self.connections[number as usize];
        let mut buffer = [0; 128];
        let len = match &mut connection.wire {
            Wire::Own => return Ok(Some(false)),
            Wire::Ring { ring, hello, greeted } if !*greeted => {
                let nla = ring.nla().0.to_le_bytes();
                match self.velo.send(*hello, &nla, 0, HELLO) {
                    Ok(()) => *greeted = true,
                    Err(VeloError::TryAgain { .. }) => {
                        self.refused = Some(0);
                        return Ok(None);
                    }
                    Err(error) => return Err(error.into()),
                }
                return Ok(Some(!connection.queue.is_empty()));
            }
            Wire::Ring { ring, .. } => {
                let Some((message, _)) = connection.queue.front() else { return Ok(Some(false)) };
                match ring.send(message)? {
                    Some(len) => len,
                    None => return Ok(None),
                }
            }
            Wire::Velo(page) => {
                let Some((message, _)) = connection.queue.front() else { return Ok(Some(false)) };
                let len = message.chunk(&mut buffer[..self.unit]);
                match self.velo.send(*page, &buffer[..len], 0, DATA) {
                    Ok(()) => len,
                    Err(VeloError::TryAgain { .. }) => {
                        self.refused = Some(0);
                        return Ok(None);
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        };
        self.refused = None;
        let (message, _) = connection.queue.front_mut().expect("the chunk was of the first message");
        if message.advance(len) {
            let (message, ticket) = connection.queue.pop_front().expect("the chunk was of the first message");
            self.pool.give(message.into_body());
            self.finish(ticket);
        }
        Ok(Some(!self.connections[number as usize].queue.is_empty()))
    }

    /// Takes a slot of each ring that has one, and returns tokens.
    fn take_slots(&mut self) -> bool {
        if self.rings.is_empty() {
            return false;
        }
        self.nic.sync();
        let mut any = false;
        for index in 0..self.rings.len() {
            let number = self.rings[index];
            match self.take_slot(number) {
                Ok(taken) => any |= taken,
                Err(error) => {
                    self.breaks(number, error);
                    any = true;
                }
            }
        }
        any
    }

    fn take_slot(&mut self, number: u32) -> Result<bool, LinkError> {
        let Self { connections, pool, .. } = self;
        let Connection { wire, assembler, broken, .. } = &mut connections[number as usize];
        let Wire::Ring { ring, .. } = wire else { return Ok(false) };
        if *broken {
            return Ok(false);
        }
        let mut outcome = Ok(None);
        let taken = ring.take(|chunk| outcome = assembler.feed(chunk, pool))?;
        let returned = ring.return_tokens()?;
        if let Some(incoming) = outcome? {
            self.take_message(number, incoming)?;
        }
        if taken {
            self.refused = None;
        }
        Ok(taken | returned)
    }

    /// Takes a packet out of the mailbox.
    fn take_packet(&mut self) -> bool {
        let Ok(packet) = self.velo.probe_recv(None) else { return false };
        self.refused = self.refused.map(|taken| taken + 1);
        let from = self.nic.rank_at(packet.from).expect("packets come from ranks of the job");
        let number = self.connection(from);
        if !self.connections[number as usize].broken
            && let Err(error) = self.take_from(number, &packet)
        {
            self.breaks(number, error);
        }
        true
    }

    fn take_from(&mut self, number: u32, packet: &Message) -> Result<(), LinkError> {
        let Self { connections, pool, nic, costs, .. } = self;
        let Connection { wire, assembler, .. } = &mut connections[number as usize];
        match (wire, packet.mtt) {
            _ if packet.error => Err(LinkError::Unexpected("a packet that was spoilt on its way")),
            (Wire::Velo(_), DATA) => {
                let first = assembler.between();
                let incoming = assembler.feed(packet.data(), pool)?;
                if first && incoming.is_none() {
                    nic.charge(costs.velo_reassembly);
                }
                if let Some(incoming) = incoming {
                    nic.charge(costs.velo_half);
                    self.take_message(number, incoming)?;
                }
                Ok(())
            }
            (Wire::Ring { ring, .. }, HELLO) if !ring.is_open() => {
                let nla: [u8; HELLO_BYTES] =
                    packet.data().try_into().map_err(|_| LinkError::Unexpected("a greeting of another length"))?;
                ring.greet(Nla(u64::from_le_bytes(nla)));
                Ok(())
            }
            (Wire::Ring { .. }, HELLO) => Err(LinkError::Unexpected("a second greeting")),
            (Wire::Velo(_), HELLO) => {
                Err(LinkError::Unexpected("a greeting for a ring that this rank does not use"))
            }
            _ => Err(LinkError::Unexpected("a packet of another plugin")),
        }
    }

    fn take_message(&mut self, number: u32, incoming: Incoming) -> Result<(), LinkError> {
        let from = self.connections[number as usize].peer;
        let Incoming { header: Header { kind, envelope, .. }, body } = incoming;
        if envelope.source != from {
            return Err(LinkError::Unexpected("a message in the name of another rank"));
        }
        match kind {
            Kind::Eager => self.arrived.push_back(Arrival::Message { from, envelope, body }),
            Kind::Rendezvous => {
                let offer = read_offer(&body).ok_or(LinkError::Unexpected("an offer of another length"))?;
                self.pool.give(body);
                if offer.len > self.limit {
                    return Err(StreamError::TooLong { body: offer.len, limit: self.limit }.into());
                }
                self.arrived.push_back(Arrival::Offer { from, envelope, offer });
            }
            Kind::Fetched => {
                let number: Option<&[u8; 4]> = body.first_chunk();
                let number = number.map(|number| u32::from_le_bytes(*number));
                self.pool.give(body);
                let known = number.filter(|number| self.offered.get(number).is_some_and(|offer| offer.1 == from));
                self.withdraw(known.ok_or(LinkError::Unexpected("thanks for what was not offered"))?);
            }
        }
        Ok(())
    }

    /// Keeps data until the receiver has fetched it, and tells the receiver where it is.
    fn offer(&mut self, number: u32, envelope: Envelope, body: Vec<u8>, ticket: u64) {
        let rma = self.rma.as_ref().expect("rings exist where there is RMA");
        let peer = self.connections[number as usize].peer;
        self.unsent += 1;
        let block = match self.pinned.take(rma, body.len()) {
            Ok(block) => block,
            Err(error) => {
                self.finish(ticket);
                return self.breaks(number, error.into());
            }
        };
        // The block's last reader has said that it is done.
        block.memory.write(0, &body);
        self.offers = self.offers.wrapping_add(1);
        let mut told = self.pool.take();
        told.extend_from_slice(&block.nla.0.to_le_bytes());
        told.extend_from_slice(&(body.len() as u32).to_le_bytes());
        told.extend_from_slice(&self.offers.to_le_bytes());
        self.offered.insert(self.offers, (block, peer, ticket));
        self.pool.give(body);
        let header = Header { kind: Kind::Rendezvous, body: OFFER_BYTES as u32, envelope };
        self.enqueue(number, Outgoing::new(header, told), 0);
    }

    fn withdraw(&mut self, number: u32) {
        if let Some((block, _, ticket)) = self.offered.remove(&number) {
            self.pinned.give(block);
            self.finish(ticket);
        }
    }

    fn try_fetch(&mut self, number: u32, envelope: Envelope, offer: Offer, ticket: u64) -> Result<(), LinkError> {
        let Connection { wire, peer, .. } = &self.connections[number as usize];
        let (Wire::Ring { ring, .. }, Some(rma)) = (wire, &self.rma) else {
            return Err(LinkError::Unexpected("an offer without RMA"));
        };
        let (from, connection) = (*peer, ring.connection());
        let block = self.pinned.take(rma, offer.len as usize)?;
        loop {
            match rma.post_get_bt(connection, block.region, 0, offer.len, offer.nla, Notify::COMPLETER) {
                // Outstanding commands end by themselves, whatever the peers do.
                Err(RmaError::NoDescMem { .. }) => {
                    self.nic.idle(None, fabric_sim::WaitFor::Named("room for a command"));
                }
                other => break other?,
            }
        }
        self.fetches.push(Fetch { from, envelope, offer, block, ticket });
        Ok(())
    }

    /// Takes note of a get that has ended.
    fn take_fetched(&mut self) -> bool {
        if self.fetches.is_empty() {
            return false;
        }
        let Some(rma) = &self.rma else { return false };
        let Ok(notification) = rma.noti_probe() else { return false };
        let (value, failed) = (notification.value, notification.error);
        rma.noti_free(notification).expect("the port is open");
        let Some(index) = self.fetches.iter().position(|fetch| fetch.block.nla.0 == value) else { return true };
        let Fetch { from, envelope, offer, block, ticket } = self.fetches.remove(index);
        let number = self.connection(from);
        if failed {
            self.pinned.give(block);
            self.breaks(number, LinkError::Unexpected("an offer of what is not there"));
            return true;
        }
        let mut body = self.pool.take();
        body.resize(offer.len as usize, 0);
        block.memory.read(0, &mut body);
        self.pinned.give(block);
        let mut thanks = self.pool.take();
        thanks.extend_from_slice(&offer.number.to_le_bytes());
        let own = Envelope { context: 0, tag: 0, source: self.nic.rank() };
        let header = Header { kind: Kind::Fetched, body: thanks.len() as u32, envelope: own };
        self.enqueue(number, Outgoing::new(header, thanks), 0);
        self.arrived.push_back(Arrival::Fetched { from, envelope, ticket, body });
        true
    }
}

fn read_offer(body: &[u8]) -> Option<Offer> {
    let (nla, rest) = body.split_first_chunk::<8>()?;
    let (len, number) = rest.split_first_chunk::<4>()?;
    let number = u32::from_le_bytes(*number.first_chunk::<4>().filter(|_| number.len() == 4)?);
    Some(Offer { nla: Nla(u64::from_le_bytes(*nla)), len: u32::from_le_bytes(*len), number })
}
