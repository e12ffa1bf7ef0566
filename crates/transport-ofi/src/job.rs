//! From an open endpoint to its job: the card that it hands to the others, and jobs within one process.

use crate::conduit::{Conduit, Settings};
use crate::config::OfiConfig;
use crate::error::OfiError;
use crate::memory::OfiMemory;
use crate::provider::{self, Offer};
use crate::sys::{LONGEST_NAME, Neighbour, Opening, Port, Remote, SETOPT};
use crate::wire::Sizes;
use am_core::{Address, Memory, Rank, Segment, Shape, Span};
use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

/// Active messages over libfabric: the transport of one endpoint. It can be sent to the thread that uses it.
pub type Ofi<M = OfiMemory> = Conduit<Port, M>;

/// Buffers for messages under way.
const FRAMES: u32 = 128;
/// Slots on offer to a provider that keeps what finds none: they are on offer again as soon as something has come.
const MANAGED_SLOTS: u32 = 1024;
/// Slots that take several messages, and their size: each is done with once the longest message would not fit.
const SHARED_SLOTS: u32 = 4;
const SHARED_SLOT_BYTES: usize = 256 << 10;
/// Longest messages that such a slot takes at least.
const LEAST_OF_SHARED: usize = 8;
/// How long an injected frame may be missing at a peer once one has failed.
const PATIENCE: Span = Span::from_secs(1);

/// What an endpoint tells the others of itself, as text: they have to use the same provider and sizes, and need to
/// know where it is and what its segment is called.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Card {
    provider: String,
    medium: usize,
    window: u32,
    segment_bytes: u64,
    remote: Remote,
    name: Vec<u8>,
}

impl fmt::Display for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { provider, medium, window, segment_bytes, remote: Remote { key, base, neighbour }, name } = self;
        let Neighbour { process, mark_at, mark } = neighbour;
        write!(f, "ofi3 {provider} {medium} {window} {segment_bytes} {key} {base} ")?;
        write!(f, "{process} {mark_at} {mark} ")?;
        name.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Card {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        fn number<T: FromStr>(text: Option<&str>) -> Result<T, ()> {
            text.and_then(|text| text.parse().ok()).ok_or(())
        }
        let mut words = text.split(' ');
        if words.next() != Some("ofi3") {
            return Err(());
        }
        let provider = words.next().ok_or(())?.to_owned();
        let (medium, window) = (number(words.next())?, number(words.next())?);
        let segment_bytes = number(words.next())?;
        let (key, base) = (number(words.next())?, number(words.next())?);
        let (process, mark_at) = (number(words.next())?, number(words.next())?);
        let mark = number(words.next())?;
        let remote = Remote { key, base, neighbour: Neighbour { process, mark_at, mark } };
        let digits = words.next().filter(|digits| !digits.is_empty() && digits.is_ascii()).ok_or(())?;
        let (pairs, []) = digits.as_bytes().as_chunks::<2>() else { return Err(()) };
        let byte = |pair: &[u8; 2]| {
            let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
            Ok((high.ok_or(())? << 4 | low.ok_or(())?) as u8)
        };
        let name = pairs.iter().map(byte).collect::<Result<_, _>>()?;
        let name: Vec<u8> = name;
        let end = words.next().is_none() && name.len() <= LONGEST_NAME;
        end.then_some(Self { provider, medium, window, segment_bytes, remote, name }).ok_or(())
    }
}

impl Card {
    /// What has to be the same on all ranks.
    fn common(&self) -> String {
        let Self { provider, medium, window, .. } = self;
        format!("{provider} with Mediums of {medium} bytes and windows of {window}")
    }
}

/// Whether a provider of this version of the library says of a message that it is on its way when it had no place
/// for it: `ofi_rxd` before libfabric 2.4 does. Injected messages take such places until they are acknowledged,
/// which nobody can count; those with a completion are fewer than there are places.
fn drops_what_it_accepts(provider: &str, version: (u32, u32)) -> bool {
    provider.split(';').any(|part| part == "ofi_rxd") && version < (2, 4)
}

/// Whether a message of this provider that is not whole when its sender is lost ends without a word: a slot that
/// it shares with others would never be known to be over.
fn loses_messages(provider: &str) -> bool {
    provider.split(';').any(|part| part == "ofi_rxd")
}

