//! A run lets ranks go on late and delivers messages late where nobody can tell. Nobody can: every rank's clock
//! shows the same at every step as in a run that does everything at once. (But for ties: of events of one moment
//! the first is the one that was foreseen first, and that may be another.)

use am_core::{Address, Endpoint, Handlers, Payload, PollError, Rank, Span, Token, WaitError};
use fabric_sim::{FaultEvent, Faults, Report, Scheduled, WaitFor};
use portals_sim::conduit::{self, Conduit, ConduitConfig, FlowControl};
use portals_sim::nic::HostMemory;
use portals_sim::nic::p3::{Ack, Criteria, EventKind, Md, Options, Position, Unlink};
use portals_sim::{AdversarialTiming, Nic, PortalsConfig, Testing};
use proptest::prelude::*;

/// What a rank has seen: after each step its time, what it was asked and what it was answered.
type Seen = Vec<(u64, u64, u64)>;

/// Bytes of the longest Long payload, and one more.
const LONG: u64 = 5000;
const STEPS: u32 = 60;

#[derive(Default)]
struct Sums {
    asked: u64,
    answered: u64,
    answers: u64,
}

/// Random traffic: requests of all categories, computing, polling, waiting, and at the end everything is drained.
/// A rank that is told of a loss acknowledges it and goes on.
fn traffic(transport: Conduit<'_>, steps: u32, burst: u32) -> Seen {
    let mut handlers = Handlers::<Sums>::new();
    let back = handlers.reply("back", |sums: &mut Sums, _: Address, word: u64, payload: Payload<'_>| {
        sums.answered = sums.answered.rotate_left(5) ^ word ^ payload.len() as u64;
        sums.answers += 1;
    });
    let back = back.unwrap();
    let ask =
        handlers.request("ask", move |sums: &mut Sums, token: Token<'_>, word: u64, payload: Payload<'_>| {
            sums.asked = sums.asked.rotate_left(7)
                ^ word
                ^ payload.to_vec().iter().map(|byte| u64::from(*byte)).sum::<u64>();
            match word % 3 {
                // Who asked may be lost.
                0 => drop(token.reply(back, word)),
                1 => drop(token.reply_medium(back, word, &[3; 100])),
                _ => {}
            }
        });
    let ask = ask.unwrap();
    let tell = handlers.one_way("tell", |sums: &mut Sums, _: Address, word: u64, _: Payload<'_>| {
        sums.asked = sums.asked.rotate_left(3) ^ word;
    });
    let tell = tell.unwrap();
    let mut endpoint = Endpoint::attach(transport, handlers, Sums::default()).unwrap();
    let (me, ranks) = (endpoint.rank().0, endpoint.ranks());
    let (mut seen, mut lost) = (Seen::new(), 0);
    let nic = endpoint.transport().nic().clone();
    let draw = |below| nic.context().random() % below;
    for step in 0..steps {
        let to = Rank(draw(u64::from(ranks)) as u32);
        let word = u64::from(me) << 32 | u64::from(step);
        let outcome = match draw(8) {
            0 => endpoint.request_medium(to, ask, word, &vec![step as u8; draw(600) as usize]).map_err(|_| ()),
            1 => {
                // Each in a place of its own: what a handler reads is what was sent.
                let at = u64::from(me * steps + step) * LONG;
                endpoint.request_long(to, ask, word, &vec![step as u8; draw(LONG) as usize], at).map_err(|_| ())
            }
            2 => {
                endpoint.charge(Span(draw(30_000_000)));
                Ok(())
            }
            3 => {
                let goal = endpoint.state().answers + draw(3);
                let waited = endpoint.wait_until_for(Span(40_000_000), |sums| sums.answers >= goal);
                match waited {
                    Err(WaitError::Poll(_)) => Err(()),
                    _ => Ok(()),
                }
            }
            4 => (0..burst).try_for_each(|_| endpoint.request(to, tell, word).map_err(|_| ())),
            5 => match endpoint.poll() {
                Err(PollError::PeerLost { rank, .. }) => {
                    endpoint.acknowledge_loss(rank);
                    lost += 1;
                    Ok(())
                }
                _ => Ok(()),
            },
            _ => endpoint.request(to, ask, word).map_err(|_| ()),
        };
        let sums = endpoint.state();
        let failed = u64::from(outcome.is_err()) << 40 | lost << 41;
        seen.push((endpoint.transport().nic().now().0, sums.asked ^ failed, sums.answered));
    }
    let _ = endpoint.drain();
    let sums = endpoint.state();
    seen.push((endpoint.transport().nic().now().0, sums.asked, sums.answered));
    let _ = endpoint.barrier();
    seen.push((endpoint.transport().nic().now().0, endpoint.state().asked, endpoint.state().answered));
    drop(endpoint.finish());
    seen
}

