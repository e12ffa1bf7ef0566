//! Ranks with a launcher that the tests play, and ranks without one.

use super::*;
use crate::control_links::{Allgather, ControlLinks};
use nix::sys::socket::{setsockopt, sockopt};
use std::fs::File;
use std::os::fd::AsFd;

/// A rank of a job of three, and its launcher's end.
fn rank(number: u32, limit: Duration) -> (Bootstrap, ControlLinks) {
    let mut links = ControlLinks::default();
    let link: UnixStream = links.add().unwrap().into();
    // Far less than a part.
    setsockopt(&link, sockopt::SndBuf, &4096).unwrap();
    let address = [127, 0, 0, 1].into();
    let manifest = JobManifest {
        job: format!("bootstrap-{}-{:p}", std::process::id(), &links),
        secret: Secret::none(),
        endpoints: 1,
        hosts: vec![HostEntry { name: "here".into(), address, interface: "lo".into() }],
        host_of: vec![0; 3],
    };
    let place = (Rank(number), number);
    (Bootstrap::new(manifest, place, StartedBy::Amrun, Exchange::Launcher(link), limit), links)
}

#[test]
fn a_part_that_is_too_long_is_told_at_once() {
    let (job, _links) = rank(0, Duration::from_secs(60));
    let refused = job.allgather(&vec![0; Bootstrap::LONGEST_PART + 1]);
    assert!(matches!(refused, Err(ExchangeError::TooLong { bytes: 65_537 })), "{refused:?}");
}

#[test]
fn handing_out_hears_of_failures_from_the_first_call_on() {
    let (job, mut links) = rank(0, Duration::from_secs(5));
    links.announce_failures(&[1]);
    let file = File::open("/dev/null").unwrap();
    job.hand_out("file", file.as_fd(), &[Rank(0), Rank(1)]).unwrap();
    let (job, mut links) = rank(2, Duration::from_secs(5));
    links.announce_failures(&[1]);
    let fetched = job.fetch("file", Rank(1));
    assert!(matches!(fetched, Err(LocalRendezvousError::Lost { from: 1 })), "{fetched:?}");
}

/// What a launcher does with what its ranks say, until all are done: `links` has the ranks in order.
fn serve(mut links: ControlLinks, ranks: u32) {
    let (mut exchange, mut left) = (Allgather::new(ranks), ranks as usize);
    while left > 0 {
        links.poll().into_iter().for_each(|(place, part)| exchange.note(place as u32, part));
        let done: Vec<u32> = links.take_done().into_iter().map(|place| place as u32).collect();
        links.announce_done(&done);
        left -= done.len();
        for rank in done {
            exchange.lose(rank);
        }
        if let Some(parts) = exchange.complete() {
            links.answer(&parts);
        }
        // A rank whose launcher is busy only waits longer.
        thread::sleep(Duration::from_millis(1));
    }
}

/// Three ranks, and a thread that serves them as their launcher.
fn job(limit: Duration) -> ([Bootstrap; 3], thread::JoinHandle<()>) {
    let (zero, mut links) = rank(0, limit);
    let others = [1, 2].map(|number| {
        let address = [127, 0, 0, 1].into();
        let host = HostEntry { name: "here".into(), address, interface: "lo".into() };
        let manifest = JobManifest { hosts: vec![host], ..zero.manifest.clone() };
        let link = Exchange::Launcher(links.add().unwrap().into());
        Bootstrap::new(manifest, (Rank(number), number), StartedBy::Amrun, link, limit)
    });
    let [one, two] = others;
    ([zero, one, two], thread::spawn(move || serve(links, 3)))
}