/// The rank of an endpoint, of which there are so many of each.
fn rank_of(index: usize, endpoints: u16) -> Rank {
    Rank((index / usize::from(endpoints)) as u32)
}

/// An endpoint that is open and that nobody knows of yet. What its [`card`](Self::card) says is handed to all
/// endpoints of the job, for instance by the launcher's allgather; then it [joins](Self::join).
#[derive(Debug)]
pub struct Opened<M: Memory = OfiMemory> {
    port: Port,
    card: Card,
    offer: Offer,
    config: OfiConfig,
    segment: Segment<M>,
    endpoints: u32,
}

impl Opened {
    /// Opens an endpoint of a job of so many endpoints, with a segment of its own. Blocks while providers look
    /// around; allocates.
    ///
    /// # Errors
    /// [`OfiError`]: no library, no provider, no memory, a setting out of range.
    pub fn new(config: &OfiConfig, endpoints: u32, segment_bytes: usize) -> Result<Self, OfiError> {
        let memory = OfiMemory::new(segment_bytes).map_err(OfiError::memory("the segment"))?;
        Self::with_segment(config, endpoints, Segment::new(memory, segment_bytes))
    }
}

impl<M: Memory + Clone + Send + Sync + 'static> Opened<M> {
    /// Opens an endpoint with this segment, which endpoints of the same rank share. Its memory is registered with
    /// the network, which writes to it for as long as the endpoint lives.
    ///
    /// # Errors
    /// As [`Opened::new`].
    pub fn with_segment(config: &OfiConfig, endpoints: u32, segment: Segment<M>) -> Result<Self, OfiError> {
        config.check()?;
        if endpoints == 0 {
            return Err(OfiError::Setting { name: "endpoints", value: "0".into(), expected: "at least 1" });
        }
        let (mut infos, index, offer) = provider::select(config)?;
        let mut window = config.window(endpoints);
        while config.window.is_none() && window > 1 && Settings::slots(endpoints, window) as usize > offer.receives
        {
            window -= 1;
        }
        let needed = Settings::slots(endpoints, window);
        let most = u32::try_from(offer.receives).unwrap_or(u32::MAX);
        // What finds no slot waits where a provider manages its queues. Elsewhere there is one for each message
        // that can be under way, of any length: of bytes, which several share, there would have to be as many.
        let slots = if offer.managed { needed.min(most).min(MANAGED_SLOTS) } else { needed };
        if slots > most {
            let value = format!("{window}, which needs {needed} receive buffers of {}", offer.provider);
            return Err(OfiError::Setting {
                name: "window",
                value,
                expected: "small enough for its receive queue",
            });
        }
        let share = u32::try_from(offer.sends / 2).unwrap_or(u32::MAX).max(2);
        let sizes = Sizes {
            frames: FRAMES.min(share),
            frame_bytes: config.frame_bytes(),
            chunks: config.chunks.min(share),
            chunk_bytes: config.chunk_bytes.min(offer.largest),
            slots,
            slot_bytes: config.frame_bytes(),
            inject: if drops_what_it_accepts(&offer.provider, provider::version()?) { 0 } else { offer.inject },
        };
        let mut open = |sizes| {
            let (provider, segment) = (&offer.provider, &segment.erase());
            Port::open(Opening { infos: &mut infos, offer: index, provider, sizes, segment })
        };
        let shared = Sizes {
            slots: slots.min(SHARED_SLOTS),
            slot_bytes: SHARED_SLOT_BYTES.max(LEAST_OF_SHARED * sizes.frame_bytes),
            ..sizes
        };
        let several = config.multi_receive && offer.managed && offer.several && !loses_messages(&offer.provider);
        let port = match several.then(|| open(shared)) {
            Some(Ok(port)) => port,
            // What it offers is not what it does.
            Some(Err(OfiError::Call { call: SETOPT, .. })) | None => open(sizes)?,
            Some(Err(error)) => return Err(error),
        };
        let card = Card {
            provider: offer.provider.clone(),
            medium: config.medium,
            window,
            segment_bytes: segment.len() as u64,
            remote: port.own(),
            name: port.name()?,
        };
        Ok(Self { port, card, offer, config: config.clone(), segment, endpoints })
    }

    /// What the others have to be told, as text of one line.
    pub fn card(&self) -> String {
        self.card.to_string()
    }

    /// What carries it.
    pub fn offer(&self) -> &Offer {
        &self.offer
    }

    /// The wire alone, connected to the endpoints of these cards, for measurements beside the transport.
    ///
    /// # Errors
    /// [`OfiError::Card`], [`OfiError::Differs`], and what the provider says of an address.
    pub fn into_wire(mut self, cards: &[Option<&str>]) -> Result<Port, OfiError> {
        self.connect(cards, 1)?;
        Ok(self.port)
    }

    /// Reads the cards of all endpoints, so many of each rank, and tells the port of them.
    fn connect(&mut self, cards: &[Option<&str>], endpoints: u16) -> Result<Vec<Option<Card>>, OfiError> {
        if self.port.is_elsewhere() {
            return Err(OfiError::Forked);
        }
        let mut read = Vec::with_capacity(cards.len());
        for (index, text) in cards.iter().enumerate() {
            let rank = rank_of(index, endpoints);
            let Some(text) = *text else {
                read.push(None);
                continue;
            };
            let what = || text.chars().take(60).collect::<String>().escape_default().to_string();
            let card: Card = text.parse().map_err(|()| OfiError::Card { rank, what: what() })?;
            if card.common() != self.card.common() {
                return Err(OfiError::Differs { rank, theirs: card.common(), ours: self.card.common() });
            }
            read.push(Some(card));
        }
        self.port.connect(read.iter().map(|card| match card {
            Some(card) => (Some(&card.name[..]), card.remote),
            None => (None, Remote::default()),
        }))?;
        Ok(read)
    }

    /// Joins a job as an endpoint. `cards` are those of all endpoints in the order of their
    /// [`Peer`](am_core::Peer) indices, `None` of one that has ended; `tag` is a number of the job, the same on
    /// all ranks and another one in other jobs. Does not wait for the others.
    ///
    /// # Errors
    /// [`OfiError::Card`], [`OfiError::Differs`], [`OfiError::NoSuchEndpoint`], and what the provider says of an
    /// address.
    ///
    /// # Panics
    /// Unless there is a card for each endpoint of the shape, and no more than it was opened for.
    pub fn join(
        mut self,
        me: Address,
        shape: Shape,
        tag: u32,
        cards: &[Option<&str>],
    ) -> Result<Ofi<M>, OfiError> {
        let Shape { ranks, endpoints } = shape;
        let peer = shape.peer(me).ok_or(OfiError::NoSuchEndpoint { me, ranks, endpoints })?;
        assert!(
            cards.len() == shape.peers() as usize && shape.peers() <= self.endpoints,
            "a card for each endpoint"
        );
        let read = self.connect(cards, endpoints)?;
        let first = |rank: usize| read[rank * usize::from(endpoints)].as_ref();
        let segments = (0..ranks as usize).map(|rank| first(rank).map_or(0, |card| card.segment_bytes)).collect();
        let linger = u64::try_from(self.config.linger.as_nanos()).unwrap_or(u64::MAX);
        let settings = Settings {
            me: peer,
            shape,
            tag,
            window: self.card.window,
            medium: self.card.medium,
            segments,
            linger: Span::from_nanos(linger),
            backoff: PATIENCE,
        };
        let ofi = Conduit::new(self.port, settings, self.segment).map_err(OfiError::memory("the endpoint"))?;
        let missing = read.iter().enumerate().filter(|(_, card)| card.is_none());
        ofi.lose_missing(missing.map(|(index, _)| rank_of(index, endpoints)));
        ofi.with_helper(self.config.absence).map_err(OfiError::memory("the helper thread"))
    }
}

