//! The JSON Schema of the format, made from the types in [`super::format`]. What only a compiler can
//! tell (whether an expression is one, whether names are unique) it does not say.

use schemars::{Schema, generate::SchemaSettings, transform};
use serde_json::Value;

use super::format::SourceDefinition;

/// The JSON Schema that editors check and complete a source with.
pub fn schema() -> Value {
    // The draft that editors know best.
    let settings = SchemaSettings::draft07().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<SourceDefinition>();
    tidy(&mut schema);
    schema.insert("title".to_owned(), "Status Bridge source".into());
    schema.insert(
        "description".to_owned(),
        "Which kind of object is a package, and how to read its state. See docs/sources.md.".into(),
    );
    schema.to_value()
}

/// A field that may be left out is left out, and not null; a description is one paragraph.
fn tidy(schema: &mut Schema) {
    for field in ["type", "enum"] {
        let Some(Value::Array(types)) = schema.get_mut(field) else { continue };
        types.retain(|t| t != "null" && !t.is_null());
        if let ("type", [only]) = (field, types.as_slice()) {
            let only = only.clone();
            schema.insert(field.to_owned(), only);
        }
    }
    if let Some(Value::String(description)) = schema.get_mut("description") {
        *description = description.replace('\n', " ");
    }
    if schema.get("default").is_some_and(Value::is_null) {
        schema.remove("default");
    }
    transform::transform_subschemas(&mut tidy, schema);
}
