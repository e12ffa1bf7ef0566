//! Handler registration: up to 256 request handlers and 256 reply handlers, named, in the same order on every
//! rank.
//!
//! A table knows nothing of transports: the same [`Handlers`] attach to shared memory, UDP or a simulation. `S` is
//! the state of the endpoint, handed to every handler as `&mut S`; a handler cannot poll or send requests because
//! it has no endpoint. Libraries register theirs through [`Handlers::layer`].
//!
//! * `handle` has what registration returns, `table` what an endpoint makes of the registered handlers.

mod handle;
mod table;

pub use handle::{Reply, ReplyRange, Request, RequestRange};

use crate::address::Address;
use crate::arguments::{Arguments, MAX_WORDS, Words, decode};
use crate::error::RegisterError;
use crate::layer::{HasLayer, LayerHandlers, Outbox, ProgressResult};
use crate::outcome::HandlerOutcome;
use crate::payload::Payload;
use crate::token::Token;
use crate::transport::{Lane, ReplyBound};
use std::any::TypeId;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use table::{CompletedFn, Name, OneWayFn, RequestFn};

pub(crate) use handle::bound_of;
pub(crate) use table::{
    Advance, Directory, Fault, Handled, LayerBit, ReplyCode, RequestCode, Table, Tally, first_difference,
};

/// The most request handlers that a table holds, and the most reply handlers.
pub const MAX_HANDLERS: usize = 256;

#[inline(always)]
fn judge(outcome: Option<impl HandlerOutcome>) -> Handled {
    let fault = match outcome {
        None => Fault::Misfit,
        Some(outcome) => Fault::Failed(outcome.failure()?),
    };
    Some(fault.boxed())
}

/// The handlers of an endpoint, being registered. `S` is the endpoint's state.
///
/// A handler returns nothing, or a `Result` if it can fail ([`HandlerResult`](crate::HandlerResult)); an error
/// ends the poll or wait that ran the handler. The types of a handler's parameters need not be written down,
/// except that of its arguments where nothing else tells it.
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
/// let log = handlers.one_way("log", |_, source, line: u32, _| println!("{source}: {line}"))?;
/// // Requests and replies are numbered apart.
/// assert_eq!((sum.index(), add.index(), log.index()), (0, 0, 1));
/// # Ok::<(), am_core::RegisterError>(())
/// ```
pub struct Handlers<S> {
    serial: u32,
    table: Table<S>,
    /// Names and indices of each lane's handlers.
    names: [Vec<Name>; 2],
    /// One line per handler or range, in the order of registration.
    description: String,
    bounds: Vec<Bound>,
    layers: Vec<String>,
    /// Names of what is declared besides handlers.
    declared: Vec<String>,
    /// Whose handlers are being registered.
    registering: LayerBit,
}

impl<S> fmt::Debug for Handlers<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.description.lines()).finish()
    }
}

impl<S> Default for Handlers<S> {
    fn default() -> Self {
        Self::new()
    }
}

/// What a request handler declares of its replies.
#[derive(Clone, Copy, Debug)]
enum Bound {
    /// There are none.
    None,
    /// The transport's default.
    Default,
    /// This many bytes.
    UpTo(u32),
    /// As many bytes as the transport carries.
    Largest,
}

/// Refuses argument types that no message can carry.
const fn fits<A: Arguments>() {
    assert!(A::WORDS <= MAX_WORDS, "a handler takes at most sixteen 32-bit words: let the rest come as payload");
}

/// How much a table held at some time.
pub(crate) struct Mark<S> {
    requests: usize,
    replies: usize,
    names: [usize; 2],
    declared: usize,
    description: usize,
    layers: usize,
    progress: usize,
    completed: Option<(CompletedFn<S>, LayerBit)>,
}

/// Tells handles of one table from those of another within a process.
static TABLES: AtomicU32 = AtomicU32::new(1);

impl<S> Handlers<S> {
    /// An empty table.
    pub fn new() -> Self {
        // Relaxed: the number only has to be unique.
        let serial = TABLES.fetch_add(1, Ordering::Relaxed);
        let table = Table {
            requests: Vec::new(),
            replies: Vec::new(),
            request_ranges: Vec::new(),
            reply_ranges: Vec::new(),
            layers: Vec::new(),
            states: Vec::new(),
            completed: None,
        };
        let (names, bounds, registering) = ([Vec::new(), Vec::new()], Vec::new(), LayerBit::PROGRAM);
        let (description, layers, declared) = (String::new(), Vec::new(), Vec::new());
        Self { serial, table, names, description, bounds, layers, declared, registering }
    }

