//! What keeps pscom's own messages beside `am-p2p`'s: over active messages on the same engine, which carry more
//! bytes of their own, messages of some sizes take longer than was published for pscom, and none less.

use am_core::{Endpoint, Handlers};
use am_p2p::{Communicator, P2p};
use extoll_sim::ExtollConfig;
use extoll_sim::conduit::pscom::{Plugin, Pscom, PscomConfig, imb, run};
use extoll_sim::model::Parameters;

const SIZES: [usize; 6] = [8, 32, 64, 512, 1024, 16 << 10];

/// The machine on which pscom was measured, at each of whose two nodes is a rank.
fn deep() -> ExtollConfig {
    ExtollConfig { parameters: Parameters::deep(), ..ExtollConfig::pair() }
}

/// Half the time of a round trip in microseconds, for each size, with the handlers of `am-p2p`.
fn over_active_messages(transport: Pscom<'_>) -> Vec<f64> {
    let mut handlers = Handlers::<P2p>::new();
    let p2p = P2p::register(&mut handlers).unwrap();
    let mut endpoint = Endpoint::attach(transport, handlers, p2p).unwrap();
    let world = Communicator::world(&mut endpoint).unwrap();
    let other = 1 - world.rank();
    let mut times = Vec::new();
    for size in SIZES {
        let mut bytes = vec![0x5a_u8; size];
        let (warm_up, timed) = (2, 10);
        let mut began = endpoint.now();
        for trip in 0..warm_up + timed {
            if trip == warm_up {
                began = endpoint.now();
            }
            if world.rank() == 0 {
                world.send(&mut endpoint, other, 0, &bytes).unwrap();
                world.receive_into(&mut endpoint, other, 0, &mut bytes).unwrap();
            } else {
                world.receive_into(&mut endpoint, other, 0, &mut bytes).unwrap();
                world.send(&mut endpoint, other, 0, &bytes).unwrap();
            }
        }
        times.push(endpoint.now().since(began).0 as f64 / 1e6 / 2.0 / f64::from(timed));
    }
    endpoint.finish().unwrap();
    times
}

#[test]
fn am_p2p_costs_more_than_was_published() {
    let mut more = 0;
    for plugin in [Plugin::Velo, Plugin::Rma] {
        let pscom = PscomConfig { plugin, ..PscomConfig::default() };
        let own = imb::ping_pong(&deep(), &pscom, plugin, &SIZES).unwrap();
        let machine = ExtollConfig { ranks: 2, ranks_per_node: 1, ..deep() };
        let report = run(&machine, &pscom, over_active_messages).unwrap();
        let over = report.results[0].clone().expect("rank 0 has ended well");
        for ((size, own), over) in own.into_iter().zip(over) {
            println!("{plugin:?}, {size} bytes: {own:.2} us by pscom's messages, {over:.2} us by am-p2p");
            // Where both take as many packets or slots, their times are the same to rounding.
            assert!(over > own - 1e-3, "{plugin:?}, {size} bytes: {own} and {over}");
            more += u32::from(over > own + 0.1);
        }
    }
    assert!(more > 0, "nothing takes longer");
}
