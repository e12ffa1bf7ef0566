//! The bench of typed calls over shared memory, on tokio and over UDP, beside Short round trips, floods, Longs,
//! futexes and `tarpc` of the same run.
//! `cargo bench --bench calls` measures everything and writes `target/summary/calls.json` and `calls.svg`; a
//! filter measures a part and writes nothing.

mod shm_support;

fn main() {
    shm_support::run("calls");
}
