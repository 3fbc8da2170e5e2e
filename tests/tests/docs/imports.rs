//! Which crates and modules may know which: docs/architecture.md in a form that fails.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;

use crate::docs::markdown::repository;
use crate::docs::{crates, nothing_wrong};

/// Crates in which a folder's own file and the files in it know each other one way only, too.
const WITHOUT_IMPORTS_UPWARDS: [&str; 5] = [
    "statusbridge-changelog",
    "statusbridge-contract",
    "statusbridge-exporter",
    "statusbridge-expression",
    "statusbridge-serving",
];

/// Path of a module within its crate.
type Module = Vec<String>;

/// Modules of a crate with their text.
pub(super) type Modules = BTreeMap<Module, String>;

/// Names of the crates that a package is made from, on this platform.
fn dependencies(package: &str) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--edges", "normal,build", "--prefix", "none"])
        .args(["--format", "{p}", "--package", package])
        .current_dir(repository())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn nothing_that_decides_can_do_input_or_output() {
    let outside =
        ["tokio", "reqwest", "hyper", "kube", "kube-client", "kube-runtime", "rustls", "socket2", "mio"];
    for package in
        ["statusbridge-api", "statusbridge-core", "statusbridge-contract", "statusbridge-expression"]
    {
        let all = dependencies(package);
        assert!(all.contains(package), "{all:?}");
        let found: Vec<_> = outside.iter().filter(|name| all.contains(**name)).collect();
        assert!(found.is_empty(), "{package} is made from {found:?}");
    }
    let core = dependencies("statusbridge-core");
    assert!(!core.contains("statusbridge-aggregator") && !core.contains("statusbridge-serving"));
    for server in ["statusbridge-aggregator", "statusbridge-exporter"] {
        assert!(!dependencies(server).contains("statusbridge"), "{server} is made from the command line");
    }
}

/// Modules of a crate that are built when nothing is tested, with their text.
pub(super) fn modules(src: &Path) -> Modules {
    let mut found = BTreeMap::new();
    collect(src, &mut Vec::new(), &mut found);
    found
}

