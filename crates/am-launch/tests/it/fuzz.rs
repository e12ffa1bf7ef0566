//! The fuzz targets as ordinary tests, with inputs made of their seeds.

use am_conformance::each_mutation;
use am_launch::fuzzing;

/// Of the inputs that are made of a target's seeds: how many are taken for what they pretend to be, and how many
/// are not.
fn counted(name: &str, mutations: u64, target: fn(&[u8]) -> bool) {
    let (mut taken, mut refused) = (0, 0);
    each_mutation(name, mutations, |data| if target(data) { taken += 1 } else { refused += 1 });
    assert!(taken > mutations / 20 && refused > mutations / 20, "{name}: {taken} taken, {refused} refused");
}

#[test]
fn strangers_are_not_believed() {
    counted("launch_stranger", 3000, fuzzing::stranger);
}

#[test]
fn messages_are_understood_or_refused() {
    counted("launch_message", 3000, fuzzing::message);
}

#[test]
fn greetings_are_taken_whole_or_not() {
    counted("launch_greeting", 3000, fuzzing::greeting);
}

#[test]
fn lists_of_hosts_are_usable_or_refused() {
    counted("launch_hosts", 3000, fuzzing::hosts);
}

#[test]
fn links_say_what_their_frames_say() {
    counted("launch_control", 3000, fuzzing::control);
}

#[test]
fn servers_of_pmi_are_believed_what_they_say() {
    counted("launch_pmi", 3000, fuzzing::pmi);
}

#[test]
fn notices_are_heard_whatever_is_between_them() {
    counted("launch_notices", 3000, fuzzing::notices);
}

#[test]
fn manifests_are_sound_or_refused() {
    counted("launch_manifest", 3000, fuzzing::manifest);
}

/// Frames, notices and manifests with numbers around every limit.
#[test]
fn drawn_numbers_break_nothing() {
    let (mut state, mut taken, mut refused) = (1u64, [0; 3], [0; 3]);
    for _ in 0..6000 {
        let data: [u8; 96] = std::array::from_fn(|_| {
            // A linear congruential generator; its high bits are random enough for choices.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        });
        let which = usize::from(data[0] % 3);
        *(if fuzzing::drawn(&data) { &mut taken[which] } else { &mut refused[which] }) += 1;
    }
    assert!(taken.iter().chain(&refused).all(|count| *count > 100), "{taken:?} taken, {refused:?} refused");
}
