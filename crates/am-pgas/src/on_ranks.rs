//! Ranks for unit tests: threads over the loopback transport, which see each other's segments or do not.

use crate::Pgas;
use am_core::loopback::{Loopback, LoopbackConfig, network};
use am_core::{Endpoint, Handlers, Span};
use std::thread;

pub(crate) type Ranks = Endpoint<Loopback, Pgas>;

/// Runs the same on all endpoints of a network.
pub(crate) fn run_ranks(ranks: u32, config: LoopbackConfig, work: &(impl Fn(&mut Ranks) + Sync)) {
    thread::scope(|scope| {
        for transport in network(ranks, config) {
            scope.spawn(move || {
                let mut handlers = Handlers::new();
                let pgas = Pgas::register(&mut handlers).unwrap();
                let mut endpoint = Endpoint::attach(transport, handlers, pgas).unwrap();
                endpoint.set_timeout(Span::from_secs(60));
                work(&mut endpoint);
                endpoint.finish().unwrap();
            });
        }
    });
}

/// Runs the same on all ranks, over messages only, with buffers of several sizes.
pub(crate) fn over_messages(ranks: u32, work: impl Fn(&mut Ranks) + Sync) {
    for medium in [100, 8192] {
        run_ranks(ranks, LoopbackConfig::default().medium(medium).direct(false), &work);
    }
}

/// Runs the same on all ranks, over messages and over memory.
pub(crate) fn on_ranks(ranks: u32, work: impl Fn(&mut Ranks) + Sync) {
    over_messages(ranks, &work);
    run_ranks(ranks, LoopbackConfig::default().direct(true), &work);
}
