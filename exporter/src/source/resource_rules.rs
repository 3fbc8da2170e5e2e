//! Which objects a package consists of, for sources that have the exporter look at them.

use std::hash::{DefaultHasher, Hash, Hasher};

use statusbridge_contract::Health;
use statusbridge_expression::{EvaluationError, Expression, Scope};

use super::{
    kind::GroupKind,
    references,
    resources::{ResourceLabel, ResourceSet},
};

/// Longest `name=value` of a label.
const MAX_LABEL: usize = 512;

/// The field `leaves` of a source.
#[derive(Debug)]
pub(crate) struct ResourcesProgram {
    /// Whether to look at them at all.
    pub(crate) enabled: bool,
    /// Of which packages; `None`: of all.
    pub(crate) when: Option<Expression>,
    pub(crate) objects: Option<Expression>,
    pub(crate) labelled: Option<LabelledProgram>,
    pub(crate) basis: Option<Expression>,
    pub(crate) ignore: Vec<GroupKind>,
}

#[derive(Debug)]
pub(crate) struct LabelledProgram {
    pub(crate) label: Expression,
    pub(crate) kinds: Expression,
}

/// A state that a health rule gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HealthRule {
    Is(Health),
    /// What the resources say; a rule that does not hold where they are not looked at.
    Resources,
}

/// The name of [`HealthRule::Resources`] in a source.
pub(super) const LEAVES: &str = "Leaves";

impl std::str::FromStr for HealthRule {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if text == LEAVES { Ok(Self::Resources) } else { text.parse().map(Self::Is).map_err(|_| ()) }
    }
}

impl std::fmt::Display for HealthRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Is(health) => health.fmt(f),
            Self::Resources => f.write_str(LEAVES),
        }
    }
}

impl ResourcesProgram {
    /// What a package consists of; `None` when it is not to be looked at. `about` is whatever else
    /// changes when a package is applied anew.
    pub(crate) fn set(
        &self,
        scope: &Scope<'_>,
        applied: bool,
        about: impl Hash,
    ) -> Result<Option<ResourceSet>, EvaluationError> {
        let wanted = self.when.as_ref().map_or(Ok(true), |when| when.truth(scope))?;
        if !self.enabled || !wanted {
            return Ok(None);
        }
        let mut set = ResourceSet { applied, ..ResourceSet::default() };
        let ignored =
            |group: &str, kind: &str| self.ignore.iter().any(|i| i.group == group && i.kind == kind);
        if let Some(objects) = &self.objects {
            set.objects = references::resources(objects, scope)?;
            set.objects.retain(|resource| !ignored(&resource.group, &resource.kind));
            set.objects.sort_unstable();
            set.objects.dedup();
        }
        if let Some(LabelledProgram { label, kinds }) = &self.labelled
            && let Some(text) = label.text_of(scope, MAX_LABEL)?
        {
            let Some((label, value)) = text.split_once('=') else {
                return Err(label.error(format!("gives `{text}`, where name=value is needed")));
            };
            let of_kind = |kind: GroupKind| ResourceLabel {
                group: kind.group.into(),
                kind: kind.kind.into(),
                label: label.into(),
                value: value.into(),
            };
            let kinds = references::group_kinds(kinds, scope)?;
            set.labelled = kinds.into_iter().filter(|k| !ignored(&k.group, &k.kind)).map(of_kind).collect();
            set.labelled.sort_unstable();
            set.labelled.dedup();
        }
        let mut hasher = DefaultHasher::new();
        about.hash(&mut hasher);
        set.objects.hash(&mut hasher);
        set.labelled.hash(&mut hasher);
        if let Some(basis) = &self.basis {
            basis.hash_of(scope)?.hash(&mut hasher);
        }
        set.basis = hasher.finish();
        Ok(Some(set))
    }

    /// Runs every expression, also where resources are not looked at.
    pub(super) fn try_all(&self, scope: &Scope<'_>) -> Result<(), EvaluationError> {
        self.when.iter().try_for_each(|e| e.truth(scope).map(drop))?;
        self.objects.iter().try_for_each(|e| references::resources(e, scope).map(drop))?;
        self.basis.iter().try_for_each(|e| e.hash_of(scope).map(drop))?;
        self.labelled.iter().try_for_each(|labelled| {
            labelled.label.text_of(scope, MAX_LABEL)?;
            references::group_kinds(&labelled.kinds, scope).map(drop)
        })
    }

    /// The expressions.
    pub(super) fn expressions(&self) -> impl Iterator<Item = &Expression> {
        let labelled = self.labelled.iter().flat_map(|l| [&l.label, &l.kinds]);
        self.when.iter().chain(&self.objects).chain(&self.basis).chain(labelled)
    }
}
