//! The bank by itself: one test per rule, with peers played by hand.

use super::*;

const A: Peer = Peer(0);
const B: Peer = Peer(1);
const C: Peer = Peer(2);

/// Three peers with 6 of 20 credits each, 2 in the bank; requests cost up to 2, minimal loan 2.
fn config() -> LoanConfig {
    let mut config = LoanConfig::new(3, 20, 2);
    (config.initial, config.max_ask, config.max_return) = (6, 4, 4);
    (config.epoch, config.revoke_limit) = (10, 3);
    config
}

fn bank() -> Bank {
    Bank::new(&config()).unwrap()
}

fn charge(cost: u32, ask: u32) -> CreditUse {
    CreditUse { cost, ask }
}

fn give(credits: u32, granted: u32) -> CreditReturn {
    CreditReturn { credits, granted, end_of_epoch: false }
}

fn loan(bank: &Bank, peer: Peer) -> u32 {
    bank.loan(peer).unwrap().loan
}

/// Sends all revocations that wait.
fn victims(bank: &mut Bank) -> Vec<Peer> {
    std::iter::from_fn(|| bank.next_revocation()).map(|(peer, _)| peer).collect()
}

/// Receives and serves `n` requests of one credit.
fn serve(bank: &mut Bank, peer: Peer, n: u32) {
    for _ in 0..n {
        bank.arrive(peer, charge(1, 0)).unwrap();
        bank.release(peer, 1).unwrap();
        let _ = bank.settle(peer).unwrap();
    }
}

#[test]
fn an_answer_returns_what_its_fields_hold() {
    let mut bank = bank();
    for _ in 0..3 {
        bank.arrive(A, charge(2, 0)).unwrap();
        bank.release(A, 2).unwrap();
    }
    assert_eq!([(); 3].map(|()| bank.settle(A)), [Ok(give(4, 0)), Ok(give(2, 0)), Ok(give(0, 0))]);
}

#[test]
fn an_ask_is_granted_within_bank_cap_and_lending_limit() {
    let grants = |change: fn(&mut LoanConfig)| {
        let mut config = config();
        config.initial = 2;
        change(&mut config);
        let mut bank = Bank::new(&config).unwrap();
        bank.arrive(A, charge(1, 4)).unwrap();
        let snapshot = bank.loan(A).unwrap();
        assert_eq!(bank.banked() + snapshot.loan + 2 * config.initial, 20);
        snapshot.granted
    };
    assert_eq!(grants(|_| ()), 4);
    assert_eq!(grants(|c| c.loan_cap = 6), 4);
    assert_eq!(grants(|c| c.loan_cap = 5), 0, "in full or not at all");
    assert_eq!(grants(|c| c.lend_limit = 3), 0);
    assert_eq!(grants(|c| c.initial = 6), 0, "two are banked");
}

#[test]
fn the_lending_limit_decays_with_the_epochs() {
    let mut config = config();
    (config.initial, config.lend_limit) = (2, 4);
    let mut bank = Bank::new(&config).unwrap();
    bank.arrive(A, charge(1, 4)).unwrap();
    assert_eq!(bank.settle(A), Ok(give(0, 4)));
    bank.arrive(A, charge(1, 1)).unwrap();
    assert_eq!(loan(&bank, A), 6);
    serve(&mut bank, B, 8);
    bank.arrive(A, charge(1, 4)).unwrap();
    assert_eq!(loan(&bank, A), 6, "a quarter of the four lent in the last epoch still counts");
    bank.arrive(A, charge(1, 3)).unwrap();
    assert_eq!(loan(&bank, A), 9);
}

#[test]
fn a_small_surrender_answers_the_revocation() {
    let mut bank = bank();
    bank.arrive(A, charge(1, 3)).unwrap();
    assert_eq!(bank.next_revocation().map(|(peer, revoke)| (peer, revoke.limit)), Some((B, 3)));
    bank.surrendered(B, Surrender { credits: 1 }).unwrap();
    assert_eq!((bank.revoking, bank.banked()), (0, 3));
    bank.arrive(A, charge(1, 4)).unwrap();
    assert_eq!(victims(&mut bank), [C], "what is missing is sought elsewhere");
}

#[test]
fn a_refusal_protects_from_revocation() {
    let mut bank = bank();
    bank.arrive(B, charge(1, 4)).unwrap();
    assert_eq!(victims(&mut bank), [A, C]);
    for peer in [A, C] {
        bank.surrendered(peer, Surrender { credits: 0 }).unwrap();
    }
    for (epoch, wanted) in [(1, &[C][..]), (2, &[B, C])] {
        serve(&mut bank, A, 10);
        assert_eq!(bank.epoch(), epoch);
        bank.arrive(A, charge(1, 4)).unwrap();
        assert_eq!(victims(&mut bank), wanted);
        if epoch == 1 {
            bank.surrendered(C, Surrender { credits: 0 }).unwrap();
        }
    }
}