#[test]
fn nobody_waits_for_a_rank_that_is_done() {
    let limit = Duration::from_secs(600);
    let ([zero, one, two], launcher) = job(limit);
    thread::scope(|scope| {
        scope.spawn(move || {
            assert_eq!(one.allgather(b"one").unwrap(), [&b"zero"[..], b"one", b"two"]);
            // The survivors' next exchange, and what they hand out, must not wait for rank 2, whose process lives.
            assert_eq!(one.allgather(b"1").unwrap(), [&b"0"[..], b"1", b""]);
            one.fetch("file", Rank(0)).unwrap();
            let fetched = one.fetch("other", Rank(2));
            assert!(matches!(fetched, Err(LocalRendezvousError::Lost { from: 2 })), "{fetched:?}");
        });
        scope.spawn(move || {
            two.allgather(b"two").unwrap();
        });
        zero.allgather(b"zero").unwrap();
        assert_eq!(zero.allgather(b"0").unwrap(), [&b"0"[..], b"1", b""]);
        let file = File::open("/dev/null").unwrap();
        zero.hand_out("file", file.as_fd(), &[Rank(0), Rank(1), Rank(2)]).unwrap();
    });
    drop(zero);
    launcher.join().unwrap();
}

#[test]
fn what_is_said_to_the_launcher_is_said_in_one_piece() {
    let (job, mut links) = rank(0, Duration::from_secs(60));
    let leave = job.attach_endpoint().unwrap();
    thread::scope(|scope| {
        // Without an answer it stays until the launcher is gone.
        scope.spawn(|| drop(job.allgather(&vec![7; Bootstrap::LONGEST_PART])));
        scope.spawn(|| {
            // Most probably in the middle of the part.
            thread::sleep(Duration::from_millis(50));
            leave.report();
        });
        thread::sleep(Duration::from_millis(100));
        let mut parts = Vec::new();
        while !links.has_left(0) && links.is_open(0) {
            parts.extend(links.poll());
            thread::yield_now();
        }
        assert!(links.is_open(0), "the frames make sense");
        assert!(parts == [(0, vec![7; Bootstrap::LONGEST_PART])], "{} parts", parts.len());
        drop(links);
    });
}

/// Ranks without a launcher.
fn star<const RANKS: usize>() -> [Bootstrap; RANKS] {
    let (ours, theirs): (Vec<_>, Vec<_>) = (1..RANKS).map(|_| UnixStream::pair().unwrap()).unzip();
    let secret = Secret::none();
    let address = [127, 0, 0, 1].into();
    let manifest = JobManifest {
        job: format!("star-{}-{:p}", std::process::id(), &secret),
        secret: secret.clone(),
        endpoints: 1,
        hosts: vec![HostEntry { name: "here".into(), address, interface: "lo".into() }],
        host_of: vec![0; RANKS],
    };
    let root = Spokes::root((1..).zip(ours), &secret).unwrap();
    let leaves = theirs.into_iter().map(|stream| Spokes::leaf(stream, &secret).unwrap());
    let ranks = (0..).zip(std::iter::once(root).chain(leaves)).map(|(rank, spokes)| {
        let exchange = Exchange::Ranks(spokes, None);
        Bootstrap::new(manifest.clone(), (Rank(rank), rank), StartedBy::Hand, exchange, Duration::ZERO)
    });
    ranks.collect::<Vec<_>>().try_into().unwrap()
}

/// What an exchange of this rank waits at most.
fn set_limit(job: &Bootstrap, limit: Option<Duration>) {
    let State::Begun(link) = &mut *job.begun().unwrap() else { panic!("it has begun") };
    link.limit = limit;
}

#[test]
fn a_late_result_is_none_of_the_next_exchange() {
    let [zero, one, two] = star();
    for job in [&zero, &one] {
        set_limit(job, Some(Duration::ZERO));
        let late = job.allgather(b"1");
        assert!(matches!(late, Err(ExchangeError::Ranks(ChannelError::TimedOut))), "{late:?}");
        set_limit(job, None);
    }
    thread::scope(|scope| {
        let second = [&zero, &one].map(|job| scope.spawn(|| job.allgather(b"2").unwrap()));
        assert_eq!(two.allgather(b"a").unwrap(), [&b"1"[..], b"1", b"a"]);
        assert_eq!(two.allgather(b"b").unwrap(), [&b"2"[..], b"2", b"b"]);
        second.into_iter().for_each(|parts| assert_eq!(parts.join().unwrap(), [&b"2"[..], b"2", b"b"]));
    });
}

