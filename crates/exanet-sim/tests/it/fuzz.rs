//! The fuzz targets as ordinary tests, with inputs made of their seeds.

use am_conformance::each_mutation;

/// Plays the seeds of a target and inputs made of them; how many were taken and refused.
fn play(name: &str, target: fn(&[u8]) -> bool) -> [u32; 2] {
    let mut found = [0; 2];
    each_mutation(name, 4000, |data| found[usize::from(!target(data))] += 1);
    found
}

#[test]
fn files_are_taken_or_refused() {
    let [taken, refused] = play("exanet_machine", exanet_sim::fuzzing::machine);
    assert!(taken > 40 && refused > 1000, "{taken} taken, {refused} refused");
}

#[test]
fn frames_are_taken_or_refused() {
    let [taken, refused] = play("exanet_frame", exanet_sim::fuzzing::frame);
    assert!(taken > 40 && refused > 40, "{taken} taken, {refused} refused");
}
