//! Handler registration: up to 256 named handlers, in the same order on every rank.
//!
//! A table knows nothing of transports: the same [`Handlers`] attach to shared memory, UDP or a simulation. `S` is the
//! state of the endpoint, handed to every handler as `&mut S`; a handler cannot poll or send requests because it has no
//! endpoint.

use crate::address::Address;
use crate::arguments::{Arguments, MAX_WORDS, Words, decode};
use crate::error::RegisterError;
use crate::outcome::{HandlerError, HandlerOutcome};
use crate::payload::Payload;
use crate::token::Token;
use crate::transport::ReplyBound;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering};

/// The most handlers that a table holds.
pub const MAX_HANDLERS: usize = 256;

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        pub struct $name<A> {
            index: u8,
            table: u32,
            arguments: PhantomData<fn(A)>,
        }

        impl<A> Clone for $name<A> {
            #[inline]
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<A> Copy for $name<A> {}

        impl<A> fmt::Debug for $name<A> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.index)
            }
        }

        impl<A> $name<A> {
            /// The handler's index, the same on every rank.
            #[inline]
            pub fn index(&self) -> u8 {
                self.index
            }

            #[inline]
            pub(crate) fn table(&self) -> u32 {
                self.table
            }
        }
    };
}

handle! {
    /// A registered request handler that takes arguments `A`: what requests are sent to.
    Request
}
handle! {
    /// A registered reply handler that takes arguments `A`: what tokens reply to.
    Reply
}

/// Why a delivered message was not handled well.
pub(crate) enum Fault {
    /// It did not fit its handler's arguments.
    Misfit,
    /// Its handler ran and failed.
    Failed(HandlerError),
}

/// What became of a delivered message. Boxed, since all that matters to a message that was handled well is how fast that
/// shows.
pub(crate) type Handled = Option<Box<Fault>>;

#[inline(always)]
fn judge(outcome: Option<impl HandlerOutcome>) -> Handled {
    let fault = match outcome {
        None => Fault::Misfit,
        Some(outcome) => Fault::Failed(outcome.failure()?),
    };
    Some(fault.boxed())
}

impl Fault {
    #[cold]
    fn boxed(self) -> Box<Self> {
        Box::new(self)
    }
}

type OneWayFn<S> = Box<dyn FnMut(&mut S, Address, &Words, Payload<'_>) -> Handled + Send>;
type RequestFn<S> = Box<dyn FnMut(&mut S, Token<'_>, &Words, Payload<'_>) -> Handled + Send>;

/// A handler's code.
pub(crate) enum Code<S> {
    OneWay(OneWayFn<S>),
    Request(RequestFn<S>),
    Reply(OneWayFn<S>),
}

/// The handlers of an endpoint, being registered. `S` is the endpoint's state.
///
/// A handler returns nothing, or a `Result` if it can fail ([`HandlerResult`](crate::HandlerResult)); an error ends the
/// poll or wait that ran the handler. The types of a handler's parameters need not be written down, except that of its
/// arguments where nothing else tells it.
///
/// ```
/// use am_core::{HandlerResult, Handlers};
///
/// let mut handlers = Handlers::<u64>::new();
/// let sum = handlers.reply("sum", |total, _, value: u64, _| *total += value)?;
/// let add = handlers.request("add", move |_, token, (a, b): (u64, u64), _| -> HandlerResult {
///     token.reply(sum, a + b)?;
///     Ok(())
/// })?;
/// assert_eq!((sum.index(), add.index()), (0, 1));
/// # Ok::<(), am_core::RegisterError>(())
/// ```
pub struct Handlers<S> {
    serial: u32,
    codes: Vec<Code<S>>,
    names: Vec<String>,
    signatures: Vec<String>,
    bounds: Vec<Option<ReplyBound>>,
}

impl<S> fmt::Debug for Handlers<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.names).finish()
    }
}

impl<S> Default for Handlers<S> {
    fn default() -> Self {
        Self::new()
    }
}

/// Refuses argument types that no message can carry.
const fn fits<A: Arguments>() {
    assert!(A::WORDS <= MAX_WORDS, "a handler takes at most sixteen 32-bit words: let the rest come as payload");
}

/// Tells handles of one table from those of another within a process.
static TABLES: AtomicU32 = AtomicU32::new(1);

impl<S> Handlers<S> {
    /// An empty table.
    pub fn new() -> Self {
        // Relaxed: the number only has to be unique.
        let serial = TABLES.fetch_add(1, Ordering::Relaxed);
        Self { serial, codes: Vec::new(), names: Vec::new(), signatures: Vec::new(), bounds: Vec::new() }
    }

