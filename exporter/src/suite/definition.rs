//! The YAML of a test, as people write it. See docs/source-tests.md for what the fields mean.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::{Value, json};
use statusbridge_expression::yaml;

use crate::source::{API_VERSION, Expectation, Source, SourceProblem, texts_of};

/// `kind` of the format.
const KIND: &str = "SourceTest";

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct TestDefinition {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    metadata: Metadata,
    spec: Spec,
}

/// Only what says whether this is a test at all, and of which version.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Header {
    api_version: Option<String>,
    kind: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Metadata {
    name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Spec {
    sources: Vec<String>,
    #[serde(default)]
    base: Value,
    #[serde(default)]
    expect: Expectation,
    #[serde(default)]
    now: Option<jiff::Timestamp>,
    cases: Vec<Case>,
}

/// Cases that have something in common.
#[derive(Debug)]
pub struct Suite {
    /// What it is called: the name of a test, or of a source whose samples these are.
    pub name: String,
    /// The sources that every case is about, one after the other.
    pub sources: Vec<String>,
    /// The cases.
    pub cases: Vec<Case>,
    /// Where the files of cases are.
    pub(super) directory: PathBuf,
    /// The objects that every case changes.
    pub(super) base: Value,
    pub(super) expect: Expectation,
    /// What time it is.
    pub(super) now: Option<jiff::Timestamp>,
}

/// Some objects, and what is expected of them.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub struct Case {
    /// What it is about, in words.
    pub name: String,
    /// An API server with the system's own CustomResourceDefinitions would refuse the objects, or drop a part of them. A
    /// note for readers.
    pub rubbish: bool,
    /// Whether the objects that packages consist of are looked at; as the source says when left out.
    pub resource_health: Option<bool>,
    /// A JSON merge patch on the base.
    pub(super) patch: Value,
    /// Values by JSON pointers into the base.
    pub(super) replace: BTreeMap<String, Value>,
    /// Files with objects and their versions, in place of the base.
    pub(super) files: Vec<PathBuf>,
    pub(super) expect: Expectation,
    /// All that is shown, one after the other.
    pub(super) transitions: Option<Vec<Expectation>>,
    /// What happens later.
    pub(super) then: Vec<Step>,
}

/// Something that happens later.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    /// How long after what was before.
    #[serde(default, deserialize_with = "duration")]
    pub(super) after: jiff::SignedDuration,
    #[serde(default)]
    pub(super) patch: Value,
    #[serde(default)]
    pub(super) replace: BTreeMap<String, Value>,
    #[serde(default)]
    pub(super) expect: Expectation,
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<jiff::SignedDuration, D::Error> {
    let text = String::deserialize(deserializer)?;
    let duration: jiff::SignedDuration = text.parse().map_err(D::Error::custom)?;
    if duration.is_negative() { Err(D::Error::custom("must not be negative")) } else { Ok(duration) }
}

impl Suite {
    /// The tests in files and in the files of directories.
    ///
    /// # Errors
    /// When a file cannot be read, or holds something else.
    pub fn read(paths: &[PathBuf]) -> Result<Vec<Self>, SourceProblem> {
        let mut suites = Vec::new();
        for (file, text) in texts_of(paths) {
            let text = text.map_err(|error| SourceProblem::of_file(&file.display().to_string(), error))?;
            suites.extend(Self::parse(&file, &text)?);
        }
        Ok(suites)
    }

    /// The tests in a YAML text of one document or several; the files that they name are beside `file`.
    ///
    /// # Errors
    /// When there is something else in it.
    pub(super) fn parse(file: &Path, text: &str) -> Result<Vec<Self>, SourceProblem> {
        let wrong = |error: String| SourceProblem::of_file(&file.display().to_string(), error);
        let headers: Vec<Header> = yaml::from_multiple(text).map_err(wrong)?;
        for Header { api_version, kind } in &headers {
            if (api_version.as_deref(), kind.as_deref()) != (Some(API_VERSION), Some(KIND)) {
                let found = [api_version, kind].map(|it| it.as_deref().unwrap_or("none"));
                return Err(wrong(format!(
                    "needs `apiVersion: {API_VERSION}` and `kind: {KIND}`, has apiVersion {}, kind {}",
                    found[0], found[1]
                )));
            }
        }
        let definitions: Vec<TestDefinition> = yaml::from_multiple(text).map_err(wrong)?;
        let directory = file.parent().unwrap_or(Path::new("")).to_owned();
        let suite = |TestDefinition { metadata, spec, .. }| {
            let Spec { sources, base, expect, now, cases } = spec;
            Self { name: metadata.name, directory: directory.clone(), sources, base, expect, now, cases }
        };
        Ok(definitions.into_iter().map(suite).collect())
    }

    /// The samples of a source that say what is expected of them; `None` when none does.
    pub fn of_samples(source: &Arc<Source>) -> Option<Self> {
        let case = |(number, sample): (usize, &crate::source::Sample)| {
            let expect = sample.expect.clone()?;
            let patch = json!({"object": sample.object, "related": sample.related});
            Some(Case { name: format!("samples[{number}]"), patch, expect, ..Case::default() })
        };
        let cases: Vec<Case> = source.samples().iter().enumerate().filter_map(case).collect();
        (!cases.is_empty()).then(|| Self {
            name: source.name.clone(),
            sources: vec![source.name.clone()],
            cases,
            directory: PathBuf::new(),
            base: Value::Null,
            expect: Expectation::default(),
            now: None,
        })
    }
}