#[test]
fn nothing_is_revoked_from_the_busy_or_poor() {
    let mut config = config();
    (config.me, config.revoke_limit, config.peers, config.total) = (Some(B), 10, 5, 30);
    let mut bank = Bank::new(&config).unwrap();
    let (busy, poor) = (Peer(3), Peer(4));
    for _ in 0..2 {
        bank.arrive(busy, charge(2, 0)).unwrap();
    }
    // The poor peer comes down to the minimum; what was given up is lent to A.
    bank.arrive(A, charge(1, 4)).unwrap();
    let victims: Vec<_> = std::iter::from_fn(|| bank.next_revocation()).collect();
    assert_eq!(victims, [(C, Revoke { limit: 4, end_of_epoch: false })]);
    bank.arrive(A, charge(1, 4)).unwrap();
    bank.surrendered(C, Surrender { credits: 4 }).unwrap();
    bank.arrive(A, charge(1, 4)).unwrap();
    assert_eq!(bank.settle(A), Ok(give(0, 4)));
    bank.arrive(A, charge(1, 4)).unwrap();
    let victims: Vec<_> = std::iter::from_fn(|| bank.next_revocation()).collect();
    assert_eq!(
        victims,
        [(busy, Revoke { limit: 2, end_of_epoch: false }), (poor, Revoke { limit: 4, end_of_epoch: false })]
    );
    bank.surrendered(busy, Surrender { credits: 0 }).unwrap();
    bank.surrendered(poor, Surrender { credits: 4 }).unwrap();
    bank.arrive(A, charge(1, 4)).unwrap();
    bank.arrive(A, charge(1, 4)).unwrap();
    assert_eq!(
        bank.next_revocation(),
        None,
        "C and poor are at the minimum, busy was spared, A was refused, B owns"
    );
    assert_eq!(loan(&bank, B), 6);
}

#[test]
fn an_ask_cancels_a_revocation_that_waits() {
    let mut bank = bank();
    bank.arrive(A, charge(1, 4)).unwrap();
    bank.arrive(B, charge(1, 3)).unwrap();
    assert_eq!(victims(&mut bank), [C], "B asked before its revocation had left");
    bank.arrive(C, charge(1, 4)).unwrap();
    bank.surrendered(C, Surrender { credits: 3 }).unwrap();
    assert_eq!([A, B, C].map(|peer| loan(&bank, peer)), [6, 6, 3]);
    assert_eq!((bank.banked(), bank.revoking), (5, 0));
}

#[test]
fn a_revocation_of_a_lost_peer_is_dropped() {
    let mut bank = bank();
    bank.arrive(A, charge(1, 4)).unwrap();
    bank.lose(B).unwrap();
    assert_eq!(victims(&mut bank), [C]);
    assert_eq!((bank.revoking, bank.loan(B).unwrap().revoking), (3, 0));
}

#[test]
fn a_refused_ask_looks_at_a_bounded_number_of_peers() {
    let mut config = LoanConfig::new(1000, 6000, 1);
    (config.initial, config.revoke_scan, config.revoke_peers, config.max_ask) = (6, 10, 2, 100);
    let mut bank = Bank::new(&config).unwrap();
    bank.arrive(A, charge(1, 100)).unwrap();
    assert_eq!(std::iter::from_fn(|| bank.next_revocation()).map(|(peer, _)| peer.0).collect::<Vec<_>>(), [1, 2]);
    bank.arrive(A, charge(1, 100)).unwrap();
    assert_eq!(std::iter::from_fn(|| bank.next_revocation()).map(|(peer, _)| peer.0).collect::<Vec<_>>(), [3, 4]);
    bank.config.revoke_peers = 100;
    bank.arrive(A, charge(1, 100)).unwrap();
    assert_eq!(std::iter::from_fn(|| bank.next_revocation()).count(), 10);
}

#[test]
fn the_end_of_an_epoch_is_told_once_and_decays_the_maximum() {
    let mut bank = bank();
    for _ in 0..3 {
        bank.arrive(A, charge(2, 0)).unwrap();
    }
    bank.release(A, 6).unwrap();
    assert_eq!(bank.loan(A).unwrap().recent_maximum, 6);
    serve(&mut bank, B, 6);
    assert!(!bank.settle(A).unwrap().end_of_epoch);
    serve(&mut bank, B, 1);
    assert_eq!(bank.loan(A).unwrap().recent_maximum, 1);
    assert!(bank.settle(A).unwrap().end_of_epoch);
    assert!(!bank.settle(A).unwrap().end_of_epoch);
}

