//! One long request to many ranks along a tree: who has got it passes it on, and how the calls of its part of the
//! tree end comes back the same way, as soon as it is known.
//!
//! The tree is k-nomial over the ranks in the order in which they were named, with the caller before them: the
//! rank at place 0 of a list sends to those at the places `j * RADIX^i`, each of which gets the ranks up to the
//! next. A rank runs the method by a call to itself on behalf of the tree's root, so that nothing tells its
//! request from one that came straight.

use crate::caller::{Answers, Call, Caller};
use crate::context::{Context, Origin};
use crate::error::{CallError, Failure, Refusal};
use crate::layer::Calls;
use crate::method::{Callable, Malformed, MethodId, Sealed, StreamMethod};
use crate::stream::{Sink, SinkError};
use crate::wire::Header;
use am_core::{Address, Endpoint, HasLayer, LossCause, Rank, Span, Transport};
use serde::de::{Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::ops::Range;
use std::task::{Poll, Waker};

/// Children of a rank at each level, and itself.
const RADIX: usize = 4;

/// Bytes of a piece at most, beside those of an answer.
const ENVELOPE: usize = 40;

/// Ranks from which on a tree is worth it.
pub(crate) const RANKS: usize = RADIX + 1;

/// The name of the method that passes requests on.
pub(crate) const NAME: &str = "call_each along a tree";

/// Bytes of a request's envelope at most, beside so many ranks.
pub(crate) fn overhead(ranks: usize) -> usize {
    64 + 8 * ranks
}

/// The children of the first of so many places, the one with most below it first: each with the places of its own
/// tree, of which it is the first.
fn children(places: usize) -> Vec<Range<usize>> {
    let mut width = 1;
    while width * RADIX < places {
        width *= RADIX;
    }
    let mut children = Vec::new();
    while width > 0 {
        for child in (1..RADIX).map(|child| child * width).filter(|child| *child < places) {
            children.push(child..places.min(child + width));
        }
        width /= RADIX;
    }
    children
}

/// Bytes that are not serialised one by one.
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Any;

        impl Visitor<'_> for Any {
            type Value = Bytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Bytes, E> {
                Ok(Bytes(bytes.to_vec()))
            }
        }

        from.deserialize_bytes(Any)
    }
}

/// A rank's endpoint, as it travels.
type Place = (u32, u16);

fn place(address: Address) -> Place {
    (address.rank.0, address.endpoint)
}

fn address((rank, endpoint): Place) -> Address {
    Address::new(Rank(rank), endpoint)
}

/// A request on its way: whose it is if not the sender's, what it calls, and the ranks that are to get it, of
/// which the first is the one that it is sent to.
#[derive(Serialize, Deserialize)]
pub(crate) struct Relayed {
    root: Option<Place>,
    method: (u16, u32),
    ranks: Vec<Place>,
    request: Bytes,
}

/// Something of what the rank at a place of a list has answered, of the ranks that a request was sent to.
#[derive(Serialize, Deserialize)]
pub(crate) enum Piece {
    /// Bytes of an answer, or of an error, of which more come.
    Part(u32, Bytes),
    /// The rest of them, and how the call has ended.
    End(u32, Outcome),
}

impl Piece {
    fn place(&mut self) -> &mut u32 {
        match self {
            Self::Part(place, _) | Self::End(place, _) => place,
        }
    }

    fn bytes(&mut self) -> Option<&mut Vec<u8>> {
        match self {
            Self::Part(_, bytes) | Self::End(_, Outcome::Answered(bytes) | Outcome::Failed(bytes)) => {
                Some(&mut bytes.0)
            }
            Self::End(..) => None,
        }
    }
}

/// How the call to a rank has ended.
#[derive(Serialize, Deserialize)]
pub(crate) enum Outcome {
    Answered(Bytes),
    Failed(Bytes),
    /// An error that names this endpoint.
    Error(Place, Kind),
}

#[derive(Clone, Serialize, Deserialize)]
pub(crate) enum Kind {
    TimedOut,
    Lost(u8),
    Finished,
    Panicked(String),
    RefusedTasks,
    RefusedMethod,
    RequestTooLarge { bytes: u64, limit: u64 },
    AnswerTooLarge { bytes: u64, limit: u64 },
    BadRequest,
    BadAnswer,
}

