//! Inputs for parsers: the seeds in `fuzz/seeds`, and what becomes of them when bytes are changed.

use crate::random::Random;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

/// Numbers as a text may have them, at the limits of the types that read them.
const NUMBERS: [&str; 10] = [
    "0",
    "-1",
    "65536",
    "4294967296",
    "9223372036854775807",
    "18446744073709551616",
    "1e308",
    "1e-320",
    "inf",
    "nan",
];

/// Calls `target` with every seed of `fuzz/seeds/NAME`, then with `mutations` inputs that are made of these:
/// always the same ones. An input that makes it panic is printed, and the panic goes on.
///
/// # Panics
/// If `target` does, or if there are no seeds.
pub fn each_mutation(name: &str, mutations: u64, mut target: impl FnMut(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(name);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.expect("the folder can be read").path()).collect();
    files.sort();
    let seeds: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).expect("a seed can be read")).collect();
    assert!(!seeds.is_empty(), "{} has no seed", folder.display());
    let mut play = |label: &str, number: u64, input: &[u8]| {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(input))) {
            eprintln!("{name}: {label} {number} fails: {}", input.escape_ascii());
            resume_unwind(panic);
        }
    };
    for (number, seed) in (0..).zip(&seeds) {
        play("seed", number, seed);
    }
    for number in 0..mutations {
        play("mutation", number, &mutated(&mut Random::new(number, 77), &seeds));
    }
}

/// One of the seeds, changed in a few places.
fn mutated(random: &mut Random, seeds: &[Vec<u8>]) -> Vec<u8> {
    let seed = |random: &mut Random| &seeds[random.below(seeds.len() as u64) as usize];
    let mut bytes = seed(random).clone();
    for _ in 0..1 + random.below(6) {
        let at = random.length(bytes.len());
        let end = at + random.length((bytes.len() - at).min(16));
        match random.below(8) {
            0 if at < bytes.len() => bytes[at] = random.number() as u8,
            1 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..end)),
            4 => {
                let other = seed(random);
                let start = random.length(other.len());
                let len = random.length(other.len() - start);
                bytes.splice(at..end, other[start..start + len].iter().copied());
            }
            5 => {
                let number = (random.number() >> random.below(64)).wrapping_sub(random.below(2));
                let len = 1 << random.below(4);
                bytes.splice(at..end, number.to_le_bytes().into_iter().take(len));
            }
            // A number of a text, whole.
            6 => {
                let part = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
                let Some(first) = bytes[at..].iter().position(part).map(|skip| at + skip) else { continue };
                let last =
                    bytes[first..].iter().position(|byte| !part(byte)).map_or(bytes.len(), |len| first + len);
                let number = NUMBERS[random.below(NUMBERS.len() as u64) as usize];
                bytes.splice(first..last, number.bytes());
            }
            _ => {
                let copy = bytes[at..end].to_vec();
                bytes.splice(at..at, copy);
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutations_differ_and_repeat() {
        let seeds = [b"ranks = 12\n".to_vec(), b"a".to_vec(), Vec::new()];
        let all = || (0..200).map(|seed| mutated(&mut Random::new(seed, 77), &seeds)).collect::<Vec<_>>();
        let mut first = all();
        assert_eq!(first, all());
        first.sort();
        first.dedup();
        assert!(first.len() > 100, "{} different ones", first.len());
    }
}
