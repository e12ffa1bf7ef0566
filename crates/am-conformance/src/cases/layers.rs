//! Item 16, layers: two libraries that know nothing of each other share an endpoint with the program, and get on
//! inside whatever the program waits for.

use super::right;
use crate::world::{Verdict, World, ensure, equal};
use am_core::layer::{HasLayer, Outbox, Progress, ProgressResult, WorkQueue};
use am_core::{
    Address, Handlers, Instant, Payload, Peer, PendingReply, Rank, RegisterError, Reply, Request, SendError, Span,
    Token, Transport,
};

/// Questions that a rank has under way at once.
const ASKED: u64 = 4;

/// A layer whose messages visit all ranks in turn and come home. A message carries the rank that it comes home to,
/// the hops that are left, and the sum of the ranks visited.
struct Tours {
    visit: Request<(u32, u32, u64)>,
    /// At most one tour per rank is on its way.
    travelling: WorkQueue<(u32, u32, u64)>,
    home: Vec<u64>,
}

impl Tours {
    fn register<S: HasLayer<Self>>(handlers: &mut Handlers<S>, ranks: u32) -> Result<Self, RegisterError> {
        let mut layer = handlers.layer::<Self>("tours")?;
        let visit = layer
            .one_way("visit", |tours: &mut Self, _: Address, tour, _: Payload<'_>| tours.travelling.push(tour))?;
        layer.progress(Self::advance);
        Ok(Self { visit, travelling: WorkQueue::new(ranks as usize), home: Vec::new() })
    }

    fn advance(&mut self, outbox: &mut Outbox<'_>) -> ProgressResult {
        let (me, visit, home) = (outbox.rank(), self.visit, &mut self.home);
        let next = right(outbox.shape(), me);
        self.travelling.drain(|(origin, hops, sum)| {
            if *hops == 0 {
                assert_eq!(*origin, me.0, "a tour ends where it began");
                home.push(*sum);
                return Ok(());
            }
            outbox.try_request(next, visit, (*origin, *hops - 1, *sum + u64::from(me.0)))
        })
    }
}

/// A layer that answers questions, one for each call of its progress function.
struct Desk {
    ask: Request<u64>,
    answer: Reply<u64>,
    /// Only the left neighbour asks, as often as it may at once.
    asked: WorkQueue<(PendingReply, u64)>,
    answers: (u64, u64),
}

impl Desk {
    fn register<S: HasLayer<Self>>(handlers: &mut Handlers<S>) -> Result<Self, RegisterError> {
        let mut layer = handlers.layer::<Self>("desk")?;
        let answer = layer.reply("answer", |desk: &mut Self, _: Address, value: u64, _: Payload<'_>| {
            desk.answers = (desk.answers.0 + 1, desk.answers.1 + value);
        })?;
        let ask =
            layer.request_bounded("ask", 0, |desk: &mut Self, token: Token<'_>, value, _: Payload<'_>| {
                desk.asked.push((token.detach(), value))
            })?;
        layer.progress(Self::advance);
        Ok(Self { ask, answer, asked: WorkQueue::new(ASKED as usize), answers: (0, 0) })
    }

    fn advance(&mut self, outbox: &mut Outbox<'_>) -> ProgressResult {
        let Some((pending, value)) = self.asked.pop() else { return Ok(Progress::Idle) };
        // A requester that is gone needs no answer.
        let _ = outbox.answer(pending, self.answer, value * 2);
        Ok(Progress::Advanced)
    }
}

struct State {
    tours: Tours,
    desk: Desk,
    notes: u64,
}

impl HasLayer<Tours> for State {
    fn as_layer(&self) -> &Tours {
        &self.tours
    }

    fn as_layer_mut(&mut self) -> &mut Tours {
        &mut self.tours
    }
}

impl HasLayer<Desk> for State {
    fn as_layer(&self) -> &Desk {
        &self.desk
    }

    fn as_layer_mut(&mut self) -> &mut Desk {
        &mut self.desk
    }
}