/// How a call has ended, for whoever is above.
fn outcome(to: Address, ended: Result<Vec<u8>, CallError<Vec<u8>>>) -> Outcome {
    let error = match ended {
        Ok(answer) => return Outcome::Answered(Bytes(answer)),
        Err(CallError::Failed(error)) => return Outcome::Failed(Bytes(error)),
        Err(error) => error,
    };
    let (to, kind) = fault(to, &error);
    Outcome::Error(to, kind)
}

/// An error that is none of a method's, and whom it names.
fn fault<E>(to: Address, error: &CallError<E>) -> (Place, Kind) {
    let kind = match error {
        CallError::TimedOut { .. } => Kind::TimedOut,
        CallError::RankLost { rank, cause: how } => return (place((*rank).into()), Kind::Lost(how.code())),
        CallError::Finished(rank) => return (place((*rank).into()), Kind::Finished),
        CallError::Panicked { text, .. } => Kind::Panicked(text.clone()),
        CallError::Refused { why: Refusal::Tasks, .. } => Kind::RefusedTasks,
        CallError::Refused { .. } => Kind::RefusedMethod,
        CallError::RequestTooLarge { bytes, limit } => Kind::RequestTooLarge { bytes: *bytes, limit: *limit },
        CallError::AnswerTooLarge { bytes, limit } => Kind::AnswerTooLarge { bytes: *bytes, limit: *limit },
        CallError::BadRequest { .. } => Kind::BadRequest,
        _ => Kind::BadAnswer,
    };
    (place(to), kind)
}

/// What an outcome is to the caller of `M`, whose call had so much time.
fn result<M: Callable>(
    to: Address,
    after: Option<Span>,
    outcome: Outcome,
) -> Result<M::Response, CallError<M::Error>> {
    let (named, kind) = match outcome {
        Outcome::Answered(Bytes(answer)) => return M::decode(&answer).map_err(|_| CallError::BadAnswer { to }),
        Outcome::Failed(Bytes(error)) => {
            return Err(M::decode_error(&error).map_or(CallError::BadAnswer { to }, CallError::Failed));
        }
        Outcome::Error(named, kind) => (address(named), kind),
    };
    Err(match kind {
        Kind::TimedOut => CallError::TimedOut { to, after },
        Kind::Lost(cause) => {
            let cause = LossCause::from_code(cause).unwrap_or(LossCause::Faulty);
            CallError::RankLost { rank: named.rank, cause }
        }
        Kind::Finished => CallError::Finished(named.rank),
        Kind::Panicked(text) => CallError::Panicked { to: named, text },
        Kind::RefusedTasks => CallError::Refused { to: named, why: Refusal::Tasks },
        Kind::RefusedMethod => CallError::Refused { to: named, why: Refusal::Method },
        Kind::RequestTooLarge { bytes, limit } => CallError::RequestTooLarge { bytes, limit },
        Kind::AnswerTooLarge { bytes, limit } => CallError::AnswerTooLarge { bytes, limit },
        Kind::BadRequest => CallError::BadRequest { to: named },
        Kind::BadAnswer => CallError::BadAnswer { to: named },
    })
}

/// A call whose request and answer are bytes already.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw(MethodId);

impl Sealed for Raw {}

impl Callable for Raw {
    type Request = [u8];
    type Response = Vec<u8>;
    type Error = Vec<u8>;

    fn id(&self) -> MethodId {
        self.0
    }

    fn encode(request: &[u8], into: &mut Vec<u8>) -> Result<(), String> {
        into.extend_from_slice(request);
        Ok(())
    }

    fn decode(bytes: &[u8]) -> Result<Vec<u8>, Malformed> {
        Ok(bytes.to_vec())
    }

    fn decode_error(bytes: &[u8]) -> Result<Vec<u8>, Malformed> {
        Ok(bytes.to_vec())
    }
}

/// The method that passes requests on.
pub(crate) type Relay = StreamMethod<Relayed, Vec<Piece>>;

/// A call that takes a request to a part of the tree.
pub(crate) struct Branch {
    /// The ranks of this part, which are neighbours.
    ranks: Vec<Place>,
    answers: Answers<Vec<Piece>, Failure>,
    /// Of each rank, what has come.
    come: Vec<Come>,
    /// Ranks of which not all has come.
    left: usize,
}

#[derive(Default)]
struct Come {
    bytes: Vec<u8>,
    outcome: Option<Outcome>,
}

/// How the calls to some ranks have ended.
pub(crate) type Results<M> = Vec<Result<<M as Callable>::Response, CallError<<M as Callable>::Error>>>;

