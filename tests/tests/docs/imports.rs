//! Which crates and modules may know which: docs/architecture.md in a form that fails.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;

use crate::docs::markdown::repository;
use crate::docs::{crates, nothing_wrong};

/// Crates whose modules are free of circles. The exporter's are not yet.
const WITHOUT_CIRCLES: [&str; 7] = [
    "statusbridge",
    "statusbridge-aggregator",
    "statusbridge-api",
    "statusbridge-contract",
    "statusbridge-core",
    "statusbridge-expression",
    "statusbridge-serving",
];

/// Path of a module within its crate.
type Module = Vec<String>;

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
fn modules(src: &Path) -> BTreeMap<Module, String> {
    let mut found = BTreeMap::new();
    collect(src, &mut Vec::new(), &mut found);
    found
}

fn collect(folder: &Path, at: &mut Module, found: &mut BTreeMap<Module, String>) {
    let own = ["mod.rs", "lib.rs", "main.rs"].map(|name| folder.join(name));
    let file = own.iter().find(|file| file.exists()).cloned().unwrap_or_else(|| folder.with_extension("rs"));
    let text = std::fs::read_to_string(&file).unwrap();
    let mut tested = false;
    for line in text.lines() {
        let declared = line.trim_start_matches("pub ").trim_start_matches("pub(crate) ").strip_prefix("mod ");
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
    let code = production.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>();
    found.insert(at.clone(), code.join("\n"));
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

/// The modules of its own crate that a module imports.
fn imports(module: &Module, code: &str, modules: &BTreeMap<Module, String>) -> BTreeSet<Module> {
    let mut named = Vec::new();
    for (at, _) in code.match_indices("use ") {
        let begins = code[..at].lines().last().unwrap_or_default().trim();
        if matches!(begins, "" | "pub" | "pub(crate)" | "pub(super)")
            && let Some((tree, _)) = code[at + 4..].split_once(';')
        {
            paths(tree, &[], &mut named);
        }
    }
    let absolute = |path: Module| -> Option<Module> {
        let ups = path.iter().take_while(|word| *word == "super").count();
        match path.first()?.as_str() {
            "crate" => Some(path[1..].to_vec()),
            "super" => Some([&module[..module.len().checked_sub(ups)?], &path[ups..]].concat()),
            _ => Some([&module[..], &path[..]].concat())
                .filter(|path| modules.contains_key(&path[..=module.len()])),
        }
    };
    let there =
        |path: Module| (1..=path.len()).rev().map(|n| path[..n].to_vec()).find(|it| modules.contains_key(it));
    named.into_iter().filter_map(absolute).filter_map(there).filter(|it| it != module).collect()
}

/// Rooms beside each other that know each other, at any depth.
fn circles(modules: &BTreeMap<Module, String>) -> Vec<String> {
    let known: Vec<(&Module, BTreeSet<Module>)> =
        modules.iter().map(|(module, code)| (module, imports(module, code, modules))).collect();
    let folders: BTreeSet<&[String]> =
        modules.keys().filter(|it| !it.is_empty()).map(|it| &it[..it.len() - 1]).collect();
    let mut found = Vec::new();
    for folder in folders {
        let depth = folder.len();
        let room = |module: &Module| {
            (module.len() > depth && module.starts_with(folder)).then(|| module[depth].clone())
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
fn rooms_beside_each_other_know_each_other_one_way_only() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for (name, folder) in crates() {
        if WITHOUT_CIRCLES.contains(&name.as_str()) {
            let modules = modules(&folder.join("src"));
            seen += modules.values().filter(|code| code.contains("use crate::")).count();
            wrong.extend(circles(&modules).into_iter().map(|circle| format!("{name}: {circle}")));
        }
    }
    nothing_wrong(&wrong);
    assert!(seen > 100, "only {seen} modules import anything");
}

#[test]
fn a_circle_is_found() {
    let module = |path: &str, code: &str| (path.split('/').map(str::to_owned).collect(), code.to_owned());
    let of = |modules: &[(Module, String)]| circles(&modules.iter().cloned().collect());
    let a = module("a", "use crate::b::{self, c::{D, E}};");
    let (b, c) = (module("b", "use super::x;"), module("b/c", ""));
    assert_eq!(of(&[a.clone(), b.clone(), c.clone()]), [""; 0]);
    let back = module("b/c", "pub(crate) use crate::a::Thing;");
    assert_eq!(of(&[a, b, back]).len(), 1);
}
