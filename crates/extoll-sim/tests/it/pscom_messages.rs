//! Point-to-point messages over both plugins: contents, matching, order, the ring's promises with and without its
//! rules, plugin choice, faults, misuse.

use am_core::transport::{Arrival, Departure, Membership, ReplyPath, Sink, Transport, WaitReason, Waiting};
use am_core::{Instant, LossCause, Payload, Peer, PeerStatus, Span, Words};
use extoll_sim::conduit::pscom::{
    Messenger, Padding, PairOverride, Plugin, Pscom, PscomConfig, PscomError, RingConfig,
};
use extoll_sim::nic::mutation::{Defects, Mutation};
use extoll_sim::{ExtollConfig, Testing};
use fabric_sim::{FaultEvent, Faults, Report, RunError, Scheduled, Topology};

/// Runs a program with a messenger on every rank.
fn play<R: 'static>(
    machine: &ExtollConfig,
    pscom: &PscomConfig,
    program: impl Fn(&mut Messenger<'_>) -> R + 'static,
) -> Result<Report<R>, RunError> {
    pscom.check()?;
    let pscom = pscom.clone();
    let machine = ExtollConfig { deadline_ns: 1e10, ..machine.clone() };
    extoll_sim::run(&machine, move |nic| program(&mut Messenger::new(&nic, &pscom)))
}

fn results<R: 'static>(
    machine: &ExtollConfig,
    pscom: &PscomConfig,
    program: impl Fn(&mut Messenger<'_>) -> R + 'static,
) -> Vec<R> {
    let report = play(machine, pscom, program).unwrap_or_else(|error| panic!("{error}"));
    report.results.into_iter().map(|result| result.expect("no node stops")).collect()
}

fn crossbar(ranks: u32) -> ExtollConfig {
    ExtollConfig::new(ranks, Topology::Crossbar { nodes: ranks })
}

/// Bytes that tell which message they belong to.
fn pattern(message: u32, len: usize) -> Vec<u8> {
    (0..len as u32).map(|index| (message.wrapping_mul(31) ^ index ^ index >> 8) as u8 | 1).collect()
}

/// Sizes around all edges: packets, slots, rendezvous.
const SIZES: [usize; 17] =
    [0, 1, 43, 44, 45, 108, 512, 1003, 1023, 1024, 1025, 4067, 4068, 4069, 8156, 8157, 300_000];

#[test]
fn messages_of_every_size_arrive_whole() {
    for plugin in Plugin::ALL {
        for rendezvous in [0, 1024] {
            for padding in [Padding::Line, Padding::Word] {
                let ring = RingConfig { padding, ..RingConfig::default() };
                let pscom = PscomConfig { rendezvous, ring, ..PscomConfig::with(plugin) };
                results(&ExtollConfig::pair(), &pscom, |messenger| {
                    let other = 1 - messenger.rank();
                    for (index, size) in (0..).zip(SIZES) {
                        let mine = pattern(2 * index + messenger.rank(), size);
                        let theirs = pattern(2 * index + other, size);
                        let received = messenger.send_receive((other, index), &mine, (Some(other), Some(index)));
                        assert_eq!(received.unwrap().data, theirs, "{size} bytes");
                    }
                });
            }
        }
    }
}

#[test]
fn a_rank_talks_to_itself() {
    results(&ExtollConfig::pair(), &PscomConfig::default(), |messenger| {
        let me = messenger.rank();
        messenger.send(me, 3, b"note").unwrap();
        let received = messenger.receive(Some(me), None).unwrap();
        assert_eq!((received.source, received.tag, received.data), (me, 3, b"note".to_vec()));
        assert!(messenger.connections().is_empty(), "that takes no connection");
    });
}

