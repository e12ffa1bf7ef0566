//! Inputs that are put together from choices: frames, notices and manifests of the right form whose numbers lie at
//! and around every limit, which bytes that a fuzzer changes at random hardly meet.

use std::net::IpAddr;

use crate::codec::encode;
use crate::control_links::{LONGEST_PART, control};
use crate::manifest::{HostEntry, JobManifest, MAGIC, manifest};
use crate::notices::{encode_words, notices};
use crate::secret::Secret;

/// Choices that bytes make; when they are used up, the first of everything.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or(0)
    }

    /// One of so many.
    fn of(&mut self, many: usize) -> usize {
        usize::from(self.byte()) % many
    }

    /// A number at, just below or just above one of these limits.
    fn around(&mut self, limits: &[u64]) -> u64 {
        let limit = limits[self.of(limits.len())];
        match self.byte() % 4 {
            0 | 1 => limit,
            2 => limit.wrapping_add(1),
            _ => limit.wrapping_sub(1),
        }
    }
}

/// What choices make of one of the three: frames of a control link, notices in their pipe, a manifest. Returns
/// whether it was taken.
///
/// # Panics
/// As [`control`](super::control), [`notices`](super::notices) and [`manifest`](super::manifest).
pub fn drawn(data: &[u8]) -> bool {
    let mut choices = Choices(data);
    match choices.byte() % 3 {
        0 => draw_control(&mut choices),
        1 => draw_notices(&mut choices),
        _ => draw_manifest(&mut choices),
    }
}

/// Frames of every kind towards either side. Their lengths are at most once a lie, since what follows makes no
/// sense then.
fn draw_control(choices: &mut Choices<'_>) -> bool {
    let towards = choices.byte() & 1;
    let ranks = choices.of(4) as u8;
    let mut bytes = Vec::new();
    for _ in 0..1 + choices.of(4) {
        let kind = choices.byte() % 9;
        let mut body = Vec::new();
        match (towards, choices.byte() % 4) {
            // A part as a rank sends it.
            (0, 0) => {
                let longest = LONGEST_PART as u64;
                body.resize(choices.around(&[0, 1, 127, 4096, longest]).min(longest + 1) as usize, 7);
            }
            (0, _) => body.resize(choices.of(3), 1),
            // Parts as a launcher sends them, about as many as there are ranks.
            (_, 0 | 1) => {
                body.push(choices.byte() % 3);
                for _ in 0..u64::from(ranks).wrapping_add(choices.around(&[0])).min(6) {
                    let length = choices.of(3);
                    let said = (length as u64).wrapping_add(if choices.byte() == 255 { u64::MAX } else { 0 });
                    body.extend_from_slice(&(said as u32).to_le_bytes());
                    body.resize(body.len() + length, 5);
                }
            }
            // Ranks.
            _ => {
                for _ in 0..choices.of(3) {
                    let rank = choices.around(&[0, ranks.into(), 1 << 31, u32::MAX.into()]);
                    body.extend_from_slice(&(rank as u32).to_le_bytes());
                }
                body.truncate(body.len() - choices.of(2).min(body.len()));
            }
        }
        let said = match choices.byte() {
            0..240 => body.len() as u64,
            240..250 => (body.len() as u64).wrapping_add_signed(1 - i64::from(choices.byte() % 3)),
            _ => choices.around(&[LONGEST_PART as u64, 1 << 23, 1 << 31, u32::MAX.into()]),
        };
        bytes.push(kind);
        bytes.extend_from_slice(&(said as u32).to_le_bytes());
        bytes.extend_from_slice(&body);
    }
    let second = if towards == 0 { choices.byte() } else { ranks };
    control(&[&[towards, second], &bytes[..]].concat())
}

/// Notices whose check is right and whose numbers are not always, torn and with others' bytes between them.
fn draw_notices(choices: &mut Choices<'_>) -> bool {
    let mut bytes = Vec::new();
    for _ in 0..1 + choices.of(6) {
        let kind = choices.around(&[0, 2, 127, 255]) as u8;
        // Members of the target's host are 1, 2 and 300.
        let rank = choices.around(&[1, 2, 300, u32::MAX.into()]) as u32;
        let value = choices.around(&[0, 255, 256, 300, u32::MAX.into()]) as u32;
        let mut words = encode_words(kind, rank, value).to_vec();
        match choices.byte() % 8 {
            0 => words.truncate(choices.of(words.len())),
            1 => {
                let at = choices.of(words.len());
                words[at] ^= 1 << choices.of(8);
            }
            2 => bytes.extend_from_slice(&b"amNamN"[..choices.of(7)]),
            3 => bytes.resize(bytes.len() + choices.of(20), choices.byte()),
            _ => {}
        }
        bytes.extend_from_slice(&words);
    }
    let first = choices.around(&[0, 16, bytes.len() as u64, 255]) as u8;
    notices(&[&[first], &bytes[..]].concat())
}

/// Manifests whose ranks are on hosts around the last one, and whose lengths may be lies.
fn draw_manifest(choices: &mut Choices<'_>) -> bool {
    let host = |choices: &mut Choices<'_>| HostEntry {
        name: "n".repeat(choices.around(&[0, 1, 127, 128]).min(200) as usize),
        address: match choices.of(2) {
            0 => IpAddr::from([choices.byte(); 4]),
            _ => IpAddr::from([choices.byte(); 16]),
        },
        interface: "e".repeat(choices.of(3)),
    };
    let hosts: Vec<HostEntry> = (0..choices.of(4)).map(|_| host(choices)).collect();
    let count = choices.around(&[0, 1, 127, 128, 300]).min(400);
    // Most are on a host that there is.
    let last = (hosts.len() as u64).saturating_sub(1);
    let stray = choices.byte().is_multiple_of(4);
    let host_of = (0..count).map(|rank| {
        let limits = [0, last, hosts.len() as u64, u32::MAX.into()];
        if stray && rank % 7 == 0 { choices.around(&limits) as u32 } else { rank.min(last) as u32 }
    });
    let host_of = host_of.collect();
    let endpoints = choices.around(&[0, 1, 127, 128, u16::MAX.into()]) as u16;
    let drawn = JobManifest { job: "job".into(), secret: Secret::none(), endpoints, hosts, host_of };
    let mut bytes = [&MAGIC[..], &encode(&drawn)].concat();
    match choices.byte() % 8 {
        0 => bytes.truncate(choices.around(&[0, MAGIC.len() as u64, bytes.len() as u64]).min(400) as usize),
        1 => bytes.push(choices.byte()),
        2 => {
            let at = choices.of(bytes.len());
            bytes[at] = choices.around(&[0, 1, 0x7f, 0x80, 0xff]) as u8;
        }
        // A number with more bytes than it needs.
        3 => {
            let at = MAGIC.len() + choices.of(bytes.len() - MAGIC.len());
            bytes[at] |= 0x80;
            bytes.insert(at + 1, 0);
        }
        _ => {}
    }
    manifest(&bytes)
}
