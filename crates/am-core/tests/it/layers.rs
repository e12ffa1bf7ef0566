//! Layers: their names, their borders, the work that they leave, and what bounds it.

use am_core::layer::{HasLayer, Outbox, Progress, WorkQueue};
use am_core::loopback::{Loopback, LoopbackConfig, network, single};
use am_core::{
    BadMessage, Endpoint, Handlers, PendingReply, PollError, Rank, RegisterError, Reply, Request, SendError, Span,
    WaitError,
};
use std::thread;

/// Passes numbers on to the next rank until they are used up.
#[derive(Debug)]
struct Relay {
    pass: Request<u32>,
    queue: WorkQueue<u32>,
    arrived: u32,
    /// Calls of the progress function when the endpoint was about to idle.
    idle_calls: u64,
}

impl Relay {
    fn register<S: HasLayer<Self>>(handlers: &mut Handlers<S>, capacity: usize) -> Self {
        let mut layer = handlers.layer::<Self>("relay").unwrap();
        let pass = layer.one_way("pass", |relay: &mut Self, _, hops: u32, _| {
            if hops == 0 {
                relay.arrived += 1;
                return Ok(());
            }
            relay.queue.push(hops - 1)
        });
        layer.progress(|relay, outbox: &mut Outbox<'_>| {
            relay.idle_calls += u64::from(outbox.about_to_idle());
            let next = Rank((outbox.rank().0 + 1) % outbox.ranks());
            relay.queue.drain(|hops| outbox.try_request(next, relay.pass, *hops))
        });
        Self { pass: pass.unwrap(), queue: WorkQueue::new(capacity), arrived: 0, idle_calls: 0 }
    }

    fn endpoint(transport: Loopback, capacity: usize) -> (Endpoint<Loopback, Self>, Request<u32>) {
        let mut handlers = Handlers::<Self>::new();
        let relay = Self::register(&mut handlers, capacity);
        let pass = relay.pass;
        (Endpoint::attach(transport, handlers, relay).unwrap(), pass)
    }
}

#[test]
fn names_are_prefixed_and_unique() {
    let mut handlers = Handlers::<Relay>::new();
    let relay = Relay::register(&mut handlers, 1);
    assert_eq!(handlers.description(), "'relay.pass' (one-way u32)\n");
    let again = handlers.layer::<Relay>("relay").unwrap_err();
    assert_eq!(again, RegisterError::NameTaken { name: "relay".into() });
    for bad in ["", "a.b", "tab\t", "longer than twenty-four bytes"] {
        assert_eq!(handlers.layer::<Relay>(bad).unwrap_err(), RegisterError::BadName { name: bad.into() });
    }
    // The program's own handlers keep their names, and the layer's cannot be taken.
    assert!(handlers.one_way("pass", |_, _, (), _| ()).is_ok());
    assert!(handlers.one_way("relay.pass", |_, _, (), _| ()).is_err());
    assert_eq!(relay.pass.index(), 0);
}

#[test]
fn layers_are_part_of_the_comparison_at_attach() {
    let mut ranks = network(2, LoopbackConfig::default()).into_iter();
    let (first, second) = (ranks.next().unwrap(), ranks.next().unwrap());
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut handlers = Handlers::<Relay>::new();
            let relay = Relay::register(&mut handlers, 1);
            let error = Endpoint::attach(first, handlers, relay).unwrap_err().to_string();
            assert!(error.contains("relay.pass") && error.contains("nothing"), "{error}");
        });
        scope.spawn(|| assert!(Endpoint::attach(second, Handlers::<()>::new(), ()).is_err()));
    });
}

#[test]
fn work_goes_on_inside_every_wait() {
    const HOPS: u32 = 300;
    thread::scope(|scope| {
        for transport in network(3, LoopbackConfig::default()) {
            scope.spawn(move || {
                let (mut endpoint, pass) = Relay::endpoint(transport, 1);
                let first = endpoint.rank() == Rank(0);
                if first {
                    endpoint.request(Rank(1), pass, HOPS - 1).unwrap();
                    endpoint.wait_until(|relay| relay.arrived == 1).unwrap();
                }
                // The others do nothing but wait for the barrier, and carry every hop.
                endpoint.barrier().unwrap();
                assert_eq!(endpoint.finish().unwrap().arrived, u32::from(first));
            });
        }
    });
}

