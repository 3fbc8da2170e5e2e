//! Which cluster's exporter is believed about packages that run in other clusters. That is for whoever runs the hub to
//! say, and never for an exposition: by default nobody is.

use serde::{Deserialize, Deserializer, de::Error};

use crate::glob::{Glob, any};
use crate::verify::{Content, package};

/// A cluster whose exporter is believed about others.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Speaker {
    /// The cluster of the exporter.
    pub cluster: String,
    /// Sources whose packages it may tell of.
    pub sources: Vec<Glob>,
    /// Clusters of which it may tell.
    pub clusters: Vec<Glob>,
}

/// All of them; for each cluster and source there is one at most.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Speakers(Vec<Speaker>);

impl Speakers {
    /// These.
    ///
    /// # Errors
    /// When it could not be told which of two counts, or one of them can never count.
    pub fn new(speakers: Vec<Speaker>) -> Result<Self, String> {
        for (number, speaker) in speakers.iter().enumerate() {
            for (field, is_empty) in [
                ("cluster", speaker.cluster.is_empty()),
                ("sources", speaker.sources.is_empty()),
                ("clusters", speaker.clusters.is_empty()),
            ] {
                if is_empty {
                    return Err(format!("speakers[{number}].{field} is empty: it would speak for nobody"));
                }
            }
            let overlaps = |other: &Speaker| {
                Some((common(&speaker.sources, &other.sources)?, common(&speaker.clusters, &other.clusters)?))
            };
            let earlier = speakers.iter().enumerate().take(number);
            let twin = earlier.filter(|(_, other)| other.cluster != speaker.cluster);
            if let Some((other, (source, cluster))) =
                twin.filter_map(|(at, other)| Some((at, overlaps(other)?))).next()
            {
                return Err(format!(
                    "speakers[{number}] and speakers[{other}] may both speak of source `{source}` in cluster `{cluster}`: \
                     one speaker for a cluster and source"
                ));
            }
        }
        Ok(Self(speakers))
    }

    /// The cluster whose exporter is believed about packages of a source in a cluster.
    pub fn of(&self, source: &str, cluster: &str) -> Option<&str> {
        let speaks =
            |it: &&Speaker| it.cluster != cluster && any(&it.sources, source) && any(&it.clusters, cluster);
        self.0.iter().find(speaks).map(|speaker| speaker.cluster.as_str())
    }

    /// Whether the exporter of a cluster is the one that is believed about packages of a source in another one.
    pub fn believes(&self, speaker: &str, source: &str, cluster: &str) -> bool {
        self.0.iter().any(|it| it.cluster == speaker) && self.of(source, cluster) == Some(speaker)
    }

    /// What is to be told of a cluster's exporter that speaks of others without being believed.
    pub(super) fn unbelieved(&self, speaker: &str, content: &Content) -> Option<String> {
        let (count, (source, _, name), cluster) =
            first_elsewhere(content, |source, it| !self.believes(speaker, source, it))?;
        if cluster == speaker {
            return Some(format!(
                "the exporter of cluster {speaker} takes its own cluster for another one: give it --cluster-name {speaker}="
            ));
        }
        Some(format!(
            "the exporter of cluster {speaker} tells of {count} packages in other clusters, such as {name} of source {source} \
             in {cluster}, and is not believed: `speakers` of the configuration does not grant it"
        ))
    }

    /// What is to be told of a cluster's exporter that was believed about others, and is no longer by these.
    pub(super) fn withdrawn(&self, by: &Self, speaker: &str, content: &Content) -> Option<String> {
        let is_withdrawn = |source: &str, cluster: &str| {
            self.believes(speaker, source, cluster) && !by.believes(speaker, source, cluster)
        };
        let (count, (source, _, name), cluster) = first_elsewhere(content, is_withdrawn)?;
        Some(format!(
            "the exporter of cluster {speaker} is no longer believed about {count} packages in other clusters, such as {name} of \
             source {source} in {cluster}: `speakers` of the configuration does not grant it any more"
        ))
    }

    /// Whether some exporter is believed about packages in a cluster.
    pub(super) fn tell_of(&self, cluster: &str) -> bool {
        self.0.iter().any(|it| any(&it.clusters, cluster))
    }

    /// The clusters whose exporters are believed about others.
    pub fn clusters(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|speaker| speaker.cluster.as_str())
    }
}

/// How many packages in other clusters are such, by their source and cluster, and the first of them.
fn first_elsewhere(
    content: &Content,
    is_such: impl Fn(&str, &str) -> bool,
) -> Option<(usize, (&str, &str, &str), &str)> {
    let keys = content.packages.keys().iter().map(|key| package::without_cluster(key));
    let elsewhere = keys.filter_map(|(package, cluster)| Some((package::parts(package), cluster?)));
    let mut such = elsewhere.filter(|((source, ..), cluster)| is_such(source, cluster));
    let (package, cluster) = such.next()?;
    Some((1 + such.count(), package, cluster))
}

/// A name for which one of both stands, if there is any.
fn common(some: &[Glob], others: &[Glob]) -> Option<String> {
    some.iter().find_map(|glob| others.iter().find_map(|other| glob.common(other)))
}

impl<'de> Deserialize<'de> for Speakers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(Vec::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn speaker(cluster: &str, sources: &[&str], clusters: &[&str]) -> Value {
        json!({"cluster": cluster, "sources": sources, "clusters": clusters})
    }

    #[rstest]
    #[case("argo", "eu-1", Some("m1"))]
    #[case("flux", "eu-1", None)]
    #[case("argo", "us-1", Some("m2"))]
    #[case("argo", "ap-1", None)]
    #[case("argo", "m1", None)]
    fn who_speaks_for_whom(#[case] source: &str, #[case] cluster: &str, #[case] expected: Option<&str>) {
        let speakers =
            json!([speaker("m1", &["argo*"], &["eu-*", "m1"]), speaker("m2", &["argo"], &["us-?"])]);
        let speakers: Speakers = serde_json::from_value(speakers).unwrap();
        assert_eq!(speakers.of(source, cluster), expected);
    }

    #[rstest]
    #[case::two_for_one(
        json!([speaker("m1", &["a"], &["eu-*"]), speaker("m2", &["*"], &["*-1"])]),
        Some("speakers[1] and speakers[0] may both speak of source `a` in cluster `eu-1`")
    )]
    #[case::of_different_sources(json!([speaker("m1", &["a"], &["*"]), speaker("m2", &["b"], &["*"])]), None)]
    #[case::the_same_one_twice(json!([speaker("m1", &["a"], &["*"]), speaker("m1", &["a"], &["eu"])]), None)]
    #[case::nobody(json!([speaker("", &["a"], &["*"])]), Some("speakers[0].cluster is empty"))]
    #[case::of_nothing(json!([speaker("m1", &[], &["*"])]), Some("speakers[0].sources is empty"))]
    #[case::an_unknown_field(json!([{"cluster": "m1", "sources": ["a"], "cluster_s": ["*"]}]), Some("cluster_s"))]
    fn what_cannot_be_meant_is_refused(#[case] speakers: Value, #[case] expected: Option<&str>) {
        let error = serde_json::from_value::<Speakers>(speakers).err().map(|error| error.to_string());
        match expected {
            Some(expected) => assert!(error.as_ref().is_some_and(|it| it.contains(expected)), "{error:?}"),
            None => assert_eq!(error, None),
        }
    }
}
