//! Machines described by TOML: the example's file, and what is wrong with others, by field and limit.

use fabric_sim::{Config, Context, Mailbox, Placement, Sim, Topology};

const MY_MACHINE: &str = include_str!("../../examples/my_machine.toml");

#[test]
fn the_example_machine_survives_a_round_trip() {
    let config = Config::from_toml(MY_MACHINE).unwrap();
    assert_eq!((config.ranks, &config.topology), (64, &Topology::Torus { dims: vec![4, 4] }));
    assert_eq!((config.placement.clone(), config.nic.empty_poll.ns), (Placement::RowMajor, 20.0));
    let written = toml::to_string(&config).unwrap();
    assert_eq!(Config::from_toml(&written).unwrap(), config);
    let report = Sim::run(&config, |rank: Context<'_, Mailbox<u32>>| {
        rank.send((rank.rank() + 1) % rank.ranks(), 64, rank.rank());
        rank.wait().body
    });
    assert_eq!(report.unwrap().results[0], Some(63));
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let error = Config::from_file("no/such/machine.toml").unwrap_err().to_string();
    assert!(error.starts_with("parameter file: no/such/machine.toml: "), "{error}");
}

#[test]
fn what_is_wrong_is_said_by_field_and_limit() {
    let changed = |from: &str, to: &str| {
        assert!(MY_MACHINE.contains(from), "{from} is in the example");
        Config::from_toml(&MY_MACHINE.replacen(from, to, 1)).unwrap_err().to_string()
    };
    let cases = [
        ("dims = [4, 4]", "dims = [4, 0]", "topology.dims[1] is 0, but must be from 1 to 65536"),
        ("dims = [4, 4]", "dims = [2, 4]", "ranks is 64, but must be at most 8 nodes times 4 ranks per node"),
        (
            "dims = [4, 4]",
            "dims = [9999, 9999]",
            "topology.dims is [9999, 9999] (99980001 nodes), but must be at most 65536",
        ),
        ("ranks = 64", "ranks = 64000", "ranks is 64000, but must be from 1 to 32000"),
        ("ranks_per_node = 4", "ranks_per_node = 0", "ranks_per_node is 0, but must be at least 1"),
        ("stack_bytes = 262144", "stack_bytes = 100", "stack_bytes is 100, but must be from 16384 to 1073741824"),
        ("deadline_ns = 1e9", "deadline_ns = -1", "deadline_ns is -1, but must be a finite number of nanoseconds"),
        ("bandwidth_mb_s = 1250", "bandwidth_mb_s = 0", "nic.link.bandwidth_mb_s is 0, but must be above 0 MB/s"),
        ("latency_ns = 250", "latency_ns = nan", "nic.link.latency_ns is NaN, but must be a finite number"),
        ("depth = 8", "depth = 0", "nic.tx_translate.depth is 0, but must be at least 1"),
        ("empty_poll_ns = 20", "empty_poll_ns = 0", "nic.empty_poll is 0, but must be at least 0.001 ns"),
        ("\nloss = 0.001", "\nloss = 1.5", "faults.loss is 1.5, but must be a probability from 0 to below 1"),
        ("ordered = true", "ordered = true\n[faults.oops]", "unknown field `oops`"),
        (
            "link_down = { from = 0, to = 1 }",
            "link_down = { from = 0, to = 9 }",
            "faults.schedule[0] is from 0 to 9",
        ),
        (
            "node = 5, factor = 3.0",
            "node = 99, factor = 3.0",
            "faults.schedule[2] is 99, but must be below the number of nodes",
        ),
        ("loss = 0.05", "loss = 2", "faults.links[0].loss is 2, but must be a probability"),
        ("header_bytes = 16", "header_bites = 16", "unknown field `header_bites`"),
        ("header_bytes = 16", "header_bytes = -1", "header_bytes"),
        ("kind = \"torus\"", "kind = \"donut\"", "donut"),
    ];
    for (from, to, expected) in cases {
        let error = changed(from, to);
        assert!(error.contains(expected), "{to}: {error}");
    }
}

