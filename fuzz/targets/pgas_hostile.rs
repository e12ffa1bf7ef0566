#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    am_pgas::fuzzing::hostile(data);
});