#[test]
fn work_that_lacks_room_waits_for_it() {
    // One request may be under way, so that most of the work is refused at first.
    let config = LoopbackConfig::default().requests(1);
    let transport = network(1, config).pop().unwrap();
    let (mut endpoint, pass) = Relay::endpoint(transport, 64);
    for _ in 0..32 {
        endpoint.layer_mut::<Relay>().queue.push(3).unwrap();
    }
    endpoint.request(Rank(0), pass, 0).unwrap();
    endpoint.wait_until(|relay| relay.arrived == 33).unwrap();
    assert!(endpoint.statistics().stalls(am_core::Resource::RequestFrames) > 0);
    endpoint.finish().unwrap();
}

#[test]
fn drain_waits_for_work_left() {
    let (mut endpoint, _) = Relay::endpoint(single(), 8);
    for _ in 0..8 {
        endpoint.layer_mut::<Relay>().queue.push(20).unwrap();
    }
    endpoint.drain().unwrap();
    // The last hop of each was sent, and has been handled.
    assert_eq!((endpoint.state().arrived, endpoint.state().queue.len()), (8, 0));
    endpoint.finish().unwrap();
}

#[test]
fn a_full_queue_is_an_error_of_its_handler() {
    let (mut endpoint, pass) = Relay::endpoint(single(), 0);
    endpoint.request(Rank(0), pass, 1).unwrap();
    let failed = endpoint.wait_until(|_| false).unwrap_err();
    let WaitError::Poll(PollError::Handler(failure)) = failed else { panic!("{failed}") };
    assert_eq!(failure.handler, "relay.pass");
    assert!(failure.to_string().contains("holds its 0 items already"), "{failure}");
    endpoint.finish().unwrap();
}

#[test]
fn layers_are_called_before_idling() {
    let (mut endpoint, _) = Relay::endpoint(single(), 0);
    endpoint.poll().unwrap();
    let calls = endpoint.state().idle_calls;
    for _ in 0..1000 {
        endpoint.poll().unwrap();
    }
    assert_eq!(endpoint.state().idle_calls, calls);
    assert_eq!(endpoint.poll_or_idle(Span::from_micros(1)), Ok(0));
    assert_eq!(endpoint.state().idle_calls, calls + 1);
    endpoint.finish().unwrap();
}

/// Keeps what it is asked until it is told to answer: its queue is bounded by its peers' credits.
struct Keeper {
    kept: WorkQueue<PendingReply>,
    most: usize,
    answering: bool,
    answers: u32,
}

#[test]
fn detached_tokens_bound_a_queue_by_credits() {
    const REPLIES: usize = 5;
    let config = LoopbackConfig::default().replies(REPLIES).requests(1000);
    let mut handlers = Handlers::<Keeper>::new();
    let mut layer = handlers.layer::<Keeper>("keeper").unwrap();
    let answer: Reply<()> = layer.reply("answer", |keeper: &mut Keeper, _, (), _| keeper.answers += 1).unwrap();
    let ask = layer.request("ask", |keeper: &mut Keeper, token, (), _| {
        let pushed = keeper.kept.push(token.detach());
        keeper.most = keeper.most.max(keeper.kept.len());
        pushed
    });
    let ask: Request<()> = ask.unwrap();
    layer.progress(move |keeper, outbox| {
        if !keeper.answering {
            return Ok(Progress::Idle);
        }
        while let Some(pending) = keeper.kept.pop() {
            outbox.answer(pending, answer, ()).unwrap();
        }
        Ok(Progress::Idle)
    });
    let keeper = Keeper { kept: WorkQueue::new(REPLIES), most: 0, answering: false, answers: 0 };
    let mut endpoint = Endpoint::attach(network(1, config).pop().unwrap(), handlers, keeper).unwrap();
    let mut asked = 0;
    while endpoint.try_request(Rank(0), ask, ()).is_ok() {
        asked += 1;
        endpoint.poll().unwrap();
    }
    // The queue was made for what the credits allow, and never refused an item.
    assert_eq!((asked, endpoint.state().most), (REPLIES as u32, REPLIES));
    endpoint.layer_mut::<Keeper>().answering = true;
    endpoint.wait_until(|keeper| keeper.answers == REPLIES as u32).unwrap();
    endpoint.finish().unwrap();
}

