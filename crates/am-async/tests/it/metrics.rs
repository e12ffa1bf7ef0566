//! What is counted and timed, how it is printed, and how Prometheus gets it.

use crate::support::{TestEndpoint, attach, job, methods, until_dropped};
use am_async::metrics::{BOUNDS, Metrics, MetricsServer, SideMetrics};
use am_async::{CallConfig, CallEndpoint, CallError, Calls, Context, Failure, Methods, drive};
use am_core::loopback::{LoopbackConfig, network, single};
use am_core::{Endpoint, Handlers, Rank, Span};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

fn counting() -> CallConfig {
    CallConfig::new().metrics(true)
}

fn metrics(endpoint: &mut TestEndpoint) -> Metrics {
    endpoint.caller().metrics().unwrap()
}

#[test]
fn nothing_is_counted_unasked() {
    job(1, LoopbackConfig::default(), CallConfig::new(), |endpoint, handles| {
        endpoint.call(Rank(0), handles.nothing, &()).wait(endpoint).unwrap();
        assert_eq!(endpoint.caller().metrics(), None);
    });
}

/// The rank calls itself, so that both sides are seen.
#[test]
fn every_end_is_counted_at_both_sides() {
    let config = counting().tasks(4).max_bytes(100_000);
    job(1, LoopbackConfig::default().medium(512), config, |endpoint, handles| {
        let to = Rank(0);
        for number in 0..5 {
            endpoint.call(to, handles.add, &number).wait(endpoint).unwrap();
        }
        endpoint.call(to, handles.half, &3).wait(endpoint).unwrap_err();
        endpoint.call(to, handles.panic, &"on purpose".to_owned()).wait(endpoint).unwrap_err();
        endpoint.call(to, handles.make, &100_000).wait(endpoint).unwrap_err();
        endpoint.call(to, handles.make, &50_000).wait(endpoint).unwrap();
        endpoint.call(to, handles.bytes, &vec![1; 20_000]).wait(endpoint).unwrap();
        let refused: Vec<_> = (0..6).map(|_| endpoint.call(to, handles.never, &())).collect();
        endpoint.call(to, handles.nothing, &()).wait(endpoint).unwrap();
        assert_eq!(metrics(endpoint).method("never").unwrap().callee.in_flight, 4);
        drop(refused);
        until_dropped(endpoint, handles, to);
        let late = endpoint.caller().timeout(Span::from_millis(2)).call(to, handles.never, &());
        late.wait(endpoint).unwrap_err();
        until_dropped(endpoint, handles, to);
        endpoint.caller().one_way(to, handles.echo, &crate::support::Question::Nothing).unwrap();
        let mut answers = endpoint.stream(to, handles.count, &10);
        while answers.wait_next(endpoint).is_some() {}
        drop(answers);
        endpoint.call(to, handles.later, &(1, 2000)).wait(endpoint).unwrap();
        endpoint.call(to, handles.nothing, &()).wait(endpoint).unwrap();

        let counted = metrics(endpoint);
        let of = |name: &str| counted.method(name).unwrap();
        let ends = |side: &SideMetrics| {
            let ends: Vec<_> = side.outcomes.each().into_iter().filter(|(_, count)| *count != 0).collect();
            (side.calls, ends)
        };
        let alike = |name, calls, all: &[_]| {
            assert_eq!(ends(&of(name).caller), (calls, all.to_vec()), "calls of {name}");
            assert_eq!(ends(&of(name).callee), (calls, all.to_vec()), "requests to {name}");
        };
        alike("add", 5, &[("answered", 5)]);
        alike("half", 1, &[("failed", 1)]);
        alike("panic", 1, &[("panicked", 1)]);
        alike("make", 2, &[("answered", 1), ("too_large", 1)]);
        alike("echo", 1, &[("one_way", 1)]);
        alike("count", 1, &[("answered", 1)]);
        alike("bytes", 1, &[("answered", 1)]);
        alike("nothing", 2, &[("answered", 2)]);
        let never = [("refused", 2), ("timed_out", 1), ("cancelled", 4)];
        assert_eq!(ends(&of("never").caller), (7, never.to_vec()));
        assert_eq!(of("never").callee.calls, 7);
        assert_eq!(of("never").callee.outcomes.refused, never[0].1);
        // What the deadline ends here and there, and the cancellation, race.
        assert_eq!(of("never").callee.outcomes.total(), 7);
        assert_eq!((of("never").caller.in_flight, of("never").callee.in_flight), (0, 0));
        // A vector is preceded by its length.
        assert_eq!((of("bytes").caller.request_bytes, of("bytes").callee.answer_bytes), (20_003, 20_003));
        assert_eq!(of("count").caller.answer_bytes, of("count").callee.answer_bytes);
        // Functions that answer at once are not timed at the callee.
        assert_eq!((of("add").caller.latency.count, of("add").callee.latency.count), (5, 0));
        let later = of("later");
        for latency in [&later.caller.latency, &later.callee.latency] {
            assert_eq!((latency.count, latency.within.last()), (1, Some(&1)));
            assert!(latency.p50 >= Duration::from_millis(2) && latency.p50 <= latency.max, "{latency:?}");
            let shorter =
                BOUNDS.iter().zip(&latency.within).filter(|(bound, _)| **bound < Duration::from_millis(2));
            assert!(shorter.into_iter().all(|(_, count)| *count == 0), "{latency:?}");
        }
    });
}

