//! The fuzz targets as ordinary tests, with inputs made of their seeds.

use am_conformance::each_mutation;
use transport_udp::fuzzing;

#[test]
fn frames_of_a_peer_break_nothing() {
    let mut taken = 0;
    each_mutation("udp_authentic", 3000, |data| taken += fuzzing::authentic(data));
    assert!(taken > 3000, "{taken}");
}

#[test]
fn datagrams_without_a_key_break_nothing() {
    let (mut taken, mut malformed) = (0, 0);
    each_mutation("udp_unauthenticated", 200, |data| {
        let counts = fuzzing::datagrams(data);
        (taken, malformed) = (taken + counts.0, malformed + counts.1);
    });
    assert!(taken > 200 && malformed > 20, "{taken} {malformed}");
    let mut dropped = 0;
    each_mutation("udp_stranger", 100, |data| dropped += fuzzing::stranger(data));
    assert!(dropped > 200, "{dropped}");
}

#[test]
fn any_operations_break_nothing() {
    each_mutation("udp_operations", 100, fuzzing::operations);
}
