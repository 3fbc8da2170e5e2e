//! The configuration file: what is too rich for flags. All of it may be left out.

use std::path::PathBuf;

use serde::Deserialize;
use statusbridge_core::checks::Templates;
use statusbridge_core::fleet::Speakers;
use statusbridge_core::reconcile::profiles;
use statusbridge_core::reconcile::tenancy::Tenancy;

use crate::feed;
use crate::feed::yaml_file::{self, FromYaml, YamlFile};
use crate::notify;

/// What `--config` names.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Config {
    /// Queries that the checks of gates can refer to by name.
    pub check_templates: Templates,
    /// By which ways evidence comes, beside those that flags name.
    pub feeds: feed::Settings,
    /// Which ClusterProfiles count, and what they stand for.
    pub cluster_profiles: profiles::Settings,
    /// Whose exporters are believed about other clusters; left out: nobody's.
    pub speakers: Speakers,
    /// What each namespace may see; left out: everything.
    pub tenants: Tenancy,
    /// Who is told how each revision fares in each wave.
    pub(crate) notify: notify::Settings,
    /// How what FleetRollouts admit is handed over.
    rollouts: Rollouts,
}

/// How what FleetRollouts admit is handed over.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Rollouts {
    /// File that says which cluster each token is for; left out: that of pushes.
    tokens_file: Option<PathBuf>,
}

/// The file that `--config` names.
pub type ConfigFile = YamlFile<Config>;

impl FromYaml for Config {
    fn from_yaml(text: &str) -> Result<Self, String> {
        yaml_file::read(text)
    }
}

impl Config {
    /// What counts of ClusterProfiles, for whoever needs it.
    pub fn profiles(&self) -> profiles::Settings {
        let scraped = self.feeds.scrape.as_ref().and_then(|scrape| scrape.cluster_profiles.as_ref());
        let address_property = scraped.map(|profiles| profiles.property.clone());
        profiles::Settings { address_property, ..self.cluster_profiles.clone() }
    }

    /// The file that says which cluster each token is for, if there is one.
    pub(crate) fn cluster_tokens(&self) -> Option<PathBuf> {
        let pushed = self.feeds.push.as_ref().map(|push| push.tokens_file.clone());
        self.rollouts.tokens_file.clone().or(pushed)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use statusbridge_core::reconcile::tenancy::Grant;

    use super::*;

    #[test]
    fn what_is_wrong_is_said_without_the_lines_around_it() {
        let text = "feeds:\n  backends:\n  - name: a\n    url: https://u:secret@a/?apikey=secret\n    headers: {a: secret}\n    x: 1\n";
        let error = Config::from_yaml(text).unwrap_err();
        assert!(error.contains("`x`") && error.contains("line 6") && !error.contains("secret"), "{error}");
    }

    #[test]
    fn an_empty_file_is_the_default() {
        for text in ["", "# nothing yet\n", "{}"] {
            assert_eq!(Config::from_yaml(text).unwrap(), Config::default(), "{text:?}");
        }
    }

    #[test]
    fn what_is_not_known_is_named_with_the_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "tennants: []\n").unwrap();
        let error = ConfigFile::open(Some(file.path().to_owned())).unwrap_err().to_string();
        assert!(error.contains("tennants") && error.contains(&file.path().display().to_string()), "{error}");
        let error = ConfigFile::open(Some("/nowhere/config.yaml".into())).unwrap_err().to_string();
        assert!(error.starts_with("/nowhere/config.yaml: "), "{error}");
        assert_eq!(ConfigFile::open(None).unwrap().current(), &Config::default());
    }

    #[test]
    fn a_bad_new_version_keeps_the_old_and_is_told_once() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let write = |text: &str| std::fs::write(file.path(), text).unwrap();
        write("clusterProfiles: {namespace: fleet}\n");
        let mut config = ConfigFile::open(Some(file.path().to_owned())).unwrap();
        let first = config.current().clone();
        assert_eq!(first.cluster_profiles.namespace.as_deref(), Some("fleet"));
        assert!(config.reread().is_none());

        write("tenants: none at all\n");
        assert!(config.reread().unwrap().is_err());
        assert!(config.reread().is_none(), "it was told already");
        assert_eq!(config.current(), &first);

        std::fs::remove_file(file.path()).unwrap();
        assert!(config.reread().unwrap().is_err());
        assert!(config.reread().is_none());
        assert_eq!(config.current(), &first, "a file that is gone grants nothing");

        write("# the same in other words\nclusterProfiles: {namespace: \"fleet\"}\n");
        assert!(config.reread().is_none());
        write("tenants: []\n");
        assert_ne!(config.reread().unwrap().unwrap(), &first);
    }

    #[rstest]
    #[case::nothing_after_the_colon("tenants:\n")]
    #[case::null("tenants: null\n")]
    #[case::a_rule_without_clusters("tenants:\n- {namespaces: [a], packageNamespaces: [a], sources: [a]}\n")]
    #[case::a_typing_error(
        "tenants:\n- {namespace: [a], clusters: [a], packageNamespaces: [a], sources: [a]}\n"
    )]
    #[case::no_list("tenants:\n- {namespaces: a, clusters: [a], packageNamespaces: [a], sources: [a]}\n")]
    fn what_is_not_understood_is_never_taken_for_permission(#[case] text: &str) {
        if let Ok(config) = serde_saphyr::from_str::<Config>(text) {
            let package = statusbridge_core::testing::package("a");
            assert_eq!(config.tenants.grant("a", &package), Grant::Clusters(Default::default()));
        }
    }
}
