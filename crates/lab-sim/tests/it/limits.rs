//! The README's table of sizes, which is what the transports say of themselves with default settings.

use active_messages::loopback::{LoopbackConfig, network};
use active_messages::shm::{Job, JobConfig, JoinOptions};
use active_messages::transport::{DEFAULT_REPLY, Peer};
use active_messages::{Category, Lane, Limits, Transport, udp};
use exanet_sim::{ExanetConfig, conduit as exanet};
use extoll_sim::conduit::{gasnet, pscom};
use extoll_sim::{ExtollConfig, conduit::gasnet::GasnetConfig, conduit::pscom::PscomConfig};
use machine_sim::{MachineConfig, conduit as machine};
use portals_sim::{PortalsConfig, conduit as portals};
use sci_sim::{SciConfig, conduit as sci};
use std::path::Path;

/// What a transport says of the way to another rank.
fn limits(transport: &impl Transport) -> Limits {
    *transport.limits(Peer(1))
}

/// What the transports of a simulated machine say, which agree.
fn simulated(report: Result<fabric_sim::Report<Limits>, fabric_sim::RunError>) -> Limits {
    let results = report.expect("a machine of two ranks runs").results;
    results.into_iter().flatten().next().expect("rank 0 told its limits")
}

/// Every backend with its default settings and two ranks.
fn backends() -> Vec<(&'static str, Limits)> {
    let shm = Job::create(&JobConfig::new(2)).expect("memory for two ranks");
    let shm = shm.join_with(0, JoinOptions::default()).expect("rank 0 joins");
    let udp = udp::LocalJob::new(2).expect("sockets for two ranks").join(0).expect("rank 0 joins");
    let extoll = ExtollConfig::pair();
    vec![
        ("`shm`, up to 8 ranks", limits(&shm)),
        ("`udp`", limits(&udp)),
        ("`extoll`", simulated(gasnet::run(&extoll, &GasnetConfig::default(), |transport| limits(&transport)))),
        (
            "`extoll`, pscom",
            simulated(pscom::run(&extoll, &PscomConfig::default(), |transport| limits(&transport))),
        ),
        (
            "`portals`",
            simulated(portals::run(&PortalsConfig::pair(), &portals::ConduitConfig::default(), |transport| {
                limits(&transport)
            })),
        ),
        (
            "`exanet`",
            simulated(exanet::run(&ExanetConfig::pair(), &exanet::ConduitConfig::default(), |transport| {
                limits(&transport)
            })),
        ),
        (
            "`sci`",
            simulated(sci::run(&SciConfig::pair(), &sci::ConduitConfig::default(), |transport| {
                limits(&transport)
            })),
        ),
        (
            "`sim`",
            simulated(machine::run(&MachineConfig::pair(), &machine::ConduitConfig::default(), |transport| {
                limits(&transport)
            })),
        ),
        ("`loopback`", limits(&network(2, LoopbackConfig::default())[0])),
    ]
}

fn table() -> String {
    let mut text = String::from("| backend | Medium | reply, undeclared | Long |\n|---|---|---|---|\n");
    for (name, limits) in backends() {
        assert!(limits.ordered, "the README says that messages of a pair are in order everywhere: {name}");
        let medium = [Lane::Request, Lane::Reply].map(|lane| limits.max_payload(Category::Medium, lane, 16));
        assert_eq!(medium[0], medium[1], "the README has one column for both: {name}");
        let long = if limits.long >= 1 << 32 { "segment".into() } else { limits.long.to_string() };
        text += &format!("| {name} | {} | {} | {long} |\n", medium[0], limits.default_reply);
    }
    text
}

#[test]
fn the_readme_tells_the_sizes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = std::fs::read_to_string(&path).expect("the workspace has a README");
    let (before, rest) = readme.split_once("<!-- limits -->\n").expect("the README marks its table");
    let (told, after) = rest.split_once("<!-- /limits -->").expect("the README marks the table's end");
    let table = table();
    if std::env::var_os("UPDATE_README").is_some() {
        let updated = format!("{before}<!-- limits -->\n{table}<!-- /limits -->{after}");
        std::fs::write(&path, updated).expect("the README can be written");
        return;
    }
    assert_eq!(told, table, "run this test once with UPDATE_README=1");
}

#[test]
fn the_default_reply_is_the_same_wherever_it_fits() {
    for (name, limits) in backends() {
        assert_eq!(limits.default_reply, DEFAULT_REPLY.min(limits.medium_reply), "{name}");
    }
}
