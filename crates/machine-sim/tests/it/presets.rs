//! The machines that are built in are what their files say of them.

use machine_sim::presets::{self, PRESETS};
use machine_sim::{MachineConfig, goal};

/// When a message of a byte from one rank reaches the program of another, in nanoseconds.
fn one_byte(machine: &MachineConfig, from: u32, to: u32) -> f64 {
    let report = machine_sim::run(machine, move |nic| {
        if nic.rank() == from {
            nic.send(to, [0; 2], 1, |_| ());
        } else if nic.rank() == to {
            nic.wait();
        }
    });
    report.unwrap().ended.0 as f64 / 1e3
}

#[test]
fn every_preset_carries_messages_between_all_its_ranks() {
    for preset in PRESETS {
        let machine = presets::open(preset.name).unwrap();
        assert!(preset.toml.starts_with("# ") && !preset.about.is_empty(), "{}", preset.name);
        let report = machine_sim::run(&machine, |nic| {
            let (me, ranks) = (nic.rank(), nic.ranks());
            for apart in [1, ranks / 2] {
                nic.send((me + apart) % ranks, [apart.into(), 0], 5000, |_| ());
            }
            (0..2).for_each(|_| drop(nic.wait()));
        });
        assert_eq!(report.unwrap().lost, 0, "{}", preset.name);
    }
}

/// What is published of each: the sums that stand in the files.
#[test]
fn presets_have_their_published_latencies() {
    // 65 ns to the switch and from it, the adapters' 600 ns, and 31 bytes at 25 GB/s.
    let tree = presets::open("hdr_fat_tree").unwrap();
    let wire = 31.0 * 0.04;
    assert!((one_byte(&tree, 0, 1) - (600.0 + 130.0 + wire)).abs() < 0.01);
    // Three switches.
    assert!((one_byte(&tree, 0, 255) - (600.0 + 3.0 * 130.0 + wire)).abs() < 0.01);
    // One switch, and two of a group; 41 bytes.
    let fly = presets::open("slingshot_dragonfly").unwrap();
    let wire = 41.0 * 0.04;
    assert!((one_byte(&fly, 0, 1) - (1000.0 + 350.0 + wire)).abs() < 0.01);
    assert!((one_byte(&fly, 0, 4) - (1000.0 + 2.0 * 350.0 + wire)).abs() < 0.01);
    // L + 2 o.
    let schedule = goal::patterns::binomial_broadcast(2, 1);
    let played = goal::run(&presets::open("loggopsim").unwrap(), &schedule).unwrap();
    assert_eq!(played.ended[1].0, (2500 + 2 * 1500) * 1000);
}

#[test]
fn machines_are_found_by_name_or_file() {
    let folder = std::env::temp_dir().join(format!("am-presets-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("mine.toml");
    std::fs::write(&file, PRESETS[1].toml).unwrap();
    assert_eq!(presets::open(&file), presets::open("torus"));
    std::fs::write(&file, "ranks = 4\ntopology = { kind = 'ring', nodes = 4 }\nspeed = 1\n").unwrap();
    let wrong = presets::open(&file).unwrap_err().to_string();
    assert!(wrong.contains("mine.toml") && wrong.contains("unknown field `speed`"), "{wrong}");
    assert!(wrong.contains("line 3"), "{wrong}");
    let missing = presets::open(folder.join("other.toml")).unwrap_err().to_string();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(missing.contains("other.toml: No such file"), "{missing}");
    let unknown = presets::open("mesh").unwrap_err().to_string();
    assert_eq!(
        unknown,
        format!("machine is mesh, but must be a file such as my.toml, or one of {}", presets::names())
    );
}
