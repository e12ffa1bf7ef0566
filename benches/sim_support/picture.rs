//! The picture of the figures of one core: the simulator's events beside those of a bare heap.

use lab::bench::chart::{Chart, Column, Kind, Panel};
use lab::bench::summary::{Figure, Summary};

/// The picture of a full run.
pub(crate) fn chart(summary: &Summary) -> Chart {
    let named = |what: &str| {
        let chosen = move |figure: &&Figure| figure.name.starts_with("engine/") && figure.name.ends_with(what);
        summary.figures().iter().filter(chosen).collect::<Vec<_>>()
    };
    let label = |figure: &Figure| figure.name["engine/".len()..].split(',').next().unwrap_or_default().to_owned();
    let ours = |figure: &Figure| Column { label: label(figure), value: figure.value, kind: Kind::Ours };
    let events = named("events").into_iter().flat_map(|figure| {
        let heap = figure.baseline.as_ref().map(|baseline| Column {
            label: baseline.name.clone(),
            value: baseline.value,
            kind: Kind::Baseline,
        });
        [Some(ours(figure)), heap].into_iter().flatten()
    });
    let panel = |title: &str, columns| Panel { title: title.into(), columns };
    Chart {
        title: "The machine in virtual time, on one core".into(),
        subtitle: "cargo bench --bench sim: packets sent on at random in a 3D torus, timing only".into(),
        legend: [
            "fabric-sim: routing, contention, coroutines".into(),
            "a binary heap alone".into(),
            "published elsewhere".into(),
        ],
        panels: vec![
            panel("Events, M/s (more is better)", events.collect()),
            panel("Packets, M/s (more is better)", named("packets").into_iter().map(ours).collect()),
        ],
    }
}