/// Calls that were given up on are exchanges as every other, however many they are: the n-th calls of all ranks
/// are one exchange.
#[test]
fn given_up_exchanges_do_not_end_all_later_ones() {
    let [zero, one, two] = star();
    // More than are carried for a rank at a time.
    let given_up = 2 * MOST_AHEAD as u8 + 1;
    for job in [&zero, &one] {
        set_limit(job, Some(Duration::ZERO));
        for call in 0..given_up {
            let late = job.allgather(&[call]);
            assert!(matches!(late, Err(ExchangeError::Ranks(ChannelError::TimedOut))), "{late:?}");
        }
        set_limit(job, Some(Duration::from_secs(60)));
    }
    // Nobody waits for ever if others fail.
    set_limit(&two, Some(Duration::from_secs(60)));
    thread::scope(|scope| {
        let last = [&zero, &one].map(|job| scope.spawn(|| job.allgather(&[given_up]).unwrap()));
        for call in 0..=given_up {
            assert_eq!(two.allgather(&[call]).unwrap(), [[call]; 3]);
        }
        last.into_iter().for_each(|parts| assert_eq!(parts.join().unwrap(), [[given_up]; 3]));
    });
}

#[test]
fn a_rank_that_exchanges_nothing_is_not_lost() {
    let [zero, one, two] = star();
    drop(two);
    thread::scope(|scope| {
        let other = scope.spawn(|| one.allgather(b"one").unwrap());
        assert_eq!(zero.allgather(b"zero").unwrap(), [&b"zero"[..], b"one", b""]);
        assert_eq!(other.join().unwrap(), [&b"zero"[..], b"one", b""]);
    });
    for job in [&zero, &one] {
        let State::Begun(link) = &*job.begun().unwrap() else { panic!("it has begun") };
        assert!(!link.failures.is_dead(Rank(2)), "its process lives");
    }
    // Rank 0 carries what the others exchange.
    let [zero, one, two] = star();
    drop(zero);
    thread::scope(|scope| {
        let other = scope.spawn(|| one.allgather(b"one").unwrap());
        assert_eq!(two.allgather(b"two").unwrap(), [&b""[..], b"one", b"two"]);
        assert_eq!(other.join().unwrap(), [&b""[..], b"one", b"two"]);
    });
}

#[test]
fn a_slow_listener_holds_up_no_exchange() {
    let [zero, one, two] = star();
    let (called, calls) = channel();
    let (go, wait) = channel::<()>();
    zero.on_failure(move |rank| {
        called.send(rank).unwrap();
        let _ = wait.recv();
    })
    .unwrap();
    // The end of a process that had its connection.
    let State::New(spokes) = std::mem::replace(&mut *two.exchange.lock().unwrap(), State::Broken) else {
        panic!("it has not begun")
    };
    drop(spokes);
    assert_eq!(calls.recv().unwrap(), Rank(2));
    for job in [&zero, &one] {
        drop(job.begun().unwrap());
        set_limit(job, Some(Duration::from_secs(60)));
    }
    thread::scope(|scope| {
        let other = scope.spawn(|| one.allgather(b"one").unwrap());
        assert_eq!(zero.allgather(b"zero").unwrap(), [&b"zero"[..], b"one", b""]);
        assert_eq!(other.join().unwrap(), [&b"zero"[..], b"one", b""]);
    });
    drop(go);
}

#[test]
fn a_fork_has_no_part_in_the_job() {
    let [mut zero, _one] = star();
    let parent = zero.process;
    // As a child sees it.
    zero.process = parent + 1;
    let forked = |error: &ExchangeError| matches!(error, ExchangeError::Forked { child, .. } if *child == parent);
    assert!(forked(&zero.attach_endpoint().unwrap_err()));
    assert!(forked(&zero.allgather(b"").unwrap_err()));
    assert!(forked(&zero.on_failure(|_| ()).unwrap_err()));
    let fetched = zero.fetch("file", Rank(1)).unwrap_err().to_string();
    assert!(fetched.contains(&format!("process {parent} was forked by the rank")), "{fetched}");
    assert!(matches!(*zero.exchange.lock().unwrap(), State::New(_)), "the parent's connections are its own");
}
