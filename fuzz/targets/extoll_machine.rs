#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = extoll_sim::fuzzing::machine(data);
});
