//! Every state of a ring connection with few slots, visited: the tokens are conserved, nobody is blocked by an
//! application that is idle, and without the rule that the last token is kept somebody is.

use extoll_sim::conduit::pscom::{TokenRules, Tokens};
use std::collections::{HashMap, HashSet, VecDeque};

/// A slot under way or waiting: the tokens that it brings, and whether it has payload.
type Slot = (u16, bool);

/// Both sides of a connection, and what is between them: slots under way in order, slots that have arrived in
/// order.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Pair {
    tokens: [Tokens; 2],
    under_way: [VecDeque<Slot>; 2],
    arrived: [VecDeque<Slot>; 2],
}

impl Pair {
    fn new(rules: TokenRules) -> Self {
        let queues = || [VecDeque::new(), VecDeque::new()];
        Self { tokens: [Tokens::new(rules), Tokens::new(rules)], under_way: queues(), arrived: queues() }
    }

    /// What the application of a side may do, if it wants to.
    fn application(&self, side: usize) -> Option<Self> {
        self.tokens[side].may_send(true).then(|| self.sent(side, true))
    }

    fn sent(&self, side: usize, payload: bool) -> Self {
        let mut next = self.clone();
        let returned = next.tokens[side].send(payload);
        next.under_way[side].push_back((returned, payload));
        next
    }

    /// What network and progress engines do by themselves; slots travel in order and are consumed in order.
    fn progress(&self) -> Vec<Self> {
        let mut all = Vec::new();
        for side in 0..2 {
            if !self.under_way[side].is_empty() {
                let mut next = self.clone();
                let slot = next.under_way[side].pop_front().unwrap();
                next.tokens[1 - side].arrive(slot.0).unwrap();
                next.arrived[1 - side].push_back(slot);
                all.push(next);
            }
            if !self.arrived[side].is_empty() {
                let mut next = self.clone();
                let (_, payload) = next.arrived[side].pop_front().unwrap();
                next.tokens[side].consume(payload);
                all.push(next);
            }
            if self.tokens[side].must_return() && self.tokens[side].may_send(false) {
                all.push(self.sent(side, false));
            }
        }
        all
    }

    /// Tokens that exist for slots from `side` to the other: held + slots under way + slots waiting + owed + on
    /// their way back.
    fn total(&self, side: usize) -> usize {
        let back = |slots: &VecDeque<Slot>| slots.iter().map(|slot| usize::from(slot.0)).sum::<usize>();
        usize::from(self.tokens[side].held())
            + self.under_way[side].len()
            + usize::from(self.tokens[1 - side].waiting())
            + usize::from(self.tokens[1 - side].owed())
            + back(&self.under_way[1 - side])
    }
}

/// What a visit of all states found.
#[derive(Debug, Default)]
struct Visit {
    states: usize,
    /// States in which nothing happens by itself and a side can never send again unless the other wants to.
    blocked: usize,
    /// Whether progress can go on for ever without an application.
    endless: bool,
}

fn visit(rules: TokenRules) -> Visit {
    let mut found = Visit::default();
    let mut numbers = HashMap::new();
    let mut progress = Vec::new();
    let mut open = vec![Pair::new(rules)];
    numbers.insert(open[0].clone(), 0);
    while let Some(pair) = open.pop() {
        let number = numbers[&pair];
        for side in 0..2 {
            assert_eq!(
                pair.total(side),
                usize::from(rules.receive_buffers),
                "tokens are conserved under {rules:?}"
            );
            let slots = pair.under_way[side].len() + pair.arrived[1 - side].len();
            assert!(slots <= usize::from(rules.receive_buffers), "no slot is overwritten");
            let payload = |slots: &VecDeque<Slot>| slots.iter().filter(|slot| slot.1).count();
            let used = payload(&pair.under_way[side]) + payload(&pair.arrived[1 - side]);
            assert!(used <= usize::from(rules.send_buffers), "no send buffer is overwritten");
        }
        let next = pair.progress();
        if next.is_empty() && (0..2).any(|side| !pair.tokens[side].may_send(true)) {
            found.blocked += 1;
        }
        let mut edges = Vec::new();
        let applications = (0..2).filter_map(|side| pair.application(side));
        let all: Vec<Pair> = next.iter().cloned().chain(applications).collect();
        for (index, state) in all.into_iter().enumerate() {
            let fresh = numbers.len();
            let to = *numbers.entry(state.clone()).or_insert_with(|| {
                open.push(state);
                fresh
            });
            if index < next.len() {
                edges.push(to);
            }
        }
        progress.resize(numbers.len().max(progress.len()), Vec::new());
        progress[number] = edges;
    }
    found.states = numbers.len();
    found.endless = has_cycle(&progress);
    found
}

