//! Answers what is known about one package in one cluster, and whether to rely on it.

use std::collections::BTreeSet;

use statusbridge_contract::{ApplyState, Fingerprint, Health, Metric, stream::StreamLabels};

use super::{
    Cluster, Fleet, Observation, PackageId, Row, Standing, feed_of, key,
    observation::reason,
    stream::{Stream, Verified},
};
use crate::clock::Seconds;

/// A stream that has verified content.
#[derive(Clone, Copy)]
struct Known<'a> {
    labels: &'a StreamLabels,
    stream: &'a Stream,
    verified: &'a Verified,
}

/// One question, with what it takes to answer it.
struct Question<'a> {
    fleet: &'a Fleet,
    name: &'a str,
    package: &'a PackageId,
    key: &'a str,
    known_since: Seconds,
    t: Seconds,
    stale_after: Seconds,
}

impl Fleet {
    /// What is known at `t` about a package in a cluster. Evidence older than `stale_after` seconds
    /// is not relied upon.
    pub fn observe(
        &self,
        cluster: &str,
        package: &PackageId,
        t: Seconds,
        stale_after: Seconds,
    ) -> Observation {
        let key = key(package);
        let found = self.clusters.get(cluster);
        let question = Question::of(self, (cluster, found), (package, &key), t, stale_after);
        match found {
            Some(cluster) => question.answer(cluster),
            None => question.never_seen(),
        }
    }

    /// The same of every cluster that [reports](Self::reporting) the package, by name.
    pub fn observe_all(
        &self,
        package: &PackageId,
        t: Seconds,
        stale_after: Seconds,
    ) -> impl Iterator<Item = (&str, Observation)> {
        let (key, package) = (key(package), package.clone());
        self.clusters.iter().filter_map(move |(name, cluster)| {
            let question = || Question::of(self, (name, Some(cluster)), (&package, &key), t, stale_after);
            cluster.reports(&key).then(|| (name.as_str(), question().answer(cluster)))
        })
    }
}

