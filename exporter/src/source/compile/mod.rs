//! From YAML to a source that is known to work: everything that can be wrong with one is found here,
//! and not on the one object in a thousand that runs into it.

mod projections;
mod resources;
mod rules;

use std::cell::RefCell;

use serde_json::{Value, json};
use statusbridge_expression::{EvaluationError, Expression, OBJECT, yaml};

use super::{
    error::SourceProblem,
    format::{
        API_VERSION, Header, KIND, NamedExpression, RelatedDefinition, SampleDefinition, SourceDefinition,
        SpecDefinition,
    },
    identity::IdentityProgram,
    join::{By, Related, RelatedObject, RelatedObjects},
    kind::{KindRef, PackageKinds},
    plain,
    program::{APPLY, HoldProgram, Program, Sample, Source},
    projection::Projection,
    trial::try_all,
    words,
};

/// Longest name of a source: it is a label's value in every series.
const MAX_NAME: usize = 63;
/// Most variables: an expression may need all of them, one for the other.
const MAX_VARIABLES: usize = 256;
/// Names that the language keeps for itself.
const KEYWORDS: &[&str] = &["true", "false", "null", "in", "optional"];

impl Source {
    /// The sources in a YAML text of one document or several, compiled and tried on their samples;
    /// `file` is for messages.
    pub fn parse(file: &str, yaml: &str) -> Result<Vec<Self>, SourceProblem> {
        parse(file, yaml)
    }

    /// What expressions read, by the variable that holds an object: the kinds that this may be of, and the fields.
    pub(crate) fn reads(&self) -> impl Iterator<Item = (&str, &[KindRef], Projection)> {
        let footprint = projections::footprint(self);
        let own = (OBJECT, self.kinds.listed());
        let related = self.related.iter().map(|related| (related.name.as_str(), related.kinds.as_slice()));
        [own].into_iter().chain(related).map(move |(name, kinds)| (name, kinds, footprint.projection(name)))
    }

    /// Has the objects that its packages consist of watched, or not; false when the source does not say
    /// which they are.
    pub fn watch_resources(&mut self, enabled: bool) -> bool {
        let Some(watch) = &mut self.program.watch else { return false };
        watch.enabled = enabled;
        projections::set(self);
        true
    }
}

fn parse(file: &str, text: &str) -> Result<Vec<Source>, SourceProblem> {
    let malformed = |error: String| SourceProblem::of_file(file, error);
    // Where both find something, the walk over the YAML can name the field and say what to write.
    let headers: Vec<Header> = yaml::from_multiple(text)
        .map_err(|error| plain::check(file, text).err().unwrap_or_else(|| malformed(error)))?;
    for header in &headers {
        let (version, kind) = (header.api_version.as_deref(), header.kind.as_deref());
        if (version, kind) != (Some(API_VERSION), Some(KIND)) {
            let message = format!(
                "needs `apiVersion: {API_VERSION}`, `kind: {KIND}`, `metadata: {{name: …}}` and `spec: …`; has apiVersion {}, kind {}",
                version.unwrap_or("none"),
                kind.unwrap_or("none")
            );
            return Err(SourceProblem {
                source_name: header.metadata.as_ref().and_then(|metadata| metadata.name.clone()),
                ..SourceProblem::of_file(file, message)
            });
        }
    }
    if headers.is_empty() {
        return Err(SourceProblem::of_file(file, "has no source in it"));
    }
    plain::check(file, text)?;
    let definitions: Vec<SourceDefinition> = yaml::from_multiple(text).map_err(malformed)?;
    let values: Vec<Value> = yaml::from_multiple(text).map_err(malformed)?;
    let located = |document: usize, mut problem: SourceProblem| {
        let field = problem.field.as_deref().map(|field| by_place(field, values.get(document)));
        problem.line = field.and_then(|field| plain::line_of(text, document, &field)?.try_into().ok());
        problem
    };
    let mut sources = Vec::new();
    for (document, (definition, value)) in definitions.into_iter().zip(&values).enumerate() {
        let compiler =
            Compiler { file, name: definition.metadata.name.clone(), warnings: RefCell::default() };
        let compiled = compiler.source(definition.spec, value.clone());
        let mut source = compiled.map_err(|problem| located(document, problem))?;
        source.warnings =
            compiler.warnings.take().into_iter().map(|problem| located(document, problem)).collect();
        sources.push(source);
    }
    Ok(sources)
}