impl Branch {
    fn new(ranks: Vec<Place>, answers: Answers<Vec<Piece>, Failure>) -> Self {
        let come = ranks.iter().map(|_| Come::default()).collect();
        Self { left: ranks.len(), ranks, answers, come }
    }

    /// What comes next for whoever is above, until all has come.
    fn poll_pieces(&mut self, waker: &Waker) -> Poll<Option<Vec<Piece>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let Poll::Ready(next) = self.answers.take(Some(waker)) else { return Poll::Pending };
        if let Some(Ok(mut pieces)) = next {
            let known = pieces.iter_mut().all(|piece| {
                let come = self.come.get_mut(*piece.place() as usize).filter(|come| come.outcome.is_none());
                match (come, piece) {
                    (Some(come), Piece::End(..)) => {
                        // It is passed on as it is.
                        come.outcome = Some(Outcome::Answered(Bytes(Vec::new())));
                        self.left -= 1;
                        true
                    }
                    (come, _) => come.is_some(),
                }
            });
            if known {
                return Poll::Ready(Some(pieces));
            }
            return Poll::Ready(Some(self.rest(self.ranks[0], Kind::BadAnswer)));
        }
        let (named, kind) = match &next {
            Some(Err(error)) => fault(address(self.ranks[0]), error),
            _ => (self.ranks[0], Kind::BadAnswer),
        };
        Poll::Ready(Some(self.rest(named, kind)))
    }

    /// The ends of all calls that have not ended, which is this error.
    fn rest(&mut self, named: Place, kind: Kind) -> Vec<Piece> {
        self.left = 0;
        let open = (0..).zip(&self.come).filter(|(_, come)| come.outcome.is_none());
        open.map(|(place, _)| Piece::End(place, Outcome::Error(named, kind.clone()))).collect()
    }

    /// Looks after its call; yields how the calls to its ranks have ended, once they have.
    pub(crate) fn take<M: Callable>(&mut self, waker: &Waker) -> Option<Results<M>> {
        loop {
            let Poll::Ready(next) = self.answers.take(Some(waker)) else { return None };
            if let Some(results) = self.note::<M>(next) {
                return Some(results);
            }
        }
    }

    /// [`Branch::take`] of an endpoint that is served meanwhile.
    pub(crate) fn wait<M: Callable, T: Transport, S: HasLayer<Calls<W>>, W: Send + 'static>(
        mut self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Results<M> {
        loop {
            let next = self.answers.wait_next(endpoint);
            if let Some(results) = self.note::<M>(next) {
                return results;
            }
        }
    }

    /// What the call has yielded; how the calls to all ranks have ended, once they have.
    fn note<M: Callable>(&mut self, next: Option<Result<Vec<Piece>, CallError>>) -> Option<Results<M>> {
        let end = match next {
            Some(Ok(pieces)) => {
                let known = pieces.into_iter().all(|piece| self.absorb(piece));
                match (known, self.left) {
                    (true, 0) => return Some(self.results::<M>(None)),
                    (true, _) => return None,
                    (false, _) => None,
                }
            }
            Some(Err(error)) => Some(error),
            None => None,
        };
        Some(self.results::<M>(end))
    }

    /// Keeps a piece, unless it is none.
    fn absorb(&mut self, mut piece: Piece) -> bool {
        let limit = u64::from(self.answers.shared.table().config.max_bytes);
        let place = *piece.place();
        let come = self.come.get_mut(place as usize).filter(|come| come.outcome.is_none());
        let (Some(come), Some(rank)) = (come, self.ranks.get(place as usize)) else { return false };
        if let Some(bytes) = piece.bytes() {
            let all = (come.bytes.len() + bytes.len()) as u64;
            if all > limit {
                // What comes after it is not kept.
                let end = matches!(piece, Piece::End(..));
                come.bytes.clear();
                if end {
                    come.outcome = Some(Outcome::Error(*rank, Kind::AnswerTooLarge { bytes: all, limit }));
                    self.left -= 1;
                }
                return true;
            }
            come.bytes.append(bytes);
        }
        if let Piece::End(_, outcome) = piece {
            come.outcome = Some(outcome);
            self.left -= 1;
        }
        true
    }

    /// How the calls to all ranks have ended; those of which that is not known have ended with the branch's call.
    fn results<M: Callable>(&mut self, end: Option<CallError>) -> Results<M> {
        let (first, after) = (self.ranks[0], self.answers.time());
        let come = std::mem::take(&mut self.come).into_iter().zip(&self.ranks);
        come.map(|(Come { bytes, outcome }, rank)| {
            let outcome = match (outcome, &end) {
                (Some(Outcome::Answered(_)), _) => Outcome::Answered(Bytes(bytes)),
                (Some(Outcome::Failed(_)), _) => Outcome::Failed(Bytes(bytes)),
                (Some(error), _) => error,
                // What is wrong with this rank itself.
                (None, Some(CallError::Closed)) => return Err(CallError::Closed),
                (None, Some(CallError::Wait(error))) => return Err(CallError::Wait(error.clone())),
                (None, Some(CallError::Send(error))) => return Err(CallError::Send(error.clone())),
                (None, Some(error)) => {
                    let (named, kind) = fault(address(first), error);
                    Outcome::Error(named, kind)
                }
                (None, None) => Outcome::Error(first, Kind::BadAnswer),
            };
            result::<M>(address(*rank), after, outcome)
        })
        .collect()
    }
}

