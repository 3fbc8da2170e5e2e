//! The exporter's attestation: a sum of sample hashes, so it is free of order and any part can be
//! added or taken away in constant time.

use crate::{fingerprint::MAX_48_BITS, metric::Metric, sample};

/// Sum of sample hashes modulo 2^48.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Digest(u64);

impl Digest {
    /// Adds a sample's hash.
    pub const fn add(&mut self, hash: u64) {
        self.0 = self.0.wrapping_add(hash) & MAX_48_BITS;
    }

    /// Takes a sample's hash away again.
    pub const fn remove(&mut self, hash: u64) {
        self.0 = self.0.wrapping_sub(hash) & MAX_48_BITS;
    }

    /// Adds all that another digest sums up.
    pub const fn merge(&mut self, other: Self) {
        self.add(other.0);
    }

    /// Takes all that another digest sums up away again.
    pub const fn subtract(&mut self, other: Self) {
        self.remove(other.0);
    }

    /// The digest of an exposition with this state that was rendered then (unix seconds).
    pub fn rendered(mut self, at: u64) -> Self {
        self.add(rendered_hash(at));
        self
    }

    /// The sum over the state alone, out of the digest of an exposition that was rendered then (unix seconds): it is
    /// the same for as long as the exporter says the same.
    pub fn of_state(digest: u64, rendered: u64) -> Self {
        let mut state = Self(digest & MAX_48_BITS);
        state.remove(rendered_hash(rendered));
        state
    }

    /// The metric's value, below 2^48.
    pub const fn value(self) -> u64 {
        self.0
    }
}

fn rendered_hash(at: u64) -> u64 {
    sample::hash(Metric::RenderedTimestamp.name(), &[], at)
}

impl FromIterator<u64> for Digest {
    fn from_iter<I: IntoIterator<Item = u64>>(hashes: I) -> Self {
        let mut sum = Self::default();
        hashes.into_iter().for_each(|h| sum.add(h));
        sum
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::{Metric, sample};

    type Set = BTreeMap<(usize, String), u64>;

    fn hash_of(((metric, package), value): (&(usize, String), &u64)) -> u64 {
        let labels = [("package", package.as_str()), ("package_source", "s")];
        sample::hash(Metric::ALL[*metric].name(), &labels, *value)
    }

    fn digest_of(set: &Set) -> Digest {
        set.iter().map(hash_of).collect()
    }

    fn sets() -> impl Strategy<Value = Set> {
        prop::collection::btree_map((0..10usize, "[a-z]{1,6}"), 0..=MAX_48_BITS, 1..40)
    }

    proptest! {
        #[test]
        fn order_does_not_matter(set in sets(), seed in any::<u64>()) {
            let mut hashes: Vec<u64> = set.iter().map(hash_of).collect();
            let n = hashes.len();
            hashes.rotate_left(seed as usize % n);
            hashes.swap(0, (seed >> 32) as usize % n);
            prop_assert_eq!(hashes.into_iter().collect::<Digest>(), digest_of(&set));
        }

        #[test]
        fn incremental_equals_recomputed(
            before in sets(),
            changes in prop::collection::vec(((0..10usize, "[a-z]{1,6}"), prop::option::of(0..=MAX_48_BITS)), 0..60),
        ) {
            let (mut set, mut digest) = (before.clone(), digest_of(&before));
            for (key, change) in changes {
                if let Some(old) = set.remove(&key) {
                    digest.remove(hash_of((&key, &old)));
                }
                if let Some(value) = change {
                    digest.add(hash_of((&key, &value)));
                    set.insert(key, value);
                }
            }
            prop_assert_eq!(digest, digest_of(&set));
        }

        #[test]
        fn parts_add_up(a in sets(), b in sets()) {
            let mut both = digest_of(&a);
            both.merge(digest_of(&b));
            prop_assert_eq!(both, a.iter().chain(&b).map(hash_of).collect::<Digest>());
            both.subtract(digest_of(&b));
            prop_assert_eq!(both, digest_of(&a));
        }

        #[test]
        fn the_time_of_rendering_is_attested_and_can_be_taken_away(set in sets(), at in 0..1u64 << 40, other in 0..1u64 << 40) {
            let state = digest_of(&set);
            let digest = state.rendered(at).value();
            prop_assert_eq!(Digest::of_state(digest, at), state);
            prop_assert_eq!(Digest::of_state(digest, other) == state, other == at);
        }

        #[test]
        fn any_single_fault_is_caught(set in sets(), pick in any::<prop::sample::Index>(), other in 0..=MAX_48_BITS) {
            let whole = digest_of(&set);
            let victim = set.iter().nth(pick.index(set.len())).map(|(k, v)| (k.clone(), *v)).unwrap();

            let mut lost = whole;
            lost.remove(hash_of((&victim.0, &victim.1)));
            prop_assert_ne!(lost, whole, "lost");

            let mut doubled = whole;
            doubled.add(hash_of((&victim.0, &victim.1)));
            prop_assert_ne!(doubled, whole, "doubled");

            let mut changed = set.clone();
            changed.insert(victim.0.clone(), other);
            prop_assert_eq!(digest_of(&changed) == whole, other == victim.1, "changed");

            // What a pipeline that keeps only float32 precision, or six significant digits, does.
            let single = f64::from(victim.1 as f32) as u64;
            let six: f64 = format!("{:.5e}", victim.1 as f64).parse().unwrap();
            for rounded in [single, six as u64] {
                let mut copy = set.clone();
                copy.insert(victim.0.clone(), rounded);
                prop_assert_eq!(digest_of(&copy) == whole, rounded == victim.1, "rounded");
            }

            let mut renamed = set.clone();
            renamed.remove(&victim.0);
            renamed.insert((victim.0.0, format!("{}-x", victim.0.1)), victim.1);
            prop_assert_ne!(digest_of(&renamed), whole, "relabelled");
        }
    }
}
