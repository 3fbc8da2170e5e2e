//! What whoever wrote a source expects it to say about an object.

use std::{borrow::Cow, fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, SeqAccess, Visitor},
};
use statusbridge_contract::{ApplyState, Fingerprint, Health};

/// What is expected to be shown of a package. What is left out may be anything; an empty text means that there is none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub struct Expectation {
    /// Which package, as `namespace/name`; the only one when left out.
    pub package: Option<String>,
    /// Whether there is such a package.
    pub shown: Option<bool>,
    /// The apply state.
    #[serde(deserialize_with = "state")]
    #[schemars(with = "Option<String>", extend("enum" = ApplyState::ALL.iter().map(|it| it.name()).collect::<Vec<_>>()))]
    pub apply: Option<ApplyState>,
    /// The health.
    #[serde(deserialize_with = "state")]
    #[schemars(with = "Option<String>", extend("enum" = Health::ALL.iter().map(|it| it.name()).collect::<Vec<_>>()))]
    pub health: Option<Health>,
    /// The reason.
    pub reason: Option<String>,
    /// The message.
    pub message: Option<String>,
    /// The revision that the cluster has been told to run.
    pub desired_revision: Option<Revisions>,
    /// The revision that was last tried, as it is written.
    pub attempted_revision: Option<String>,
    /// The revision that was last applied in full.
    pub applied_revision: Option<Revisions>,
    /// The applied revision while the package is Applied and Current.
    pub healthy_revision: Option<Revisions>,
    /// Counts of resources: all, current ones and failed ones, as `3/2/1`.
    pub resources: Option<String>,
    /// What is worst off in the package.
    pub worst_resource: Option<String>,
    /// The run of the controller that it is about.
    pub operation: Option<String>,
    /// Since when the object itself says that it is in its state, as an RFC 3339 time.
    pub since: Option<String>,
    /// Whether the object says nothing about the outcome at the moment: what `hold` comes to.
    pub undecided: Option<bool>,
    /// The field of the source whose expression fails.
    pub error: Option<String>,
    /// Among transitions: which version of the package's object shows it, counted from 1.
    pub version: Option<usize>,
    /// Among transitions: when it is shown, as an RFC 3339 time.
    pub time: Option<String>,
}

/// A revision as it is written or by its 12 digits, or those of a package of several sources. An empty text is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Revisions {
    /// One.
    One(String),
    /// Several.
    Several(Vec<String>),
}

impl Revisions {
    /// What stands for it in metrics.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        match self {
            Self::One(revision) => Fingerprint::of(revision),
            Self::Several(revisions) => Fingerprint::of_all(revisions.iter().map(String::as_str)),
        }
    }

    /// As it was written.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::One(revision) => revision.clone(),
            Self::Several(revisions) => revisions.join(", "),
        }
    }
}

impl JsonSchema for Revisions {
    fn schema_name() -> Cow<'static, str> {
        "Revisions".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": ["string", "array"], "items": {"type": "string"}})
    }
}

impl<'de> Deserialize<'de> for Revisions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Texts;
        impl<'de> Visitor<'de> for Texts {
            type Value = Revisions;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a revision, in quotes where YAML takes it for a number, or a list of revisions")
            }

            fn visit_str<E>(self, text: &str) -> Result<Revisions, E> {
                Ok(Revisions::One(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Revisions, A::Error> {
                let mut revisions = Vec::new();
                while let Some(revision) = seq.next_element()? {
                    revisions.push(revision);
                }
                Ok(Revisions::Several(revisions))
            }
        }
        deserializer.deserialize_any(Texts)
    }
}

impl Expectation {
    /// This, and what `base` expects where this expects nothing.
    pub(crate) fn or(&self, base: &Self) -> Self {
        fn or<T: Clone>(own: &Option<T>, base: &Option<T>) -> Option<T> {
            own.as_ref().or(base.as_ref()).cloned()
        }
        Self {
            package: or(&self.package, &base.package),
            shown: or(&self.shown, &base.shown),
            apply: or(&self.apply, &base.apply),
            health: or(&self.health, &base.health),
            reason: or(&self.reason, &base.reason),
            message: or(&self.message, &base.message),
            desired_revision: or(&self.desired_revision, &base.desired_revision),
            attempted_revision: or(&self.attempted_revision, &base.attempted_revision),
            applied_revision: or(&self.applied_revision, &base.applied_revision),
            healthy_revision: or(&self.healthy_revision, &base.healthy_revision),
            resources: or(&self.resources, &base.resources),
            worst_resource: or(&self.worst_resource, &base.worst_resource),
            operation: or(&self.operation, &base.operation),
            since: or(&self.since, &base.since),
            undecided: or(&self.undecided, &base.undecided),
            error: or(&self.error, &base.error),
            version: or(&self.version, &base.version),
            time: or(&self.time, &base.time),
        }
    }
}

fn state<'de, D: Deserializer<'de>, S: FromStr>(deserializer: D) -> Result<Option<S>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let state = text.parse().map_err(|_| D::Error::custom(format_args!("`{text}` is no state")))?;
    Ok(Some(state))
}
