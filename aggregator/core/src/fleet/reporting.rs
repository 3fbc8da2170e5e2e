//! Which clusters report which package, by their own exporters and by speakers.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use statusbridge_api::PackageRef;
use statusbridge_contract::Fingerprint;

use super::{Cluster, Fleet, id, key};
use crate::verify::package;

impl Fleet {
    /// Whether all that is known of a package in a cluster is what another cluster's exporter tells.
    pub(crate) fn knows_by_speaker(&self, cluster: &str, package: &PackageRef) -> bool {
        self.speakers.of(&package.source, cluster).is_some() && !self.clusters.contains_key(cluster)
    }

    /// The clusters of which some exporter that is believed tells this package, or did lately, in no order.
    fn told_by_speakers(&self, key: &str) -> impl Iterator<Item = &str> {
        let (source, ..) = package::parts(key);
        let speakers: BTreeSet<&str> = self.speakers.clusters().collect();
        speakers.into_iter().flat_map(move |speaker| {
            let streams = self.clusters.get(speaker).into_iter().flat_map(|it| it.streams.values());
            let clusters =
                streams.filter_map(|s| s.verified.as_ref()).flat_map(|v| v.content.packages.clusters_of(key));
            clusters.filter(move |cluster| self.speakers.believes(speaker, source, cluster))
        })
    }

    /// The feed that last brought verified data of a package in a cluster.
    pub fn feed_of(&self, cluster: &str, package: &PackageRef) -> Option<&str> {
        let key = key(package);
        let last = |cluster: &str, key: &str| {
            let streams = &self.clusters.get(cluster)?.streams;
            let verified = streams.iter().filter_map(|(id, s)| Some((id, s.verified.as_ref()?)));
            let has = verified.filter(|(_, v)| v.content.has(key));
            has.max_by(|a, b| a.1.last_word().total_cmp(&b.1.last_word())).map(|(id, _)| &*id.feed)
        };
        let by_speaker =
            || last(self.speakers.of(&package.source, cluster)?, &package::key_in(&key, cluster));
        last(cluster, &key).or_else(by_speaker)
    }

    /// Sorted names of the clusters of which the package is reported or was lately, stale ones included.
    pub fn reporting(&self, package: &PackageRef) -> Vec<String> {
        self.reported(&key(package)).map(|(name, _)| name.to_owned()).collect()
    }

    /// The same, with what is heard of the clusters themselves: one after the other, so that whoever looks at each finds it
    /// where it was just found.
    pub(super) fn reported<'a>(
        &'a self,
        key: &str,
    ) -> Box<dyn Iterator<Item = (&'a str, Option<&'a Cluster>)> + 'a> {
        let told: BTreeSet<&str> = self.told_by_speakers(key).collect();
        let key = key.to_owned();
        let own = self.clusters.iter().filter(move |(_, cluster)| cluster.reports(&key));
        let own = own.map(|(name, cluster)| (name.as_str(), Some(cluster)));
        if told.is_empty() {
            return Box::new(own);
        }
        let mut all: Vec<_> = own.collect();
        all.extend(told.into_iter().map(|name| (name, self.clusters.get(name))));
        all.sort_by_key(|(name, _)| *name);
        all.dedup_by_key(|(name, _)| *name);
        Box::new(all.into_iter())
    }

    /// Every package of which verified data is known of a cluster where it may be looked at.
    /// `may_look` is asked once for each package, and gives the question about clusters.
    pub fn packages<M: Fn(&str) -> bool>(&self, may_look: impl Fn(&PackageRef) -> M) -> BTreeSet<PackageRef> {
        let mut hidden = HashMap::<&str, (PackageRef, M)>::new();
        let mut found = HashMap::<&str, PackageRef>::new();
        for (name, cluster) in &self.clusters {
            let verified = cluster.streams.values().filter_map(|s| s.verified.as_ref());
            for key in verified.flat_map(|v| v.content.packages.keys().iter()) {
                let (key, elsewhere) = package::without_cluster(key);
                let is_believed = |it: &str| self.speakers.believes(name, package::parts(key).0, it);
                let name = match elsewhere {
                    Some(cluster) if is_believed(cluster) => cluster,
                    Some(_) => continue,
                    None => name.as_str(),
                };
                if found.contains_key(key) {
                    continue;
                }
                let (id, may_look) = hidden.remove(key).unwrap_or_else(|| {
                    let id = id(key);
                    let may_look = may_look(&id);
                    (id, may_look)
                });
                match may_look(name) {
                    true => drop(found.insert(key, id)),
                    false => drop(hidden.insert(key, (id, may_look))),
                }
            }
        }
        found.into_values().collect()
    }

    /// Every revision of the package that some cluster was seen to want, have applied or have healthy, with
    /// the sorted names of the clusters.
    pub fn revisions(&self, package: &PackageRef) -> BTreeMap<Fingerprint, Vec<&str>> {
        let key = key(package);
        let mut seen: BTreeMap<Fingerprint, Vec<&str>> = BTreeMap::new();
        for (name, cluster) in self.reported(&key) {
            let speaker = self.speakers.of(&package.source, name);
            let elsewhere = speaker.map(|speaker| (self.clusters.get(speaker), package::key_in(&key, name)));
            let told =
                [Some((cluster, key.as_str())), elsewhere.as_ref().map(|(it, key)| (*it, key.as_str()))];
            let streams = told.into_iter().flatten().flat_map(|(cluster, key)| {
                let streams = cluster.into_iter().flat_map(|it| it.streams.values());
                streams.filter_map(move |stream| stream.verified.as_ref()?.find(key))
            });
            for (package, history) in streams {
                let own =
                    [package.desired(), package.applied(), package.healthy(), history.previously_applied];
                for revision in own.into_iter().filter(|r| !r.is_none()) {
                    let clusters = seen.entry(revision).or_default();
                    if clusters.last() != Some(&name) {
                        clusters.push(name);
                    }
                }
            }
        }
        seen
    }
}
