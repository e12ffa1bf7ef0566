//! Runs cases with the ranks of a job as threads of this process.

use crate::case::{Case, Description, Needs, judge};
use crate::random::mix;
use crate::report::{Line, Report, Skipped};
use crate::world::{Profile, World};
use am_core::{Rank, Transport};
use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// A transport under test: how to make a job whose ranks are threads.
pub trait Fabric: Send + Sync + 'static {
    /// The transport.
    type Transport: Transport + 'static;
    /// What the ranks of a job join.
    type Job: Send + Sync + 'static;

    /// The transport's name, for the report.
    fn name(&self) -> String;

    /// Makes a job of `ranks` ranks that a case can run in.
    ///
    /// # Panics
    /// If it cannot.
    fn create(&self, ranks: u32, needs: &Needs) -> Self::Job;

    /// Joins a job as one rank; returns the transports of the rank's endpoints. Called once per rank, on its
    /// thread.
    ///
    /// # Panics
    /// If it cannot.
    fn join(&self, job: &Self::Job, rank: Rank) -> Vec<Self::Transport>;

    /// How many cases of a quick run are played at once: more than one where ranks wait most of their time without
    /// a processor, for acknowledgements for instance.
    fn at_once(&self) -> usize {
        1
    }
}

/// The seed of runs that ask for none.
pub const DEFAULT_SEED: u64 = 20_030_301;

/// One case in so many runs in a variant.
const SAMPLE: u64 = 5;
/// One case in so many runs with each further number of ranks of a quick run.
const FURTHER: u64 = 3;

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How much each case does.
    pub profile: Profile,
    /// Where all randomness comes from.
    pub seed: u64,
    /// The numbers of ranks to run with.
    pub ranks: Vec<u32>,
    /// Run only the cases whose name contains this text.
    pub only: Option<String>,
    /// Run about one case in so many, drawn from seed, variant and name, so that many seeds cover all of them
    /// often; 1 for all.
    pub share: u64,
    /// What the run varies, so that each variant draws other cases; may be empty.
    pub variant: String,
    /// With other numbers of ranks than the first one above 1, run about one of these cases in so many, others for
    /// each number; 1 for all.
    pub further: u64,
}

impl Plan {
    /// All cases with the numbers of ranks of the profile; in the quick one, with the first number above 1, and
    /// about one case in three with each other number. The environment narrows it down: `AM_CONFORMANCE_SEED=7`,
    /// `AM_CONFORMANCE_RANKS=2,3`, `AM_CONFORMANCE_ONLY=sizes`. `AM_CONFORMANCE_SHARE=1` runs all cases with every
    /// number of ranks, and so does `AM_CONFORMANCE_ONLY`.
    ///
    /// # Panics
    /// If a number in the environment is none.
    pub fn from_environment(profile: Profile) -> Self {
        let variable = |name: &str| env::var(format!("AM_CONFORMANCE_{name}")).ok();
        let ranks = variable("RANKS").map(|text| {
            text.split(',').map(|part| part.trim().parse().expect("AM_CONFORMANCE_RANKS holds numbers")).collect()
        });
        let seed = variable("SEED").map(|text| text.trim().parse().expect("AM_CONFORMANCE_SEED holds a number"));
        let only = variable("ONLY");
        let all = profile == Profile::Full || only.is_some();
        Self {
            profile,
            seed: seed.unwrap_or(DEFAULT_SEED),
            ranks: ranks.unwrap_or_else(|| profile.ranks()),
            only,
            share: 1,
            variant: String::new(),
            further: if all { 1 } else { share_or(FURTHER) },
        }
    }

    /// About one case in five, others for each variant: for the second and later configurations of a transport
    /// whose first one runs all cases. `AM_CONFORMANCE_SHARE=1` runs all cases of every variant, and so does
    /// `AM_CONFORMANCE_ONLY`.
    ///
    /// # Panics
    /// If the variable holds no number.
    #[must_use]
    pub fn sample(mut self, variant: &str) -> Self {
        (self.share, self.further) = (if self.only.is_some() { 1 } else { share_or(SAMPLE) }, 1);
        self.variant = variant.into();
        self
    }

