//! Rule 7: an event queue that loses events says so, whatever becomes of the program.

use super::holds;
use portals_sim::nic::HostMemory;
use portals_sim::nic::mutation::Mutation;
use portals_sim::nic::p3::{Ack, Criteria, Md, Options, P3Error, Position, Unlink};
use portals_sim::{Nic, PortalsConfig};

/// More messages than the queue has room for: the first are there, the loss is told with the next look, and
/// everything that comes later is in order again.
fn too_small_a_queue(nic: &Nic<'_>) {
    let (p3, memory) = (nic.p3(), HostMemory::new(64));
    p3.init().unwrap();
    let eq = p3.eq_alloc(4).unwrap();
    let me = p3.me_attach(0, Criteria::bits(0, 0), Unlink::Retain, Position::After).unwrap();
    let options = Options::OP_PUT | Options::MANAGE_REMOTE | Options::EVENT_START_DISABLE;
    let mut md = Md { eq: Some(eq), ..Md::new(&memory, options) };
    p3.md_attach(me, &md, Unlink::Retain).unwrap();
    md.eq = None;
    let source = p3.md_bind(&md, Unlink::Retain).unwrap();
    nic.launched();
    let put = |number| p3.put(source, 0, 8, Ack::None, nic.id(1).unwrap(), 0, 0, 0, number).unwrap();
    let pause = || {
        let until = nic.now() + am_core::Span::from_micros(200);
        while nic.now() < until {
            p3.idle(&[], Some(until), fabric_sim::WaitFor::Named("the other rank")).unwrap();
        }
    };
    if nic.rank() == 0 {
        (0..10).for_each(put);
        pause();
        pause();
        put(10);
        return;
    }
    pause();
    match p3.eq_get(eq) {
        Err(error @ P3Error::EqDropped { event, lost }) => {
            assert_eq!((event.hdr_data, lost, error.code()), (0, 6, "PTL_EQ_DROPPED"));
        }
        other => panic!("the loss of six events is told as {other:?}"),
    }
    for number in 1..4 {
        assert_eq!(p3.eq_get(eq).unwrap().hdr_data, number);
    }
    assert_eq!(p3.eq_get(eq), Err(P3Error::EqEmpty));
    assert_eq!(p3.eq_wait(eq, None).unwrap().hdr_data, 10);
    assert_eq!((p3.status().unwrap().events_lost, p3.status().unwrap().dropped), (6, 0));
}

#[test]
fn a_loss_of_events_is_told() {
    holds(&PortalsConfig::pair(), Mutation::HideLostEvents, |nic| too_small_a_queue(&nic));
}