#[test]
fn an_error_of_sending_ends_the_wait_once() {
    let mut handlers = Handlers::<u32>::new();
    let far = handlers.one_way("far", |_, _, (), _| ()).unwrap();
    handlers.progress(move |left, outbox| {
        if *left == 0 {
            return Ok(Progress::Idle);
        }
        *left -= 1;
        outbox.try_request(Rank(9), far, ()).map(|()| Progress::Idle)
    });
    let mut endpoint = Endpoint::attach(single(), handlers, 0).unwrap();
    *endpoint.state_mut() = 1;
    let Err(PollError::Progress(error)) = endpoint.poll() else { panic!("the error is told") };
    assert!(matches!(*error, SendError::NoSuchEndpoint { .. }), "{error}");
    assert_eq!(endpoint.poll(), Ok(0));
    endpoint.finish().unwrap();
}

#[test]
fn finishing_ends_no_work_under_way() {
    const HOPS: u32 = 200;
    for _ in 0..20 {
        let arrived: u32 = thread::scope(|scope| {
            let ranks = network(4, LoopbackConfig::default()).into_iter().map(|transport| {
                scope.spawn(move || {
                    let (mut endpoint, pass) = Relay::endpoint(transport, 4);
                    let next = Rank((endpoint.rank().0 + 1) % 4);
                    endpoint.request(next, pass, HOPS + endpoint.rank().0).unwrap();
                    // Nobody waits for what is on its way.
                    endpoint.finish().unwrap().arrived
                })
            });
            ranks.collect::<Vec<_>>().into_iter().map(|rank| rank.join().unwrap()).sum()
        });
        assert_eq!(arrived, 4);
    }
}

#[test]
fn no_layer_sends_before_tables_are_compared() {
    let mut handlers = Handlers::<u32>::new();
    let note = handlers.one_way("note", |_, _, (), _| ()).unwrap();
    handlers.progress(move |calls, outbox| {
        *calls += 1;
        assert_eq!(*calls, 1, "called in vain");
        outbox.try_request(Rank(0), note, ()).map(|()| Progress::Idle)
    });
    let mut endpoint = Endpoint::attach(single(), handlers, 0).unwrap();
    assert_eq!(*endpoint.state(), 0);
    endpoint.poll().unwrap();
    assert_eq!(*endpoint.state(), 1);
}

/// A layer that watches memory is called at every poll, and is no work that is left.
#[test]
fn watching_layers_hold_nothing_up() {
    let mut handlers = Handlers::<u32>::new();
    let mut layer = handlers.layer::<u32>("watcher").unwrap();
    layer.progress(|calls, _| {
        *calls += 1;
        Ok(Progress::Watching)
    });
    layer.changed(|_| false);
    let mut endpoint = Endpoint::attach(single(), handlers, 0).unwrap();
    for calls in 1..5 {
        endpoint.poll().unwrap();
        assert_eq!(*endpoint.state(), calls);
    }
    endpoint.drain().unwrap();
    endpoint.finish().unwrap();
}

#[test]
fn a_layer_that_advances_for_ever_outlasts_no_time_out() {
    let mut handlers = Handlers::<()>::new();
    handlers.progress(|(), _| Ok(Progress::Advanced));
    let mut endpoint = Endpoint::attach(single(), handlers, ()).unwrap();
    let waited = endpoint.wait_until_for(Span::from_millis(2), |()| false);
    assert!(matches!(waited, Err(WaitError::TimedOut(_))));
}

/// Two layers whose progress functions send to nobody, and a handler that fails.
struct Failing {
    left: [u32; 2],
}

impl Failing {
    /// An endpoint whose layers fail at the next poll.
    fn endpoint(transport: Loopback) -> (Endpoint<Loopback, Self>, Request<()>) {
        let mut handlers = Handlers::<Self>::new();
        let fail = handlers.one_way("fail", |_, _, (), _| Err::<(), _>(am_core::HandlerError::new("no"))).unwrap();
        for (index, name) in ["first", "second"].into_iter().enumerate() {
            let mut layer = handlers.layer::<Self>(name).unwrap();
            layer.progress(move |failing, outbox| {
                if failing.left[index] == 0 {
                    return Ok(Progress::Idle);
                }
                failing.left[index] -= 1;
                outbox.try_request(Rank(70 + index as u32), fail, ()).map(|()| Progress::Idle)
            });
        }
        let endpoint = Endpoint::attach(transport, handlers, Self { left: [0; 2] }).unwrap();
        (endpoint, fail)
    }

