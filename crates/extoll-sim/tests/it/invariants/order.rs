//! Rule 1: VELO is in order for each pair; nothing orders VELO and RMA. Rule 4: the tail of a put comes last.

use super::{holds, pattern, run};
use extoll_sim::nic::HostMemory;
use extoll_sim::nic::mutation::Mutation;
use extoll_sim::nic::rma::{Access, Notify};
use extoll_sim::{AdversarialTiming, ExtollConfig, Nic};
use fabric_sim::{Faults, Topology, WaitFor};

/// Every rank sends numbered messages to every other; each pair's arrive in order.
fn all_to_all(nic: &Nic<'_>, each: u32) {
    let velo = nic.velo();
    velo.open().unwrap();
    let others: Vec<u32> = (0..nic.ranks()).filter(|rank| *rank != nic.rank()).collect();
    let peers: Vec<_> = others.iter().map(|rank| velo.connect(nic.address(*rank).unwrap()).unwrap()).collect();
    let mut next = vec![0; nic.ranks() as usize];
    for number in 0..each {
        for (index, peer) in peers.iter().enumerate() {
            let len = (number as usize * 13 + index) % 61 + 4;
            let mut message = pattern(number, len);
            message[..4].copy_from_slice(&number.to_le_bytes());
            velo.send(*peer, &message, number as u8, (number % 4) as u8).unwrap();
        }
    }
    for _ in 0..each as usize * others.len() {
        let message = velo.recv(None).unwrap();
        let from = nic.rank_at(message.from).unwrap() as usize;
        let number = u32::from_le_bytes(message.data()[..4].try_into().unwrap());
        assert_eq!(number, next[from], "messages from rank {from} are in order");
        assert_eq!((message.tag, message.mtt), (number as u8, (number % 4) as u8));
        assert_eq!(message.data()[4..], pattern(number, message.data().len())[4..]);
        next[from] += 1;
    }
}

#[test]
fn velo_keeps_the_order_of_each_pair() {
    for jitter_ns in [0.0, 5_000.0] {
        let config = ExtollConfig {
            ranks_per_node: 2,
            adversary: AdversarialTiming { jitter_ns, ..AdversarialTiming::default() },
            faults: Faults { seed: 11, delay: 0.1, delay_ns: 3_000.0, ..Faults::default() },
            ..ExtollConfig::new(8, Topology::Torus { dims: vec![2, 2] })
        };
        holds(&config, Mutation::SwapPackets, |nic| all_to_all(&nic, 50));
    }
}

/// Posts a put, then sends a message; returns whether the message was seen before the put had completed.
fn message_overtakes(config: &ExtollConfig, bytes: u32) -> bool {
    let report = run(config, move |nic| {
        let (velo, rma, memory) = (nic.velo(), nic.rma(), HostMemory::new(1 << 20));
        velo.open().unwrap();
        rma.open().unwrap();
        let region = rma.register(&memory, 0, 1 << 20, Access::ReadWrite).unwrap();
        let other = nic.address(1 - nic.rank()).unwrap();
        if nic.rank() == 0 {
            let (page, peer) = (rma.connect(other).unwrap(), velo.connect(other).unwrap());
            rma.post_put_bt(page, region, 0, bytes, rma.nla(region, 0).unwrap(), Notify::COMPLETER).unwrap();
            velo.send(peer, b"after the put", 0, 0).unwrap();
            return false;
        }
        velo.recv(None).unwrap();
        let overtaken = rma.noti_probe().is_err();
        if overtaken {
            let came = rma.noti_get_block(None).unwrap();
            rma.noti_free(came).unwrap();
        }
        overtaken
    });
    report.unwrap().results[1].unwrap()
}

#[test]
fn nothing_orders_velo_and_rma() {
    assert!(message_overtakes(&ExtollConfig::pair(), 65_536), "a message overtakes a long put");
    let orders: Vec<bool> = (0..20)
        .map(|seed| {
            let adversary = AdversarialTiming { jitter_ns: 20_000.0, ..AdversarialTiming::default() };
            let faults = Faults { seed, ..Faults::default() };
            message_overtakes(&ExtollConfig { adversary, faults, ..ExtollConfig::pair() }, 8)
        })
        .collect();
    assert!(orders.contains(&true) && orders.contains(&false), "short ones come in either order: {orders:?}");
}

/// A process that looks at the last word of a put sees the whole put once it sees that.
fn tail_is_last(nic: &Nic<'_>, words: usize) {
    let (rma, memory) = (nic.rma(), HostMemory::new(words * 8));
    rma.open().unwrap();
    let region = rma.register(&memory, 0, words as u64 * 8, Access::ReadWrite).unwrap();
    if nic.rank() == 0 {
        let peer = rma.connect(nic.address(1).unwrap()).unwrap();
        (0..words).for_each(|word| memory.write(word * 8, &(word as u64 + 1).to_le_bytes()));
        let to = rma.nla(region, 0).unwrap();
        rma.post_put_qw(peer, region, 0, words as u32 * 8, to, Notify::NONE).unwrap();
        // The source stays until it has been read.
        nic.idle(Some(nic.now() + am_core::Span::from_micros(1_000)), WaitFor::Named("the end"));
        return;
    }
    while memory.word((words - 1) * 8) == 0 {
        nic.charge_empty_poll();
        nic.sync();
    }
    for word in 0..words {
        assert_eq!(memory.word(word * 8), word as u64 + 1, "word {word} of {words} is there with the tail");
    }
}

#[test]
fn the_tail_of_a_put_comes_last() {
    for words in [9, 16, 64, 512, 4096] {
        holds(&ExtollConfig::pair(), Mutation::TailEarly, move |nic| tail_is_last(&nic, words));
    }
}
