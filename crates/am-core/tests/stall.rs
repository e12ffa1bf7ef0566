//! What an endpoint that does not get on says about itself: requested reports, time-outs, and how long it has waited.

use am_core::loopback::single;
use am_core::{Endpoint, Handlers, Span, StallReport, WaitError, stall};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

/// Far beyond what any step of these tests takes.
const LIMIT: Duration = Duration::from_secs(60);

/// Reports that endpoints of this process have printed on request, with the threads that they belong to.
static PRINTED: Mutex<Vec<(ThreadId, StallReport)>> = Mutex::new(Vec::new());

/// Collects reports, while no other test requests any.
fn collect_reports() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    stall::set_printer(|report| PRINTED.lock().unwrap().push((thread::current().id(), report.clone())));
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
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
