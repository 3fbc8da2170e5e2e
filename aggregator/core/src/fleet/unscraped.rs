//! Exporters that cannot be scraped from here, and why.

use std::collections::BTreeMap;

use super::Fleet;

/// By cluster and address.
#[derive(Debug, Default)]
pub(super) struct Unscraped(BTreeMap<String, BTreeMap<String, String>>);

impl Unscraped {
    /// Why nothing is heard of a cluster, as far as it is scraped from here.
    pub(super) fn why(&self, cluster: &str) -> Option<String> {
        let exporters = self.0.get(cluster)?;
        let why = exporters.values().next()?;
        Some(format!("cannot be scraped: {why}"))
    }
}

impl Fleet {
    /// Takes note of why an exporter of a cluster cannot be scraped, or that it can. It is shown while nothing young
    /// is known of the cluster.
    pub fn unscraped(&mut self, cluster: &str, url: &str, why: Option<String>) {
        if self.speakers.tell_of(cluster) && self.unscraped.0.contains_key(cluster) != why.is_some() {
            self.changes.everything();
        }
        match why {
            Some(why) => {
                drop(self.unscraped.0.entry(cluster.to_owned()).or_default().insert(url.to_owned(), why))
            }
            None => {
                if let Some(exporters) = self.unscraped.0.get_mut(cluster) {
                    exporters.remove(url);
                    if exporters.is_empty() {
                        self.unscraped.0.remove(cluster);
                    }
                }
            }
        }
    }
}
