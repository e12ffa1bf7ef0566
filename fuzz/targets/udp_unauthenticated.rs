#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = transport_udp::fuzzing::datagrams(data);
});
