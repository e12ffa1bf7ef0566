//! The bench of typed calls over shared memory, beside Short round trips and floods of the same run.
//! `cargo bench --bench calls` measures everything and writes `target/summary/calls.json` and `calls.svg`; a
//! filter measures a part and writes nothing.

mod shm_support;

fn main() {
    shm_support::run("calls");
}
