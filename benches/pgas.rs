//! The bench of one-sided access, collective operations and global arrays over shared memory, beside loads,
//! stores, copies, ping-pongs and a shared table without a library. `cargo bench --bench pgas` measures everything
//! and writes `target/summary/pgas.json` and `pgas.svg`; a filter measures a part and writes nothing.

mod shm_support;

fn main() {
    shm_support::run("pgas");
}