    /// What the next polls tell: 0 for a handler's error, else the rank that a layer sent to.
    fn told(endpoint: &mut Endpoint<Loopback, Self>) -> Vec<u32> {
        let mut told = Vec::new();
        while let Err(error) = endpoint.poll() {
            told.push(match error {
                PollError::Handler(_) => 0,
                PollError::Progress(error) => match *error {
                    SendError::NoSuchEndpoint { to, .. } => to.rank.0,
                    other => panic!("{other}"),
                },
                other => panic!("{other}"),
            });
        }
        told
    }
}

#[test]
fn no_error_of_one_poll_hides_another() {
    let (mut endpoint, fail) = Failing::endpoint(single());
    endpoint.request(Rank(0), fail, ()).unwrap();
    endpoint.state_mut().left = [2, 1];
    let told = Failing::told(&mut endpoint);
    assert_eq!(told, [0, 70, 71, 70], "one after the other, each once");
    endpoint.finish().unwrap();
}

#[test]
fn a_barrier_defers_errors_of_layers() {
    thread::scope(|scope| {
        for transport in network(2, LoopbackConfig::default()) {
            scope.spawn(move || {
                let (mut endpoint, fail) = Failing::endpoint(transport);
                let other = Rank(1 - endpoint.rank().0);
                endpoint.request(other, fail, ()).unwrap();
                endpoint.state_mut().left = [1, 0];
                endpoint.barrier().unwrap();
                let mut told = Failing::told(&mut endpoint);
                endpoint.barrier().unwrap();
                told.extend(Failing::told(&mut endpoint));
                told.sort_unstable();
                assert_eq!(told, [0, 70]);
                endpoint.finish().unwrap();
            });
        }
    });
}

#[test]
fn a_stall_report_names_what_layers_lack() {
    let config = LoopbackConfig::default().requests(1);
    let mut handlers = Handlers::<Relay>::new();
    let relay = Relay::register(&mut handlers, 8);
    // It waits for something that is no room.
    handlers.layer::<Relay>("patient").unwrap().progress(|_, _| Ok(Progress::Blocked));
    let mut transports = network(2, config).into_iter();
    let (zero, one) = (transports.next().unwrap(), transports.next().unwrap());
    let (attached, ready) = std::sync::mpsc::channel();
    let (done, told) = std::sync::mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut handlers = Handlers::<Relay>::new();
            let relay = Relay::register(&mut handlers, 8);
            handlers.layer::<Relay>("patient").unwrap().progress(|_, _| Ok(Progress::Idle));
            let endpoint = Endpoint::attach(one, handlers, relay).unwrap();
            attached.send(()).unwrap();
            // It serves nothing, so that rank 0 has no room towards it.
            told.recv().unwrap_err();
            endpoint.leave();
        });
        let mut endpoint = Endpoint::attach(zero, handlers, relay).unwrap();
        ready.recv().unwrap();
        for _ in 0..2 {
            endpoint.layer_mut::<Relay>().queue.push(0).unwrap();
        }
        let waited = endpoint.wait_until_for(Span::from_millis(1), |_| false);
        let Err(WaitError::TimedOut(report)) = waited else { panic!("{waited:?}") };
        let lines = report.lines();
        assert!(
            lines.contains("rank 0: layer 'relay' has work left: no request frames left towards rank 1\n"),
            "{lines}"
        );
        assert!(lines.contains("rank 0: layer 'patient' has work left\n"), "{lines}");
        drop(done);
        endpoint.leave();
    });
}