/// Knows where it is, for messages.
struct Compiler<'a> {
    file: &'a str,
    name: String,
    warnings: RefCell<Vec<SourceProblem>>,
}

impl Compiler<'_> {
    fn wrong(&self, field: &str, message: impl Into<String>) -> SourceProblem {
        SourceProblem {
            source_name: Some(self.name.clone()),
            field: Some(field.to_owned()),
            ..SourceProblem::of_file(self.file, message)
        }
    }

    fn warn(&self, field: &str, message: impl Into<String>) {
        self.warnings.borrow_mut().push(self.wrong(field, message));
    }

    fn failed(&self, error: EvaluationError, tried_on: &str) -> SourceProblem {
        SourceProblem {
            expression: Some(error.expression.into()),
            ..self.wrong(&error.field, format!("on {tried_on}: {}", error.message))
        }
    }

    fn expression(&self, field: &str, text: &str, variables: &[&str]) -> Result<Expression, SourceProblem> {
        let wrong = |message| SourceProblem { expression: Some(text.into()), ..self.wrong(field, message) };
        let expression = Expression::compile(field, text, variables).map_err(wrong)?;
        words::check(expression.tree()).map_err(wrong)?;
        Ok(expression)
    }

    fn optional(
        &self,
        field: &str,
        text: Option<&String>,
        variables: &[&str],
    ) -> Result<Option<Expression>, SourceProblem> {
        text.map(|text| self.expression(field, text, variables)).transpose()
    }

    fn source(&self, d: SpecDefinition, definition: Value) -> Result<Source, SourceProblem> {
        if !is_label(&self.name, MAX_NAME) {
            let message =
                format!("`{}` must be lower-case letters, digits and dashes, at most {MAX_NAME}", self.name);
            return Err(self.wrong("metadata.name", message));
        }
        let kinds = self.kinds(d.kinds, d.categories)?;
        let identity = match d.identity {
            None => None,
            Some(i) => {
                let part =
                    |name: &str, text| self.optional(&format!("spec.identity.{name}"), text, &[OBJECT]);
                let cluster = part("clusterExpression", i.cluster_expression.as_ref())?;
                let namespace = part("namespaceExpression", i.namespace_expression.as_ref())?;
                let name = part("nameExpression", i.name_expression.as_ref())?;
                if cluster.is_none() && namespace.is_none() && name.is_none() {
                    let message = "needs `clusterExpression`, `namespaceExpression` or `nameExpression`";
                    return Err(self.wrong("spec.identity", message));
                }
                let order = part("orderExpression", i.order_expression.as_ref())?;
                Some(IdentityProgram { cluster, namespace, name, order })
            }
        };
        let mut conditions = Vec::new();
        for NamedExpression { name, expression } in &d.match_conditions {
            let field = format!("spec.matchConditions[{name}].expression");
            conditions.push(self.expression(&field, expression, &[OBJECT])?);
        }
        let mut seen: Vec<String> = vec![OBJECT.to_owned()];
        let mut related = Vec::new();
        for (i, r) in d.related.into_iter().enumerate() {
            let field = format!("spec.related[{i}]");
            self.variable(&format!("{field}.name"), &r.name, &seen)?;
            seen.push(r.name.clone());
            related.push(self.related(&format!("spec.related[{}]", r.name), r)?);
        }
        if d.variables.len() > MAX_VARIABLES {
            return Err(self.wrong("spec.variables", format!("has more than {MAX_VARIABLES} variables")));
        }
        let mut variables = Vec::new();
        for (i, NamedExpression { name, expression }) in d.variables.into_iter().enumerate() {
            let field = format!("spec.variables[{i}]");
            self.variable(&format!("{field}.name"), &name, &seen)?;
            let field = format!("spec.variables[{name}].expression");
            let expression = self.expression(&field, &expression, &names(&seen))?;
            seen.push(name.clone());
            variables.push((name, expression));
        }
        let before = names(&seen);
        let mut after = before.clone();
        after.push(APPLY);
        let revision = |name: &str, text: &Option<String>| {
            self.optional(&format!("spec.revisions.{name}"), text.as_ref(), &before)
        };
        let text =
            |name: &str, text: &Option<String>| self.optional(&format!("spec.{name}"), text.as_ref(), &after);
        let watches = d.resources.watch.is_some();
        let program = Program {
            identity,
            conditions,
            variables,
            desired: revision("desiredExpression", &d.revisions.desired_expression)?,
            attempted: revision("attemptedExpression", &d.revisions.attempted_expression)?,
            applied: revision("appliedExpression", &d.revisions.applied_expression)?,
            apply: match d.apply {
                Some(rules) => Some(self.apply(rules, &before)?),
                None => None,
            },
            health: match d.health {
                Some(rules) => Some(self.health(rules, watches, &after)?),
                None => None,
            },
            reason: text("reasonExpression", &d.reason_expression)?,
            message: text("messageExpression", &d.message_expression)?,
            worst_resource: text("worstResourceExpression", &d.worst_resource_expression)?,
            operation: text("operationExpression", &d.operation_expression)?,
            since: text("sinceExpression", &d.since_expression)?,
            counts: d.resources.counts.map(|counts| self.counts(&counts, &after)).transpose()?,
            watch: d.resources.watch.map(|watch| self.watch(watch, &after)).transpose()?,
            resource_health: self.resource_health(d.resources.health_rules, watches)?,
            hold: match d.hold {
                Some(h) => Some(HoldProgram {
                    when: self.expression("spec.hold.whenExpression", &h.when_expression, &after)?,
                    key: self.expression("spec.hold.keyExpression", &h.key_expression, &after)?,
                }),
                None => None,
            },
        };
        self.warn_of_unread(&program);
        let mut source = Source {
            name: self.name.clone(),
            description: d.description,
            kinds,
            related,
            warnings: Vec::new(),
            projection: Projection::default(),
            program,
            reads_versions: reads_versions(&definition),
            definition,
            samples: Vec::new(),
            cluster_names: Default::default(),
        };
        projections::set(&mut source);
        self.try_samples(&source, &d.samples)?;
        let sample = |SampleDefinition { object, related, expect }| Sample { object, related, expect };
        source.samples = d.samples.into_iter().map(sample).collect();
        Ok(source)
    }

    fn kinds(
        &self,
        kinds: Option<Vec<KindRef>>,
        categories: Option<Vec<String>>,
    ) -> Result<PackageKinds, SourceProblem> {
        match (kinds, categories) {
            (Some(kinds), None) => {
                if kinds.is_empty() {
                    return Err(self.wrong("spec.kinds", "needs at least one kind"));
                }
                for (i, kind) in kinds.iter().enumerate() {
                    let field = format!("spec.kinds[{i}]");
                    self.kind(&field, kind)?;
                    let is_same = |other: &&KindRef| other.group == kind.group && other.kind == kind.kind;
                    if kinds.iter().take(i).any(|other| is_same(&other)) {
                        return Err(self.wrong(&field, format!("there is already a kind `{}`", kind.kind)));
                    }
                }
                Ok(PackageKinds::Listed(kinds))
            }
            (None, Some(names)) if names.is_empty() || names.iter().any(String::is_empty) => {
                Err(self.wrong("spec.categories", "needs at least one category, and no empty one"))
            }
            (None, Some(names)) => Ok(PackageKinds::Categories(names)),
            _ => Err(self.wrong("spec", "needs either `kinds` or `categories`")),
        }
    }

    fn kind(&self, field: &str, kind: &KindRef) -> Result<(), SourceProblem> {
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

    fn variable(&self, field: &str, name: &str, seen: &[String]) -> Result<(), SourceProblem> {
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

    fn related(&self, field: &str, r: RelatedDefinition) -> Result<Related, SourceProblem> {
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
                if reference.kind_expression.is_none() && r.kinds.len() > 1 {
                    let field = format!("{field}.reference");
                    return Err(self.wrong(&field, "needs `kindExpression` to choose among the kinds"));
                }
                By::Reference {
                    kind: optional("reference.kindExpression", reference.kind_expression)?,
                    namespace: optional("reference.namespaceExpression", reference.namespace_expression)?,
                    name: expression("reference.nameExpression", &reference.name_expression)?,
                }
            }
            (None, Some(wanted)) => {
                if wanted.labels.is_empty() {
                    return Err(self.wrong(&format!("{field}.labels.match"), "needs at least one label"));
                }
                let mut labels = Vec::new();
                for (i, label) in wanted.labels.into_iter().enumerate() {
                    let at = format!("labels.match[{i}]");
                    if labels.iter().any(|(name, _)| *name == label.label) {
                        let message = format!("there is already a label `{}`", label.label);
                        return Err(self.wrong(&format!("{field}.{at}.label"), message));
                    }
                    let value = *expression(&format!("{at}.valueExpression"), &label.value_expression)?;
                    labels.push((label.label, value));
                }
                By::Labels {
                    kind: optional("labels.kindExpression", wanted.kind_expression)?,
                    namespace: optional("labels.namespaceExpression", wanted.namespace_expression)?,
                    labels,
                }
            }
            _ => return Err(self.wrong(field, "needs either `reference` or `labels`")),
        };
        Ok(Related { name: r.name, kinds: r.kinds, projection: Projection::default(), by })
    }

    /// A variable that nothing reads is a mistake, or left over from one.
    fn warn_of_unread(&self, program: &Program) {
        let mut read: Vec<&str> =
            program.outcomes().flat_map(Expression::reads).map(String::as_str).collect();
        for (name, expression) in program.variables.iter().rev() {
            if read.contains(&name.as_str()) {
                read.extend(expression.reads().iter().map(String::as_str));
            } else {
                self.warn(&format!("spec.variables[{name}]"), "is read by nothing");
            }
        }
    }

    /// Runs every expression on every sample, and on an object that has nothing but a name: an
    /// object without status must be possible, and rubbish must not take a source by surprise.
    fn try_samples(&self, source: &Source, samples: &[SampleDefinition]) -> Result<(), SourceProblem> {
        for (i, sample) in samples.iter().enumerate() {
            let field = format!("spec.samples[{i}]");
            let kinds = source.kinds.listed();
            if !kinds.is_empty() && !kinds.iter().any(|kind| kind.matches(&sample.object)) {
                return Err(self.wrong(&format!("{field}.object"), "is of none of the source's kinds"));
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

/// The path of a field with the place of an item of a list instead of its name, as in `spec.variables[2]`.
fn by_place(field: &str, definition: Option<&Value>) -> String {
    let place = || {
        let (list, rest) = field.strip_prefix("spec.")?.split_once('[')?;
        let (name, rest) = rest.split_once(']')?;
        let items = definition?.get("spec")?.get(list)?.as_array()?;
        let place = items.iter().position(|item| item.get("name").is_some_and(|n| n == name))?;
        Some(format!("spec.{list}[{place}]{rest}"))
    };
    place().unwrap_or_else(|| field.to_owned())
}

/// Whether a definition speaks of resource versions anywhere but in its samples.
fn reads_versions(definition: &Value) -> bool {
    let Some(fields) = definition.get("spec").and_then(Value::as_object) else { return false };
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
