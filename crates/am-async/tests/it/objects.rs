//! Objects with a value on every rank: early and late calls, and when values go.

use am_async::{CallConfig, CallEndpoint, CallError, Calls, DistObject, Failure, Methods, Objects, Update, drive};
use am_core::loopback::{Loopback, LoopbackConfig, network, single};
use am_core::{Endpoint, Handlers, Rank, Span};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};

static ALIVE: AtomicU32 = AtomicU32::new(0);

/// Counts how many there are.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "u64")]
struct Counted(u64);

impl From<u64> for Counted {
    fn from(value: u64) -> Self {
        Self::new(value)
    }
}

impl Counted {
    fn new(value: u64) -> Self {
        ALIVE.fetch_add(1, Ordering::SeqCst);
        Self(value)
    }
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        Self::new(self.0)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, Ordering::SeqCst);
    }
}

type Ranks = Endpoint<Loopback, Calls<()>>;

#[derive(Clone)]
struct Kinds {
    words: Objects<String>,
    append: Update<String, String, usize, String>,
    counted: Objects<Counted>,
}

fn attach(transport: Loopback) -> (Ranks, Kinds) {
    let mut methods = Methods::new();
    let words = methods.objects::<String>("word").unwrap();
    let append = methods.update(&words, "append", |word, _, more: String| match &*more {
        "" => Err("nothing to append".to_owned()),
        "panic" => panic!("on purpose"),
        more => {
            word.push_str(more);
            Ok(word.len())
        }
    });
    let kinds = Kinds { words, append: append.unwrap(), counted: methods.objects("counted").unwrap() };
    let mut handlers = Handlers::new();
    let calls = Calls::register_with(&mut handlers, methods, (), CallConfig::new()).unwrap();
    let mut endpoint = Endpoint::attach(transport, handlers, calls).unwrap();
    endpoint.set_timeout(Span::from_secs(300));
    (endpoint, kinds)
}

/// Runs ranks as threads.
fn ranks(count: u32, rank: impl Fn(Ranks, Kinds) + Sync) {
    std::thread::scope(|scope| {
        for transport in network(count, LoopbackConfig::default()) {
            let rank = &rank;
            scope.spawn(move || {
                let (endpoint, kinds) = attach(transport);
                rank(endpoint, kinds);
            });
        }
    });
}

#[test]
fn calls_wait_for_a_value_that_is_not_there_yet() {
    ranks(2, |mut endpoint, kinds| {
        let caller = endpoint.caller();
        if endpoint.rank() == Rank(0) {
            let first = DistObject::new(&caller, &kinds.words, "first".into());
            let second = DistObject::new(&caller, &kinds.words, "second".into());
            let late = caller.timeout(Span::from_millis(1));
            let error = second.fetch(&late, Rank(1)).wait(&mut endpoint).unwrap_err();
            assert!(matches!(error, CallError::TimedOut { .. }), "{error}");
            let fetches: Vec<_> = [&second, &first].map(|object| object.fetch(&caller, Rank(1))).into();
            let appended = first.update(&caller, Rank(1), &kinds.append, "!".into());
            assert!(fetches.iter().all(|fetch| !fetch.is_ready()));
            endpoint.barrier().unwrap();
            let words: Vec<String> = fetches.into_iter().map(|fetch| fetch.wait(&mut endpoint).unwrap()).collect();
            assert!(words[0] == "two" && ["one", "one!"].contains(&&*words[1]), "{words:?}");
            assert_eq!(appended.wait(&mut endpoint), Ok(4));
            // Errors of the function are the caller's, and a panic leaves the value.
            let error = first.update(&caller, Rank(1), &kinds.append, String::new()).wait(&mut endpoint);
            assert_eq!(error, Err(CallError::Failed("nothing to append".into())));
            let error = first.update(&caller, Rank(1), &kinds.append, "panic".into()).wait(&mut endpoint);
            assert!(matches!(error, Err(CallError::Panicked { .. })));
            assert_eq!(first.fetch(&caller, Rank(1)).wait(&mut endpoint).unwrap(), "one!");
            // This rank's own value is one of them.
            assert_eq!(second.fetch(&caller, Rank(0)).wait(&mut endpoint).unwrap(), "second");
            second.with(|word| word.push('?'));
            assert_eq!(second.with(|word| word.clone()), "second?");
            endpoint.barrier().unwrap();
        } else {
            // It serves, but has no object.
            endpoint.barrier().unwrap();
            let _one = DistObject::new(&caller, &kinds.words, "one".into());
            let _two = DistObject::new(&caller, &kinds.words, "two".into());
            endpoint.barrier().unwrap();
        }
        endpoint.finish().unwrap();
    });
}