/// Messages that nobody waits for are kept; receives take them by tag and rank, in their order.
#[test]
fn unexpected_messages_wait_and_wildcards_take_the_oldest() {
    for plugin in Plugin::ALL {
        results(&crossbar(3), &PscomConfig::with(plugin), |messenger| {
            let me = messenger.rank();
            if me != 0 {
                let size = |tag| if tag == 2 { 5000 } else { 10 };
                let sends = (0..5).map(|tag| messenger.isend(0, tag, &pattern(tag, size(tag))).unwrap());
                let sends: Vec<_> = sends.collect();
                messenger.send(0, 99, &[]).unwrap();
                // A large one is sent only when rank 0 has asked for it.
                sends.into_iter().for_each(|request| messenger.wait_send(request).unwrap());
                messenger.receive(Some(0), Some(7)).unwrap();
                return;
            }
            let take = |messenger: &mut Messenger<'_>, source, tag| messenger.receive(source, tag).unwrap();
            // The last message of each: all others are unexpected by then.
            (1..3).for_each(|rank| assert!(take(messenger, Some(rank), Some(99)).data.is_empty()));
            assert_eq!(messenger.unexpected(), 10);
            assert_eq!(take(messenger, Some(2), Some(2)).data, pattern(2, 5000));
            let first = take(messenger, None, Some(4));
            let second = take(messenger, None, Some(4));
            assert_eq!(first.source + second.source, 3, "one of each");
            for rank in 1..3 {
                let tags = if rank == 1 { vec![0, 1, 2, 3] } else { vec![0, 1, 3] };
                let taken: Vec<u32> = tags.iter().map(|_| take(messenger, Some(rank), None).tag).collect();
                assert_eq!(taken, tags, "rank {rank}: in the order of sending");
            }
            assert_eq!(messenger.unexpected(), 0);
            (1..3).for_each(|rank| messenger.send(rank, 7, &[]).unwrap());
        });
    }
}

#[test]
fn calls_that_do_not_block_tell_when_it_is_done() {
    for plugin in Plugin::ALL {
        let pscom = PscomConfig::with(plugin);
        let polls = results(&ExtollConfig::pair(), &pscom, |messenger| {
            let other = 1 - messenger.rank();
            let mut receive = messenger.irecv(Some(other), None).unwrap();
            let mut send = Some(messenger.isend(other, 0, &pattern(9, 20_000)).unwrap());
            let mut polls = 0;
            loop {
                polls += 1;
                send = send.and_then(|request| messenger.test_send(request).err());
                match messenger.test_receive(receive) {
                    Ok(received) => {
                        assert_eq!(received.data, pattern(9, 20_000));
                        break;
                    }
                    Err(again) => receive = again,
                }
            }
            if let Some(request) = send {
                messenger.wait_send(request).unwrap();
            }
            polls
        });
        assert!(polls.iter().all(|polls| *polls > 1), "{polls:?}: nothing is there at once");
    }
}

/// Both ranks send more than all slots before they receive.
fn flood(pscom: &PscomConfig) -> Result<Report<()>, RunError> {
    play(&ExtollConfig::pair(), pscom, |messenger| {
        let other = 1 - messenger.rank();
        // Opens the connection; nothing has come back when the others are sent, as far as tokens go.
        messenger.send(other, 0, &pattern(0, 50)).unwrap();
        let sends: Vec<_> =
            (1..100).map(|index| messenger.isend(other, index, &pattern(index, 50)).unwrap()).collect();
        sends.into_iter().for_each(|request| messenger.wait_send(request).unwrap());
        for index in 0..100 {
            assert_eq!(messenger.receive(Some(other), Some(index)).unwrap().data, pattern(index, 50));
        }
    })
}

/// Item 5, live: with the last token kept, two ranks that do nothing but send to each other get on; without, they
/// spend all tokens on payload and none is left to return any.
#[test]
fn the_kept_token_prevents_a_deadlock() {
    for (receive_buffers, send_buffers) in [(16, 16), (3, 3), (5, 1)] {
        let ring = RingConfig { receive_buffers, send_buffers, ..RingConfig::default() };
        flood(&PscomConfig { ring, ..PscomConfig::with(Plugin::Rma) }).unwrap_or_else(|error| panic!("{error}"));
    }
    for receive_buffers in [3, 16] {
        let ring = RingConfig {
            receive_buffers,
            send_buffers: receive_buffers,
            keep_one: false,
            ..RingConfig::default()
        };
        match flood(&PscomConfig { ring, ..PscomConfig::with(Plugin::Rma) }) {
            Err(RunError::Deadlock(report)) => assert_eq!(report.waiting.len(), 2, "{report}"),
            other => panic!("without the rule the ranks block each other, but: {other:?}"),
        }
    }
}

