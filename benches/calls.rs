//! The bench of typed calls over shared memory, on tokio and over UDP, beside Short round trips, floods, Longs and
//! futexes of the same run; with the feature `tarpc` (`-p lab --features tarpc`) beside that, too.
//! `cargo bench --bench calls` measures everything and writes `target/summary/calls.json` and `calls.svg`; a
//! filter measures a part and writes nothing.

mod shm_support;

fn main() {
    shm_support::run("calls");
}
