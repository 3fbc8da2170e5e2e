//! One reference: what may be referred to, and what its expression gives.

use serde_json::{Map, Value};
use statusbridge_api::{GROUP, RevisionFrom};
use statusbridge_contract::wanted;
use statusbridge_expression::{Expression, OBJECT, Scope};

/// Longest revision, in bytes.
const MAX_REVISION: usize = 4096;
/// Longest expression, in bytes.
const MAX_EXPRESSION: usize = 4096;

/// Most steps of an expression: a few milliseconds, for as much YAML as a person writes.
const MAX_STEPS: u64 = 100_000;

/// A kind in a namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The namespace.
    pub namespace: String,
    /// `v1`, or `group/v1`.
    pub api_version: String,
    /// The kind.
    pub kind: String,
}

/// A reference that can be followed. In order of place and name, so that those to one object stand together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// Where the object lies.
    pub place: Place,
    /// Its name.
    pub name: String,
    /// What gives the revision.
    pub expression: String,
}

impl Reference {
    /// Checks a reference from an object in `namespace`, but for its expression. The API server lets nothing pass that is
    /// refused here, but an object may be older than the CRD that is installed now.
    ///
    /// # Errors
    /// In words for the person who wrote it.
    pub fn check(namespace: &str, from: &RevisionFrom) -> Result<Self, String> {
        let RevisionFrom { api_version, kind, name, expression } = from;
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let group_is_good = !api_version.contains('/') || group.split('.').all(is_label);
        if !group_is_good || !is_label(version) || api_version.len() > 317 {
            return Err(format!("{api_version:?} is no apiVersion"));
        }
        if !is_label(&kind.to_ascii_lowercase()) {
            return Err(format!("{kind:?} is no kind"));
        }
        if kind.eq_ignore_ascii_case("Secret") {
            return Err("a revision is never read from a Secret".to_owned());
        }
        // Statuses that feed on one another might never come to rest.
        if kind == "FleetPackage" && group == GROUP {
            return Err("a revision is never read from a FleetPackage".to_owned());
        }
        if name.is_empty() || name.len() > 253 {
            return Err("name must have 1 to 253 characters".to_owned());
        }
        if expression.len() > MAX_EXPRESSION {
            return Err(format!("expression must have at most {MAX_EXPRESSION} bytes"));
        }
        let place =
            Place { namespace: namespace.to_owned(), api_version: api_version.clone(), kind: kind.clone() };
        Ok(Self { place, name: name.clone(), expression: expression.clone() })
    }

    /// Which object it is.
    pub fn object(&self) -> (Place, String) {
        (self.place.clone(), self.name.clone())
    }

    /// Compiles the expression, which takes milliseconds.
    ///
    /// # Errors
    /// In words for the person who wrote it.
    pub fn compile(&self) -> Result<Expression, String> {
        Expression::compile("expression", &self.expression, &[OBJECT])
            .map_err(|error| format!("expression: {error}"))
    }
}

/// The revision that the object speaks of, without white space around it.
///
/// # Errors
/// When the expression fails on it, or gives nothing or what is no revision.
pub(super) fn read(expression: &Expression, place: &Place, json: &str) -> Result<String, String> {
    let mut object: Map<String, Value> =
        serde_json::from_str(json).map_err(|error| format!("cannot be parsed: {error}"))?;
    // Objects of a list may leave these out.
    object.insert("apiVersion".to_owned(), place.api_version.clone().into());
    object.insert("kind".to_owned(), place.kind.clone().into());
    let object = &Value::Object(object);
    let mut scope = Scope::with_steps(MAX_STEPS);
    scope.bind(OBJECT, object);
    let text = expression.whole_text_of(&mut scope, MAX_REVISION).map_err(|error| error.to_string())?;
    let revision = text.as_deref().unwrap_or_default().trim();
    if revision.is_empty() {
        return Err(expression.error("gives nothing").to_string());
    }
    match wanted::fingerprint(revision) {
        Ok(_) => Ok(revision.to_owned()),
        Err(error) => Err(expression.error(format!("gives {revision:?}: {error}")).to_string()),
    }
}

/// Whether a word is a DNS label, as versions and the parts of a group are.
fn is_label(word: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=63).contains(&word.len())
        && word.bytes().all(inner)
        && !word.starts_with('-')
        && !word.ends_with('-')
}