/// Tours, questions and notes under way at once.
pub(super) fn together<T: Transport>(world: &World, transport: T) -> Verdict {
    let shape = transport.shape();
    let me = shape.address(transport.local_peer()).rank;
    let mut handlers = Handlers::<State>::new();
    let tours = Tours::register(&mut handlers, shape.ranks)?;
    let note =
        handlers.one_way("note", |state: &mut State, _: Address, (): (), _: Payload<'_>| state.notes += 1)?;
    let desk = Desk::register(&mut handlers)?;
    let (visit, ask) = (tours.visit, desk.ask);
    let mut endpoint = world.attach(transport, handlers, State { tours, desk, notes: 0 })?;
    let (rounds, next) = (u64::from(world.count(20, 500)), right(shape, me));
    let all_ranks: u64 = (0..u64::from(shape.ranks)).sum();
    let mut doubled = 0;
    for round in 0..rounds {
        // The first hop is the program's own; the layer makes the others.
        endpoint.request(next, visit, (me.0, shape.ranks - 1, u64::from(me.0)))?;
        for question in 0..ASKED {
            endpoint.request(next, ask, round * ASKED + question)?;
            endpoint.request(next, note, ())?;
            doubled += 2 * (round * ASKED + question);
        }
        match round % 4 {
            // No rank waits for its own layers here, and yet all of them get on.
            0 => endpoint.barrier()?,
            1 => endpoint.drain()?,
            2 => while endpoint.poll_or_idle(Span::from_micros(20))? != 0 {},
            _ => {}
        }
        endpoint.wait_until(|state| {
            state.tours.home.len() as u64 == round + 1 && state.desk.answers.0 == (round + 1) * ASKED
        })?;
    }
    endpoint.wait_until(|state| state.notes == rounds * ASKED)?;
    endpoint.barrier()?;
    let state = endpoint.finish()?;
    equal("tours", &state.tours.home, &vec![all_ranks; rounds as usize])?;
    equal("answers", state.desk.answers, (rounds * ASKED, doubled))?;
    equal("work left", (state.tours.travelling.len(), state.desk.asked.len()), (0, 0))
}

/// A layer that wants to be called at a time, and tells rank 0 when it was.
struct Alarm {
    rang: Request<()>,
    due: Option<Instant>,
    rings: u32,
    told: u32,
}

impl Alarm {
    fn register<S: HasLayer<Self>>(handlers: &mut Handlers<S>) -> Result<Self, RegisterError> {
        let mut layer = handlers.layer::<Self>("alarm")?;
        let rang =
            layer.one_way("rang", |alarm: &mut Self, _: Address, (): (), _: Payload<'_>| alarm.told += 1)?;
        layer.progress(Self::advance);
        Ok(Self { rang, due: None, rings: 0, told: 0 })
    }

    fn advance(&mut self, outbox: &mut Outbox<'_>) -> ProgressResult {
        let Some(due) = self.due else { return Ok(Progress::Idle) };
        if outbox.now() < due {
            outbox.wake_at(due);
            return Ok(Progress::Idle);
        }
        match outbox.try_request(Rank(0), self.rang, ()) {
            Err(SendError::WouldBlock { .. }) => return Ok(Progress::Blocked),
            sent => sent?,
        }
        self.due = None;
        self.rings += 1;
        Ok(Progress::Advanced)
    }
}

/// Alarms ring in each kind of wait, where no message would end the idling.
pub(super) fn alarms<T: Transport>(world: &World, transport: T) -> Verdict {
    let shape = transport.shape();
    let first = transport.local_peer() == Peer(0);
    let mut handlers = Handlers::<Alarm>::new();
    let alarm = Alarm::register(&mut handlers)?;
    let mut endpoint = world.attach(transport, handlers, alarm)?;
    for round in 1..=6 {
        endpoint.barrier()?;
        let due = endpoint.now() + Span::from_micros(300);
        endpoint.layer_mut::<Alarm>().due = Some(due);
        match round % 3 {
            0 => endpoint.wait_until(|alarm| alarm.rings == round)?,
            1 => {
                while endpoint.state().rings < round {
                    endpoint.poll_or_idle(Span::from_secs(30))?;
                }
            }
            // The others wait for rank 0, which waits for their alarms.
            _ => {}
        }
        if first {
            endpoint.wait_until(|alarm| alarm.told == round * shape.peers())?;
        }
        endpoint.barrier()?;
        equal("alarms that rang", endpoint.state().rings, round)?;
        ensure(endpoint.now() >= due, || "an alarm rang early".into())?;
    }
    endpoint.finish()?;
    Ok(())
}