/// What is no number to whoever reads it.
#[derive(Debug, Serialize)]
struct Unreadable(u8);

impl<'de> Deserialize<'de> for Unreadable {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(serde::de::Error::custom("never"))
    }
}

/// An answer, an error or an answer of a stream that its caller makes nothing of is counted as that.
#[test]
fn an_answer_that_is_none_is_counted_as_malformed() {
    let mut methods = Methods::<()>::new();
    let answer = methods.function("answer", |_, _, ()| Ok::<_, Failure>(Unreadable(1))).unwrap();
    let error = methods.function("error", |_, _, ()| Err::<(), _>(Unreadable(1))).unwrap();
    let items = methods.stream("items", |_, (), mut sink| async move {
        sink.send(&Unreadable(1)).await?;
        Ok::<(), Failure>(())
    });
    let items = items.unwrap();
    let mut handlers = Handlers::new();
    let calls = Calls::register_with(&mut handlers, methods, (), counting()).unwrap();
    let mut endpoint = Endpoint::attach(single(), handlers, calls).unwrap();
    let bad: CallError = CallError::BadAnswer { to: Rank(0).into() };
    let outcome = endpoint.call(Rank(0), answer, &()).wait(&mut endpoint);
    assert!(matches!(outcome, Err(CallError::BadAnswer { .. })), "{outcome:?}");
    let outcome = endpoint.call(Rank(0), error, &()).wait(&mut endpoint);
    assert!(matches!(outcome, Err(CallError::BadAnswer { .. })), "{outcome:?}");
    let next = endpoint.stream(Rank(0), items, &()).wait_next(&mut endpoint);
    assert!(matches!(next, Some(Err(error)) if error.to_string() == bad.to_string()));
    let counted = endpoint.caller().metrics().unwrap();
    for name in ["answer", "error", "items"] {
        let outcomes = &counted.method(name).unwrap().caller.outcomes;
        assert_eq!((outcomes.malformed, outcomes.total()), (1, 1), "{name}: {outcomes:?}");
    }
}

#[test]
fn a_call_that_would_wait_is_counted_apart() {
    job(1, LoopbackConfig::default(), counting().calls_per_peer(1), |endpoint, handles| {
        let caller = endpoint.caller();
        let first = caller.try_call(Rank(0), handles.add, &1).unwrap();
        caller.try_call(Rank(0), handles.add, &1).unwrap_err();
        first.wait(endpoint).unwrap();
        let add = metrics(endpoint).method("add").unwrap().caller.clone();
        assert_eq!((add.calls, add.busy, add.in_flight), (1, 1, 0));
    });
}

#[test]
fn a_lost_callee_and_a_lost_caller_are_counted() {
    let mut transports = network(2, LoopbackConfig::default()).into_iter();
    let (a, b) = (transports.next().unwrap(), transports.next().unwrap());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (mut endpoint, handles) = attach(b, counting());
            let caller = endpoint.caller();
            let call = caller.call(Rank(0), handles.never, &());
            endpoint.serve_until(|world| world.total == 1).unwrap();
            drop((endpoint, call));
        });
        let (mut endpoint, handles) = attach(a, counting());
        while metrics(&mut endpoint).method("never").unwrap().callee.calls == 0 {
            endpoint.poll().unwrap();
        }
        endpoint.call(Rank(1), handles.add, &1).wait(&mut endpoint).unwrap();
        endpoint.call(Rank(1), handles.never, &()).wait(&mut endpoint).unwrap_err();
        endpoint.acknowledge_loss(Rank(1));
        while endpoint.layer::<Calls<_>>().tasks() != 0 {
            let _ = endpoint.poll();
        }
        let never = metrics(&mut endpoint).method("never").unwrap().clone();
        assert_eq!((never.caller.outcomes.lost, never.callee.outcomes.lost), (1, 1), "{never:?}");
        endpoint.leave();
    });
}

