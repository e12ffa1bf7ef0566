//! A job of threads, and the methods that most tests call.

use am_async::{CallConfig, CallEndpoint, Calls, Context, Failure, Method, Methods, SliceMethod, StreamMethod};
use am_core::loopback::{Loopback, LoopbackConfig, network};
use am_core::{Endpoint, Handlers, Rank, Span};
use serde::{Deserialize, Serialize};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// What methods work on.
#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) handles: Option<Handles>,
    pub(crate) total: u64,
    pub(crate) finished: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Question {
    Nothing,
    Text(String),
    Many { numbers: Vec<u32>, inner: Option<Box<Question>> },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Wrong {
    Negative(i64),
    Odd,
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Handles {
    pub(crate) nothing: Method<(), ()>,
    pub(crate) add: Method<u64, u64>,
    pub(crate) echo: Method<Question, Question>,
    pub(crate) half: Method<i64, i64, Wrong>,
    pub(crate) panic: Method<String, ()>,
    /// As a panic, without the message that one prints: of a function, of an `async` method, and of a stream
    /// after so many answers.
    pub(crate) unwind: Method<(), ()>,
    pub(crate) unwind_later: Method<(), ()>,
    pub(crate) unwind_amid: StreamMethod<u32, u32>,
    pub(crate) bytes: Method<Vec<u8>, Vec<u8>>,
    pub(crate) make: Method<u32, Vec<u8>>,
    pub(crate) scale: SliceMethod<f64, f64>,
    pub(crate) later: Method<(u64, u64), u64>,
    pub(crate) relay: Method<Vec<u32>, Vec<u32>>,
    pub(crate) never: Method<(), ()>,
    pub(crate) count: StreamMethod<u32, u32>,
    pub(crate) pieces: StreamMethod<Vec<usize>, Vec<u8>>,
    pub(crate) counts: Method<(), (u32, u32)>,
}

/// Counts when it is dropped, as the future of a cancelled call is.
struct Counted(Arc<AtomicU32>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

pub(crate) fn methods() -> (Methods<World>, Handles) {
    let mut methods = Methods::<World>::new();
    let nothing = methods.function("nothing", |_, _, ()| Ok(())).unwrap();
    let add = methods.function("add", |world: &mut World, _, number: u64| {
        world.total += number;
        Ok(world.total)
    });
    let echo = methods.function("echo", |_, _, question: Question| Ok(question)).unwrap();
    let half = methods.function("half", |_, _, number: i64| match number {
        ..0 => Err(Wrong::Negative(number)),
        number if number % 2 != 0 => Err(Wrong::Odd),
        number => Ok(number / 2),
    });
    let panic = methods.function("panic", |_, _, text: String| -> Result<(), Failure> { panic!("{text}") });
    let unwind =
        methods.function("unwind", |_, _, ()| -> Result<(), Failure> { resume_unwind(Box::new("unwound")) });
    let unwind_later = methods.asynchronous("unwind later", |context: Context<World>, ()| async move {
        context.sleep(Span::from_nanos(100)).await;
        context.with(|_| -> Result<(), Failure> { resume_unwind(Box::new("unwound")) })
    });
    let unwind_amid = methods.stream("unwind amid", |context: Context<World>, count: u32, mut sink| async move {
        for number in 0..count {
            sink.send(&number).await?;
        }
        context.with(|_| -> Result<(), Failure> { resume_unwind(Box::new("unwound")) })
    });
    let bytes = methods.function("bytes", |_, _, bytes: Vec<u8>| Ok(bytes)).unwrap();
    let make = methods.function("make", |_, _, len: u32| Ok(vec![7; len as usize])).unwrap();
    let scale = methods.slices("scale", |_, _, values: &[f64], answer| {
        answer.extend(values.iter().map(|value| 2.0 * value));
        Ok(())
    });
    let later =
        methods.asynchronous("later", |context: Context<World>, (number, micros): (u64, u64)| async move {
            context.sleep(Span::from_micros(micros)).await;
            context.with(|world| world.finished += 1);
            Ok(number + 1)
        });
    // Goes to each rank of the list, one after the other, and tells where it has been.
    let relay = methods.asynchronous("relay", |context: Context<World>, mut path: Vec<u32>| async move {
        let Some(next) = path.pop() else { return Ok(Vec::new()) };
        let relay = context.with(|world| world.handles.expect("registered").relay);
        let mut been = context.call(Rank(next), relay, &path).await?;
        been.push(next);
        Ok(been)
    });
    let (begun, dropped) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (counted, counter) = (Arc::clone(&begun), Arc::clone(&dropped));
    let never = methods.asynchronous("never", move |_, ()| {
        counted.fetch_add(1, Ordering::Relaxed);
        let _counted = Counted(Arc::clone(&counter));
        async move {
            let _counted = _counted;
            std::future::pending::<Result<(), Failure>>().await
        }
    });
    let count = methods.stream("count", |context: Context<World>, count: u32, mut sink| async move {
        for number in 0..count {
            if number % 3 == 0 {
                context.sleep(Span::from_nanos(100)).await;
            }
            sink.send(&number).await?;
        }
        if count == 13 { Err(Failure::new("unlucky")) } else { Ok(()) }
    });
    // An answer of each of these lengths; the error at its end is as long as the last one.
    let pieces = methods.stream("pieces", |_, lens: Vec<usize>, mut sink| async move {
        let last = lens.last().copied().unwrap_or(0);
        for (number, len) in lens.into_iter().enumerate() {
            sink.send(&vec![number as u8; len]).await?;
        }
        Err::<(), _>(Failure::new("x".repeat(last)))
    });
    let handles = Handles {
        nothing,
        add: add.unwrap(),
        echo,
        half: half.unwrap(),
        panic: panic.unwrap(),
        unwind: unwind.unwrap(),
        unwind_later: unwind_later.unwrap(),
        unwind_amid: unwind_amid.unwrap(),
        bytes,
        make,
        scale: scale.unwrap(),
        later: later.unwrap(),
        relay: relay.unwrap(),
        never: never.unwrap(),
        count: count.unwrap(),
        pieces: pieces.unwrap(),
        // How many futures of `never` have begun here, and how many of them have been dropped.
        counts: methods
            .function("counts", move |_, _, ()| {
                Ok((begun.load(Ordering::Relaxed), dropped.load(Ordering::Relaxed)))
            })
            .unwrap(),
    };
    (methods, handles)
}

pub(crate) type TestEndpoint = Endpoint<Loopback, Calls<World>>;

pub(crate) fn attach(transport: Loopback, config: CallConfig) -> (TestEndpoint, Handles) {
    let (methods, handles) = methods();
    let mut table = Handlers::new();
    let world = World { handles: Some(handles), ..World::default() };
    let calls = Calls::register_with(&mut table, methods, world, config).unwrap();
    let mut endpoint = Endpoint::attach(transport, table, calls).unwrap();
    // Should a test fail, the other ranks end, too.
    endpoint.set_timeout(Span::from_secs(300));
    (endpoint, handles)
}

/// Runs a job of threads: rank 0 has `first`, the others serve until it has finished.
pub(crate) fn job(
    ranks: u32,
    network_config: LoopbackConfig,
    config: CallConfig,
    first: impl FnOnce(&mut TestEndpoint, Handles),
) {
    let mut transports = network(ranks, network_config).into_iter();
    let transport = transports.next().unwrap();
    std::thread::scope(|scope| {
        for transport in transports {
            scope.spawn(move || attach(transport, config).0.finish().unwrap());
        }
        let (mut endpoint, handles) = attach(transport, config);
        first(&mut endpoint, handles);
        endpoint.finish().unwrap();
    });
}

/// A job with default settings.
pub(crate) fn simple(ranks: u32, first: impl FnOnce(&mut TestEndpoint, Handles)) {
    job(ranks, LoopbackConfig::default(), CallConfig::default(), first);
}

/// Waits until all futures of `never` on a rank have been dropped.
pub(crate) fn until_dropped(endpoint: &mut TestEndpoint, handles: Handles, rank: Rank) {
    loop {
        let (begun, dropped) = endpoint.call(rank, handles.counts, &()).wait(endpoint).unwrap();
        if begun == dropped {
            return;
        }
    }
}
