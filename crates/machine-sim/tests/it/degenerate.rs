//! Machines that cannot be: the bare interface and the conduit refuse each with the same one-line error, and never
//! panic.

use fabric_sim::impossible::{self, check_refusal};
use machine_sim::conduit::{self, ConduitConfig};

#[test]
fn impossible_machines_are_refused() {
    for (machine, error) in impossible::machines() {
        check_refusal("interface", machine_sim::run(&machine, |_| ()), error);
        check_refusal("conduit", conduit::run(&machine, &ConduitConfig::default(), |_| ()), error);
    }
}
