//! The bench of two-sided messages over shared memory, beside Short round trips, ping-pongs and copies without a
//! library. `cargo bench --bench p2p` measures everything and writes `target/summary/p2p.json` and `p2p.svg`; a
//! filter measures a part and writes nothing.

mod shm_support;

fn main() {
    shm_support::run("p2p");
}
