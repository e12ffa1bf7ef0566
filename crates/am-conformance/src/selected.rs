//! Two loopback transports in one job, a near and a far one, as a fabric of the suite.

use crate::case::Needs;
use crate::loopback::{config, join};
use crate::threads::Fabric;
use am_core::loopback::{Loopback, NativeOperations, network, network_over};
use am_core::{Rank, Select, Transport};
use std::sync::Mutex;

/// Makes jobs whose even ranks are near each other, and likewise their odd ranks; all else is far, over a
/// network that does one-sided operations by itself.
#[derive(Clone, Copy, Debug)]
pub struct Selected;

/// A job of two transports: those of each rank that has not joined yet.
#[derive(Debug)]
pub struct SelectedJob {
    unjoined: Mutex<Vec<Vec<Select<Loopback, Loopback>>>>,
}

impl Fabric for Selected {
    type Transport = Select<Loopback, Loopback>;
    type Job = SelectedJob;

    fn name(&self) -> String {
        "loopback near and far".into()
    }

    fn create(&self, ranks: u32, needs: &Needs) -> SelectedJob {
        let config = config(needs);
        let far = network(ranks, config.direct(false).native(NativeOperations::All));
        let per_rank = usize::from(config.endpoints);
        let segments: Vec<_> = far.iter().step_by(per_rank).map(|endpoint| endpoint.segment().clone()).collect();
        let hosts = [0, 1].map(|parity| (parity..ranks).step_by(2).map(Rank).collect::<Vec<_>>());
        let mut near = hosts.clone().map(|host| {
            let segments: Vec<_> = host.iter().map(|rank| segments[rank.0 as usize].clone()).collect();
            if segments.is_empty() { Vec::new() } else { network_over(segments, config) }.into_iter()
        });
        let pairs = far.into_iter().enumerate().map(|(index, far)| {
            let host = index / per_rank % 2;
            let near = near[host].next().expect("each endpoint is near to itself");
            Select::both(near, far, &hosts[host], |_| true).expect("the two transports are of the same job")
        });
        let mut pairs = pairs.collect::<Vec<_>>().into_iter();
        let unjoined = (0..ranks).map(|_| pairs.by_ref().take(per_rank).collect());
        SelectedJob { unjoined: Mutex::new(unjoined.collect()) }
    }

    fn join(&self, job: &SelectedJob, rank: Rank) -> Vec<Self::Transport> {
        join(&job.unjoined, rank)
    }
}
