//! Where ClusterProfiles live, and which cluster each stands for.

use kube_core::DynamicObject;
use serde::Deserialize;
use serde_json::Value;

use super::excused_by::ExcusedBy;

/// Section `clusterProfiles` of the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Settings {
    /// Namespace of the profiles that count; left out: all namespaces.
    pub namespace: Option<String>,
    /// Where a profile has the cluster's name as the metrics pipeline labels it.
    pub cluster_name: ClusterName,
    /// What of a profile excuses its cluster, so that it need not be healthy; the first that is so gives the reason.
    pub excused: Vec<ExcusedBy>,
    /// Property that has the URL of the cluster's exporter, if anybody wants to know.
    #[serde(skip)]
    pub address_property: Option<String>,
}

/// Where a profile has the name of its cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written")]
pub enum ClusterName {
    /// The profile's own name is the cluster's.
    #[default]
    Name,
    /// `status.properties` has it under this name.
    Property(String),
    /// It is the value of this label.
    Label(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    from: Option<Own>,
    property: Option<String>,
    label: Option<String>,
}

#[derive(Deserialize)]
enum Own {
    Name,
}

impl TryFrom<Written> for ClusterName {
    type Error = &'static str;

    fn try_from(written: Written) -> Result<Self, Self::Error> {
        match (written.from, written.property, written.label) {
            (Some(Own::Name), None, None) => Ok(Self::Name),
            (None, Some(property), None) if !property.is_empty() => Ok(Self::Property(property)),
            (None, None, Some(label)) if !label.is_empty() => Ok(Self::Label(label)),
            _ => Err("clusterName must be exactly one of {from: Name}, {property: …} and {label: …}"),
        }
    }
}

/// A property of a profile.
pub(super) fn property<'a>(profile: &'a DynamicObject, name: &str) -> Option<&'a str> {
    let properties = profile.data.pointer("/status/properties").and_then(Value::as_array);
    let found = properties.into_iter().flatten().find(|it| it["name"] == name)?;
    found["value"].as_str().filter(|value| !value.is_empty())
}

impl ClusterName {
    /// The name of the profile's cluster.
    ///
    /// # Errors
    /// In words for a status, when the profile does not say.
    pub(super) fn of(&self, profile: &DynamicObject) -> Result<String, String> {
        let (name, place) = match self {
            Self::Name => (profile.metadata.name.as_deref(), "name".to_owned()),
            Self::Property(property) => (self::property(profile, property), format!("property {property}")),
            Self::Label(label) => {
                let labels = profile.metadata.labels.as_ref();
                (labels.and_then(|labels| labels.get(label)).map(String::as_str), format!("label {label}"))
            }
        };
        let name = name.filter(|name| !name.is_empty());
        name.map(str::to_owned).ok_or_else(|| format!("its ClusterProfile has no {place}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("{}", ClusterName::Name)]
    #[case("clusterName: {from: Name}", ClusterName::Name)]
    #[case("clusterName: {property: cluster.clusterset.k8s.io}", ClusterName::Property("cluster.clusterset.k8s.io".into()))]
    #[case("clusterName: {label: example.com/name}", ClusterName::Label("example.com/name".into()))]
    fn what_can_be_written(#[case] text: &str, #[case] expected: ClusterName) {
        let settings: Settings = serde_saphyr::from_str(text).unwrap();
        assert_eq!(settings, Settings { cluster_name: expected, ..Settings::default() });
    }

    #[rstest]
    #[case("clusterName: {}")]
    #[case("clusterName: {from: Label}")]
    #[case("clusterName: {from: Name, label: a}")]
    #[case("clusterName: {property: \"\"}")]
    #[case("clusterName: {annotation: a}")]
    #[case("nameSpace: a")]
    fn what_cannot(#[case] text: &str) {
        assert!(serde_saphyr::from_str::<Settings>(text).is_err());
    }
}