    /// All cases with these numbers of ranks, unless the environment says which.
    ///
    /// # Panics
    /// As [`Plan::from_environment`].
    pub fn with_ranks(profile: Profile, ranks: &[u32]) -> Self {
        let mut plan = Self::from_environment(profile);
        if env::var_os("AM_CONFORMANCE_RANKS").is_none() {
            plan.ranks = ranks.to_vec();
        }
        plan
    }

    /// Whether to run a case with this many ranks.
    pub fn wants(&self, case: &Description, ranks: u32) -> bool {
        ranks >= case.needs.ranks
            && self.only.as_ref().is_none_or(|part| case.name.contains(part.as_str()))
            && self.draws(case.name, 0, self.share)
            && (self.leads(ranks) || self.draws(case.name, u64::from(ranks), self.further))
    }

    /// Whether all cases that the plan draws run with this number of ranks.
    fn leads(&self, ranks: u32) -> bool {
        self.ranks.iter().find(|number| **number > 1).is_none_or(|leading| ranks == *leading)
    }

    /// Whether the seed draws the case of this name, one in `share`.
    fn draws(&self, name: &str, ranks: u64, share: u64) -> bool {
        let letters = self.variant.bytes().chain(name.bytes()).map(u64::from);
        let extra = (ranks > 0).then_some(ranks);
        let numbers: Vec<u64> = std::iter::once(self.seed).chain(letters).chain(extra).collect();
        mix(&numbers).is_multiple_of(share.max(1))
    }

    /// How long the ranks of one case may take before they count as hanging: beyond any patience of theirs.
    pub const fn limit(&self) -> Duration {
        match self.profile {
            Profile::Quick => Duration::from_secs(360),
            Profile::Full => Duration::from_secs(3600),
        }
    }
}

/// What `AM_CONFORMANCE_SHARE` says, or this.
fn share_or(share: u64) -> u64 {
    env::var("AM_CONFORMANCE_SHARE")
        .map_or(share, |text| text.trim().parse().expect("AM_CONFORMANCE_SHARE holds a number"))
}

/// Runs cases and reports on all of them in their order: one after the other, or in a quick run
/// [some at once](Fabric::at_once).
///
/// # Panics
/// If a job cannot be made.
pub fn run<F: Fabric>(fabric: F, cases: Vec<Case<F::Transport>>, plan: &Plan) -> Report {
    let fabric = Arc::new(fabric);
    let cases: Vec<_> = cases.into_iter().map(Arc::new).collect();
    let wanted = |case: &Arc<Case<_>>| {
        let ranks = plan.ranks.iter().copied().filter(|ranks| plan.wants(&case.description, *ranks));
        ranks.map(|ranks| (Arc::clone(case), ranks)).collect::<Vec<_>>()
    };
    let wanted: Vec<_> = cases.iter().flat_map(wanted).collect();
    let (next, lines) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let play = || {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some((case, ranks)) = wanted.get(place) else { return };
            let began = Instant::now();
            let problems = run_case(&fabric, case, *ranks, plan);
            let (Description { item, name, .. }, took) = (case.description, began.elapsed());
            let line = Line { item, name, ranks: *ranks, took, problems };
            lines.lock().expect("nothing panics while it is held").push((place, line));
        }
    };
    let at_once = if plan.profile == Profile::Quick { fabric.at_once() } else { 1 };
    thread::scope(|scope| (0..at_once).for_each(|_| drop(scope.spawn(play))));
    let mut lines = lines.into_inner().expect("nothing panics while it is held");
    lines.sort_unstable_by_key(|(place, _)| *place);
    let lines = lines.into_iter().map(|(_, line)| line).collect();
    Report { fabric: fabric.name(), seed: plan.seed, lines, skipped: Vec::new() }
}

