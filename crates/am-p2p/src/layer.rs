//! The layer: handlers that give the state machine what arrives, progress that sends what it wants sent, and
//! waits.

use crate::communicator::Communicator;
use crate::config::{Counts, MessageConfig};
use crate::error::MessageError;
use crate::machine::{
    Block, Control, Credit, Envelope, Keep, Machine, Part, Read, Source, Stored, Unsent, Wire, Word,
};
use crate::segment;
use am_core::layer::{Outbox, Progress};
use am_core::slab::Key;
use am_core::transport::LentFault;
use am_core::{
    Address, Category, Endpoint, Handlers, HasLayer, Lane, PeerStatus, PollError, Rank, RegisterError, Reply,
    ReplyError, Request, SendError, Transport, WaitError, WaitReason, Words,
};
use am_pgas::allocator::{AllocationError, LocalArray, SegmentAllocation, SegmentAllocator};
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Steps of a wait between two looks at whether its peer has left.
const LOOKS: u32 = 64;

/// Bytes of a part of a long message that is placed in the receiver's segment: the receiver copies one out while
/// the next is written.
pub(crate) const PART: u64 = 64 << 10;

/// The same over a network, which the sender does not see as memory: a part costs several times what its receiver
/// takes to copy it out. A network may keep a poll waiting until it has sent one, so that it is not larger.
const FAR_PART: u64 = 256 << 10;

/// The handlers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requests {
    pub(crate) eager: Request<[u32; 6]>,
    pub(crate) word: Request<WordArguments>,
    control: Request<Words>,
    part: Request<[u32; 11]>,
    read: Request<[u32; 9]>,
}

impl Requests {
    pub(crate) fn control(&self) -> Request<Words> {
        self.control
    }

    pub(crate) fn part(&self) -> Request<[u32; 11]> {
        self.part
    }
}

/// A request whose handle was dropped.
#[derive(Debug)]
pub(crate) enum DroppedHandle {
    Send(Key),
    /// A send whose bytes were with a call that has unwound.
    Lent(Key, Vec<u8>),
    Receive(Key),
    Aside(Key),
    /// A send from memory of the segment, and its owner.
    Placed(Key, Keep),
    /// A receive to memory of the segment, and its owner.
    Landing(Key, Keep),
}

/// Requests whose handles were dropped, until the layer takes note.
#[derive(Debug, Default)]
pub(crate) struct Dropped {
    all: Mutex<Vec<DroppedHandle>>,
    any: AtomicBool,
}

impl Dropped {
    pub(crate) fn push(&self, gone: DroppedHandle) {
        // A panic elsewhere cannot leave the list half changed.
        self.all.lock().unwrap_or_else(PoisonError::into_inner).push(gone);
        // Relaxed: the lock orders what matters, and the next look sees a push that one misses.
        self.any.store(true, Ordering::Relaxed);
    }

