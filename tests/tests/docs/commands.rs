//! Commands: targets of make, packages of cargo, and command lines of our programs, which are given to these.

use std::collections::BTreeSet;

use crate::docs::crates;
use crate::docs::markdown::{Page, pages, repository};
use crate::docs::nothing_wrong;
use statusbridge_tests::{PROGRAMS, own_command};

/// Flags in the documentation that are other programs'.
const OF_OTHERS: [&str; 16] = [
    // KubeFleet
    "--work-applier-requeue-rate-limiter-max-fast-backoff-delay-seconds",
    "--cluster-failure-threshold",    // Karmada
    "--cluster-monitor-grace-period", // Karmada
    "--custom-resource-state-config", // kube-state-metrics
    "--diff-run",                     // kapp
    "--health-error-retry-time",      // Sveltos
    "--enable-changelogs",            // Crossplane's providers
    "--endpoint",                     // thanos query, as the next two
    "--endpoint-strict",
    "--query.replica-label",
    "--for",                 // kubectl
    "--labels",              // helm
    "--output-watch-events", // kubectl
    "--query.max-samples",   // Prometheus, Thanos
    "--status-policy",       // kpt
    "--wait",                // kapp
];

/// Lines of code that are run, each whole, with where they stand.
fn command_lines(page: &Page) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    for block in page.blocks.iter().filter(|b| ["", "sh", "console"].contains(&b.language.as_str())) {
        let mut whole: Option<(usize, String)> = None;
        for (number, line) in (block.line..).zip(block.text.lines()) {
            let (start, text) = whole.take().unwrap_or((number, String::new()));
            match line.strip_suffix('\\') {
                Some(begun) => whole = Some((start, text + begun)),
                None => lines.push((start, text + line)),
            }
        }
    }
    let prompt = |line: &str| line.split_once("$ ").map_or(line.to_owned(), |(_, rest)| rest.to_owned());
    let lines = lines.into_iter().map(|(number, line)| (number, prompt(line.trim())));
    lines.chain(page.inline_code()).collect()
}

/// The words of a command as a shell would split them, up to what ends it.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    let mut begun = false;
    for c in line.chars() {
        match (c, quote) {
            (_, Some(open)) if c == open => quote = None,
            (_, Some(_)) => word.push(c),
            ('\'' | '"', None) => {
                quote = Some(c);
                begun = true;
            }
            (' ', None) => {
                if begun || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                begun = false;
            }
            (_, None) => word.push(c),
        }
    }
    if begun || !word.is_empty() {
        words.push(word);
    }
    let end =
        words.iter().position(|word| ["|", "||", "&&", ";", "#", ">", "<", "&"].contains(&word.as_str()));
    words.truncate(end.unwrap_or(words.len()));
    // What is left out of the line.
    words.retain(|word| word != "…");
    words
}

#[tokio::test]
async fn our_programs_understand_every_command_line() {
    let (mut wrong, mut tried) = (Vec::new(), BTreeSet::new());
    for page in pages() {
        for (number, line) in command_lines(&page) {
            let words = words(&line);
            let Some((program, arguments)) = words.split_first() else { continue };
            if !PROGRAMS.contains(&program.as_str()) || !tried.insert(words.clone()) {
                continue;
            }
            // Asked for help behind all else: what stands before has to be understood first.
            let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            arguments.push("--help");
            let mut command = own_command(program, &arguments).await.unwrap();
            for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("STATUSBRIDGE_")) {
                command.env_remove(name);
            }
            let output = command.output().await.unwrap();
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr);
                wrong.push(format!(
                    "{}: {line}: {}",
                    page.at(number),
                    said.lines().next().unwrap_or_default()
                ));
            }
        }
    }
    nothing_wrong(&wrong);
    assert!(tried.len() > 20, "only {} command lines", tried.len());
}

/// Every flag of our programs and of the program that writes dashboards.
async fn flags() -> BTreeSet<String> {
    let mut flags = BTreeSet::new();
    for program in PROGRAMS {
        let mut commands = vec![String::new()];
        while let Some(name) = commands.pop() {
            let arguments: Vec<&str> = name.split_whitespace().chain(["--help"]).collect();
            let output = own_command(program, &arguments).await.unwrap().output().await.unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let words = text.split(|c: char| c.is_whitespace() || "[],=<>`".contains(c));
            flags.extend(words.filter(|word| word.starts_with("--")).map(str::to_owned));
            if !name.contains(' ') {
                let listed = text.lines().skip_while(|line| *line != "Commands:").skip(1);
                let listed = listed.take_while(|line| line.starts_with("  "));
                let listed =
                    listed.filter_map(|line| line.split_whitespace().next()).filter(|it| *it != "help");
                commands.extend(listed.map(|it| format!("{name} {it}").trim().to_owned()));
            }
        }
    }
    assert!(flags.len() > 60, "only {} flags", flags.len());
    flags
}

#[tokio::test]
async fn every_flag_in_a_sentence_is_one_of_ours_or_known_to_be_anothers() {
    let (flags, mut wrong, mut named) = (flags().await, Vec::new(), 0);
    for page in pages() {
        for (number, code) in page.inline_code() {
            // Only where the flag stands alone, with a value at most.
            let Some(rest) = code.strip_prefix("--") else { continue };
            let name = rest.split(['=', ' ']).next().unwrap();
            named += 1;
            let flag = format!("--{name}");
            if !flags.contains(&flag) && !OF_OTHERS.contains(&flag.as_str()) {
                wrong.push(format!("{}: {code}: no program has {flag}", page.at(number)));
            }
        }
    }
    nothing_wrong(&wrong);
    assert!(named > 50, "only {named} flags");
}

#[test]
fn targets_of_make_and_packages_of_cargo_are_there() {
    let read = |file: &str| std::fs::read_to_string(repository().join(file)).unwrap();
    let makefile = read("Makefile");
    let rules = makefile.lines().filter_map(|line| line.split_once(':'));
    let targets: BTreeSet<&str> = rules.flat_map(|(names, _)| names.split_whitespace()).collect();
    let packages: BTreeSet<String> = crates().into_iter().map(|(name, _)| name).collect();
    let (mut wrong, mut named) = (Vec::new(), 0);
    for page in pages() {
        for (number, line) in command_lines(&page) {
            let words = words(&line);
            let words: Vec<&str> =
                words.iter().map(String::as_str).skip_while(|word| word.contains('=')).collect();
            match words.as_slice() {
                ["make", target, ..] if !target.contains('=') => {
                    named += 1;
                    if !targets.contains(target) {
                        wrong.push(format!("{}: there is no target {target}", page.at(number)));
                    }
                }
                ["cargo", "run" | "test" | "build", rest @ ..] => {
                    named += 1;
                    for pair in rest.windows(2).filter(|pair| pair[0] == "-p") {
                        if !packages.contains(pair[1]) {
                            wrong.push(format!("{}: there is no package {}", page.at(number), pair[1]));
                        }
                    }
                }
                _ => {}
            }
        }
    }
    nothing_wrong(&wrong);
    assert!(named > 15, "only {named} commands");
}

#[test]
fn a_command_is_split_as_a_shell_does() {
    let split = words("statusbridge wait gate/a --reason 'two words' \"\" | cat");
    assert_eq!(split, ["statusbridge", "wait", "gate/a", "--reason", "two words", ""]);
}
