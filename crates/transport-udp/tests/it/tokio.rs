//! The tokio mode: tasks that wait with `await`, on runtimes of several threads and of one.

use crate::patience::patiently;
use crate::sockets::{SEGMENT, joined_through_a_relay};
use am_core::{Address, Handlers, Payload, PollError, Rank, Request, Span, Token, WaitError, stall};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Builder;
use transport_udp::{AsyncEndpoint, LocalJob, LocalOptions, Udp, UdpConfig, segment};

#[derive(Default)]
struct State {
    requests: u64,
    replies: u64,
    sum: u64,
}

fn attach(transport: Udp) -> (AsyncEndpoint<State>, Request<u64>) {
    let mut handlers = Handlers::<State>::new();
    let reply = handlers
        .reply("reply", |state: &mut State, _: Address, value: u64, payload: Payload<'_>| {
            state.replies += 1;
            state.sum += value + payload.len() as u64;
        })
        .unwrap();
    let ask = handlers
        .request("ask", move |state: &mut State, token: Token<'_>, value: u64, payload: Payload<'_>| {
            state.requests += 1;
            let bytes = payload.to_vec();
            let len = bytes.len().min(token.max_reply());
            token.reply_medium(reply, value, &bytes[..len]).expect("the asker waits");
        })
        .unwrap();
    (AsyncEndpoint::attach(transport, handlers, State::default()).unwrap(), ask)
}

/// Every rank asks every rank, itself too, with Short, Medium and Long requests.
async fn everyone_asks_everyone(job: Arc<LocalJob>, rank: u32, ranks: u32) {
    let (mut endpoint, ask) = attach(job.join_tokio(rank).unwrap());
    let rounds = 300;
    for number in 0..rounds {
        for to in (0..ranks).map(Rank) {
            endpoint.request(to, ask, number).await.unwrap();
            endpoint.request_medium(to, ask, number, &[1; 700]).await.unwrap();
            let at = 8 * u64::from(rank);
            endpoint.request_long(to, ask, number, &[2; 8], at).await.unwrap();
        }
    }
    let due = 3 * rounds * u64::from(ranks);
    endpoint.wait_until(|state| state.replies == due && state.requests == due).await.unwrap();
    let each = 3 * (0..rounds).sum::<u64>() + rounds * 708;
    assert_eq!(endpoint.state().sum, each * u64::from(ranks));
    endpoint.finish().unwrap();
}

/// What the task has taken in is served before an endpoint leaves, however quickly its program asks for nothing
/// but the socket.
#[test]
fn nobody_leaves_with_a_question_unanswered() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for _ in 0..200 {
        let job = Arc::new(LocalJob::new(2).unwrap());
        let rank = |rank: u32, job: Arc<LocalJob>| async move {
            let (mut endpoint, ask) = attach(job.join_tokio(rank).unwrap());
            endpoint.request(Rank(1 - rank), ask, 42).await.unwrap();
            endpoint.wait_until(|state| state.replies == 1).await.unwrap();
            endpoint.finish().unwrap();
        };
        let tasks = [0, 1].map(|number| runtime.spawn(rank(number, job.clone())));
        for task in tasks {
            runtime.block_on(task).unwrap();
        }
    }
}

/// A handler may run for longer than a peer's patience: the task tells the peers that somebody is there.
#[test]
fn a_handler_that_runs_for_long_is_not_taken_for_death() {
    patiently(Duration::from_secs(1), |silence| {
        let mut config = UdpConfig::new([]);
        config.protocol.silence = silence.into();
        let job = Arc::new(LocalJob::with(2, LocalOptions::default(), config).unwrap());
        let runtime = Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
        let rank = |rank: u32, job: Arc<LocalJob>| async move {
            let mut handlers = Handlers::<u64>::new();
            let nap = handlers.one_way("nap", move |naps: &mut u64, _: Address, (): (), _: Payload<'_>| {
                tokio::task::block_in_place(|| std::thread::sleep(5 * silence / 2));
                *naps += 1;
            });
            let nap = nap.unwrap();
            let mut endpoint = AsyncEndpoint::attach(job.join_tokio(rank).unwrap(), handlers, 0).unwrap();
            if rank == 0 {
                endpoint.request(Rank(1), nap, ()).await.unwrap();
            } else {
                endpoint.wait_until(|naps| *naps == 1).await.unwrap();
            }
            endpoint.finish().unwrap();
        };
        let tasks = [0, 1].map(|number| runtime.spawn(rank(number, job.clone())));
        for task in tasks {
            runtime.block_on(task).unwrap();
        }
    });
}

