#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    transport_udp::fuzzing::operations(data);
});
