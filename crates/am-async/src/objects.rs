//! Objects of which every rank has a value: one handle, and calls that reach the value of any rank.

use crate::caller::{Call, Caller};
use crate::context::{Context, Origin};
use crate::error::Failure;
use crate::method::Method;
use crate::methods::Methods;
use am_core::address::Shape;
use am_core::{Address, Destination, Peer, RegisterError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Poll, Waker};
use std::thread::{self, ThreadId};

/// Objects that a rank may hear of before it has made them itself, of one kind.
const AHEAD: u64 = 1 << 16;

/// A kind of distributed objects, registered by [`Methods::objects`]: each object of it has a value of type `T` on
/// every rank. Every rank makes the same objects of a kind, in the same order; that order, and nothing else, tells
/// which values belong together, so that making one takes no message.
///
/// ```
/// use am_async::{CallEndpoint, CallError, Calls, DistObject, Failure, Methods};
/// use am_core::{Endpoint, Handlers, Rank, loopback};
///
/// let ranks = loopback::network(3, loopback::LoopbackConfig::default()).into_iter().map(|transport| {
///     std::thread::spawn(move || {
///         let mut methods = Methods::<()>::new();
///         let counters = methods.objects::<u64>("counter")?;
///         let add = methods.update(&counters, "add", |counter, _, number: u64| {
///             *counter += number;
///             Ok::<u64, Failure>(*counter)
///         })?;
///         let mut handlers = Handlers::new();
///         let calls = Calls::register(&mut handlers, methods, ())?;
///         let mut endpoint = Endpoint::attach(transport, handlers, calls)?;
///         let (me, caller) = (endpoint.rank(), endpoint.caller());
///         let right = Rank((me.0 + 1) % endpoint.ranks());
///         let counter = DistObject::new(&caller, &counters, 10 * u64::from(me.0));
///         // The right neighbour may not have made its own yet: the call waits for it there.
///         let sum = counter.update(&caller, right, &add, 5).wait(&mut endpoint)?;
///         assert_eq!(sum, 10 * u64::from(right.0) + 5);
///         assert_eq!(counter.fetch(&caller, right).wait(&mut endpoint)?, sum);
///         endpoint.barrier()?;
///         assert_eq!(counter.with(|counter| *counter), 10 * u64::from(me.0) + 5);
///         drop(counter);
///         endpoint.finish()?;
///         Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
///     })
/// });
/// for rank in ranks.collect::<Vec<_>>() {
///     rank.join().unwrap().unwrap();
/// }
/// ```
pub struct Objects<T> {
    kind: Arc<Kind<T>>,
    fetch: Method<u64, T>,
    dropped: Method<u64, ()>,
}

impl<T> Clone for Objects<T> {
    fn clone(&self) -> Self {
        Self { kind: Arc::clone(&self.kind), fetch: self.fetch, dropped: self.dropped }
    }
}

impl<T> fmt::Debug for Objects<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Objects").field("name", &self.kind.name).finish_non_exhaustive()
    }
}

/// A method of the values of a kind of objects, with requests `Q`, answers `R` and errors `E`; see
/// [`Methods::update`].
pub struct Update<T, Q, R, E = Failure> {
    kind: Arc<Kind<T>>,
    method: Method<(u64, Q), R, E>,
}

impl<T, Q, R, E> Clone for Update<T, Q, R, E> {
    fn clone(&self) -> Self {
        Self { kind: Arc::clone(&self.kind), method: self.method }
    }
}

impl<T, Q, R, E> fmt::Debug for Update<T, Q, R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Update").field(&self.method).finish()
    }
}

/// A value, and who uses it.
struct Cell<T> {
    value: Mutex<T>,
    user: Mutex<Option<ThreadId>>,
    /// Calls that wait until the program has given the value back.
    waiting: Mutex<Vec<Waker>>,
}

/// A value that is in use.
struct Used<'a, T> {
    value: Option<MutexGuard<'a, T>>,
    cell: &'a Cell<T>,
}