/// Sends a request to the children of the first place of a tree, whose other places these ranks have; the calls,
/// in the order of the ranks. `root` is missing where it is the caller itself.
pub(crate) fn branches(
    caller: &Caller,
    root: Option<Address>,
    id: MethodId,
    ranks: &[Address],
    request: Vec<u8>,
) -> Vec<Branch> {
    let (root, method, request) = (root.map(place), (id.index, id.digest), Bytes(request));
    let mut relayed = Relayed { root, method, ranks: Vec::new(), request };
    let mut branches: Vec<(usize, Branch)> = children(ranks.len() + 1)
        .into_iter()
        .map(|places| {
            let part: Vec<Place> = ranks[places.start - 1..places.end - 1].iter().copied().map(place).collect();
            relayed.ranks.clone_from(&part);
            let answers = caller.stream(address(part[0]), caller.relay(), &relayed);
            (places.start, Branch::new(part, answers))
        })
        .collect();
    branches.sort_by_key(|(start, _)| *start);
    branches.into_iter().map(|(_, branch)| branch).collect()
}

/// The way up: pieces travel together as far as messages carry them.
struct Up {
    sink: Sink<Vec<Piece>>,
    pieces: Vec<Piece>,
    bytes: usize,
    /// Bytes of a message.
    largest: usize,
}

impl Up {
    fn new(sink: Sink<Vec<Piece>>) -> Self {
        let largest = sink.largest();
        Self { sink, pieces: Vec::new(), bytes: 0, largest }
    }

    /// Adds a piece, as several if it is too long for a message.
    async fn put(&mut self, mut piece: Piece) -> Result<(), SinkError> {
        let most = self.largest.saturating_sub(ENVELOPE).max(1);
        let place = *piece.place();
        while let Some(bytes) = piece.bytes().filter(|bytes| bytes.len() > most) {
            let part = bytes.drain(..most).collect();
            self.add(Piece::Part(place, Bytes(part))).await?;
        }
        if let Piece::End(_, Outcome::Error(_, Kind::Panicked(text))) = &mut piece {
            let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
            text.truncate(end.unwrap_or(0));
        }
        self.add(piece).await
    }

    async fn add(&mut self, mut piece: Piece) -> Result<(), SinkError> {
        let text =
            if let Piece::End(_, Outcome::Error(_, Kind::Panicked(text))) = &piece { text.len() } else { 0 };
        let bytes = ENVELOPE + piece.bytes().map_or(text, |bytes| bytes.len());
        if self.bytes + bytes > self.largest {
            self.flush().await?;
        }
        self.bytes += bytes;
        self.pieces.push(piece);
        Ok(())
    }

    /// Sends what there is.
    async fn flush(&mut self) -> Result<(), SinkError> {
        if !self.pieces.is_empty() {
            self.sink.send(&self.pieces).await?;
            self.pieces.clear();
            self.bytes = 0;
        }
        Ok(())
    }
}

