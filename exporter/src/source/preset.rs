//! The sources that come with the program. Their names are API: never renamed, only aliased.

use super::{error::SourceProblem, program::Source};

/// A source that comes with the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preset {
    /// Its name, which is also the name of its source.
    pub name: &'static str,
    /// Its YAML, as a user would write it.
    pub yaml: &'static str,
}

macro_rules! presets {
    ($($name:literal),+ $(,)?) => {
        &[$(Preset { name: $name, yaml: include_str!(concat!("../../sources/", $name, ".yaml")) }),+]
    };
}

/// All of them, by name.
#[rustfmt::skip] // one line each
pub const PRESETS: &[Preset] = presets![
    "argocd-application",
    "cartographer-deliverable",
    "cartographer-workload",
    "carvel-app",
    "carvel-packageinstall",
    "clusterapi-cluster",
    "configsync",
    "crossplane-composite",
    "crossplane-configuration",
    "crossplane-package",
    "fleet-bundledeployment",
    "flux-helmrelease",
    "flux-kustomization",
    "flux-source",
    "helm-release",
    "karmada-work",
    "kpt-resourcegroup",
    "kubefleet-binding",
    "kubefleet-work",
    "kudo-instance",
    "ocm-manifestwork",
    "olm-clustercatalog",
    "olm-clusterextension",
    "rukpak-bundledeployment",
    "sveltos-clustersummary",
];

/// Those that have to be asked for by name: what they read is in few clusters, what other packages are made of and would be
/// counted beside these, or nothing that every exporter should have a right to.
const ON_REQUEST: [&str; 10] = [
    "clusterapi-cluster",
    "fleet-bundledeployment",
    "flux-source",
    "helm-release",
    "karmada-work",
    "kubefleet-binding",
    "kubefleet-work",
    "ocm-manifestwork",
    "olm-clustercatalog",
    "sveltos-clustersummary",
];

impl Preset {
    /// Those that are used when none is named.
    pub fn usual() -> impl Iterator<Item = Self> {
        PRESETS.iter().copied().filter(|preset| preset.is_usual())
    }

    /// Whether it is used when none is named.
    pub fn is_usual(self) -> bool {
        !ON_REQUEST.contains(&self.name)
    }

    /// The preset of that name.
    pub fn find(name: &str) -> Option<Self> {
        PRESETS.iter().copied().find(|preset| preset.name == name)
    }

    /// Compiles it. That this works for every preset is tested.
    pub fn source(self) -> Result<Source, SourceProblem> {
        let file = format!("{}.yaml", self.name);
        let mut sources = Source::parse(&file, self.yaml)?;
        match sources.pop() {
            Some(source) if sources.is_empty() && source.name == self.name => Ok(source),
            _ => Err(SourceProblem::of_file(&file, "must hold one source of the same name")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::rule::HealthState;
    use statusbridge_contract::Health;
    use statusbridge_contract::reason::NO_HEALTH_CHECKS;

    #[test]
    fn every_preset_compiles_and_is_listed_in_order() {
        for preset in PRESETS {
            let source = preset.source().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(source.name, preset.name);
            assert_eq!(source.warnings, []);
        }
        assert!(PRESETS.is_sorted_by_key(|preset| preset.name));
        assert!(ON_REQUEST.iter().all(|name| Preset::find(name).is_some()));
    }

    /// `doctor` knows by this word that a package's health cannot become known.
    #[test]
    fn presets_have_one_reason_where_nothing_looks_at_health() {
        let mut found = 0;
        for preset in PRESETS {
            let source = preset.source().unwrap_or_else(|error| panic!("{error}"));
            for rule in source.program.health.iter().flatten() {
                let HealthState::Resources(unwatched) = &rule.state else { continue };
                if unwatched.health == Health::Unknown {
                    assert_eq!(unwatched.reason.as_deref(), Some(NO_HEALTH_CHECKS), "{}", preset.name);
                    found += 1;
                }
            }
        }
        assert!(found > 0);
    }

    #[test]
    fn every_file_beside_the_presets_is_one() {
        let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("sources");
        let mut files: Vec<String> = std::fs::read_dir(directory)
            .expect("the directory of presets")
            .map(|entry| entry.expect("a directory entry").file_name().to_string_lossy().into_owned())
            .collect();
        files.sort();
        let presets: Vec<String> = PRESETS.iter().map(|preset| format!("{}.yaml", preset.name)).collect();
        assert_eq!(files, presets);
    }
}
