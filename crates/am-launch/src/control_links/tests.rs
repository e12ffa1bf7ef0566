use super::*;
use std::thread;

#[test]
fn everyone_hears_everyone_and_of_deaths() {
    let mut links = ControlLinks::default();
    let mut theirs: Vec<OwnedFd> = (0..3).map(|_| links.add().unwrap()).collect();
    drop(theirs.pop());
    // Two exchanges, of which the second has the longest parts.
    let rank = |rank: u8, link: OwnedFd| {
        let link = UnixStream::from(link);
        send_part(&link, &[10 + rank]).unwrap();
        let mut received = Vec::new();
        listen(&link, 3, |message| {
            if received.is_empty() {
                send_part(&link, &vec![rank; LONGEST_PART]).unwrap();
            }
            received.push(message);
        });
        received
    };
    let ranks: Vec<_> =
        (0..).zip(theirs).map(|(number, link)| thread::spawn(move || rank(number, link))).collect();
    let mut exchange = Allgather::new(3);
    exchange.lose(2);
    assert_eq!(exchange.complete(), None, "it has not begun");
    let expected = [vec![vec![10], vec![11], vec![]], vec![vec![0; LONGEST_PART], vec![1; LONGEST_PART], vec![]]];
    for expected in &expected {
        let parts = loop {
            links.poll().into_iter().for_each(|(place, part)| exchange.note(place as u32, part));
            if let Some(parts) = exchange.complete() {
                break parts;
            }
            thread::yield_now();
        };
        assert!(parts == *expected);
        links.answer(&parts);
    }
    links.announce_failures(&[2]);
    links.announce_failures(&[]);
    links.announce_failures(&[1, 0]);
    while links.is_behind() {
        links.poll();
    }
    drop(links);
    let [first, second] = expected.map(LauncherMessage::Gathered);
    let expected =
        [first, second, LauncherMessage::Failed(vec![Rank(2)]), LauncherMessage::Failed(vec![Rank(1), Rank(0)])];
    for rank in ranks {
        assert!(rank.join().unwrap() == expected);
    }
}

#[test]
fn who_has_left_is_known_when_the_link_is_cut() {
    let mut links = ControlLinks::default();
    let theirs: Vec<UnixStream> = (0..2).map(|_| links.add().unwrap().into()).collect();
    for link in &theirs {
        send_part(link, &[77]).unwrap();
    }
    let mut presence = Presence::default();
    presence.attach(&theirs[1]);
    presence.depart(&theirs[1]);
    drop(theirs);
    assert_eq!(links.poll(), [(0, vec![77]), (1, vec![77])]);
    assert_eq!([0, 1, 2].map(|place| links.has_left(place)), [false, true, false]);
    assert_eq!(links.ends().count(), 0);
}

#[test]
fn one_look_hears_all_that_was_said() {
    let mut links = ControlLinks::default();
    let link = UnixStream::from(links.add().unwrap());
    // More than is read at once, less than a socket holds.
    for length in [LONGEST_PART, 20_000] {
        send_part(&link, &vec![1; length]).unwrap();
    }
    let mut presence = Presence::default();
    presence.attach(&link);
    presence.depart(&link);
    drop(link);
    let lengths: Vec<usize> = links.poll().iter().map(|(_, part)| part.len()).collect();
    assert_eq!(lengths, [LONGEST_PART, 20_000]);
    // A launcher that misses this takes the rank for lost.
    assert!(links.has_left(0) && !links.is_open(0));
}

#[test]
fn a_rank_has_left_when_its_last_endpoint_has() {
    let mut links = ControlLinks::default();
    let link: UnixStream = links.add().unwrap().into();
    let (mut presence, mut seen) = (Presence::default(), Vec::new());
    // One endpoint comes and goes before the other attaches.
    for step in [Presence::attach, Presence::depart, Presence::attach, Presence::depart] {
        step(&mut presence, &link);
        assert!(links.poll().is_empty());
        seen.push(links.has_left(0));
    }
    assert_eq!(seen, [false, true, false, true]);
    // Two of them at the same time.
    presence.attach(&link);
    presence.attach(&link);
    presence.depart(&link);
    assert!(links.poll().is_empty() && !links.has_left(0));
}

#[test]
fn a_rank_that_does_not_listen_misses_nothing() {
    let mut links = ControlLinks::default();
    let theirs = links.add().unwrap();
    let mut said = 0;
    while !links.is_behind() {
        links.announce_failures(&[said]);
        said += 1;
    }
    let receiver = thread::spawn(move || {
        let mut received = 0;
        listen(&UnixStream::from(theirs), u32::MAX, |message| {
            assert_eq!(message, LauncherMessage::Failed(vec![Rank(received)]));
            received += 1;
        });
        received
    });
    while links.is_behind() {
        assert!(links.poll().is_empty());
    }
    drop(links);
    assert_eq!(receiver.join().unwrap(), said);
}

