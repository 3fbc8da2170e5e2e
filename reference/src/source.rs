//! The format of sources, from its schema.

use statusbridge_exporter::source;

use crate::schema;

const HEAD: &str = "\
# Source reference: `sources.statusbridge.dev/v1alpha1`

Every field of a source, from its [JSON Schema](source.schema.json). What they do, with an example of them all:
[sources.md](sources.md). A field that is not listed here is an error.

";

/// The page.
pub(crate) fn page() -> String {
    format!("{HEAD}{}", schema::fields(&source::schema(), ""))
}
