//! Requests of callers that a test plays by hand.

use super::*;
use crate::error::Failure;
use crate::method::Method;
use crate::shared::Shared;
use am_core::Rank;

const FROM: Address = Address::new(Rank(3), 0);

struct Played {
    server: Server<u64>,
    environment: Arc<Environment<u64>>,
    world: u64,
    method: Method<u64, u64>,
    room: Arc<Room>,
}

impl Played {
    fn new(config: CallConfig, ordered: bool) -> Self {
        let mut methods = Methods::<u64>::new();
        let method = methods.function("add", |total: &mut u64, _, number: u64| {
            *total += number;
            Ok::<u64, Failure>(*total)
        });
        let room = Arc::new(Room::new(config.receive_bytes));
        let shared = Arc::new(Shared::new(config, vec![], &room, Meter::default(), Tracer::default()));
        let mut server = Server::new(
            methods,
            config,
            Ready::new(&shared.bell),
            Arc::clone(&room),
            Meter::default(),
            Tracer::default(),
        );
        server.set_network(1000, ordered);
        let environment = Arc::new(Environment::new(shared));
        Self { server, environment, world: 0, method: method.unwrap(), room }
    }

    fn request(&mut self, flags: u16, call: u64, long: u32, request: &[u8]) -> Taken {
        let header = Header::new(self.method.id, flags);
        let arrived = Arrived { from: FROM, peer: 1, call, header, left: None, long, window: 0 };
        self.server.request(&mut self.world, &self.environment, arrived, request, &mut Vec::new())
    }
}

#[test]
fn an_early_cancellation_spares_one_way_calls() {
    let mut played = Played::new(CallConfig::new(), false);
    // The first call of a rank has the number 0, and overtakes nothing but itself.
    played.server.cancel(1, 0);
    assert!(matches!(played.request(Header::ONE_WAY, 0, 0, &[5]), Taken::Answered(_)));
    assert_eq!(played.world, 5);
    assert!(matches!(played.request(0, 0, 0, &[6]), Taken::Forgotten));
    assert!(matches!(played.request(0, 0, 0, &[7]), Taken::Answered(_)));
    assert_eq!(played.world, 12);
}

#[test]
fn requests_that_no_longer_wait_for_room_leave_nothing() {
    let mut played = Played::new(CallConfig::new().receive_bytes(100), true);
    for call in 0..100 {
        assert!(matches!(played.request(Header::LONG, call, 80, &[]), Taken::Later(_)));
    }
    assert_eq!((played.room.waiting(), played.room.used()), (99, 80));
    for call in 1..99 {
        played.server.cancel(1, call);
    }
    assert_eq!((played.room.waiting(), played.server.grants.len()), (1, 1));
    // What the first gives back goes to the last.
    played.server.cancel(1, 0);
    assert!(played.room.take_freed() && played.server.make_room());
    played.server.cancel(1, 99);
    assert_eq!((played.room.waiting(), played.room.used(), played.server.answering()), (0, 0, 0));
}

#[test]
fn a_faulty_caller_gives_its_room_back() {
    let mut played = Played::new(CallConfig::new().receive_bytes(100), true);
    let Taken::Later(first) = played.request(Header::LONG, 1, 80, &[]) else { panic!("it is announced") };
    let Taken::Later(second) = played.request(Header::LONG, 2, 80, &[]) else { panic!("it is announced") };
    let part = (first, 70, 20);
    played.server.part(&mut played.world, &played.environment, FROM, part, |_| unreachable!());
    assert!(played.room.take_freed() && played.server.make_room());
    assert!(matches!(played.server.tasks.get(second).unwrap().phase, Phase::Receiving { .. }));
}

/// Counted in bytes, it would have come whole, with 40 bytes that were another caller's.
#[test]
fn a_part_that_comes_twice_ends_its_call() {
    let mut played = Played::new(CallConfig::new().receive_bytes(100), true);
    let Taken::Later(call) = played.request(Header::LONG, 1, 80, &[]) else { panic!("it is announced") };
    let Played { server, world, environment, .. } = &mut played;
    server.part(world, environment, FROM, (call, 0, 40), |bytes| bytes.fill(1));
    server.part(world, environment, FROM, (call, 0, 40), |_| unreachable!());
    let task = server.tasks.get(call).unwrap();
    let Phase::Answering { verdict } = task.phase else { panic!("it has ended") };
    assert_eq!((verdict.status, played.room.used()), (Status::BadRequest, 0));
}

#[test]
fn only_a_rank_itself_speaks_for_others() {
    let mut played = Played::new(CallConfig::new().tasks(1), true);
    let request = [0, 0, 9, 0, 0, 0, 0, 0, 5];
    let refused = |taken| matches!(taken, Taken::Answered(Verdict { status: Status::BadRequest, .. }));
    for me in [None, Some(Address::new(Rank(4), 0))] {
        played.server.me = me;
        assert!(refused(played.request(Header::ON_BEHALF, 1, 0, &request)));
        assert!(refused(played.request(Header::ON_BEHALF | Header::LONG, 1, 80, &[])));
    }
    played.server.me = Some(FROM);
    assert!(!refused(played.request(Header::ON_BEHALF, 1, 0, &request)));
    assert_eq!((played.world, played.server.answering()), (5, 0));
}

/// The request that they came with is counted until they have ended.
#[test]
fn requests_on_behalf_of_others_count_once() {
    let mut played = Played::new(CallConfig::new().tasks(1), true);
    played.server.me = Some(FROM);
    assert!(matches!(played.request(Header::LONG, 1, 80, &[]), Taken::Later(_)));
    for call in 2..5 {
        assert!(matches!(played.request(Header::ON_BEHALF | Header::LONG, call, 80, &[]), Taken::Later(_)));
    }
    let refused = |taken| matches!(taken, Taken::Answered(Verdict { status: Status::RefusedTasks, .. }));
    assert!(refused(played.request(Header::LONG, 9, 80, &[])));
    played.server.cancel(1, 1);
    assert!(matches!(played.request(Header::LONG, 9, 80, &[]), Taken::Later(_)));
    [2, 3, 4, 9].into_iter().for_each(|call| played.server.cancel(1, call));
    assert_eq!((played.server.answering(), played.server.on_behalf, played.room.used()), (0, 0, 0));
}
