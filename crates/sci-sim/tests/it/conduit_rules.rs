//! What must always hold of the conduit, and for each rule a conduit or an interface that breaks it: the same
//! program then fails, in the way that the test names. That the exist flag is cleared before the search is shown
//! with loom (`src/conduit/loom_flags.rs`).

use crate::conduit_support::{attach, machine, pattern, play, with_error};
use am_core::transport::{Completion, Departure, Landing, Membership, Remote, Ticket, Transport, Waiting};
use am_core::{Address, Endpoint, Handlers, LossCause, Payload, Peer, PeerStatus, Rank, Span};
use fabric_sim::{FaultEvent, Faults, Scheduled};
use sci_sim::SciConfig;
use sci_sim::conduit::{self, ConduitConfig, MediumMethod, Mutation};
use sci_sim::nic::mutation::{self, Defects};
use sci_sim::nic::{PlannedStatus, Sisci};

/// The conduit without patience: flags are looked at only when they are announced.
fn impatient() -> ConduitConfig {
    ConduitConfig { full_scan_polls: 0, ..ConduitConfig::default() }
}

fn mutated(mutation: Mutation) -> ConduitConfig {
    ConduitConfig { mutation: Some(mutation), ..impatient() }
}

#[track_caller]
fn breaks(machine: &SciConfig, conduit: &ConduitConfig, expected: &[&str]) {
    match play(machine, conduit) {
        Ok(_) => panic!("nothing was noticed"),
        Err(error) => assert!(expected.iter().any(|part| error.contains(part)), "{error}"),
    }
}

fn all_configurations() -> [ConduitConfig; 6] {
    let one_copy = ConduitConfig { medium: MediumMethod::OneCopy, ..ConduitConfig::default() };
    let smallest = ConduitConfig { slot: 1024, ..ConduitConfig::smallest() };
    let (paper, mpi) = (ConduitConfig::paper(), ConduitConfig::mpi());
    [ConduitConfig::default(), paper, ConduitConfig::tuned(), mpi, one_copy, smallest]
}

#[test]
fn every_configuration_carries_every_kind_of_message() {
    for conduit in all_configurations() {
        play(&machine(2), &conduit).unwrap_or_else(|error| panic!("{conduit:?}: {error}"));
        let without = ConduitConfig { full_scan_polls: 0, ..conduit.clone() };
        play(&machine(2), &without).unwrap_or_else(|error| panic!("{without:?}: {error}"));
    }
}

// 1. Data checked -> MRF -> MEF.

#[test]
fn a_ready_flag_before_the_data_is_noticed() {
    let expected = ["malformed frame", "payload", "handlers that ran", "deadlock"];
    breaks(&machine(2), &mutated(Mutation::ReadyBeforeData), &expected);
}

#[test]
fn a_ready_flag_before_the_check_is_noticed() {
    let lost = |line| with_error(line, PlannedStatus::Retriable, false);
    let noticed = (0..60).any(|line| play(&lost(line), &mutated(Mutation::ReadyBeforeCheck)).is_err());
    assert!(noticed, "lost data were announced, and nothing was noticed");
}

#[test]
fn an_exist_flag_before_the_ready_flag_is_noticed() {
    breaks(&machine(2), &mutated(Mutation::ExistBeforeReady), &["deadlock"]);
    // Patience makes up for it, at the price of time: so flags that overtake each other on the way do no lasting
    // harm.
    let patient = ConduitConfig { full_scan_polls: 1024, ..mutated(Mutation::ExistBeforeReady) };
    let counts = play(&machine(2), &patient).unwrap();
    assert!(counts.iter().any(|(counts, _)| counts.full_scans > 0));
}

#[test]
fn an_interface_that_checks_nothing_is_noticed() {
    let blind = |line| {
        let mut machine = with_error(line, PlannedStatus::Retriable, false);
        machine.testing.defects = Defects::of(mutation::Mutation::BlindCheck);
        machine
    };
    let noticed = (0..60).any(|line| play(&blind(line), &impatient()).is_err());
    assert!(noticed, "lost data were announced, and nothing was noticed");
}

// 3. A single writer for each slot; at most two requests of a pair outstanding; a reply never waits.

#[test]
fn a_pair_has_two_requests_outstanding_at_most() {
    for (conduit, most) in [(ConduitConfig::paper(), 2), (ConduitConfig::tuned(), 8)] {
        let report = conduit::run(&machine(3), &conduit, |transport| {
            let (mut endpoint, table) = attach(transport).unwrap();
            let mut accepted = 0;
            if endpoint.rank() == Rank(0) {
                while endpoint.try_request(Rank(1), table.ask, (accepted, 0)).is_ok() {
                    accepted += 1;
                }
                // Another peer has slots of its own.
                endpoint.try_request(Rank(2), table.ask, (0, 0)).unwrap();
            }
            endpoint.finish().unwrap();
            accepted
        });
        assert_eq!(report.unwrap().results[0], Some(most));
    }
}