/// A value stays for those who still hold the object, and goes when nobody does.
#[test]
fn values_go_when_all_have_dropped_the_object() {
    let reached = Barrier::new(3);
    ranks(3, |mut endpoint, kinds| {
        let (me, caller) = (endpoint.rank(), endpoint.caller());
        let objects: Vec<_> =
            (0..5).map(|number| DistObject::new(&caller, &kinds.counted, Counted::new(number))).collect();
        endpoint.barrier().unwrap();
        assert!(ALIVE.load(Ordering::SeqCst) >= 15);
        if me == Rank(2) {
            // The others have dropped theirs.
            endpoint.barrier().unwrap();
            for (number, object) in (0..).zip(&objects) {
                for rank in 0..3 {
                    assert_eq!(object.fetch(&caller, Rank(rank)).wait(&mut endpoint).unwrap().0, number);
                }
            }
            drop(objects);
        } else {
            drop(objects);
            endpoint.drain().unwrap();
            endpoint.barrier().unwrap();
        }
        // No wait and no collective: messages alone.
        while ALIVE.load(Ordering::SeqCst) != 0 {
            let _ = endpoint.poll();
        }
        endpoint.barrier().unwrap();
        reached.wait();
        endpoint.finish().unwrap();
    });
}

/// A call under way keeps the values for itself, also when all ranks have dropped the object.
#[test]
fn calls_outlive_the_object() {
    for _ in 0..3 {
        let dropped = Barrier::new(3);
        std::thread::scope(|scope| {
            for transport in network(3, LoopbackConfig::default()) {
                let dropped = &dropped;
                scope.spawn(move || {
                    let mut methods = Methods::<()>::new();
                    let words = methods.objects::<String>("word").unwrap();
                    let mut handlers = Handlers::new();
                    let config = CallConfig::new().calls_per_peer(1);
                    let calls = Calls::register_with(&mut handlers, methods, (), config).unwrap();
                    let mut endpoint = Endpoint::attach(transport, handlers, calls).unwrap();
                    let caller = endpoint.caller();
                    // The third object is counted by rank 2.
                    let _others = [0, 1].map(|_| DistObject::new(&caller, &words, "other".to_owned()));
                    let word = DistObject::new(&caller, &words, "word".to_owned());
                    endpoint.barrier().unwrap();
                    if endpoint.rank() == Rank(0) {
                        dropped.wait();
                        let fetches: Vec<_> = (0..50).map(|_| word.fetch(&caller, Rank(1))).collect();
                        drop(word);
                        for fetch in fetches {
                            assert_eq!(fetch.wait(&mut endpoint).as_deref(), Ok("word"));
                        }
                    } else {
                        drop(word);
                        dropped.wait();
                    }
                    endpoint.finish().unwrap();
                });
            }
        });
    }
}

#[test]
fn a_lost_rank_is_an_error() {
    let done = AtomicU32::new(0);
    let met = Barrier::new(3);
    ranks(3, |mut endpoint, kinds| {
        let caller = endpoint.caller();
        let word = DistObject::new(&caller, &kinds.words, "word".into());
        endpoint.barrier().unwrap();
        // A rank that left earlier would be an error of the barrier.
        met.wait();
        if endpoint.rank() == Rank(2) {
            return;
        }
        // Before and after the loss is known.
        for _ in 0..2 {
            let error = loop {
                match word.fetch(&caller, Rank(2)).wait(&mut endpoint) {
                    Ok(fetched) => assert_eq!(fetched, "word"),
                    Err(error) => break error,
                }
            };
            assert_eq!(error.loss().map(|(rank, _)| rank), Some(Rank(2)), "{error}");
        }
        endpoint.acknowledge_loss(Rank(2));
        let other = Rank(1 - endpoint.rank().0);
        assert_eq!(word.fetch(&caller, other).wait(&mut endpoint).unwrap(), "word");
        drop(word);
        done.fetch_add(1, Ordering::SeqCst);
        while done.load(Ordering::SeqCst) != 2 {
            let _ = endpoint.poll();
        }
        endpoint.leave();
    });
}

