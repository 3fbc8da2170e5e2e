//! References to objects and kinds, as expressions give them.

use statusbridge_expression::{EvaluationError, Expression, Item, Scope, cut};

use super::{kind::GroupKind, resources::ResourceRef};

/// Most objects that one package may consist of.
const MAX_RESOURCES: usize = 20_000;
/// Longest part of a reference to an object, in bytes; Kubernetes has 253 for most.
const MAX_REFERENCE: usize = 1024;
/// Most bytes of all references together, three times what an object of the API server may hold.
const MAX_REFERENCES: usize = 4 << 20;

/// References to objects: inventory ids, or maps with `kind`, `name`, `namespace` and `group` or
/// `apiVersion`.
pub(super) fn resources(
    expression: &Expression,
    scope: &mut Scope<'_>,
) -> Result<Vec<ResourceRef>, EvaluationError> {
    let mut bytes = 0;
    expression.each(scope, MAX_RESOURCES, |item| {
        let resource = resource(item)?;
        bytes += resource.group.len() + resource.kind.len() + resource.name.len();
        bytes += resource.namespace.as_ref().map_or(0, |namespace| namespace.len());
        if bytes > MAX_REFERENCES {
            return Err(item.error(format!("gives references of more than {MAX_REFERENCES} bytes")));
        }
        Ok(resource)
    })
}

fn resource(item: Item<'_>) -> Result<ResourceRef, EvaluationError> {
    if let Some(id) = item.text() {
        return (id.len() <= MAX_REFERENCE)
            .then(|| ResourceRef::from_id(id))
            .flatten()
            .ok_or_else(|| item.error(format!("`{}` is no inventory id", cut(id.to_owned(), 256))));
    }
    let GroupKind { group, kind } = group_kind(item)?;
    let name = item.field("name", MAX_REFERENCE)?.unwrap_or_default();
    if name.is_empty() {
        return Err(item.error("gives an object without a name"));
    }
    let namespace = item.field("namespace", MAX_REFERENCE)?.unwrap_or_default();
    Ok(ResourceRef::new(&group, &kind, &namespace, &name))
}

/// Kinds: maps with `kind` and `group` or `apiVersion`.
pub(super) fn group_kinds(
    expression: &Expression,
    scope: &mut Scope<'_>,
) -> Result<Vec<GroupKind>, EvaluationError> {
    expression.each(scope, MAX_RESOURCES, group_kind)
}

fn group_kind(item: Item<'_>) -> Result<GroupKind, EvaluationError> {
    if !item.has_fields() {
        return Err(item.mismatch("an inventory id or a map"));
    }
    let kind = item.field("kind", MAX_REFERENCE)?.unwrap_or_default();
    if kind.is_empty() {
        return Err(item.error("gives an object without a kind"));
    }
    let group = match item.field("apiVersion", MAX_REFERENCE)? {
        Some(version) => version.rsplit_once('/').map_or("", |(group, _)| group).to_owned(),
        None => item.field("group", MAX_REFERENCE)?.unwrap_or_default(),
    };
    Ok(GroupKind { group, kind })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    /// As large as the API server lets an object be.
    fn large() -> Value {
        let long = "x".repeat(250);
        json!({
            "text": "x".repeat(1 << 20),
            "items": (0..20_000).map(|n| json!({"n": n, "name": format!("item-{n}")})).collect::<Vec<_>>(),
            "numbers": (0..100_000).collect::<Vec<_>>(),
            "ids": (0..20_000).map(|n| format!("a-long-namespace_and-a-name-{n}_apps_Deployment")).collect::<Vec<_>>(),
            "long_ids": (0..20_000).map(|n| format!("a_{long}{n}_apps_Deployment")).collect::<Vec<_>>(),
        })
    }

    type Take = fn(&Expression, &mut Scope<'_>) -> Result<usize, EvaluationError>;

    const RESOURCES: Take = |e, s| resources(e, s).map(|resources| resources.len());
    const KINDS: Take = |e, s| group_kinds(e, s).map(|kinds| kinds.len());

    fn of_large(text: &str, take: Take) -> Result<usize, EvaluationError> {
        let object = large();
        let mut scope = Scope::default();
        scope.bind("object", &object);
        take(&Expression::compile("f", text, &["object"]).expect(text), &mut scope)
    }

    /// What is made of an outcome is on the budget of what made it.
    #[rstest]
    #[case::long_names(
        "[{'kind': 'A', 'group': 'b', 'name': object.text}]",
        RESOURCES,
        "name longer than 1024"
    )]
    #[case::long_kinds("[{'kind': object.text, 'group': ''}]", KINDS, "kind longer than 1024")]
    #[case::long_ids("object.items.map(i, object.text)", RESOURCES, "is no inventory id")]
    #[case::many_bytes("object.long_ids", RESOURCES, "references of more than")]
    #[case::too_many("object.numbers", RESOURCES, "gives more than 20000 items")]
    #[case::no_references("[1]", RESOURCES, "gives int, where an inventory id or a map")]
    #[case::no_kinds("['a']", KINDS, "gives string, where an inventory id or a map is needed")]
    #[case::nothing_in_it("[{}]", KINDS, "without a kind")]
    fn outcomes_that_cannot_be_used_are_errors(
        #[case] text: &str,
        #[case] take: Take,
        #[case] message: &str,
    ) {
        let error = of_large(text, take).expect_err(text);
        assert!(error.message.contains(message), "{error}");
    }

    #[rstest]
    #[case("object.ids")]
    #[case("object.ids.map(i, {'kind': 'A', 'group': 'b', 'name': i})")]
    fn a_large_inventory_is_taken(#[case] text: &str) {
        assert_eq!(of_large(text, RESOURCES), Ok(20_000), "{text}");
    }
}