/// Sends messages of many slots through the ring; returns how many arrived otherwise than they were sent.
fn torn(testing: Testing) -> u32 {
    let machine = ExtollConfig { testing, ..ExtollConfig::pair() };
    let pscom = PscomConfig { rendezvous: 0, ..PscomConfig::with(Plugin::Rma) };
    let torn = results(&machine, &pscom, |messenger| {
        let mut torn = 0;
        for message in 0..20 {
            let data = pattern(message, 40_000);
            if messenger.rank() == 0 {
                messenger.send(1, message, &data).unwrap();
            } else {
                torn += u32::from(messenger.receive(Some(0), Some(message)).unwrap().data != data);
            }
        }
        torn
    });
    torn.iter().sum()
}

/// Item 4: a slot whose tail is visible is there as a whole. An interface that writes the tail early is noticed.
#[test]
fn a_visible_tail_means_that_the_slot_is_whole() {
    assert_eq!(torn(Testing::default()), 0);
    let early = Testing { defects: Defects::of(Mutation::TailEarly) };
    let outcome = std::panic::catch_unwind(|| torn(early));
    assert!(outcome.is_err() || outcome.is_ok_and(|torn| torn > 0), "an early tail must be noticed");
}

#[test]
fn plugins_are_chosen_per_connection_and_reported() {
    let pscom =
        PscomConfig { pairs: vec![PairOverride { ranks: [2, 0], plugin: Plugin::Rma }], ..PscomConfig::default() };
    let found = results(&crossbar(3), &pscom, |messenger| {
        assert!(messenger.connections().is_empty(), "connections are made on first use");
        if messenger.rank() == 0 {
            (1..3).for_each(|rank| messenger.send(rank, 0, b"x").unwrap());
            (1..3).for_each(|rank| drop(messenger.receive(Some(rank), None).unwrap()));
        } else {
            messenger.receive(Some(0), None).unwrap();
            messenger.send(0, 0, b"y").unwrap();
        }
        messenger.connections()
    });
    assert_eq!(found[0], [(1, Plugin::Velo), (2, Plugin::Rma)]);
    assert_eq!((&found[1][..], &found[2][..]), (&[(0, Plugin::Velo)][..], &[(0, Plugin::Rma)][..]));
}

/// A stream of messages in both directions, each of which must arrive once and in order.
#[test]
fn faults_lose_double_and_mix_up_nothing() {
    for seed in 0..24 {
        let mut machine = crossbar(3);
        machine.faults.seed = seed;
        match seed % 4 {
            0 => machine.faults.loss = 0.03,
            1 => machine.faults.corruption = 0.03,
            2 => machine.faults.duplication = 0.05,
            _ => (machine.faults.loss, machine.faults.link_retry) = (0.1, true),
        }
        let plugin = Plugin::ALL[(seed / 4 % 2) as usize];
        results(&machine, &PscomConfig::with(plugin), move |messenger| {
            let (me, ranks) = (messenger.rank(), messenger.ranks());
            let (to, from) = ((me + 1) % ranks, (me + ranks - 1) % ranks);
            for index in 0..60 {
                let size = SIZES[index as usize % (SIZES.len() - 1)];
                let send = messenger.isend(to, 5, &pattern(index, size)).unwrap();
                let received = messenger.receive(Some(from), Some(5)).unwrap();
                assert!(received.data == pattern(index, size), "seed {seed}, message {index} of {size} bytes");
                messenger.wait_send(send).unwrap();
            }
        });
    }
}

