//! What messages allocate: nothing, once buffers have been used.

use am_conformance::allocations;
use am_core::loopback::{LoopbackConfig, network};
use am_core::{Endpoint, Handlers};
use am_p2p::{ANY_SOURCE, ANY_TAG, Communicator, P2p, Source, Tag};

#[test]
fn messages_reuse_buffers() {
    let transport = network(1, LoopbackConfig::default()).remove(0);
    let mut handlers = Handlers::new();
    let p2p = P2p::register(&mut handlers).unwrap();
    let mut endpoint = Endpoint::attach(transport, handlers, p2p).unwrap();
    let world = Communicator::world(&mut endpoint).unwrap();
    let mut messages = |count: u32, len: usize| {
        let (out, mut into) = ([7u8; 4096], [0u8; 4096]);
        for number in 0..count {
            let wild = number % 3 == 0;
            let (source, tag): (Source, Tag) = if wild { (ANY_SOURCE, ANY_TAG) } else { (0.into(), 5.into()) };
            if number % 2 == 0 {
                // Sent before it is asked for.
                world.send(&mut endpoint, 0, 5, &out[..len]).unwrap();
                world.receive_into(&mut endpoint, source, tag, &mut into[..len]).unwrap();
            } else {
                let to = (0, 5);
                world.send_receive_into(&mut endpoint, to, &out[..len], (source, tag), &mut into[..len]).unwrap();
            }
            assert_eq!(into[..len], out[..len]);
        }
    };
    for len in [0, 8, 64, 4096] {
        messages(600, len);
        let before = allocations();
        messages(1000, len);
        assert_eq!(allocations() - before, 0, "messages of {len} bytes");
    }
    endpoint.finish().unwrap();
}
