//! Which kinds an API server that has the saved objects serves, and how it shows their objects.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::de::DeserializeSeed as _;
use serde_json::Value;

use super::definition::Definition;
use crate::{
    saved::SavedObject,
    source::{KindRef, Projection, Selector},
    watch::PackageKey,
};

/// Group and kind.
pub(crate) type GroupKind = (String, String);

/// The kinds of some objects: those that saved CustomResourceDefinitions define, and those that objects are of.
#[derive(Debug, Default)]
pub struct Kinds {
    definitions: HashMap<GroupKind, Definition>,
    /// Versions at which there are objects.
    versions: HashMap<GroupKind, BTreeSet<String>>,
    /// How much was filled in.
    filled: AtomicUsize,
}

/// Most that is filled in for all objects together.
const MAX_FILLED: usize = 64 << 20;

/// How an API server shows the objects of a kind to a watch.
#[derive(Debug, Clone)]
pub(crate) struct View {
    kind: GroupKind,
    /// Versions that are read; empty: any.
    versions: Vec<String>,
    /// The version at which objects are shown that can be converted, and the versions from which they can.
    converted: Option<(String, Vec<String>)>,
    selector: Option<Selector>,
}

/// Why a watch does not show an object of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hidden {
    /// It was saved at a version that is not read.
    OtherVersion,
    /// It has not the labels.
    NotSelected,
}

impl Kinds {
    /// The kinds of these objects.
    pub fn of(objects: &[SavedObject]) -> Self {
        let mut kinds = Self::default();
        for SavedObject { value, .. } in objects {
            kinds.definitions.extend(Definition::of(value));
            kinds.versions.entry(group_kind(value)).or_default().insert(version(value).to_owned());
        }
        kinds
    }

    /// The kinds in any of these categories.
    pub(crate) fn of_categories(&self, categories: &[String]) -> Vec<KindRef> {
        let is_in = |definition: &Definition| definition.categories.iter().any(|it| categories.contains(it));
        let kind = |((group, kind), definition): (&GroupKind, &Definition)| {
            let served = definition.versions.iter().filter(|version| version.served);
            let versions: Vec<String> = served.map(|version| version.name.clone()).collect();
            (is_in(definition) && !versions.is_empty()).then(|| KindRef {
                group: group.clone(),
                kind: kind.clone(),
                versions,
                resource: Some(definition.plural.clone()),
                selector: None,
            })
        };
        let mut found: Vec<KindRef> = self.definitions.iter().filter_map(kind).collect();
        found.sort_unstable();
        found
    }

    /// How objects of a kind are shown; `None` when the kind is not served.
    pub(crate) fn view(&self, of: &KindRef) -> Option<View> {
        let kind = (of.group.clone(), of.kind.clone());
        let is_read = |version: &str| of.versions.is_empty() || of.versions.iter().any(|it| it == version);
        let (is_served, converted) = match self.definitions.get(&kind) {
            Some(definition) => {
                let mut served = definition.versions.iter().filter(|it| it.served && is_read(&it.name));
                let preferred =
                    of.versions.iter().find(|it| served.clone().any(|served| served.name == **it));
                let shown = preferred.cloned().filter(|_| definition.converts);
                let from = definition.versions.iter().map(|version| version.name.clone()).collect();
                (served.next().is_some(), shown.map(|shown| (shown, from)))
            }
            None => {
                let versions = self.versions.get(&kind);
                (versions.is_some_and(|all| all.iter().any(|version| is_read(version))), None)
            }
        };
        let selector = of.selector.clone();
        is_served.then(|| View { kind, versions: of.versions.clone(), converted, selector })
    }

    /// Whether any kind is defined.
    pub(super) fn has_definitions(&self) -> bool {
        !self.definitions.is_empty()
    }

    /// The schema of a kind's objects at the first of its versions that is served; `None` when it is not defined.
    pub(super) fn schema(&self, of: &KindRef) -> Option<&Value> {
        let definition = self.definitions.get(&(of.group.clone(), of.kind.clone()))?;
        let served = |wanted: &String| definition.versions.iter().find(|it| it.served && it.name == *wanted);
        of.versions.iter().find_map(served).map(|version| &version.schema)
    }

    /// An object as an API server keeps it: with what its definition fills in.
    pub(crate) fn stored(&self, mut object: Value) -> Value {
        if let Some(definition) = self.definitions.get(&group_kind(&object)) {
            let version = version(&object).to_owned();
            let before = MAX_FILLED.saturating_sub(self.filled.load(Ordering::Relaxed));
            let mut left = before;
            definition.fill_in(&version, &mut object, &mut left);
            self.filled.fetch_add(before - left, Ordering::Relaxed);
        }
        object
    }
}

impl View {
    /// Whether it is about a kind.
    pub(crate) fn is_of(&self, kind: &GroupKind) -> bool {
        self.kind == *kind
    }

    /// Group and kind that it is about.
    pub(crate) fn kind(&self) -> &GroupKind {
        &self.kind
    }

    /// Whether an object of the kind is shown.
    pub(crate) fn shows(&self, object: &Value) -> Result<(), Hidden> {
        let version = version(object);
        let is_read = match &self.converted {
            Some((_, from)) => from.iter().any(|it| it == version),
            None => self.versions.is_empty() || self.versions.iter().any(|it| it == version),
        };
        if !is_read {
            return Err(Hidden::OtherVersion);
        }
        match &self.selector {
            Some(selector) if !selector.matches(object) => Err(Hidden::NotSelected),
            _ => Ok(()),
        }
    }

