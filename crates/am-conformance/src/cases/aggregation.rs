//! Item 20, aggregation: items of several aggregators by all routes, answers, the end that ranks agree on, and a
//! rank that is lost before it.

use super::last;
use crate::case::unwind;
use crate::world::{Failure, Verdict, World, ensure, equal};
use am_core::{Endpoint, Handlers, LossCause, Rank, Request, Span, Transport};
use am_pgas::aggregate::{Aggregate, AggregateError, Aggregator, AggregatorConfig, Emitter, Route, SendPolicy};
use am_pgas::pointer::Element;
use am_pgas::{Pgas, pgas_state};

/// Ways and disciplines of the aggregators, with the bytes of their messages.
const WAYS: [(&str, Route, SendPolicy, usize); 4] = [
    ("direct", Route::Direct, SendPolicy::Deterministic, 100),
    ("matrix", Route::Matrix, SendPolicy::Usual, 200),
    ("tensor", Route::Tensor, SendPolicy::Steady(Span::from_micros(10)), 120),
    ("aged", Route::Matrix, SendPolicy::Aged(Span::from_micros(10)), 160),
];

/// What has come from a rank by one way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Heard {
    items: u32,
    sum: u64,
    /// Whether the items came in the order in which they were pushed.
    ordered: bool,
}

struct State {
    pgas: Pgas,
    heard: [Vec<Heard>; WAYS.len()],
    answers: (u64, u64),
    /// Ranks that have attached.
    ready: u32,
}
pgas_state!(State, pgas);

struct Table {
    ways: Vec<Aggregator<u32>>,
    /// A question and what it is about.
    ask: Aggregator<[u32; 3]>,
    answer: Aggregator<u64>,
    ready: Request<()>,
}

fn attach<T: Transport>(world: &World, transport: T) -> Result<(Endpoint<T, State>, Table), Failure> {
    let joining = Endpoint::builder(transport).timeout(Some(world.patience));
    let ranks = joining.shape().ranks as usize;
    let mut handlers = Handlers::<State>::new();
    let mut pgas = Pgas::register(&mut handlers)?;
    let mut ways = Vec::new();
    for (index, (name, route, send_policy, bytes)) in WAYS.into_iter().enumerate() {
        let config = AggregatorConfig::new().route(route).send_policy(send_policy).message_bytes(bytes).window(2);
        let hear = move |state: &mut State, from: Rank, items: &[u32]| {
            for item in items {
                let heard = &mut state.heard[index][from.0 as usize];
                heard.ordered &= *item == heard.items;
                heard.items += 1;
                heard.sum += u64::from(*item);
            }
        };
        ways.push(Aggregator::register(&joining, &mut pgas, &mut handlers, name, config, hear)?);
    }
    let config = AggregatorConfig::new().message_bytes(96).window(1).route(Route::Matrix);
    let answer = |state: &mut State, answers: &[u64]| {
        state.answers = (state.answers.0 + answers.len() as u64, state.answers.1 + answers.iter().sum::<u64>());
    };
    let answer = Aggregator::register_anonymous(&joining, &mut pgas, &mut handlers, "answer", config, answer)?;
    let multiply = |_: &mut State, from: Rank, questions: &[[u32; 3]], emitter: &mut Emitter<'_, u64>| {
        for [a, b, _] in questions {
            emitter.push(from, u64::from(*a) * u64::from(*b)).expect("one answer to a question");
        }
    };
    let ask = Aggregator::register_answering(&joining, &mut pgas, &mut handlers, "ask", config, answer, multiply)?;
    let ready = handlers.one_way("ready", |state: &mut State, _, (), _| state.ready += 1)?;
    let fresh = Heard { ordered: true, ..Heard::default() };
    let heard = std::array::from_fn(|_| vec![fresh; ranks]);
    let endpoint = joining.attach(handlers, State { pgas, heard, answers: (0, 0), ready: 0 })?;
    Ok((endpoint, Table { ways, ask, answer, ready }))
}

/// The destinations of a rank's items of one time.
fn destinations(world: &World, ranks: u32, rank: u32, time: u32) -> impl Iterator<Item = u32> {
    let mut random = world.random(u64::from(time) << 32 | u64::from(rank));
    let count = random.below(world.count(40, 2000).into());
    // Sometimes all go to one rank.
    let one = (random.below(4) == 0).then(|| random.below(ranks.into()) as u32);
    (0..count).map(move |_| one.unwrap_or_else(|| random.below(ranks.into()) as u32))
}

fn nothing_held<T: Transport, I: Element>(endpoint: &Endpoint<T, State>, aggregator: Aggregator<I>) -> Verdict {
    let held = endpoint.usage(aggregator)?;
    equal("items held or lost at the end", (held.held, held.passing, held.discarded), (0, 0, 0))
}