#[test]
fn forgetting_which_slots_are_taken_is_noticed() {
    let expected = ["malformed frame", "payload", "handlers that ran", "deadlock", "replies"];
    breaks(&machine(2), &mutated(Mutation::ForgetLocations), &expected);
}

// 4. and 5. Errors at every store: each message runs exactly once, with the bytes that were sent.

/// Plays the exchange with an error in every so-many-th line that rank 0 stores; returns how many runs that were,
/// and how often something was repeated at once, and anew.
fn at_every_store(conduit: &ConduitConfig, status: PlannedStatus, every: usize) -> (u64, u64, u64) {
    let (mut runs, mut retries, mut restarts) = (0, 0, 0);
    let lines = play(&machine(2), conduit).unwrap()[0].1.lines;
    assert!(lines > 100, "{lines} lines are stored");
    for line in (0..lines).step_by(every) {
        for lands in [false, true] {
            runs += 1;
            let counts = play(&with_error(line, status, lands), conduit);
            let counts =
                counts.unwrap_or_else(|error| panic!("{status:?} in line {line}, lands: {lands}: {error}"));
            retries += counts.iter().map(|(counts, _)| counts.retries).sum::<u64>();
            restarts += counts.iter().map(|(counts, _)| counts.restarts).sum::<u64>();
        }
    }
    (runs, retries, restarts)
}

#[test]
fn a_passing_error_at_every_store_does_no_harm() {
    let (runs, retries, restarts) = at_every_store(&ConduitConfig::default(), PlannedStatus::Retriable, 1);
    // A transfer by DMA is always begun anew; the greeting, a line, is not counted.
    assert_eq!((retries + restarts + 4, restarts < 40), (runs, true), "{retries} retries, {restarts} restarts");
    at_every_store(&ConduitConfig::tuned(), PlannedStatus::Retriable, 7);
}

#[test]
fn a_lasting_error_at_every_store_is_a_full_resend() {
    for status in [PlannedStatus::NotRetriable, PlannedStatus::Pending] {
        let (runs, _, restarts) = at_every_store(&ConduitConfig::default(), status, 3);
        assert!(restarts * 10 >= runs * 9, "{restarts} restarts in {runs} runs");
        at_every_store(&ConduitConfig::tuned(), status, 11);
    }
}

#[test]
fn sending_only_a_part_again_is_noticed() {
    let lost = |line| with_error(line, PlannedStatus::NotRetriable, false);
    let noticed = (0..60).any(|line| play(&lost(line), &mutated(Mutation::PartialResend)).is_err());
    assert!(noticed, "data were sent again in part, and nothing was noticed");
}

/// A single message, with nothing before or behind it that would lead its receiver to look. Returns how often
/// ranks looked without having been told to, and the lines that rank 0 stored.
///
/// # Errors
/// How the run ended instead.
fn lone_message(machine: &SciConfig, conduit: &ConduitConfig) -> Result<(u64, u64), String> {
    let outcome = conduit::run(machine, conduit, |transport| {
        let (mut endpoint, table) = attach(transport).unwrap();
        // Flags of the attaching that are late are no business of this message.
        let quiet = endpoint.wait_until_for(Span::from_micros(200), |_| false);
        assert!(quiet.is_err());
        let looks = endpoint.transport().counts().full_scans;
        if endpoint.rank() == Rank(0) {
            endpoint.request(Rank(1), table.note, (0, 0)).unwrap();
        } else {
            endpoint.wait_until(|seen| seen.runs == [0]).unwrap();
        }
        let looks = endpoint.transport().counts().full_scans - looks;
        let lines = endpoint.transport().nic().counters().lines;
        endpoint.finish().unwrap();
        (looks, lines)
    });
    let results = outcome.map_err(|error| error.to_string())?.results;
    Ok((results[1].unwrap().0, results[0].unwrap().1))
}

