//! Which objects of a kind have which labels, and which packages look for them.
//!
//! Each set of labels by which some source looks for objects of the kind has an index: from the values of these labels to the
//! objects that have them and to the packages that look for them. So an evaluation costs what it finds, and a change of
//! an object costs the packages that look for it, before or after.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use serde_json::Value;

use super::key::{Key, Referrer};
use crate::watch::PackageKey;

/// Values of the labels of an index, in their order.
type Values = Arc<[Box<str>]>;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct LabelIndex(Vec<Labels>);

/// The index of one set of labels.
#[derive(Debug)]
struct Labels {
    names: Box<[String]>,
    /// The values of each object that has all of the labels.
    values: HashMap<Key, Values>,
    entries: HashMap<Values, Entry>,
}

#[derive(Debug, Default)]
struct Entry {
    /// In order, so that those of one namespace are next to each other.
    objects: BTreeSet<Key>,
    /// By the namespace in which they look; `None` for every one.
    referrers: HashMap<Option<Box<str>>, HashSet<Referrer>>,
}

impl LabelIndex {
    /// Indexes these labels. Only objects that are put later will be found by them.
    pub(super) fn add(&mut self, names: &[&str]) {
        if !self.0.iter().any(|labels| *labels.names == *names) {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            self.0.push(Labels { names, values: HashMap::new(), entries: HashMap::new() });
        }
    }

    /// An object as it is now. Returns the packages that look for it as it was or is.
    pub(super) fn put(&mut self, key: &Key, object: &Value) -> BTreeSet<Referrer> {
        let labels = object.get("metadata").and_then(|metadata| metadata.get("labels"));
        let value = |name: &String| labels?.get(name)?.as_str().map(Box::from);
        let mut referrers = BTreeSet::new();
        for index in &mut self.0 {
            let values: Option<Values> = index.names.iter().map(value).collect();
            index.set(key, values, &mut referrers);
        }
        referrers
    }

    /// An object is gone. Returns the packages that look for it.
    pub(super) fn remove(&mut self, key: &Key) -> BTreeSet<Referrer> {
        let mut referrers = BTreeSet::new();
        self.0.iter_mut().for_each(|labels| labels.set(key, None, &mut referrers));
        referrers
    }

    /// A package looks for objects with these labels, in one namespace or in every one.
    pub(super) fn link(&mut self, namespace: Option<&str>, labels: &[(String, String)], referrer: Referrer) {
        if let Some(index) = self.0.iter_mut().find(|index| index.has_names(labels)) {
            let entry = index.entries.entry(values(labels)).or_default();
            entry.referrers.entry(namespace.map(Box::from)).or_default().insert(referrer);
        }
    }

    /// A package no longer looks for them.
    pub(super) fn unlink(
        &mut self,
        namespace: Option<&str>,
        labels: &[(String, String)],
        referrer: &Referrer,
    ) {
        let Some(index) = self.0.iter_mut().find(|index| index.has_names(labels)) else { return };
        let (namespace, values) = (namespace.map(Box::from), values(labels));
        let Some(entry) = index.entries.get_mut(&values) else { return };
        if let Some(referrers) = entry.referrers.get_mut(&namespace) {
            referrers.remove(referrer);
            if referrers.is_empty() {
                entry.referrers.remove(&namespace);
            }
        }
        index.drop_unused(&values);
    }

    /// The objects that have these labels, in one namespace or in every one.
    pub(super) fn find<'a>(
        &'a self,
        namespace: Option<&str>,
        labels: &[(String, String)],
    ) -> impl Iterator<Item = &'a Key> + use<'a> {
        let index = self.0.iter().find(|index| index.has_names(labels));
        let entry = index.and_then(|index| index.entries.get(&values(labels)));
        let first = namespace.map(|namespace| PackageKey::new(Some(namespace), ""));
        entry.into_iter().flat_map(move |entry| {
            let of_namespace = first.clone().map(|first| {
                let all = entry.objects.range::<PackageKey, _>(&first..);
                all.take_while(move |key| key.namespace == first.namespace)
            });
            let everywhere = of_namespace.is_none().then(|| entry.objects.iter());
            of_namespace.into_iter().flatten().chain(everywhere.into_iter().flatten())
        })
    }

    /// Every package that looks for objects by labels.
    pub(super) fn referrers(&self) -> impl Iterator<Item = &Referrer> {
        let entries = self.0.iter().flat_map(|index| index.entries.values());
        entries.flat_map(|entry| entry.referrers.values().flatten())
    }
}

