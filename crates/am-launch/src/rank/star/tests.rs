//! Stars of a few ranks, some of which are only a channel that says and hears what the test wants.

use super::*;
use crate::cluster::message::Parts;
use std::sync::mpsc::{Receiver, channel};

const PATIENCE: Duration = Duration::from_secs(60);

/// A rank with its star, and what it is told.
type Member = (Arc<Star>, Receiver<LauncherMessage>);

fn begin(spokes: Spokes, ranks: u32) -> Member {
    let (sender, told) = channel();
    let star = Star::begin(spokes, ranks, move |told| drop(sender.send(told)));
    (star.unwrap(), told)
}

/// Rank 0, and what the others have of their connections.
fn root(ranks: u32) -> (Member, Vec<UnixStream>) {
    let (ours, theirs): (Vec<_>, Vec<_>) = (1..ranks).map(|_| UnixStream::pair().unwrap()).unzip();
    (begin(Spokes::root((1..).zip(ours), &Secret::none()).unwrap(), ranks), theirs)
}

fn leaf(stream: UnixStream, ranks: u32) -> Member {
    begin(Spokes::leaf(stream, &Secret::none()).unwrap(), ranks)
}

/// A channel that has proven itself to a star at the other end.
fn bare(stream: UnixStream, side: Side) -> Channel {
    let mut channel = Channel::local(stream, side, &Secret::none()).unwrap();
    let until = Instant::now() + PATIENCE;
    while !channel.prove().unwrap() {
        channel.rest(until).unwrap();
    }
    channel
}

/// All that is said goes out, and the connection ends.
fn say_and_end(mut channel: Channel, said: &[FromRank]) {
    said.iter().for_each(|said| channel.send(said));
    flush(&mut channel, Instant::now() + PATIENCE).unwrap();
}

fn next(told: &Receiver<LauncherMessage>) -> LauncherMessage {
    told.recv_timeout(PATIENCE).expect("something is told")
}

/// The next that is not about who is done.
fn news(told: &Receiver<LauncherMessage>) -> LauncherMessage {
    std::iter::repeat_with(|| next(told))
        .find(|told| !matches!(told, LauncherMessage::Done(_)))
        .expect("without end")
}

fn failed(rank: u32) -> LauncherMessage {
    LauncherMessage::Failed(vec![Rank(rank)])
}

#[test]
fn parts_and_losses_reach_everyone() {
    let (zero, theirs) = root(3);
    let [one, two] = theirs.try_into().unwrap();
    let one = leaf(one, 3);
    // The second rank ends before it takes part.
    drop(two);
    for (rank, (star, _)) in [(0, &zero), (1, &one)] {
        star.say(Word::Part(vec![rank])).unwrap();
    }
    for (_, told) in [&zero, &one] {
        assert_eq!(
            [news(told), news(told)],
            [failed(2), LauncherMessage::Gathered(vec![vec![0], vec![1], vec![]])]
        );
    }
    // It is remembered.
    for (rank, (star, _)) in [(0, &zero), (1, &one)] {
        star.say(Word::Part(vec![10 + rank])).unwrap();
    }
    for (_, told) in [&zero, &one] {
        assert_eq!(news(told), LauncherMessage::Gathered(vec![vec![10], vec![11], vec![]]));
    }
}

#[test]
fn only_who_has_not_left_is_lost() {
    let (zero, theirs) = root(5);
    let [one, two, three, four] = theirs.try_into().unwrap();
    let one = leaf(one, 5);
    let said = |word| FromRank::Said(word);
    say_and_end(bare(two, Side::Client), &[said(Word::Left), said(Word::Done)]);
    say_and_end(bare(three, Side::Client), &[said(Word::Left), said(Word::Back)]);
    for (_, told) in [&zero, &one] {
        assert_eq!(news(told), failed(3));
    }
    // What no rank says ends its connection.
    let part = vec![0; LONGEST_PART + 1];
    say_and_end(bare(four, Side::Client), &[said(Word::Part(part))]);
    for (_, told) in [&zero, &one] {
        assert_eq!(news(told), failed(4));
    }
    // Nothing was said of the other one, which had left.
    for (rank, (star, _)) in [(0, &zero), (1, &one)] {
        star.say(Word::Part(vec![rank])).unwrap();
    }
    for (_, told) in [&zero, &one] {
        assert_eq!(news(told), LauncherMessage::Gathered(vec![vec![0], vec![1], vec![], vec![], vec![]]));
    }
}