#[test]
fn lost_flags_are_the_hazard_of_the_published_code() {
    let (paper, checked) = (ConduitConfig::paper(), impatient());
    let (looks, lines) = lone_message(&machine(2), &paper).unwrap();
    let (mut never, mut late) = (0, 0);
    // The last two lines are the message's flags, before them is its header.
    for line in lines - 3..lines {
        let lost = with_error(line, PlannedStatus::Retriable, false);
        match lone_message(&lost, &paper) {
            Ok((found, _)) => late += u32::from(found > looks),
            Err(error) => {
                assert!(error.contains("have not ended") || error.contains("deadlock"), "{error}");
                never += 1;
            }
        }
    }
    assert_eq!((never, late), (1, 1), "a lost ready flag is never seen, a lost exist flag by patience");
    // With flags that are numbered and checked, no line is lost whatever it carries.
    let (_, lines) = lone_message(&machine(2), &checked).unwrap();
    for line in 0..lines {
        let lost = with_error(line, PlannedStatus::Retriable, false);
        lone_message(&lost, &checked).unwrap_or_else(|error| panic!("line {line}: {error}"));
    }
}

#[test]
fn a_node_that_stops_is_a_clean_error() {
    let mut machine = machine(3);
    let event = FaultEvent::NodeStop { node: 2 };
    machine.faults.schedule = vec![Scheduled { at_ns: 1_500_000.0, event }];
    let report = conduit::run(&machine, &ConduitConfig::default(), |transport| {
        let (mut endpoint, table) = attach(transport).unwrap();
        let to = Rank((endpoint.rank().0 + 1) % 3);
        loop {
            if let Err(error) = endpoint.request_medium(to, table.note, (0, 944), &pattern(0, 944)) {
                let lost = endpoint.lost();
                endpoint.leave();
                return (error.to_string(), lost);
            }
        }
    });
    let results = report.unwrap().results;
    assert!(results[2].is_none(), "rank 2 was running when its node stopped");
    assert!(results.iter().flatten().any(|(_, lost)| lost.contains(&(Rank(2), LossCause::Died))), "{results:?}");
    for (error, lost) in results.into_iter().flatten() {
        // Who follows another that has left is told of that one.
        assert!(!lost.is_empty() && error.contains("rank"), "{error}, {lost:?}");
    }
}

/// What is lost last of a message is the answer that its flags have arrived: its receiver may have gone by then.
#[test]
fn a_lost_answer_of_one_that_has_finished_is_no_loss() {
    for seed in 0..60 {
        let mut machine = machine(3);
        (machine.faults.seed, machine.faults.loss) = (seed, 0.3);
        let report = conduit::run(&machine, &ConduitConfig::default(), move |transport| {
            let (mut endpoint, _) = attach(transport).unwrap();
            endpoint.barrier().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            endpoint.finish().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        });
        report.unwrap();
    }
}

// 6. No remote read.

#[test]
fn nobody_reads_remote_memory() {
    for conduit in all_configurations() {
        for (counts, counters) in play(&machine(2), &conduit).unwrap() {
            assert_eq!((counts.remote_reads, counters.remote_reads), (0, 0), "{conduit:?}");
        }
    }
    let reading = ConduitConfig { mutation: Some(Mutation::RemotePoll), ..ConduitConfig::default() };
    let reads = play(&machine(2), &reading).unwrap().iter().map(|(counts, _)| counts.remote_reads).sum::<u64>();
    assert!(reads > 0, "reads of remote memory are counted");
}

/// A get of a line is a read of the lines that it lies in; a longer one is a message and none.
#[test]
fn gets_read_remote_memory() {
    let mut machine = machine(2);
    machine.faults = Faults { seed: 3, loss: 0.05, corruption: 0.05, ..machine.faults };
    let report = conduit::run(&machine, &ConduitConfig::default(), |mut transport| {
        let (me, bytes) = (transport.local_peer(), pattern(0, 200));
        transport.segment().write(0, &bytes).unwrap();
        let mut right = 0;
        // Both have written what is read then: nothing has to be told.
        transport.charge(Span::from_micros(50));
        for round in 0..if me == Peer(0) { 50 } else { 0 } {
            let (native, peer) = transport.native(Peer(1)).unwrap();
            let longest = native.capability(peer).longest_get;
            assert_eq!(longest, 64);
            let (at, len) = (round % 10 * 8, longest - round % 3);
            let mut came = |completion: Completion<'_>| {
                let bytes = completion.outcome.map(|brought| brought.bytes.to_vec());
                right += u32::from(bytes == Ok(pattern(0, 200)[at as usize..(at + len) as usize].to_vec()));
            };
            native
                .get(Remote { peer, at, ticket: Ticket { id: 1, part: 0 } }, len, Landing::Report, &mut came)
                .unwrap();
        }
        let reads = transport.counts().remote_reads;
        while me == Peer(1) && transport.status(Peer(0)) == PeerStatus::Active {
            transport.charge(Span::from_micros(5));
        }
        transport.depart(Departure::Left);
        (right, reads)
    });
    let results = report.unwrap().results;
    let (right, reads) = results[0].unwrap();
    assert_eq!((right, results[1].unwrap().1), (50, 0));
    // Most lie in two lines, and some are asked for again.
    assert!((80..160).contains(&reads), "{reads}");
}

