//! Auxiliary segments: who waits for a change of memory sleeps, and the one who makes the change ends that.

use am_core::layer::Progress;
use am_core::{AnyMemory, Endpoint, Handlers, Membership, Peer, Rank, Segment, Span, Transport};
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Duration;
use transport_shm::{Job, JobConfig, Shm};

/// What a rank waits for: the other's word.
struct Watcher {
    theirs: Segment<AnyMemory>,
    seen: u64,
    awaited: u64,
}

fn word(of: &Segment<AnyMemory>) -> u64 {
    // Acquire: pairs with the Release in `tell`.
    of.words()[5].load(Acquire)
}

fn tell(endpoint: &mut Endpoint<Shm, Watcher>, own: &Segment<AnyMemory>, value: u64) {
    // Release: pairs with the Acquire in `word`.
    own.words()[5].store(value, Release);
    let other = Rank(1 - endpoint.rank().0);
    endpoint.wake_peer(other);
}

fn wait(endpoint: &mut Endpoint<Shm, Watcher>, value: u64) {
    endpoint.layer_mut::<Watcher>().awaited = value;
    endpoint.wait_until(|watcher| watcher.seen >= value).unwrap();
}

fn play(mut shm: Shm, sleeps: bool) {
    // It never looks for itself within the time-out.
    shm.set_longest_sleep(Duration::from_secs(3600));
    let me = shm.shape().address(shm.local_peer()).rank;
    let own = shm.auxiliary(Peer(me.0)).unwrap();
    let theirs = shm.auxiliary(Peer(1 - me.0)).unwrap();
    let mut handlers = Handlers::<Watcher>::new();
    let mut layer = handlers.layer::<Watcher>("watcher").unwrap();
    layer.progress(|watcher, _| {
        watcher.seen = word(&watcher.theirs);
        Ok(Progress::Watching)
    });
    layer.changed(|watcher| word(&watcher.theirs) >= watcher.awaited);
    let mut endpoint = Endpoint::attach(shm, handlers, Watcher { theirs, seen: 0, awaited: 0 }).unwrap();
    endpoint.set_timeout(Some(Span::from_secs(60)));
    for value in 1..200 {
        if sleeps {
            // The other is asleep by then, most of the time.
            std::thread::sleep(Duration::from_millis(value % 3));
            tell(&mut endpoint, &own, value);
            wait(&mut endpoint, value);
        } else {
            wait(&mut endpoint, value);
            tell(&mut endpoint, &own, value);
        }
    }
    // What a layer watches holds nothing up.
    endpoint.finish().unwrap();
}

#[test]
fn changes_end_sleeps() {
    let job = Job::create(&JobConfig::new(2)).unwrap();
    let [first, second] = [0, 1].map(|rank| job.join(rank).unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| play(first, false));
        scope.spawn(|| play(second, true));
    });
}
