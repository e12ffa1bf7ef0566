//! What calls allocate: nothing, once buffers and futures have been used.

use crate::support::{Question, attach};
use am_async::{CallConfig, CallEndpoint, Calls, Context, Failure, Method, Methods};
use am_conformance::{allocations, without_stall_requests};
use am_core::loopback::single;
use am_core::{Endpoint, Handlers, Rank, Span};
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde::ser::{SerializeSeq, Serializer};
use serde::{Deserialize, Serialize};
use std::fmt;
use transport_shm::{Job, JobConfig, Shm};

#[test]
fn calls_of_one_message_allocate_nothing() {
    let _undisturbed = without_stall_requests();
    let (mut endpoint, handles) = attach(single(), CallConfig::default());
    let mut some = |count: u64| {
        for number in 0..count {
            endpoint.call(Rank(0), handles.nothing, &()).wait(&mut endpoint).unwrap();
            assert_eq!(
                endpoint.call(Rank(0), handles.half, &(2 * number as i64)).wait(&mut endpoint),
                Ok(number as i64)
            );
            // Its error has no text, its answer no list.
            endpoint.call(Rank(0), handles.half, &-1).wait(&mut endpoint).unwrap_err();
            assert_eq!(
                endpoint.call(Rank(0), handles.echo, &Question::Nothing).wait(&mut endpoint),
                Ok(Question::Nothing)
            );
            // A future, with a timer.
            assert_eq!(endpoint.call(Rank(0), handles.later, &(number, 0)).wait(&mut endpoint), Ok(number + 1));
        }
        let answers: [_; 64] = std::array::from_fn(|_| endpoint.call(Rank(0), handles.add, &1));
        answers.into_iter().for_each(|call| assert!(call.wait(&mut endpoint).is_ok()));
    };
    some(300);
    let before = allocations();
    some(1000);
    assert_eq!(allocations() - before, 0);
}

/// So many bytes on their way, which are held nowhere.
#[derive(Debug, PartialEq)]
struct Bytes(usize);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut bytes = serializer.serialize_seq(Some(self.0))?;
        (0..self.0).try_for_each(|byte| bytes.serialize_element(&(byte as u8)))?;
        bytes.end()
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Count;
        impl<'de> Visitor<'de> for Count {
            type Value = Bytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes that count up")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut bytes: A) -> Result<Bytes, A::Error> {
                let mut count = 0;
                while let Some(byte) = bytes.next_element::<u8>()? {
                    if byte != count as u8 {
                        return Err(de::Error::custom("another byte"));
                    }
                    count += 1;
                }
                Ok(Bytes(count))
            }
        }
        deserializer.deserialize_seq(Count)
    }
}

#[test]
fn long_messages_and_streams_allocate_nothing() {
    let _undisturbed = without_stall_requests();
    let mut methods = Methods::<()>::new();
    let echo = methods.function("echo", |(), _, bytes: Bytes| Ok::<_, Failure>(bytes)).unwrap();
    let later = methods.asynchronous("later", |_, bytes: Bytes| async { Ok::<_, Failure>(bytes) }).unwrap();
    let count = methods.stream("count", |_, count: u32, mut sink| async move {
        for number in 0..count {
            sink.send(&number).await?;
        }
        Ok::<_, Failure>(())
    });
    let count = count.unwrap();
    let mut handlers = Handlers::new();
    let calls = Calls::register(&mut handlers, methods, ()).unwrap();
    let mut endpoint = Endpoint::attach(single(), handlers, calls).unwrap();
    let mut some = |times: u32| {
        for _ in 0..times {
            for len in [0, 100, 5000, 60_000, 100_000] {
                assert_eq!(endpoint.call(Rank(0), echo, &Bytes(len)).wait(&mut endpoint), Ok(Bytes(len)));
                assert_eq!(endpoint.call(Rank(0), later, &Bytes(len)).wait(&mut endpoint), Ok(Bytes(len)));
            }
            let mut answers = endpoint.stream(Rank(0), count, &100);
            for number in 0..100 {
                assert_eq!(answers.wait_next(&mut endpoint), Some(Ok(number)));
            }
            assert_eq!(answers.wait_next(&mut endpoint), None);
        }
    };
    some(10);
    let before = allocations();
    some(5);
    assert_eq!(allocations() - before, 0);
}