fn collect(folder: &Path, at: &mut Module, found: &mut Modules) {
    let own = ["mod.rs", "lib.rs", "main.rs"].map(|name| folder.join(name));
    let file = own.iter().find(|file| file.exists()).cloned().unwrap_or_else(|| folder.with_extension("rs"));
    let text = std::fs::read_to_string(&file).unwrap();
    let mut tested = false;
    for line in text.lines() {
        let declared = ["mod ", "pub mod ", "pub(crate) mod ", "pub(super) mod "]
            .into_iter()
            .find_map(|begin| line.strip_prefix(begin));
        if let Some(name) = declared.and_then(|rest| rest.strip_suffix(';'))
            && !tested
        {
            at.push(name.to_owned());
            collect(&folder.join(name), at, found);
            at.pop();
        }
        let begins = line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(any(test");
        tested = begins || (tested && line.starts_with("#["));
    }
    let production = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    found.insert(at.clone(), without_comments(production));
}

pub(super) fn without_comments(text: &str) -> String {
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// Every path of a `use` declaration.
fn paths(tree: &str, before: &[&str], all: &mut Vec<Module>) {
    let (head, group) = match tree.split_once('{') {
        Some((head, group)) => (head, group.rsplit_once('}').map(|(group, _)| group)),
        None => (tree, None),
    };
    let words = head.split("::").map(str::trim).filter(|word| !word.is_empty());
    let path: Vec<&str> = before.iter().copied().chain(words).collect();
    let Some(group) = group else {
        all.push(path.into_iter().map(str::to_owned).collect());
        return;
    };
    let (mut depth, mut begin) = (0, 0);
    for (at, letter) in group.char_indices().chain([(group.len(), ',')]) {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !group[begin..at].trim().is_empty() {
                    paths(&group[begin..at], &path, all);
                }
                begin = at + 1;
            }
            _ => {}
        }
    }
}

/// Every path of the `use` declarations of a module, with the name that it has there, and every other path that begins
/// at its crate, its parent or a module in it.
fn named(module: &Module, code: &str, modules: &Modules) -> Vec<Module> {
    let (mut found, mut rest) = (Vec::new(), String::new());
    let mut end = 0;
    for (at, _) in code.match_indices("use ") {
        let begins = code[..at].rsplit('\n').next().unwrap_or_default().trim();
        if at >= end
            && matches!(begins, "" | "pub" | "pub(crate)" | "pub(super)")
            && let Some((tree, _)) = code[at + 4..].split_once(';')
        {
            paths(tree, &[], &mut found);
            rest += &code[end..at];
            end = at + 4 + tree.len();
        }
    }
    rest += &code[end..];
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
    for path in rest.split(|letter| !is_word(letter)) {
        let path: Module = path.split("::").map(str::to_owned).collect();
        let begins_here = matches!(path[0].as_str(), "crate" | "super")
            || modules.contains_key(&[&module[..], &path[..1]].concat());
        if path.len() > 1 && begins_here {
            found.push(path);
        }
    }
    found
}

/// The path from the crate's root, for one that leads into the crate.
fn absolute(module: &Module, path: &[String], modules: &Modules) -> Option<Module> {
    let ups = path.iter().take_while(|word| *word == "super").count();
    match path.first()?.as_str() {
        "crate" => Some(path[1..].to_vec()),
        "super" => Some([&module[..module.len().checked_sub(ups)?], &path[ups..]].concat()),
        _ => Some([&module[..], path].concat()).filter(|path| modules.contains_key(&path[..=module.len()])),
    }
}

/// The module in which something is defined, or the one that brings it in from another crate.
fn definer(path: &[String], modules: &Modules) -> Option<Module> {
    let at = (0..=path.len()).rev().map(|n| &path[..n]).find(|it| modules.contains_key(*it))?.to_vec();
    let Some(name) = path.get(at.len()) else { return Some(at) };
    let code = &modules[&at];
    let mut brought = Vec::new();
    for declaration in code.split("use ").skip(1) {
        paths(declaration.split(';').next().unwrap_or_default(), &[], &mut brought);
    }
    let brought = brought.iter().filter(|path| path.last() == Some(name));
    let there = brought.filter_map(|path| absolute(&at, path, modules)).find(|there| there[..] != path[..]);
    there.map_or(Some(at), |there| definer(&there, modules))
}

/// The modules of its own crate that a module imports.
fn imports(module: &Module, code: &str, modules: &Modules) -> BTreeSet<Module> {
    let paths = named(module, code, modules).into_iter().filter_map(|path| absolute(module, &path, modules));
    paths.filter_map(|path| definer(&path, modules)).filter(|it| it != module).collect()
}

/// A folder's own file, among the rooms in it.
const OWN: &str = "(itself)";

/// Rooms beside each other that know each other, at any depth; with `upwards`, the folder's own file is one of them.
fn circles(modules: &Modules, upwards: bool) -> Vec<String> {
    let known: Vec<(&Module, BTreeSet<Module>)> =
        modules.iter().map(|(module, code)| (module, imports(module, code, modules))).collect();
    let folders: BTreeSet<&[String]> =
        modules.keys().filter(|it| !it.is_empty()).map(|it| &it[..it.len() - 1]).collect();
    let mut found = Vec::new();
    for folder in folders {
        let depth = folder.len();
        let room = |module: &Module| {
            let own = || (upwards && module[..] == *folder).then(|| OWN.to_owned());
            let inside = module.len() > depth && module.starts_with(folder);
            if inside { Some(module[depth].clone()) } else { own() }
        };
        let edges: Vec<(String, String)> = known
            .iter()
            .flat_map(|(from, to)| to.iter().filter_map(|to| Some((room(from)?, room(to)?))))
            .filter(|(from, to)| from != to)
            .collect();
        let graph: DiGraphMap<&str, ()> =
            edges.iter().map(|(from, to)| (from.as_str(), to.as_str())).collect();
        let rings = tarjan_scc(&graph).into_iter().filter(|ring| ring.len() > 1);
        found.extend(rings.map(|ring| format!("{}: {}", folder.join("/"), ring.join(", "))));
    }
    found
}

#[test]
fn rooms_know_each_other_one_way_only() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    // The rig is no program.
    for (name, folder) in crates().into_iter().filter(|(name, _)| name != "statusbridge-tests") {
        let modules = modules(&folder.join("src"));
        seen += modules.values().filter(|code| code.contains("use crate::")).count();
        let upwards = WITHOUT_IMPORTS_UPWARDS.contains(&name.as_str());
        wrong.extend(circles(&modules, upwards).into_iter().map(|circle| format!("{name}: {circle}")));
    }
    nothing_wrong(&wrong);
    assert!(seen > 100, "only {seen} modules import anything");
}

#[test]
fn a_circle_is_found() {
    let module = |path: &str, code: &str| (path.split('/').map(str::to_owned).collect(), code.to_owned());
    let of = |modules: &[(Module, String)], upwards| circles(&modules.iter().cloned().collect(), upwards);
    let a = module("a", "use crate::b::{self, c::{D, E}};");
    let (b, c) = (module("b", "use super::x;"), module("b/c", ""));
    assert_eq!(of(&[a.clone(), b.clone(), c.clone()], true), [""; 0]);
    let back = module("b/c", "pub(crate) use crate::a::Thing;");
    assert_eq!(of(&[a.clone(), b.clone(), back], false).len(), 1);
    let back = module("b/c", "fn f() { crate::a::thing() }");
    assert_eq!(of(&[a, b, back], false).len(), 1);

    let map = module("b", "pub use c::C; pub use d::D;");
    let d = module("b/d", "use super::C;");
    assert_eq!(of(&[map, c.clone(), d.clone()], true), [""; 0], "it only passes through the map");
    let top = module("b", "use c::C; fn f() { d::g() }");
    let upwards = module("b/c", "use super::f;");
    assert_eq!(of(&[top.clone(), c, d.clone()], true), [""; 0]);
    assert_eq!(of(&[top.clone(), upwards.clone(), d.clone()], false), [""; 0]);
    assert_eq!(of(&[top, upwards, d], true).len(), 1);
}
