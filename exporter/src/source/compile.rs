//! From YAML to a source that is known to work: everything that can be wrong with one is found here,
//! and not on the one object in a thousand that runs into it.

use std::{str::FromStr, sync::Arc};

use serde_json::{Value, json};
use statusbridge_contract::{ApplyState, Health};
use statusbridge_expression::{EvaluationError, Expression, MAX_MESSAGE, MAX_REASON, OBJECT, yaml};

use super::{
    error::SourceError,
    footprint::Footprint,
    format::{
        API_VERSION, Definition, Header, KIND, LeavesDefinition, Ordered, RelatedDefinition, RuleDefinition,
        SampleDefinition,
    },
    join::{By, Related, RelatedObject, RelatedObjects},
    kind::{GroupKind, KindRef, PackageKind},
    kstatus, plain,
    program::{APPLY, HoldProgram, InventoryProgram, Program, Sample, Source},
    projection::Projection,
    resource_rules::{HealthRule, LabelledProgram, ResourcesProgram},
    rule::{Rule, Words},
    trial::try_all,
};

/// Longest name of a source: it is a label's value in every series.
const MAX_NAME: usize = 63;
/// Names that the language keeps for itself.
const KEYWORDS: &[&str] = &["true", "false", "null", "in", "optional"];

impl Source {
    /// The sources in a YAML text of one document or several, compiled and tried on their samples;
    /// `file` is for messages.
    pub fn parse(file: &str, yaml: &str) -> Result<Vec<Self>, SourceError> {
        parse(file, yaml)
    }

    /// Has the objects of its packages looked at, or not; false when the source does not say which
    /// they are.
    pub fn look_at_resources(&mut self, enabled: bool) -> bool {
        let Some(resources) = &mut self.program.resources else { return false };
        resources.enabled = enabled;
        set_projections(self);
        true
    }
}

fn parse(file: &str, text: &str) -> Result<Vec<Source>, SourceError> {
    let malformed = |error: String| SourceError::of_file(file, error);
    // Where both find something, the walk over the YAML can name the field and say what to write.
    let headers: Vec<Header> = yaml::from_multiple(text)
        .map_err(|error| plain::check(file, text).err().unwrap_or_else(|| malformed(error)))?;
    for header in &headers {
        let (version, kind) = (header.api_version.as_deref(), header.kind.as_deref());
        if (version, kind) != (Some(API_VERSION), Some(KIND)) {
            let found = format!("{}, kind {}", version.unwrap_or("none"), kind.unwrap_or("none"));
            let message =
                format!("needs `apiVersion: {API_VERSION}` and `kind: {KIND}`, has apiVersion {found}");
            return Err(SourceError {
                source_name: header.name.clone(),
                ..SourceError::of_file(file, message)
            });
        }
    }
    if headers.is_empty() {
        return Err(SourceError::of_file(file, "has no source in it"));
    }
    plain::check(file, text)?;
    let definitions: Vec<Definition> = yaml::from_multiple(text).map_err(malformed)?;
    let values: Vec<Value> = yaml::from_multiple(text).map_err(malformed)?;
    definitions
        .into_iter()
        .zip(values)
        .map(|(definition, value)| Compiler { file, name: definition.name.clone() }.source(definition, value))
        .collect()
}

/// Knows where it is, for messages.
struct Compiler<'a> {
    file: &'a str,
    name: String,
}

