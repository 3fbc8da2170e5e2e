//! The page as a program serves it: every file that it names is there, and it needs nothing else.

use std::collections::BTreeSet;
use std::path::Path;

use statusbridge_page::{Asset, HEADERS, ROOT, asset};

fn asset_at(path: &str) -> Asset {
    asset(path).unwrap_or_else(|| panic!("there is no {path}"))
}

fn text(path: &str) -> String {
    String::from_utf8_lossy(asset_at(path).body).into_owned()
}

#[test]
fn every_file_that_was_built_is_served() {
    let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("dist");
    let entries = std::fs::read_dir(dist).unwrap().map(|entry| entry.unwrap().file_name());
    let names: BTreeSet<_> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
    assert_eq!(names, ["app.css", "app.js", "icon.svg", "index.html"].map(str::to_owned).into());
    for name in names.iter().filter(|name| *name != "index.html") {
        assert!(!text(&format!("{ROOT}{name}")).is_empty(), "{name}");
    }
}

#[test]
fn the_page_names_only_files_that_are_there() {
    let index = text(ROOT);
    let named: Vec<&str> = index.split("\"./").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(named, ["icon.svg", "app.js", "app.css"]);
    for name in named {
        assert!(asset(&format!("{ROOT}{name}")).is_some(), "{name}");
    }
}

#[test]
fn nothing_is_served_beside_the_page() {
    for path in ["", "/", "/ui", "/ui//", "/ui/../Cargo.toml", "/ui/app.js/", "/ui/index.htm", "/app.js"] {
        assert_eq!(asset(path), None, "{path}");
    }
}

#[test]
fn nothing_stands_inline_that_the_policy_forbids() {
    let (_, policy) = HEADERS.into_iter().find(|(name, _)| *name == "content-security-policy").unwrap();
    assert!(!policy.contains("unsafe") && policy.starts_with("default-src 'none'; "), "{policy}");
    let index = text(ROOT);
    assert!(!index.contains("<style") && !index.contains("style=") && !index.contains(" on"), "{index}");
    let scripts = index.matches("<script").count();
    assert_eq!(index.matches("></script>").count(), scripts, "{index}");
}

#[test]
fn the_page_is_small() {
    let bytes: usize = ["", "app.js", "app.css", "icon.svg"]
        .into_iter()
        .map(|name| asset_at(&format!("{ROOT}{name}")).body.len())
        .sum();
    // Without any compression: less than the 200 KB that it may have with it.
    assert!(bytes < 200_000, "{bytes} bytes");
}

#[test]
fn the_licence_of_what_is_built_in_goes_with_it() {
    assert!(text("/ui/app.js").contains("Copyright (c) 2015-present Jason Miller"));
}