impl<T> Drop for Used<'_, T> {
    fn drop(&mut self) {
        *lock(&self.cell.user) = None;
        self.value = None;
        let waiting = std::mem::take(&mut *lock(&self.cell.waiting));
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl<T> Cell<T> {
    fn new(value: T) -> Self {
        Self { value: Mutex::new(value), user: Mutex::new(None), waiting: Mutex::default() }
    }

    fn use_value<R>(&self, value: MutexGuard<'_, T>, look: impl FnOnce(&mut T) -> R) -> R {
        *lock(&self.user) = Some(thread::current().id());
        let mut used = Used { value: Some(value), cell: self };
        look(used.value.as_mut().expect("the value is there until the end"))
    }

    fn check_user(&self) {
        assert!(
            *lock(&self.user) != Some(thread::current().id()),
            "the value of a distributed object is lent already: DistObject::with serves no calls meanwhile"
        );
    }

    /// Lends the value to the program.
    fn with<R>(&self, look: impl FnOnce(&mut T) -> R) -> R {
        self.check_user();
        // A panic of a method leaves the value as it was then, which is for the program to judge.
        self.use_value(lock(&self.value), look)
    }

    /// Lends the value to a call, which waits without keeping its thread from anything else.
    async fn with_later<R>(&self, look: impl FnOnce(&mut T) -> R) -> R {
        let mut look = Some(look);
        std::future::poll_fn(|context| {
            self.check_user();
            let value = match self.free() {
                Some(value) => Some(value),
                None => {
                    let mut waiting = lock(&self.waiting);
                    if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                        waiting.push(context.waker().clone());
                    }
                    drop(waiting);
                    // Whoever gives the value back from now on wakes; it may have been given back before.
                    self.free()
                }
            };
            match (value, look.take()) {
                (Some(value), Some(look)) => Poll::Ready(self.use_value(value, look)),
                (_, kept) => {
                    look = kept;
                    Poll::Pending
                }
            }
        })
        .await
    }

    fn free(&self) -> Option<MutexGuard<'_, T>> {
        match self.value.try_lock() {
            Ok(value) => Some(value),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The objects of a kind at one endpoint.
struct Kind<T> {
    name: String,
    here: Mutex<Here<T>>,
}

struct Here<T> {
    /// The number of the next one.
    next: u64,
    /// Values that are needed, also those that the program here has dropped and other ranks have not.
    values: BTreeMap<u64, Arc<Cell<T>>>,
    /// At the endpoint that counts for an object: how many endpoints have dropped it.
    dropped: BTreeMap<u64, u32>,
    /// Calls for objects that are not there yet.
    waiting: Vec<(u64, Waker)>,
    /// What tells others, once there is an object.
    caller: Option<Caller>,
}

/// The endpoint that counts who has dropped an object.
fn counter(shape: Shape, number: u64) -> Address {
    shape.address(Peer((number % u64::from(shape.peers())) as u32))
}

impl<T> Kind<T> {
    /// The value of an object, once it is there; none if all have dropped the object.
    async fn value(&self, number: u64) -> Option<Arc<Cell<T>>> {
        std::future::poll_fn(|context| {
            let mut here = lock(&self.here);
            if number < here.next {
                return Poll::Ready(here.values.get(&number).cloned());
            }
            // A waker is that of a task's place: there are no more than places.
            let old = here.waiting.iter_mut().find(|(_, waker)| waker.will_wake(context.waker()));
            match old {
                Some((waits_for, _)) => *waits_for = number,
                None => here.waiting.push((number, context.waker().clone())),
            }
            Poll::Pending
        })
        .await
    }

    /// An endpoint has dropped an object; whom to tell if it was the last one.
    fn count(&self, number: u64) -> Option<Caller> {
        let mut here = lock(&self.here);
        if number >= here.next.saturating_add(AHEAD) {
            return None;
        }
        let count = here.dropped.entry(number).or_insert(0);
        *count += 1;
        let count = *count;
        let caller = here.caller.clone()?;
        let peers = caller.shared().table().shape().map_or(0, |shape| shape.peers());
        if count < peers {
            return None;
        }
        here.dropped.remove(&number);
        Some(caller)
    }

    /// Nobody needs an object any more.
    fn free(&self, number: u64) {
        let value = lock(&self.here).values.remove(&number);
        // Its destructor is the program's.
        drop(value);
    }
}

impl<W: Send + 'static> Methods<W> {
    /// Registers a kind of [distributed objects](DistObject) with values of type `T`. Its methods are named
    /// `name.fetch`, `name.dropped` and `name.freed`.
    ///
    /// # Errors
    /// As [`Methods::function`], for these names.
    pub fn objects<T>(&mut self, name: &str) -> Result<Objects<T>, RegisterError>
    where
        T: Clone + Serialize + DeserializeOwned + Send + 'static,
    {
        let here: Here<T> =
            Here { next: 0, values: BTreeMap::new(), dropped: BTreeMap::new(), waiting: Vec::new(), caller: None };
        let kind = Arc::new(Kind { name: name.to_owned(), here: Mutex::new(here) });
        let of = Arc::clone(&kind);
        let fetch = self.asynchronous(&format!("{name}.fetch"), move |_: Context<W>, number: u64| {
            let kind = Arc::clone(&of);
            async move {
                let value = kind.value(number).await.unwrap_or_else(|| gone(&kind.name, number));
                Ok::<T, Failure>(value.with_later(|value| value.clone()).await)
            }
        })?;
        let of = Arc::clone(&kind);
        let freed = self.function(&format!("{name}.freed"), move |_, origin, number: u64| {
            let shape = lock(&of.here).caller.as_ref().and_then(|caller| caller.shared().table().shape());
            // Nobody but the endpoint that counts knows.
            if shape.is_some_and(|shape| counter(shape, number) == origin.source) {
                of.free(number);
            }
            Ok::<(), Failure>(())
        })?;
        let of = Arc::clone(&kind);
        let dropped = self.function(&format!("{name}.dropped"), move |_, _, number: u64| {
            let Some(caller) = of.count(number) else { return Ok(()) };
            // Nothing is locked when others are told.
            let shape = caller.shared().table().shape();
            for (shape, peer) in
                shape.into_iter().flat_map(|shape| (0..shape.peers()).map(move |peer| (shape, peer)))
            {
                // One that is gone needs no word.
                let _ = caller.one_way(shape.address(Peer(peer)), freed, &number);
            }
            Ok::<(), Failure>(())
        })?;
        Ok(Objects { kind, fetch, dropped })
    }

    /// Registers a function of the values of a kind of objects, named `kind.name`: [`DistObject::update`] calls it
    /// for the value of any rank.
    ///
    /// # Errors
    /// As [`Methods::function`].
    pub fn update<T, Q, R, E, F>(
        &mut self,
        objects: &Objects<T>,
        name: &str,
        function: F,
    ) -> Result<Update<T, Q, R, E>, RegisterError>
    where
        T: Send + 'static,
        Q: DeserializeOwned + Send + 'static,
        R: Serialize + 'static,
        E: Serialize + 'static,
        F: Fn(&mut T, &Origin, Q) -> Result<R, E> + Send + Sync + 'static,
    {
        let (kind, function) = (Arc::clone(&objects.kind), Arc::new(function));
        let name = format!("{}.{name}", kind.name);
        let of = Arc::clone(&kind);
        let method = self.asynchronous(&name, move |context: Context<W>, (number, request): (u64, Q)| {
            let (kind, function) = (Arc::clone(&of), Arc::clone(&function));
            async move {
                let value = kind.value(number).await.unwrap_or_else(|| gone(&kind.name, number));
                value.with_later(|value| function(value, &context.origin(), request)).await
            }
        })?;
        Ok(Update { kind, method })
    }
}

/// Ends a method that is called for an object that all ranks have dropped: whoever calls it breaks the protocol.
fn gone(name: &str, number: u64) -> ! {
    // As a panic, without the message that one prints.
    resume_unwind(Box::new(format!("object {number} of '{name}' was dropped by all ranks")))
}

/// An object with a value on every rank, as UPC++'s `dist_object`: this rank's own value, and calls that fetch or
/// change those of others.
///
/// Making one is collective only in that every rank does: it sends nothing and waits for nobody. Calls for the
/// value of a rank that has not made it yet wait there, as long as their deadline allows.
///
/// Dropping one is not collective either. This rank's value stays for the calls of others until all ranks have
/// dropped theirs, of which one rank, another one for each object, is told by messages. A call of
/// [`fetch`](Self::fetch) or [`update`](Self::update) that has not ended counts as this rank's object until it
/// has. After the loss of a rank the values of objects stay as long as the endpoint. Calls to a lost rank are
/// errors, as others.
pub struct DistObject<T> {
    objects: Objects<T>,
    value: Arc<Cell<T>>,
    held: Arc<Held<T>>,
}

/// This rank's part in an object; the others learn when it ends.
struct Held<T> {
    kind: Arc<Kind<T>>,
    dropped: Method<u64, ()>,
    caller: Caller,
    number: u64,
}

impl<T> fmt::Debug for DistObject<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistObject")
            .field("objects", &self.objects)
            .field("number", &self.held.number)
            .finish_non_exhaustive()
    }
}