fn run(machine: &PortalsConfig, config: &ConduitConfig, eager: bool, burst: u32) -> Report<Seen> {
    let testing = Testing { no_lookahead: eager, ..Testing::default() };
    let machine = PortalsConfig { testing, ..machine.clone() };
    let segment = u64::from(machine.ranks * STEPS) * LONG;
    let config = ConduitConfig { segment, ..config.clone() };
    conduit::run(&machine, &config, move |transport| traffic(transport, STEPS, burst)).unwrap()
}

/// Runs it both ways, and compares what happens up to a time; returns the events of each. (When a departure is
/// noticed depends, by less than an event takes, on when a rank has last looked at the machine.)
fn compare(machine: &PortalsConfig, config: &ConduitConfig, burst: u32, until: u64) -> [u64; 2] {
    let [eager, late] = [true, false].map(|eager| run(machine, config, eager, burst));
    for (rank, (one, other)) in eager.results.iter().zip(&late.results).enumerate() {
        let (one, other) = (one.as_deref().unwrap_or_default(), other.as_deref().unwrap_or_default());
        let differs = one.iter().zip(other).position(|(one, other)| one != other && one.0.min(other.0) <= until);
        if let Some(step) = differs {
            panic!("rank {rank} at step {step}: {:?} at once, {:?} late", one[step], other[step]);
        }
        assert_eq!(one.len(), other.len());
    }
    [eager.events, late.events]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn nobody_can_tell_what_a_run_does_late(
        ranks in 2_u32..12,
        bank in any::<bool>(),
        chunks in 4_u32..40,
        burst in 1_u32..30,
        jitter in prop::sample::select(vec![0.0, 700.0]),
        seed in any::<u64>(),
    ) {
        let mut machine = portals_sim::xt4(ranks);
        // No node is as fast as another: what happens at one moment may happen in either order.
        let slow = |node| FaultEvent::NodeSlow { node, factor: 1.0 + f64::from(node) / 83.0 };
        let schedule = (0..ranks).map(|node| Scheduled { at_ns: 0.0, event: slow(node) }).collect();
        machine.faults = Faults { seed, schedule, ..Faults::default() };
        machine.adversary = AdversarialTiming { jitter_ns: jitter, late_read: false };
        let flow = if bank { FlowControl::Bank } else { FlowControl::Static };
        let config = ConduitConfig { send_chunks: chunks, reply_slots: 4, flow, ..ConduitConfig::tuned() };
        compare(&machine, &config, burst, u64::MAX);
    }
}

/// Slow nodes, fast ones and one that stops: what a rank did before is not done as if it came after.
#[test]
fn nobody_can_tell_when_nodes_change() {
    let mut machine = portals_sim::xt4(8);
    let at = |at_ns: f64, event| Scheduled { at_ns, event };
    machine.faults = Faults {
        schedule: vec![
            at(150_000.0, FaultEvent::NodeSlow { node: 1, factor: 3.0 }),
            at(300_000.0, FaultEvent::NodeSlow { node: 1, factor: 1.0 }),
            at(333_000.0, FaultEvent::NodeStop { node: 5 }),
        ],
        ..Faults::default()
    };
    for burst in [1, 20] {
        let config = ConduitConfig { send_chunks: 8, reply_slots: 4, ..ConduitConfig::default() };
        compare(&machine, &config, burst, 333_000_000);
    }
}