    /// Refuses bad names, and those of others.
    fn check_name(&self, name: &str) -> Result<(), RegisterError> {
        if name.is_empty() || name.len() > 64 || name.chars().any(char::is_control) {
            return Err(RegisterError::BadName { name: name.into() });
        }
        let mut taken = self.names.iter().flatten().map(|taken| &taken.name).chain(&self.declared);
        if taken.any(|taken| taken == name) {
            return Err(RegisterError::NameTaken { name: name.into() });
        }
        Ok(())
    }

    /// Adds a line to the description that no handler belongs to; see [`LayerHandlers::declare`].
    pub(crate) fn declare(&mut self, name: &str, what: &str) -> Result<(), RegisterError> {
        self.check_name(name)?;
        self.declared.push(name.into());
        let what = what.replace(char::is_control, " ");
        self.description.push_str(&format!("'{name}' ({what})\n"));
        Ok(())
    }

    /// Takes a name and the next `count` indices of a lane; returns the first.
    fn add(&mut self, lane: Lane, name: &str, range: bool, count: u16, kind: &str) -> Result<u8, RegisterError> {
        self.check_name(name)?;
        let taken = match lane {
            Lane::Request => self.table.requests.len(),
            Lane::Reply => self.table.replies.len(),
        };
        if taken + usize::from(count).max(1) > MAX_HANDLERS {
            return Err(RegisterError::TableFull { name: name.into() });
        }
        let first = u8::try_from(taken).map_err(|_| RegisterError::TableFull { name: name.into() })?;
        self.names[lane as usize].push(Name { first, range, name: name.into() });
        self.description.push_str(&format!("'{name}' ({kind})\n"));
        Ok(first)
    }