impl<'a> Question<'a> {
    fn of(
        fleet: &'a Fleet,
        (name, found): (&'a str, Option<&Cluster>),
        (package, key): (&'a PackageId, &'a str),
        t: Seconds,
        stale_after: Seconds,
    ) -> Self {
        let known_since = found.map_or(Seconds::INFINITY, |found| found.watch.known_since(key));
        Self { fleet, name, package, key, known_since, t, stale_after }
    }

    /// The usual case, with nothing to weigh: the only stream is fresh and has the package.
    fn plain(&self, cluster: &'a Cluster) -> Option<Observation> {
        let (labels, stream) = cluster.streams.first_key_value()?;
        let verified = stream.verified.as_ref().filter(|verified| verified.other_uid.is_none())?;
        let is_plain = cluster.streams.len() == 1
            && stream.fault.is_none()
            && self.fresh(verified.evidence)
            && self.skew(stream).is_none()
            && verified.is_up(&self.package.source);
        let known = Known { labels, stream, verified };
        let row = is_plain.then(|| self.row(known)).flatten()?;
        Some(Observation {
            standing: Standing::Fresh,
            as_of: Some(verified.evidence),
            row: Some(row),
            reason: reason::REPORTED,
            message: String::new(),
        })
    }

    fn never_seen(&self) -> Observation {
        let (reason, message) = match (self.fleet.unscraped.why(self.name), self.fleet.any_error()) {
            (Some(why), _) => (reason::SCRAPE_FAILED, why),
            (None, Some(error)) => (reason::BACKEND_UNAVAILABLE, error.to_owned()),
            (None, None) => (reason::CLUSTER_NOT_FOUND, format!("cluster `{}` was never seen", self.name)),
        };
        Observation { standing: Standing::Missing, as_of: None, row: None, reason, message }
    }

    fn answer(&self, cluster: &'a Cluster) -> Observation {
        if let Some(plain) = self.plain(cluster) {
            return plain;
        }
        let known: Vec<Known<'a>> = cluster
            .streams
            .iter()
            .filter_map(|(labels, stream)| {
                Some(Known { labels, stream, verified: stream.verified.as_ref()? })
            })
            .collect();
        let live = filtered(&known, |k| self.fresh(k.verified.evidence));
        let last = freshest(&live);
        // Whoever was heard when the youngest word was spoken counts beside it, though it fell silent a little
        // earlier: silence settles nothing, only one that goes on without the other does.
        let last_word = last.map_or(self.t, |k| k.verified.evidence);
        // A cluster whose clock is wrong, or whose data does not add up, is alive all the same.
        let heard = filtered(&known, |k| k.stream.newest.is_some_and(|at| self.beside(at, last_word)));
        if let Some(message) = self.two_clusters(&heard, last_word) {
            return self.answer_with(last, Standing::Conflict, reason::CLUSTER_NAME_CONFLICT, message);
        }
        if last.is_some()
            && let Some(message) = self.stranger(cluster, &heard, last_word)
        {
            return self.answer_with(last, Standing::Unverified, reason::UNVERIFIED, message);
        }
        let trusted = |k: &Known<'_>| self.skew(k.stream).is_none();
        // Different exporters of a cluster may read different sources.
        let has_source = |k: &Known<'_>| k.verified.content.source(&self.package.source).is_some();
        let relevant: Vec<Known<'a>> = known.iter().copied().filter(has_source).collect();
        if relevant.is_empty() {
            return match freshest(&filtered(&live, trusted)) {
                Some(last) => self.answer_with(
                    Some(last),
                    Standing::Missing,
                    reason::PACKAGE_NOT_FOUND,
                    format!("no exporter of cluster `{}` reads source `{}`", self.name, self.package.source),
                ),
                None => self.not_fresh(cluster, &known),
            };
        }
        let usable = filtered(&relevant, |k| self.fresh(k.verified.evidence) && trusted(k));
        if usable.is_empty() {
            return self.not_fresh(cluster, &relevant);
        }
        let up = filtered(&usable, |k| k.verified.is_up(&self.package.source));
        let Some(best) = freshest(&up) else { return self.source_down(&usable, &relevant) };
        let beside = filtered(&relevant, |k| {
            self.beside(k.verified.evidence, best.verified.evidence)
                && trusted(k)
                && k.verified.is_up(&self.package.source)
        });
        if let Some(message) = self.disagreement(&beside) {
            return self.answer_with(Some(best), Standing::Conflict, reason::STREAMS_DISAGREE, message);
        }
        if !best.verified.content.has(self.key) {
            let message = format!("cluster `{}` reports no such package", self.name);
            return self.answer_with(Some(best), Standing::Missing, reason::PACKAGE_NOT_FOUND, message);
        }
        let message = match &best.stream.fault {
            Some(fault) => format!("newer data is not verified: {fault}"),
            None => String::new(),
        };
        let mut answer = self.answer_with(Some(best), Standing::Fresh, reason::REPORTED, message);
        if let Some(row) = answer.row.as_mut().filter(|_| beside.len() > 1) {
            row.since = self.latest_since(best, &beside);
        }
        answer
    }

    fn fresh(&self, evidence: Seconds) -> bool {
        self.t - evidence <= self.stale_after
    }

    /// Whether what was so at `at` would have counted at the time of `word`.
    fn beside(&self, at: Seconds, word: Seconds) -> bool {
        word - at <= self.stale_after
    }

    fn skew(&self, stream: &Stream) -> Option<Seconds> {
        stream.offset.beyond(self.fleet.settings.max_clock_skew)
    }

    fn answer_with(
        &self,
        known: Option<Known<'_>>,
        standing: Standing,
        reason: &'static str,
        message: String,
    ) -> Observation {
        let row = known.and_then(|k| self.row(k));
        Observation { standing, as_of: known.map(|k| k.verified.evidence), row, reason, message }
    }

    fn row(&self, known: Known<'_>) -> Option<Row> {
        let (package, history) = known.verified.find(self.key)?;
        Some(Row {
            // Verified content has only codes that the contract knows.
            apply: ApplyState::from_code(package.value(Metric::PackageApplyState))
                .unwrap_or(ApplyState::Unknown),
            health: Health::from_code(package.value(Metric::PackageHealth)).unwrap_or(Health::Unknown),
            desired: package.revision(Metric::PackageDesiredRevision),
            applied: package.revision(Metric::PackageAppliedRevision),
            healthy: package.revision(Metric::PackageHealthyRevision),
            reason: known.verified.content.reason(&self.package.source, package.value(Metric::PackageReason)),
            since: history.since(&package, known.stream.offset),
            known_since: self.known_since,
            previously_applied: history.previously_applied,
        })
    }

    /// Streams of several processes or replicas may date the same state differently: the latest
    /// counts, so that the answer does not change with whichever was scraped last.
    fn latest_since(&self, best: Known<'_>, beside: &[Known<'_>]) -> Seconds {
        let Some((wanted, _)) = best.verified.find(self.key) else { return self.t };
        let same = beside.iter().filter_map(|k| {
            let (package, history) = k.verified.find(self.key)?;
            package.same_state(&wanted).then(|| history.since(&package, k.stream.offset))
        });
        same.fold(f64::MIN, f64::max)
    }

