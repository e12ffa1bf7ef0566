//! The loopback transport as a fabric of the suite.

use crate::case::{Buffers, Needs};
use crate::threads::Fabric;
use am_core::Rank;
use am_core::loopback::{LoopbackConfig, NativeOperations, network};
use std::sync::{Mutex, PoisonError};

/// Makes jobs of the loopback transport.
#[derive(Clone, Copy, Debug)]
pub struct Loopback;

/// A loopback job: the transports of each rank that has not joined yet.
#[derive(Debug)]
pub struct Job {
    unjoined: Mutex<Vec<Vec<am_core::loopback::Loopback>>>,
}

/// Makes jobs of the loopback transport that do one-sided operations by themselves.
#[derive(Clone, Copy, Debug)]
pub struct NativeLoopback;

impl Fabric for NativeLoopback {
    type Transport = am_core::loopback::Loopback;
    type Job = Job;

    fn name(&self) -> String {
        "loopback with one-sided operations".into()
    }

    fn create(&self, ranks: u32, needs: &Needs) -> Job {
        job(ranks, needs, config(needs).direct(false).native(NativeOperations::All))
    }

    fn join(&self, job: &Job, rank: Rank) -> Vec<Self::Transport> {
        join(&job.unjoined, rank)
    }
}

fn job(ranks: u32, needs: &Needs, config: LoopbackConfig) -> Job {
    let mut all = network(ranks, config).into_iter();
    let unjoined = (0..ranks).map(|_| all.by_ref().take(usize::from(needs.endpoints)).collect());
    Job { unjoined: Mutex::new(unjoined.collect()) }
}

impl Fabric for Loopback {
    type Transport = am_core::loopback::Loopback;
    type Job = Job;

    fn name(&self) -> String {
        "loopback".into()
    }

    fn create(&self, ranks: u32, needs: &Needs) -> Job {
        job(ranks, needs, config(needs))
    }

    fn join(&self, job: &Job, rank: Rank) -> Vec<Self::Transport> {
        join(&job.unjoined, rank)
    }
}

/// The sizes that a case needs.
pub(crate) fn config(needs: &Needs) -> LoopbackConfig {
    let endpoints = needs.endpoints;
    match needs.buffers {
        Buffers::Default => LoopbackConfig::default().endpoints(endpoints),
        // Without a look at each other's memory, so that the suite sees both kinds.
        Buffers::Smallest => LoopbackConfig::default().requests(1).replies(1).endpoints(endpoints).direct(false),
    }
}

/// Takes the transports of a rank that joins.
pub(crate) fn join<T>(unjoined: &Mutex<Vec<Vec<T>>>, rank: Rank) -> Vec<T> {
    let mut unjoined = unjoined.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::take(&mut unjoined[rank.0 as usize])
}