impl Labels {
    fn has_names(&self, labels: &[(String, String)]) -> bool {
        self.names.iter().eq(labels.iter().map(|(name, _)| name))
    }

    /// Moves an object to these values, or takes it away; adds the packages that look for it as it was or is.
    fn set(&mut self, key: &Key, values: Option<Values>, referrers: &mut BTreeSet<Referrer>) {
        let before = self.values.get(key).cloned();
        if before != values
            && let Some(before) = self.values.remove(key)
        {
            if let Some(entry) = self.entries.get_mut(&before) {
                entry.add_referrers(key, referrers);
                entry.objects.remove(key);
            }
            self.drop_unused(&before);
        }
        if let Some(values) = values {
            if before.as_ref() != Some(&values) {
                // Objects with the same values share them.
                let values =
                    self.entries.get_key_value(&values).map_or(values.clone(), |(known, _)| known.clone());
                self.entries.entry(values.clone()).or_default().objects.insert(key.clone());
                self.values.insert(key.clone(), values);
            }
            if let Some(entry) = self.entries.get(&values) {
                entry.add_referrers(key, referrers);
            }
        }
    }

    fn drop_unused(&mut self, values: &Values) {
        if self
            .entries
            .get(values)
            .is_some_and(|entry| entry.objects.is_empty() && entry.referrers.is_empty())
        {
            self.entries.remove(values);
        }
    }
}

impl Entry {
    fn add_referrers(&self, key: &Key, referrers: &mut BTreeSet<Referrer>) {
        let of_namespace = key.namespace.is_some().then(|| self.referrers.get(&key.namespace)).flatten();
        let found = self.referrers.get(&None).into_iter().chain(of_namespace).flatten();
        referrers.extend(found.cloned());
    }
}