    /// Nothing can be relied upon: says why, with what was known last.
    fn not_fresh(&self, cluster: &Cluster, known: &[Known<'_>]) -> Observation {
        let last = freshest(known);
        let live = |s: &&Stream| s.newest.is_some_and(|newest| self.fresh(newest));
        let heard = || cluster.streams.values().map(AsRef::as_ref).filter(live);
        let age = match last {
            Some(last) => {
                format!("the last verified evidence is {:.0} s old", self.t - last.verified.evidence)
            }
            None => "nothing was ever verified".to_owned(),
        };
        if let Some(error) = cluster.streams.keys().find_map(|labels| self.fleet.error_of(feed_of(labels))) {
            let message = format!("{age}; {error}");
            return self.answer_with(last, Standing::Stale, reason::BACKEND_UNAVAILABLE, message);
        }
        if let Some(skew) = heard().find_map(|s| self.skew(s)) {
            let (amount, side) = (skew.abs().round(), if skew > 0.0 { "behind" } else { "ahead of" });
            let message = format!(
                "the exporter's clock is {amount} s {side} the metrics backend's: clock skew, or a gateway \
                 that repeats an old exposition"
            );
            return self.answer_with(last, Standing::ClockSkew, reason::CLOCK_SKEW, message);
        }
        if let Some(fault) = heard().find_map(|s| s.fault.as_ref()) {
            let message = format!("{age}; {fault}");
            return self.answer_with(last, Standing::Unverified, reason::UNVERIFIED, message);
        }
        if let Some(why) = self.fleet.unscraped.why(self.name) {
            return self.answer_with(last, Standing::Stale, reason::SCRAPE_FAILED, why);
        }
        let message = match heard().any(|s| s.is_repeated()) {
            true => format!("{age}: what is scraped is an old exposition, repeated by some gateway"),
            false => age,
        };
        self.answer_with(last, Standing::Stale, reason::EXPORTER_SILENT, message)
    }

    fn source_down(&self, usable: &[Known<'_>], relevant: &[Known<'_>]) -> Observation {
        let source = &self.package.source;
        let up = relevant.iter().filter_map(|k| k.verified.last_up(source)).reduce(f64::max);
        let message = match up {
            Some(at) => {
                format!("source `{source}` of cluster `{}` is cut off since {:.0} s", self.name, self.t - at)
            }
            None => format!("source `{source}` of cluster `{}` was never seen up", self.name),
        };
        let answer = self.answer_with(freshest(usable), Standing::Stale, reason::SOURCE_DOWN, message);
        Observation { as_of: up, ..answer }
    }

    /// Two clusters that were alive under one name at the time of the last word.
    fn two_clusters(&self, live: &[Known<'_>], last_word: Seconds) -> Option<String> {
        let mut uids = BTreeSet::new();
        for known in live {
            uids.insert(known.verified.content.uid);
            // Both under the same labels, taking turns.
            uids.extend(
                known.verified.other_uid.filter(|(_, at)| self.beside(*at, last_word)).map(|(uid, _)| uid),
            );
        }
        if uids.len() < 2 {
            return None;
        }
        let shown: Vec<String> = uids.iter().take(4).map(|uid| self.show_cluster(*uid, live)).collect();
        Some(format!("{} clusters report as `{}`: {}", uids.len(), self.name, shown.join(" and ")))
    }

    /// One that was heard beside those that are known, of which nothing could be verified yet: it may be
    /// another cluster's.
    fn stranger(&self, cluster: &Cluster, heard: &[Known<'_>], last_word: Seconds) -> Option<String> {
        let is_known = |uid: u64| heard.iter().any(|k| k.verified.content.uid == Some(uid));
        let fault = cluster.streams.values().find_map(|s| {
            let is_heard = s.newest.is_some_and(|at| self.beside(at, last_word));
            let is_strange = s.verified.is_none() && is_heard && !s.claims.is_some_and(is_known);
            s.fault.as_ref().filter(|_| is_strange)
        })?;
        Some(format!(
            "something else reports as `{}`, and whether it is the same cluster cannot be told: {fault}",
            self.name
        ))
    }

    fn show_cluster(&self, uid: Option<u64>, live: &[Known<'_>]) -> String {
        let Some(id) = uid.and_then(Fingerprint::from_value) else { return "one of another uid".to_owned() };
        let own: Vec<&StreamLabels> =
            live.iter().filter(|k| k.verified.content.uid == uid).map(|k| k.labels).collect();
        let Some(first) = own.first() else { return format!("uid {id}") };
        let differs =
            |(name, value): &(&String, &String)| live.iter().any(|k| k.labels.get(*name) != Some(*value));
        let labels: Vec<String> =
            first.iter().filter(differs).map(|(n, v)| format!("{n}=\"{v}\"")).take(4).collect();
        format!("uid {id} ({})", labels.join(", "))
    }

    /// Streams that went on saying different things about the package while both were verified.
    fn disagreement(&self, beside: &[Known<'_>]) -> Option<String> {
        for (i, a) in beside.iter().enumerate() {
            for b in &beside[i + 1..] {
                let (ours, theirs) = (a.verified.find(self.key), b.verified.find(self.key));
                let same = match (ours, theirs) {
                    (Some((ours, _)), Some((theirs, _))) => ours.same_state(&theirs),
                    (None, None) => true,
                    _ => false,
                };
                let changed = a.verified.unchanged_since(self.key).max(b.verified.unchanged_since(self.key));
                // The evidence of both must reach that far: one that lags only lags.
                let proven = a.verified.evidence.min(b.verified.evidence) - changed;
                if !same && proven > self.fleet.settings.conflict_after {
                    let (a, b) = (self.show_stream(a, b), self.show_stream(b, a));
                    return Some(format!("two streams disagree for {proven:.0} s: {a}, {b}"));
                }
            }
        }
        None
    }

    fn show_stream(&self, known: &Known<'_>, other: &Known<'_>) -> String {
        let differs = |(name, value): &(&String, &String)| other.labels.get(*name) != Some(*value);
        let labels: Vec<String> =
            known.labels.iter().filter(differs).map(|(n, v)| format!("{n}=\"{v}\"")).take(3).collect();
        let state = match self.row(*known) {
            Some(row) => format!(
                "{} and {} (desired {}, applied {}, healthy {})",
                row.apply, row.health, row.desired, row.applied, row.healthy
            ),
            None => "no such package".to_owned(),
        };
        format!("{{{}}} says {state}", labels.join(","))
    }
}

fn filtered<'a>(known: &[Known<'a>], keep: impl Fn(&Known<'a>) -> bool) -> Vec<Known<'a>> {
    known.iter().copied().filter(|k| keep(k)).collect()
}

/// The one with the youngest evidence; of several, always the same.
fn freshest<'a>(known: &[Known<'a>]) -> Option<Known<'a>> {
    known.iter().copied().reduce(|a, b| if b.verified.evidence > a.verified.evidence { b } else { a })
}