#[test]
fn misuse_and_ended_ranks_are_errors() {
    let errors = results(&crossbar(2), &PscomConfig::default(), |messenger| {
        if messenger.rank() == 1 {
            messenger.send(0, 1, b"last words").unwrap();
            return Vec::new();
        }
        let long = vec![0; 8_388_609];
        let far = messenger.send(2, 0, &[]).unwrap_err();
        let too_long = messenger.send(1, 0, &long).unwrap_err();
        assert_eq!(
            messenger.receive(None, None).unwrap().data,
            b"last words",
            "what came before the end is there"
        );
        let nobody = messenger.receive(Some(1), Some(2)).unwrap_err();
        assert_eq!(messenger.receive(None, None).unwrap_err(), PscomError::Gone { rank: 1 });
        messenger.send(1, 0, b"to nobody").unwrap();
        vec![far.to_string(), too_long.to_string(), nobody.to_string()]
    });
    assert_eq!(
        errors[0],
        [
            "rank 2 is outside the job of 2 ranks",
            "a message of 8388609 bytes exceeds the limit of 8388608 bytes",
            "rank 1 has ended and sent no such message",
        ]
    );
    let bad =
        PscomConfig { ring: RingConfig { receive_buffers: 2, ..RingConfig::default() }, ..PscomConfig::default() };
    let error = play(&crossbar(2), &bad, |_| ()).unwrap_err();
    assert_eq!(error.to_string(), "pscom.ring.receive_buffers is 2, but must be from 3 to 4096");
}

#[test]
fn equal_runs_have_equal_hashes() {
    let run = |seed| {
        let mut machine = crossbar(3);
        (machine.faults.seed, machine.faults.loss) = (seed, 0.02);
        let report = play(&machine, &PscomConfig::with(Plugin::Rma), |messenger| {
            let (me, ranks) = (messenger.rank(), messenger.ranks());
            for index in 0..20 {
                let (to, from) = ((me + 1) % ranks, (me + 2) % ranks);
                messenger.send_receive((to, index), &pattern(index, 2000), (Some(from), Some(index))).unwrap();
            }
        });
        report.unwrap_or_else(|error| panic!("{error}")).hash
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

/// A sink for a rank that is only to learn of a loss.
struct Deaf;

impl Sink for Deaf {
    fn request(&mut self, _: Arrival<'_>, _: &mut dyn ReplyPath) {}
    fn reply(&mut self, _: Arrival<'_>) {}
    fn control(&mut self, _: Peer, _: &Words, _: Payload<'_>) {}
}

/// Rank 1 sends rank 0 what active messages do not have, and is stopped later: one loss, not two.
#[test]
fn a_faulty_peer_that_dies_counts_once() {
    let schedule = vec![Scheduled { at_ns: 300_000.0, event: FaultEvent::NodeStop { node: 1 } }];
    let faults = Faults { schedule, ..Faults::default() };
    let machine = ExtollConfig { faults, deadline_ns: 1e10, ..ExtollConfig::pair() };
    let report = extoll_sim::run(&machine, |nic| {
        let config = PscomConfig::default();
        if nic.rank() == 1 {
            let mut messenger = Messenger::new(&nic, &config);
            messenger.send(0, 0, b"not an active message").unwrap();
            // Until it is stopped.
            let _ = messenger.receive(Some(0), Some(9));
            return (Vec::new(), PeerStatus::Active);
        }
        let (mut transport, mut told) = (Pscom::new(&nic, &config), Vec::new());
        while transport.now() < Instant(400_000_000) {
            transport.poll(16, &mut Deaf);
            transport.idle(Some(transport.now() + Span::from_micros(1)), WaitReason::Message);
            if told.last() != Some(&transport.losses()) {
                told.push(transport.losses());
            }
        }
        let status = transport.status(Peer(1));
        transport.depart(Departure::Left);
        (told, status)
    });
    let faulty = PeerStatus::Lost(LossCause::Faulty);
    assert_eq!(report.unwrap().results[0], Some((vec![0, 1], faulty)));
}
