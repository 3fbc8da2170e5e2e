//! Lean objects as they are kept between updates.
//!
//! Objects of a kind are much alike: the same fields, the same words in them. So each is kept as JSON
//! compressed against one that came earlier, which resources about a fifth of it and costs less than
//! parsing it. That is most of what the exporter has in memory.

use std::sync::Arc;

use serde_json::Value;
use statusbridge_contract::sample;

/// Largest object that others are compressed against, in bytes: each compression reads all of it.
const MAX_MODEL: usize = 16 * 1024;

/// A lean object, or only its hash where nobody reads it again. Equal ones are equal objects; equal
/// objects may differ here while their kind's model is new, which costs one evaluation too many.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PackedObject {
    Packed { model: Arc<[u8]>, bytes: Box<[u8]> },
    Hash(u64),
}

/// Packs objects of one kind.
#[derive(Debug, Default)]
pub(super) struct Packer {
    /// What objects are compressed against.
    model: Arc<[u8]>,
}

impl Packer {
    /// Keeps an object whole. One that is much larger than the model is the next model: the first
    /// that came may have had no status yet.
    pub(super) fn pack(&mut self, object: &Value) -> PackedObject {
        let json = json(object);
        if json.len() > 2 * self.model.len() && json.len() <= MAX_MODEL {
            self.model = Arc::from(json.as_slice());
        }
        let bytes = lz4_flex::block::compress_prepend_size_with_dict(&json, &self.model);
        PackedObject::Packed { model: self.model.clone(), bytes: bytes.into_boxed_slice() }
    }
}

impl PackedObject {
    /// Keeps the hash of an object.
    pub(super) fn hash(object: &Value) -> Self {
        Self::Hash(sample::hash_canonical(&json(object)))
    }

    /// The object, if it was kept whole.
    pub(super) fn parse(&self) -> Option<Value> {
        match self {
            Self::Packed { model, bytes } => {
                let json = lz4_flex::block::decompress_size_prepended_with_dict(bytes, model).ok()?;
                serde_json::from_slice(&json).ok()
            }
            Self::Hash(_) => None,
        }
    }
}

fn json(object: &Value) -> Vec<u8> {
    // A value that was parsed from JSON can be written as JSON.
    serde_json::to_vec(object).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn flux(n: usize) -> Value {
        let revision = format!("main@sha1:{}", format!("{:016x}", n * 7919).repeat(3));
        let condition = json!({"type": "Ready", "status": "True", "reason": "ReconciliationSucceeded",
            "message": format!("Applied revision: {revision}"), "lastTransitionTime": "2026-01-02T03:04:05Z"});
        json!({"metadata": {"name": format!("package-{n}"), "namespace": "apps"},
            "status": {"conditions": [condition], "lastAppliedRevision": revision}})
    }

    #[test]
    fn objects_that_are_alike_take_a_fraction_of_their_json() {
        let mut packer = Packer::default();
        packer.pack(&json!({"metadata": {"name": "no-status-yet"}}));
        let size = |kept: &PackedObject| match kept {
            PackedObject::Packed { bytes, .. } => bytes.len(),
            PackedObject::Hash(_) => 0,
        };
        packer.pack(&flux(0));
        let packed = packer.pack(&flux(1));
        assert!(size(&packed) * 3 < json(&flux(1)).len(), "{packed:?}");
        assert_eq!(packed, packer.pack(&flux(1)));
        assert_ne!(packed, packer.pack(&flux(2)));
    }

    proptest! {
        #[test]
        fn what_is_kept_comes_back(objects in proptest::collection::vec((any::<String>(), 0usize..40), 1..12)) {
            let mut packer = Packer::default();
            let objects: Vec<Value> = objects
                .into_iter()
                .map(|(text, n)| json!({"text": text, "status": vec![flux(n); n], "n": n}))
                .collect();
            let kept: Vec<PackedObject> = objects.iter().map(|o| packer.pack(o)).collect();
            for (kept, object) in kept.iter().zip(&objects) {
                prop_assert_eq!(kept.parse(), Some(object.clone()));
            }
        }
    }
}
