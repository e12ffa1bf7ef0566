//! One long request to many ranks along a tree: who has got it passes it on, and what its part of the tree answers
//! comes back together.
//!
//! The tree is k-nomial over the ranks in the order in which they were named, with the caller before them: the
//! rank at place 0 of a list sends to those at the places `j * RADIX^i`, each of which gets the ranks up to the
//! next. A rank runs the method by a call to itself on behalf of the tree's root, so that nothing tells its
//! request from one that came straight.

use crate::caller::{Call, Caller};
use crate::context::{Context, Origin};
use crate::error::{CallError, Failure, Refusal};
use crate::method::{Callable, Malformed, Method, MethodId, Sealed};
use crate::wire::Header;
use am_core::{Address, Instant, LossCause, Rank, Span};
use serde::de::{Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::ops::Range;
use std::task::Waker;

/// Children of a rank at each level, and itself.
const RADIX: usize = 4;

/// The part of the time left that a rank with others below it keeps for the way back of what they have answered.
const KEPT: u64 = 16;

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
pub(crate) type Relay = Method<Relayed, Vec<Outcome>>;

/// A call that takes a request to a part of the tree.
pub(crate) struct Branch {
    /// The ranks of this part, which are neighbours.
    ranks: Vec<Place>,
    call: Call<Relay>,
}

/// How the calls to some ranks have ended.
pub(crate) type Results<M> = Vec<Result<<M as Callable>::Response, CallError<<M as Callable>::Error>>>;

/// How the calls to a part of the tree have ended, for whoever is above.
fn outcomes(ranks: &[Place], ended: Result<Vec<Outcome>, CallError>) -> Vec<Outcome> {
    let via = address(ranks[0]);
    let (named, kind) = match ended {
        Ok(outcomes) if outcomes.len() == ranks.len() => return outcomes,
        Ok(_) => (ranks[0], Kind::BadAnswer),
        Err(error) => fault(via, &error),
    };
    ranks.iter().map(|_| Outcome::Error(named, kind.clone())).collect()
}

impl Branch {
    /// Looks after its call; yields how the calls to its ranks have ended, once they have.
    pub(crate) fn take<M: Callable>(&mut self, waker: &Waker) -> Option<Results<M>> {
        let ended = self.call.take(Some(waker))?;
        Some(Self::results::<M>(&self.ranks, self.call.time(), ended))
    }

    /// Its ranks and its call.
    pub(crate) fn into_parts(self) -> (Vec<Place>, Call<Relay>) {
        (self.ranks, self.call)
    }

    /// What the end of a part's call means for its ranks.
    pub(crate) fn results<M: Callable>(
        ranks: &[Place],
        after: Option<Span>,
        ended: Result<Vec<Outcome>, CallError>,
    ) -> Results<M> {
        // What is wrong with this rank itself.
        let own = |error: &CallError| match error {
            CallError::Closed => Some(CallError::Closed),
            CallError::Wait(error) => Some(CallError::Wait(error.clone())),
            CallError::Send(error) => Some(CallError::Send(error.clone())),
            _ => None,
        };
        if let Err(error) = &ended
            && own(error).is_some()
        {
            return ranks.iter().map(|_| Err(own(error).unwrap_or(CallError::Closed))).collect();
        }
        let outcomes = outcomes(ranks, ended).into_iter().zip(ranks);
        outcomes.map(|(outcome, rank)| result::<M>(address(*rank), after, outcome)).collect()
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
            let call = caller.call(address(part[0]), caller.relay(), &relayed);
            (places.start, Branch { ranks: part, call })
        })
        .collect();
    branches.sort_by_key(|(start, _)| *start);
    branches.into_iter().map(|(_, branch)| branch).collect()
}

/// What a rank of the tree does: it runs the method, and passes the request on meanwhile.
pub(crate) async fn relay<W: Send + 'static>(
    context: Context<W>,
    relayed: Relayed,
) -> Result<Vec<Outcome>, Failure> {
    let Relayed { root, method: (index, digest), ranks, request: Bytes(request) } = relayed;
    let ranks: Vec<Address> = ranks.into_iter().map(address).collect();
    let Some((me, others)) = ranks.split_first() else { return Err(Failure::new("a tree without ranks")) };
    let (root, id) = (root.map_or(context.origin().source, address), MethodId { index, digest });
    // Relays around the job would wait for each other's places.
    let uncounted = context.uncounted();
    // They end before this one does, so that one rank that is late takes nobody else's outcome with it.
    let caller = match (context.deadline(), context.origin().left) {
        (Some(at), Some(left)) if !others.is_empty() => {
            uncounted.deadline(Instant(at.0.saturating_sub(left.0 / KEPT)))
        }
        _ => uncounted,
    };
    let own: Call<Raw> = caller.call_as(*me, id, Header::ON_BEHALF, |into| {
        into.extend_from_slice(&Behalf(root).to_bytes());
        into.extend_from_slice(&request);
        Ok(())
    });
    let branches = branches(&caller, Some(root), id, others, request);
    let mut all = vec![outcome(*me, own.await)];
    for Branch { ranks, call } in branches {
        let ended = call.await;
        all.extend(outcomes(&ranks, ended));
    }
    Ok(all)
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