// 7. Alignment of DMA.

/// Long messages of two to four lines that begin and end at every offset in a line, and what lies around them.
/// Returns the transfers of the DMA engine.
///
/// # Errors
/// What is wrong first.
fn every_alignment(machine: &SciConfig) -> Result<u64, String> {
    const BASE: u64 = 128;
    let conduit = ConduitConfig { dma_from: 0, ..ConduitConfig::default() };
    let length = |begin: u32, end: u32| (128 - begin + end) as usize;
    let outcome = conduit::run(machine, &conduit, move |transport| {
        let mut handlers = Handlers::<Vec<String>>::new();
        let check = move |wrong: &mut Vec<String>, _: Address, (begin, end): (u32, u32), payload: Payload<'_>| {
            if payload.to_vec() != pattern(begin * 64 + end, length(begin, end)) {
                wrong.push(format!("from {begin} to {end}: other bytes than were sent"));
            }
        };
        let place = handlers.one_way("place", check).unwrap();
        let mut endpoint = Endpoint::attach(transport, handlers, Vec::new()).unwrap();
        if endpoint.rank() == Rank(0) {
            for (begin, end) in (0..64).flat_map(|begin| (0..64).map(move |end| (begin, end))) {
                let bytes = pattern(begin * 64 + end, length(begin, end));
                let at = BASE + u64::from(begin);
                endpoint.request_long(Rank(1), place, (begin, end), &bytes, at).unwrap();
                // All go to the same place.
                endpoint.drain().unwrap();
            }
        }
        endpoint.barrier().unwrap();
        let segment = endpoint.segment().clone();
        let mut around = [0; 128];
        let mut wrong = endpoint.state().clone();
        for at in [0, BASE + 3 * 64] {
            segment.read(at, &mut around).unwrap();
            if around != [0; 128] {
                wrong.push(format!("bytes from {at} on were written"));
            }
        }
        let transfers = endpoint.transport().nic().counters().dma_transfers;
        endpoint.finish().unwrap();
        (wrong, transfers)
    });
    let results = outcome.map_err(|error| error.to_string())?.results;
    match results.iter().flatten().find_map(|(wrong, _)| wrong.first()) {
        Some(wrong) => Err(wrong.clone()),
        None => Ok(results.into_iter().flatten().map(|(_, transfers)| transfers).sum()),
    }
}

#[test]
fn long_payloads_begin_and_end_anywhere() {
    assert_eq!(every_alignment(&machine(2)), Ok(64 * 64));
}

// 8. The interface's limit.

#[test]
fn a_payload_segment_too_large_is_refused() {
    let conduit = ConduitConfig { segment: (1 << 20) + 8, ..ConduitConfig::default() };
    let error = conduit::run(&machine(2), &conduit, |_| ()).unwrap_err().to_string();
    assert!(error.contains("1048584 bytes cannot be exported: NOSPC"), "{error}");
    let mut patched = machine(2);
    patched.parameters.segment_bytes = 8 << 20;
    conduit::run(&patched, &conduit, |_| ()).unwrap();
}

#[test]
fn numbers_of_flags_begin_anew_without_losing_a_message() {
    for conduit in all_configurations() {
        let report = conduit::run(&machine(2), &conduit, |transport| {
            let (mut endpoint, table) = attach(transport).unwrap();
            if endpoint.rank() == Rank(0) {
                (0..100).for_each(|number| endpoint.request(Rank(1), table.note, (number, 0)).unwrap());
            }
            endpoint.barrier().unwrap();
            endpoint.finish().unwrap().runs.len()
        });
        assert_eq!(report.unwrap().results[1], Some(100));
    }
}

#[test]
fn equal_runs_are_equal_to_the_last_event() {
    let run = |seed| {
        let mut machine = machine(3);
        (machine.errors.seed, machine.errors.retriable) = (seed, 0.05);
        let report = conduit::run(&machine, &ConduitConfig::default(), |transport| {
            let (mut endpoint, table) = attach(transport).unwrap();
            (0..20).for_each(|number| endpoint.request(Rank(number % 3), table.note, (number, 0)).unwrap());
            endpoint.finish().unwrap();
        });
        report.unwrap().hash
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}
