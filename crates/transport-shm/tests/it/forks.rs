//! Forks of a rank have no part in its job, whatever they have in their hands.

use crate::life::{PATIENCE, Ping, Process, Role, attach, create, lost};
use am_core::one_sided::{AtomicBatch, AtomicCode, AtomicOp, Runs};
use am_core::transport::PayloadWriter;
use am_core::{
    Address, Endpoint, Handlers, LossCause, Payload, Peer, PeerStatus, PollError, Rank, Reply, Request, Token,
    Transport, WaitError,
};
use am_pgas::Pgas;
use am_pgas::allocator::SegmentAllocation;
use am_pgas::array::{GlobalArray, distribution::Distribution};
use am_pgas::memory::GlobalMemory;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use std::sync::{Arc, Mutex};
use transport_shm::{Job, JoinOptions, Shm};

/// Forks: the child's number, or `None` in the child.
#[expect(unsafe_code, reason = "there is no safe fork")]
fn fork() -> Option<Pid> {
    // SAFETY: the child has the forking thread alone, uses what no other thread of the parent can have locked (the
    // C library makes its allocator usable), and ends by `end` without running anything else of the test.
    match unsafe { libc::fork() } {
        0 => None,
        child => Some(Pid::from_raw(child)),
    }
}

/// Ends the child of a fork at once.
#[expect(unsafe_code, reason = "no safe exit leaves out what the parent has registered for it")]
fn end(code: i32) -> ! {
    // SAFETY: the call takes a number and does not return.
    unsafe { libc::_exit(code) }
}

/// Waits for the child, which says by 0 that nothing went wrong.
fn ended_well(child: Pid) {
    assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0)));
}

/// What a child of a rank makes of the endpoint that it has a copy of; which step went wrong, or 0.
fn misuse(mut endpoint: Endpoint<Shm, u64>, ping: Ping) -> i32 {
    let before = *endpoint.state();
    if endpoint.request(Rank(1), ping, 7).is_ok() {
        return 1;
    }
    // An error or nothing found, as long as it returns.
    let _ = endpoint.poll();
    let waited = endpoint.wait_until_for(PATIENCE, |_| false);
    if !matches!(waited, Err(WaitError::Poll(PollError::PeerLost { cause: LossCause::Forked, .. }))) {
        return 2;
    }
    if endpoint.barrier().is_ok() {
        return 3;
    }
    if *endpoint.state() != before {
        return 4;
    }
    drop(endpoint);
    0
}

#[test]
fn a_fork_of_a_rank_has_no_part_in_the_job() {
    let job = create(2);
    let mut other = Process::start(&job, 1, Role::Echo);
    let (mut endpoint, ping) = attach(job.join(0).expect("it is free")).expect("everyone attaches");
    assert_eq!(other.line(), "attached");
    for round in 1..=3 {
        // A message is on its way to the parent when it forks: the child does not take it.
        endpoint.request(Rank(1), ping, round).expect("it is there");
        let Some(child) = fork() else { end(misuse(endpoint, ping)) };
        ended_well(child);
        endpoint.wait_until_for(PATIENCE, |seen| *seen == round).expect("the answer is still there");
        assert_eq!([0, 1].map(|rank| job.status(rank)), [Some(PeerStatus::Active); 2]);
    }
    // The parent's watch is still there, too.
    other.kill();
    assert_eq!(endpoint.wait_until(|_| false), Err(lost(1, LossCause::Died)));
}

/// Both ranks of a job in this process.
fn both<S: Send, H: Send>(
    job: &Job,
    make: impl Fn(u32) -> (Handlers<S>, H, S) + Sync,
) -> [(Endpoint<Shm, S>, H); 2] {
    let attach = |rank| {
        let (handlers, handles, state) = make(rank);
        let transport = job.join(rank).expect("it is free");
        let endpoint = Endpoint::builder(transport).timeout(Some(PATIENCE)).attach(handlers, state);
        (endpoint.expect("both attach"), handles)
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(|| attach(0));
        let second = attach(1);
        [first.join().expect("no panic"), second]
    })
}