#[test]
fn a_layer_that_fails_to_register_leaves_no_names() {
    let mut handlers = Handlers::<Relay>::new();
    let first = handlers.one_way("first", |_, _, (), _| ()).unwrap();
    let mut layer = handlers.layer::<Relay>("twice").unwrap();
    let stale: Request<()> = layer.one_way("pass", |_, _, (), _| ()).unwrap();
    layer.reply("answer", |_, _, (), _| ()).unwrap();
    layer.progress(|_, _| panic!("a layer that was withdrawn is called"));
    let again = layer.one_way("pass", |_, _, (), _| ()).unwrap_err();
    assert_eq!(again, RegisterError::NameTaken { name: "twice.pass".into() });
    // It goes on failing, and nothing of it is left but its indices.
    assert_eq!(layer.request("other", |_, _, (), _| ()).unwrap_err(), again);
    layer.progress(|_, _| panic!("a layer that was withdrawn is called"));
    layer.changed(|_| panic!("a layer that was withdrawn is asked"));
    assert_eq!(handlers.description(), "'first' (one-way ())\nwithdrawn: 1 requests and 1 replies\n");
    let mut layer = handlers.layer::<Relay>("twice").unwrap();
    let pass: Request<()> = layer.one_way("pass", |relay: &mut Relay, _, (), _| relay.arrived += 1).unwrap();
    let relay = Relay::register(&mut handlers, 1);
    let mut endpoint = Endpoint::attach(single(), handlers, relay).unwrap();
    endpoint.request(Rank(0), first, ()).unwrap();
    endpoint.request(Rank(0), pass, ()).unwrap();
    endpoint.wait_until(|relay| relay.arrived == 1).unwrap();
    endpoint.request(Rank(0), stale, ()).unwrap();
    let dropped = endpoint.poll().unwrap_err();
    assert!(matches!(dropped, PollError::BadMessage { reason: BadMessage::UnknownHandler, .. }), "{dropped}");
    endpoint.finish().unwrap();
}

#[test]
fn a_layer_that_fails_at_once_leaves_nothing() {
    let mut handlers = Handlers::<Relay>::new();
    let relay = Relay::register(&mut handlers, 1);
    let (description, fingerprint) = (handlers.description().to_owned(), handlers.fingerprint());
    handlers.layer::<Relay>("relay").unwrap_err();
    handlers.layer::<Relay>("bad").unwrap().one_way("tab\t", |_, _, (), _| ()).unwrap_err();
    assert_eq!((handlers.description(), handlers.fingerprint()), (&description[..], fingerprint));
    Endpoint::attach(single(), handlers, relay).unwrap().finish().unwrap();
}

#[test]
fn a_request_knows_its_reply_bound() {
    let mut handlers = Handlers::<()>::new();
    let silent = handlers.one_way("silent", |(), _, (), _| ()).unwrap();
    let small = handlers.request_bounded("small", 100, |(), _, (), _| ()).unwrap();
    let default = handlers.request("default", |(), _, (), _| ()).unwrap();
    let foreign: Request<()> = Handlers::<()>::new().request("foreign", |(), _, (), _| ()).unwrap();
    let endpoint = Endpoint::attach(single(), handlers, ()).unwrap();
    let bounds = [silent, small, small.reply_up_to(8), small.reply_up_to(1000), default, foreign];
    let declared = endpoint.limits(Rank(0)).unwrap().default_reply as u32;
    let expected = [None, Some(100), Some(8), Some(100), Some(declared), None];
    assert_eq!(bounds.map(|handler| endpoint.reply_bound(handler)), expected);
    endpoint.finish().unwrap();
}

/// Two layers, and the calls of their progress functions and of the program's.
#[derive(Default)]
struct Counted {
    first: First,
    second: Second,
    calls: u32,
}

#[derive(Default)]
struct First {
    calls: u32,
}

#[derive(Default)]
struct Second {
    calls: u32,
}

impl HasLayer<First> for Counted {
    fn as_layer(&self) -> &First {
        &self.first
    }

    fn as_layer_mut(&mut self) -> &mut First {
        &mut self.first
    }
}

impl HasLayer<Second> for Counted {
    fn as_layer(&self) -> &Second {
        &self.second
    }

    fn as_layer_mut(&mut self) -> &mut Second {
        &mut self.second
    }
}

/// Requests to a handler of the first layer, of the second, and of the program.
type Touches = [Request<()>; 3];

