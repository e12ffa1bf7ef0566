//! Counters and histograms of every method, if the settings ask for them.

use crate::meter::{End, Party};
use crate::metrics::{LONGEST, Latency, MethodMetrics, Metrics, Outcomes, SideMetrics, histogram};
use am_core::{Instant, Rank};
use hdrhistogram::Histogram;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// When a call was first seen, once it was.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen(Option<Instant>);

impl Seen {
    pub(crate) fn at(&mut self, now: Instant) {
        self.0 = Some(now);
    }
}

/// Counts, if there is something to count in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter(Option<Arc<Gauges>>);

#[derive(Debug)]
struct Gauges {
    names: Vec<String>,
    /// Of each method, both sides.
    methods: Vec<[Mutex<Gauge>; 2]>,
    /// Calls that have ended since the time was known.
    ended: Mutex<Vec<Ended>>,
    /// Whether there are any. Relaxed: whoever adds one has the endpoint look again.
    any: AtomicBool,
    rank: AtomicU32,
}

#[derive(Clone, Debug)]
struct Gauge {
    begun: u64,
    ends: [u64; End::COUNT],
    busy: u64,
    request_bytes: u64,
    answer_bytes: u64,
    latency: Histogram<u64>,
    total: Duration,
}

#[derive(Debug)]
struct Ended {
    party: Party,
    method: u16,
    seen: Instant,
}

impl Gauge {
    fn new() -> Self {
        Self {
            begun: 0,
            ends: [0; End::COUNT],
            busy: 0,
            request_bytes: 0,
            answer_bytes: 0,
            latency: histogram(),
            total: Duration::ZERO,
        }
    }

    fn snapshot(&self) -> SideMetrics {
        let Self { begun, ends, busy, request_bytes, answer_bytes, ref latency, total } = *self;
        let end = |end: End| ends[end as usize];
        let outcomes = Outcomes {
            answered: end(End::Answered),
            one_way: end(End::OneWay),
            failed: end(End::Failed),
            panicked: end(End::Panicked),
            refused: end(End::Refused),
            too_large: end(End::TooLarge),
            malformed: end(End::Malformed),
            timed_out: end(End::TimedOut),
            cancelled: end(End::Cancelled),
            lost: end(End::Lost),
            closed: end(End::Closed),
        };
        let latency = Latency::of(latency, total);
        let in_flight = begun.saturating_sub(outcomes.total());
        SideMetrics { calls: begun, in_flight, busy, outcomes, request_bytes, answer_bytes, latency }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lock_and_copy(gauge: &Mutex<Gauge>) -> Gauge {
    lock(gauge).clone()
}

impl Meter {
    /// Counts of methods with these names. Allocates.
    pub(crate) fn new(names: Vec<String>) -> Self {
        let methods = names.iter().map(|_| [Mutex::new(Gauge::new()), Mutex::new(Gauge::new())]).collect();
        let (ended, any, rank) = (Mutex::default(), AtomicBool::new(false), AtomicU32::new(0));
        Self(Some(Arc::new(Gauges { names, methods, ended, any, rank })))
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    fn with(&self, party: Party, method: u16, count: impl FnOnce(&mut Gauge)) {
        if let Some(gauges) = &self.0
            && let Some(sides) = gauges.methods.get(usize::from(method))
        {
            count(&mut lock(&sides[party as usize]));
        }
    }

    /// Whether calls have ended of which only the time is missing.
    #[inline]
    pub(crate) fn waits(&self) -> bool {
        self.0.as_ref().is_some_and(|gauges| gauges.any.load(Ordering::Relaxed))
    }

    /// The endpoint is of this rank.
    #[inline]
    pub(crate) fn is_at(&self, rank: Rank) {
        if let Some(gauges) = &self.0 {
            gauges.rank.store(rank.0, Ordering::Relaxed);
        }
    }

    /// Counts the latencies of those that have ended since this was last called.
    pub(crate) fn settle(&self, now: Instant) {
        let Some(gauges) = &self.0 else { return };
        gauges.any.store(false, Ordering::Relaxed);
        for Ended { party, method, seen } in lock(&gauges.ended).drain(..) {
            let latency = Duration::from(now - seen);
            self.with(party, method, |gauge| {
                gauge.latency.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(LONGEST));
                gauge.total += latency;
            });
        }
    }

    /// A call was made, or a request has come.
    #[inline]
    pub(crate) fn begun(&self, party: Party, method: u16, bytes: usize) {
        self.with(party, method, |gauge| {
            gauge.begun += 1;
            gauge.request_bytes += bytes as u64;
        });
    }

    /// A call was not made, since it would have had to wait.
    pub(crate) fn busy(&self, method: u16) {
        self.with(Party::Caller, method, |gauge| gauge.busy += 1);
    }

    /// Bytes of answers beside a call's last one.
    pub(crate) fn answer_bytes(&self, party: Party, method: u16, bytes: u64) {
        self.with(party, method, |gauge| gauge.answer_bytes += bytes);
    }

    /// A call has ended.
    #[inline]
    pub(crate) fn ended(&self, party: Party, method: u16, end: impl FnOnce() -> End, bytes: usize, seen: Seen) {
        let Some(gauges) = &self.0 else { return };
        self.with(party, method, |gauge| {
            let end = end();
            gauge.ends[end as usize] += 1;
            gauge.answer_bytes += if matches!(end, End::Answered | End::Failed) { bytes as u64 } else { 0 };
        });
        if let Some(seen) = seen.0 {
            lock(&gauges.ended).push(Ended { party, method, seen });
            gauges.any.store(true, Ordering::Relaxed);
        }
    }

    /// A call of this rank that has ended so has ended otherwise: its caller has made nothing of the answer.
    #[cold]
    pub(crate) fn recount(&self, method: u16, from: End, to: End) {
        self.with(Party::Caller, method, |gauge| {
            let counted = &mut gauge.ends[from as usize];
            if *counted > 0 {
                *counted -= 1;
                gauge.ends[to as usize] += 1;
            }
        });
    }

    /// All that was counted. Allocates.
    pub(crate) fn snapshot(&self) -> Option<Metrics> {
        let gauges = self.0.as_ref()?;
        let methods = gauges.names.iter().zip(&gauges.methods).map(|(name, [caller, callee])| MethodMetrics {
            name: name.clone(),
            // A copy, so that calls do not wait while quantiles are looked for.
            caller: lock_and_copy(caller).snapshot(),
            callee: lock_and_copy(callee).snapshot(),
        });
        let rank = gauges.rank.load(Ordering::Relaxed);
        Some(Metrics { rank, ranks: 1, methods: methods.collect() })
    }
}