    /// Whether there are any.
    #[inline]
    fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    fn take(&self) -> Vec<DroppedHandle> {
        self.any.store(false, Ordering::Relaxed);
        std::mem::take(&mut *self.all.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The state of two-sided messages: the part of an endpoint's state that [`Communicator`](crate::Communicator)s
/// work on.
#[derive(Debug)]
pub struct Messages {
    pub(crate) machine: Machine,
    pub(crate) requests: Requests,
    pub(crate) dropped: Arc<Dropped>,
    /// Tells this endpoint's communicators and requests from others.
    pub(crate) id: u64,
    /// Which endpoint of its rank this is, once it is known.
    pub(crate) endpoint: Option<u16>,
    /// Keeps the memory that messages are written to.
    staging: Option<LocalArray<u8>>,
    /// The proof of what a blocking call lends of the segment, and how many calls have.
    pub(crate) proof: Option<LocalArray<u64>>,
    pub(crate) tickets: u32,
    /// A part of a message of the segment that is answered with.
    scratch: Vec<u8>,
    losses_seen: u32,
    /// Lost ranks that receives from any source do not fail for.
    pub(crate) acknowledged: Vec<Rank>,
    /// Handles of receives that are over, for the next ones: a clone of one takes an atomic operation.
    spare: Vec<Communicator>,
}

/// Handles that are kept.
const SPARE: usize = 64;

static IDS: AtomicU64 = AtomicU64::new(0);

/// A digest of the settings, by which tables of handlers differ where these do.
fn digest(config: &MessageConfig) -> u32 {
    let numbers = [
        config.protocol as u64,
        config.eager as u64,
        config.unexpected,
        config.staging,
        u64::from(config.lent_cost),
    ];
    let mixed = numbers.iter().fold(0u64, |all, number| {
        let mixed = (all ^ number).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 29)
    });
    mixed as u32
}

impl Messages {
    /// Registers the layer with default settings.
    ///
    /// # Errors
    /// As [`register_with`](Self::register_with).
    pub fn register<S: HasLayer<Self>>(handlers: &mut Handlers<S>) -> Result<Self, RegisterError> {
        Self::register_with(handlers, MessageConfig::default())
    }

    /// Registers the layer and makes its state. Allocates. Settings that differ between ranks are an error at
    /// attach.
    ///
    /// # Errors
    /// [`RegisterError`] if the layer is there already, or the table is full.
    pub fn register_with<S: HasLayer<Self>>(
        handlers: &mut Handlers<S>,
        config: MessageConfig,
    ) -> Result<Self, RegisterError> {
        let mut layer = handlers.layer::<Self>("p2p")?;
        // Ranks whose settings differ find different names at attach.
        let name = format!("eager-{}-{:08x}", config.protocol.name(), digest(&config));
        let eager = layer.one_way(&name, |messages: &mut Self, from, words: [u32; 6], payload| {
            let [context, tag, sequence, kind, taken, units] = words;
            let credit = Credit { messages: taken, units };
            messages.machine.on_eager(from.rank.0, Envelope { context, tag, sequence, kind }, credit, &payload);
        })?;
        let word =
            layer.one_way("word", |messages: &mut Self, from, arguments: WordArguments, _| {
                match word_of(arguments) {
                    (envelope, credit, Some(word)) => {
                        messages.machine.on_word(from.rank.0, envelope, credit, word)
                    }
                    (.., None) => messages.machine.counts.ignored += 1,
                }
            })?;
        let control =
            layer.one_way("control", |messages: &mut Self, from, words: Words, _| {
                match Control::decode(&words) {
                    Some((control, credit)) => messages.machine.on_control(from.rank.0, control, credit),
                    None => messages.machine.counts.ignored += 1,
                }
            })?;
        let part = layer.one_way("part", |messages: &mut Self, from, words: [u32; 11], payload| {
            messages.machine.on_part(from.rank.0, &Part::decode(words), &payload);
        })?;
        let answer = layer.reply("answer", |messages: &mut Self, from, [a, b, c, d]: [u32; 4], payload| {
            let long = |low, high| u64::from(low) | u64::from(high) << 32;
            let part = Part { receive: Key::from_u64(long(a, b)), at: long(c, d), envelope: None, copied: 0 };
            if payload.is_empty() {
                return messages.machine.on_no_answer(from.rank.0, part.receive);
            }
            messages.machine.on_part(from.rank.0, &part, &payload);
        })?;
        let read = layer.request_largest("read", move |messages: &mut Self, token, words: [u32; 9], _| {
            let read = Read::decode(words);
            let Self { machine, scratch, .. } = messages;
            let reader = token.source().rank.0;
            let answered = match machine.read(reader, read.send, read.at, read.len) {
                None => Err(token),
                // No receiver asks for more at once: a faulty one is not to have so much memory taken.
                Some(Stored::Placed(_)) if u64::from(read.len) > PART => Err(token),
                Some(Stored::Here(bytes)) => answer_read(token, answer, &read, bytes),
                Some(Stored::Placed(at)) => {
                    scratch.resize(read.len as usize, 0);
                    let copied = token.segment().read(at, scratch).is_ok();
                    if copied { answer_read(token, answer, &read, scratch) } else { Err(token) }
                }
            };
            if let Err(token) = answered {
                // The reader would wait for ever otherwise, and so would the sender of a message that is there.
                machine.on_bad_read(reader, read.send);
                let words = answer_words(&read);
                // Without a payload it is never too long; a reader that is gone misses nothing.
                let _ = token.reply_medium(answer, words, &[]);
            }
        })?;
        layer.progress(|messages, outbox| {
            messages.process_dropped();
            let read = if messages.machine.part_read { Progress::Advanced } else { Progress::Idle };
            if !messages.machine.has_work() {
                messages.machine.part_read = false;
                return Ok(read);
            }
            let endpoint = outbox.address().endpoint;
            let mut wire = OutboxWire { outbox, requests: messages.requests, endpoint };
            let advanced = messages.machine.advance(&mut wire);
            messages.machine.part_read = false;
            Ok(advanced?.max(read))
        });
        layer.pending(|messages| messages.machine.has_work() || messages.dropped.any());
        Ok(Self {
            machine: Machine::new(config),
            requests: Requests { eager, word, control, part, read },
            dropped: Arc::default(),
            // Relaxed: numbers only have to differ.
            id: IDS.fetch_add(1, Ordering::Relaxed),
            endpoint: None,
            staging: None,
            proof: None,
            tickets: 0,
            scratch: Vec::new(),
            losses_seen: 0,
            acknowledged: Vec::new(),
            spare: Vec::new(),
        })
    }

    /// What has been counted so far.
    pub fn counts(&self) -> Counts {
        self.machine.counts
    }

    /// The settings.
    pub fn config(&self) -> MessageConfig {
        self.machine.config
    }

    /// A clone of a communicator's handle.
    #[inline(always)]
    pub(crate) fn handle(&mut self, of: &Communicator) -> Communicator {
        match self.spare.pop() {
            Some(spare) if Arc::ptr_eq(&spare.shared, &of.shared) => spare,
            other => Self::clone_handle(of, other),
        }
    }

    #[inline(never)]
    fn clone_handle(of: &Communicator, _: Option<Communicator>) -> Communicator {
        of.clone()
    }

    /// Lets go of all handles that are kept.
    pub(crate) fn forget_handles(&mut self) {
        self.spare.clear();
    }

    /// Takes back a handle.
    #[inline(always)]
    pub(crate) fn take_back(&mut self, handle: Option<Communicator>) {
        if self.spare.len() < SPARE
            && let Some(handle) = handle
        {
            self.spare.push(handle);
        }
    }

    /// Lets requests go on alone whose handles were dropped.
    #[inline(always)]
    pub(crate) fn process_dropped(&mut self) {
        if self.dropped.any() {
            self.process_all_dropped();
        }
    }

    #[inline(never)]
    fn process_all_dropped(&mut self) {
        for gone in self.dropped.take() {
            match gone {
                DroppedHandle::Send(key) => self.machine.drop_send(key),
                DroppedHandle::Lent(key, bytes) => {
                    self.machine.adopt(key, &bytes);
                    self.machine.drop_send(key);
                }
                DroppedHandle::Receive(key) => self.machine.drop_receive(key),
                DroppedHandle::Aside(key) => self.machine.drop_aside(key),
                DroppedHandle::Placed(key, keep) => self.machine.keep_send(key, keep),
                DroppedHandle::Landing(key, keep) => self.machine.keep_receive(key, keep),
            }
        }
    }
}

fn answer_words(read: &Read) -> [u32; 4] {
    let (receive, at) = (read.receive.to_u64(), read.at);
    [receive as u32, (receive >> 32) as u32, at as u32, (at >> 32) as u32]
}

/// Answers a read; the token is given back if the reader is there and the answer cannot go to it: it has asked for
/// more than an answer holds, or for it where it has no memory.
fn answer_read<'t>(
    token: am_core::Token<'t>,
    answer: Reply<[u32; 4]>,
    read: &Read,
    bytes: &[u8],
) -> Result<(), am_core::Token<'t>> {
    let words = answer_words(read);
    let answered = match read.offset {
        Some(offset) => token.reply_long(answer, words, bytes, offset),
        None => token.reply_medium(answer, words, bytes),
    };
    match answered {
        Err(rejected) if !matches!(rejected.error, ReplyError::Gone { .. }) => Err(rejected.token),
        // The reader's loss is told elsewhere.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The network, as progress functions have it.
struct OutboxWire<'a, 'o> {
    outbox: &'a mut Outbox<'o>,
    requests: Requests,
    endpoint: u16,
}

impl OutboxWire<'_, '_> {
    fn address(&self, to: u32) -> Address {
        Address { rank: Rank(to), endpoint: self.endpoint }
    }
}

/// What an error of sending means to the protocols.
pub(crate) fn unsent(error: SendError) -> Unsent<SendError> {
    match error {
        SendError::WouldBlock { .. } => Unsent::Busy,
        SendError::Finished { .. } => Unsent::Gone,
        error if error.lost_rank().is_some() => Unsent::Gone,
        error => Unsent::Failed(error),
    }
}

/// The most bytes of a part, of what the network carries at most.
pub(crate) fn longest_part(placed: bool, near: bool, most: impl FnOnce(Category) -> Option<u64>) -> u64 {
    let long = if near { PART } else { FAR_PART };
    if placed { most(Category::Long).unwrap_or(0).min(long) } else { most(Category::Medium).unwrap_or(0) }
}

impl Wire for OutboxWire<'_, '_> {
    type Error = SendError;

    fn control(&mut self, to: u32, control: &Control, credit: Credit) -> Result<(), Unsent<SendError>> {
        self.outbox.try_request(self.address(to), self.requests.control, control.encode(credit)).map_err(unsent)
    }

    fn eager(
        &mut self,
        to: u32,
        envelope: &Envelope,
        credit: Credit,
        bytes: &[u8],
    ) -> Result<(), Unsent<SendError>> {
        let sent = match Word::of(bytes) {
            Some(word) => {
                let arguments = word_arguments(envelope, credit, word);
                self.outbox.try_request(self.address(to), self.requests.word, arguments)
            }
            None => {
                let words = eager_words(envelope, credit);
                self.outbox.try_request_medium(self.address(to), self.requests.eager, words, bytes)
            }
        };
        sent.map_err(unsent)
    }

    fn part(&mut self, to: u32, part: &Part, bytes: &[u8], offset: Option<u64>) -> Result<(), Unsent<SendError>> {
        let (to, handler, words) = (self.address(to), self.requests.part, part.encode());
        match offset {
            Some(offset) => self.outbox.try_request_long(to, handler, words, bytes, offset),
            None => self.outbox.try_request_medium(to, handler, words, bytes),
        }
        .map_err(unsent)
    }

    fn read(&mut self, to: u32, read: &Read) -> Result<(), Unsent<SendError>> {
        self.outbox.try_request(self.address(to), self.requests.read, read.encode()).map_err(unsent)
    }

    fn read_lent(&mut self, from: u32, lent: &Source, at: u64, out: &mut [u8]) -> Result<(), LentFault> {
        match lent {
            Source::Process(lent) => self.outbox.read_lent(self.address(from), lent, at, out),
            Source::Segment(lent) => {
                let read = |offset, out: &mut [u8]| self.outbox.read_segment(Rank(from), offset, out);
                segment::read_proven(lent, at, out, read)
            }
        }
    }

    fn read_own(&mut self, at: u64, out: &mut [u8]) {
        let me = self.outbox.rank();
        let read = self.outbox.read_segment(me, at, out).expect("a rank sees its own segment");
        read.expect("messages are sent from inside the segment");
    }

    fn maps(&self, to: u32) -> bool {
        // A message to oneself is sent like one to others.
        Rank(to) != self.outbox.rank() && self.outbox.maps_segment(Rank(to))
    }

    fn copy_own(&mut self, from: Range<u64>, to: u32, offset: u64) -> bool {
        matches!(self.outbox.copy_segment(from, Rank(to), offset), Some(Ok(())))
    }

    fn longest_part(&self, to: u32, placed: bool) -> u64 {
        let most = |category| self.outbox.max_payload(self.address(to), category, Lane::Request, 11);
        longest_part(placed, self.maps(to), most)
    }

    fn longest_read(&self, to: u32, placed: bool) -> u32 {
        let most = longest_part(placed, true, |category| {
            self.outbox.max_payload(self.address(to), category, Lane::Reply, 4)
        });
        // Handlers have one bound for the answers to all ranks: where some take less than this one, all get less.
        let bound = if placed { None } else { self.outbox.reply_bound(self.requests.read) };
        let most = most.min(bound.map_or(u64::MAX, u64::from));
        u32::try_from(most).unwrap_or(u32::MAX).max(1)
    }
}

#[inline]
pub(crate) fn eager_words(envelope: &Envelope, credit: Credit) -> [u32; 6] {
    [envelope.context, envelope.tag, envelope.sequence, envelope.kind, credit.messages, credit.units]
}

/// The arguments of an eager message whose bytes are among them: the context and the tag, the number and the type,
/// the credit, the bytes and how many these are.
pub(crate) type WordArguments = (u64, u64, u64, u64, u32);

#[inline(always)]
pub(crate) fn word_arguments(envelope: &Envelope, credit: Credit, word: Word) -> WordArguments {
    let pair = |low, high| u64::from(low) | u64::from(high) << 32;
    let (matched, numbered) = (pair(envelope.context, envelope.tag), pair(envelope.sequence, envelope.kind));
    (matched, numbered, pair(credit.messages, credit.units), word.bits, word.bytes())
}

#[inline(always)]
fn word_of((matched, numbered, credit, bits, len): WordArguments) -> (Envelope, Credit, Option<Word>) {
    let high = |pair: u64| (pair >> 32) as u32;
    let (context, tag) = (matched as u32, high(matched));
    let envelope = Envelope { context, tag, sequence: numbered as u32, kind: high(numbered) };
    (envelope, Credit { messages: credit as u32, units: high(credit) }, Word::new(bits, len))
}

/// The largest eager message that every rank takes, and whether messages of all pairs keep their order.
pub(crate) fn medium<T: Transport, S>(endpoint: &Endpoint<T, S>) -> (u64, bool) {
    let number = endpoint.address().endpoint;
    let (mut medium, mut ordered) = (u64::MAX, true);
    for peer in (0..endpoint.ranks()).map(|rank| Address { rank: Rank(rank), endpoint: number }) {
        medium = medium.min(endpoint.max_payload(peer, Category::Medium, Lane::Request, 6).unwrap_or(0));
        ordered &= endpoint.limits(peer).is_some_and(|limits| limits.ordered);
    }
    (medium, ordered)
}

/// Learns of the job, when the first communicator is made.
pub(crate) fn set_up<T: Transport, S: HasLayer<Messages> + HasLayer<SegmentAllocator>>(
    endpoint: &mut Endpoint<T, S>,
) {
    if endpoint.layer::<Messages>().endpoint.is_some() {
        return;
    }
    let me = endpoint.address();
    let wanted = endpoint.layer::<Messages>().config().staging.min(endpoint.segment().len() as u64 / 4);
    let wanted = wanted / 64 * 64;
    let mut staging = None;
    // Other endpoints of a rank have no memory of their own.
    if wanted != 0 && me.endpoint == 0 {
        staging = match endpoint.allocate_local::<u8>(wanted) {
            Ok(array) => Some(array),
            Err(AllocationError::Exhausted { largest, .. }) if largest >= 128 => {
                endpoint.allocate_local::<u8>((largest / 2 / 64) * 64).ok()
            }
            Err(_) => None,
        };
    }
    // Without it, blocking calls lend nothing of the segment.
    let proof = if me.endpoint == 0 { endpoint.allocate_local::<u64>(1).ok() } else { None };
    let (medium, ordered) = medium(endpoint);
    let ranks = endpoint.ranks();
    let block = staging.as_ref().map(|array| Block { offset: array.slice().offset(), len: array.slice().len() });
    let layer = endpoint.layer_mut::<Messages>();
    layer.machine.set_up(ranks, medium, ordered, block);
    (layer.staging, layer.proof, layer.endpoint) = (staging, proof, Some(me.endpoint));
}

/// Ends what is under way with ranks that are newly lost, after what they sent before has been looked at.
/// Whether there were any.
#[inline]
pub(crate) fn check_losses<T: Transport, S: HasLayer<Messages>>(endpoint: &mut Endpoint<T, S>) -> bool {
    let losses = endpoint.losses();
    let new = endpoint.layer_unscheduled::<Messages>().losses_seen != losses;
    if new {
        find_losses(endpoint, losses);
    }
    new
}

#[cold]
fn find_losses<T: Transport, S: HasLayer<Messages>>(endpoint: &mut Endpoint<T, S>, losses: u32) {
    let lost: Vec<_> = endpoint
        .others()
        .filter_map(|peer| match endpoint.status(peer) {
            Some(PeerStatus::Lost(cause)) => Some((peer, cause)),
            _ => None,
        })
        .collect();
    endpoint.serve_through();
    let me = endpoint.address().endpoint;
    let layer = endpoint.layer_mut::<Messages>();
    // Those that are counted before their status says so are looked for again.
    layer.losses_seen = losses.min(lost.len() as u32);
    for (peer, cause) in lost.into_iter().filter(|(peer, _)| peer.endpoint == me) {
        layer.machine.lose(peer.rank.0, Some(cause));
    }
    release_withheld(endpoint);
}

/// Memory that was withheld for lost ranks is given back where these write no more.
fn release_withheld<T: Transport, S: HasLayer<Messages>>(endpoint: &mut Endpoint<T, S>) {
    if !endpoint.layer_unscheduled::<Messages>().machine.withholds() {
        return;
    }
    let number = endpoint.address().endpoint;
    let others: Vec<Rank> = (0..endpoint.ranks()).map(Rank).collect();
    let silent: Vec<bool> =
        others.iter().map(|rank| endpoint.writes_no_more(Address { rank: *rank, endpoint: number })).collect();
    endpoint.layer_unscheduled::<Messages>().machine.release_withheld(|rank| silent[rank as usize]);
}

/// Ends what is under way with a rank that has left by itself, after what it sent before has been looked at.
/// Whether it has.
fn check_finished<T: Transport, S: HasLayer<Messages>>(endpoint: &mut Endpoint<T, S>, peer: Address) -> bool {
    let left = endpoint.status(peer) == Some(PeerStatus::Finished) && peer != endpoint.address();
    if left {
        endpoint.serve_through();
        endpoint.layer_mut::<Messages>().machine.lose(peer.rank.0, None);
        release_withheld(endpoint);
    }
    left
}

/// Lets requests go on alone whose handles were dropped, before a look at what they hold.
pub(crate) fn note_dropped<T: Transport, S: HasLayer<Messages>>(endpoint: &mut Endpoint<T, S>) {
    if endpoint.layer_unscheduled::<Messages>().dropped.any() {
        endpoint.layer_mut::<Messages>().process_dropped();
    }
}

/// Whom a wait is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Awaited<'a> {
    One(Rank),
    /// Any of these.
    Any(&'a [Rank]),
}

/// Waits until `done` yields something. What is waited for ends when its peers are lost or leave.
pub(crate) fn wait<T: Transport, S: HasLayer<Messages>, R>(
    endpoint: &mut Endpoint<T, S>,
    awaited: Awaited<'_>,
    mut done: impl FnMut(&mut Endpoint<T, S>) -> Result<Option<R>, MessageError>,
) -> Result<R, MessageError> {
    let number = endpoint.address().endpoint;
    let address = |rank| Address { rank, endpoint: number };
    let (mut steps, mut idles) = (0u32, endpoint.idles());
    endpoint.layer_unscheduled::<Messages>().machine.call_begins(true);
    let outcome = endpoint.wait_through(|endpoint| {
        let mut again = None;
        // `done` stands here alone, so that it is part of this loop.
        loop {
            if let Some(result) = done(endpoint)? {
                return Ok(ControlFlow::Break(result));
            }
            if let Some(reason) = again {
                return Ok(ControlFlow::Continue(reason));
            }
            let mut found = check_losses(endpoint);
            steps = steps.wrapping_add(1);
            let look = std::mem::replace(&mut idles, endpoint.idles()) != idles || steps.is_multiple_of(LOOKS);
            let reason = match awaited {
                Awaited::One(rank) => {
                    found |= look && check_finished(endpoint, address(rank));
                    endpoint.shape().peer(address(rank)).map_or(WaitReason::Message, WaitReason::Collective)
                }
                Awaited::Any(ranks) => {
                    for rank in ranks.iter().filter(|_| look) {
                        found |= check_finished(endpoint, address(*rank));
                    }
                    WaitReason::Message
                }
            };
            if !found {
                return Ok(ControlFlow::Continue(reason));
            }
            // What was found may have ended it, and nothing else may come.
            again = Some(reason);
        }
    });
    endpoint.layer_unscheduled::<Messages>().machine.wait_ends();
    match outcome {
        Err(error @ MessageError::Wait(WaitError::TimedOut(_))) => timed_out(endpoint, error, &mut done),
        outcome => outcome,
    }
}

/// What is waited for, if it has come.
type Done<'d, T, S, R> = dyn FnMut(&mut Endpoint<T, S>) -> Result<Option<R>, MessageError> + 'd;

/// A wait has timed out, whose last look may have brought what was waited for.
#[cold]
fn timed_out<T: Transport, S: HasLayer<Messages>, R>(
    endpoint: &mut Endpoint<T, S>,
    error: MessageError,
    done: &mut Done<'_, T, S, R>,
) -> Result<R, MessageError> {
    done(endpoint)?.ok_or_else(|| name_waiting(endpoint, error))
}

/// Says in the report of a time-out which messages are under way, and what they lack.
#[cold]
fn name_waiting<T: Transport, S: HasLayer<Messages>>(
    endpoint: &mut Endpoint<T, S>,
    mut error: MessageError,
) -> MessageError {
    if let MessageError::Wait(WaitError::TimedOut(report)) = &mut error {
        let machine = &mut endpoint.layer_mut::<Messages>().machine;
        let mut clauses = machine.under_way();
        if clauses.is_empty() {
            clauses.push(std::mem::take(&mut report.waiting_for));
        }
        clauses.extend(machine.exhausted());
        clauses.extend(machine.unasked());
        report.waiting_for = clauses.join("; ");
    }
    error
}

/// Serves what has arrived, once, without blocking, and learns which of the peers awaited are lost or have left.
pub(crate) fn serve<T: Transport, S: HasLayer<Messages>>(
    endpoint: &mut Endpoint<T, S>,
    awaited: Awaited<'_>,
) -> Result<(), PollError> {
    let polled = endpoint.poll_through();
    check_losses(endpoint);
    if matches!(polled, Ok(0)) {
        let number = endpoint.address().endpoint;
        let ranks = match &awaited {
            Awaited::One(rank) => std::slice::from_ref(rank),
            Awaited::Any(ranks) => ranks,
        };
        for rank in ranks {
            check_finished(endpoint, Address { rank: *rank, endpoint: number });
        }
    }
    polled.map(drop)
}
