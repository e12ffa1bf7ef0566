//! Keys and authentication: nothing of a datagram is believed before it has passed here.
//!
//! All keys come from the job's secret by BLAKE3 (its key derivation for what there is once, its keyed hash for
//! the rest). A Hello carries a keyed hash of 32 bytes. Data datagrams are sealed with AEGIS
//! (draft-irtf-cfrg-aegis-aead) under keys of one direction of one session: both tokens of the handshake are part
//! of the derivation, so no two sessions share a key and the datagram's number can serve as the nonce. A key bears
//! more datagrams than a session can number, and no number is used twice.
//!
//! The secret authenticates a session and does not suffice to read it: both Hellos carry an X25519 public key (RFC
//! 7748), and what the two agree on is part of the derivation. The private keys are made when an endpoint joins
//! and are wiped when it ends; who learns the secret later cannot read what was recorded before.
//!
//! AEGIS-128L seals datagrams below [`LONG`] bytes, AEGIS-128X2 the longer ones, each with a key of its own. Per
//! byte the second is the faster one, and it takes longer to start. Cycles of a 2.3 GHz Xeon, the fastest
//! twentieth of many calls in one run, beside the AES-256-GCM of `ring`:
//!
//! | bytes | AES-256-GCM | AEGIS-128L | AEGIS-128X2 |
//! |---|---|---|---|
//! | 24 | 156 | 92 | 124 |
//! | 1400 | 534 | 342 | 262 |
//! | 65000 | 18512 | 11548 | 5846 |
//!
//! Authenticating a text without encrypting it takes AEGIS-128L 82, 280 and 9462 cycles. A processor without AES
//! instructions is served by software, slowly.

use super::config::Protection;
use super::wire::{HEADER, HELLO, HELLO_BODY, MAC, PUBLIC, TAG};
use aegis::aegis128l::Aegis128L;
use aegis::aegis128x2::Aegis128X2;
use am_core::private::Key;
use curve25519_dalek::montgomery::MontgomeryPoint;
use zeroize::{Zeroize, Zeroizing};

/// Datagrams of so many bytes, tag included, are sealed by the cipher for long ones.
const LONG: usize = 512;

/// Keys stay where they are made, out of core dumps: what moves is a pointer, so that no copy is left behind that
/// nobody wipes.
type Key32 = Key<32>;

/// A key that a hash makes, in its place.
fn key_of(hash: &mut blake3::Hasher) -> Key32 {
    let mut key = Key32::default();
    hash.finalize_xof().fill(&mut key[..]);
    hash.zeroize();
    key
}

/// The job's secret, ready for derivation.
pub(super) struct Keyring {
    root: Key32,
    hello: Key32,
    /// Source of this incarnation's tokens.
    entropy: Key32,
    /// What this incarnation agrees on keys with.
    private: Key32,
    public: [u8; PUBLIC],
}

impl std::fmt::Debug for Keyring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keyring").finish_non_exhaustive()
    }
}

/// The function X25519 of RFC 7748, section 5: what the owners of a private and of a public key agree on. `None`
/// for a key that leads to nothing but zeros with every private one, which section 6.1 lets refuse.
fn shared(private: &[u8; 32], theirs: &[u8; PUBLIC]) -> Option<Zeroizing<[u8; 32]>> {
    let shared = Zeroizing::new(MontgomeryPoint(*theirs).mul_clamped(*private).to_bytes());
    // In constant time, as far as the compiler lets it be.
    (shared.iter().fold(0, |all, byte| all | byte) != 0).then_some(shared)
}

/// What both sides of a session call it: endpoint and token of the sender of a direction, then of its receiver.
type Names = [(u32, u64); 2];

impl Keyring {
    pub(super) fn new(secret: &[u8], entropy: &[u8; 32]) -> Self {
        let derive = |context, from: &[u8]| key_of(blake3::Hasher::new_derive_key(context).update(from));
        let private = derive("active-messages udp 2026-11 exchange", entropy);
        Self {
            root: derive("active-messages udp 2026-11 sessions", secret),
            hello: derive("active-messages udp 2026-11 hello", secret),
            entropy: derive("active-messages udp 2026-11 tokens", entropy),
            public: MontgomeryPoint::mul_base_clamped(*private).to_bytes(),
            private,
        }
    }