#[test]
fn a_fork_cannot_fill_or_commit_a_reservation() {
    let job = create(2);
    let [(mut sender, text), (mut receiver, _)] = both(&job, |_| {
        let mut handlers = Handlers::new();
        let text = handlers.one_way("text", |seen: &mut Vec<Vec<u8>>, _: Address, (): (), text: Payload<'_>| {
            seen.push(text.to_vec());
        });
        (handlers, text.expect("the table is empty"), Vec::new())
    });
    let mut open = sender.reserve_medium(Rank(1), text, (), 16).expect("there is room");
    open.write(0, b"the parents ");
    let Some(child) = fork() else {
        open.write(0, b"the child's ");
        open.write_u64(1, u64::MAX);
        open.commit();
        end(0)
    };
    ended_well(child);
    while receiver.poll().expect("nobody is lost") > 0 {}
    assert!(receiver.state().is_empty(), "{:?}", receiver.state());
    open.write(12, b"text");
    open.commit();
    receiver.wait_until_for(PATIENCE, |seen| !seen.is_empty()).expect("it was sent");
    assert_eq!(*receiver.state(), [b"the parents text"]);
}

/// What the rank that forks in its handler knows.
#[derive(Default)]
struct Asked {
    times: u32,
    child: bool,
    replied: u32,
    /// Whether the asker is told that its requests have not been handled yet.
    in_hand: Option<Box<dyn Fn() -> bool + Send>>,
}

type Question = (Request<()>, Reply<()>);