/// Random items by every way and questions among them, several times.
pub(super) fn all_ways<T: Transport>(world: &World, transport: T) -> Verdict {
    let (mut endpoint, table) = attach(world, transport)?;
    let (me, ranks) = (endpoint.rank().0, endpoint.ranks());
    let in_order = (0..ranks).all(|rank| endpoint.limits(Rank(rank)).is_some_and(|limits| limits.ordered));
    let mut pushed = vec![[0u32; WAYS.len()]; ranks as usize];
    let mut due: [_; WAYS.len()] = std::array::from_fn(|_| vec![0u32; ranks as usize]);
    let mut answers = (0, 0);
    for time in 0..world.count(2, 10) {
        for (number, to) in destinations(world, ranks, me, time).enumerate() {
            let way = number % WAYS.len();
            let count = &mut pushed[to as usize][way];
            endpoint.push(table.ways[way], Rank(to), *count)?;
            *count += 1;
            endpoint.push(table.ask, Rank(to), [number as u32, to, 0])?;
            answers = (answers.0 + 1, answers.1 + number as u64 * u64::from(to));
        }
        for way in &table.ways {
            endpoint.done(*way)?;
            nothing_held(&endpoint, *way)?;
        }
        endpoint.done(table.ask)?;
        endpoint.done(table.answer)?;
        nothing_held(&endpoint, table.answer)?;
        equal("answers and their sum", endpoint.state().answers, answers)?;
        for from in 0..ranks {
            let mine = destinations(world, ranks, from, time).enumerate().filter(|(_, to)| *to == me);
            mine.for_each(|(number, _)| due[number % WAYS.len()][from as usize] += 1);
            for (due, heard) in due.iter().zip(&endpoint.state().heard) {
                let items = due[from as usize];
                let sum = u64::from(items) * u64::from(items.saturating_sub(1)) / 2;
                let heard = heard[from as usize];
                let ordered = heard.ordered || !in_order;
                equal("items from a rank", (heard.items, heard.sum, ordered), (items, sum, true))?;
            }
        }
        endpoint.barrier()?;
    }
    endpoint.finish()?;
    Ok(())
}

/// Items that fill no message leave by their age alone, while ranks poll without a wait that would send them.
pub(super) fn aged<T: Transport>(world: &World, transport: T) -> Verdict {
    let (mut endpoint, table) = attach(world, transport)?;
    let (me, ranks) = (endpoint.rank().0, endpoint.ranks());
    let way = WAYS.iter().position(|(name, ..)| *name == "aged").expect("it is one of the ways");
    endpoint.barrier()?;
    for time in 0..world.count(3, 50) {
        for to in (0..ranks).map(Rank) {
            endpoint.push(table.ways[way], to, time)?;
        }
        let until = endpoint.now() + world.patience;
        while endpoint.state().heard[way].iter().any(|heard| heard.items <= time) {
            ensure(endpoint.now() < until, || {
                format!("items wait longer than their age: rank {me} has {:?}", endpoint.state().heard[way])
            })?;
            endpoint.poll()?;
            endpoint.charge(Span::from_micros(1));
            std::thread::yield_now();
        }
    }
    endpoint.done(table.ways[way])?;
    nothing_held(&endpoint, table.ways[way])?;
    endpoint.finish()?;
    Ok(())
}

/// Whether an error is about the victim, or about another rank that has left because of it, which may be known
/// first.
fn blames(error: &AggregateError, victim: Rank) -> bool {
    match error.loss() {
        Some((rank, LossCause::Panicked)) => rank == victim,
        Some((rank, cause)) => rank != victim && cause == LossCause::Left,
        None => matches!(error, AggregateError::Gone { .. }),
    }
}

/// The victim pushes and panics while the others wait for the end, which every one of them learns from the error.
pub(super) fn panics<T: Transport>(world: &World, transport: T) -> Verdict {
    let (mut endpoint, table) = attach(world, transport)?;
    let (ranks, victim) = (endpoint.ranks(), last(endpoint.shape()));
    // Nobody is lost before everyone has attached.
    if endpoint.rank() == victim {
        endpoint.wait_until(|state| state.ready == victim.0)?;
    } else {
        endpoint.request(victim, table.ready, ())?;
    }
    let mut random = world.random(endpoint.rank().0.into());
    for number in 0..100 {
        let to = Rank(random.below(ranks.into()) as u32);
        if let Err(error) = endpoint.push(table.ways[1], to, number) {
            ensure(blames(&error, victim), || format!("a push failed with {error}"))?;
            break;
        }
        if endpoint.rank() == victim && number == 50 {
            unwind();
        }
    }
    let Err(error) = endpoint.done(table.ways[1]) else {
        return ensure(false, || "the end came without a rank that is lost".into());
    };
    ensure(blames(&error, victim), || format!("the end failed with {error}"))?;
    endpoint.leave();
    Ok(())
}
