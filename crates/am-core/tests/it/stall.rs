//! What an endpoint that does not get on says about itself: requested reports, time-outs, and how long it has
//! waited.

use am_conformance::with_stall_requests;
use am_core::loopback::{Loopback, single};
use am_core::{
    Endpoint, Handlers, LossCause, PendingReply, Rank, Reply, Request, Span, StallReport, WaitError, stall,
};
use std::sync::{Mutex, RwLockWriteGuard};
use std::thread::{self, ThreadId};
use std::time::Duration;

/// Far beyond what any step of these tests takes.
const LIMIT: Duration = Duration::from_secs(60);

/// Reports that endpoints of this process have printed on request, with the threads that they belong to.
static PRINTED: Mutex<Vec<(ThreadId, StallReport)>> = Mutex::new(Vec::new());

/// Collects reports, while no other test requests any.
fn collect_reports() -> RwLockWriteGuard<'static, ()> {
    stall::set_printer(|report| PRINTED.lock().unwrap().push((thread::current().id(), report.clone())));
    with_stall_requests()
}

/// The reports that endpoints of a thread have printed.
fn printed(thread: ThreadId) -> Vec<StallReport> {
    let all = PRINTED.lock().unwrap();
    all.iter().filter(|(of, _)| *of == thread).map(|(_, report)| report.clone()).collect()
}

#[test]
fn a_wait_with_a_deadline_knows_its_length() {
    let mut endpoint = Endpoint::attach(single(), Handlers::new(), ()).unwrap();
    let span = Span::from_millis(20);
    let Err(WaitError::TimedOut(report)) = endpoint.wait_until_for(span, |()| false) else {
        panic!("nothing ends the wait but its deadline");
    };
    assert!(report.waited >= span, "{report}");
    assert_eq!(endpoint.stall_report().to_string(), "not inside a wait");
}

#[test]
fn a_sleeping_wait_prints_once_per_request() {
    let _alone = collect_reports();
    let me = thread::current().id();
    let mut endpoint = Endpoint::attach(single(), Handlers::new(), ()).unwrap();
    for count in 1..=2 {
        let asked = thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(5));
                stall::request();
            });
            endpoint.wait_until_for(LIMIT.into(), |()| printed(me).len() >= count)
        });
        asked.unwrap();
        let _ = endpoint.wait_until_for(Span::from_millis(5), |()| false);
        let reports = printed(me);
        assert_eq!(reports.len(), count, "{reports:?}");
        let report = &reports[count - 1];
        assert!(report.lines().starts_with("rank 0: waited "), "{report}");
        assert!(report.waited > Span::ZERO, "{report}");
    }
}

#[test]
fn a_polling_endpoint_prints_too() {
    let _alone = collect_reports();
    let mut endpoint = Endpoint::attach(single(), Handlers::new(), ()).unwrap();
    stall::request();
    for _ in 0..32 {
        assert_eq!(endpoint.poll(), Ok(0));
    }
    let reports = printed(thread::current().id());
    assert_eq!(reports.len(), 1);
    assert_eq!(reports[0].lines(), "rank 0: not inside a wait\n");
}

#[test]
fn endpoints_take_the_default_timeout_when_they_attach() {
    let hour = Span::from_secs(3600);
    stall::set_default_timeout(Some(hour));
    let mut endpoint = Endpoint::attach(single(), Handlers::new(), ()).unwrap();
    stall::set_default_timeout(None);
    assert_eq!(endpoint.timeout(), Some(hour));
    assert_eq!(Endpoint::attach(single(), Handlers::new(), ()).unwrap().timeout(), None);
    let span = Span::from_millis(10);
    let outcome = endpoint.set_timeout(span).wait_until(|()| false);
    assert!(matches!(outcome, Err(WaitError::TimedOut(report)) if report.waited >= span));
    assert_eq!(endpoint.set_timeout(None).timeout(), None);
}

/// What a rank keeps.
#[derive(Default)]
struct State {
    answers: u32,
    kept: Vec<PendingReply>,
}

struct Rig {
    endpoint: Endpoint<Loopback, State>,
    answer: Reply<()>,
    echo: Request<()>,
    forget: Request<()>,
    keep: Request<()>,
}