    fn add(
        &mut self,
        name: &str,
        signature: String,
        bound: Option<ReplyBound>,
        code: Code<S>,
    ) -> Result<u8, RegisterError> {
        if name.is_empty() || name.len() > 64 || name.chars().any(char::is_control) {
            return Err(RegisterError::BadName { name: name.into() });
        }
        if self.names.iter().any(|taken| taken == name) {
            return Err(RegisterError::NameTaken { name: name.into() });
        }
        let Ok(index) = u8::try_from(self.codes.len()) else {
            return Err(RegisterError::TableFull { name: name.into() });
        };
        self.codes.push(code);
        self.names.push(name.into());
        self.signatures.push(signature);
        self.bounds.push(bound);
        Ok(index)
    }

    /// Registers a handler that cannot reply: it gets the source's address instead of a token. The cheapest kind, since
    /// nothing is set aside for a reply.
    ///
    /// # Errors
    /// [`RegisterError`] for a bad or taken name, or a full table.
    pub fn one_way<A, F, O>(&mut self, name: &str, mut handler: F) -> Result<Request<A>, RegisterError>
    where
        A: Arguments + 'static,
        F: FnMut(&mut S, Address, A, Payload<'_>) -> O + Send + 'static,
        O: HandlerOutcome,
    {
        const { fits::<A>() };
        let code: OneWayFn<S> = Box::new(move |state, from, words, payload| {
            judge(decode::<A>(words).map(|args| handler(state, from, args, payload)))
        });
        let signature = format!("one-way {}", A::signature());
        let index = self.add(name, signature, Some(ReplyBound::None), Code::OneWay(code))?;
        Ok(Request { index, table: self.serial, arguments: PhantomData })
    }

    /// Registers a handler that may reply once, with a Medium reply of up to
    /// [`DEFAULT_REPLY`](crate::transport::DEFAULT_REPLY) bytes (1024; 944 over SCI, whose
    /// buffers are no larger), or any Short or Long reply. For larger ones, or to have more requests under way, declare a
    /// bound with [`Handlers::request_bounded`].
    ///
    /// # Errors
    /// As [`Handlers::one_way`].
    pub fn request<A, F, O>(&mut self, name: &str, handler: F) -> Result<Request<A>, RegisterError>
    where
        A: Arguments + 'static,
        F: FnMut(&mut S, Token<'_>, A, Payload<'_>) -> O + Send + 'static,
        O: HandlerOutcome,
    {
        self.add_request(name, None, handler)
    }

    /// Registers a handler that may reply once, with at most `max_reply` payload bytes in a Medium reply (Short and Long
    /// replies are always possible). A smaller bound lets more requests be under way at once.
    ///
    /// # Errors
    /// As [`Handlers::one_way`]. A bound beyond the transport's limit is refused when the table is attached.
    pub fn request_bounded<A, F, O>(
        &mut self,
        name: &str,
        max_reply: u32,
        handler: F,
    ) -> Result<Request<A>, RegisterError>
    where
        A: Arguments + 'static,
        F: FnMut(&mut S, Token<'_>, A, Payload<'_>) -> O + Send + 'static,
        O: HandlerOutcome,
    {
        self.add_request(name, Some(ReplyBound::UpTo(max_reply)), handler)
    }

    fn add_request<A, F, O>(
        &mut self,
        name: &str,
        bound: Option<ReplyBound>,
        mut handler: F,
    ) -> Result<Request<A>, RegisterError>
    where
        A: Arguments + 'static,
        F: FnMut(&mut S, Token<'_>, A, Payload<'_>) -> O + Send + 'static,
        O: HandlerOutcome,
    {
        const { fits::<A>() };
        let code: RequestFn<S> = Box::new(move |state, token, words, payload| {
            judge(decode::<A>(words).map(|args| handler(state, token, args, payload)))
        });
        let signature = match bound {
            Some(ReplyBound::UpTo(bytes)) => format!("request {} replying up to {bytes}", A::signature()),
            _ => format!("request {}", A::signature()),
        };
        let index = self.add(name, signature, bound, Code::Request(code))?;
        Ok(Request { index, table: self.serial, arguments: PhantomData })
    }

    /// Registers a reply handler.
    ///
    /// # Errors
    /// As [`Handlers::one_way`].
    pub fn reply<A, F, O>(&mut self, name: &str, mut handler: F) -> Result<Reply<A>, RegisterError>
    where
        A: Arguments + 'static,
        F: FnMut(&mut S, Address, A, Payload<'_>) -> O + Send + 'static,
        O: HandlerOutcome,
    {
        const { fits::<A>() };
        let code: OneWayFn<S> = Box::new(move |state, from, words, payload| {
            judge(decode::<A>(words).map(|args| handler(state, from, args, payload)))
        });
        let signature = format!("reply {}", A::signature());
        let index = self.add(name, signature, Some(ReplyBound::None), Code::Reply(code))?;
        Ok(Reply { index, table: self.serial, arguments: PhantomData })
    }

    /// Number of registered handlers.
    pub fn len(&self) -> usize {
        self.codes.len()
    }

    /// Whether no handler is registered.
    pub fn is_empty(&self) -> bool {
        self.codes.is_empty()
    }

    /// One line per handler, in order: its name, kind and arguments. Ranks compare this text.
    pub fn description(&self) -> String {
        let lines = self.names.iter().zip(&self.signatures);
        lines.map(|(name, signature)| format!("'{name}' ({signature})\n")).collect()
    }

    /// A 64-bit FNV-1a hash of [`Handlers::description`], compared between ranks at attach.
    pub fn fingerprint(&self) -> u64 {
        let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        self.description().bytes().fold(0xcbf2_9ce4_8422_2325, hash)
    }

    /// The finished table. Handlers that declared no bound get `default`.
    pub(crate) fn finish(self, default: u32) -> Table<S> {
        let mut bounds = [ReplyBound::None; MAX_HANDLERS];
        for (slot, bound) in bounds.iter_mut().zip(&self.bounds) {
            *slot = bound.unwrap_or(ReplyBound::UpTo(default));
        }
        let Self { serial, codes, names, .. } = self;
        Table {
            serial,
            codes,
            names,
            bounds: Box::new(bounds),
            tallies: Box::new([Tally::default(); MAX_HANDLERS]),
        }
    }

    /// The handler that declares the largest replies, with its bound.
    pub(crate) fn largest_bound(&self) -> Option<(&str, u32)> {
        let declared = self.names.iter().zip(&self.bounds).filter_map(|(name, bound)| match bound {
            Some(ReplyBound::UpTo(bytes)) => Some((name.as_str(), *bytes)),
            _ => None,
        });
        declared.max_by_key(|(_, bytes)| *bytes)
    }
}

/// A finished handler table.
pub(crate) struct Table<S> {
    pub(crate) serial: u32,
    pub(crate) codes: Vec<Code<S>>,
    pub(crate) names: Vec<String>,
    pub(crate) bounds: Box<[ReplyBound; MAX_HANDLERS]>,
    pub(crate) tallies: Box<[Tally; MAX_HANDLERS]>,
}

impl<S> Table<S> {
    /// The name of a registered handler.
    pub(crate) fn name(&self, handler: u8) -> String {
        self.names.get(usize::from(handler)).cloned().unwrap_or_default()
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

/// The first handler in which two descriptions differ: its index, and what each side has there.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn noop<A>(_: &mut (), _: Address, _: A, _: Payload<'_>) {}

    #[test]
    fn names_are_checked() {
        let mut handlers = Handlers::<()>::new();
        handlers.one_way("a", noop::<u32>).unwrap();
        assert_eq!(handlers.reply("a", noop::<u32>).unwrap_err(), RegisterError::NameTaken { name: "a".into() });
        for bad in ["", "tab\t", &"x".repeat(65)] {
            assert!(matches!(handlers.one_way(bad, noop::<()>), Err(RegisterError::BadName { .. })));
        }
    }

    #[test]
    fn a_table_holds_256() {
        let mut handlers = Handlers::<()>::new();
        for index in 0..256 {
            assert_eq!(handlers.one_way(&index.to_string(), noop::<()>).unwrap().index(), index as u8);
        }
        let full = handlers.one_way("one more", noop::<()>).unwrap_err();
        assert_eq!(full, RegisterError::TableFull { name: "one more".into() });
    }

    #[test]
    fn fingerprints_see_names_kinds_arguments_and_order() {
        let table = |names: &[&str]| {
            let mut handlers = Handlers::<()>::new();
            for name in names {
                handlers.one_way(name, noop::<u32>).unwrap();
            }
            handlers
        };
        assert_eq!(table(&["a", "b"]).fingerprint(), table(&["a", "b"]).fingerprint());
        assert_ne!(table(&["a", "b"]).fingerprint(), table(&["b", "a"]).fingerprint());
        let mut other = Handlers::<()>::new();
        other.one_way("a", noop::<u64>).unwrap();
        assert_ne!(table(&["a"]).fingerprint(), other.fingerprint());
        let difference = first_difference(&table(&["a", "b"]).description(), &other.description());
        assert_eq!(difference, Some((0, "'a' (one-way u32)".into(), "'a' (one-way u64)".into())));
        let longer = first_difference(&table(&["a", "b"]).description(), &table(&["a"]).description());
        assert_eq!(longer, Some((1, "'b' (one-way u32)".into(), "nothing".into())));
    }
}