/// A job whose ranks are threads of this process, over a provider of libfabric. For tests, examples and
/// measurements.
#[derive(Debug)]
pub struct LocalJob {
    shape: Shape,
    tag: u32,
    cards: Vec<String>,
    opened: Mutex<Vec<Option<Opened>>>,
}

/// What a local job is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LocalOptions {
    /// Endpoints of every rank.
    pub endpoints: u16,
    /// Size in bytes of every rank's segment.
    pub segment_bytes: usize,
}

impl Default for LocalOptions {
    fn default() -> Self {
        Self { endpoints: 1, segment_bytes: 1 << 20 }
    }
}

impl LocalOptions {
    /// Sets the endpoints of every rank.
    #[must_use]
    pub const fn endpoints(mut self, endpoints: u16) -> Self {
        self.endpoints = endpoints;
        self
    }

    /// Sets the size in bytes of every rank's segment.
    #[must_use]
    pub const fn segment_bytes(mut self, bytes: usize) -> Self {
        self.segment_bytes = bytes;
        self
    }
}

impl LocalJob {
    /// A job of `ranks` ranks with one endpoint and a segment of 1 MiB each.
    ///
    /// # Errors
    /// [`OfiError`].
    ///
    /// # Panics
    /// If there are no ranks.
    pub fn new(ranks: u32, config: &OfiConfig) -> Result<Self, OfiError> {
        Self::with(ranks, LocalOptions::default(), config)
    }

