//! Spans of calls, recorded by a subscriber: those of the callee are children of the caller's, on whatever rank.

use crate::support::{World, attach, job, methods};
use am_async::{CallConfig, CallEndpoint, CallError, Calls, Failure, Methods, Retries, TraceContext};
use am_core::loopback::{LoopbackConfig, network, single};
use am_core::{AttachError, Endpoint, Handlers, Rank, Span};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, OnceLock};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata, Subscriber};

/// Settings of ranks that make spans.
fn traced() -> CallConfig {
    // While there is one subscriber at most, `tracing` asks that of the thread which makes a kind of span first
    // whether anybody wants it, and remembers the answer for all threads: a test without a subscriber would say no
    // for the others. While there are two, it asks all of them.
    static TWO: OnceLock<[Dispatch; 2]> = OnceLock::new();
    TWO.get_or_init(|| [Dispatch::new(Recorder::default()), Dispatch::new(Recorder::default())]);
    CallConfig::new().tracing(true)
}

#[derive(Clone, Debug, Default)]
struct Recorded {
    name: &'static str,
    fields: BTreeMap<&'static str, String>,
    /// The span of this rank that it was made in.
    inside: Option<u64>,
    entered: u32,
    closed: bool,
}

impl Visit for Recorded {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name(), format!("{value:?}").trim_matches('"').to_owned());
    }
}

/// Records the spans of one rank.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<(Vec<Recorded>, Vec<u64>)>>);

impl Recorder {
    fn spans(&self, name: &str) -> Vec<Recorded> {
        self.0.lock().unwrap().0.iter().filter(|span| span.name == name).cloned().collect()
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "am_async"
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut all = self.0.lock().unwrap();
        let inside = if attributes.is_root() { None } else { all.1.last().copied() };
        let mut span = Recorded { name: attributes.metadata().name(), inside, ..Recorded::default() };
        attributes.record(&mut span);
        all.0.push(span);
        Id::from_u64(all.0.len() as u64)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        values.record(&mut self.0.lock().unwrap().0[span.into_u64() as usize - 1]);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, span: &Id) {
        let mut all = self.0.lock().unwrap();
        all.0[span.into_u64() as usize - 1].entered += 1;
        all.1.push(span.into_u64());
    }

    fn exit(&self, span: &Id) {
        assert_eq!(self.0.lock().unwrap().1.pop(), Some(span.into_u64()));
    }

    fn try_close(&self, span: Id) -> bool {
        self.0.lock().unwrap().0[span.into_u64() as usize - 1].closed = true;
        true
    }
}

/// A call goes from rank 0 to 1, from there to 2, and from there to 0.
#[test]
fn spans_cross_ranks() {
    let recorders: Vec<Recorder> = (0..3).map(|_| Recorder::default()).collect();
    let root = TraceContext { trace_id: 0xabc << 64, span_id: 77 };
    std::thread::scope(|scope| {
        for (transport, recorder) in network(3, LoopbackConfig::default()).into_iter().zip(&recorders) {
            let dispatch = Dispatch::new(recorder.clone());
            scope.spawn(move || {
                tracing::dispatcher::with_default(&dispatch, || {
                    let (mut endpoint, handles) = attach(transport, traced());
                    if endpoint.rank() == Rank(0) {
                        let caller = endpoint.caller().traced(root);
                        let call = caller.call(Rank(1), handles.relay, &vec![0, 2]);
                        assert_eq!(call.wait(&mut endpoint), Ok(vec![0, 2]));
                        caller.call(Rank(1), handles.half, &1).wait(&mut endpoint).unwrap_err();
                        drop(caller.call(Rank(2), handles.never, &()));
                    }
                    endpoint.finish().unwrap();
                });
            });
        }
    });
    let field = |span: &Recorded, name: &str| span.fields.get(name).cloned().unwrap_or_default();
    let of_method = |rank: usize, name: &str, method: &str| {
        let spans = recorders[rank].spans(name).into_iter().filter(|span| field(span, "method") == method);
        spans.collect::<Vec<_>>()
    };
    let mut parent = format!("{:016x}", root.span_id);
    for hop in 0..3 {
        let (from, to) = (hop, (hop + 1) % 3);
        let (calls, serves) = (of_method(from, "call", "relay"), of_method(to, "serve", "relay"));
        let ([call], [serve]) = (&calls[..], &serves[..]) else { panic!("one of each: {calls:?} {serves:?}") };
        assert_eq!((field(call, "to"), field(call, "outcome")), (to.to_string(), "answered".into()));
        assert_eq!(field(serve, "from"), from.to_string());
        for span in [call, serve] {
            assert_eq!(field(span, "trace_id"), format!("{:032x}", root.trace_id));
            assert!(span.closed, "{span:?}");
        }
        // The callee's span names its remote parent, the caller's; and a call of a method is made in the method's
        // span.
        assert_eq!(field(call, "parent_span_id"), parent);
        assert_eq!(field(serve, "parent_span_id"), field(call, "span_id"));
        assert!(serve.entered >= 2 || hop == 2, "it is entered whenever it is polled");
        match call.inside {
            None => assert_eq!(hop, 0),
            Some(inside) => {
                let all = recorders[from].0.lock().unwrap();
                assert_eq!(field(&all.0[inside as usize - 1], "span_id"), parent);
            }
        }
        parent = field(serve, "span_id");
    }
    assert_eq!(field(&of_method(0, "call", "half")[0], "outcome"), "failed");
    assert_eq!(of_method(1, "serve", "half").len(), 1);
    assert_eq!(field(&of_method(0, "call", "never")[0], "outcome"), "cancelled");
    let mut numbers: Vec<String> = recorders
        .iter()
        .flat_map(|recorder| recorder.spans("call").into_iter().chain(recorder.spans("serve")))
        .map(|span| field(&span, "span_id"))
        .collect();
    let all = numbers.len();
    numbers.sort();
    numbers.dedup();
    assert_eq!(numbers.len(), all);
}

