//! Random programs, played with each protocol.

use super::*;
use crate::config::ByProtocol;

/// Plays a random program; what was counted, of all ranks.
fn play(mut play: Play) -> Vec<Counts> {
    let ranks = play.ranks.len();
    // Programs that do little at a time have more under way.
    let busy = play.below(6) + 1;
    for _ in 0..600 {
        let me = play.below(ranks) as u32;
        if play.below(busy) == 0 {
            play.act(me);
        }
        match play.below(3) {
            0 => drop(play.advance(me)),
            _ if play.below(20) == 0 => play.machines[me as usize].post_direct(),
            _ => {
                let to = play.below(ranks) as u32;
                play.deliver(me, to);
            }
        }
    }
    play.end();
    for (me, machine) in play.machines.iter_mut().enumerate() {
        let staging = machine.config.staging;
        assert_eq!(machine.load(), (0, 0, 0, staging), "rank {me}: sends, receives, messages, free staging");
        assert_eq!(machine.counts.ignored, 0);
        assert_eq!((machine.posted.len(), machine.unexpected.len()), (0, 0));
    }
    assert_eq!(std::sync::Arc::strong_count(&play.owner), 1, "what was kept has gone");
    (0..ranks as u32).for_each(|me| play.check(me));
    let counts: Vec<Counts> = play.machines.iter().map(|machine| machine.counts).collect();
    assert_counts_agree(&counts);
    counts
}

/// What the ranks of a job have sent by each protocol, they have received so, but for eager messages that were let
/// go.
fn assert_counts_agree(counts: &[Counts]) {
    let all = |of: fn(&Counts) -> ByProtocol| {
        counts.iter().map(of).fold([0; 6], |sum, by| {
            let ByProtocol { eager, read, sender_initiated, receiver_initiated, crossing, lent } = by;
            let other = [eager, read, sender_initiated, receiver_initiated, crossing, lent];
            std::array::from_fn(|index| sum[index] + other[index])
        })
    };
    let (sent, received) = (all(Counts::sent_by), all(|counts| counts.received_by));
    assert!(received[0] <= sent[0] && received[1..] == sent[1..], "sent {sent:?}, received {received:?}");
}