/// It is worth it: with a backlog at every interface a run has fewer turns of ranks.
#[test]
fn a_backlog_saves_turns() {
    let [eager, late] = compare(&portals_sim::xt4(27), &ConduitConfig::tuned(), 40, u64::MAX);
    assert!(late * 10 < eager * 9, "{late} events late, {eager} at once");
}

/// What a process of its own program has seen of each event: when, of what kind, of whom, at which descriptor.
type Events = Vec<(u64, EventKind, u32, u64)>;

/// Random puts, with and without acknowledgement, and gets, straight on Portals 3.3. A match entry comes and goes
/// before the one that takes everything, so that it matters which messages have come before.
fn operations(nic: &Nic<'_>, steps: u32) -> Events {
    let (p3, memory) = (nic.p3(), HostMemory::new(1 << 16));
    p3.init().unwrap();
    let (eq, other) = (p3.eq_alloc(4096).unwrap(), p3.eq_alloc(4096).unwrap());
    let quiet = Options::EVENT_START_DISABLE;
    let open = quiet | Options::OP_PUT | Options::OP_GET | Options::MANAGE_REMOTE;
    let md = |eq, user_ptr, options| Md { eq: Some(eq), user_ptr, ..Md::new(&memory, options) };
    let entry = |position, target: &Md| {
        let me = p3.me_attach(3, Criteria::bits(0, u64::MAX), Unlink::Retain, position).unwrap();
        p3.md_attach(me, target, Unlink::Retain).unwrap();
        me
    };
    entry(Position::After, &md(eq, 1, open));
    let source = p3.md_bind(&md(eq, 2, quiet), Unlink::Retain).unwrap();
    nic.launched();
    let (mut seen, mut before) = (Events::new(), None);
    let draw = |below| nic.context().random() % below;
    let take = |queue, seen: &mut Events| {
        while let Ok(event) = p3.eq_get(queue) {
            seen.push((nic.now().0, event.kind, event.initiator.nid, event.user_ptr));
        }
    };
    for _ in 0..steps {
        let to = nic.id(draw(u64::from(nic.ranks())) as u32).unwrap();
        match draw(9) {
            0..4 => {
                let ack = if draw(3) == 0 { Ack::Request } else { Ack::None };
                for _ in 0..draw(12) {
                    p3.put(source, 0, draw(400) as u32, ack, to, 3, draw(8), draw(1000), 0).unwrap();
                }
            }
            4 => p3.get(source, 2000, draw(400) as u32, to, 3, draw(8), draw(1000)).unwrap(),
            // The second queue is of the entry that comes and goes.
            5 => match before.take() {
                None => before = Some(entry(Position::Before, &md(other, 3, open))),
                Some(me) => p3.me_unlink(me).unwrap(),
            },
            6 => nic.charge(Span(draw(20_000_000))),
            7 => take(other, &mut seen),
            _ => {
                let until = nic.now() + Span(draw(30_000_000));
                p3.idle(&[eq], Some(until), WaitFor::Named("an event")).unwrap();
                take(eq, &mut seen);
            }
        }
        seen.push((nic.now().0, EventKind::SendStart, 0, 0));
    }
    seen
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn nobody_can_tell_below_the_conduit(ranks in 2_u32..10, slots in 4_u32..200, seed in any::<u64>()) {
        let [eager, late] = [true, false].map(|eager| {
            let mut machine = portals_sim::xt4(ranks);
            let slow = |node| FaultEvent::NodeSlow { node, factor: 1.0 + f64::from(node) / 83.0 };
            let schedule = (0..ranks).map(|node| Scheduled { at_ns: 0.0, event: slow(node) }).collect();
            machine.faults = Faults { seed, schedule, ..Faults::default() };
            machine.parameters.nic.dma_slots = slots;
            machine.testing.no_lookahead = eager;
            portals_sim::run(&machine, |nic| operations(&nic, 80)).unwrap().results
        });
        for (rank, (one, other)) in eager.iter().zip(&late).enumerate() {
            let (one, other) = (one.as_deref().unwrap_or_default(), other.as_deref().unwrap_or_default());
            let differs = one.iter().zip(other).position(|(one, other)| one != other);
            prop_assert_eq!(differs.map(|at| (rank, at, one[at], other[at])), None);
            prop_assert_eq!(one.len(), other.len());
        }
    }
}