#[test]
fn a_value_is_not_lent_twice() {
    ranks(1, |mut endpoint, kinds| {
        let caller = endpoint.caller();
        let word = DistObject::new(&caller, &kinds.words, "word".into());
        let error = word.with(|_| word.fetch(&caller, Rank(0)).wait(&mut endpoint)).unwrap_err();
        let CallError::Panicked { text, .. } = error else { panic!("{error}") };
        assert!(text.contains("lent already"), "{text}");
        // The endpoint may be gone before the object.
        endpoint.finish().unwrap();
        assert_eq!(word.with(|word| word.clone()), "word");
    });
}

/// A driver's task serves the calls while the program's own thread uses the value.
#[test]
fn threads_take_turns() {
    let (endpoint, kinds) = attach(am_core::loopback::single());
    let (caller, driver) = am_async::drive(endpoint);
    let stopper = driver.stop_handle();
    let runtime = || tokio::runtime::Builder::new_current_thread().build().unwrap();
    let driving = std::thread::spawn(move || runtime().block_on(driver));
    let word = Arc::new(DistObject::new(&caller, &kinds.words, String::new()));
    runtime().block_on(async {
        for _ in 0..200 {
            let call = word.update(&caller, Rank(0), &kinds.append, "a".into());
            word.with(|word| word.push('b'));
            call.await.unwrap();
        }
    });
    assert_eq!(word.with(|word| word.len()), 400);
    stopper.stop();
    driving.join().unwrap().endpoint.finish().unwrap();
}

/// The thread that has the value makes a call of its own, which the endpoint serves while another call waits.
#[test]
fn a_lent_value_stops_only_its_own_calls() {
    let mut methods = Methods::<()>::new();
    let words = methods.objects::<String>("word").unwrap();
    let nothing = methods.function("nothing", |_, _, ()| Ok::<_, Failure>(())).unwrap();
    let mut handlers = Handlers::new();
    let calls = Calls::register(&mut handlers, methods, ()).unwrap();
    let endpoint = Endpoint::attach(single(), handlers, calls).unwrap();
    let (caller, driver) = drive(endpoint);
    let runtime = || tokio::runtime::Builder::new_current_thread().build().unwrap();
    std::thread::spawn(move || runtime().block_on(driver));
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let word = DistObject::new(&caller, &words, "word".to_owned());
        let fetch = word.with(|word_here| {
            let fetch = word.fetch(&caller, Rank(0));
            // Calls of a rank to itself come in order: the endpoint has looked at the fetch before it answers.
            (0..3).for_each(|_| runtime().block_on(caller.call(Rank(0), nothing, &())).unwrap());
            assert!(!fetch.is_ready());
            word_here.push('!');
            fetch
        });
        tell.send(runtime().block_on(fetch)).unwrap();
    });
    let told = told.recv_timeout(std::time::Duration::from_secs(60));
    assert_eq!(told.expect("the endpoint goes on"), Ok("word!".to_owned()));
}

#[test]
fn a_kind_has_one_endpoint() {
    let make = || {
        let mut methods = Methods::<()>::new();
        let words = methods.objects::<String>("word").unwrap();
        let mut handlers = Handlers::new();
        let calls = Calls::register(&mut handlers, methods, ()).unwrap();
        (Endpoint::attach(single(), handlers, calls).unwrap(), words)
    };
    let ((mut one, words), (mut other, _)) = (make(), make());
    let (first, second) = (one.caller(), other.caller());
    let kept = DistObject::new(&first, &words, "one".to_owned());
    let made = std::panic::catch_unwind(|| DistObject::new(&second, &words, "two".to_owned()));
    assert!(made.is_err(), "its caller is that of another endpoint");
    // The kind is as it was.
    assert_eq!(DistObject::new(&first, &words, "two".to_owned()).with(|word| word.clone()), "two");
    drop(kept);
}
