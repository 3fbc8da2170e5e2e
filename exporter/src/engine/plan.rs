//! Which kinds are watched, and for which sources.

use std::sync::Arc;

use crate::{
    projection::Projection,
    source::{JoinKey, KindRef, Source},
    watch::KindId,
};

/// Which kinds are watched, and for which sources: fixed for the life of a process.
#[derive(Debug)]
pub struct Plan {
    /// Every kind once, with the parts of its objects that any source reads.
    pub kinds: Vec<(KindRef, Projection)>,
    /// By source: the kind that is a package, and the kinds of each of its `related`.
    pub(super) uses: Vec<(KindId, Vec<Vec<KindId>>)>,
}

impl Plan {
    /// What the sources need to have watched.
    pub fn new(sources: &[Arc<Source>]) -> Self {
        let mut kinds: Vec<(KindRef, Projection)> = Vec::new();
        let mut id_of = |kind: &KindRef, projection: &Projection| {
            if let Some(known) = kinds.iter().position(|(k, _)| k == kind) {
                kinds[known].1.merge(projection);
                return known;
            }
            kinds.push((kind.clone(), projection.clone()));
            kinds.len() - 1
        };
        let uses = sources
            .iter()
            .map(|source| {
                let related = source
                    .related
                    .iter()
                    .map(|r| r.kinds.iter().map(|kind| id_of(kind, &r.projection)).collect())
                    .collect();
                (id_of(&source.kind, source.projection()), related)
            })
            .collect();
        Self { kinds, uses }
    }

    /// Every kind that a source reads.
    pub(super) fn kinds_of(&self, source: usize) -> impl Iterator<Item = KindId> + '_ {
        let (own, related) = &self.uses[source];
        std::iter::once(*own).chain(related.iter().flatten().copied())
    }

    /// Whether a source reads anything beside its packages.
    pub(super) fn has_joins(&self, source: usize) -> bool {
        !self.uses[source].1.is_empty()
    }

    /// The kind in which a join of a source looks.
    pub(super) fn join_kind(&self, source: usize, join: &JoinKey) -> KindId {
        let (JoinKey::Reference { related, kind, .. } | JoinKey::Labels { related, kind, .. }) = join;
        self.uses[source].1[*related][*kind]
    }
}