#[test]
fn a_rank_may_end_once_it_has_left() {
    let (zero, theirs) = root(2);
    // No thread of this one hears, as when a process ends in the middle.
    let mut channel = bare(theirs.into_iter().next().unwrap(), Side::Client);
    zero.0.say(Word::Left).unwrap();
    // The word has gone out in that call: nothing that comes later is needed for it.
    let heard = channel.wait::<Answer>(Instant::now() + PATIENCE).unwrap();
    assert!(matches!(heard[..], [Answer::Left(true)]), "{heard:?}");
}

#[test]
fn the_end_of_rank_zero_is_a_loss_unless_it_has_left() {
    for left in [false, true] {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (star, told) = leaf(theirs, 3);
        let mut zero = bare(ours, Side::Server);
        zero.send(&Answer::Failed(vec![2]));
        zero.send(&Answer::Left(left));
        flush(&mut zero, Instant::now() + PATIENCE).unwrap();
        drop(zero);
        assert_eq!(next(&told), failed(2));
        if !left {
            assert_eq!(next(&told), failed(0));
        }
        // Whichever call meets it, it has one name.
        assert_eq!(next(&told), LauncherMessage::Over(io::ErrorKind::UnexpectedEof));
        assert_eq!(star.say(Word::Part(vec![])).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}

#[test]
fn what_no_rank_zero_says_ends_the_hearing() {
    let gathered = |count: usize, more| Answer::Gathered { parts: Parts(vec![vec![]; count]), more };
    for answer in [
        gathered(3, false),
        gathered(1, false),
        gathered(2, true),
        Answer::Failed(vec![2]),
        Answer::Done(vec![0, u32::MAX]),
        Answer::Refused("why".into()),
    ] {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (_, told) = leaf(theirs, 2);
        let mut zero = bare(ours, Side::Server);
        zero.send(&answer);
        flush(&mut zero, Instant::now() + PATIENCE).unwrap();
        let over = LauncherMessage::Over(io::ErrorKind::InvalidData);
        assert_eq!([next(&told), next(&told)], [failed(0), over], "{answer:?}");
        drop(zero);
    }
}

#[test]
fn more_parts_than_one_message_holds() {
    let (zero, theirs) = root(300);
    let mut theirs = theirs.into_iter();
    let one = leaf(theirs.next().unwrap(), 300);
    // The others take no part.
    drop(theirs);
    let (first, second) = (vec![1; LONGEST_PART], vec![2; LONGEST_PART]);
    zero.0.say(Word::Part(first.clone())).unwrap();
    one.0.say(Word::Part(second.clone())).unwrap();
    let expected: Vec<Vec<u8>> = [first, second].into_iter().chain((2..300).map(|_| vec![])).collect();
    for (_, told) in [&zero, &one] {
        let gathered =
            std::iter::repeat_with(|| next(told)).find(|told| matches!(told, LauncherMessage::Gathered(_)));
        assert!(gathered == Some(LauncherMessage::Gathered(expected.clone())));
    }
}

#[test]
fn who_waits_hears_who_is_done() {
    let (zero, theirs) = root(4);
    let [one, two, three] = theirs.try_into().unwrap();
    let one = leaf(one, 4);
    let two = leaf(two, 4);
    two.0.say(Word::Done).unwrap();
    assert_eq!(next(&zero.1), LauncherMessage::Done(vec![Rank(2)]));
    one.0.say(Word::Watch(true)).unwrap();
    assert_eq!(next(&one.1), LauncherMessage::Done(vec![Rank(2)]));
    zero.0.say(Word::Done).unwrap();
    assert_eq!(next(&one.1), LauncherMessage::Done(vec![Rank(0)]));
    one.0.say(Word::Watch(false)).unwrap();
    drop(three);
    assert_eq!([next(&one.1), next(&two.1)], [failed(3), failed(3)]);
    assert!(one.1.try_recv().is_err());
}

/// More than a socket takes: rank 0 knows the result, and may end, only when the others have it.
#[test]
fn rank_0_is_handed_an_exchange_last() {
    let (zero, theirs) = root(5);
    let mut parts = vec![vec![0; LONGEST_PART]];
    let mut channels: Vec<Channel> = theirs.into_iter().map(|stream| bare(stream, Side::Client)).collect();
    for (rank, channel) in (1..).zip(&mut channels) {
        parts.push(vec![rank; LONGEST_PART]);
        channel.send(&FromRank::Said(Word::Part(vec![rank; LONGEST_PART])));
        flush(channel, Instant::now() + PATIENCE).unwrap();
    }
    zero.0.say(Word::Part(parts[0].clone())).unwrap();
    let mut gathered = vec![Vec::new(); channels.len()];
    for (channel, gathered) in channels.iter_mut().zip(&mut gathered) {
        assert!(zero.1.try_recv().is_err(), "rank 0 knows before the others do");
        while gathered.len() < 5 {
            for answer in channel.wait::<Answer>(Instant::now() + PATIENCE).unwrap() {
                let Answer::Gathered { parts, .. } = answer else { panic!("{answer:?}") };
                gathered.extend(parts.0);
            }
        }
    }
    assert!(gathered.iter().all(|gathered| *gathered == parts));
    assert_eq!(news(&zero.1), LauncherMessage::Gathered(parts));
}

/// What rank 0 has sealed and not sent.
fn sealed(star: &Star) -> usize {
    star.state().spokes().map(|spoke| spoke.channel.queued()).sum()
}

/// Ranks that take nothing cost rank 0 a message each, and one copy of the parts for all.
#[test]
fn an_exchange_is_held_once() {
    const RANKS: u32 = 48;
    let (zero, theirs) = root(RANKS);
    let mut channels: Vec<Channel> = theirs.into_iter().map(|stream| bare(stream, Side::Client)).collect();
    for channel in &mut channels {
        channel.send(&FromRank::Said(Word::Part(vec![1; LONGEST_PART])));
        flush(channel, Instant::now() + PATIENCE).unwrap();
    }
    zero.0.say(Word::Part(vec![1; LONGEST_PART])).unwrap();
    // The first rank has its first message, so all parts are there.
    let first = channels[0].wait::<Answer>(Instant::now() + PATIENCE).unwrap();
    assert!(matches!(first[0], Answer::Gathered { .. }), "{first:?}");
    let most = RANKS as usize * (LONGEST_PART + 100);
    assert!(sealed(&zero.0) <= most, "{} bytes, at most {most}", sealed(&zero.0));
    for channel in channels {
        say_and_end(channel, &[FromRank::Said(Word::Left)]);
    }
    assert!(matches!(news(&zero.1), LauncherMessage::Gathered(parts) if parts.len() == RANKS as usize));
}

/// A child of this process may have a connection, whose end the watch would tell again and again.
#[test]
fn an_end_is_told_once_where_a_child_has_the_connection() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let childs = ours.try_clone().unwrap();
    let (star, told) = begin(Spokes::root([(1, ours)], &Secret::none()).unwrap(), 2);
    drop(theirs);
    assert_eq!(news(&told), failed(1));
    let mut events = [EpollEvent::empty(); AT_ONCE];
    assert_eq!(star.events.wait(&mut events, EpollTimeout::ZERO), Ok(0));
    drop(childs);
}

#[test]
fn done_counts_once() {
    let (zero, theirs) = root(4);
    let [one, two, three] = theirs.try_into().unwrap();
    let one = leaf(one, 4);
    one.0.say(Word::Watch(true)).unwrap();
    assert_eq!(next(&one.1), LauncherMessage::Done(vec![]));
    let done = FromRank::Said(Word::Done);
    say_and_end(bare(two, Side::Client), &[FromRank::Said(Word::Left), done.clone(), done]);
    for (_, told) in [&zero, &one] {
        assert_eq!(next(told), LauncherMessage::Done(vec![Rank(2)]));
    }
    // By then rank 0 has met the other's end.
    drop(three);
    for (_, told) in [&zero, &one] {
        assert_eq!([next(told), next(told)], [failed(3), LauncherMessage::Done(vec![Rank(3)])]);
    }
}

/// Rank 0 begins to hear when it first exchanges something, and a rank's process may have ended by then.
#[test]
fn what_is_said_before_rank_0_hears_is_not_lost() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut zero = Spokes::root([(1, ours)], &Secret::none()).unwrap();
    let one = thread::spawn(|| {
        let mut one = Spokes::leaf(theirs, &Secret::none()).unwrap();
        one.open(Instant::now() + PATIENCE).unwrap();
        let Spokes::Leaf(channel, _) = one else { panic!("{one:?}") };
        say_and_end(*channel, &[FromRank::Said(Word::Left), FromRank::Said(Word::Done)]);
    });
    zero.open(Instant::now() + PATIENCE).unwrap();
    one.join().unwrap();
    let (_, told) = begin(zero, 2);
    assert_eq!(next(&told), LauncherMessage::Done(vec![Rank(1)]));
    assert!(told.recv_timeout(Duration::ZERO).is_err(), "it is not lost");
}

/// What the network alone has ended is no loss, and is told as what it is.
#[test]
fn a_network_that_fails_proves_no_end() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (star, _told) = leaf(theirs, 2);
    let mut told = Vec::new();
    let State::Leaf(leaf) = &mut *star.state() else { panic!("{star:?}") };
    leaf.end(&ChannelError::TimedOut, &mut told);
    assert_eq!(told, [LauncherMessage::Over(io::ErrorKind::TimedOut)]);
    assert_eq!(leaf.say(Word::Left).unwrap_err().kind(), io::ErrorKind::TimedOut);
    drop(ours);
}