fn values(labels: &[(String, String)]) -> Values {
    labels.iter().map(|(_, value)| Box::from(value.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::source::JoinKey;

    const NAMES: [&[&str]; 3] = [&["app"], &["app", "tier"], &["tier", "app"]];

    #[derive(Debug, Clone)]
    enum Step {
        /// An object comes, or comes with other labels.
        Put(PackageKey, Value),
        Remove(PackageKey),
        /// A package looks for other objects from now on, by an index, in a namespace, for values.
        Look(PackageKey, Option<(usize, Option<String>, Vec<String>)>),
    }

    fn key() -> impl Strategy<Value = PackageKey> {
        let namespace = prop_oneof![Just(None), Just(Some("a")), Just(Some("aa")), Just(Some("b"))];
        (namespace, "[xyz]").prop_map(|(namespace, name)| PackageKey::new(namespace, &name))
    }

    fn object() -> impl Strategy<Value = (PackageKey, Value)> {
        let value = || proptest::option::of(prop_oneof![Just(json!("1")), Just(json!("2")), Just(json!(1))]);
        (key(), value(), value()).prop_map(|(key, app, tier)| {
            let labels =
                [("app", app), ("tier", tier)].into_iter().filter_map(|(name, value)| Some((name, value?)));
            let labels: serde_json::Map<String, Value> =
                labels.map(|(name, value)| (name.to_owned(), value)).collect();
            let mut metadata = json!({"name": key.name, "labels": labels});
            if let Some(namespace) = &key.namespace {
                metadata["namespace"] = json!(namespace);
            }
            (key, json!({"metadata": metadata}))
        })
    }

    fn step() -> impl Strategy<Value = Step> {
        let namespace = proptest::option::of("a|aa|b|c");
        let what = (0..NAMES.len(), namespace, proptest::collection::vec("[12]", 2));
        prop_oneof![
            3 => object().prop_map(|(key, object)| Step::Put(key, object)),
            1 => key().prop_map(Step::Remove),
            2 => (key(), proptest::option::of(what)).prop_map(|(key, what)| Step::Look(key, what)),
        ]
    }

    /// What the index has to say: every object and every package is looked at.
    #[derive(Default)]
    struct Scan {
        objects: BTreeMap<PackageKey, Value>,
        looks: BTreeMap<PackageKey, JoinKey>,
    }

    impl Scan {
        fn objects(&self, join: &JoinKey) -> Vec<PackageKey> {
            let found = self.objects.iter().filter(|(_, object)| join.matches(object));
            found.map(|(key, _)| key.clone()).collect()
        }

        fn packages(&self, versions: &[Option<Value>]) -> Vec<PackageKey> {
            let concerned = |join: &JoinKey| versions.iter().flatten().any(|object| join.matches(object));
            let found = self.looks.iter().filter(|(_, join)| concerned(join));
            found.map(|(key, _)| key.clone()).collect()
        }
    }

    fn parts(join: &JoinKey) -> (Option<&str>, &[(String, String)]) {
        let JoinKey::Labels { namespace, labels, .. } = join else { panic!("{join:?}") };
        (namespace.as_deref(), labels)
    }

    proptest! {
        #[test]
        fn the_index_says_what_a_scan_says(steps in proptest::collection::vec(step(), 1..60)) {
            let (mut index, mut scan) = (LabelIndex::default(), Scan::default());
            NAMES.iter().for_each(|names| index.add(names));
            let packages = |found: BTreeSet<Referrer>| -> Vec<PackageKey> {
                found.into_iter().map(|(_, key)| (*key).clone()).collect()
            };
            for step in steps {
                match step {
                    Step::Put(key, object) => {
                        let found = index.put(&Arc::new(key.clone()), &object);
                        let before = scan.objects.insert(key, object.clone());
                        prop_assert_eq!(packages(found), scan.packages(&[before, Some(object)]));
                    }
                    Step::Remove(key) => {
                        let found = index.remove(&Arc::new(key.clone()));
                        let before = scan.objects.remove(&key);
                        prop_assert_eq!(packages(found), scan.packages(&[before]));
                    }
                    Step::Look(key, what) => {
                        let referrer = (7, Arc::new(key.clone()));
                        if let Some(join) = scan.looks.remove(&key) {
                            let (namespace, labels) = parts(&join);
                            index.unlink(namespace, labels, &referrer);
                        }
                        if let Some((at, namespace, values)) = what {
                            let names = NAMES[at].iter().map(|name| (*name).to_owned());
                            let labels = names.zip(values).collect();
                            let join = JoinKey::Labels { related: 0, kind: 0, namespace, labels };
                            let (namespace, labels) = parts(&join);
                            index.link(namespace, labels, referrer);
                            scan.looks.insert(key, join);
                        }
                    }
                }
                for join in scan.looks.values() {
                    let (namespace, labels) = parts(join);
                    let found: Vec<PackageKey> = index.find(namespace, labels).map(|key| (**key).clone()).collect();
                    prop_assert_eq!(found, scan.objects(join), "{:?}", join);
                }
                let all: BTreeSet<PackageKey> = index.referrers().map(|(_, key)| (**key).clone()).collect();
                prop_assert_eq!(all, scan.looks.keys().cloned().collect::<BTreeSet<_>>());
            }
            for key in scan.objects.keys() {
                index.remove(&Arc::new(key.clone()));
            }
            for (key, join) in &scan.looks {
                let (namespace, labels) = parts(join);
                index.unlink(namespace, labels, &(7, Arc::new(key.clone())));
            }
            for labels in &index.0 {
                prop_assert!(labels.values.is_empty() && labels.entries.is_empty(), "left behind: {labels:?}");
            }
        }
    }
}
