//! Methods as services: readiness follows the number of calls that may be under way.

use crate::support::{TestEndpoint, attach, job};
use am_async::{CallConfig, CallEndpoint, CallError, MethodService, drive};
use am_core::loopback::{LoopbackConfig, network, single};
use am_core::{Rank, Span};
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use tower_service::Service;

/// What `tower::ServiceExt::oneshot` does.
async fn oneshot<Q, S: Service<Q>>(mut service: S, request: Q) -> Result<S::Response, S::Error> {
    poll_fn(|context| service.poll_ready(context)).await?;
    service.call(request).await
}

/// Counts its wakes, in order with others.
struct Woken(usize, Arc<Mutex<Vec<usize>>>);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.1.lock().unwrap().push(self.0);
    }
}

#[test]
fn a_place_is_kept_until_the_call_is_made() {
    job(2, LoopbackConfig::default(), CallConfig::new().calls_per_peer(2), |endpoint, handles| {
        let woken = Arc::new(Mutex::new(Vec::new()));
        let wakers: Vec<Waker> = (0..5).map(|number| Arc::new(Woken(number, Arc::clone(&woken))).into()).collect();
        let caller = endpoint.caller();
        let mut services: Vec<_> = (0..5).map(|_| caller.service(Rank(1), handles.later)).collect();
        let ready = |services: &mut [MethodService<_>], number: usize| -> bool {
            let mut context = Context::from_waker(&wakers[number]);
            let polled: Poll<Result<(), CallError>> =
                Service::<(u64, u64)>::poll_ready(&mut services[number], &mut context);
            polled.map(|ready| ready.unwrap()).is_ready()
        };
        let poll = |endpoint: &mut TestEndpoint| (0..100).for_each(|_| drop(endpoint.poll()));
        // A ready one stays so, and takes no second place.
        assert!(ready(&mut services, 0) && ready(&mut services, 0) && ready(&mut services, 1));
        assert!((2..5).all(|number| !ready(&mut services, number)));
        // Another peer has places of its own.
        let mut other = caller.service(Rank(0), handles.later);
        let mut context = Context::from_waker(Waker::noop());
        assert!(Service::<(u64, u64)>::poll_ready(&mut other, &mut context).is_ready());
        // A call takes the place of its permit; a service that is dropped leaves it to the first that waits.
        let call = services[0].call((1, 0));
        assert!(!ready(&mut services, 0));
        poll(endpoint);
        drop(services[1].clone());
        assert!(woken.lock().unwrap().is_empty() || call.is_ready());
        assert_eq!(call.wait(endpoint), Ok(2));
        while woken.lock().unwrap().is_empty() {
            endpoint.poll().unwrap();
        }
        assert_eq!(*woken.lock().unwrap(), [2]);
        services[1] = caller.service(Rank(1), handles.later);
        while woken.lock().unwrap().len() < 2 {
            endpoint.poll().unwrap();
        }
        assert_eq!(*woken.lock().unwrap(), [2, 3]);
        assert!(ready(&mut services, 2) && ready(&mut services, 3) && !ready(&mut services, 4));
        // One that waits and is dropped is not in the way.
        drop(services.remove(4));
        drop(services.remove(2));
        while woken.lock().unwrap().len() < 3 {
            endpoint.poll().unwrap();
        }
        assert_eq!(*woken.lock().unwrap(), [2, 3, 0]);
        drop(services);
        assert_eq!((caller.held(), caller.under_way()), (0, 0));
    });
}

/// A call without a service waits for the place of one that is ready, which then goes first.
#[test]
fn a_place_is_kept_from_other_calls() {
    job(
        1,
        LoopbackConfig::default(),
        CallConfig::new().calls_per_peer(1).max_bytes(1 << 16),
        |endpoint, handles| {
            let poll = |endpoint: &mut TestEndpoint| (0..50).for_each(|_| drop(endpoint.poll()));
            let caller = endpoint.caller();
            let mut context = Context::from_waker(Waker::noop());
            let mut service = caller.service(Rank(0), handles.nothing);
            assert!(Service::<()>::poll_ready(&mut service, &mut context).is_ready());
            let never = caller.call(Rank(0), handles.never, &());
            let busy = caller.try_call(Rank(0), handles.nothing, &()).map(|_| ());
            assert!(matches!(busy, Err(CallError::Busy { .. })), "{busy:?}");
            poll(endpoint);
            assert_eq!(caller.under_way(), 0);
            assert_eq!(service.call(()).wait(endpoint), Ok(()));
            // The place is free again, also where a call with a permit or a ready service is dropped.
            poll(endpoint);
            assert_eq!(caller.under_way(), 1);
            drop(never);
            poll(endpoint);
            for called in [false, true] {
                assert!(Service::<()>::poll_ready(&mut service, &mut context).is_ready());
                let waiting = caller.call(Rank(0), handles.nothing, &());
                if called {
                    drop(service.call(()));
                } else {
                    drop(std::mem::replace(&mut service, caller.service(Rank(0), handles.nothing)));
                }
                assert_eq!(waiting.wait(endpoint), Ok(()));
            }
            // One that can not be called leaves its place, too.
            let mut bytes = caller.service(Rank(0), handles.bytes);
            assert!(Service::<Vec<u8>>::poll_ready(&mut bytes, &mut context).is_ready());
            let error = bytes.call(vec![0; 1 << 17]).wait(endpoint);
            assert!(matches!(error, Err(CallError::RequestTooLarge { .. })), "{error:?}");
            assert_eq!(caller.call(Rank(0), handles.nothing, &()).wait(endpoint), Ok(()));
            assert_eq!((caller.held(), caller.under_way()), (0, 0));
        },
    );
}