#[test]
fn they_are_a_table_and_json() {
    job(1, LoopbackConfig::default(), counting(), |endpoint, handles| {
        endpoint.call(Rank(0), handles.later, &(1, 10)).wait(endpoint).unwrap();
        endpoint.call(Rank(0), handles.half, &3).wait(endpoint).unwrap_err();
        let counted = metrics(endpoint);
        let table = counted.to_string();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 6, "{table}");
        assert!(
            lines[0].starts_with("calls made by rank 0") && lines[3].starts_with("requests to rank 0"),
            "{table}"
        );
        assert!(
            lines[0].ends_with("max") && lines[1].starts_with("half ") && lines[2].starts_with("later "),
            "{table}"
        );
        assert!(lines[..3].iter().all(|line| line.len() == lines[0].len()), "{table}");
        let json = serde_json::to_string(&counted).unwrap();
        assert!(
            json.contains(r#""name":"half","caller":{"calls":1,"in_flight":0,"busy":0,"outcomes":{"answered":0,"#),
            "{json}"
        );
        assert_eq!(serde_json::from_str::<Metrics>(&json).unwrap(), counted);
    });
}

fn fetch(server: &MetricsServer, request: &str) -> String {
    let mut client = TcpStream::connect(server.address()).unwrap();
    client.write_all(request.as_bytes()).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    answer
}

/// Reads the format as its specification has it: samples of a family behind its help and type, each with its
/// labels once.
fn parse(text: &str) -> BTreeMap<String, f64> {
    let (mut samples, mut family, mut kind) = (BTreeMap::new(), String::new(), String::new());
    let mut families = Vec::new();
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            family = help.split(' ').next().unwrap().to_owned();
            assert!(!families.contains(&family), "{family} comes twice");
            families.push(family.clone());
        } else if let Some(of) = line.strip_prefix("# TYPE ") {
            let (name, is) = of.split_once(' ').unwrap();
            assert_eq!(name, family);
            assert!(["counter", "gauge", "histogram"].contains(&is), "{line}");
            kind = is.to_owned();
        } else {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = sample.split_once('{').unwrap();
            let suffix = name.strip_prefix(&*family).expect("a sample of this family");
            assert!(
                suffix.is_empty() || kind == "histogram" && ["_bucket", "_sum", "_count"].contains(&suffix),
                "{line}"
            );
            assert!(labels.ends_with("\"}"), "{line}");
            assert_eq!(samples.insert(sample.to_owned(), value.parse().unwrap()), None, "{line}");
        }
    }
    samples
}

