//! Nothing is `pub` that no other crate names: rustc tells of anything else when its last use is gone.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use regex::Regex;

use crate::docs::imports::{Modules, modules, without_comments};
use crate::docs::{crates, nothing_wrong};

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|letter: char| !letter.is_alphanumeric() && letter != '_').filter(|word| !word.is_empty())
}

/// Every source in a folder, those of tests included, without its comments.
fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let read = |path: PathBuf| match path.extension() {
        _ if path.is_dir() => sources(&path),
        Some(kind) if kind == "rs" => {
            let code = without_comments(&std::fs::read_to_string(&path).unwrap());
            vec![(path, code)]
        }
        _ => Vec::new(),
    };
    entries.flat_map(read).collect()
}

/// The public items of a crate that `others` do not name. `others` need not name a type that a public signature, field,
/// variant, bound or associated type of the crate names.
fn unnamed(modules: &Modules, others: &BTreeSet<&str>) -> Vec<String> {
    let item = "(?m)^ *pub (?:async |const )*(fn|struct|enum|trait|type|const|static|mod) +(\\w+)([^{;]*)";
    let item = Regex::new(item).unwrap();
    let ways = [
        "(?m)^ *pub \\w+:(.*),$",
        "(?ms)^pub enum \\w+(.*?)^\\}",
        "(?m)^ *impl<(.*?)> ",
        "(?m)^ *type \\w+ =(.*);$",
    ];
    let ways = ways.map(|way| Regex::new(way).unwrap());
    let mut reached: BTreeSet<&str> = BTreeSet::new();
    for code in modules.values() {
        reached.extend(item.captures_iter(code).flat_map(|found| words(found.get(3).unwrap().as_str())));
        for way in &ways {
            reached.extend(way.captures_iter(code).flat_map(|found| words(found.get(1).unwrap().as_str())));
        }
    }
    let mut all = Vec::new();
    for (module, code) in modules {
        for [kind, name] in
            item.captures_iter(code).map(|found| [1, 2].map(|at| found.get(at).unwrap().as_str()))
        {
            let is_type = matches!(kind, "struct" | "enum" | "trait" | "type");
            let is_used = others.contains(name) || (is_type && reached.contains(name));
            if !is_used {
                all.push(format!("{}: {kind} {name}", module.join("::")));
            }
        }
    }
    all
}

#[test]
fn nothing_is_public_that_no_other_crate_names() {
    let crates = crates();
    let sources: Vec<_> = crates.iter().flat_map(|(_, folder)| sources(folder)).collect();
    let mut wrong = Vec::new();
    // The rig is no program.
    for (name, folder) in crates.iter().filter(|(name, _)| name != "statusbridge-tests") {
        let own = folder.join("src");
        let others = sources.iter().filter(|(file, _)| !file.starts_with(&own));
        let others = others.flat_map(|(_, code)| words(code)).collect();
        wrong.extend(unnamed(&modules(&own), &others).into_iter().map(|item| format!("{name}: {item}")));
    }
    nothing_wrong(&wrong);
}

#[test]
fn what_is_public_for_nobody_is_found() {
    let code = "pub struct Named;
impl Named {
    pub fn named(&self) -> Reached { helper() }
    pub fn lost(&self) {}
}
pub struct Reached;
pub struct Lost;
pub(crate) fn helper() -> Lost { LOST }
pub const LOST: Lost = Lost;
";
    let modules = Modules::from([(vec!["a".to_owned()], code.to_owned())]);
    let found = unnamed(&modules, &words("use a::Named; fn f(it: Named) { it.named(); }").collect());
    assert_eq!(found, ["a: fn lost", "a: const LOST"]);
    let found = unnamed(&modules, &words("Named named lost LOST").collect());
    assert_eq!(found, [""; 0]);
}
