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
    let found = [
        play("machine_machine", machine_sim::fuzzing::machine),
        play("machine_schedule", machine_sim::fuzzing::schedule),
        play("machine_graph", machine_sim::fuzzing::graph),
    ];
    assert!(found.iter().all(|[taken, refused]| *taken > 40 && *refused > 1000), "taken and refused: {found:?}");
}