    /// Registers a handler that cannot reply: it gets the source's address instead of a token. The cheapest kind,
    /// since nothing is set aside for a reply.
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
        let index = self.add(Lane::Request, name, false, 1, &format!("one-way {}", A::signature()))?;
        self.bounds.push(Bound::None);
        let layer = self.registering;
        let code: OneWayFn<S> = Box::new(move |state, from, words, payload| {
            judge(decode::<A>(words).map(|args| handler(state, from, args, payload)))
        });
        self.table.requests.push(RequestCode::OneWay { code, layer });
        Ok(Request::new(index, self.serial))
    }

    /// Registers a handler that may reply once, with a Medium reply of up to
    /// [`DEFAULT_REPLY`](crate::transport::DEFAULT_REPLY) bytes (1024; 944 over SCI, whose
    /// buffers are no larger), or any Short or Long reply. For larger ones, or to have more requests under way,
    /// declare a bound with [`Handlers::request_bounded`].
    ///
    /// # Errors
    /// As [`Handlers::one_way`].
    pub fn request<A, F, O>(&mut self, name: &str, handler: F) -> Result<Request<A>, RegisterError>
    where
        A: Arguments + 'static,
        F: FnMut(&mut S, Token<'_>, A, Payload<'_>) -> O + Send + 'static,
        O: HandlerOutcome,
    {
        self.add_request(name, Bound::Default, handler)
    }

    /// Registers a handler that may reply once, with at most `max_reply` payload bytes in a Medium reply (Short
    /// and Long replies are always possible). A smaller bound lets more requests be under way at once;
    /// [`Request::reply_up_to`] bounds the replies of single requests further.
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
        self.add_request(name, Bound::UpTo(max_reply), handler)
    }

    /// Registers a handler that may reply once, with as much as the transport carries in a Medium reply. So much
    /// is set aside for each request that does not say by [`Request::reply_up_to`] that it needs less.
    ///
    /// # Errors
    /// As [`Handlers::one_way`].
    pub fn request_largest<A, F, O>(&mut self, name: &str, handler: F) -> Result<Request<A>, RegisterError>
    where
        A: Arguments + 'static,
        F: FnMut(&mut S, Token<'_>, A, Payload<'_>) -> O + Send + 'static,
        O: HandlerOutcome,
    {
        self.add_request(name, Bound::Largest, handler)
    }

    fn add_request<A, F, O>(
        &mut self,
        name: &str,
        bound: Bound,
        mut handler: F,
    ) -> Result<Request<A>, RegisterError>
    where
        A: Arguments + 'static,
        F: FnMut(&mut S, Token<'_>, A, Payload<'_>) -> O + Send + 'static,
        O: HandlerOutcome,
    {
        const { fits::<A>() };
        let kind = match bound {
            Bound::UpTo(bytes) => format!("request {} replying up to {bytes}", A::signature()),
            Bound::Largest => format!("request {} replying as much as there is room for", A::signature()),
            Bound::Default | Bound::None => format!("request {}", A::signature()),
        };
        let index = self.add(Lane::Request, name, false, 1, &kind)?;
        self.bounds.push(bound);
        let layer = self.registering;
        let code: RequestFn<S> = Box::new(move |state, token, words, payload| {
            judge(decode::<A>(words).map(|args| handler(state, token, args, payload)))
        });
        self.table.requests.push(RequestCode::Request { code, layer, bound: 0 });
        Ok(Request::new(index, self.serial))
    }

    /// Registers `count` request handlers that share one function, which gets the number of the one that was sent
    /// to, counted from 0, and the argument words as they travelled. So a runtime keeps a numbering of its own
    /// handlers, decided after the table was attached. Each may reply once, with at most `max_reply` payload bytes
    /// in a Medium reply; what single requests need less than that, [`Request::reply_up_to`] tells.
    ///
    /// ```
    /// use am_core::{Endpoint, HandlerResult, Handlers, Rank, Words, loopback};
    ///
    /// type Function = fn(&Words) -> u32;
    /// let mut handlers = Handlers::<(Vec<Function>, Vec<u32>)>::new();
    /// let answers = handlers.reply_range("answers", 2, |state, _, number, words, _| {
    ///     assert_eq!(number, 1);
    ///     state.1.extend(words.word(0));
    /// })?;
    /// let calls = handlers.request_range("calls", 128, 0, move |state, token, number, words, _| {
    ///     let sum = state.0[usize::from(number)](words);
    ///     token.reply(answers.at(1).expect("there are two"), Words::from_slice(&[sum])?)?;
    ///     HandlerResult::Ok(())
    /// })?;
    /// let mut endpoint = Endpoint::attach(loopback::single(), handlers, Default::default())?;
    /// endpoint.state_mut().0.push(|words| words.iter().sum());
    /// endpoint.request(Rank(0), calls.at(0).expect("there are 128"), Words::from_slice(&[1, 2, 3])?)?;
    /// endpoint.wait_until(|(_, sums)| *sums == [6])?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Handlers::one_way`].
    pub fn request_range<F, O>(
        &mut self,
        name: &str,
        count: u16,
        max_reply: u32,
        mut handler: F,
    ) -> Result<RequestRange, RegisterError>
    where
        F: FnMut(&mut S, Token<'_>, u8, &Words, Payload<'_>) -> O + Send + 'static,
        O: HandlerOutcome,
    {
        let kind = format!("range of {count} requests replying up to {max_reply}");
        let first = self.add(Lane::Request, name, true, count, &kind)?;
        let range = u8::try_from(self.table.request_ranges.len());
        let range = range.map_err(|_| RegisterError::TableFull { name: name.into() })?;
        self.bounds.extend((0..count).map(|_| Bound::UpTo(max_reply)));
        let layer = self.registering;
        let one = |number| RequestCode::Range { range, number: number as u8, layer, bound: 0 };
        self.table.requests.extend((0..count).map(one));
        self.table.request_ranges.push(Box::new(move |state, token, number, words, payload| {
            judge(Some(handler(state, token, number, words, payload)))
        }));
        Ok(RequestRange::new(first, count, self.serial))
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
        let index = self.add(Lane::Reply, name, false, 1, &format!("reply {}", A::signature()))?;
        let layer = self.registering;
        let code: OneWayFn<S> = Box::new(move |state, from, words, payload| {
            judge(decode::<A>(words).map(|args| handler(state, from, args, payload)))
        });
        self.table.replies.push(ReplyCode::Reply { code, layer });
        Ok(Reply::new(index, self.serial))
    }

    /// Registers `count` reply handlers that share one function, as [`Handlers::request_range`] does.
    ///
    /// # Errors
    /// As [`Handlers::one_way`].
    pub fn reply_range<F, O>(
        &mut self,
        name: &str,
        count: u16,
        mut handler: F,
    ) -> Result<ReplyRange, RegisterError>
    where
        F: FnMut(&mut S, Address, u8, &Words, Payload<'_>) -> O + Send + 'static,
        O: HandlerOutcome,
    {
        let first = self.add(Lane::Reply, name, true, count, &format!("range of {count} replies"))?;
        let range = u8::try_from(self.table.reply_ranges.len());
        let range = range.map_err(|_| RegisterError::TableFull { name: name.into() })?;
        let layer = self.registering;
        let one = |number| ReplyCode::Range { range, number: number as u8, layer };
        self.table.replies.extend((0..count).map(one));
        self.table.reply_ranges.push(Box::new(move |state, from, number, words, payload| {
            judge(Some(handler(state, from, number, words, payload)))
        }));
        Ok(ReplyRange::new(first, count, self.serial))
    }

    /// The part of this table that belongs to a layer: a library's handlers, whose names begin with `name` and
    /// whose state is the part `L` of the endpoint's state. See [`layer`](crate::layer).
    ///
    /// # Errors
    /// [`RegisterError`] if the name is bad or another layer has it.
    pub fn layer<L: 'static>(&mut self, name: &str) -> Result<LayerHandlers<'_, S, L>, RegisterError>
    where
        S: HasLayer<L>,
    {
        if name.is_empty() || name.len() > 24 || name.chars().any(|c| c.is_control() || c == '.') {
            return Err(RegisterError::BadName { name: name.into() });
        }
        if self.layers.iter().any(|taken| taken == name) {
            return Err(RegisterError::NameTaken { name: name.into() });
        }
        let (layer, before) = (LayerBit::of_layer(self.layers.len()), self.mark());
        self.layers.push(name.into());
        self.table.states.push((TypeId::of::<L>(), layer));
        Ok(LayerHandlers::new(self, format!("{name}."), layer, before))
    }

    /// Registers something for a layer.
    pub(crate) fn for_layer<R>(&mut self, layer: LayerBit, register: impl FnOnce(&mut Self) -> R) -> R {
        self.registering = layer;
        let registered = register(self);
        self.registering = LayerBit::PROGRAM;
        registered
    }

    /// Sets who learns of operations that the network has done by itself: the layer of one-sided access.
    pub(crate) fn completed(&mut self, completed: CompletedFn<S>) {
        self.table.completed = Some((completed, self.registering));
    }

    /// Adds a function that carries on the work that handlers leave in the state; see [`LayerHandlers::progress`].
    /// It is called after any handler has run, and after any layer's state was used.
    pub fn progress(&mut self, progress: impl FnMut(&mut S, &mut Outbox<'_>) -> ProgressResult + Send + 'static) {
        self.progress_of(String::new(), progress);
    }

    /// Adds a progress function of the layer `name`, or of the program.
    pub(crate) fn progress_of(
        &mut self,
        name: String,
        progress: impl FnMut(&mut S, &mut Outbox<'_>) -> ProgressResult + Send + 'static,
    ) {
        self.table.layers.push(Advance::new(name, self.registering, Box::new(progress)));
    }

    /// Adds what says whether the progress function that was added last has anything to do.
    pub(crate) fn pending(&mut self, pending: impl Fn(&S) -> bool + Send + 'static) {
        let layer = self.table.layers.last_mut().expect("a layer has work for its progress function");
        layer.pending = Some(Box::new(pending));
    }

    /// Adds what the layer that was added last looks at before the endpoint sleeps.
    pub(crate) fn changed(&mut self, changed: impl Fn(&S) -> bool + Send + 'static) {
        let layer = self.table.layers.last_mut().expect("a layer watches by its progress function");
        layer.changed = Some(Box::new(changed));
    }

    /// How much is registered.
    fn mark(&self) -> Mark<S> {
        Mark {
            requests: self.table.requests.len(),
            replies: self.table.replies.len(),
            names: [0, 1].map(|lane: usize| self.names[lane].len()),
            declared: self.declared.len(),
            description: self.description.len(),
            layers: self.layers.len(),
            progress: self.table.layers.len(),
            completed: self.table.completed,
        }
    }

    /// Takes back what was registered since a mark: names can be taken again. Indices that have been handed out
    /// lead nowhere, and are not handed out again.
    #[cold]
    pub(crate) fn withdraw(&mut self, mark: &Mark<S>) {
        let Table { requests, replies, layers, states, completed, .. } = &mut self.table;
        layers.truncate(mark.progress);
        states.truncate(mark.layers);
        self.layers.truncate(mark.layers);
        *completed = mark.completed;
        self.declared.truncate(mark.declared);
        self.description.truncate(mark.description);
        let gone = [requests.len() - mark.requests, replies.len() - mark.replies];
        requests[mark.requests..].iter_mut().for_each(|code| *code = RequestCode::Withdrawn);
        replies[mark.replies..].iter_mut().for_each(|code| *code = ReplyCode::Withdrawn);
        self.bounds[mark.requests..].fill(Bound::None);
        for (lane, first) in [mark.requests, mark.replies].into_iter().enumerate() {
            self.names[lane].truncate(mark.names[lane]);
            if gone[lane] != 0 {
                let name = "(withdrawn)".into();
                self.names[lane].push(Name { first: first as u8, range: true, name });
            }
        }
        if gone != [0, 0] {
            self.description.push_str(&format!("withdrawn: {} requests and {} replies\n", gone[0], gone[1]));
        }
    }

    /// Number of registered handlers, requests and replies together.
    pub fn len(&self) -> usize {
        self.table.requests.len() + self.table.replies.len()
    }

    /// Whether no handler is registered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One line per handler or range, in the order of registration: its name, kind and arguments. Ranks compare
    /// this text.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// A 64-bit FNV-1a hash of [`Handlers::description`], compared between ranks at attach.
    pub fn fingerprint(&self) -> u64 {
        let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        self.description.bytes().fold(0xcbf2_9ce4_8422_2325, hash)
    }

    /// The finished table. Handlers that declared no bound get `default`.
    pub(crate) fn finish(self, default: u32, largest: u32) -> (Table<S>, Directory) {
        let mut bounds = [ReplyBound::None; MAX_HANDLERS];
        let all = (0..=u8::MAX).zip(&self.bounds);
        let all_largest =
            all.filter(|(_, bound)| matches!(bound, Bound::Largest)).map(|(index, _)| index).collect();
        for (slot, bound) in bounds.iter_mut().zip(&self.bounds) {
            *slot = match *bound {
                Bound::None => ReplyBound::None,
                Bound::Default => ReplyBound::UpTo(default),
                Bound::UpTo(bytes) => ReplyBound::UpTo(bytes),
                Bound::Largest => ReplyBound::UpTo(largest),
            };
        }
        let Self { serial, mut table, names, .. } = self;
        for (code, bound) in table.requests.iter_mut().zip(&bounds) {
            code.set_bound(bound.bytes() as u32);
        }
        let tallies = Box::new([Tally::default(); MAX_HANDLERS]);
        (table, Directory { serial, names, bounds: Box::new(bounds), tallies, largest: all_largest })
    }

    /// The handler that declares the largest replies, with its bound.
    pub(crate) fn largest_bound(&self) -> Option<(&str, u32)> {
        let declared = self.names[Lane::Request as usize].iter().filter_map(|name| {
            match self.bounds.get(usize::from(name.first)) {
                Some(Bound::UpTo(bytes)) => Some((name.name.as_str(), *bytes)),
                _ => None,
            }
        });
        declared.max_by_key(|(_, bytes)| *bytes)
    }
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
    fn a_table_holds_256_of_each() {
        let mut handlers = Handlers::<()>::new();
        for index in 0..256 {
            assert_eq!(handlers.one_way(&format!("request {index}"), noop::<()>).unwrap().index(), index as u8);
            assert_eq!(handlers.reply(&format!("reply {index}"), noop::<()>).unwrap().index(), index as u8);
        }
        let full = handlers.one_way("one more", noop::<()>).unwrap_err();
        assert_eq!(full, RegisterError::TableFull { name: "one more".into() });
        assert!(handlers.reply_range("some more", 1, |(), _, _, _, _| ()).is_err());
        assert_eq!(handlers.len(), 512);
    }

    #[test]
    fn ranges_take_their_indices() {
        let mut handlers = Handlers::<()>::new();
        handlers.one_way("first", noop::<()>).unwrap();
        let range = handlers.request_range("range", 254, 8, |(), _, _, _, _| ()).unwrap();
        assert_eq!(range.at(0).unwrap().index(), 1);
        assert_eq!(range.at(253).unwrap().index(), 254);
        assert!(range.at(254).is_none());
        assert!(handlers.request_range("too long", 2, 8, |(), _, _, _, _| ()).is_err());
        assert_eq!(handlers.one_way("last", noop::<()>).unwrap().index(), 255);
        let (_, directory) = handlers.finish(0, 0);
        let names = [0, 1, 254, 255].map(|index| directory.name(Lane::Request, index));
        assert_eq!(names, ["first", "range[0]", "range[253]", "last"]);
        assert_eq!(directory.bounds[254], ReplyBound::UpTo(8));
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
        let difference = first_difference(table(&["a", "b"]).description(), other.description());
        assert_eq!(difference, Some((0, "'a' (one-way u32)".into(), "'a' (one-way u64)".into())));
        let longer = first_difference(table(&["a", "b"]).description(), table(&["a"]).description());
        assert_eq!(longer, Some((1, "'b' (one-way u32)".into(), "nothing".into())));
    }
}