/// The table of a rank: the first question makes the rank that gets it fork.
fn questions() -> (Handlers<Asked>, Question) {
    let mut handlers = Handlers::new();
    let answer =
        handlers.reply("answer", |asked: &mut Asked, _: Address, (): (), _: Payload<'_>| asked.times += 1);
    let answer = answer.expect("the table is empty");
    let ask = handlers.request("ask", move |asked: &mut Asked, token: Token<'_>, (): (), _: Payload<'_>| {
        asked.times += 1;
        if asked.times == 1 {
            match fork() {
                None => asked.child = true,
                Some(child) => {
                    ended_well(child);
                    let in_hand = asked.in_hand.as_ref().expect("it was asked in time");
                    assert!(in_hand(), "the child gave back what its parent has not handled");
                }
            }
        }
        asked.replied += u32::from(token.reply(answer, ()).is_ok());
    });
    (handlers, (ask.expect("the name is free"), answer))
}

#[test]
fn a_fork_in_a_handler_replies_and_handles_nothing() {
    let job = create(2);
    let [(asker, (ask, _)), (mut asked, _)] = both(&job, |_| {
        let (handlers, question) = questions();
        (handlers, question, Asked::default())
    });
    let asker = Arc::new(Mutex::new(asker));
    for _ in 0..2 {
        asker.lock().expect("no panic").request(Rank(1), ask, ()).expect("there is room");
    }
    let observed = Arc::clone(&asker);
    asked.state_mut().in_hand = Some(Box::new(move || {
        let asker = observed.lock().expect("no panic");
        asker.transport().owed(Peer(1)).is_some_and(|owed| owed.handling)
    }));
    // It is the child, too, that comes back from this.
    let polled = asked.poll();
    let state = asked.state();
    if state.child {
        end(if state.times != 1 { 1 } else { state.replied as i32 * 2 });
    }
    assert_eq!((polled, state.times, state.replied), (Ok(2), 2, 2));
    let mut asker = asker.lock().expect("no panic");
    asker.wait_until_for(PATIENCE, |answered| answered.times == 2).expect("both are answered");
}

/// What a child does to memory by an endpoint of its parent; which step went wrong, or 0.
fn touch(mut endpoint: Endpoint<Shm, Pgas>, array: &GlobalArray<u64>) -> i32 {
    let everywhere: Vec<u64> = (0..array.distribution().len()).collect();
    let runs = Runs::Indexed { base: 0, unit: 16, len: 8, indices: &[0, 1, 2] };
    let batch = AtomicBatch { code: AtomicCode::Add, operands: &[1u64], expected: &[] };
    for rank in [Rank(0), Rank(1)] {
        let first = array.distribution().len() / 2 * u64::from(rank.0);
        let at = array.pointer([first]).expect("it is inside");
        assert_eq!(at.rank(), rank);
        let done = [
            endpoint.put(rank, 0, &[7; 16]).is_ok(),
            endpoint.put_nb(rank, 0, &[7; 16]).is_ok(),
            endpoint.put_nbi(rank, 0, &[7; 16]).is_ok(),
            endpoint.put_signal(rank, 0, &[7; 16], 64).is_ok(),
            endpoint.put_runs(rank, &runs, &[7; 24]).is_ok(),
            endpoint.atomic(rank, 0, AtomicOp::Add(1u64)).is_ok(),
            endpoint.atomic_nbi(rank, 0, AtomicOp::Add(1u64)).is_ok(),
            endpoint.updates_nbi(rank, 0, &[0, 1, 2], &batch).is_ok(),
            endpoint.put_slice(at.slice(2), &[7, 7]).is_ok(),
            endpoint.local(at.slice(2)).is_ok_and(|local| local.is_some()),
            array.put(&mut endpoint, [first], 7).is_ok(),
            endpoint.mapped_segment(rank).is_some(),
            endpoint.remote_segment(rank).is_some(),
        ];
        if let Some(step) = done.iter().position(|done| *done) {
            return 1 + step as i32 + 20 * rank.0 as i32;
        }
    }
    let stored = array.batch_store(&mut endpoint, &everywhere, &everywhere).is_ok();
    let added = array.batch_add(&mut endpoint, &everywhere, 1).is_ok();
    // The allocator writes zeros to what it hands out.
    let taken = endpoint.allocate_local::<u64>(8).is_ok();
    if stored || added || taken { 100 } else { 0 }
}

/// A fork has the job's memory mapped, and no operation of its endpoint changes that.
#[test]
fn a_fork_changes_no_memory() {
    let job = create(2);
    let enter = |rank| {
        let mut handlers = Handlers::<Pgas>::new();
        let state = Pgas::register(&mut handlers).expect("the table is empty");
        let options = JoinOptions::default().segment_bytes(1 << 14);
        let transport = job.join_with(rank, options).expect("it is free");
        let endpoint = Endpoint::builder(transport).timeout(Some(PATIENCE)).attach(handlers, state);
        let mut endpoint = endpoint.expect("both attach");
        let distribution = Distribution::block([1000], 2).expect("it is possible");
        let array = GlobalArray::<u64>::new(&mut endpoint, distribution).expect("it fits");
        (endpoint, array)
    };
    let [(endpoint, array), (other, _)] = std::thread::scope(|scope| {
        let first = scope.spawn(|| enter(0));
        let second = enter(1);
        [first.join().expect("no panic"), second]
    });
    let mut own = 0;
    for segment in [endpoint.segment(), other.segment()] {
        own += 1;
        segment.write(0, &vec![own; segment.len()]).expect("it is inside");
    }
    let Some(child) = fork() else { end(touch(endpoint, &array)) };
    ended_well(child);
    let mut own = 0;
    for segment in [endpoint.segment(), other.segment()] {
        own += 1;
        let mut found = vec![0; segment.len()];
        segment.read(0, &mut found).expect("it is inside");
        assert!(found.iter().all(|byte| *byte == own), "the child wrote to the memory of rank {}", own - 1);
    }
}

/// A broadcast of two blocks, of which the root has filled one: a fork of it does not fill the other in its name.
#[test]
fn a_fork_fills_no_blocks() {
    use am_pgas::Team;
    use am_pgas::collectives::Collectives;
    let job = create(2);
    let enter = |rank| {
        let mut handlers = Handlers::<Collectives>::new();
        let state = Collectives::register(&mut handlers).expect("the table is empty");
        let transport = job.join(rank).expect("it is free");
        let endpoint = Endpoint::builder(transport).timeout(Some(PATIENCE)).attach(handlers, state);
        let mut endpoint = endpoint.expect("both attach");
        let world = Team::world(&mut endpoint).expect("both come");
        (endpoint, world)
    };
    let [(mut root, of_root), (mut reader, of_reader)] = std::thread::scope(|scope| {
        let first = scope.spawn(|| enter(0));
        let second = enter(1);
        [first.join().expect("no panic"), second]
    });
    let elements: Vec<u64> = (0..1 << 14).collect();
    let giving = of_root.broadcast_nb(&mut root, 0, elements.clone()).expect("it begins");
    let reading = of_reader.broadcast_nb(&mut reader, 0, vec![0; elements.len()]).expect("it begins");
    let polls =
        |reader: &mut Endpoint<Shm, Collectives>| (0..100).any(|_| reading.test(reader).expect("nobody is lost"));
    assert!(!polls(&mut reader), "half of it is still to come");
    let Some(child) = fork() else {
        // It looks after the operation before it learns that everybody is lost to it.
        let found = (0..100).filter(|_| giving.test(&mut root).is_ok()).count();
        end(i32::from(found > 100))
    };
    ended_well(child);
    assert!(!polls(&mut reader), "the rest comes from the parent alone");
    while !polls(&mut reader) {
        root.poll().expect("nobody is lost");
    }
    assert!(reading.wait(&mut reader).expect("it is done") == elements);
    giving.wait(&mut root).expect("it is done");
}