/// Whether a graph has a cycle: whether taking away what nothing leads to ever stops early.
fn has_cycle(graph: &[Vec<usize>]) -> bool {
    let mut incoming = vec![0; graph.len()];
    graph.iter().flatten().for_each(|to| incoming[*to] += 1);
    let mut free: Vec<usize> = (0..graph.len()).filter(|node| incoming[*node] == 0).collect();
    let mut removed = 0;
    while let Some(node) = free.pop() {
        removed += 1;
        for to in &graph[node] {
            incoming[*to] -= 1;
            if incoming[*to] == 0 {
                free.push(*to);
            }
        }
    }
    removed != graph.len()
}

/// Visits everything with so many slots, for each number of send buffers.
fn nobody_is_blocked(receive: u16) {
    for send in 1..=receive {
        let found = visit(TokenRules::new(receive, send));
        assert!(found.states > 1000, "{receive}/{send}: only {found:?}");
        assert_eq!(found.blocked, 0, "{receive}/{send}: {found:?}");
        assert!(!found.endless, "{receive}/{send}: {found:?}");
    }
}

#[test]
fn idle_applications_block_nobody_in_any_state() {
    nobody_is_blocked(TokenRules::FEWEST);
}

/// `cargo test --release -p active-messages-extoll --test it -- --ignored pscom_tokens::`
#[test]
#[ignore = "the states of four slots take a minute"]
fn idle_applications_block_nobody_with_four_slots() {
    nobody_is_blocked(4);
}

/// The mutation: the last token may be spent on payload.
#[test]
fn without_the_kept_token_somebody_is_blocked() {
    for receive in TokenRules::FEWEST..=3 {
        let found = visit(TokenRules { keep_one: false, ..TokenRules::new(receive, receive) });
        assert!(found.blocked > 0, "{receive} slots: {found:?}");
    }
}

/// Why three slots are the fewest: with two, what an empty message costs can only come back by an empty message.
#[test]
fn two_slots_block_or_never_rest() {
    let rules = TokenRules { receive_buffers: 2, ..TokenRules::new(3, 2) };
    assert!(visit(rules).blocked > 0, "returning at two: the sender holds one, the receiver owes one");
    let found = visit(TokenRules { return_at: 1, return_payload_at: 1, ..rules });
    assert!(found.endless, "returning at one: {found:?}");
}

/// The mutation of the threshold: who waits for more tokens than the peer can spend waits for ever.
#[test]
fn returning_too_late_blocks() {
    assert!(visit(TokenRules { return_at: 3, return_payload_at: 3, ..TokenRules::new(3, 3) }).blocked > 0);
}

/// The published numbers, too many for all states: long random walks, and the two extremes.
#[test]
fn sixteen_slots_are_conserved_in_long_walks() {
    let rules = TokenRules::new(16, 16);
    assert_eq!((rules.return_at, rules.return_payload_at), (10, 10));
    let mut dice = 12_345_u64;
    let mut pair = Pair::new(rules);
    let (mut seen, mut fullest) = (HashSet::new(), 0);
    for _ in 0..50_000 {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut all = pair.progress();
        all.extend((0..2).filter_map(|side| pair.application(side)));
        assert!(!all.is_empty(), "somebody can always go on");
        let index = (dice >> 33) as usize % all.len();
        pair = all.swap_remove(index);
        fullest = fullest.max(pair.under_way[0].len() + pair.arrived[1].len());
        assert_eq!([pair.total(0), pair.total(1)], [16, 16]);
        seen.insert((pair.tokens[0].held(), pair.tokens[1].held()));
    }
    assert!(fullest >= 15 && seen.len() > 50, "the walk stays near its beginning: {fullest}, {}", seen.len());
}

#[test]
fn tokens_that_were_never_out_are_an_error() {
    let mut tokens = Tokens::new(TokenRules::new(16, 16));
    tokens.send(true);
    let error = tokens.arrive(2).unwrap_err();
    assert_eq!(error.to_string(), "2 tokens came back, but only 1 of 16 were out");
    assert_eq!((tokens.held(), tokens.waiting()), (15, 0), "nothing changed");
    tokens.arrive(1).unwrap();
}
