//! The shared-memory bench: active messages between processes of one host beside what the same two processes reach
//! with a mapping and nothing else. `cargo bench --bench shm` measures everything and writes
//! `target/summary/shm.json` and `shm.svg`; a filter measures a part and writes nothing; `cargo test --benches`
//! runs everything once.

mod shm_support;

fn main() {
    shm_support::run("shm");
}