/// What is wrong in a file is said with its line, whether or not the value spans several.
#[test]
fn lines_are_named() {
    let folder = std::env::temp_dir().join(format!("am-lines-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("mine.toml");
    let said = |text: &str| {
        std::fs::write(&file, text).unwrap();
        Config::from_file(&file).unwrap_err().to_string()
    };
    let cases = [
        ("ranks = 2\n\ntopology = { kind = 'ring', nodes = 0 }", "mine.toml, line 3: topology.nodes is 0"),
        ("ranks = 3\ntopology = {\n  kind = 'ring',\n  nodes = 2,\n}\n", "mine.toml, line 1: ranks is 3"),
        (
            "ranks = 2\ntopology = {\n  kind = 'ring',\n\n  nodez = 2,\n}\n",
            "mine.toml: line 5: topology.nodez: unknown field `nodez`, expected `nodes`",
        ),
        (
            "ranks = 2\ntopology = {\n  kind = 'ring',\n  nodes = 'two',\n}\n",
            "mine.toml: line 4: topology.nodes is 'two', but must be a whole number",
        ),
        (
            "ranks = 2\ntopology = {\n  nodes = 2,\n  kind = 'rink',\n}\n",
            "line 4: topology.kind is 'rink', but must be one of `direct`",
        ),
        (
            "ranks = 2\n[topology]\nkind = 'ring'\nnodes = 2\n[faults]\nlinks = [\n  { loss = 0.5 },\n\
             {\n    loss = 2,\n  },\n]\n",
            "mine.toml, line 9: faults.links[1].loss is 2",
        ),
        (
            "ranks = 2\n[topology]\nkind = 'ring'\nnodes = 2\n[faults]\nlinks = [\n  {\n    lose = 2 },\n]\n",
            "line 8",
        ),
    ];
    for (text, wanted) in cases {
        let error = said(text);
        assert!(error.contains(wanted), "{text}\n{error}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// What does not belong into a file is told as any other value that cannot be: in one line, by line, field and
/// limit.
#[test]
fn wrong_types_are_told_in_one_line() {
    const WHOLE: &str = "a whole number from 0 to 4294967295";
    let head = "ranks = 2\ntopology = { kind = 'ring', nodes = 2 }\n";
    let told = |text: &str, wanted: &str| {
        let error = Config::from_toml(text).unwrap_err().to_string();
        assert!(error.contains(wanted) && !error.contains('\n'), "{text}: {error}");
    };
    told(&head.replace("= 2\n", "= -1\n"), &format!("line 1: ranks is -1, but must be {WHOLE}"));
    for (field, wanted) in [
        ("trace = 'yes'", "line 3: trace is 'yes', but must be true or false"),
        ("[faults]\nloss = 'much'", "line 4: faults.loss is 'much', but must be a number"),
        (
            "[faults]\nlinks = [{ from = 0, to = 1, mtu_bytes = -5 }]",
            "line 4: faults.links[0].mtu_bytes is -5, but must be",
        ),
        (
            "[nic]\nlink = { bandwidth_mb_s = [1], latency_ns = 1 }",
            "line 4: nic.link.bandwidth_mb_s is a list, but must be a number",
        ),
        ("links = 5", "line 3: links is 5, but must be a table"),
        ("links = [1]", "line 3: links is a list, but must be a table"),
        ("[links]\nx = 5", "line 4: links.x is 5, but must be a table"),
        ("[links]\nx = { latency_ns = 'a' }", "line 4: links.x.latency_ns is 'a', but must be a number"),
        (
            "[links]\nx = { latency = 5 }",
            "line 4: links.x.latency: unknown field `latency`, expected `bandwidth_mb_s`",
        ),
        ("placement = 5", "line 3: placement: wanted string or table"),
        ("placement = 'any'", "line 3: placement is 'any', but must be one of `row_major`"),
        (
            "placement = { random = { seed = 'x' } }",
            "line 3: placement.random.seed is 'x', but must be a whole number",
        ),
        ("routing = { algorithm = 'best' }", "line 3: routing.algorithm is 'best', but must be one of `default`"),
        ("oops = 5", "line 3: oops: unknown field `oops`, expected one of"),
        ("stack_bytes = ", "line 3: "),
    ] {
        told(&format!("{head}{field}"), wanted);
    }
    for (topology, wanted) in [
        ("5", "line 2: topology is 5, but must be a table"),
        ("'ring'", "line 2: topology is 'ring', but must be a table"),
        ("[1]", "line 2: topology[0] is 1, but must be a name in quotes"),
        ("{ nodes = 2 }", "line 2: topology: missing field `kind`"),
        ("{ kind = 'ring' }", "line 2: topology: missing field `nodes`"),
        ("{ kind = 5, nodes = 2 }", "line 2: topology.kind is 5, but must be "),
        ("{ kind = 'rink', nodes = 2 }", "line 2: topology.kind is 'rink', but must be one of `direct`"),
        ("{ kind = 'ring', nodes = -2 }", "line 2: topology.nodes is -2, but must be a whole number from 0"),
        (
            "{ kind = 'ring', nodes = 0x1_0000_0000_0 }",
            "line 2: topology.nodes is 0x1_0000_0000_0, but must be a whole",
        ),
        ("{ kind = 'ring', nodes = 2.0 }", "line 2: topology.nodes is 2.0, but must be a whole number"),
        ("{ kind = 'ring', nodes = 1e3 }", "line 2: topology.nodes is 1e3, but must be a whole number"),
        ("{ kind = 'ring', nodes = true }", "line 2: topology.nodes is true, but must be a whole number"),
        ("{ kind = 'ring', nodes = 'it\\'s' }", "line 2: "),
        (
            "{ kind = 'ring', nodes = \"a\\\"b\" }",
            "line 2: topology.nodes is \"a\\\"b\", but must be a whole number",
        ),
        ("{ kind = 'ring', nodes = [2] }", "line 2: topology.nodes is a list, but must be a whole number"),
        ("{ kind = 'ring', nodes = {} }", "line 2: topology.nodes is a table, but must be a whole number"),
        (
            "{\n kind = 'mesh',\n dims = [2, 1.5],\n}",
            "line 4: topology.dims[1] is 1.5, but must be a whole number",
        ),
        ("{\n kind = 'mesh',\n dims = 4,\n}", "line 4: topology.dims is 4, but must be a list"),
        ("{ kind = 'graph', file = 7 }", "line 2: topology.file is 7, but must be text in quotes"),
        (
            "{ kind = 'ring', nodes = 2, dims = [2] }",
            "line 2: topology.dims: unknown field `dims`, expected `nodes`",
        ),
    ] {
        told(&format!("ranks = 2\ntopology = {topology}\n"), wanted);
    }
}
