//! Which objects a package consists of, for sources that have the exporter watch them.

use std::hash::{DefaultHasher, Hash, Hasher};

use statusbridge_expression::{EvaluationError, Expression, Scope};

use super::{
    kind::GroupKind,
    references,
    resources::{ResourceLabel, ResourceSet},
};

/// Longest `name=value` of a label.
const MAX_LABEL: usize = 512;

/// The field `resources.watch` of a source.
#[derive(Debug)]
pub(crate) struct WatchProgram {
    /// Whether to watch them at all.
    pub(crate) enabled: bool,
    /// Of which packages; `None`: of all.
    pub(crate) when: Option<Expression>,
    pub(crate) references: Option<Expression>,
    pub(crate) labelled: Option<LabelledProgram>,
    pub(crate) basis: Option<Expression>,
    pub(crate) ignore: Vec<GroupKind>,
}

#[derive(Debug)]
pub(crate) struct LabelledProgram {
    pub(crate) label: Expression,
    pub(crate) kinds: Expression,
}

impl WatchProgram {
    /// What a package consists of; `None` when it is not to be looked at. `about` is whatever else
    /// changes when a package is applied anew.
    pub(crate) fn set(
        &self,
        scope: &mut Scope<'_>,
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
        if let Some(references) = &self.references {
            set.objects = references::resources(references, scope)?;
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
    pub(super) fn try_all(&self, scope: &mut Scope<'_>) -> Result<(), EvaluationError> {
        self.when.iter().try_for_each(|e| e.truth(scope).map(drop))?;
        self.references.iter().try_for_each(|e| references::resources(e, scope).map(drop))?;
        self.basis.iter().try_for_each(|e| e.hash_of(scope).map(drop))?;
        self.labelled.iter().try_for_each(|labelled| {
            labelled.label.text_of(scope, MAX_LABEL)?;
            references::group_kinds(&labelled.kinds, scope).map(drop)
        })
    }

    /// The expressions.
    pub(super) fn expressions(&self) -> impl Iterator<Item = &Expression> {
        let labelled = self.labelled.iter().flat_map(|l| [&l.label, &l.kinds]);
        self.when.iter().chain(&self.references).chain(&self.basis).chain(labelled)
    }
}
