//! CRDs of kinds that have neither spec nor status, after Kubernetes' EndpointSlice. They are put together here because kube's
//! derive only knows kinds with a spec.

use kube_core::schema::{OptionalEnum, StructuralSchemaRewriter};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use schemars::transform::AddNullable;
use serde_json::{Value, json};

use crate::names::{GROUP, VERSION};

/// A printer column: its name, type and JSON path.
pub(crate) struct Column(pub &'static str, pub &'static str, pub &'static str);

/// The CRD of such a kind.
pub(crate) fn crd<T: JsonSchema>(
    kind: &str,
    plural: &str,
    short: &str,
    doc: &str,
    columns: &[Column],
) -> Value {
    // The settings are those of kube's derive.
    let generator = SchemaSettings::openapi3()
        .with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        })
        .with_transform(AddNullable::default())
        .with_transform(StructuralSchemaRewriter)
        .with_transform(OptionalEnum)
        .into_generator();
    let mut schema = generator.into_root_schema_for::<T>();
    schema.insert("description".to_owned(), json!(doc));
    let column = |Column(name, kind, path): &Column| json!({"name": name, "type": kind, "jsonPath": path});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {
            "group": GROUP,
            "names": {
                "categories": ["statusbridge"],
                "kind": kind,
                "plural": plural,
                "shortNames": [short],
                "singular": kind.to_lowercase(),
            },
            "scope": "Namespaced",
            "versions": [{
                "name": VERSION,
                "served": true,
                "storage": true,
                "additionalPrinterColumns": columns.iter().map(column).collect::<Vec<_>>(),
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    })
}