/// A server on rank 0, with the metrics of all ranks, from an endpoint that a task serves.
#[test]
fn prometheus_fetches_them() {
    let mut transports = network(2, LoopbackConfig::default()).into_iter();
    let (a, b) = (transports.next().unwrap(), transports.next().unwrap());
    let other = std::thread::spawn(move || attach(b, counting()).0);
    let (endpoint, handles) = attach(a, counting());
    let mut other = other.join().unwrap();
    let others = other.caller();
    let serving = std::thread::spawn(move || other.finish().unwrap());
    let (caller, driver) = drive(endpoint);
    let stopper = driver.stop_handle();
    let driver = std::thread::spawn(move || {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(driver)
    });
    let asking = caller.clone();
    let server =
        MetricsServer::bind("127.0.0.1:0", move || asking.metrics().into_iter().chain(others.metrics()).collect());
    let server = server.unwrap();
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
        for number in 0..7 {
            caller.call(Rank(1), handles.later, &(number, 1)).await.unwrap();
        }
        caller.call(Rank(1), handles.half, &1).await.unwrap_err();
    });
    let answer = fetch(&server, "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
    let samples = parse(body);
    let value = |name: &str, rank: u32, method: &str, side: &str, more: &str| {
        let sample = format!("{name}{{rank=\"{rank}\",method=\"{method}\",side=\"{side}\"{more}}}");
        *samples.get(&sample).unwrap_or_else(|| panic!("there is no {sample}"))
    };
    assert_eq!(value("am_calls_started_total", 0, "later", "caller", ""), 7.0);
    assert_eq!(value("am_calls_ended_total", 0, "later", "caller", ",outcome=\"answered\""), 7.0);
    assert_eq!(value("am_calls_ended_total", 1, "half", "callee", ",outcome=\"failed\""), 1.0);
    assert_eq!(value("am_calls_in_flight", 1, "later", "callee", ""), 0.0);
    assert_eq!(value("am_call_seconds_bucket", 1, "later", "callee", ",le=\"+Inf\""), 7.0);
    assert_eq!(value("am_call_seconds_count", 1, "later", "callee", ""), 7.0);
    assert!(value("am_call_seconds_sum", 1, "later", "callee", "") >= 7e-6);
    let buckets: Vec<f64> = BOUNDS
        .iter()
        .map(|le| value("am_call_seconds_bucket", 1, "later", "callee", &format!(",le=\"{}\"", le.as_secs_f64())))
        .collect();
    assert!(buckets.is_sorted() && buckets[21] == 7.0, "{buckets:?}");

    assert!(fetch(&server, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    assert!(fetch(&server, "POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
    assert!(fetch(&server, &"x".repeat(8192)).starts_with("HTTP/1.1 408 "));
    assert_eq!(fetch(&server, "GET /metr"), "");
    let address = server.address();
    drop(server);
    assert!(TcpStream::connect(address).is_err());
    stopper.stop();
    driver.join().unwrap().endpoint.finish().unwrap();
    serving.join().unwrap();
}

/// On a simulated machine, latencies are the machine's, and the same in every run.
#[test]
fn latencies_are_in_virtual_time() {
    let run = || {
        let config = machine_sim::conduit::ConduitConfig::default();
        let report = machine_sim::conduit::run(&machine_sim::crossbar(2), &config, |transport| {
            let mut methods = Methods::<()>::new();
            let later = methods.asynchronous("later", |context: Context<()>, micros: u64| async move {
                context.sleep(Span::from_micros(micros)).await;
                Ok::<_, Failure>(())
            });
            let later = later.unwrap();
            let mut handlers = Handlers::new();
            let calls = Calls::register_with(&mut handlers, methods, (), counting()).unwrap();
            let mut endpoint = Endpoint::attach(transport, handlers, calls).unwrap();
            if endpoint.rank() == Rank(0) {
                for micros in 0..20 {
                    endpoint.call(Rank(1), later, &(100 * micros)).wait(&mut endpoint).unwrap();
                }
            }
            let caller = endpoint.caller();
            endpoint.finish().unwrap();
            caller.metrics()
        });
        report.unwrap().results
    };
    let results = run();
    let latency = |rank: usize, side: fn(&am_async::metrics::MethodMetrics) -> &SideMetrics| {
        side(&results[rank].as_ref().unwrap().as_ref().unwrap().methods[0]).latency.clone()
    };
    let (caller, callee) = (latency(0, |method| &method.caller), latency(1, |method| &method.callee));
    assert_eq!((caller.count, callee.count), (20, 20));
    assert!(caller.sum > callee.sum && callee.sum >= Duration::from_micros(19_000), "{caller:?} {callee:?}");
    assert!(caller.sum < Duration::from_micros(19_500), "{caller:?}");
    assert_eq!(results, run());
}

#[test]
fn counting_allocates_nothing_per_call() {
    let _undisturbed = am_conformance::without_stall_requests();
    let (registered, handles) = methods();
    let mut handlers = Handlers::new();
    let world = crate::support::World::default();
    let calls = Calls::register_with(&mut handlers, registered, world, counting()).unwrap();
    let mut endpoint = Endpoint::attach(am_core::loopback::single(), handlers, calls).unwrap();
    let mut call = |number| endpoint.call(Rank(0), handles.add, &number).wait(&mut endpoint).unwrap();
    let warm: u64 = (0..100).map(&mut call).sum();
    let before = am_conformance::allocations();
    let sum: u64 = (0..100).map(&mut call).sum();
    assert_eq!(am_conformance::allocations(), before);
    assert!(sum > warm);
}

/// Nothing that it does takes time that it would have to know.
#[test]
fn a_rank_that_only_serves_knows_its_number() {
    let mut transports = network(2, LoopbackConfig::default()).into_iter();
    let (first, second) = (transports.next().unwrap(), transports.next().unwrap());
    let serving = std::thread::spawn(move || {
        let (mut endpoint, _) = attach(second, counting());
        endpoint.serve_until(|world| world.total == 1).unwrap();
        let rank = metrics(&mut endpoint).rank;
        endpoint.finish().unwrap();
        rank
    });
    let (mut endpoint, handles) = attach(first, counting());
    endpoint.call(Rank(1), handles.add, &1).wait(&mut endpoint).unwrap();
    endpoint.finish().unwrap();
    assert_eq!(serving.join().unwrap(), 1);
}
