//! `docs/machines.md` tells of every key, with examples that are machines.

use machine_sim::model::Parameters;
use machine_sim::presets::PRESETS;
use machine_sim::{MachineConfig, crossbar};
use toml::{Table, Value};

fn page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/machines.md");
    std::fs::read_to_string(path).expect("the page is part of the workspace")
}

/// The names of all keys of a table that are not tables themselves, with those of the tables in it.
fn keys(table: &Table, all: &mut Vec<String>) {
    for (key, value) in table {
        match value {
            Value::Table(inner) if !inner.is_empty() => keys(inner, all),
            Value::Array(list) => {
                all.push(key.clone());
                list.iter().filter_map(Value::as_table).for_each(|inner| keys(inner, all));
            }
            _ => all.push(key.clone()),
        }
    }
}

#[test]
fn every_key_is_told_of() {
    let mut machine = crossbar(2);
    // What may be left out is written only if it is there.
    machine.parameters = Parameters {
        eager_bytes: Some(8),
        shared_memory: Some(machine_sim::model::SharedMemory::default()),
        ..Parameters::default()
    };
    machine.parameters.sizes.insert(0, machine_sim::model::SizeClass { up_to: Some(8), ..Default::default() });
    let mut all = Vec::new();
    keys(&Table::try_from(&machine).expect("a machine is a table"), &mut all);
    assert!(all.len() > 40, "{all:?}");
    let page = page();
    for key in all.iter().chain(["links", "up_to", "oversubscription", "groups", "file"].map(String::from).iter())
    {
        let told = [format!("`{key}`"), format!(".{key}`"), format!("].{key}`")];
        assert!(told.iter().any(|told| page.contains(told)), "the page does not tell of {key}");
    }
}

#[test]
fn examples_are_machines() {
    let page = page();
    let examples: Vec<&str> =
        page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default()).collect();
    assert_eq!(examples.len(), 2);
    for example in examples {
        MachineConfig::from_toml(example).unwrap_or_else(|error| panic!("{error}\n{example}"));
    }
    for preset in PRESETS {
        assert!(page.contains(&format!("| `{}` |", preset.name)), "the page does not tell of {}", preset.name);
    }
}

#[test]
fn defaults_are_what_the_page_says() {
    let (page, defaults) = (page(), Parameters::default());
    for (key, value) in [
        ("latency_ns", defaults.latency_ns.to_string()),
        ("packet_bytes", defaults.packet_bytes.to_string()),
        ("header_bytes", defaults.header_bytes.to_string()),
        ("empty_poll_ns", defaults.empty_poll_ns.to_string()),
        ("lock_ns", defaults.lock_ns.to_string()),
        ("register_page_ns", defaults.register_page_ns.to_string()),
        ("exchange_ns", defaults.exchange_ns.to_string()),
        ("native.operations", defaults.native.operations.to_string()),
        ("retry.timeout_ns", defaults.retry.timeout_ns.to_string()),
        ("retry.window", defaults.retry.window.to_string()),
        ("retry.limit", defaults.retry.limit.to_string()),
        ("stack_bytes", crossbar(2).stack_bytes.to_string()),
        ("notice_ns", crossbar(2).notice_ns.to_string()),
    ] {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{key}` |")));
        let cell = row.and_then(|row| row.split('|').nth(3)).map(str::trim);
        assert_eq!(cell, Some(&*value), "{key}");
    }
}