impl Compiler<'_> {
    fn wrong(&self, field: &str, message: impl Into<String>) -> SourceError {
        SourceError {
            source_name: Some(self.name.clone()),
            field: Some(field.to_owned()),
            ..SourceError::of_file(self.file, message)
        }
    }

    fn failed(&self, error: EvaluationError, tried_on: &str) -> SourceError {
        SourceError {
            expression: Some(error.expression),
            ..self.wrong(&error.field, format!("on {tried_on}: {}", error.message))
        }
    }

    fn expression(&self, field: &str, text: &str, variables: &[&str]) -> Result<Expression, SourceError> {
        Expression::compile(field, text, variables).map_err(|message| SourceError {
            expression: Some(text.to_owned()),
            ..self.wrong(field, message)
        })
    }

    fn source(&self, d: Definition, definition: Value) -> Result<Source, SourceError> {
        if !is_label(&d.name, MAX_NAME) {
            let message =
                format!("`{}` must be lower-case letters, digits and dashes, at most {MAX_NAME}", d.name);
            return Err(self.wrong("name", message));
        }
        let kind = d.object.kind().map_err(|message| self.wrong("object", message))?;
        match &kind {
            PackageKind::Kind(kind) => self.kind("object", kind)?,
            PackageKind::Categories(names) if names.is_empty() || names.iter().any(String::is_empty) => {
                return Err(self.wrong("object.categories", "needs at least one category, and no empty one"));
            }
            PackageKind::Categories(_) => {}
        }
        let mut seen: Vec<String> = vec![OBJECT.to_owned()];
        let filter = d.filter.map(|text| self.expression("where", &text, &[OBJECT])).transpose()?;
        let mut related = Vec::new();
        for (i, r) in d.related.into_iter().enumerate() {
            let field = format!("related[{i}]");
            self.variable(&format!("{field}.name"), &r.name, &seen)?;
            seen.push(r.name.clone());
            related.push(self.related(&field, r)?);
        }
        let mut variables = Vec::new();
        for (name, text) in d.variables.0 {
            let field = format!("variables.{name}");
            self.variable(&field, &name, &seen)?;
            let expression = self.expression(&field, &text, &names(&seen))?;
            seen.push(name.clone());
            variables.push((name, expression));
        }
        let before = names(&seen);
        let mut after = before.clone();
        after.push(APPLY);
        let optional = |field: &str, text: &Option<String>, variables: &[&str]| {
            text.as_ref().map(|text| self.expression(field, text, variables)).transpose()
        };
        let program = Program {
            filter,
            variables,
            desired: optional("revisions.desired", &d.revisions.desired, &before)?,
            attempted: optional("revisions.attempted", &d.revisions.attempted, &before)?,
            applied: optional("revisions.applied", &d.revisions.applied, &before)?,
            apply: match d.apply {
                Some(rules) => Some(self.rules::<ApplyState>("apply", rules, ApplyState::ALL, &before)?),
                None => None,
            },
            health: match d.health {
                Some(rules) => Some(self.health(rules, d.leaves.is_some(), &after)?),
                None => None,
            },
            reason: optional("reason", &d.reason, &after)?,
            message: optional("message", &d.message, &after)?,
            worst_resource: optional("worstResource", &d.worst_resource, &after)?,
            operation: optional("operation", &d.operation, &after)?,
            since: optional("since", &d.since, &after)?,
            inventory: match d.inventory {
                Some(i) => Some(InventoryProgram {
                    total: self.expression("inventory.total", &i.total, &after)?,
                    current: self.expression("inventory.current", &i.current, &after)?,
                    failed: self.expression("inventory.failed", &i.failed, &after)?,
                }),
                None => None,
            },
            resources: d.leaves.map(|resources| self.resources(resources, &after)).transpose()?,
            hold: match d.hold {
                Some(h) => Some(HoldProgram {
                    when: self.expression("hold.when", &h.when, &after)?,
                    key: self.expression("hold.key", &h.key, &after)?,
                }),
                None => None,
            },
        };
        let mut source = Source {
            name: d.name,
            description: d.description,
            kind,
            related,
            projection: Projection::default(),
            program,
            reads_versions: reads_versions(&definition),
            definition,
            samples: Vec::new(),
        };
        set_projections(&mut source);
        self.try_samples(&source, &d.samples)?;
        let sample = |SampleDefinition { object, related, expect }| Sample { object, related, expect };
        source.samples = d.samples.into_iter().map(sample).collect();
        Ok(source)
    }

    fn kind(&self, field: &str, kind: &KindRef) -> Result<(), SourceError> {
        if kind.kind.is_empty() {
            return Err(self.wrong(&format!("{field}.kind"), "is empty"));
        }
        if kind.versions.is_empty() || kind.versions.iter().any(String::is_empty) {
            return Err(
                self.wrong(&format!("{field}.versions"), "needs at least one version, and no empty one")
            );
        }
        Ok(())
    }

    fn variable(&self, field: &str, name: &str, seen: &[String]) -> Result<(), SourceError> {
        let mut chars = name.chars();
        let is_name = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
            && chars.all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !is_name || KEYWORDS.contains(&name) || name == APPLY {
            return Err(self.wrong(field, format!("`{name}` cannot be the name of a variable")));
        }
        if seen.iter().any(|s| s == name) {
            return Err(self.wrong(field, format!("there is already a variable `{name}`")));
        }
        Ok(())
    }

    fn related(&self, field: &str, r: RelatedDefinition) -> Result<Related, SourceError> {
        if r.kinds.is_empty() {
            return Err(self.wrong(&format!("{field}.kinds"), "needs at least one kind"));
        }
        for (i, kind) in r.kinds.iter().enumerate() {
            self.kind(&format!("{field}.kinds[{i}]"), kind)?;
        }
        let expression = |name: &str, text: &str| {
            self.expression(&format!("{field}.{name}"), text, &[OBJECT]).map(Box::new)
        };
        let optional =
            |name: &str, text: Option<String>| text.map(|text| expression(name, &text)).transpose();
        let by = match (r.reference, r.labels) {
            (Some(reference), None) => {
                if reference.kind.is_none() && r.kinds.len() > 1 {
                    return Err(
                        self.wrong(&format!("{field}.reference.kind"), "is needed to choose among the kinds")
                    );
                }
                By::Reference {
                    kind: optional("reference.kind", reference.kind)?,
                    namespace: optional("reference.namespace", reference.namespace)?,
                    name: expression("reference.name", &reference.name)?,
                }
            }
            (None, Some(labels)) => {
                let Ordered(texts) = labels.labels;
                if texts.is_empty() {
                    return Err(self.wrong(&format!("{field}.labels.match"), "needs at least one label"));
                }
                let mut compiled = Vec::new();
                for (name, text) in texts {
                    compiled.push((name.clone(), *expression(&format!("labels.match.{name}"), &text)?));
                }
                By::Labels { namespace: optional("labels.namespace", labels.namespace)?, labels: compiled }
            }
            _ => return Err(self.wrong(field, "needs either `reference` or `labels`")),
        };
        Ok(Related { name: r.name, kinds: r.kinds, projection: Projection::default(), by })
    }

    fn health(
        &self,
        rules: Vec<RuleDefinition>,
        resources: bool,
        variables: &[&str],
    ) -> Result<Vec<Rule<HealthRule>>, SourceError> {
        let mut states: Vec<HealthRule> = Health::ALL.iter().copied().map(HealthRule::Is).collect();
        states.extend(resources.then_some(HealthRule::Resources));
        self.rules("health", rules, &states, variables)
    }

    fn resources(&self, d: LeavesDefinition, variables: &[&str]) -> Result<ResourcesProgram, SourceError> {
        let expression = |name: &str, text: &str| self.expression(&format!("leaves.{name}"), text, variables);
        let optional =
            |name: &str, text: Option<String>| text.map(|text| expression(name, &text)).transpose();
        if d.objects.is_none() && d.labelled.is_none() {
            return Err(self.wrong("leaves", "needs `objects` or `labelled`"));
        }
        let labelled = match d.labelled {
            None => None,
            Some(l) => Some(LabelledProgram {
                label: expression("labelled.label", &l.label)?,
                kinds: expression("labelled.kinds", &l.kinds)?,
            }),
        };
        // Secrets are not read unless somebody says that they should be.
        let secrets = || vec![GroupKind { group: String::new(), kind: "Secret".to_owned() }];
        Ok(ResourcesProgram {
            enabled: d.enabled,
            when: optional("when", d.when)?,
            objects: optional("objects", d.objects)?,
            labelled,
            basis: optional("basis", d.basis)?,
            ignore: d.ignore.unwrap_or_else(secrets),
        })
    }

    fn rules<S: PartialEq + FromStr + Copy + ToString + 'static>(
        &self,
        field: &str,
        rules: Vec<RuleDefinition>,
        states: &[S],
        variables: &[&str],
    ) -> Result<Vec<Rule<S>>, SourceError> {
        if rules.is_empty() {
            return Err(self.wrong(field, "needs at least one rule"));
        }
        let last = rules.len() - 1;
        let mut compiled = Vec::new();
        for (i, rule) in rules.into_iter().enumerate() {
            let at = |name: &str| format!("{field}[{i}].{name}");
            if rule.when.is_none() && i != last {
                return Err(self
                    .wrong(&format!("{field}[{i}]"), "has no `when`, so no rule after it is ever reached"));
            }
            let state = rule.state.parse().ok().filter(|state| states.contains(state)).ok_or_else(|| {
                let known: Vec<String> = states.iter().map(S::to_string).collect();
                self.wrong(&at("state"), format!("`{}` is none of {}", rule.state, known.join(", ")))
            })?;
            let optional = |name: &str, text: &Option<String>| {
                text.as_ref().map(|text| self.expression(&at(name), text, variables)).transpose()
            };
            let reason = match (rule.reason, optional("reasonFrom", &rule.reason_from)?) {
                (Some(word), None) if is_reason(&word) => Some(Words::Fixed(Arc::from(word))),
                (Some(word), None) => {
                    let message =
                        format!("`{word}` is no CamelCase word; an expression belongs into `reasonFrom`");
                    return Err(self.wrong(&at("reason"), message));
                }
                (None, from) => from.map(Box::new).map(Words::From),
                (Some(_), Some(_)) => return Err(self.wrong(&at("reason"), "stands beside `reasonFrom`")),
            };
            let message = match (rule.message, optional("messageFrom", &rule.message_from)?) {
                (Some(_), Some(_)) => return Err(self.wrong(&at("message"), "stands beside `messageFrom`")),
                (Some(text), None) if text.len() > MAX_MESSAGE => {
                    return Err(self.wrong(&at("message"), format!("is longer than {MAX_MESSAGE} bytes")));
                }
                (fixed, from) => fixed.map(Words::Fixed).or(from.map(Box::new).map(Words::From)),
            };
            compiled.push(Rule { when: optional("when", &rule.when)?, state, reason, message });
        }
        Ok(compiled)
    }

    /// Runs every expression on every sample, and on an object that has nothing but a name: an
    /// object without status must be possible, and rubbish must not take a source by surprise.
    fn try_samples(&self, source: &Source, samples: &[SampleDefinition]) -> Result<(), SourceError> {
        for (i, sample) in samples.iter().enumerate() {
            let field = format!("samples[{i}]");
            if source.kind.one().is_some_and(|kind| !kind.matches(&sample.object)) {
                return Err(self.wrong(&format!("{field}.object"), "is not of the source's kind"));
            }
            if let Some(name) =
                sample.related.keys().find(|name| !source.related.iter().any(|r| r.name == **name))
            {
                return Err(
                    self.wrong(&format!("{field}.related.{name}"), "is no related object of this source")
                );
            }
            let related =
                source.related.iter().map(|r| match (sample.related.get(&r.name), r.by_reference()) {
                    (found, true) => RelatedObject::One(found),
                    (Some(Value::Array(items)), false) => RelatedObject::Many(items.iter().collect()),
                    (found, false) => RelatedObject::Many(found.into_iter().collect()),
                });
            let related = RelatedObjects(related.collect());
            try_all(source, &sample.object, &related).map_err(|e| self.failed(e, &field))?;
        }
        let bare = json!({"metadata": {"name": "bare", "namespace": "bare"}});
        try_all(source, &bare, &RelatedObjects::default())
            .map_err(|e| self.failed(e, "an object that has nothing but a name"))
    }
}

