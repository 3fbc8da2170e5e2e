//! The CRDs in deploy/ are those that the types give.

use std::path::Path;

use statusbridge_api::{Reason, crd};

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

#[test]
fn the_files_in_deploy_are_up_to_date() {
    for (name, expected) in crd::files().unwrap() {
        let path = repository().join("deploy/crds").join(&name);
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            found == expected,
            "{} is out of date: cargo run -p statusbridge-aggregator -- crds deploy/crds",
            path.display()
        );
    }
}

#[test]
fn every_field_of_ours_is_described() {
    fn walk(path: &str, schema: &serde_json::Value, bare: &mut Vec<String>) {
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            if field["description"].as_str().is_none_or(str::is_empty) {
                bare.push(path.clone());
            }
            walk(&path, field, bare);
        }
        if schema["items"].is_object() {
            walk(&format!("{path}[]"), &schema["items"], bare);
        }
    }
    for crd in crd::all().unwrap() {
        let schema = serde_json::to_value(&crd.spec.versions[0].schema).unwrap();
        let mut bare = Vec::new();
        walk("", &schema["openAPIV3Schema"], &mut bare);
        assert_eq!(bare, Vec::<String>::new(), "{}", crd.spec.names.kind);
    }
}

#[test]
fn the_reference_explains_every_reason() {
    let reference = std::fs::read_to_string(repository().join("docs/api.md")).unwrap();
    for reason in Reason::ALL {
        let row = format!("| `{}` | {} |", reason.name(), reason.meaning().trim());
        assert!(reference.contains(&row), "docs/api.md lacks: {row}");
    }
}
