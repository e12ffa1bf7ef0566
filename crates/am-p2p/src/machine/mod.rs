//! The protocols as a state machine with neither network nor clock: it is told what a rank asks for and what
//! arrives, and says through a [`Wire`] what is to be sent.
//!
//! | file | what it does |
//! |---|---|
//! | `chains` | finds receives and messages by communicator, source and tag |
//! | `control` | the messages of the protocols |
//! | `peers` | what is known of a peer and of a peer in a communicator: credit, numbers, advertisements |
//! | `sending` | messages on their way out: eager, announced, written |
//! | `receive` | what a receive asks for, and what has come for it |
//! | `receiving` | receives, and how they meet messages |
//! | `taking` | receives that are over, and what they have brought |
//! | `direct` | the receive of a blocking call that is the only one |
//! | `line` | receives for eager messages that come in the order of the receives |
//! | `unexpected` | messages that nobody has asked for yet |
//! | `credit` | memory for these, of which senders keep account |
//! | `adverts` | receives that are advertised, and revoked |
//! | `advance` | sends what is to be sent |
//! | `ending` | lost peers and freed communicators |
//! | `staging` | memory that messages are written to |
//! | `ways` | whether messages that may be read are written instead: as is faster |
//! | `lent` | messages that their receivers read in the senders' memory |
//! | `report` | what is under way, for reports of waits that time out |
//! | `place` | memory that they are read into while no call waits that has some |
//!
//! # Why an advertisement meets the right message
//!
//! Messages of a sender to a receiver in a communicator are numbered. A receive is advertised only while no
//! wildcard is posted in its communicator, so that the messages of its sender with its tag match the receives with
//! that tag in order, whatever else happens. An RTR says how many messages the receiver had seen, and how many
//! receives with that tag come before. The sender knows which messages with the tag it has numbered from there on,
//! so it knows which message the receive is for: one that was announced, and is written now (crossing); one that
//! went eagerly, so that the receive needs no advertisement any more; or one that comes later. A revocation names
//! its receive by the same two numbers and shifts those behind. This needs messages of a pair to arrive in order;
//! where a transport does not keep it, nothing is advertised.

mod advance;
mod adverts;
mod chains;
mod control;
mod credit;
mod direct;
mod ending;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod kills;
mod lent;
mod line;
#[cfg(test)]
mod model;
mod peers;
mod place;
mod receive;
mod receiving;
mod report;
#[cfg(test)]
mod scenarios;
mod sending;
mod staging;
mod taking;
mod unexpected;
mod ways;

pub(crate) use advance::{Unsent, Wire};
pub(crate) use chains::{ANY, Selector};
pub(crate) use control::{Control, Credit, Envelope, NOWHERE, Part, Read, Source};
pub(crate) use direct::Found;
pub(crate) use lent::{PIECE, Readable};
pub(crate) use place::{place_of, values_in};
pub(crate) use receive::{Keep, MessageInfo, Taken, Word};
pub(crate) use sending::{Given, Mode, Stored};
pub(crate) use staging::Block;
pub(crate) use ways::Copies;

use crate::config::{Counts, MessageConfig, Protocol};
use am_core::LossCause;
use am_core::slab::{Key, Slab};
use am_core::transport::Lender;
use chains::Chains;
use direct::Direct;
use line::Line;
use peers::{Context, Pair, Peer};
use receive::Receive;
use sending::Send;
use staging::Staging;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use unexpected::Unexpected;

/// Why a message was not sent or received.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Failure {
    /// The peer is lost, or has finished.
    Gone(Option<LossCause>),
    /// The message is longer than the receive.
    Truncated,
    /// The elements of the message are of another type.
    WrongType(u32),
    /// The communicator was freed.
    Freed,
    /// There is no memory for a message of this length.
    NoMemory,
}

/// Elements of one byte, which a receive takes of messages of any type.
pub(crate) const BYTES: u32 = 1 << 20 | 1;

/// Bytes of a buffer that is kept for its next use.
const KEPT: usize = 64 << 10;

/// Buffers that are kept.
const POOL: usize = 64;

/// Hashes numbers, by one multiplication.
#[derive(Default)]
struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }
}

type Map<K> = HashMap<K, u32, BuildHasherDefault<NumberHasher>>;

/// The largest tag.
const LARGEST_TAG: u32 = i32::MAX as u32;

