//! Topologies as one word, as flags give them: `mesh:4x4x4`.

use crate::error::ConfigError;
use crate::topology::Topology;
use std::fmt;
use std::str::FromStr;

const FORMS: &str = "direct:N, ring:N, crossbar:N, mesh:AxB[xC...], torus:AxB[xC...], ringlets:AxB[xC...], \
                     hypercube:DIMENSIONS, fat_tree:ARITYxLEVELS[xOVERSUBSCRIPTION], \
                     dragonfly:TERMINALSxROUTERSxGLOBAL[xGROUPS] or graph:FILE, where mesh2d, mesh3d, torus2d and \
                     torus3d also say how many extents there must be";

impl FromStr for Topology {
    type Err = ConfigError;

    /// Reads `direct:N`, `ring:N`, `crossbar:N` (or `switch:N`), `mesh:4x4x4`, `mesh2d:8x8`, `torus3d:2x2x2`,
    /// `hypercube:6`, `fat_tree:16x2` (arity, levels), `dragonfly:4x8x4` (terminals, routers, global links),
    /// `graph:FILE` and the like.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let wrong = || ConfigError::range("topology", format!("'{text}'"), FORMS);
        let (kind, sizes) = text.split_once(':').ok_or_else(wrong)?;
        if kind == "graph" {
            let topology = Self::Graph { file: sizes.into() };
            topology.nodes()?;
            return Ok(topology);
        }
        let sizes: Vec<u32> = sizes.split('x').map(str::parse).collect::<Result<_, _>>().map_err(|_| wrong())?;
        let one = |topology: fn(u32) -> Self| match sizes[..] {
            [nodes] => Ok(topology(nodes)),
            _ => Err(wrong()),
        };
        let grid = |count: Option<usize>, topology: fn(Vec<u32>) -> Self| {
            if count.is_none_or(|count| sizes.len() == count) { Ok(topology(sizes.clone())) } else { Err(wrong()) }
        };
        let mesh = |dims| Self::Mesh { dims };
        let torus = |dims| Self::Torus { dims };
        let topology = match kind {
            "direct" => one(|nodes| Self::Direct { nodes }),
            "ring" => one(|nodes| Self::Ring { nodes }),
            "crossbar" | "switch" => one(|nodes| Self::Crossbar { nodes }),
            "mesh" => grid(None, mesh),
            "mesh2d" => grid(Some(2), mesh),
            "mesh3d" => grid(Some(3), mesh),
            "hypercube" => one(|dims| Self::Hypercube { dims }),
            "fat_tree" => match sizes[..] {
                [arity, levels] => Ok(Self::FatTree { arity, levels, oversubscription: 1 }),
                [arity, levels, oversubscription] => Ok(Self::FatTree { arity, levels, oversubscription }),
                _ => Err(wrong()),
            },
            "dragonfly" => match sizes[..] {
                [terminals, routers, global] => Ok(Self::Dragonfly { terminals, routers, global, groups: None }),
                [terminals, routers, global, groups] => {
                    Ok(Self::Dragonfly { terminals, routers, global, groups: Some(groups) })
                }
                _ => Err(wrong()),
            },
            "ringlets" => grid(None, |dims| Self::Ringlets { dims }),
            "torus" => grid(None, torus),
            "torus2d" => grid(Some(2), torus),
            "torus3d" => grid(Some(3), torus),
            _ => Err(wrong()),
        }?;
        topology.nodes()?;
        Ok(topology)
    }
}

impl fmt::Display for Topology {
    /// In the form that [`FromStr`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let grid = |dims: &[u32]| dims.iter().map(u32::to_string).collect::<Vec<_>>().join("x");
        match self {
            Self::Direct { nodes } => write!(f, "direct:{nodes}"),
            Self::Ring { nodes } => write!(f, "ring:{nodes}"),
            Self::Crossbar { nodes } => write!(f, "crossbar:{nodes}"),
            Self::Mesh { dims } => write!(f, "mesh:{}", grid(dims)),
            Self::Torus { dims } => write!(f, "torus:{}", grid(dims)),
            Self::Ringlets { dims } => write!(f, "ringlets:{}", grid(dims)),
            Self::Hypercube { dims } => write!(f, "hypercube:{dims}"),
            Self::FatTree { arity, levels, oversubscription: 1 } => write!(f, "fat_tree:{arity}x{levels}"),
            Self::FatTree { arity, levels, oversubscription } => {
                write!(f, "fat_tree:{arity}x{levels}x{oversubscription}")
            }
            Self::Dragonfly { terminals, routers, global, groups: None } => {
                write!(f, "dragonfly:{terminals}x{routers}x{global}")
            }
            Self::Dragonfly { terminals, routers, global, groups: Some(groups) } => {
                write!(f, "dragonfly:{terminals}x{routers}x{global}x{groups}")
            }
            Self::Graph { file } => write!(f, "graph:{}", file.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        for text in [
            "direct:2",
            "ring:8",
            "crossbar:64",
            "mesh:4x4x4",
            "torus:8x8",
            "ringlets:4x2",
            "hypercube:6",
            "fat_tree:4x3",
            "fat_tree:4x3x2",
            "dragonfly:2x4x2",
            "dragonfly:2x4x2x5",
        ] {
            assert_eq!(text.parse::<Topology>().unwrap().to_string(), text);
        }
        assert_eq!("mesh3d:4x4x4".parse(), Ok(Topology::Mesh { dims: vec![4, 4, 4] }));
        assert_eq!("switch:3".parse(), Ok(Topology::Crossbar { nodes: 3 }));
    }

    #[test]
    fn nonsense_is_answered_with_the_forms() {
        for text in ["mesh", "mesh:", "mesh2d:4x4x4", "ring:2x2", "ring:-1", "star:5", "mesh:4x"] {
            let error = text.parse::<Topology>().unwrap_err().to_string();
            assert!(error.contains(&format!("'{text}'")) && error.contains("torus:AxB"), "{error}");
        }
        let error = "mesh:300x300".parse::<Topology>().unwrap_err().to_string();
        assert!(error.contains("90000 nodes"), "{error}");
    }
}