impl Counted {
    /// With a progress function of its own, if `own`.
    fn endpoint(own: bool) -> (Endpoint<Loopback, Self>, Touches) {
        let mut handlers = Handlers::<Self>::new();
        let mut layer = handlers.layer::<First>("first").unwrap();
        let first = layer.one_way("touch", |_, _, (), _| ()).unwrap();
        layer.progress(|first, _| {
            first.calls += 1;
            Ok(Progress::Idle)
        });
        let mut layer = handlers.layer::<Second>("second").unwrap();
        let second = layer.one_way("touch", |_, _, (), _| ()).unwrap();
        layer.progress(|second, _| {
            second.calls += 1;
            Ok(Progress::Idle)
        });
        let program = handlers.one_way("touch", |_, _, (), _| ()).unwrap();
        if own {
            handlers.progress(|counted, _| {
                counted.calls += 1;
                Ok(Progress::Idle)
            });
        }
        let mut endpoint = Endpoint::attach(single(), handlers, Self::default()).unwrap();
        // All functions are called at first, and as the sixteenth poll comes: the counts below begin behind both.
        for _ in 0..17 {
            endpoint.poll().unwrap();
        }
        Self::counts(&mut endpoint);
        (endpoint, [first, second, program])
    }

    /// The calls since this was last asked.
    fn counts(endpoint: &mut Endpoint<Loopback, Self>) -> [u32; 3] {
        let own = std::mem::take(&mut endpoint.layer_unscheduled::<Self>().calls);
        let first = std::mem::take(&mut endpoint.layer_unscheduled::<First>().calls);
        [first, std::mem::take(&mut endpoint.layer_unscheduled::<Second>().calls), own]
    }
}

#[test]
fn only_touched_layers_are_called() {
    let (mut endpoint, touches) = Counted::endpoint(true);
    let mut expect = |touch: &dyn Fn(&mut Endpoint<Loopback, Counted>), calls: [u32; 3]| {
        touch(&mut endpoint);
        endpoint.poll().unwrap();
        assert_eq!(Counted::counts(&mut endpoint), calls);
    };
    expect(&|_| (), [0, 0, 0]);
    expect(&|endpoint| endpoint.request(Rank(0), touches[0], ()).unwrap(), [1, 0, 1]);
    expect(&|endpoint| endpoint.request(Rank(0), touches[1], ()).unwrap(), [0, 1, 1]);
    expect(&|endpoint| endpoint.request(Rank(0), touches[2], ()).unwrap(), [0, 0, 1]);
    expect(&|endpoint| _ = endpoint.layer_mut::<First>(), [1, 0, 1]);
    expect(&|endpoint| _ = endpoint.layer_mut::<Second>(), [0, 1, 1]);
    expect(&|endpoint| _ = endpoint.layer_unscheduled::<Second>(), [0, 0, 0]);
    expect(&|endpoint| _ = endpoint.state_mut(), [1, 1, 1]);
    expect(&|endpoint| endpoint.report_loss_again(), [0, 0, 0]);
    endpoint.finish().unwrap();
}

#[test]
fn untouched_layers_are_called_now_and_then() {
    let (mut endpoint, touches) = Counted::endpoint(false);
    for _ in 0..16 * 10 {
        endpoint.poll().unwrap();
    }
    assert_eq!(Counted::counts(&mut endpoint), [10, 10, 0], "once in sixteen empty polls");
    for _ in 0..64 * 10 {
        endpoint.request(Rank(0), touches[1], ()).unwrap();
        endpoint.poll().unwrap();
    }
    assert_eq!(Counted::counts(&mut endpoint), [10, 640, 0], "once in sixty-four polls that served something");
    for _ in 0..64 * 10 {
        endpoint.request(Rank(0), touches[2], ()).unwrap();
        endpoint.poll().unwrap();
    }
    assert_eq!(Counted::counts(&mut endpoint), [10, 10, 0], "the program's handlers touch no layer");
    // Before the endpoint idles, a handler of the program may have left something anywhere.
    endpoint.request(Rank(0), touches[2], ()).unwrap();
    endpoint.poll().unwrap();
    endpoint.poll_or_idle(Span::ZERO).unwrap();
    assert_eq!(Counted::counts(&mut endpoint), [1, 1, 0]);
    endpoint.finish().unwrap();
}

/// A layer that says whether its progress function has anything to do, and how often that was called while the
/// endpoint did not idle.
#[derive(Default)]
struct Frugal {
    left: u32,
    calls: u32,
    idle_calls: u32,
}