#[test]
fn what_no_rank_says_cuts_the_link() {
    for words in [[9, 0, 0, 0, 0], [PART, 1, 0, 1, 0], [LEFT, 1, 0, 0, 0], [WATCH, 2, 0, 0, 0], [DONE, 1, 0, 0, 0]]
    {
        let mut links = ControlLinks::default();
        let mut link: UnixStream = links.add().unwrap().into();
        link.write_all(&words).unwrap();
        assert!(links.poll().is_empty());
        assert_eq!(links.ends().count(), 0);
        assert_eq!(links.take_done(), [0], "nobody waits for it any more");
    }
}

#[test]
fn what_no_launcher_says_ends_the_listening() {
    let empty = [0; 4];
    for (kind, body) in [
        (GATHERED, &[][..]),
        // A part that is cut off; a third part for two ranks; too few; more than the last; no answer to
        // whether more follow.
        (GATHERED, &[0, 1, 0, 0, 0]),
        (GATHERED, &[&[0], &empty[..], &empty, &empty].concat()),
        (GATHERED, &[&[0], &empty[..]].concat()),
        (GATHERED, &[&[1], &empty[..], &empty].concat()),
        (GATHERED, &[&[2], &empty[..]].concat()),
        (GATHERED, &[&[0], &empty[..], &1u32.to_le_bytes()].concat()),
        (FAILED, &[2, 0, 0, 0]),
        (FAILED, &[1, 0, 0, 0, 0]),
        (OUT, &[2, 0, 0, 0]),
        (PART, &[]),
        (9, &[]),
    ] {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (&ours).write_all(&frame(kind, body)).unwrap();
        listen(&theirs, 2, |message| panic!("{message:?}"));
        // The other end is still there: it was the frame that ended this.
        drop(ours);
    }
    // Longer than any: nothing is set aside for it.
    let (ours, theirs) = UnixStream::pair().unwrap();
    (&ours).write_all(&[GATHERED, 0xff, 0xff, 0xff, 0xff]).unwrap();
    listen(&theirs, u32::MAX, |message| panic!("{message:?}"));
}

#[test]
fn exchanges_of_many_ranks_take_several_frames() {
    // Of the last two the second is empty.
    for ranks in [1, PARTS_AT_ONCE, PARTS_AT_ONCE + 1, 3 * PARTS_AT_ONCE] {
        let mut links = ControlLinks::default();
        let theirs = UnixStream::from(links.add().unwrap());
        let parts: Vec<Vec<u8>> = (0..ranks).map(|rank| vec![rank as u8; rank % 3]).collect();
        let receiver = thread::spawn(move || {
            let mut received = Vec::new();
            listen(&theirs, ranks as u32, |message| received.push(message));
            received
        });
        for parts in [&parts, &vec![vec![7]; ranks]] {
            links.answer(parts);
        }
        while links.is_behind() {
            links.poll();
        }
        drop(links);
        assert!(
            receiver.join().unwrap()
                == [LauncherMessage::Gathered(parts), LauncherMessage::Gathered(vec![vec![7]; ranks])]
        );
    }
}

#[test]
fn who_waits_hears_who_is_done() {
    let mut links = ControlLinks::default();
    let theirs: Vec<UnixStream> = (0..3).map(|_| links.add().unwrap().into()).collect();
    send_done(&theirs[2]);
    assert!(links.poll().is_empty());
    assert_eq!((links.take_done(), links.take_done()), (vec![2], vec![]));
    // Its end is no news.
    theirs[2].shutdown(std::net::Shutdown::Both).unwrap();
    links.poll();
    assert_eq!(links.take_done(), []);
    links.announce_done(&[2]);
    send_watch(&theirs[0], true);
    links.poll();
    links.announce_done(&[1]);
    send_watch(&theirs[0], false);
    links.poll();
    links.announce_done(&[0]);
    drop(links);
    let received = [0, 1].map(|place: usize| {
        let mut received = Vec::new();
        listen(&theirs[place], 3, |message| received.push(message));
        received
    });
    assert_eq!(
        received,
        [vec![LauncherMessage::Done(vec![Rank(2)]), LauncherMessage::Done(vec![Rank(1)])], vec![]]
    );
}

#[test]
fn a_launcher_that_is_gone_is_an_error() {
    let theirs = UnixStream::from(ControlLinks::default().add().unwrap());
    assert!(send_part(&theirs, &[1]).is_err());
    listen(&theirs, 1, |message| panic!("{message:?}"));
}
