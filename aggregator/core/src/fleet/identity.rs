//! By which labels a package can be asked for in a backend.

use statusbridge_contract::{label, stream::StreamLabels};

/// The names under which a stream's samples bear the identity of a package: what a pipeline added may
/// have pushed them aside.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct IdentityLabels {
    /// Of the label that is `package_source` where it was scraped.
    pub source: String,
    /// `package_namespace`.
    pub namespace: String,
    /// `package`.
    pub name: String,
}

impl IdentityLabels {
    /// Those in a stream with these labels.
    pub fn of(stream: &StreamLabels) -> Self {
        let renamed = |own: &str| {
            let mut name = own.to_owned();
            while stream.contains_key(&name) {
                name.insert_str(0, "exported_");
            }
            name
        };
        Self {
            source: renamed(label::PACKAGE_SOURCE),
            namespace: renamed(label::PACKAGE_NAMESPACE),
            name: renamed(label::PACKAGE),
        }
    }
}