/// Messages of a peer that may wait for their receives at most.
const MOST_MESSAGES: u64 = 4096;

/// What a sender may have in a receiver's memory for unexpected messages, in a job of some ranks.
fn window(config: &MessageConfig, ranks: u32) -> Credit {
    let units = (config.unexpected / 64 / u64::from(ranks.max(1))).clamp(8, 1 << 24);
    Credit { messages: (units / 4).clamp(4, MOST_MESSAGES) as u32, units: units as u32 }
}

/// Bytes beyond which it is asked whether there is memory.
const LARGE: usize = 1 << 20;

/// Zeroes, or `None` where there is no memory for them.
pub(crate) fn zeroes<V: Clone>(zero: V, count: usize) -> Option<Vec<V>> {
    if count.saturating_mul(size_of::<V>()) > LARGE {
        // Memory is only taken where it is written to, so that this costs next to nothing.
        Vec::<V>::new().try_reserve_exact(count).ok()?;
    }
    Some(vec![zero; count])
}

/// What the protocols of a rank keep.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) config: MessageConfig,
    /// The largest eager message in bytes.
    eager: u64,
    /// What a sender may have in a receiver's memory for unexpected messages.
    window: Credit,
    /// Whether messages of a pair arrive in order.
    ordered: bool,
    /// How long messages that may be read come, once that is known.
    copies: Option<Copies>,
    peers: Vec<Peer>,
    peer_of: Map<u32>,
    pairs: Vec<Pair>,
    pair_of: Map<u64>,
    /// The pair that was looked for last.
    last_pair: (u64, u32),
    contexts: Vec<Context>,
    context_of: Map<u32>,
    sends: Slab<Send>,
    receives: Slab<Receive>,
    stored: Slab<Unexpected>,
    /// Receives that have met no message, each under its own selector.
    posted: Chains,
    /// The receive of a blocking call that is the only one.
    direct: Direct,
    /// Receives that are looked for before those that are posted.
    line: Line,
    /// Messages that have met no receive, each under all selectors that match it.
    unexpected: Chains,
    staging: Staging,
    /// Parts of it that lost peers may still write to, with their ranks: no other message gets them before it is
    /// known that these write no more.
    withheld: Vec<(u32, Block)>,
    lender: Lender,
    /// Receives whose messages wait for calls that read them, and how long the first of them has waited.
    unread: VecDeque<Key>,
    patience: u32,
    /// A part of a message has been read since the last step: whoever reads is not to sleep before the next.
    pub(crate) part_read: bool,
    /// Counts receives.
    orders: u64,
    /// Peers to which something is to be sent.
    ready: VecDeque<u32>,
    /// A communicator whose last wildcard has met a message.
    unblocked: Option<u32>,
    /// Peers that are gone and communicators that were freed.
    endings: u32,
    /// Buffers without use.
    pool: Vec<Vec<u8>>,
    /// A part of a message of the segment on its way out.
    scratch: Vec<u8>,
    pub(crate) counts: Counts,
    /// In which order envelopes were looked at, receives posted and cancelled.
    #[cfg(test)]
    pub(crate) history: Vec<model::Event>,
    /// What the history calls receives that were in the line.
    #[cfg(test)]
    aliases: std::collections::BTreeMap<Key, Key>,
}

impl Machine {
    pub(crate) fn new(config: MessageConfig) -> Self {
        Self {
            config,
            eager: 0,
            // The number of ranks is not known yet: no window is larger than that of a job of one.
            window: window(&config, 1),
            ordered: false,
            copies: None,
            peers: Vec::new(),
            peer_of: Map::default(),
            pairs: Vec::new(),
            pair_of: Map::default(),
            last_pair: (u64::MAX, 0),
            contexts: Vec::new(),
            context_of: Map::default(),
            sends: Slab::new(),
            receives: Slab::new(),
            stored: Slab::new(),
            posted: Chains::new(),
            direct: Direct::default(),
            line: Line::default(),
            unexpected: Chains::new(),
            staging: Staging::default(),
            withheld: Vec::new(),
            lender: Lender::new(lent::LOANS),
            unread: VecDeque::new(),
            patience: 0,
            part_read: false,
            orders: 0,
            ready: VecDeque::new(),
            unblocked: None,
            endings: 0,
            pool: Vec::new(),
            scratch: Vec::new(),
            counts: Counts::default(),
            #[cfg(test)]
            history: Vec::new(),
            #[cfg(test)]
            aliases: Default::default(),
        }
    }