/// What a rank of the tree does: it runs the method, and passes the request on meanwhile.
pub(crate) async fn relay<W: Send + 'static>(
    context: Context<W>,
    relayed: Relayed,
    sink: Sink<Vec<Piece>>,
) -> Result<(), Failure> {
    let Relayed { root, method: (index, digest), ranks, request: Bytes(request) } = relayed;
    let ranks: Vec<Address> = ranks.into_iter().map(address).collect();
    let Some((me, others)) = ranks.split_first() else { return Err(Failure::new("a tree without ranks")) };
    let (root, id) = (root.map_or(context.origin().source, address), MethodId { index, digest });
    // Relays around the job would wait for each other's places.
    let caller = context.uncounted();
    let own: Call<Raw> = caller.call_as(*me, id, Header::ON_BEHALF, |into| {
        into.extend_from_slice(&Behalf(root).to_bytes());
        into.extend_from_slice(&request);
        Ok(())
    });
    // With their places in the list, behind this rank's own.
    let mut places = 1;
    let branches = branches(&caller, Some(root), id, others, request).into_iter().map(|branch| {
        let first = places;
        places += branch.ranks.len() as u32;
        (first, branch)
    });
    let (mut own, mut branches, mut up) = (Some(own), branches.collect::<Vec<_>>(), Up::new(sink));
    while own.is_some() || !branches.is_empty() {
        let come = std::future::poll_fn(|task| poll_any(*me, &mut own, &mut branches, task.waker())).await;
        for piece in come {
            up.put(piece).await?;
        }
        up.flush().await?;
    }
    Ok(())
}

/// What has come of a rank's own call and of the branches below it.
fn poll_any(
    me: Address,
    own: &mut Option<Call<Raw>>,
    branches: &mut Vec<(u32, Branch)>,
    waker: &Waker,
) -> Poll<Vec<Piece>> {
    let mut come = Vec::new();
    if let Some(ended) = own.as_mut().and_then(|call| call.take(Some(waker))) {
        *own = None;
        come.push(Piece::End(0, outcome(me, ended)));
    }
    branches.retain_mut(|(first, branch)| {
        loop {
            match branch.poll_pieces(waker) {
                Poll::Ready(Some(mut pieces)) => {
                    pieces.iter_mut().for_each(|piece| *piece.place() += *first);
                    come.append(&mut pieces);
                }
                Poll::Ready(None) => return false,
                Poll::Pending => return true,
            }
        }
    });
    if come.is_empty() && (own.is_some() || !branches.is_empty()) { Poll::Pending } else { Poll::Ready(come) }
}

/// Whom a rank calls itself for: eight bytes before the request.
pub(crate) struct Behalf(pub(crate) Address);

impl Behalf {
    fn to_bytes(&self) -> [u8; 8] {
        (u64::from(self.0.rank.0) << 16 | u64::from(self.0.endpoint)).to_le_bytes()
    }

    /// Who has really called, and the request.
    pub(crate) fn read(request: &[u8]) -> Option<(Address, &[u8])> {
        let (bytes, request) = request.split_first_chunk::<8>()?;
        let word = u64::from_le_bytes(*bytes);
        Some((Address::new(Rank((word >> 16) as u32), word as u16), request))
    }
}

/// A request of this origin, behind its envelope; none if it is none.
#[inline]
pub(crate) fn opened(header: Header, origin: Origin, request: &[u8]) -> Option<(Origin, &[u8])> {
    if !header.is(Header::ON_BEHALF) {
        return Some((origin, request));
    }
    let (source, request) = Behalf::read(request)?;
    // Whom a rank calls itself for, the rank above has said: ranks of a job trust each other.
    Some((Origin { source, ..origin }, request))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every place has one parent, and the tree is as deep as it should be.
    #[test]
    fn trees_reach_every_place_once() {
        fn visit(first: usize, places: usize, depth: usize, reached: &mut [u32], deepest: &mut usize) {
            reached[first] += 1;
            *deepest = depth.max(*deepest);
            for part in children(places) {
                visit(first + part.start, part.len(), depth + 1, reached, deepest);
            }
        }
        for places in 1..300 {
            let (mut reached, mut deepest) = (vec![0; places], 0);
            visit(0, places, 0, &mut reached, &mut deepest);
            assert!(reached.iter().all(|count| *count == 1), "{places} places");
            let most = (0..).find(|depth| RADIX.pow(*depth) >= places);
            assert!(Some(deepest) <= most.map(|depth| depth as usize), "{places} places");
        }
    }

    #[test]
    fn an_envelope_names_the_caller() {
        let (me, root) = (Address::from(Rank(3)), Address::new(Rank(9), 2));
        let mut request = Behalf(root).to_bytes().to_vec();
        request.push(7);
        let header = Header { method: 0, flags: Header::ON_BEHALF, digest: 0 };
        let origin = Origin::new(me, None, Default::default());
        let opened = |len: usize| opened(header, origin, &request[..len]);
        assert_eq!(opened(9).map(|(origin, rest)| (origin.source, rest)), Some((root, &[7][..])));
        assert!(opened(7).is_none());
    }
}