/// A barrier has told of the loss already.
#[test]
fn a_loss_ends_every_wait() {
    let job = Arc::new(LocalJob::new(2).unwrap());
    let runtime = Builder::new_multi_thread().worker_threads(3).enable_all().build().unwrap();
    let rank = |rank: u32, job: Arc<LocalJob>| async move {
        let handlers = Handlers::<u64>::new();
        let mut endpoint = AsyncEndpoint::attach(job.join_tokio(rank).unwrap(), handlers, 0).unwrap();
        if rank == 1 {
            // Leaves without the barrier.
            return;
        }
        let lost = |error: &WaitError| matches!(error, WaitError::Poll(PollError::PeerLost { rank: Rank(1), .. }));
        assert!(lost(&endpoint.endpoint().barrier().unwrap_err()));
        for _ in 0..3 {
            let waited = tokio::time::timeout(Duration::from_secs(60), endpoint.wait_until(|_| false)).await;
            assert!(lost(&waited.expect("a wait ends when a rank is lost").unwrap_err()));
        }
        endpoint.endpoint().acknowledge_loss(Rank(1));
        assert_eq!(endpoint.endpoint().unacknowledged_loss(), None);
        // Nothing is left to wait for, and nothing comes.
        tokio::select! {
            biased;
            ended = endpoint.wait_until(|_| false) => panic!("an acknowledged loss ends no wait: {ended:?}"),
            () = tokio::time::sleep(Duration::from_millis(20)) => {}
        }
    };
    let tasks = [0, 1].map(|number| runtime.spawn(rank(number, job.clone())));
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
}

#[test]
fn tasks_of_one_runtime_talk() {
    let job = Arc::new(LocalJob::new(3).unwrap());
    let runtime = Builder::new_multi_thread().worker_threads(3).enable_all().build().unwrap();
    let tasks: Vec<_> = (0..3).map(|rank| runtime.spawn(everyone_asks_everyone(job.clone(), rank, 3))).collect();
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
}

#[test]
fn runtimes_of_one_thread_talk() {
    let job = Arc::new(LocalJob::new(2).unwrap());
    let ranks = (0..2).map(|rank| {
        let job = Arc::clone(&job);
        std::thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(everyone_asks_everyone(job, rank, 2));
        })
    });
    for rank in ranks.collect::<Vec<_>>() {
        rank.join().unwrap();
    }
}

/// A wait does not keep other tasks of the thread from running, and time-outs apply to it.
#[test]
fn waiting_lets_others_run_and_can_be_cancelled() {
    let job = Arc::new(LocalJob::new(1).unwrap());
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (mut endpoint, ask) = attach(job.join_tokio(0).unwrap());
        let other = tokio::spawn(async {
            for _ in 0..5 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        let never = tokio::time::timeout(Duration::from_millis(200), endpoint.wait_until(|_| false)).await;
        assert!(never.is_err());
        assert!(other.is_finished());
        endpoint.request(Rank(0), ask, 7).await.unwrap();
        endpoint.wait_until(|state| state.replies == 1).await.unwrap();
        endpoint.finish().unwrap();
    });
}

/// The endpoint's time-out holds for what is awaited, and so do requests for reports.
#[test]
fn waits_that_stall_tell() {
    static PRINTED: std::sync::Mutex<Vec<String>> = std::sync::Mutex::new(Vec::new());
    let _alone = am_conformance::with_stall_requests();
    let me = std::thread::current().id();
    stall::set_printer(move |report| {
        // Other tests' endpoints tell, too.
        if std::thread::current().id() == me {
            PRINTED.lock().unwrap().push(report.to_string());
        }
    });
    let printed = || PRINTED.lock().unwrap().concat();
    let job = Arc::new(LocalJob::new(1).unwrap());
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (mut endpoint, _) = attach(job.join_tokio(0).unwrap());
        let span = Span::from_millis(300);
        endpoint.endpoint().set_timeout(span);
        let waited = tokio::time::timeout(Duration::from_secs(60), endpoint.wait_until(|_| false)).await;
        let Err(WaitError::TimedOut(report)) = waited.expect("a wait ends at its time-out") else {
            panic!("nothing else ends it");
        };
        assert!(report.waited >= span, "{report}");
        endpoint.endpoint().set_timeout(None);
        // Asked for while it sleeps, in a wait and without one.
        for waits in [true, false] {
            PRINTED.lock().unwrap().clear();
            let waiting = async {
                while printed().is_empty() {
                    if waits {
                        let some = endpoint.wait_until(|_| !printed().is_empty());
                        let _ = some.await;
                    } else {
                        endpoint.idle().await;
                    }
                }
            };
            let (waiting, asking) = (tokio::time::timeout(Duration::from_secs(60), waiting), async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                stall::request();
            });
            assert!(tokio::join!(waiting, asking).0.is_ok(), "no report was printed");
            assert_eq!(printed().contains("waited"), waits, "{}", printed());
        }
        endpoint.finish().unwrap();
    });
}