/// Finds out what the expressions read.
fn set_projections(source: &mut Source) {
    let mut footprint = Footprint::default();
    footprint.add_object(OBJECT);
    for related in &source.related {
        related.expressions().for_each(|e| footprint.read(e));
        if related.by_reference() {
            footprint.add_object(&related.name);
        } else {
            footprint.add_objects(&related.name);
        }
    }
    let p = &source.program;
    for (name, expression) in &p.variables {
        footprint.define(name, expression);
    }
    p.filter.iter().for_each(|e| footprint.read(e));
    p.apply.iter().flatten().flat_map(Rule::expressions).for_each(|e| footprint.read(e));
    p.health.iter().flatten().flat_map(Rule::expressions).for_each(|e| footprint.read(e));
    p.revisions().chain(p.texts()).chain(&p.since).for_each(|e| footprint.read(e));
    p.inventory.iter().flat_map(InventoryProgram::expressions).for_each(|e| footprint.read(e));
    // An inventory is most of an object: it is kept only where somebody looks at it.
    let resources = p.resources.iter().filter(|resources| resources.enabled);
    resources.flat_map(ResourcesProgram::expressions).for_each(|e| footprint.read(e));
    p.hold.iter().flat_map(|h| [&h.when, &h.key]).for_each(|e| footprint.read(e));
    let mut projection = footprint.projection(OBJECT);
    if p.health.is_none() {
        projection.merge(&kstatus::package_projection());
    }
    if p.apply.is_none() {
        projection.merge(&kstatus::apply_projection());
    }
    source.projection = projection;
    for related in &mut source.related {
        related.projection = footprint.projection(&related.name);
        if let By::Labels { labels, .. } = &related.by {
            let kept = related.projection.field("metadata").field("labels");
            labels.iter().for_each(|(name, _)| kept.field(name).keep());
        }
    }
}

/// Whether a definition speaks of resource versions anywhere but in its samples.
fn reads_versions(definition: &Value) -> bool {
    let Some(fields) = definition.as_object() else { return false };
    fields.iter().any(|(name, value)| name != "samples" && value.to_string().contains("resourceVersion"))
}

fn names(seen: &[String]) -> Vec<&str> {
    seen.iter().map(String::as_str).collect()
}

/// Whether a text is a DNS label of at most `max` characters.
fn is_label(text: &str, max: usize) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !text.is_empty()
        && text.len() <= max
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Whether a text is a word as conditions have them for a reason.
fn is_reason(text: &str) -> bool {
    text.len() <= MAX_REASON
        && text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.bytes().all(|b| b.is_ascii_alphanumeric())
}