/// Tasks on several threads through one driver: no call of a service ever waits in the queue.
#[test]
fn tasks_share_the_places() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let mut transports = network(2, LoopbackConfig::default()).into_iter();
    let (a, b) = (transports.next().unwrap(), transports.next().unwrap());
    let serving = std::thread::spawn(move || attach(b, CallConfig::new()).0.finish().unwrap());
    let (endpoint, handles) = attach(a, CallConfig::new().calls(3));
    let (driven, most) = runtime.block_on(async move {
        let (caller, driver) = drive(endpoint);
        let stopper = driver.stop_handle();
        let driver = tokio::spawn(driver);
        let most = Arc::new(AtomicUsize::new(0));
        let service = caller.timeout(Span::from_secs(100)).service(Rank(1), handles.later);
        let tasks = (0..20u64).map(|number| {
            let (service, most, caller) = (service.clone(), Arc::clone(&most), caller.clone());
            tokio::spawn(async move {
                for _ in 0..10 {
                    let mut service = service.clone();
                    poll_fn(|context| Service::<(u64, u64)>::poll_ready(&mut service, context)).await.unwrap();
                    let call = service.call((number, 5));
                    most.fetch_max(caller.held(), Ordering::Relaxed);
                    assert_eq!(call.await, Ok(number + 1));
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        // What borrows as a request, and errors.
        let scaled = oneshot(caller.service(Rank(1), handles.scale), vec![1.0, 2.0]).await;
        assert_eq!(scaled, Ok(vec![2.0, 4.0]));
        let failed = oneshot(caller.service(Rank(1), handles.half), 3i64).await;
        assert!(matches!(failed, Err(CallError::Failed(_))));
        let nobody = oneshot(caller.service(Rank(2), handles.half), 3i64).await;
        assert_eq!(nobody, Err(CallError::NoSuchRank { to: Rank(2).into(), ranks: 2 }));
        assert_eq!(caller.held(), 0);
        stopper.stop();
        (driver.await.unwrap(), most.load(Ordering::Relaxed))
    });
    // Answers that their tasks have not taken yet are held, too, but not under way.
    assert!(most >= 3, "{most} calls at a time");
    driven.endpoint.finish().unwrap();
    serving.join().unwrap();
}

#[test]
fn nobody_waits_for_an_endpoint_that_is_gone() {
    let (endpoint, handles) = attach(single(), CallConfig::new().calls(1));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async move {
        let (caller, driver) = drive(endpoint);
        let driver = tokio::spawn(driver);
        let never = caller.call(Rank(0), handles.never, &());
        let service = caller.service(Rank(0), handles.nothing);
        let waiting = tokio::spawn(oneshot(service, ()));
        tokio::task::yield_now().await;
        driver.abort();
        assert_eq!((waiting.await.unwrap(), never.await), (Err(CallError::Closed), Err(CallError::Closed)));
        let after = oneshot(caller.service(Rank(0), handles.nothing), ()).await;
        assert_eq!(after, Err(CallError::Closed));
    });
}

/// A place that comes free goes at once to who waits for it in the future that the endpoint runs.
#[test]
fn a_free_place_wakes_the_endpoints_future() {
    job(1, LoopbackConfig::default(), CallConfig::new().calls_per_peer(1), |endpoint, handles| {
        let caller = endpoint.caller();
        let before = endpoint.idles();
        let mut first = Some(caller.service(Rank(0), handles.nothing));
        let mut second = caller.service(Rank(0), handles.nothing);
        let waited = endpoint.run(|_| {
            poll_fn(move |context| {
                if let Some(mut first) = first.take() {
                    assert!(Service::<()>::poll_ready(&mut first, context).is_ready());
                    assert!(Service::<()>::poll_ready(&mut second, context).is_pending());
                    return Poll::Pending;
                }
                Service::<()>::poll_ready(&mut second, context)
            })
        });
        waited.unwrap().unwrap();
        assert_eq!(endpoint.idles(), before, "it sleeps although the future can go on");
    });
}