fn rig() -> Rig {
    let mut handlers = Handlers::<State>::new();
    let answer = handlers.reply("answer", |state: &mut State, _, (), _| state.answers += 1).unwrap();
    let echo = handlers.request("echo", move |_, token, (), _| token.reply(answer, ()).unwrap()).unwrap();
    let forget = handlers.request("forget", |_, _, (), _| ()).unwrap();
    let keep = handlers.request("keep", |state, token, (), _| state.kept.push(token.detach())).unwrap();
    let endpoint = Endpoint::attach(single(), handlers, State::default()).unwrap();
    Rig { endpoint, answer, echo, forget, keep }
}

/// The report of a wait for something that does not happen.
fn stalled(endpoint: &mut Endpoint<Loopback, State>) -> StallReport {
    match endpoint.wait_until_for(Span::from_millis(5), |_| false) {
        Err(WaitError::TimedOut(report)) => *report,
        other => panic!("the wait ended with {other:?}"),
    }
}

#[test]
fn a_report_names_unanswered_and_forgotten_requests() {
    let Rig { mut endpoint, answer, echo, forget, keep } = rig();
    let me = endpoint.rank();
    for handler in [echo, forget, keep, echo, keep, forget, forget] {
        endpoint.request(me, handler, ()).unwrap();
    }
    let before = endpoint.stall_report();
    assert_eq!((before.unanswered[0].requests, before.unanswered[0].age), (7, None), "{before}");
    assert_eq!(before.unanswered[0].handlers, ["forget", "keep", "echo"]);
    assert_eq!((before.ended, &before.forgotten, &before.detached), (Some(0), &vec![], &vec![]));

    let report = stalled(&mut endpoint);
    assert_eq!(endpoint.state().answers, 2);
    assert_eq!((report.unanswered.len(), report.unanswered[0].requests), (1, 2), "{report}");
    assert!(report.unanswered[0].age.is_some_and(|age| age >= Span::from_millis(5)), "{report}");
    assert_eq!(report.ended, Some(3), "{report}");
    assert_eq!(report.forgotten, [("forget".into(), 3)]);
    assert_eq!(report.detached, [("keep".into(), 2)]);
    let text = report.to_string();
    for part in [
        "for incoming messages; 2 requests to rank 0 unanswered, to handlers among 'forget', 'keep', 'echo' (latest first), \
         for at least ",
        "3 requests of this rank were ended by a handler without a reply; ",
        "handler 'forget' ended 3 requests without a reply; handler 'keep' detached 2 requests that are not answered yet",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }

    // One is answered late, the other is dropped.
    let pending = endpoint.state_mut().kept.pop().unwrap();
    endpoint.answer(pending, answer, ()).unwrap();
    endpoint.state_mut().kept.clear();
    let report = stalled(&mut endpoint);
    assert_eq!((report.unanswered, report.ended), (vec![], Some(4)));
    assert_eq!(report.forgotten, [("forget".into(), 3), ("keep".into(), 1)]);
    assert_eq!(report.detached, []);
    endpoint.finish().unwrap();
}

#[test]
fn refused_requests_are_not_counted() {
    let Rig { mut endpoint, echo, .. } = rig();
    let me = endpoint.rank();
    let accepted = (0..).take_while(|_| endpoint.try_request(me, echo, ()).is_ok()).count() as u64;
    assert!(endpoint.try_reserve_medium(me, echo, (), 8).is_err());
    assert_eq!(endpoint.stall_report().unanswered[0].requests, accepted);
    assert_eq!(endpoint.stall_report().ended, Some(0));
    // This one waits for room.
    endpoint.request(me, echo, ()).unwrap();
    drop(endpoint.reserve_medium(me, echo, (), 8).unwrap());
    endpoint.reserve_medium(me, echo, (), 8).unwrap().commit();
    endpoint.wait_until(|state| u64::from(state.answers) == accepted + 2).unwrap();
    let report = endpoint.stall_report();
    assert_eq!((report.unanswered, report.ended), (vec![], Some(0)));
    endpoint.finish().unwrap();
}

#[test]
fn long_lists_end_with_a_count() {
    let Rig { endpoint, .. } = rig();
    let mut report = endpoint.stall_report();
    report.lost = (0..20).map(|rank| (Rank(rank), LossCause::Died)).collect();
    assert_eq!(report.lines().lines().count(), 1 + 8 + 1);
    assert!(report.lines().ends_with("rank 0: and 12 more lost ranks\n"), "{}", report.lines());
    endpoint.leave();
}