/// Runs the cases of [`cases`](crate::cases) by a function that plays all ranks of one case, as a simulation does:
/// each rank calls [`run_part`](crate::run_part), and [`judge`] tells what its outcome means. The function returns
/// what went wrong, a text per rank. The cases in which a rank has threads are left out, which the report says.
pub fn run_with(
    fabric: impl Into<String>,
    plan: &Plan,
    mut play: impl FnMut(&Description, u32, &World) -> Vec<String>,
) -> Report {
    let threaded = crate::cases::threaded_descriptions().iter();
    let threaded = threaded.filter(|case| plan.only.as_ref().is_none_or(|part| case.name.contains(part.as_str())));
    let reason = "all ranks of a simulation are coroutines of one thread, so a rank has no threads to share";
    let skipped = threaded.map(|case| Skipped { item: case.item, name: case.name, reason }).collect();
    let mut report = Report { fabric: fabric.into(), seed: plan.seed, lines: Vec::new(), skipped };
    let world = World::new(plan.profile, plan.seed);
    for case in crate::cases::descriptions() {
        for ranks in plan.ranks.iter().copied().filter(|ranks| plan.wants(case, *ranks)) {
            let began = Instant::now();
            let problems = play(case, ranks, &world);
            report.lines.push(Line { item: case.item, name: case.name, ranks, took: began.elapsed(), problems });
        }
    }
    report
}

/// Runs one case as often as it needs; returns what went wrong in the first run that did, per rank.
fn run_case<F: Fabric>(fabric: &Arc<F>, case: &Arc<Case<F::Transport>>, ranks: u32, plan: &Plan) -> Vec<String> {
    let (world, draws) = (World::new(plan.profile, plan.seed), case.description.needs.draws);
    for draw in 0..draws {
        let problems = run_once(fabric, case, ranks, plan, world.drawn(draw));
        if !problems.is_empty() && draws > 1 {
            return problems.into_iter().map(|text| format!("draw {draw}, {text}")).collect();
        }
        if !problems.is_empty() {
            return problems;
        }
    }
    Vec::new()
}

