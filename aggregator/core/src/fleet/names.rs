//! One copy for all clusters of what many of them say in the same words.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use crate::verify::Content;
use crate::verify::content::Reason;

/// What was said.
#[derive(Debug, Default)]
pub(super) struct Names {
    keys: Interned<str>,
    lists: Interned<[Arc<str>]>,
    dictionaries: Interned<[Reason]>,
}

/// Values of which there is one copy.
#[derive(Debug)]
struct Interned<T: ?Sized> {
    all: HashSet<Arc<T>>,
    /// Bytes of all of them.
    bytes: usize,
    /// Beyond so many bytes, unused ones are dropped: twice those that were in use at the last time.
    limit: usize,
}

/// Unused values of so many bytes are not worth the search.
const LEAST: usize = 64 << 10;

impl<T: ?Sized> Default for Interned<T> {
    fn default() -> Self {
        Self { all: HashSet::new(), bytes: 0, limit: LEAST }
    }
}

impl Names {
    /// Has a content share what others say too; `old` is what the same stream said before.
    pub(super) fn share(&mut self, content: &mut Content, old: Option<&Content>) {
        if let Some(old) = old {
            content.packages.share(old.packages.keys());
            if content.reasons == old.reasons {
                content.reasons = old.reasons.clone();
            }
        }
        for source in &mut content.sources {
            source.name = self.keys.intern(source.name.clone());
        }
        if !old.is_some_and(|old| Arc::ptr_eq(old.packages.keys(), content.packages.keys())) {
            let keys = content.packages.keys().iter().map(|key| self.keys.intern(key.clone())).collect();
            content.packages.share(&self.lists.intern(keys));
        }
        if !old.is_some_and(|old| Arc::ptr_eq(&old.reasons, &content.reasons)) {
            content.reasons = self.dictionaries.intern(content.reasons.clone());
        }
    }
}

impl<T: ?Sized + Eq + Hash> Interned<T> {
    /// The one copy of a value.
    fn intern(&mut self, value: Arc<T>) -> Arc<T> {
        if let Some(known) = self.all.get(&value) {
            return known.clone();
        }
        self.bytes += size(&value);
        if self.bytes > self.limit {
            self.all.retain(|known| Arc::strong_count(known) > 1);
            self.bytes = self.all.iter().map(size).sum::<usize>() + size(&value);
            self.limit = LEAST.max(2 * self.bytes);
        }
        self.all.insert(value.clone());
        value
    }
}

/// Bytes of a value and of its place, without what it points to.
fn size<T: ?Sized>(value: &Arc<T>) -> usize {
    size_of_val(value.as_ref()) + size_of_val(value) + 2 * size_of::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_once_and_only_while_used() {
        let mut names = Interned::<str>::default();
        let one = names.intern("a".into());
        assert!(Arc::ptr_eq(&one, &names.intern("a".into())));
        for i in 0..50_000 {
            names.intern(format!("n{i}").into());
        }
        assert!(names.all.contains("a") && names.all.iter().map(size).sum::<usize>() <= LEAST);
    }

    #[test]
    fn long_lists_that_nobody_uses_do_not_pile_up() {
        let mut lists = Interned::<[u64]>::default();
        let mut used = lists.intern(vec![0; 100_000].into());
        for i in 1..50 {
            used = lists.intern(vec![i; 100_000].into());
            assert!(lists.all.len() <= 4, "{} lists are kept after {i} changes", lists.all.len());
        }
        assert!(Arc::ptr_eq(&used, &lists.intern(vec![49; 100_000].into())));
    }
}