    /// A token that this incarnation uses once: its part of the name of one session with one peer. Never 0.
    pub(super) fn token(&self, peer: u32, session: u64) -> u64 {
        let mut name = [0; 12];
        name[..4].copy_from_slice(&peer.to_le_bytes());
        name[4..].copy_from_slice(&session.to_le_bytes());
        let hash = blake3::keyed_hash(&self.entropy, &name);
        let [a, b, c, d, e, f, g, h, ..] = *hash.as_bytes();
        u64::from_le_bytes([a, b, c, d, e, f, g, h]).max(1)
    }

    /// The public key of this incarnation, for its Hellos.
    pub(super) fn public(&self) -> [u8; PUBLIC] {
        self.public
    }

    pub(super) fn sign_hello(&self, body: &[u8; HELLO_BODY]) -> [u8; HELLO] {
        let mut out = [0; HELLO];
        let (head, mac) = out.split_at_mut(HELLO_BODY);
        head.copy_from_slice(body);
        mac.copy_from_slice(blake3::keyed_hash(&self.hello, body).as_bytes());
        out
    }

    pub(super) fn verify_hello(&self, datagram: &[u8]) -> bool {
        work::count(datagram.len());
        match datagram.split_last_chunk::<MAC>() {
            // Hashes are compared in constant time.
            Some((body, mac)) => blake3::keyed_hash(&self.hello, body) == *mac,
            None => false,
        }
    }

    /// What this incarnation and the owner of a public key agree on, who may be this endpoint itself (`own`);
    /// costs some 100 us, so only an authentic and fresh Hello may ask for it. `None` for a key that no honest
    /// owner has: one that makes what is agreed on known to everybody, and this endpoint's own one in another's
    /// Hello.
    pub(super) fn agree(&self, theirs: &[u8; PUBLIC], own: bool) -> Option<Agreement> {
        if own != (*theirs == self.public) {
            return None;
        }
        let mut hash = blake3::Hasher::new_keyed(&self.root);
        // What an endpoint sends to itself is seen by nobody.
        if !own {
            hash.update(&*shared(&self.private, theirs)?);
        }
        Some(Agreement { root: key_of(&mut hash) })
    }
}

/// What the keys of both directions of a session come from.
pub(super) struct Agreement {
    root: Key32,
}

impl Agreement {
    /// The key chain of datagrams from the first to the second endpoint of the session of these tokens.
    pub(super) fn chain(&self, [from, to]: Names) -> Chain {
        let mut hash = blake3::Hasher::new_keyed(&self.root);
        for (endpoint, token) in [from, to] {
            hash.update(&endpoint.to_le_bytes()).update(&token.to_le_bytes());
        }
        let (mut output, mut epoch, mut keys) = (hash.finalize_xof(), [0; 2], Keys::default());
        output.fill(&mut epoch);
        for key in [&mut keys.short, &mut keys.long] {
            output.fill(&mut key[..]);
        }
        output.zeroize();
        hash.zeroize();
        Chain { epoch: u16::from_le_bytes(epoch), keys }
    }
}

fn nonce(number: u64) -> [u8; 16] {
    u128::from(number).to_le_bytes()
}

/// The keys of one direction of one session, for AEGIS-128L and AEGIS-128X2.
#[derive(Clone, Default)]
struct Keys {
    short: Key<16>,
    long: Key<16>,
}

/// One direction of one session: its short name, and its keys, which stay where they were made.
pub(super) struct Chain {
    pub(super) epoch: u16,
    keys: Keys,
}

impl std::fmt::Debug for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chain").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

impl Chain {
    /// Seals `datagram[..len]` (header and frames) in place and returns its length on the wire.
    ///
    /// # Panics
    /// If `datagram` has no room for the tag.
    pub(super) fn seal(&self, protection: Protection, number: u64, datagram: &mut [u8], len: usize) -> usize {
        let (text, tag_space) = datagram.split_at_mut(len);
        let (known, hidden) = match protection {
            Protection::Unauthenticated => return len,
            Protection::PlainText => (text, Default::default()),
            Protection::Encrypted => text.split_at_mut(HEADER),
        };
        let tag = match len + TAG < LONG {
            true => Aegis128L::<TAG>::new(&self.keys.short, &nonce(number)).encrypt_in_place(hidden, known),
            false => Aegis128X2::<TAG>::new(&self.keys.long, &nonce(number)).encrypt_in_place(hidden, known),
        };
        tag_space[..TAG].copy_from_slice(&tag);
        len + TAG
    }

