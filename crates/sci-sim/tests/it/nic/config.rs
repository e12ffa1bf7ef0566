//! Machines that cannot be are refused by field and limit.

use fabric_sim::Topology;
use sci_sim::SciConfig;

fn refused(text: &str) -> String {
    SciConfig::from_toml(&format!("ranks = 2\ntopology = {{ kind = 'torus', dims = [2, 1] }}\n{text}"))
        .unwrap_err()
        .to_string()
}

#[test]
fn impossible_machines_name_field_and_limit() {
    let cases = [
        ("adversary = { reorder_ns = -1 }", "adversary.reorder_ns is -1, but must be a finite number"),
        ("adversary = { reorder_ns = nan }", "adversary.reorder_ns is NaN"),
        ("errors = { retriable = 1.0 }", "errors.retriable is 1, but must be a probability from 0 to below 1"),
        ("errors = { retriable = 0.5, pending = 0.5 }", "errors is 1, but must be probabilities that together"),
        ("faults = { duplication = 0.1 }", "faults.duplication contradicts faults.link_retry: SCI's echoes"),
        ("faults = { loss = 2 }", "faults.loss is 2"),
        (
            "parameters = { pio = { outstanding = 0 } }",
            "parameters.pio.outstanding is 0, but must be from 1 to 64",
        ),
        ("stack_bytes = 5", "stack_bytes is 5"),
        ("notice_ns = -5", "notice_ns is -5"),
    ];
    for (text, start) in cases {
        let found = refused(text);
        assert!(found.starts_with(start), "{text}: {found}");
    }
    for (text, name) in [
        ("rancs = 3", "rancs"),
        ("parameters = { pio = { line = 3 } }", "line"),
        ("errors = { planned = [{ node = 4, line = 1, status = 'lost' }] }", "lost"),
        ("adversary = { jitter_ns = 3 }", "jitter_ns"),
    ] {
        let found = refused(text);
        assert!(found.starts_with("parameter file: ") && found.contains(name), "{text}: {found}");
    }
    let large = SciConfig::new(2, Topology::Ring { nodes: 20_000 }).check().unwrap_err().to_string();
    assert_eq!(
        large,
        "topology is 20000 nodes, but must be at most 16383 nodes, whose numbers are multiples of 4"
    );
    let missing = SciConfig::from_file("/nonexistent/machine.toml").unwrap_err().to_string();
    assert!(missing.starts_with("parameter file: /nonexistent/machine.toml: "), "{missing}");
}

#[test]
fn machines_survive_a_round_trip() {
    for config in [SciConfig::pair(), sci_sim::torus(5), sci_sim::fitting(40)] {
        config.check().unwrap();
        let text = toml::to_string(&config).unwrap();
        assert_eq!(SciConfig::from_toml(&text).unwrap(), config);
    }
    assert_eq!(sci_sim::torus(8).topology.nodes().unwrap(), 8);
    assert_eq!(sci_sim::fitting(17).topology.nodes().unwrap(), 24);
}