/// Runs one case once; returns what went wrong, per rank. Threads of ranks that hang are left behind.
fn run_once<F: Fabric>(
    fabric: &Arc<F>,
    case: &Arc<Case<F::Transport>>,
    ranks: u32,
    plan: &Plan,
    world: World,
) -> Vec<String> {
    let job = Arc::new(fabric.create(ranks, &case.description.needs));
    let (tell, told) = channel();
    for rank in 0..ranks {
        let (fabric, case, job, tell) = (Arc::clone(fabric), Arc::clone(case), Arc::clone(&job), tell.clone());
        let play = move || {
            let outcome = catch_unwind(AssertUnwindSafe(|| case.run(&world, fabric.join(&job, Rank(rank)))));
            // The receiver has gone if this rank took too long; then nobody wants to know.
            let _ = tell.send((rank, judge(&case.description, outcome)));
        };
        let thread = thread::Builder::new().name(format!("rank {rank}"));
        thread.spawn(play).expect("a thread for every rank can be started");
    }
    drop(tell);
    let deadline = Instant::now() + plan.limit();
    let (mut problems, mut missing) = (Vec::new(), (0..ranks).collect::<Vec<_>>());
    while !missing.is_empty() {
        match told.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok((rank, problem)) => {
                missing.retain(|other| *other != rank);
                problems.extend(problem.map(|text| format!("rank {rank}: {text}")));
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                let seconds = plan.limit().as_secs();
                problems.extend(missing.iter().map(|rank| format!("rank {rank} hangs ({seconds} s have passed)")));
                break;
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Code;
    use crate::loopback::Loopback;
    use crate::world::{Failure, Verdict};
    use am_core::Membership as _;

    fn plan(ranks: u32) -> Plan {
        let (only, variant) = (None, String::new());
        Plan { ranks: vec![ranks], only, share: 1, seed: 1, profile: Profile::Quick, variant, further: 1 }
    }

    /// What documents say of many seeds: every case comes often, with every number of ranks that it runs with.
    #[test]
    fn a_thousand_seeds_draw_every_case_often() {
        let numbers = [1, 2, 3, 8];
        for case in crate::cases::descriptions() {
            let mut counts = [0; 4];
            for seed in 1000..2000 {
                let at = (seed / 8 % 4) as usize;
                let plan = Plan { seed, share: 4, ..plan(numbers[at]) };
                counts[at] += u32::from(plan.wants(case, numbers[at]));
            }
            for (ranks, count) in numbers.into_iter().zip(counts) {
                let runs = ranks >= case.needs.ranks;
                assert!(if runs { (30..100).contains(&count) } else { count == 0 }, "{}: {counts:?}", case.name);
            }
        }
    }

    /// Every case runs in some of a few variants, and none of these is empty.
    #[test]
    fn variants_draw_different_cases() {
        let plans: Vec<_> = (0..40).map(|number| plan(3).sample(&format!("variant {number}"))).collect();
        let cases = crate::cases::descriptions();
        let drawn = |plan: &Plan| cases.iter().filter(|case| plan.wants(case, 3)).count();
        assert!(plans.iter().all(|plan| (cases.len() / 16..cases.len() / 2).contains(&drawn(plan))));
        assert!(cases.iter().all(|case| plans.iter().any(|plan| plan.wants(case, 3))));
        let only = Plan { only: Some("ping".into()), ..plan(3) }.sample("alone");
        assert_eq!(only.share, 1);
    }

    /// A quick run has all cases with one number of ranks, and some of them with each other number.
    #[test]
    fn further_numbers_of_ranks_draw_some_cases() {
        let plan = Plan { ranks: vec![1, 2, 5], further: FURTHER, ..plan(1) };
        let cases = crate::cases::descriptions();
        let drawn = |ranks| -> Vec<&str> {
            cases.iter().filter(|case| plan.wants(case, ranks)).map(|case| case.name).collect()
        };
        assert_eq!(drawn(2).len(), cases.len());
        let [alone, five] = [1, 5].map(drawn);
        assert!((cases.len() / 6..cases.len() / 2).contains(&five.len()) && !alone.is_empty());
        assert!(alone.iter().any(|name| !five.contains(name)), "each number draws others");
        let all = Plan { further: 1, ..plan };
        assert!(cases.iter().all(|case| all.wants(case, 5)));
    }

    fn run_one(ranks: u32, needs: Needs, code: fn(&World, am_core::loopback::Loopback) -> Verdict) -> Report {
        let description = Description { item: 1, name: "case", about: "", needs };
        run(Loopback, vec![Case::new(description, Code::Single(code))], &plan(ranks))
    }

    #[test]
    fn failures_and_panics_name_their_rank() {
        let report = run_one(2, Needs::PLAIN, |_, transport| match transport.local_peer().0 {
            0 => Err(Failure::Check("broken".into())),
            _ => std::panic::resume_unwind(Box::new("boom")),
        });
        let mut problems = report.lines[0].problems.clone();
        problems.sort();
        assert_eq!(problems, ["rank 0: broken", "rank 1: it panicked: boom"]);
        assert!(!report.passed());
    }

    #[test]
    fn unwinding_is_allowed_where_it_is_announced() {
        assert!(run_one(1, Needs::PLAIN.unwinds(), |_, _| crate::case::unwind()).passed());
        assert!(!run_one(1, Needs::PLAIN, |_, _| crate::case::unwind()).passed());
    }

    #[test]
    fn what_a_simulation_leaves_out_is_said() {
        let report = run_with("simulation", &plan(2), |_, _, _| Vec::new());
        assert!(report.passed());
        let left_out: Vec<_> = report.skipped.iter().map(|skipped| (skipped.item, skipped.name)).collect();
        assert_eq!(left_out, [(12, "threads-shared"), (12, "threads-own")]);
        assert!(report.to_string().contains("12  threads-own                  skipped: all ranks"), "{report}");
        let ping = Plan { only: Some("ping".into()), ..plan(2) };
        assert_eq!(run_with("simulation", &ping, |_, _, _| Vec::new()).skipped, []);
    }

    #[test]
    fn an_empty_run_does_not_pass() {
        assert!(!run_one(1, Needs::PLAIN.ranks(2), |_, _| Ok(())).passed());
    }
}