impl<T: Send + 'static> DistObject<T> {
    /// Makes the next object of a kind, with this rank's value, at the caller's endpoint. Allocates.
    ///
    /// # Panics
    /// If the kind's earlier objects were made at another endpoint.
    pub fn new(caller: &Caller, objects: &Objects<T>, value: T) -> Self {
        let value = Arc::new(Cell::new(value));
        let mut here = lock(&objects.kind.here);
        let given = caller.shared();
        let caller = here.caller.get_or_insert_with(|| Caller::new(Arc::clone(given))).clone();
        assert!(Arc::ptr_eq(caller.shared(), given), "the kind's earlier objects were made at another endpoint");
        let number = here.next;
        here.next += 1;
        here.values.insert(number, Arc::clone(&value));
        let wakers: Vec<Waker> =
            here.waiting.extract_if(.., |(waits_for, _)| *waits_for == number).map(|(_, waker)| waker).collect();
        drop(here);
        wakers.into_iter().for_each(Waker::wake);
        let held = Held { kind: Arc::clone(&objects.kind), dropped: objects.dropped, caller, number };
        Self { objects: objects.clone(), value, held: Arc::new(held) }
    }

    /// Lends this rank's value to a closure. Calls of other ranks for it wait meanwhile.
    ///
    /// # Panics
    /// If the value is lent already to a closure that this one is called in, or to which a wait of the endpoint
    /// brings a call.
    pub fn with<R>(&self, look: impl FnOnce(&mut T) -> R) -> R {
        self.value.with(look)
    }
}

