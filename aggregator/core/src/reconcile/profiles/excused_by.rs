//! What of a ClusterProfile excuses its cluster.

use kube_core::DynamicObject;
use serde::Deserialize;
use serde_json::Value;

/// What a ClusterProfile must say for its cluster not to count, and why that is.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written")]
pub struct ExcusedBy {
    said: Said,
    reason: String,
}

/// What a ClusterProfile says.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Said {
    /// It has a condition of this type with this status.
    Condition { kind: String, status: String },
    /// It has this label, with this value if there is one.
    Label { key: String, value: Option<String> },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    condition: Option<Condition>,
    label: Option<Label>,
    reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: Status,
}

#[derive(Deserialize)]
enum Status {
    True,
    False,
    Unknown,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Label {
    key: String,
    value: Option<String>,
}

impl TryFrom<Written> for ExcusedBy {
    type Error = &'static str;

    fn try_from(written: Written) -> Result<Self, Self::Error> {
        let said = match (written.condition, written.label) {
            (Some(Condition { kind, status }), None) if !kind.is_empty() => {
                let status = match status {
                    Status::True => "True",
                    Status::False => "False",
                    Status::Unknown => "Unknown",
                };
                Said::Condition { kind, status: status.to_owned() }
            }
            (None, Some(Label { key, value })) if !key.is_empty() => Said::Label { key, value },
            _ => {
                return Err(
                    "excused must have exactly one of {condition: {type, status}} and {label: {key}}",
                );
            }
        };
        let reason = written.reason.filter(|reason| !reason.is_empty());
        let reason = reason.unwrap_or_else(|| match &said {
            Said::Condition { kind, status } => format!("ClusterProfile: {kind} is {status}"),
            Said::Label { key, value: Some(value) } => format!("ClusterProfile: label {key}={value}"),
            Said::Label { key, value: None } => format!("ClusterProfile: label {key}"),
        });
        Ok(Self { said, reason })
    }
}

impl ExcusedBy {
    /// Why this profile's cluster is excused, if it is by this.
    pub(super) fn reason_for(&self, profile: &DynamicObject) -> Option<String> {
        let is_so = match &self.said {
            Said::Condition { kind, status } => {
                let conditions = profile.data.pointer("/status/conditions").and_then(Value::as_array);
                let mut conditions = conditions.into_iter().flatten();
                conditions.any(|it| it["type"] == **kind && it["status"] == **status)
            }
            Said::Label { key, value } => {
                let found = profile.metadata.labels.as_ref().and_then(|labels| labels.get(key));
                found.is_some_and(|found| value.as_ref().is_none_or(|value| value == found))
            }
        };
        is_so.then(|| self.reason.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn profile(labels: Value, conditions: Value) -> DynamicObject {
        serde_json::from_value(json!({
            "metadata": {"name": "a", "labels": labels}, "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    #[rstest]
    #[case::label("label: {key: out}", Some("ClusterProfile: label out"))]
    #[case::label_of_a_value(
        "label: {key: out, value: for-repair}",
        Some("ClusterProfile: label out=for-repair")
    )]
    #[case::label_of_another_value("label: {key: out, value: \"\"}", None)]
    #[case::another_label("label: {key: outer}", None)]
    #[case::condition(
        "condition: {type: Drained, status: \"True\"}",
        Some("ClusterProfile: Drained is True")
    )]
    #[case::condition_of_another_status("condition: {type: Drained, status: \"False\"}", None)]
    #[case::another_condition("condition: {type: Drain, status: \"True\"}", None)]
    #[case::with_a_reason("{label: {key: out}, reason: maintenance}", Some("maintenance"))]
    fn what_excuses(#[case] rule: &str, #[case] expected: Option<&str>) {
        let rule: ExcusedBy = serde_saphyr::from_str(rule).unwrap();
        let conditions = json!([{"type": "Joined", "status": "True"}, {"type": "Drained", "status": "True"}]);
        let seen = profile(json!({"out": "for-repair"}), conditions);
        assert_eq!(rule.reason_for(&seen).as_deref(), expected);
        for shapeless in [json!(null), json!({"Drained": "True"}), json!(["Drained", 1])] {
            assert_eq!(rule.reason_for(&profile(json!({}), shapeless)), None);
        }
    }

    #[rstest]
    #[case("{}")]
    #[case("reason: because")]
    #[case("{label: {key: a}, condition: {type: b, status: \"True\"}}")]
    #[case("label: {key: \"\"}")]
    #[case("label: {value: a}")]
    #[case("condition: {type: a}")]
    #[case("condition: {type: a, status: \"Yes\"}")]
    #[case("taint: {key: a}")]
    fn what_cannot_be_written(#[case] text: &str) {
        assert!(serde_saphyr::from_str::<ExcusedBy>(text).is_err());
    }
}
