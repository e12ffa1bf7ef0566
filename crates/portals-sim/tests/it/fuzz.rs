//! The fuzz target as an ordinary test, with inputs made of its seeds.

use am_conformance::each_mutation;

#[test]
fn files_are_taken_or_refused() {
    let (mut taken, mut refused) = (0, 0);
    each_mutation("portals_machine", 4000, |data| {
        if portals_sim::fuzzing::machine(data) { taken += 1 } else { refused += 1 }
    });
    assert!(taken > 40 && refused > 1000, "{taken} taken, {refused} refused");
}
