//! The fuzz targets as ordinary tests, with inputs made of their seeds.

use am_conformance::each_mutation;
use transport_shm::fuzzing;

#[test]
fn any_cells_are_survived() {
    let (mut active, mut lost) = (0, 0);
    each_mutation("shm_frame", 2000, |data| if fuzzing::frame(data) { lost += 1 } else { active += 1 });
    assert!(active > 200 && lost > 200, "{active} active, {lost} lost");
}

#[test]
fn any_words_of_a_faulty_rank_are_survived() {
    each_mutation("shm_memory", 700, fuzzing::memory);
}