    /// Opens a datagram in place; returns its frames if it is authentic.
    pub(super) fn open<'a>(
        &self,
        protection: Protection,
        number: u64,
        datagram: &'a mut [u8],
    ) -> Option<&'a [u8]> {
        if protection == Protection::Unauthenticated {
            return datagram.get(HEADER..);
        }
        work::count(datagram.len());
        let long = datagram.len() >= LONG;
        let (text, tag) = datagram.split_last_chunk_mut::<TAG>()?;
        let (header, frames) = text.split_at_mut_checked(HEADER)?;
        let (known, hidden) = match protection {
            Protection::Encrypted => (header, frames),
            _ => (text, Default::default()),
        };
        let opened = match long {
            false => Aegis128L::<TAG>::new(&self.keys.short, &nonce(number)).decrypt_in_place(hidden, tag, known),
            true => Aegis128X2::<TAG>::new(&self.keys.long, &nonce(number)).decrypt_in_place(hidden, tag, known),
        };
        opened.ok()?;
        datagram.get(HEADER..datagram.len() - TAG)
    }
}

/// How many bytes this thread has authenticated: what a datagram of a stranger costs. Counted in tests alone.
pub(super) mod work {
    #[cfg(test)]
    thread_local!(static BYTES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) });

    #[inline]
    pub(super) fn count(bytes: usize) {
        #[cfg(test)]
        BYTES.set(BYTES.get() + bytes);
        let _ = bytes;
    }

    #[cfg(test)]
    pub(in crate::proto) fn take() -> usize {
        BYTES.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agreed(ours: &Keyring, theirs: &Keyring) -> Agreement {
        ours.agree(&theirs.public(), false).expect("an honest key")
    }

    fn pair() -> (Chain, Chain) {
        let (a, b) = (Keyring::new(b"secret", &[1; 32]), Keyring::new(b"secret", &[2; 32]));
        let names = [(0, 5), (1, 6)];
        (agreed(&a, &b).chain(names), agreed(&b, &a).chain(names))
    }

    /// The same chain with keys in others' places.
    fn crossed(chain: &Chain, change: impl FnOnce(&Keys, &mut Keys)) -> Chain {
        let mut keys = chain.keys.clone();
        change(&chain.keys, &mut keys);
        Chain { epoch: chain.epoch, keys }
    }

    #[test]
    fn keys_are_left_out_of_core_dumps() {
        use am_core::private::is_left_out_of_dumps;
        let ring = Keyring::new(b"secret", &[1; 32]);
        let agreement = ring.agree(&[7; PUBLIC], false).unwrap();
        let Keyring { root, hello, entropy, private, .. } = &ring;
        for key in [root, hello, entropy, private, &agreement.root] {
            assert!(is_left_out_of_dumps(&key[..]).unwrap());
        }
        let Chain { keys: Keys { short, long }, .. } = agreement.chain([(0, 1), (1, 2)]);
        assert!([short, long].iter().all(|key| is_left_out_of_dumps(&key[..]).unwrap()));
    }

    /// Moving what holds keys copies no key, so there is nothing left to wipe where it was.
    #[test]
    fn keys_stay_when_their_owners_move() {
        let ring = Keyring::new(b"secret", &[1; 32]);
        let places = |ring: &Keyring| {
            let Keyring { root, hello, entropy, private, .. } = ring;
            [root, hello, entropy, private].map(|key| key.as_ptr())
        };
        let before = places(&ring);
        let ring = Box::new(ring);
        assert_eq!(places(&ring), before);
        let agreement = ring.agree(&[7; PUBLIC], false).unwrap();
        let at = agreement.root.as_ptr();
        let agreement = Box::new(agreement);
        assert_eq!(agreement.root.as_ptr(), at);
        let chain = agreement.chain([(0, 1), (1, 2)]);
        let at = [&chain.keys.short, &chain.keys.long].map(|key| key.as_ptr());
        let chain = Box::new(chain);
        assert_eq!([&chain.keys.short, &chain.keys.long].map(|key| key.as_ptr()), at);
    }

    /// The iterated test vector of RFC 7748, section 5.2, after one and after a thousand steps.
    #[test]
    fn key_exchange_is_that_of_rfc_7748() {
        let mut base = [0; 32];
        base[0] = 9;
        let hex = |bytes: &[u8; 32]| bytes.map(|byte| format!("{byte:02x}")).concat();
        let (mut private, mut public) = (base, base);
        for step in 1..=1000 {
            (private, public) = (*shared(&private, &public).unwrap(), private);
            if step == 1 {
                assert_eq!(hex(&private), "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079");
            }
        }
        assert_eq!(hex(&private), "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51");
    }

    #[test]
    fn every_changed_bit_is_noticed() {
        for protection in [Protection::Encrypted, Protection::PlainText] {
            let (seal, open) = pair();
            let mut datagram = [7; 64];
            assert_eq!(seal.seal(protection, 9, &mut datagram, 48), 64);
            assert_eq!(datagram[HEADER..48] == [7; 48 - HEADER], protection == Protection::PlainText);
            for bit in 0..64 * 8 {
                let mut copy = datagram;
                copy[bit / 8] ^= 1 << (bit % 8);
                assert!(open.open(protection, 9, &mut copy).is_none(), "bit {bit}");
            }
            for len in 0..64 {
                let mut copy = datagram;
                assert!(open.open(protection, 9, &mut copy[..len]).is_none());
            }
            assert!(open.open(protection, 10, &mut datagram.clone()).is_none());
            assert_eq!(open.open(protection, 9, &mut datagram).unwrap(), [7; 48 - HEADER]);
        }
    }

    #[test]
    fn datagrams_have_ciphers_by_length() {
        for protection in [Protection::Encrypted, Protection::PlainText] {
            let (seal, open) = pair();
            for len in [HEADER, LONG - TAG - 1, LONG - TAG, LONG, 65_000] {
                let mut datagram = vec![7; len + TAG];
                seal.seal(protection, 3, &mut datagram, len);
                let crossed = crossed(&open, |from, to| (*to.short, *to.long) = (*from.long, *from.short));
                assert!(crossed.open(protection, 3, &mut datagram.clone()).is_none());
                let mut longer = datagram.clone();
                longer.push(0);
                assert!(open.open(protection, 3, &mut longer).is_none());
                let (shorter, _) = datagram.split_at(len + TAG - 1);
                assert!(open.open(protection, 3, &mut shorter.to_vec()).is_none());
                assert_eq!(open.open(protection, 3, &mut datagram).unwrap(), vec![7; len - HEADER]);
            }
        }
    }

    #[test]
    fn sessions_directions_and_secrets_have_keys_of_their_own() {
        let ring = Keyring::new(b"secret", &[1; 32]);
        let (reborn, other) = (Keyring::new(b"secret", &[3; 32]), Keyring::new(b"Secret", &[1; 32]));
        let theirs = Keyring::new(b"secret", &[2; 32]).public();
        let chains = [
            ring.agree(&theirs, false).unwrap().chain([(1, 6), (0, 5)]),
            ring.agree(&theirs, false).unwrap().chain([(0, 5), (1, 7)]),
            ring.agree(&theirs, false).unwrap().chain([(0, 4), (1, 6)]),
            agreed(&ring, &reborn).chain([(0, 5), (1, 6)]),
            reborn.agree(&theirs, false).unwrap().chain([(0, 5), (1, 6)]),
            other.agree(&theirs, false).unwrap().chain([(0, 5), (1, 6)]),
        ];
        let mut datagram = [7; 64];
        pair().0.seal(Protection::Encrypted, 0, &mut datagram, 48);
        for chain in chains {
            assert!(chain.open(Protection::Encrypted, 0, &mut datagram.clone()).is_none());
        }
        assert_ne!(ring.token(1, 0), ring.token(1, 1));
        assert!(!other.verify_hello(&ring.sign_hello(&[0; HELLO_BODY])));
        assert!(ring.verify_hello(&ring.sign_hello(&[0; HELLO_BODY])));
        assert!(!ring.verify_hello(&[0; HELLO_BODY]) && !ring.verify_hello(&[0; 5]));
    }

    /// The points of a small order, in every form that 255 bits have for them.
    #[test]
    fn keys_that_agree_on_nothing_are_refused() {
        let hex = |text: &str| -> [u8; 32] {
            std::array::from_fn(|index| u8::from_str_radix(&text[2 * index..2 * index + 2], 16).unwrap())
        };
        let ff = "ff".repeat(30);
        let points = [
            "00".repeat(32),
            format!("01{}", "00".repeat(31)),
            "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800".into(),
            "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157".into(),
            format!("ec{ff}7f"),
            format!("ed{ff}7f"),
            format!("ee{ff}7f"),
        ];
        let ring = Keyring::new(b"secret", &[1; 32]);
        for point in points {
            let mut point = hex(&point);
            for high in [0, 0x80] {
                point[31] ^= high;
                assert!(ring.agree(&point, false).is_none(), "{point:?}");
            }
        }
        let theirs = Keyring::new(b"secret", &[2; 32]).public();
        assert!(ring.agree(&theirs, false).is_some() && ring.agree(&ring.public(), true).is_some());
        assert!(ring.agree(&theirs, true).is_none() && ring.agree(&ring.public(), false).is_none());
    }
}
