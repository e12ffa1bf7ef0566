//! Which rank runs on which host.

use std::str::FromStr;

use crate::cluster::list::HostSpec;
use crate::error::TooFewSlots;

/// The order in which hosts are filled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Neighbouring ranks together: the first host is filled first.
    #[default]
    Block,
    /// Neighbouring ranks apart: one rank to each host in turn.
    Cyclic,
}

impl FromStr for Placement {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "block" => Ok(Self::Block),
            "cyclic" => Ok(Self::Cyclic),
            _ => Err("not one of block and cyclic"),
        }
    }
}

/// How many ranks a job has whose user doesn't say: one for every slot, a host without a number counting one.
pub(crate) fn default_ranks(hosts: &[HostSpec]) -> u32 {
    hosts.iter().fold(0, |sum: u32, host| sum.saturating_add(host.slots.unwrap_or(1)))
}

/// The host of each rank, as an index.
pub(crate) fn place(hosts: &[HostSpec], ranks: u32, how: Placement) -> Result<Vec<u32>, TooFewSlots> {
    let given: u32 = hosts.iter().filter_map(|host| host.slots).fold(0, u32::saturating_add);
    let open = hosts.iter().filter(|host| host.slots.is_none()).count() as u32;
    if open == 0 && given < ranks {
        let each: Vec<String> =
            hosts.iter().map(|host| format!("{}: {}", host.name, host.slots.unwrap_or_default())).collect();
        return Err(TooFewSlots { ranks, slots: given, each: each.join(", ") });
    }
    // What each host takes at most: its slots, or an even share of what the others leave.
    let rest = ranks.saturating_sub(given);
    let mut shares = (0..open).map(|nth| rest / open.max(1) + u32::from(nth < rest % open.max(1)));
    let mut room: Vec<u32> =
        hosts.iter().map(|host| host.slots.unwrap_or_else(|| shares.next().unwrap_or_default())).collect();
    let mut places = Vec::with_capacity(ranks as usize);
    match how {
        Placement::Block => {
            for (host, room) in (0..).zip(room) {
                let left = ranks as usize - places.len();
                places.extend(std::iter::repeat_n(host, left.min(room as usize)));
            }
        }
        Placement::Cyclic => {
            while places.len() < ranks as usize {
                for (host, room) in (0..).zip(&mut room) {
                    if *room > 0 && places.len() < ranks as usize {
                        *room -= 1;
                        places.push(host);
                    }
                }
            }
        }
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::list::parse_hosts;

    fn placed(hosts: &str, ranks: u32, how: Placement) -> Vec<u32> {
        place(&parse_hosts(hosts).unwrap(), ranks, how).unwrap()
    }

    #[test]
    fn block_and_cyclic() {
        assert_eq!(placed("a,b,c", 7, Placement::Block), [0, 0, 0, 1, 1, 2, 2]);
        assert_eq!(placed("a,b,c", 7, Placement::Cyclic), [0, 1, 2, 0, 1, 2, 0]);
        assert_eq!(placed("a:1,b,c:3", 7, Placement::Block), [0, 1, 1, 1, 2, 2, 2]);
        assert_eq!(placed("a:1,b:2,c:4", 6, Placement::Cyclic), [0, 1, 2, 1, 2, 2]);
        assert_eq!(placed("a:4,b:4", 5, Placement::Block), [0, 0, 0, 0, 1]);
        assert_eq!(placed("a,b,c", 2, Placement::Block), [0, 1]);
    }

    #[test]
    fn too_few_slots_are_named() {
        let error = place(&parse_hosts("a:2,b:1").unwrap(), 4, Placement::Block).unwrap_err();
        assert!(
            error.to_string().starts_with("4 ranks asked for, but the hosts have 3 slots together (a: 2, b: 1)")
        );
        assert_eq!(default_ranks(&parse_hosts("a:2,b").unwrap()), 3);
    }
}
