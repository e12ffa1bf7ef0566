//! What calls allocate: nothing, once buffers and futures have been used.

use crate::support::{Question, attach};
use am_async::{CallConfig, CallEndpoint, Calls, Failure, Methods};
use am_conformance::{allocations, without_stall_requests};
use am_core::loopback::single;
use am_core::{Endpoint, Handlers, Rank};
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde::ser::{SerializeSeq, Serializer};
use serde::{Deserialize, Serialize};
use std::fmt;

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