/// A rank that awaits something else for longer than the permitted silence stays alive: its task answers for it.
#[test]
fn a_task_that_awaits_something_else_is_alive() {
    patiently(Duration::from_millis(400), |silence| {
        let mut config = transport_udp::UdpConfig::new([]);
        config.protocol.silence = silence.into();
        let job = Arc::new(LocalJob::with(2, transport_udp::LocalOptions::default(), config).unwrap());
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let tasks: Vec<_> = (0..2)
            .map(|rank| {
                let job = Arc::clone(&job);
                runtime.spawn(async move {
                    let (mut endpoint, ask) = attach(job.join_tokio(rank).unwrap());
                    tokio::time::sleep(4 * silence).await;
                    endpoint.request(Rank(1 - rank), ask, 1).await.unwrap();
                    endpoint.wait_until(|state| state.replies == 1 && state.requests == 1).await.unwrap();
                    assert_eq!(endpoint.endpoint().lost(), []);
                    endpoint.finish().unwrap();
                })
            })
            .collect();
        for task in tasks {
            runtime.block_on(task).unwrap();
        }
    });
}

/// Requests that wait for room for their replies keep nobody awake: room comes with what a peer says.
#[test]
fn messages_that_wait_are_no_reason_to_look_again() {
    let runtime = Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    let inside = runtime.enter();
    let ([a, b], relay) = joined_through_a_relay(
        0,
        |config| {
            *config = UdpConfig::smallest([9; 16]);
            config.protocol.receive_budget = 16 << 10;
            (
                config.protocol.reply_window,
                config.protocol.reply_budget,
                config.protocol.send_queue,
                config.protocol.send_budget,
            ) = (4800, 4800, 4800, 4800);
        },
        |config, table, me, socket| Udp::join_tokio(config, table, me, socket, segment(SEGMENT as usize)),
    );
    drop(inside);
    let [(begin, begun), (sent, all_there), (tell, told)] =
        [(); 3].map(|()| tokio::sync::oneshot::channel::<()>());
    let asker = runtime.spawn(async move {
        let (mut endpoint, ask) = attach(b);
        begun.await.unwrap();
        for number in 0..3 {
            endpoint.request_medium(Rank(0), ask, number, &[0; 1000]).await.unwrap();
        }
        endpoint.endpoint().flush();
        while !endpoint.endpoint().transport().machine(|machine| machine.settled()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        sent.send(()).unwrap();
        told.await.unwrap();
        endpoint.wait_until(|state| state.replies == 3).await.unwrap();
        endpoint.finish().unwrap();
    });
    runtime.block_on(async move {
        let (mut endpoint, _) = attach(a);
        begin.send(()).unwrap();
        all_there.await.unwrap();
        relay.permille.store(1000, std::sync::atomic::Ordering::Relaxed);
        let polls = |endpoint: &mut AsyncEndpoint<State>| endpoint.endpoint().statistics().empty_polls;
        let before = polls(&mut endpoint);
        let rest = Duration::from_millis(500);
        assert!(tokio::time::timeout(rest, endpoint.wait_until(|state| state.requests == 3)).await.is_err());
        assert!(endpoint.endpoint().transport().machine(|machine| machine.has_arrived()), "one waits");
        let looks = polls(&mut endpoint) - before;
        assert!(looks < 500, "{looks} looks in {rest:?}");
        relay.permille.store(0, std::sync::atomic::Ordering::Relaxed);
        tell.send(()).unwrap();
        endpoint.wait_until(|state| state.requests == 3).await.unwrap();
        endpoint.finish().unwrap();
        relay.stop();
    });
    runtime.block_on(asker).unwrap();
}

/// A wait of which every poll finds something ends at its time-out, too: a rank that never stops sending to
/// itself.
#[test]
fn steady_traffic_keeps_no_wait_from_its_timeout() {
    // Far more than can be handled in the time-out's 20 ms, and handled in seconds.
    const MOST: u64 = 5_000_000;
    let job = Arc::new(LocalJob::new(1).unwrap());
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut handlers = Handlers::<u64>::new();
        let note = handlers.one_way("note", |noted: &mut u64, _, (), _| {
            *noted += 1;
            // No await is left to fail at: such a wait never gives its thread back.
            assert!(*noted < MOST, "the wait does not end");
        });
        let note = note.unwrap();
        handlers.progress(move |noted, outbox| {
            if *noted != 0 {
                let _ = outbox.try_request(Rank(0), note, ());
            }
            Ok(am_core::layer::Progress::Idle)
        });
        let mut endpoint = AsyncEndpoint::attach(job.join_tokio(0).unwrap(), handlers, 0).unwrap();
        endpoint.endpoint().set_timeout(Span::from_millis(20));
        endpoint.request(Rank(0), note, ()).await.unwrap();
        let waited = endpoint.wait_until(|_| false).await;
        assert!(matches!(waited, Err(WaitError::TimedOut(_))), "{waited:?}");
        assert!(*endpoint.state() > 100, "{} messages are no steady traffic", endpoint.state());
    });
}