    /// What a watch keeps of an object of the kind; `None` when it does not see it.
    pub(crate) fn read(&self, object: &Value, projection: &Projection) -> Option<Value> {
        self.shows(object).ok()?;
        // What is JSON in memory is JSON.
        let mut lean = projection.seed().deserialize(object).ok()?;
        if let Some((shown, _)) = &self.converted
            && let Some(own) = lean.get_mut("apiVersion")
        {
            let slash = if self.kind.0.is_empty() { "" } else { "/" };
            *own = format!("{}{slash}{shown}", self.kind.0).into();
        }
        Some(lean)
    }
}

/// Group and kind of an object.
pub(crate) fn group_kind(object: &Value) -> GroupKind {
    let group = text(object, "apiVersion").rsplit_once('/').map_or("", |(group, _)| group);
    (group.to_owned(), text(object, "kind").to_owned())
}

/// Namespace and name of an object.
pub(crate) fn key(object: &Value) -> PackageKey {
    let text = |field: &str| object.get("metadata").and_then(|metadata| metadata.get(field)?.as_str());
    PackageKey::new(text("namespace"), text("name").unwrap_or_default())
}

/// The version at which an object is.
pub(crate) fn version(object: &Value) -> &str {
    let text = text(object, "apiVersion");
    text.rsplit_once('/').map_or(text, |(_, version)| version)
}

fn text<'v>(object: &'v Value, field: &str) -> &'v str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn crd(versions: &[(&str, bool)], strategy: &str) -> Value {
        let version = |(name, served): &(&str, bool)| json!({"name": name, "served": served, "schema": {"openAPIV3Schema": {}}});
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "w"},
            "spec": {"group": "example.com", "names": {"kind": "Widget", "plural": "widgets", "categories": ["things"]},
                "conversion": {"strategy": strategy}, "versions": versions.iter().map(version).collect::<Vec<_>>()}})
    }

    fn widget(version: &str) -> Value {
        json!({"apiVersion": format!("example.com/{version}"), "kind": "Widget", "metadata": {"name": "a"}})
    }

    fn widgets(versions: &[&str], selector: Option<&str>) -> KindRef {
        KindRef {
            group: "example.com".to_owned(),
            kind: "Widget".to_owned(),
            versions: versions.iter().map(ToString::to_string).collect(),
            resource: None,
            selector: selector.map(|text| text.parse().unwrap()),
        }
    }

    fn kinds(objects: &[Value]) -> Kinds {
        let objects: Vec<_> = objects.iter().map(|object| SavedObject::new("f", object.clone())).collect();
        Kinds::of(&objects)
    }

    /// The version at which a watch sees a Widget that was saved at v1beta1.
    fn seen(kinds: &Kinds, of: &KindRef) -> Option<Result<String, Hidden>> {
        let view = kinds.view(of)?;
        let object = widget("v1beta1");
        let lean = view.read(&object, &Projection::of_object());
        Some(view.shows(&object).map(|()| version(&lean.unwrap()).to_owned()))
    }

    const NONE: &str = "None";

    #[rstest]
    #[case::by_itself(None, &["v1beta1"], Some(Ok("v1beta1")))]
    #[case::of_any_version(None, &[], Some(Ok("v1beta1")))]
    #[case::of_another_version(None, &["v1"], None)]
    #[case::the_preferred_one_that_is_served(Some((&[("v1", true), ("v1beta1", true)][..], NONE)), &["v1", "v1beta1"], Some(Ok("v1")))]
    #[case::the_other_one(Some((&[("v1", false), ("v1beta1", true)][..], NONE)), &["v1", "v1beta1"], Some(Ok("v1beta1")))]
    #[case::one_that_is_no_longer_served(Some((&[("v1", true), ("v1beta1", false)][..], NONE)), &["v1"], Some(Ok("v1")))]
    #[case::none_that_is_served(Some((&[("v1", false), ("v1beta1", true)][..], NONE)), &["v1"], None)]
    #[case::by_a_webhook_that_nobody_can_ask(Some((&[("v1", true), ("v1beta1", true)][..], "Webhook")), &["v1"], Some(Err(Hidden::OtherVersion)))]
    fn an_object_is_shown_at_the_version_that_an_api_server_would_show(
        #[case] defined: Option<(&[(&str, bool)], &str)>,
        #[case] versions: &[&str],
        #[case] expected: Option<Result<&str, Hidden>>,
    ) {
        let crd = defined.map(|(versions, strategy)| crd(versions, strategy));
        let objects: Vec<Value> = crd.into_iter().chain([widget("v1beta1")]).collect();
        let seen = seen(&kinds(&objects), &widgets(versions, None));
        assert_eq!(seen, expected.map(|shown| shown.map(str::to_owned)));
    }

    #[test]
    fn objects_without_the_labels_are_not_shown() {
        let kinds = kinds(&[widget("v1beta1")]);
        assert_eq!(seen(&kinds, &widgets(&["v1beta1"], Some("team=web"))), Some(Err(Hidden::NotSelected)));
    }

    #[test]
    fn kinds_are_found_by_their_categories() {
        let kinds = kinds(&[crd(&[("v2", true), ("v1", false)], NONE)]);
        let found = kinds.of_categories(&["others".to_owned(), "things".to_owned()]);
        assert_eq!(found, [KindRef { resource: Some("widgets".to_owned()), ..widgets(&["v2"], None) }]);
        assert_eq!(kinds.of_categories(&["others".to_owned()]), []);
        assert!(kinds.view(&found[0]).is_some(), "it is served without an object");
    }
}