#[test]
fn faulty_peers_are_refused_and_change_nothing() {
    let mut bank = bank();
    let unknown = PeerError::Unknown { peer: Peer(3), peers: 3 };
    bank.arrive(A, charge(2, 0)).unwrap();
    bank.arrive(A, charge(2, 0)).unwrap();
    bank.arrive(A, charge(1, 0)).unwrap();
    let before = bank.clone();
    let refused = [
        (A, charge(0, 1), ArriveError::CostOutOfRange { peer: A, cost: 0, max_cost: 2 }),
        (A, charge(3, 1), ArriveError::CostOutOfRange { peer: A, cost: 3, max_cost: 2 }),
        (A, charge(1, 5), ArriveError::AskOutOfRange { peer: A, ask: 5, max_ask: 4 }),
        (A, charge(2, 1), ArriveError::Overdraft { peer: A, cost: 2, held: 1 }),
        (Peer(3), charge(1, 0), ArriveError::Peer(unknown)),
    ];
    for (peer, charge, error) in refused {
        assert_eq!(bank.arrive(peer, charge), Err(error));
    }
    assert_eq!(bank.release(A, 6), Err(ReleaseError::Excess { peer: A, cost: 6, inside: 5 }));
    assert_eq!(bank.release(Peer(3), 1), Err(ReleaseError::Unknown { peer: Peer(3), peers: 3 }));
    assert_eq!(bank.settle(Peer(3)), Err(unknown));
    assert_eq!(bank.lose(Peer(3)), Err(unknown));
    assert_eq!(bank.loan(Peer(3)), None);
    let unasked = SurrenderError::Unasked { peer: B, credits: 0 };
    assert_eq!(bank.surrendered(B, Surrender { credits: 0 }), Err(unasked));
    assert_eq!(bank, before);

    bank.arrive(A, charge(1, 4)).unwrap();
    assert_eq!(
        bank.surrendered(B, Surrender { credits: 1 }),
        Err(SurrenderError::Unasked { peer: B, credits: 1 })
    );
    let _ = bank.next_revocation().unwrap();
    let excess = SurrenderError::Excess { peer: B, credits: 4, limit: 3 };
    assert_eq!(bank.surrendered(B, Surrender { credits: 4 }), Err(excess));
    assert_eq!(excess.to_string(), "peer 1 surrenders 4 credits, at most 3 were possible");
    bank.surrendered(B, Surrender { credits: 3 }).unwrap();
    assert!(bank.surrendered(B, Surrender { credits: 0 }).is_err(), "answered twice");
}

#[test]
fn a_lost_peer_returns_its_credits_once() {
    let mut bank = bank();
    bank.arrive(B, charge(2, 0)).unwrap();
    bank.arrive(B, charge(2, 0)).unwrap();
    bank.release(B, 2).unwrap();
    bank.arrive(A, charge(1, 4)).unwrap();
    while bank.next_revocation().is_some() {}
    // Two credits of B still occupy receive space: they must not be lent again before their release.
    assert_eq!(bank.lose(B), Ok(4));
    assert_eq!(bank.lose(B), Ok(0));
    assert_eq!((loan(&bank, B), loan(&bank, A), bank.banked()), (2, 6, 6));
    assert_eq!(bank.revoking, 3, "C's answer alone will come, so the next ask must revoke elsewhere");
    let lost = PeerError::Lost { peer: B };
    let before = bank.clone();
    assert_eq!(bank.arrive(B, charge(1, 1)), Err(ArriveError::Peer(lost)));
    assert_eq!(bank.surrendered(B, Surrender { credits: 3 }), Err(SurrenderError::Peer(lost)));
    assert_eq!(bank.settle(B), Err(lost));
    assert_eq!(bank, before);
    let _ = bank.settle(A).unwrap();
    bank.arrive(A, charge(1, 4)).unwrap();
    assert_eq!((loan(&bank, A), bank.banked()), (10, 2));
    bank.release(B, 2).unwrap();
    assert_eq!((loan(&bank, B), loan(&bank, A), bank.banked()), (0, 10, 4));
    assert!(bank.release(B, 1).is_err());
}

#[test]
fn an_ask_is_granted_in_full_or_refused_and_never_waits() {
    let mut bank = bank();
    bank.arrive(A, charge(1, 2)).unwrap();
    assert_eq!((bank.loan(A).unwrap().granted, bank.banked()), (2, 0));
    bank.arrive(A, charge(1, 1)).unwrap();
    assert_eq!(bank.loan(A).unwrap().granted, 2, "refused, and forgotten");
    assert_eq!(bank.next_revocation().map(|(peer, revoke)| (peer, revoke.limit)), Some((B, 3)));
    bank.surrendered(B, Surrender { credits: 3 }).unwrap();
    assert_eq!((bank.banked(), bank.loan(A).unwrap().granted), (3, 2), "what came back waits for the next ask");
    bank.arrive(A, charge(1, 3)).unwrap();
    assert_eq!((bank.banked(), bank.loan(A).unwrap().granted), (0, 5));
}

