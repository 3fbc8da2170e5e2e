//! What the documentation names is there: links, files, commands, flags, metrics, objects. Addresses outside of the
//! repository are not looked up.

mod commands;
mod imports;
pub(crate) mod markdown;
mod objects;
mod visibility;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use markdown::{pages, repository};
use promql_parser::parser;

/// Name and folder of every crate of this workspace.
fn crates() -> Vec<(String, PathBuf)> {
    let members = std::fs::read_to_string(repository().join("Cargo.toml")).unwrap();
    let members = members.lines().find(|line| line.starts_with("members = ")).unwrap();
    let folders = members.split('"').skip(1).step_by(2).map(|folder| repository().join(folder));
    let name = |folder: &Path| {
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let name = manifest.lines().find_map(|line| line.strip_prefix("name = ")).unwrap();
        name.trim_matches('"').to_owned()
    };
    folders.map(|folder| (name(&folder), folder)).collect()
}

/// What was found to be wrong, all of it.
fn nothing_wrong(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_link_leads_somewhere() {
    let (pages, mut wrong, mut links) = (pages(), Vec::new(), 0);
    for page in &pages {
        for (line, link) in page.links() {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            links += 1;
            let (file, anchor) = link.split_once('#').map_or((link.as_str(), None), |(f, a)| (f, Some(a)));
            let path = match file {
                "" => page.path.clone(),
                _ => page.path.parent().unwrap().join(file),
            };
            let Ok(there) = repository().join(&path).canonicalize() else {
                wrong.push(format!("{}: there is no {link}", page.at(line)));
                continue;
            };
            let Some(anchor) = anchor else { continue };
            let target = pages.iter().find(|p| repository().join(&p.path).canonicalize().unwrap() == there);
            if !target.is_some_and(|target| target.anchors().contains(anchor)) {
                wrong.push(format!("{}: there is no heading for {link}", page.at(line)));
            }
        }
    }
    nothing_wrong(&wrong);
    assert!(links > 100, "only {links} links");
}

#[test]
fn every_page_can_be_reached_from_the_readme() {
    let pages = pages();
    let found = |path: &Path| repository().join(path).canonicalize().ok();
    let (mut reached, mut next) = (BTreeSet::new(), vec![PathBuf::from("README.md")]);
    while let Some(path) = next.pop() {
        let Some(page) = pages.iter().find(|page| found(&page.path) == found(&path)) else { continue };
        if reached.insert(page.path.clone()) {
            let dir = page.path.parent().unwrap();
            next.extend(page.links().iter().map(|(_, link)| dir.join(link.split('#').next().unwrap())));
        }
    }
    let lost = pages.iter().map(|page| &page.path).filter(|path| !reached.contains(*path));
    nothing_wrong(&lost.map(|path| path.display().to_string()).collect::<Vec<_>>());
}

/// Directories of the repository that pages name files in.
const DIRECTORIES: [&str; 13] = [
    "aggregator",
    "cli",
    "contract",
    "dashboards",
    "deploy",
    "docs",
    "expression",
    "exporter",
    "hack",
    "page",
    "reference",
    "serving",
    "tests",
];

#[test]
fn every_file_that_is_named_is_there() {
    let (mut wrong, mut named) = (Vec::new(), 0);
    for page in pages() {
        let blocks = page.blocks.iter().map(|block| (block.line, block.text.clone()));
        for (line, text) in page.inline_code().into_iter().chain(blocks) {
            for word in text.split(|c: char| c.is_whitespace() || "\"'`,;:()[]{}=<>|?&".contains(c)) {
                let word = word.trim_start_matches("./").trim_end_matches(['.', '/']);
                let Some((first, rest)) = word.split_once('/') else { continue };
                // `kubectl logs deploy/NAME` names a Deployment, and what is in capitals stands for something.
                let of_kubectl = first == "deploy" && rest.starts_with("statusbridge-");
                let stands_for = rest.contains("NAME") || rest.contains('$') || rest.contains('…');
                if !DIRECTORIES.contains(&first) || of_kubectl || stands_for {
                    continue;
                }
                named += 1;
                let pattern = word.split('*').next().unwrap();
                let path = repository().join(pattern);
                let there = match word.contains('*') {
                    true => path.exists() || path.parent().is_some_and(Path::exists),
                    false => path.exists(),
                };
                if !there {
                    wrong.push(format!("{}: there is no {word}", page.at(line)));
                }
            }
        }
    }
    nothing_wrong(&wrong);
    assert!(named > 30, "only {named} files");
}

/// Metrics that the reference has, and those that recording rules make.
fn metrics() -> BTreeSet<String> {
    let read = |file: &str| std::fs::read_to_string(repository().join(file)).unwrap();
    let mut metrics = BTreeSet::new();
    for row in read("docs/metrics.md").lines().filter_map(|line| line.strip_prefix("| `")) {
        let (name, rest) = row.split_once('`').unwrap();
        if rest.starts_with(" | histogram") {
            metrics.extend(["_bucket", "_sum", "_count"].map(|suffix| format!("{name}{suffix}")));
        }
        metrics.insert(name.to_owned());
    }
    assert!(metrics.len() > 40, "only {} metrics", metrics.len());
    metrics
}

#[test]
fn every_metric_of_ours_that_is_named_is_there() {
    let (metrics, mut wrong, mut named) = (metrics(), Vec::new(), 0);
    for page in pages() {
        let blocks = page.blocks.iter().map(|block| (block.line, block.text.clone()));
        for (line, text) in page.inline_code().into_iter().chain(blocks) {
            for (start, _) in text.match_indices("statusbridge_") {
                let name = &text[start..];
                let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(name.len());
                let (name, behind) = (&name[..end], &name[end..]);
                // Modules in logs, prefixes, and names that are meant to be unknown.
                let before = text[..start].chars().last();
                let other = behind.starts_with("::") || name.ends_with('_') || behind.starts_with('…');
                if other || before.is_some_and(|c| c.is_alphanumeric() || c == '_') || name.contains("_foo") {
                    continue;
                }
                named += 1;
                if !metrics.contains(name) && !metrics.contains(&format!("{name}_total")) {
                    wrong.push(format!("{}: there is no metric {name}", page.at(line)));
                }
            }
        }
    }
    nothing_wrong(&wrong);
    assert!(named > 60, "only {named} metrics");
}

#[test]
fn every_query_can_be_parsed() {
    let (mut wrong, mut queries) = (Vec::new(), 0);
    for page in pages() {
        let blocks = page.blocks.iter().filter(|block| block.language == "promql");
        let blocks = blocks.flat_map(|block| {
            // Several queries stand apart by an empty line or begin at the left.
            let parts = block.text.split("\n\n").map(str::to_owned).collect::<Vec<_>>();
            parts.into_iter().map(|part| (block.line, part))
        });
        // In sentences, what has one of our metrics and something done to it.
        let inline = page.inline_code().into_iter().filter(|(_, code)| {
            let named = code.contains("statusbridge_package_") || code.contains("statusbridge_packages");
            named
                && [" > ", " == ", "(", " != "].iter().any(|sign| code.contains(sign))
                && !code.contains('…')
        });
        for (line, query) in blocks.chain(inline) {
            let query: Vec<&str> = query.lines().filter(|line| !line.starts_with('#')).collect();
            let query = query.join("\n");
            if query.trim().is_empty() {
                continue;
            }
            queries += 1;
            if let Err(error) = parser::parse(&query) {
                wrong.push(format!("{}: {error}: {query}", page.at(line)));
            }
        }
    }
    nothing_wrong(&wrong);
    assert!(queries > 8, "only {queries} queries");
}