/// Methods of two ranks: a function, one that waits, one that calls back, and what the rank's thread has
/// allocated.
#[derive(Clone, Copy)]
struct Pair {
    add: Method<(u64, u32), u64>,
    later: Method<u64, u64>,
    back: Method<(u64, u32), u64>,
    allocations: Method<(), u64>,
}

fn attach_pair(transport: Shm) -> (Endpoint<Shm, Calls<u64>>, Pair) {
    let mut methods = Methods::<u64>::new();
    let add = methods.function("add", |total: &mut u64, _, (number, small): (u64, u32)| {
        *total += number;
        Ok::<_, Failure>(number + u64::from(small))
    });
    let add = add.unwrap();
    let later = methods.asynchronous("later", |context: Context<u64>, number: u64| async move {
        context.sleep(Span::from_nanos(1)).await;
        context.with(|total| *total += number);
        Ok::<_, Failure>(number)
    });
    let back = methods.asynchronous("back", move |context: Context<u64>, asked: (u64, u32)| async move {
        let source = context.origin().source;
        Ok::<_, Failure>(context.call(source, add, &asked).await?)
    });
    let allocations = methods.function("allocations", |_, _, ()| Ok::<_, Failure>(allocations()));
    let pair = Pair { add, later: later.unwrap(), back: back.unwrap(), allocations: allocations.unwrap() };
    let mut handlers = Handlers::new();
    let calls = Calls::register(&mut handlers, methods, 0).unwrap();
    (Endpoint::attach(transport, handlers, calls).unwrap(), pair)
}

/// Between two ranks over shared memory neither caller nor callee allocates: waits that block, many calls at once,
/// futures, deadlines, methods that wait and that call back.
#[test]
fn two_ranks_allocate_nothing() {
    let _undisturbed = without_stall_requests();
    let job = Job::create(&JobConfig::new(2)).unwrap();
    let [first, second] = [0, 1].map(|rank| job.join(rank).unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| attach_pair(second).0.finish().unwrap());
        let (mut endpoint, pair) = attach_pair(first);
        let to = Rank(1);
        // What this rank allocates in so many calls, and what the other has allocated so far.
        let mut some = |count: u64| {
            let before = allocations();
            for number in 0..count {
                assert_eq!(endpoint.call(to, pair.add, &(number, 1)).wait(&mut endpoint), Ok(number + 1));
                assert_eq!(endpoint.call(to, pair.later, &number).wait(&mut endpoint), Ok(number));
                assert_eq!(endpoint.call(to, pair.back, &(number, 2)).wait(&mut endpoint), Ok(number + 2));
            }
            let answers: [_; 64] = std::array::from_fn(|_| endpoint.call(to, pair.add, &(1, 1)));
            answers.into_iter().for_each(|call| assert_eq!(call.wait(&mut endpoint), Ok(2)));
            let waited = allocations() - before;
            // A future that the endpoint runs is an allocation, its calls are none.
            let awaited = endpoint.run(|context| async move {
                let (timed, before) = (context.timeout(Span::from_secs(3600)), allocations());
                for number in 0..count {
                    assert_eq!(context.call(to, pair.add, &(number, 1)).await, Ok(number + 1));
                    assert_eq!(timed.call(to, pair.later, &number).await, Ok(number));
                }
                // Both ranks sleep in the system.
                context.sleep(Span::from_millis(20)).await;
                allocations() - before
            });
            let other = endpoint.call(to, pair.allocations, &()).wait(&mut endpoint).unwrap();
            (waited + awaited.unwrap(), other)
        };
        let (_, before) = some(300);
        let (own, other) = some(2000);
        assert_eq!((own, other - before), (0, 0), "at the caller, at the callee");
        endpoint.finish().unwrap();
    });
}
