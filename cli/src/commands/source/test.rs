//! `source test`: sources held against what is expected of them, with no cluster at hand.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use serde::Serialize;
use statusbridge_exporter::source::{Preset, Source, SourceArgs, SourceProblem};
use statusbridge_exporter::suite::{Outcome, Suite};

use super::junit::junit;
use crate::exit::Exit;
use crate::output::OutputArgs;
use crate::text::{Colour, one_line, paint};

/// Arguments of `source test`.
#[derive(Debug, clap::Args)]
pub(crate) struct TestArgs {
    #[command(flatten)]
    sources: SourceArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Write what came of each test as JUnit XML too
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Files with tests, or directories of such files. The samples of --sources that say what is expected of
    /// them are tests too
    #[arg(value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
}

/// What is printed as data.
#[derive(Serialize)]
struct Report<'a> {
    passed: usize,
    failed: usize,
    tests: Vec<TestReport<'a>>,
}

#[derive(Serialize)]
struct TestReport<'a> {
    test: &'a str,
    source: &'a str,
    case: &'a str,
    /// What is not as expected, line by line; nothing when it has passed.
    problems: &'a [String],
}

/// Runs the tests: what is not as expected to standard output.
pub(crate) fn run(args: &TestArgs) -> Result<Exit> {
    let mut suites = Suite::read(&args.paths)?;
    let shelf = Shelf::new(&args.sources, &suites)?;
    suites.extend(shelf.as_they_are().filter_map(Suite::of_samples));
    if suites.iter().all(|suite| suite.cases.is_empty()) {
        return Err(Exit::Usage
            .error("found no test: name files with tests, or --sources with samples that say `expect`"));
    }
    let find = |name: &str, resources: Option<bool>| shelf.find(name, resources);
    let outcomes: Vec<Outcome> = suites.iter().flat_map(|suite| suite.run(&find)).collect();
    let report = Report::new(&outcomes);
    args.output.output.print(&text(&outcomes, &report), &report)?;
    if let Some(file) = &args.junit {
        fs::write(file, junit(&outcomes)).with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(if report.failed == 0 { Exit::Done } else { Exit::Failed })
}

/// The sources of tests by their names: as they are, and with and without a look at what packages consist of, as far as
/// a case asks for it.
struct Shelf(BTreeMap<Option<bool>, BTreeMap<String, Arc<Source>>>);

impl Shelf {
    /// Those that are used anyway, and the presets that tests name.
    fn new(args: &SourceArgs, suites: &[Suite]) -> Result<Self, SourceProblem> {
        let named: BTreeSet<&String> = suites.iter().flat_map(|suite| &suite.sources).collect();
        let load = |resources: Option<bool>| {
            let mut sources = args.load()?;
            for preset in named.iter().filter_map(|name| Preset::find(name)) {
                if !sources.iter().any(|source| source.name == preset.name) {
                    sources.push(preset.source()?);
                }
            }
            if let Some(resources) = resources {
                sources.retain_mut(|source| source.watch_resources(resources));
            }
            let by_name = sources.into_iter().map(|source| (source.name.clone(), Arc::new(source)));
            Ok((resources, by_name.collect()))
        };
        let cases = suites.iter().flat_map(|suite| &suite.cases).map(|case| case.resource_health);
        let wanted: BTreeSet<Option<bool>> = cases.chain([None]).collect();
        wanted.into_iter().map(load).collect::<Result<_, _>>().map(Self)
    }

    fn as_they_are(&self) -> impl Iterator<Item = &Arc<Source>> {
        self.0.get(&None).into_iter().flat_map(BTreeMap::values)
    }

    fn find(&self, name: &str, resources: Option<bool>) -> Result<Arc<Source>, String> {
        let found = self.0.get(&resources).and_then(|all| all.get(name));
        found.cloned().ok_or_else(|| match self.as_they_are().any(|source| source.name == name) {
            true => format!("resourceHealth: source {name} does not say what its packages consist of"),
            false => format!("there is no source {name}: give its file with --sources"),
        })
    }
}

impl<'a> Report<'a> {
    fn new(outcomes: &'a [Outcome]) -> Self {
        let failed = outcomes.iter().filter(|outcome| !outcome.problems.is_empty()).count();
        let test = |Outcome { suite, source, case, problems, .. }: &'a Outcome| TestReport {
            test: suite,
            source,
            case,
            problems,
        };
        Self { passed: outcomes.len() - failed, failed, tests: outcomes.iter().map(test).collect() }
    }
}

fn text(outcomes: &[Outcome], report: &Report<'_>) -> String {
    let mut text = String::new();
    for outcome in outcomes.iter().filter(|outcome| !outcome.problems.is_empty()) {
        let Outcome { suite, source, case, problems, .. } = outcome;
        let mark = paint("FAILED", Colour::Red, &std::io::stdout());
        let of = if suite == source { source.clone() } else { format!("{suite}, {source}") };
        text += &format!("{mark} {}: {}\n", one_line(&of), one_line(case));
        for problem in problems {
            text += &format!("  {}\n", one_line(problem));
        }
    }
    text + &match report.failed {
        0 => format!("{} passed\n", report.passed),
        failed => format!("{} passed, {failed} failed\n", report.passed),
    }
}