    /// Learns of the job: its ranks, the largest Medium message, whether messages keep their order, and the memory
    /// that messages may be written to.
    pub(crate) fn set_up(&mut self, ranks: u32, medium: u64, ordered: bool, staging: Option<Block>) {
        self.eager = medium.min(self.config.eager as u64);
        self.ordered = ordered;
        self.window = window(&self.config, ranks);
        let Block { offset, len } = staging.unwrap_or(Block { offset: 0, len: 0 });
        self.staging = Staging::new(offset, len);
    }

    fn advertises(&self) -> bool {
        self.ordered && self.config.protocol.advertises()
    }

    fn elides(&self) -> bool {
        self.config.protocol == Protocol::Elided
    }

    /// Messages that are being sent, receives, and messages that nobody has asked for.
    pub(crate) fn used(&self) -> [u64; 3] {
        [self.sends.len(), self.receives.len() + self.line.used(), self.stored.len()].map(|count| count as u64)
    }

    /// Chooses how long messages travel from now on. Nothing is under way, and nothing waits to be received, but
    /// for eager messages that were sent before this was known, which travel alike in all protocols.
    pub(crate) fn choose(&mut self, protocol: Protocol, eager: usize, medium: u64) {
        (self.config.protocol, self.config.eager) = (protocol, eager);
        self.eager = medium.min(eager as u64);
    }

    /// The place of a peer.
    fn peer(&mut self, rank: u32) -> usize {
        let next = self.peers.len() as u32;
        let index = *self.peer_of.entry(rank).or_insert(next);
        if index == next {
            self.peers.push(Peer::new(rank));
        }
        index as usize
    }

    /// The place of a peer in a communicator, of which a message or advertisement of the peer has come; `None`,
    /// and the peer is faulty, if it is no member, or has named more communicators that this rank has not made yet
    /// than it can have messages under way.
    #[inline(always)]
    fn pair_of_arrival(&mut self, context: u32, rank: u32) -> Option<usize> {
        let name = u64::from(context) << 32 | u64::from(rank);
        let pair = if self.last_pair.0 == name {
            self.last_pair.1 as usize
        } else {
            self.pair_of_another_arrival(context, rank)?
        };
        let peer = &self.peers[self.pairs[pair].peer as usize];
        if peer.gone.is_some() && peer.is_faulty() {
            self.ignore();
            return None;
        }
        Some(pair)
    }

    #[inline(never)]
    fn pair_of_another_arrival(&mut self, context: u32, rank: u32) -> Option<usize> {
        if !self.pair_of.contains_key(&(u64::from(context) << 32 | u64::from(rank))) {
            self.admit_pair(context, rank)?;
        }
        Some(self.find_pair(context, rank))
    }

    #[cold]
    fn admit_pair(&mut self, context: u32, rank: u32) -> Option<()> {
        let (peer, most) = (self.peer(rank), 2 * self.window.messages + 2 * adverts::ADVERTS);
        let index = self.context_of.get(&context).map(|index| *index as usize);
        let admitted = match index.and_then(|index| self.contexts[index].members.as_ref()) {
            Some(members) => members.binary_search(&rank).is_ok(),
            None => {
                self.peers[peer].unopened += 1;
                self.peers[peer].unopened <= most
            }
        };
        if !admitted {
            self.fault(rank);
        }
        admitted.then_some(())
    }

    /// Learns of a communicator's members, given in ascending order. Peers that have sent in it without being
    /// members are faulty.
    pub(crate) fn open(&mut self, context: u32, members: impl IntoIterator<Item = u32>) {
        let index = self.context(context);
        if self.contexts[index].members.is_some() {
            return;
        }
        let mut members: Vec<u32> = members.into_iter().collect();
        members.sort_unstable();
        let mut early: Vec<u32> = Vec::new();
        for name in self.pair_of.keys().filter(|name| (**name >> 32) as u32 == context) {
            early.push(*name as u32);
        }
        // The order of a table is none.
        early.sort_unstable();
        for rank in early {
            let peer = self.peer(rank);
            self.peers[peer].unopened = self.peers[peer].unopened.saturating_sub(1);
            if members.binary_search(&rank).is_err() {
                self.fault(rank);
            }
        }
        self.contexts[index].members = Some(members);
    }