/// Every kind of call, of every size, carries the numbers, and limits are those of what the program sends.
#[test]
fn whatever_is_sent_arrives_behind_them() {
    let config = traced().max_bytes(20_000).stream_window(3);
    job(2, LoopbackConfig::default().medium(512), config, |endpoint, handles| {
        for len in [0, 1, 400, 475, 480, 485, 512, 513, 1025, 19_997] {
            let bytes: Vec<u8> = (0..len).map(|byte| byte as u8).collect();
            assert_eq!(endpoint.call(Rank(1), handles.bytes, &bytes).wait(endpoint), Ok(bytes), "{len} bytes");
        }
        let too_long = endpoint.call(Rank(1), handles.bytes, &vec![0; 19_998]).wait(endpoint);
        assert_eq!(too_long, Err(CallError::RequestTooLarge { bytes: 20_001, limit: 20_000 }));
        let values = vec![1.5; 2000];
        assert_eq!(endpoint.call(Rank(1), handles.scale, &values).wait(endpoint), Ok(vec![3.0; 2000]));
        assert_eq!(endpoint.call(Rank(1), handles.later, &(1, 1)).wait(endpoint), Ok(2));
        let mut answers = endpoint.stream(Rank(1), handles.count, &20);
        for number in 0..20 {
            assert_eq!(answers.wait_next(endpoint), Some(Ok(number)));
        }
        assert_eq!(answers.wait_next(endpoint), None);
        endpoint.caller().one_way(Rank(1), handles.add, &5).unwrap();
        while endpoint.call(Rank(1), handles.add, &0).wait(endpoint) != Ok(5) {}
    });
}

#[test]
fn functions_know_their_span() {
    let mut methods = Methods::<()>::new();
    let which = methods.function("which", |(), origin, ()| {
        Ok::<_, Failure>(origin.trace.map(|span| (span.trace_id, span.span_id)))
    });
    let which = which.unwrap();
    let mut handlers = Handlers::new();
    let calls = Calls::register_with(&mut handlers, methods, (), traced()).unwrap();
    let mut endpoint = Endpoint::attach(single(), handlers, calls).unwrap();
    let root = TraceContext { trace_id: 5, span_id: 6 };
    let (trace, span) =
        endpoint.caller().traced(root).call(Rank(0), which, &()).wait(&mut endpoint).unwrap().unwrap();
    assert!(trace == 5 && span != 6);
    // One that continues none begins a trace.
    let (first, _) = endpoint.call(Rank(0), which, &()).wait(&mut endpoint).unwrap().unwrap();
    let (second, _) = endpoint.call(Rank(0), which, &()).wait(&mut endpoint).unwrap().unwrap();
    assert!(first != second && first != 5);
}

/// The attempts of a retried call, and the calls to several ranks, are children of one span.
#[test]
fn calls_of_one_purpose_share_a_trace() {
    let recorder = Recorder::default();
    tracing::dispatcher::with_default(&Dispatch::new(recorder.clone()), || {
        let mut methods = Methods::<()>::new();
        let slow = methods
            .asynchronous("slow", |_, ()| std::future::pending::<Result<(), Failure>>())
            .map(|slow| methods.idempotent(slow));
        let (slow, quick) = (slow.unwrap(), methods.function("quick", |_, _, ()| Ok::<(), Failure>(())).unwrap());
        let mut handlers = Handlers::new();
        let calls = Calls::register_with(&mut handlers, methods, (), traced()).unwrap();
        let mut endpoint = Endpoint::attach(single(), handlers, calls).unwrap();
        let retries = Retries::new(3).timeout(Span::from_millis(1));
        let error =
            endpoint.run(|context| async move { context.call_retrying(Rank(0), slow, &(), retries).await });
        assert!(matches!(error, Ok(Err(CallError::TimedOut { .. }))));
        let all = endpoint.caller().call_each([Rank(0); 2], quick, &()).wait(&mut endpoint);
        assert_eq!(all, [Ok(()), Ok(())]);
    });
    let groups = recorder.spans("calls");
    let kinds: Vec<&str> = groups.iter().map(|span| &*span.fields["kind"]).collect();
    assert_eq!(kinds, ["attempts", "each"]);
    assert!(groups.iter().all(|span| span.closed && !span.fields.contains_key("parent_span_id")));
    for (group, count) in groups.iter().zip([3, 2]) {
        let calls = recorder.spans("call");
        let children = calls.iter().filter(|call| call.fields["parent_span_id"] == group.fields["span_id"]);
        let same = children.filter(|call| call.fields["trace_id"] == group.fields["trace_id"]);
        assert_eq!(same.count(), count);
    }
}

#[test]
fn ranks_that_differ_do_not_attach() {
    let refused: Vec<AttachError> = std::thread::scope(|scope| {
        let configs = [traced(), CallConfig::new()];
        let ranks = network(2, LoopbackConfig::default()).into_iter().zip(configs).map(|(transport, config)| {
            scope.spawn(move || {
                let (methods, _) = methods();
                let mut handlers = Handlers::new();
                let calls = Calls::register_with(&mut handlers, methods, World::default(), config).unwrap();
                Endpoint::attach(transport, handlers, calls).map(|_| ()).unwrap_err()
            })
        });
        ranks.collect::<Vec<_>>().into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    assert!(refused.iter().all(|error| error.to_string().contains("calls.tracing")), "{refused:?}");
}