impl<T: Clone + Serialize + DeserializeOwned + Send + 'static> DistObject<T> {
    /// Fetches a copy of a rank's value. The deadline is `caller`'s.
    pub fn fetch(&self, caller: &Caller, rank: impl Destination) -> Call<Method<u64, T>> {
        caller.call(rank, self.objects.fetch, &self.held.number).keeping(self.held.clone())
    }
}

impl<T: Send + 'static> DistObject<T> {
    /// Has a function run on a rank's value; the future yields what it returns. The deadline is `caller`'s.
    ///
    /// # Panics
    /// If the function is one of another kind of objects.
    pub fn update<Q, R, E>(
        &self,
        caller: &Caller,
        rank: impl Destination,
        function: &Update<T, Q, R, E>,
        request: Q,
    ) -> Call<Method<(u64, Q), R, E>>
    where
        Q: Serialize + 'static,
        R: DeserializeOwned + 'static,
        E: DeserializeOwned + 'static,
    {
        let same = Arc::ptr_eq(&self.objects.kind, &function.kind);
        assert!(same, "the function was registered for another kind of objects");
        caller.call(rank, function.method, &(self.held.number, request)).keeping(self.held.clone())
    }
}

impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        let shape = self.caller.shared().table().shape();
        let told = shape.is_some_and(|shape| {
            self.caller.one_way(counter(shape, self.number), self.dropped, &self.number).is_ok()
        });
        if !told {
            // The endpoint is gone: nobody reaches the value any more.
            self.kind.free(self.number);
        }
    }
}
