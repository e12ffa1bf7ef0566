//! The finished table: what an endpoint calls for a message, and what it knows of its handlers.

use super::MAX_HANDLERS;
use crate::address::{Address, Peer};
use crate::arguments::Words;
use crate::layer::{Outbox, Progress, ProgressResult};
use crate::outcome::HandlerError;
use crate::payload::Payload;
use crate::time::Instant;
use crate::token::Token;
use crate::transport::{Completion, Lane, ReplyBound, Resource};
use std::any::TypeId;

/// Why a delivered message was not handled well.
pub(crate) enum Fault {
    /// It did not fit its handler's arguments.
    Misfit,
    /// Its handler ran and failed.
    Failed(HandlerError),
}

impl Fault {
    #[cold]
    pub(super) fn boxed(self) -> Box<Self> {
        Box::new(self)
    }
}

/// What became of a delivered message. Boxed, since all that matters to a message that was handled well is how
/// fast that shows.
pub(crate) type Handled = Option<Box<Fault>>;

pub(super) type OneWayFn<S> = Box<dyn FnMut(&mut S, Address, &Words, Payload<'_>) -> Handled + Send>;
pub(super) type RequestFn<S> = Box<dyn FnMut(&mut S, Token<'_>, &Words, Payload<'_>) -> Handled + Send>;
pub(super) type RequestRangeFn<S> = Box<dyn FnMut(&mut S, Token<'_>, u8, &Words, Payload<'_>) -> Handled + Send>;
pub(super) type ReplyRangeFn<S> = Box<dyn FnMut(&mut S, Address, u8, &Words, Payload<'_>) -> Handled + Send>;
pub(super) type LookFn<S> = Box<dyn Fn(&S) -> bool + Send>;
pub(super) type ProgressFn<S> = Box<dyn FnMut(&mut S, &mut Outbox<'_>) -> ProgressResult + Send>;

/// A request handler: its code, the bit of the layer that registered it, and how large its replies may be.
pub(crate) enum RequestCode<S> {
    OneWay {
        code: OneWayFn<S>,
        layer: LayerBit,
    },
    Request {
        code: RequestFn<S>,
        layer: LayerBit,
        bound: u32,
    },
    /// One of a range: the range's code, and the number in it.
    Range {
        range: u8,
        number: u8,
        layer: LayerBit,
        bound: u32,
    },
    /// Of a layer that failed to register.
    Withdrawn,
}

impl<S> RequestCode<S> {
    /// Sets the largest reply, for handlers that reply.
    pub(crate) fn set_bound(&mut self, bytes: u32) {
        if let Self::Request { bound, .. } | Self::Range { bound, .. } = self {
            *bound = bytes;
        }
    }
}

/// A reply handler: its code, and the bit of the layer that registered it.
pub(crate) enum ReplyCode<S> {
    Reply {
        code: OneWayFn<S>,
        layer: LayerBit,
    },
    /// One of a range: the range's code, and the number in it.
    Range {
        range: u8,
        number: u8,
        layer: LayerBit,
    },
    /// Of a layer that failed to register.
    Withdrawn,
}

/// The place of a layer in a set of layers: 0 is the program itself. Layers beyond the sixty-third share the last
/// place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LayerBit(u8);

impl LayerBit {
    /// The program's own handlers.
    pub(crate) const PROGRAM: Self = Self(0);

    /// Of the `number`th layer, counted from 0.
    pub(crate) fn of_layer(number: usize) -> Self {
        Self(number.saturating_add(1).min(63) as u8)
    }

    /// The set of this layer alone.
    #[inline(always)]
    pub(crate) fn set(self) -> u64 {
        1 << (self.0 & 63)
    }
}

/// What learns of an operation that the network has done.
pub(crate) type CompletedFn<S> = fn(&mut S, Completion<'_>);

/// The code of all handlers and layers.
pub(crate) struct Table<S> {
    pub(crate) requests: Vec<RequestCode<S>>,
    pub(crate) replies: Vec<ReplyCode<S>>,
    pub(crate) request_ranges: Vec<RequestRangeFn<S>>,
    pub(crate) reply_ranges: Vec<ReplyRangeFn<S>>,
    pub(crate) layers: Vec<Advance<S>>,
    /// The types of the layers' states, and their layers.
    pub(crate) states: Vec<(TypeId, LayerBit)>,
    /// Who learns of operations that the network has done, and its layer.
    pub(crate) completed: Option<(CompletedFn<S>, LayerBit)>,
}

impl<S> Table<S> {
    /// The layers whose state is an `L`; all of them if none was registered with that type.
    #[inline]
    pub(crate) fn layers_of<L: 'static>(&self) -> u64 {
        let of = TypeId::of::<L>();
        let set =
            self.states.iter().filter(|(state, _)| *state == of).fold(0, |set, (_, layer)| set | layer.set());
        if set == 0 { u64::MAX } else { set }
    }
}

/// A layer's progress function, and how its last call ended.
pub(crate) struct Advance<S> {
    /// The layer's name; empty for the program's own.
    pub(crate) name: String,
    /// The layers whose handlers and states it is called after. The program's own state holds those of all layers.
    pub(crate) after: u64,
    pub(crate) progress: ProgressFn<S>,
    /// Whether it has anything to do while the endpoint does not idle; without it that is known by calling it.
    pub(crate) pending: Option<LookFn<S>>,
    /// Whether memory has changed that it watches.
    pub(crate) changed: Option<LookFn<S>>,
    /// What it returned last.
    pub(crate) last: Progress,
    /// Whether it knows that the endpoint is about to idle, and holds nothing back.
    pub(crate) settled: bool,
    /// When it asked to be called.
    pub(crate) wake: Option<Instant>,
    /// The last refusal of what it wanted to send.
    pub(crate) lacks: Option<(Peer, Resource)>,
}

impl<S> Advance<S> {
    pub(super) fn new(name: String, layer: LayerBit, progress: ProgressFn<S>) -> Self {
        let after = if layer == LayerBit::PROGRAM { u64::MAX } else { layer.set() };
        let (last, settled, wake, lacks) = (Progress::Idle, false, None, None);
        Self { name, after, progress, pending: None, changed: None, last, settled, wake, lacks }
    }

    /// Whether it has anything to do, or may have.
    #[inline]
    pub(crate) fn is_pending(&self, state: &S) -> bool {
        self.pending.as_ref().is_none_or(|pending| pending(state))
    }
}

/// The name of a handler, or of a range of them.
pub(super) struct Name {
    pub(super) first: u8,
    pub(super) range: bool,
    pub(super) name: String,
}

/// What is known of the handlers besides their code.
pub(crate) struct Directory {
    /// Tells handles of this table from those of others.
    pub(crate) serial: u32,
    /// The names of a lane's handlers, in the order of their indices.
    pub(super) names: [Vec<Name>; 2],
    /// What the replies of each request handler are bounded to.
    pub(crate) bounds: Box<[ReplyBound; MAX_HANDLERS]>,
    /// What became of the requests of each handler.
    pub(crate) tallies: Box<[Tally; MAX_HANDLERS]>,
    /// The request handlers that allow the largest replies.
    pub(super) largest: Vec<u8>,
}

impl Directory {
    /// The name of a registered handler; in a range, with the number in it.
    pub(crate) fn name(&self, lane: Lane, handler: u8) -> String {
        let names = &self.names[lane as usize];
        let after = names.partition_point(|name| name.first <= handler);
        match after.checked_sub(1).and_then(|at| names.get(at)) {
            None => String::new(),
            Some(Name { first, range: true, name }) => format!("{name}[{}]", handler - first),
            Some(Name { name, .. }) => name.clone(),
        }
    }

    /// The bound of handlers that allow the largest replies, if there are any.
    pub(crate) fn largest(&self) -> Option<u32> {
        match self.bounds[usize::from(*self.largest.first()?)] {
            ReplyBound::UpTo(bytes) => Some(bytes),
            ReplyBound::None => None,
        }
    }

    /// The handlers that allow the largest replies.
    pub(crate) fn with_largest(&self) -> &[u8] {
        &self.largest
    }

    /// Sets the bound of handlers that allow the largest replies.
    pub(crate) fn bound_largest(&mut self, bytes: u32) {
        for handler in &self.largest {
            self.bounds[usize::from(*handler)] = ReplyBound::UpTo(bytes);
        }
    }

    /// The request handlers whose tally has something to count, by name.
    pub(crate) fn tallied(&self, count: fn(&Tally) -> u64) -> Vec<(String, u64)> {
        let mut named = Vec::new();
        for (handler, tally) in (0..=u8::MAX).zip(self.tallies.iter()) {
            if count(tally) != 0 {
                named.push((self.name(Lane::Request, handler), count(tally)));
            }
        }
        named
    }
}

/// What became of the requests of one handler that were not answered in it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Ended without a reply, in the handler or by dropping its pending reply.
    pub(crate) forgotten: u64,
    /// Detached, and neither answered nor dropped yet.
    pub(crate) detached: u64,
}

/// The first line in which two descriptions of tables differ: its number, and what each side has there.
pub(crate) fn first_difference(a: &str, b: &str) -> Option<(usize, String, String)> {
    let (mut left, mut right) = (a.lines(), b.lines());
    for index in 0.. {
        match (left.next(), right.next()) {
            (None, None) => break,
            (x, y) if x == y => {}
            (x, y) => {
                let show = |line: Option<&str>| line.map_or_else(|| "nothing".into(), String::from);
                return Some((index, show(x), show(y)));
            }
        }
    }
    None
}