#[test]
fn nothing_is_revoked_from_the_just_refused() {
    let mut config = config();
    config.lend_limit = 3;
    let mut bank = Bank::new(&config).unwrap();
    bank.arrive(A, charge(1, 4)).unwrap();
    assert_eq!(bank.next_revocation(), None, "four are more than may be lent in an epoch");
    bank.arrive(B, charge(1, 3)).unwrap();
    bank.arrive(C, charge(1, 3)).unwrap();
    assert_eq!(victims(&mut bank), [A], "B and C were refused a moment ago");
    bank.arrive(B, charge(1, 0)).unwrap();
    bank.arrive(C, charge(1, 3)).unwrap();
    assert_eq!(bank.next_revocation(), None, "three of A's are on their way");
    bank.surrendered(A, Surrender { credits: 0 }).unwrap();
    bank.arrive(C, charge(1, 3)).unwrap();
    assert_eq!(bank.next_revocation().map(|(peer, _)| peer), Some(B), "B has stopped asking");
}

#[test]
fn doubling_loans_are_powers_of_two() {
    let mut config = config();
    (config.growth, config.total, config.lend_limit) = (Growth::Doubling, 25, 6);
    config.max_ask = 8;
    let mut bank = Bank::new(&config).unwrap();
    bank.arrive(A, charge(1, 8)).unwrap();
    assert_eq!(
        (bank.loan(A).unwrap().granted, bank.banked()),
        (4, 3),
        "six may be lent; nobody has to give anything up"
    );
    assert_eq!(bank.next_revocation(), None);
    bank.arrive(A, charge(1, 2)).unwrap();
    assert_eq!((bank.loan(A).unwrap().granted, bank.banked()), (6, 1));
    assert_eq!([(); 3].map(|()| bank.settle(A).unwrap().granted), [4, 2, 0]);
    bank.arrive(B, charge(1, 4)).unwrap();
    assert_eq!((bank.loan(B).unwrap().granted, bank.banked()), (1, 0), "one is all that there is");
    assert_eq!(bank.next_revocation(), Some((A, Revoke { limit: 3, end_of_epoch: false })), "the other three");
}

#[test]
fn little_is_not_worth_a_revocation() {
    let revocations = |least: u32| {
        let mut config = config();
        config.revoke_least = least;
        let mut bank = Bank::new(&config).unwrap();
        // B has used four of six, and keeps them; C has used nothing, and keeps the least loan of two.
        bank.arrive(B, charge(2, 0)).unwrap();
        bank.arrive(B, charge(1, 0)).unwrap();
        bank.arrive(B, charge(1, 0)).unwrap();
        bank.config.revoke_limit = 4;
        bank.arrive(A, charge(1, 4)).unwrap();
        std::iter::from_fn(|| bank.next_revocation())
            .map(|(peer, revoke)| (peer, revoke.limit))
            .collect::<Vec<_>>()
    };
    assert_eq!(revocations(1), [(B, 2), (C, 4)]);
    assert_eq!(revocations(3), [(C, 4)]);
    assert_eq!(revocations(100), [(C, 4)], "the limit is always worth it");
}

#[test]
fn an_unsendable_revocation_goes_last() {
    let mut bank = bank();
    bank.config.revoke_limit = 1;
    bank.arrive(A, charge(1, 4)).unwrap();
    assert_eq!(bank.revocation_waits_for(), Some(B));
    bank.postpone_revocation();
    assert_eq!(bank.revocation_waits_for(), Some(C));
    assert_eq!(victims(&mut bank), [C, B]);
}

#[test]
fn a_large_bank_keeps_accounts_of_those_that_talk() {
    let mut config = LoanConfig::new(4096, 4096 * 8, 8);
    (config.initial, config.min, config.revoke_scan) = (8, 8, 4096);
    let mut bank = Bank::new(&config).unwrap();
    bank.arrive(Peer(100), charge(8, 7)).unwrap();
    assert_eq!(bank.used().count(), 16);
    assert_eq!(bank.next_revocation(), None, "everybody has the minimum");
}

#[test]
fn the_ledger_lists_whose_account_is_not_as_at_the_start() {
    let mut bank = bank();
    bank.arrive(B, charge(2, 2)).unwrap();
    let expected = "20 credits: 0 banked, 20 lent to 3 peers, epoch 0\n  peer 1: loan 8 = 4 away + 2 inside + 0 owed + \
                    2 granted; revoking 0, recent maximum 2\n";
    assert_eq!(bank.ledger().to_string(), expected);
}
