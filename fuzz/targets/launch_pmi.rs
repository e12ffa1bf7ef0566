#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = am_launch::fuzzing::pmi(data);
});