/// As many programs as `AM_P2P_SEEDS` says.
pub(crate) fn seeds() -> u64 {
    std::env::var("AM_P2P_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(100)
}

/// Plays the seeds of a protocol.
fn all(protocol: Protocol, ordered: bool, near: bool) -> Vec<Counts> {
    let mut counts = Vec::new();
    for seed in 0..seeds() {
        let reported = format!("seed {seed}, {}, ordered {ordered}, near {near}", protocol.name());
        let guard = PrintsOnPanic(reported);
        let program = Play::new(seed, 1 + seed as usize % 3, protocol, ordered);
        counts.extend(play(if near { program.near() } else { program }));
        std::mem::forget(guard);
    }
    counts
}

/// Prints the seed that repeats a failure.
pub(crate) struct PrintsOnPanic(pub(crate) String);

impl Drop for PrintsOnPanic {
    fn drop(&mut self) {
        eprintln!("failed with {}", self.0);
    }
}

#[test]
fn random_programs_match() {
    for protocol in Protocol::ALL {
        let counts = all(protocol, true, false);
        let sum = |of: fn(&Counts) -> u64| counts.iter().map(of).sum::<u64>();
        let used = |of| sum(of) > 0;
        // What a protocol has not, it does not use; what it has, these programs do.
        assert!(used(|counts| counts.eager) && used(|counts| counts.stalled) && used(|counts| counts.unexpected));
        assert_eq!(used(|counts| counts.read), protocol == Protocol::Read);
        assert_eq!(used(|counts| counts.ack), protocol == Protocol::Read);
        assert_eq!(used(|counts| counts.cts), protocol != Protocol::Read);
        assert_eq!(used(|counts| counts.receiver_initiated), protocol.advertises());
        assert_eq!(used(|counts| counts.crossing), protocol.advertises());
        assert_eq!(used(|counts| counts.revocations), protocol.advertises());
        assert_eq!(used(|counts| counts.fin), !matches!(protocol, Protocol::Read | Protocol::Elided));
    }
}

#[test]
fn lent_messages_match() {
    for protocol in Protocol::ALL {
        let counts = all(protocol, true, true);
        let used = |of: fn(&Counts) -> u64| counts.iter().map(of).sum::<u64>() > 0;
        // Others are written since nobody reads them, or their loan has ended.
        assert!(used(|counts| counts.cts) || protocol == Protocol::Read);
        assert_eq!(used(|counts| counts.lent), protocol == Protocol::Elided);
        assert_eq!(used(|counts| counts.ack), matches!(protocol, Protocol::Read | Protocol::Elided));
        // By the default protocol of receives to memory of the segment alone.
        assert_eq!(used(|counts| counts.rtr), protocol.advertises());
    }
    let counts = all(Protocol::Elided, false, true);
    assert!(counts.iter().any(|counts| counts.lent > 0) && counts.iter().any(|counts| counts.held > 0));
}

#[test]
fn messages_that_overtake_match() {
    for protocol in Protocol::ALL {
        let counts = all(protocol, false, false);
        assert!(counts.iter().any(|counts| counts.held > 0));
        assert!(counts.iter().all(|counts| counts.rtr == 0));
    }
}

#[test]
fn lost_and_freed_leave_nothing() {
    for (protocol, near) in
        Protocol::ALL.map(|protocol| (protocol, false)).into_iter().chain([(Protocol::Elided, true)])
    {
        for seed in 0..seeds() {
            let mut play = Play::new(seed, 3, protocol, true);
            play = if near { play.near() } else { play };
            for _ in 0..150 {
                let (me, to) = (play.below(3) as u32, play.below(3) as u32);
                play.act(me);
                play.advance(me);
                play.deliver(me, to);
            }
            // Rank 2 is lost: what it sent has come, and nothing more goes to it. The others free a communicator.
            for other in 0..2u32 {
                while play.deliver(2, other) {}
                play.machines[other as usize].lose(2, None);
                play.network.link(other, 2).clear();
                play.machines[other as usize].close(1);
            }
            for other in 0..2 {
                let rank = std::mem::take(&mut play.ranks[other]);
                let machine = &mut play.machines[other];
                rank.aside.into_iter().for_each(|message| machine.drop_aside(message));
                rank.lent.iter().for_each(|(key, bytes)| machine.adopt(*key, bytes));
                let placed = rank.placed.iter().map(|(key, ..)| *key);
                let lent = rank.lent.iter().map(|(key, _)| *key).chain(placed);
                rank.sends.iter().copied().chain(lent).for_each(|key| machine.drop_send(key));
                machine.post_direct();
                if let Some((_, mut out)) = rank.direct
                    && let Found::Posted(key) = machine.take_direct(&mut out)
                {
                    machine.drop_receive(key);
                }
                rank.asked.iter().for_each(|asked| machine.drop_receive(asked.key));
                play.ranks[other].segment = rank.segment;
            }
            play.network.lent.clear();
            // Each takes what the other still has for it.
            for _ in 0..400 {
                for (from, to) in [(0, 1), (1, 0), (0, 0), (1, 1)] {
                    while play.deliver(from, to) {}
                    let mut port = Port { network: &mut play.network, me: to };
                    play.machines[to as usize].advance(&mut port).unwrap();
                    let all = Selector { context: 0, source: ANY, tag: ANY };
                    if let Some(message) = play.machines[to as usize].set_aside(all) {
                        play.machines[to as usize].drop_aside(message);
                    }
                }
            }
            for other in 0..2 {
                let staging = play.machines[other].config.staging;
                assert_eq!(play.machines[other].load(), (0, 0, 0, staging), "seed {seed}, {}", protocol.name());
            }
        }
    }
}
