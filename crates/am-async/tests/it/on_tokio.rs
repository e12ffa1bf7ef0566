//! Callers in tasks of tokio, and the driver that serves them.

use crate::support::{World, attach, methods};
use am_async::{CallConfig, CallError, Calls, drive};
use am_core::loopback::{LoopbackConfig, network};
use am_core::{Endpoint, Handlers, Rank, Span, Waiting, stall};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use transport_shm::{Job, JobConfig};

/// Two ranks as tasks of one runtime: calls from many tasks, with `select!` and tokio's time-outs.
#[test]
fn many_tasks_call_through_one_endpoint() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    let mut transports = network(2, LoopbackConfig::default()).into_iter();
    let (a, b) = (transports.next().unwrap(), transports.next().unwrap());
    let other = std::thread::spawn(move || attach(b, CallConfig::default()).0);
    let (endpoint, handles) = attach(a, CallConfig::default());
    let other = other.join().unwrap();
    runtime.block_on(async move {
        let (caller, driver) = drive(endpoint);
        let (_, serving) = drive(other);
        let (stop, stop_other) = (driver.stop_handle(), serving.stop_handle());
        let (driver, serving) = (tokio::spawn(driver), tokio::spawn(serving));
        let tasks = (0..50u64).map(|number| {
            let caller = caller.clone();
            tokio::spawn(async move {
                for _ in 0..20 {
                    caller.call(Rank(1), handles.add, &number).await.unwrap();
                    assert_eq!(caller.call(Rank(1), handles.later, &(number, 1)).await, Ok(number + 1));
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        assert_eq!(caller.call(Rank(1), handles.add, &0).await, Ok(20 * (0..50).sum::<u64>()));
        // A call that tokio gives up is cancelled.
        let never = caller.call(Rank(1), handles.never, &());
        assert!(tokio::time::timeout(Duration::from_millis(1), never).await.is_err());
        tokio::select! {
            _ = caller.call(Rank(1), handles.never, &()) => panic!("it never answers"),
            answer = caller.call(Rank(1), handles.half, &4) => assert_eq!(answer, Ok(2)),
        }
        // One that its own deadline ends, which the sleeping driver has to notice.
        let error = caller.timeout(Span::from_millis(1)).call(Rank(1), handles.never, &()).await.unwrap_err();
        assert!(matches!(error, CallError::TimedOut { .. }), "{error}");
        assert_eq!(caller.held(), 0);
        loop {
            let (begun, dropped) = caller.call(Rank(1), handles.counts, &()).await.unwrap();
            if begun == dropped {
                break;
            }
        }
        let mut answers = caller.stream(Rank(1), handles.count, &40);
        let mut sum = 0;
        while let Some(answer) = answers.next().await {
            sum += answer.unwrap();
        }
        assert_eq!(sum, (0..40).sum::<u32>());
        stop.stop();
        let first = driver.await.unwrap();
        stop_other.stop();
        let second = serving.await.unwrap();
        assert_eq!((first.error, second.error), (None, None));
        let second = std::thread::spawn(move || second.endpoint.finish().unwrap());
        first.endpoint.finish().unwrap();
        second.join().unwrap();
    });
}

/// Two ranks over shared memory, one on a runtime of one thread and one of two, whose drivers sleep before most
/// calls: tokio's event loop wakes them where the system can do that, and no thread sleeps in their stead.
#[test]
fn the_event_loop_wakes_ranks_of_shared_memory() {
    let job = Job::create(&JobConfig::new(2)).unwrap();
    let ranks = [0, 1].map(|rank| {
        let mut shm = job.join(rank).unwrap();
        shm.set_longest_sleep(Duration::from_secs(3600));
        let hears = shm.descriptor().is_some();
        std::thread::spawn(move || {
            let mut runtime = match rank {
                0 => tokio::runtime::Builder::new_current_thread(),
                _ => tokio::runtime::Builder::new_multi_thread(),
            };
            let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
            let (methods, handles) = methods();
            let mut handlers = Handlers::new();
            let calls = Calls::register(&mut handlers, methods, World::default()).unwrap();
            let endpoint = Endpoint::attach(shm, handlers, calls).unwrap();
            let end = runtime.block_on(async move {
                let (caller, driver) = drive(endpoint);
                let stop = driver.stop_handle();
                let driver = tokio::spawn(driver.on_tokio());
                let other = Rank(1 - rank);
                for _ in 0..20 {
                    // Longer than a driver stays awake.
                    tokio::time::sleep(Duration::from_millis(3)).await;
                    assert_eq!(caller.call(other, handles.later, &(1, 0)).await, Ok(2));
                }
                assert!(!hears || threads_that_sleep_for_ranks() == 0);
                caller.one_way(other, handles.add, &1).unwrap();
                while caller.call(Rank(rank), handles.add, &0).await.unwrap() == 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                stop.stop();
                driver.await.unwrap()
            });
            assert_eq!(end.error, None);
            end.endpoint.finish().unwrap();
        })
    });
    ranks.into_iter().for_each(|rank| rank.join().unwrap());
}

/// Threads of this process that call wakers in the stead of a transport's endpoint.
fn threads_that_sleep_for_ranks() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok());
    names.filter(|name| name.starts_with("am-bell")).count()
}

/// Calls end when the task that serves them is dropped.
#[test]
fn a_dropped_driver_ends_calls() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (methods, handles) = methods();
    let mut handlers = Handlers::new();
    let calls = Calls::register(&mut handlers, methods, World::default()).unwrap();
    let endpoint = Endpoint::attach(am_core::loopback::single(), handlers, calls).unwrap();
    runtime.block_on(async move {
        let (caller, driver) = drive(endpoint);
        let driver = tokio::spawn(driver);
        let call = caller.call(Rank(0), handles.never, &());
        assert_eq!(caller.call(Rank(0), handles.half, &2).await, Ok(1));
        driver.abort();
        assert_eq!(call.await, Err(CallError::Closed));
    });
}

/// A driver that sleeps prints the report that is asked for.
#[test]
fn a_sleeping_driver_tells_when_asked() {
    static PRINTED: AtomicUsize = AtomicUsize::new(0);
    let _alone = am_conformance::with_stall_requests();
    let me = std::thread::current().id();
    stall::set_printer(move |_| {
        // Other tests' endpoints tell, too.
        PRINTED.fetch_add(usize::from(std::thread::current().id() == me), Ordering::SeqCst);
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (endpoint, _) = attach(am_core::loopback::single(), CallConfig::default());
    runtime.block_on(async move {
        let (caller, driver) = drive(endpoint);
        let driver = tokio::spawn(driver);
        tokio::time::sleep(Duration::from_millis(20)).await;
        stall::request();
        let told = async {
            while PRINTED.load(Ordering::SeqCst) == 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        assert!(tokio::time::timeout(Duration::from_secs(60), told).await.is_ok(), "no report was printed");
        driver.abort();
        drop(caller);
    });
}

/// Deadlines need no timers of the runtime.
#[test]
fn a_runtime_without_time_will_do() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (endpoint, handles) = attach(am_core::loopback::single(), CallConfig::default());
    runtime.block_on(async move {
        let (caller, driver) = drive(endpoint);
        let driver = tokio::spawn(driver);
        for _ in 0..3 {
            let error = caller.timeout(Span::from_millis(1)).call(Rank(0), handles.never, &()).await.unwrap_err();
            assert!(matches!(error, CallError::TimedOut { .. }), "{error}");
            caller.sleep(Span::from_micros(100)).await;
        }
        driver.abort();
    });
}

/// A driver that blocks a thread goes on after a loss, and still sleeps.
#[test]
fn a_driver_blocks_past_a_loss() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let ranks: Vec<_> = network(3, LoopbackConfig::default()).into_iter().collect();
    let ranks = ranks.into_iter().map(|rank| std::thread::spawn(move || attach(rank, CallConfig::default())));
    let mut ranks = ranks.collect::<Vec<_>>().into_iter().map(|rank| rank.join().unwrap());
    let ((endpoint, handles), (other, _), gone) = (ranks.next().unwrap(), ranks.next().unwrap(), ranks.next());
    let ((caller, driver), (_, serving)) = (drive(endpoint), drive(other));
    let (stop, stop_other) = (driver.stop_handle(), serving.stop_handle());
    let (driver, serving) = (std::thread::spawn(|| driver.block()), std::thread::spawn(|| serving.block()));
    drop(gone);
    runtime.block_on(async {
        assert!(matches!(caller.call(Rank(2), handles.half, &4).await, Err(CallError::RankLost { .. })));
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(caller.call(Rank(1), handles.half, &4).await, Ok(2));
    });
    stop.stop();
    stop_other.stop();
    for driver in [driver, serving] {
        let end = driver.join().unwrap();
        assert_eq!(end.error, None);
        let idle = end.endpoint.statistics();
        assert!(idle.empty_polls < 4 * idle.idles + 1000, "{} looks, {} sleeps", idle.empty_polls, idle.idles);
    }
}

/// Drivers that block threads of their own, and a task after that; deadlines end them not.
#[test]
fn a_driver_may_block_a_thread() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut transports = network(2, LoopbackConfig::default()).into_iter();
    let (a, b) = (transports.next().unwrap(), transports.next().unwrap());
    let other = std::thread::spawn(move || attach(b, CallConfig::default()).0);
    let (mut endpoint, handles) = attach(a, CallConfig::default());
    // Shorter than the driver is idle.
    endpoint.set_timeout(Span::from_millis(5));
    let other = other.join().unwrap();
    let ((caller, driver), (_, serving)) = (drive(endpoint), drive(other));
    let (stop, stop_other) = (driver.stop_handle(), serving.stop_handle());
    let (driver, serving) = (std::thread::spawn(|| driver.block()), std::thread::spawn(|| serving.block()));
    runtime.block_on(async {
        for number in 0..50 {
            assert_eq!(caller.call(Rank(1), handles.later, &(number, 10)).await, Ok(number + 1));
        }
        std::thread::sleep(Duration::from_millis(20));
        let error = caller.timeout(Span::from_millis(1)).call(Rank(1), handles.never, &()).await.unwrap_err();
        assert!(matches!(error, CallError::TimedOut { .. }), "{error}");
        caller.sleep(Span::from_micros(100)).await;
    });
    stop.stop();
    let end = driver.join().unwrap();
    assert_eq!(end.error, None);
    let (caller, driver) = drive(end.endpoint);
    let stop = driver.stop_handle();
    runtime.block_on(async {
        let driver = tokio::spawn(driver);
        assert_eq!(caller.call(Rank(1), handles.half, &4).await, Ok(2));
        stop.stop();
        let mut first = driver.await.unwrap().endpoint;
        stop_other.stop();
        let second = serving.join().unwrap();
        assert_eq!(second.error, None);
        first.set_timeout(Span::from_secs(300));
        let second = std::thread::spawn(move || second.endpoint.finish().unwrap());
        first.finish().unwrap();
        second.join().unwrap();
    });
}