    /// A job with other options.
    ///
    /// # Errors
    /// [`OfiError`].
    ///
    /// # Panics
    /// If there are no ranks or no endpoints.
    pub fn with(ranks: u32, options: LocalOptions, config: &OfiConfig) -> Result<Self, OfiError> {
        let LocalOptions { endpoints, segment_bytes } = options;
        assert!(ranks > 0 && endpoints > 0, "a job has at least one endpoint");
        let shape = Shape { ranks, endpoints };
        let mut opened = Vec::new();
        for _ in 0..ranks {
            let memory = OfiMemory::new(segment_bytes).map_err(OfiError::memory("the segment"))?;
            let segment = Segment::new(memory, segment_bytes);
            for _ in 0..endpoints {
                opened.push(Opened::with_segment(config, shape.peers(), segment.clone())?);
            }
        }
        let cards = opened.iter().map(Opened::card).collect();
        let tag = getrandom::u32().unwrap_or(0x6f66_6931);
        Ok(Self { shape, tag, cards, opened: Mutex::new(opened.into_iter().map(Some).collect()) })
    }

    /// Joins as endpoint 0 of a rank.
    ///
    /// # Errors
    /// [`OfiError`].
    ///
    /// # Panics
    /// If the endpoint has joined before.
    pub fn join(&self, rank: u32) -> Result<Ofi, OfiError> {
        self.join_endpoint(Address::new(Rank(rank), 0))
    }

    /// Joins as any endpoint.
    ///
    /// # Errors
    /// [`OfiError`].
    ///
    /// # Panics
    /// If the endpoint has joined before.
    pub fn join_endpoint(&self, me: Address) -> Result<Ofi, OfiError> {
        let Shape { ranks, endpoints } = self.shape;
        let peer = self.shape.peer(me).ok_or(OfiError::NoSuchEndpoint { me, ranks, endpoints })?;
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = opened[peer.index()].take().expect("every endpoint joins once");
        let cards: Vec<Option<&str>> = self.cards.iter().map(|card| Some(card.as_str())).collect();
        opened.join(me, self.shape, self.tag, &cards)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn cards_are_read_as_written(
            numbers: (u32, u64, u64, u64), way: (u32, u64, u64), medium: usize,
            name in prop::collection::vec(any::<u8>(), 1..60),
        ) {
            let (window, segment_bytes, key, base) = numbers;
            let (process, mark_at, mark) = way;
            let remote = Remote { key, base, neighbour: Neighbour { process, mark_at, mark } };
            let card = Card { provider: "tcp;ofi_rxm".into(), medium, window, segment_bytes, remote, name };
            prop_assert_eq!(card.to_string().parse(), Ok(card.clone()));
            prop_assert_eq!(format!("{card} ").parse::<Card>(), Err(()));
            let text = card.to_string();
            prop_assert!(text[..text.len() - 1].parse::<Card>().is_err());
        }

        #[test]
        fn any_text_is_read_or_refused(text: String) {
            let _ = text.parse::<Card>();
        }
    }

    #[test]
    fn nothing_is_injected_where_that_may_drop_others() {
        for (provider, version, expected) in [
            ("udp;ofi_rxd", (1, 17), true),
            ("udp;ofi_rxd", (2, 3), true),
            ("udp;ofi_rxd", (2, 4), false),
            ("tcp;ofi_rxm", (1, 17), false),
        ] {
            assert_eq!(drops_what_it_accepts(provider, version), expected, "{provider} {version:?}");
        }
    }

    #[test]
    fn a_job_without_endpoints_is_refused() {
        let error = Opened::new(&OfiConfig::default(), 0, 64).unwrap_err();
        assert!(matches!(error, OfiError::Setting { name: "endpoints", .. }), "{error}");
    }
}