#[test]
fn layers_without_work_are_not_called() {
    let mut handlers = Handlers::<Frugal>::new();
    let mut layer = handlers.layer::<Frugal>("frugal").unwrap();
    let leave = layer.one_way("leave", |frugal: &mut Frugal, _, left: u32, _| frugal.left += left).unwrap();
    layer.progress(|frugal, outbox| {
        if outbox.about_to_idle() {
            frugal.idle_calls += 1;
            return Ok(Progress::Idle);
        }
        frugal.calls += 1;
        let worked = frugal.left != 0;
        frugal.left = frugal.left.saturating_sub(1);
        Ok(if worked { Progress::Advanced } else { Progress::Idle })
    });
    layer.pending(|frugal| frugal.left != 0);
    let mut endpoint = Endpoint::attach(single(), handlers, Frugal::default()).unwrap();
    let calls = |endpoint: &mut Endpoint<Loopback, Frugal>, polls: u32| {
        (0..polls).for_each(|_| _ = endpoint.poll().unwrap());
        std::mem::take(&mut endpoint.layer_unscheduled::<Frugal>().calls)
    };
    // The sixteenth poll that finds nothing calls everybody: the counts below begin behind it.
    calls(&mut endpoint, 17);
    for _ in 0..40 {
        endpoint.request(Rank(0), leave, 0).unwrap();
        assert_eq!(calls(&mut endpoint, 1), 0, "its handler has left nothing");
    }
    _ = endpoint.layer_mut::<Frugal>();
    assert_eq!(calls(&mut endpoint, 1), 0, "nothing was left in its state");
    endpoint.request(Rank(0), leave, 3).unwrap();
    assert_eq!(calls(&mut endpoint, 5), 3, "once for each piece of work, and not again after the last one");
    endpoint.layer_mut::<Frugal>().left = 1;
    assert_eq!(calls(&mut endpoint, 3), 1);
    // What has advanced is told once, and keeps this from idling.
    endpoint.poll_or_idle(Span::ZERO).unwrap();
    endpoint.layer_unscheduled::<Frugal>().idle_calls = 0;
    endpoint.request(Rank(0), leave, 0).unwrap();
    endpoint.poll().unwrap();
    endpoint.poll_or_idle(Span::ZERO).unwrap();
    assert_eq!(endpoint.state().idle_calls, 1, "before the endpoint idles it is called all the same");
    endpoint.finish().unwrap();
}

/// A handler of the program leaves work in a layer's state.
#[test]
fn work_left_by_the_program_is_not_lost() {
    let mut handlers = Handlers::<Relay>::new();
    let relay = Relay::register(&mut handlers, 8);
    let leave = handlers.one_way("leave", |relay, _, hops: u32, _| relay.queue.push(hops)).unwrap();
    let mut endpoint = Endpoint::attach(single(), handlers, relay).unwrap();
    for round in 1..=20 {
        endpoint.request(Rank(0), leave, 3).unwrap();
        match round % 3 {
            0 => endpoint.drain().unwrap(),
            1 => endpoint.quiesce().unwrap(),
            _ => endpoint.wait_until(|relay| relay.arrived == round).unwrap(),
        }
        assert_eq!(endpoint.state().arrived, round);
    }
    endpoint.finish().unwrap();
}

#[test]
fn a_busy_wait_is_bounded() {
    let (mut endpoint, pass) = Relay::endpoint(single(), 8);
    let mut looks = 0;
    let never: Result<Option<()>, WaitError> = endpoint.spin_through(Span::from_micros(100), |_| {
        looks += 1;
        Ok(None)
    });
    assert!(never.unwrap().is_none() && looks >= 2, "{looks} looks");
    endpoint.request(Rank(0), pass, 0).unwrap();
    let arrived: Result<_, WaitError> = endpoint
        .spin_through(Span::from_secs(600), |endpoint| Ok((endpoint.state().arrived == 1).then_some("arrived")));
    assert_eq!(arrived.unwrap(), Some("arrived"));
    let failed: Result<Option<()>, &str> = endpoint.spin_through(Span::from_secs(600), |_| Err("no"));
    assert_eq!(failed.unwrap_err(), "no");
    assert_eq!(endpoint.idles(), 0);
    endpoint.finish().unwrap();
}