    /// The number of a communicator's next collective operation.
    pub(crate) fn next_operation(&mut self, context: u32) -> u32 {
        let index = self.context(context);
        let operations = &mut self.contexts[index].operations;
        std::mem::replace(operations, operations.wrapping_add(1))
    }

    /// A peer broke the protocol: it counts as lost, and what it sends from now on is ignored.
    #[cold]
    fn fault(&mut self, rank: u32) {
        self.ignore();
        self.lose(rank, Some(LossCause::Faulty));
    }

    /// The place of a peer in a communicator.
    #[inline(always)]
    fn pair(&mut self, context: u32, rank: u32) -> usize {
        let name = u64::from(context) << 32 | u64::from(rank);
        if self.last_pair.0 == name { self.last_pair.1 as usize } else { self.find_pair(context, rank) }
    }

    #[inline(never)]
    fn find_pair(&mut self, context: u32, rank: u32) -> usize {
        let name = u64::from(context) << 32 | u64::from(rank);
        let next = self.pairs.len() as u32;
        let index = *self.pair_of.entry(name).or_insert(next);
        if index == next {
            let peer = self.peer(rank) as u32;
            self.pairs.push(Pair::new(peer));
        }
        self.last_pair = (name, index);
        index as usize
    }

    /// The place of a communicator.
    fn context(&mut self, number: u32) -> usize {
        let next = self.contexts.len() as u32;
        let index = *self.context_of.entry(number).or_insert(next);
        if index == next {
            self.contexts.push(Context::default());
        }
        index as usize
    }

    /// An empty buffer.
    pub(crate) fn buffer(&mut self) -> Vec<u8> {
        self.pool.pop().unwrap_or_default()
    }

    /// Takes back a buffer.
    pub(crate) fn recycle(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() != 0 && buffer.capacity() <= KEPT && self.pool.len() < POOL {
            buffer.clear();
            self.pool.push(buffer);
        }
    }

    /// Takes back memory that a message was written to.
    pub(crate) fn release(&mut self, block: Block) {
        self.staging.give_back(block);
    }

    /// A peer sent what belongs to nothing.
    #[cold]
    fn ignore(&mut self) {
        self.counts.ignored += 1;
    }

    /// Notes that something is to be sent to a peer.
    fn mark_ready(&mut self, peer: usize) {
        let state = &mut self.peers[peer];
        if !state.is_ready && state.gone.is_none() {
            state.is_ready = true;
            self.ready.push_back(peer as u32);
        }
    }

    fn queue_control(&mut self, peer: usize, control: Control) {
        if self.peers[peer].gone.is_none() {
            self.peers[peer].queue.push_back(advance::Item::Control(control));
            self.mark_ready(peer);
        }
    }

    /// Answers a peer, which is faulty if it asks for more than it can have advertised.
    fn answer(&mut self, peer: usize, control: Control) {
        let (most, state) = (2 * adverts::ADVERTS + self.pairs.len() as u32, &mut self.peers[peer]);
        if state.answers >= most {
            let rank = state.rank;
            return self.fault(rank);
        }
        if state.gone.is_none() {
            state.answers += 1;
            self.counts.revocations += 1;
            self.queue_control(peer, control);
        }
    }

    /// Whether something is to be sent.
    pub(crate) fn has_work(&self) -> bool {
        !(self.ready.is_empty() && self.unread.is_empty())
    }

    /// Whether there is a free part of the staging memory that is so long.
    #[cfg(test)]
    pub(crate) fn staging_has(&self, bytes: u64) -> bool {
        self.staging.has(bytes)
    }

    /// Bytes of the staging memory that are withheld.
    #[cfg(test)]
    pub(crate) fn withheld(&self) -> u64 {
        self.withheld.iter().map(|(_, block)| block.len.next_multiple_of(64)).sum()
    }

    /// What takes room here: sends, receives, messages that nobody asked for, and staging, free or withheld.
    #[cfg(test)]
    fn load(&self) -> (usize, usize, usize, u64) {
        (
            self.sends.len(),
            self.receives.len() + self.line.used(),
            self.stored.len(),
            self.staging.free() + self.withheld(),
        )
    }

    /// The state of a receive's entry.
    fn receive_mut(&mut self, key: Key) -> &mut Receive {
        self.receives.get_mut(key).expect("a posted receive has its entry")
    }
}
