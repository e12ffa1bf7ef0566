//! The suite over the loopback transport, and over two of them in one job.

use am_conformance::{Loopback, NativeLoopback, Plan, Profile, Selected, all_cases, concrete_cases, run};

#[test]
fn quick() {
    run(Loopback, all_cases(), &Plan::from_environment(Profile::Quick)).check();
}

#[test]
fn near_and_far() {
    run(Selected, all_cases(), &Plan::with_ranks(Profile::Quick, &[2, 5]).sample("near and far")).check();
}

#[test]
fn one_sided_by_the_network() {
    let mut cases = all_cases();
    cases.retain(|case| case.description.item >= 13);
    run(NativeLoopback, cases, &Plan::with_ranks(Profile::Quick, &[1, 3])).check();
}

#[test]
fn without_trait_objects() {
    run(Loopback, concrete_cases(), &Plan::with_ranks(Profile::Quick, &[1, 3])).check();
}

#[test]
fn losses_inside_every_operation() {
    // As many seeds as there are operations: each of them comes first once.
    for seed in 0..21 {
        let plan = Plan { seed, only: Some("teams-lost".into()), ..Plan::with_ranks(Profile::Quick, &[3]) };
        run(Loopback, all_cases(), &plan).check();
    }
}

/// Takes minutes: `cargo test --release -p am-conformance --test loopback -- --ignored --nocapture`.
#[test]
#[ignore = "the full profile takes minutes"]
fn full() {
    run(Loopback, all_cases(), &Plan::from_environment(Profile::Full)).check();
    run(Selected, all_cases(), &Plan::from_environment(Profile::Full)).check();
}
