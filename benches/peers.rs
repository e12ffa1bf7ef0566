//! This project beside the other libraries that the machine has (Open MPI, MPICH, UCX, libfabric, Lamellar; also
//! GASNet-EX where `AM_GASNET` names its installation), between processes of one host. `cargo bench --bench peers`
//! builds their programs (`peers_support/`), lets them and ours take turns five times, and writes
//! `target/summary/peers.json` and `peers.svg`, the README's chart; a filter measures some rows and writes
//! nothing.
//! A library that is missing is named, and where it can be had.

mod peers_support;
#[expect(dead_code, reason = "the benches over shared memory use more of it")]
mod shm_support;

fn main() {
    peers_support::run();
}
