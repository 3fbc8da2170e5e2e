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
    /// Size at which unused ones are looked for.
    limit: usize,
}

impl<T: ?Sized> Default for Interned<T> {
    fn default() -> Self {
        Self { all: HashSet::new(), limit: 0 }
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
    fn intern(&mut self, name: Arc<T>) -> Arc<T> {
        if let Some(known) = self.all.get(&name) {
            return known.clone();
        }
        if self.all.len() >= self.limit {
            self.all.retain(|n| Arc::strong_count(n) > 1);
            self.limit = 1024.max(2 * self.all.len());
        }
        self.all.insert(name.clone());
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_once_and_only_while_used() {
        let mut names = Interned::<str>::default();
        let one = names.intern("a".into());
        assert!(Arc::ptr_eq(&one, &names.intern("a".into())));
        for i in 0..5000 {
            names.intern(format!("n{i}").into());
        }
        assert!(names.all.len() <= 1024 && names.all.contains("a"));
    }
}
