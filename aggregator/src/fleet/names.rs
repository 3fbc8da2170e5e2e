//! One copy of each package's identity for all clusters.

use std::{collections::HashSet, sync::Arc};

/// Interned strings.
#[derive(Debug, Default)]
pub(super) struct Names {
    all: HashSet<Arc<str>>,
    /// Size at which unused ones are looked for.
    limit: usize,
}

impl Names {
    /// The one copy of a name.
    pub(super) fn intern(&mut self, name: Arc<str>) -> Arc<str> {
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
        let mut names = Names::default();
        let one = names.intern("a".into());
        assert!(Arc::ptr_eq(&one, &names.intern("a".into())));
        for i in 0..5000 {
            names.intern(format!("n{i}").into());
        }
        assert!(names.all.len() <= 1024 && names.all.contains("a"));
    }
}
