#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = exanet_sim::fuzzing::machine(data);
});
