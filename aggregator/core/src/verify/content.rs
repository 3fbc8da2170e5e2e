//! What one exposition attests.

use std::sync::Arc;

use statusbridge_contract::Digest;

use super::package::{Package, key_in};
use super::packages::Packages;

/// What a name takes besides its bytes: its counts, and its places where it is kept and looked for.
const NAME: usize = 64;

/// What an exposition says about one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The source's name.
    pub name: Arc<str>,
    /// `statusbridge_source_up`.
    pub up: Option<u64>,
    /// `statusbridge_source_packages`.
    pub packages: Option<u64>,
}

/// An entry of the dictionary of reasons.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reason {
    /// The source whose dictionary it is in.
    pub source: Box<str>,
    /// The code, as the label has it.
    pub code: Box<str>,
    /// The word.
    pub word: Box<str>,
    /// The sample's value, which is 1.
    pub value: u64,
}

/// Everything that one exposition attests, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content {
    /// The sum over its samples: the digest of each exposition of it, without when that was rendered.
    pub state: Digest,
    /// How many samples it is.
    pub samples: u64,
    /// The sources, in order of their names.
    pub sources: Vec<Source>,
    /// The dictionary of reasons, by source, code and word.
    pub reasons: Arc<[Reason]>,
    /// The packages, by key.
    pub packages: Packages,
}

impl Content {
    /// Bytes that it takes, roughly, with `memory` for each package besides. Names that others share are counted, too.
    pub fn bytes(&self, memory: usize) -> usize {
        let names = self.packages.keys().iter().map(|key| key.len() + NAME).sum::<usize>();
        let words = self
            .reasons
            .iter()
            .map(|it| size_of_val(it) + it.source.len() + it.code.len() + it.word.len() + NAME);
        names + words.sum::<usize>() + self.packages.bytes() + self.packages.len() * memory
    }

    /// A package, by its [`key`](super::package::key), and its place among [`Content::packages`].
    pub fn find(&self, key: &str) -> Option<(usize, Package)> {
        let at = self.packages.position(key)?;
        Some((at, self.packages.get(at)?))
    }

    /// The package with this [`key`](super::package::key) in each other cluster that is told of.
    pub fn find_elsewhere(&self, key: &str) -> impl Iterator<Item = (&str, Package)> {
        let clusters = self.packages.clusters_of(key);
        clusters.filter_map(|cluster| Some((cluster, self.find(&key_in(key, cluster))?.1)))
    }

    /// Whether there is a package with this [`key`](super::package::key).
    pub fn has(&self, key: &str) -> bool {
        self.packages.position(key).is_some()
    }

    /// Whether the same sources are up, and no others.
    pub(crate) fn has_same_sources(&self, other: &Self) -> bool {
        self.sources.iter().map(|it| (&it.name, it.up)).eq(other.sources.iter().map(|it| (&it.name, it.up)))
    }

    /// Whether a source is up.
    pub fn is_up(&self, source: &str) -> bool {
        self.source(source).is_some_and(|it| it.up == Some(1))
    }

    /// What it says about a source.
    pub fn source(&self, name: &str) -> Option<&Source> {
        let at = self.sources.binary_search_by(|source| source.name.as_ref().cmp(name)).ok()?;
        self.sources.get(at)
    }

    /// The word for a reason code; codes that the dictionary lacks are shown as they are, 0 is none.
    pub fn reason(&self, source: &str, code: u64) -> Option<String> {
        if code == 0 {
            return None;
        }
        let decimal = code.to_string();
        let wanted = (source, decimal.as_str());
        let at = self.reasons.partition_point(|it| (it.source.as_ref(), it.code.as_ref()) < wanted);
        let known = self.reasons.get(at).filter(|it| (it.source.as_ref(), it.code.as_ref()) == wanted);
        Some(known.map_or_else(|| format!("code {code:#x}"), |it| it.word.to_string()))
    }
}
