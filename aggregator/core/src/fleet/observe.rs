//! Answers what is known about one package in one cluster, and whether to rely on it.
//!
//! Of several live streams the worst counts at once, and the oldest evidence.

use std::{collections::BTreeSet, sync::Arc};

use statusbridge_api::PackageRef;
use statusbridge_contract::Fingerprint;

use super::observation::reason;
use super::stream::{Skew, Stream};
use super::vote::{Vote, oldest};
use super::{Cluster, Fleet, MOST_STREAMS, Observation, Row, Standing, key};
use crate::time::Seconds;
use crate::verify::package::key_in;

/// One question, with what it takes to answer it.
struct Question<'a> {
    fleet: &'a Fleet,
    name: &'a str,
    package: &'a PackageRef,
    key: &'a str,
    t: Seconds,
    stale_after: Seconds,
}

impl Fleet {
    /// What is known at `t` about a package in a cluster. Evidence older than `stale_after` seconds
    /// is not relied upon.
    pub fn observe(
        &self,
        cluster: &str,
        package: &PackageRef,
        t: Seconds,
        stale_after: Seconds,
    ) -> Observation {
        self.look((cluster, self.clusters.get(cluster)), package, &key(package), t, stale_after)
    }

    /// The same of every cluster that [reports](Self::reporting) the package, by name.
    pub(crate) fn observe_all(
        &self,
        package: &PackageRef,
        t: Seconds,
        stale_after: Seconds,
    ) -> impl Iterator<Item = (&str, Observation)> {
        let (key, package) = (key(package), package.clone());
        let reported = self.reported(&key);
        reported.map(move |at| (at.0, self.look(at, &package, &key, t, stale_after)))
    }

    /// What is known about a package in a cluster by what is heard of that, if anything is, and from whoever speaks for it.
    fn look(
        &self,
        (name, cluster): (&str, Option<&Cluster>),
        package: &PackageRef,
        key: &str,
        t: Seconds,
        stale_after: Seconds,
    ) -> Observation {
        let ask = |name: &str, cluster: Option<&Cluster>, key: &str| {
            let question = Question { fleet: self, name, package, key, t, stale_after };
            cluster.map_or_else(|| question.never_seen(), |cluster| question.answer(cluster))
        };
        let Some(speaker) = self.speakers.of(&package.source, name) else { return ask(name, cluster, key) };
        let told = told_by(speaker, ask(speaker, self.clusters.get(speaker), &key_in(key, name)));
        match self.own_say(name, cluster, &package.source) {
            true => worse_of(ask(name, cluster, key), told),
            false => told,
        }
    }

    /// Whether a cluster's own exporter has a say in packages of a source, where another one tells of them, too: it reads
    /// them, or nobody can tell.
    pub(super) fn own_say(&self, name: &str, cluster: Option<&Cluster>, source: &str) -> bool {
        let may_read = |cluster: &Cluster| {
            let uids: BTreeSet<Fingerprint> = cluster.streams.keys().filter_map(|id| id.uid).collect();
            !cluster.readers(source).is_empty() || cluster.crowded.is_some() || uids.len() > 1
        };
        self.unscraped.why(name).is_some() || cluster.map_or(self.any_error().is_some(), may_read)
    }
}

impl<'a> Question<'a> {
    /// The usual case, with nothing to weigh: the only stream is fresh and has the package.
    fn plain(&self, cluster: &'a Cluster) -> Option<Observation> {
        let (_, stream) = cluster.streams.first_key_value()?;
        let verified = stream.verified.as_ref()?;
        let evidence = verified.evidence?;
        let is_plain = cluster.streams.len() == 1
            && cluster.crowded.is_none()
            && stream.fault.is_none()
            && stream.skew().is_none()
            && self.fresh(evidence)
            && verified.content.is_up(&self.package.source);
        let row = is_plain.then(|| self.row(stream)).flatten()?;
        Some(Observation {
            standing: Standing::Fresh,
            as_of: Some(evidence),
            row: Some(row),
            reason: reason::REPORTED,
            message: String::new(),
            told_by: None,
        })
    }

    fn never_seen(&self) -> Observation {
        let (reason, message) = match (self.fleet.unscraped.why(self.name), self.fleet.any_error()) {
            (Some(why), _) => (reason::SCRAPE_FAILED, why),
            (None, Some(error)) => (reason::BACKEND_UNAVAILABLE, error.to_owned()),
            (None, None) => (reason::CLUSTER_NOT_FOUND, format!("cluster `{}` was never seen", self.name)),
        };
        Observation { standing: Standing::Missing, as_of: None, row: None, reason, message, told_by: None }
    }

    fn answer(&self, cluster: &'a Cluster) -> Observation {
        if let Some(plain) = self.plain(cluster) {
            return plain;
        }
        let source = self.package.source.as_str();
        let live = cluster.live();
        if let Some(message) = self.two_clusters(&live) {
            let last = freshest(&live);
            return self.answer_with(last, Standing::Conflict, reason::CLUSTER_NAME_CONFLICT, message);
        }
        if cluster.crowded.is_some_and(|at| self.fresh(at)) {
            let message =
                format!("more than {MOST_STREAMS} streams of `{}` go on: not all are read", self.name);
            return self.answer_with(freshest(&live), Standing::Unverified, reason::UNVERIFIED, message);
        }
        let readers = cluster.readers(source);
        let has_reader = readers.iter().any(|vote| vote.verified.is_some());
        let trusted = |vote: &Vote<'_>| vote.stream.skew().is_none();
        let fresh = |vote: &Vote<'_>| vote.stream.evidence_so_far().is_some_and(|it| self.fresh(it));
        if !has_reader && let Some(last) = freshest(&filtered(&live, |v| trusted(v) && fresh(v))) {
            let message = format!("no exporter of cluster `{}` reads source `{source}`", self.name);
            return self.answer_with(Some(last), Standing::Missing, reason::PACKAGE_NOT_FOUND, message);
        }
        let votes = cluster.votes(source);
        if votes.iter().any(|vote| vote.stream.skew().is_some()) {
            return self.not_fresh(cluster, &readers);
        }
        // Whatever such a stream says may be worse than what the others say.
        let unverified = filtered(&votes, |vote| vote.stream.is_unverified());
        if let Some(vote) = unverified.first() {
            if unverified.len() == votes.len() {
                return self.not_fresh(cluster, &readers);
            }
            let fault = vote.stream.fault.as_deref().unwrap_or("it was not read yet");
            let message = format!("one of the streams of `{}` is not verified: {fault}", self.name);
            return self.answer_with(freshest(&readers), Standing::Unverified, reason::UNVERIFIED, message);
        }
        let up = filtered(&votes, |vote| vote.is_up(source));
        if up.is_empty() && votes.iter().any(fresh) {
            return self.source_down(&filtered(&votes, fresh), &readers);
        }
        let Some(as_of) = oldest(up.iter()).filter(|as_of| self.fresh(*as_of)) else {
            return self.not_fresh(cluster, &readers);
        };
        let Some(worst) = self.worst(&up) else { return self.not_fresh(cluster, &readers) };
        let said = self.row(worst.stream);
        let answer = |standing, reason, message, row| Observation {
            standing,
            as_of: Some(as_of),
            row,
            reason,
            message,
            told_by: None,
        };
        let Some(row) = said else {
            let message = format!("cluster `{}` reports no such package", self.name);
            return answer(Standing::Missing, reason::PACKAGE_NOT_FOUND, message, None);
        };
        let (row, other) = self.held_against(row, &worst, &up, &readers);
        if let Some(message) = other {
            return answer(Standing::Fresh, reason::STREAMS_DISAGREE, message, Some(row));
        }
        let fault = up.iter().find_map(|vote| vote.stream.fault.as_ref());
        let message = fault.map(|fault| format!("newer data is not verified: {fault}")).unwrap_or_default();
        answer(Standing::Fresh, reason::REPORTED, message, Some(row))
    }

    fn fresh(&self, evidence: Seconds) -> bool {
        self.t - evidence <= self.stale_after
    }

    fn answer_with(
        &self,
        last: Option<Vote<'_>>,
        standing: Standing,
        reason: &'static str,
        message: String,
    ) -> Observation {
        let row = last.and_then(|vote| self.row(vote.stream));
        let as_of = last.and_then(|vote| vote.stream.evidence_so_far());
        Observation { standing, as_of, row, reason, message, told_by: None }
    }

    fn row(&self, stream: &Stream) -> Option<Row> {
        let verified = stream.verified.as_ref()?;
        let (package, history) = verified.find(self.key)?;
        Some(Row {
            apply: package.apply(),
            health: package.health(),
            desired: package.desired(),
            applied: package.applied(),
            healthy: package.healthy(),
            reason: verified.content.reason(&self.package.source, package.reason()),
            since: stream.since(&package, history),
            previously_applied: history.previously_applied,
        })
    }

    /// The one that says the worst of the package; that there is none is worst of all.
    fn worst<'v>(&self, votes: &[Vote<'v>]) -> Option<Vote<'v>> {
        let badness = |vote: &Vote<'_>| match self.row(vote.stream) {
            None => (1, 0, 0, false),
            Some(row) => (0, row.apply.code(), row.health.code(), row.healthy.is_none()),
        };
        votes.iter().copied().max_by_key(badness)
    }

    /// What the worst stream says, held against the others: a revision counts only where all say the same, and
    /// nothing is so for longer than since one of them said otherwise. With what is to be told, if they disagree.
    fn held_against(
        &self,
        mut row: Row,
        worst: &Vote<'_>,
        up: &[Vote<'_>],
        readers: &[Vote<'_>],
    ) -> (Row, Option<String>) {
        let state = |row: &Row| (row.apply, row.health, row.desired, row.applied, row.healthy);
        let said = state(&row);
        let mut other = None;
        for vote in up {
            // One that lacks the package is the worst.
            let Some(theirs) = self.row(vote.stream) else { continue };
            row.since = row.since.max(theirs.since);
            if state(&theirs) != said {
                other = other.or(Some(*vote));
                let revisions = |row: &Row| (row.desired, row.applied, row.healthy);
                if revisions(&theirs) != (said.2, said.3, said.4) {
                    (row.applied, row.healthy) = (Fingerprint::NONE, Fingerprint::NONE);
                }
            }
        }
        // One that has fallen silent has no say any more in what is so, but in since when.
        let is_silent = |vote: &Vote<'_>| !up.iter().any(|other| std::ptr::eq(other.stream, vote.stream));
        let said_it = |vote: &&Vote<'_>| vote.id.uid == worst.id.uid && vote.is_up(&self.package.source);
        for vote in readers.iter().filter(said_it).filter(|vote| is_silent(vote)) {
            let says_otherwise = self.row(vote.stream).is_none_or(|theirs| state(&theirs) != said);
            let word = vote.verified.map(|verified| verified.last_word());
            if let Some(word) = word.filter(|_| says_otherwise) {
                row.since = row.since.max(word);
            }
        }
        let message = other.map(|other| {
            format!("its streams disagree: {}, {}", self.show(worst, &other), self.show(&other, worst))
        });
        (row, message)
    }

    /// Nothing can be relied upon: says why, with what was known last.
    fn not_fresh(&self, cluster: &Cluster, readers: &[Vote<'_>]) -> Observation {
        let last = freshest(readers);
        let newest = |s: &&Stream| s.newest.is_some_and(|newest| self.fresh(newest));
        let heard = || cluster.streams.values().map(AsRef::as_ref).filter(newest);
        let age = match last.map(|last| last.stream.evidence_so_far()) {
            Some(Some(evidence)) => {
                format!("the last verified evidence is {:.0} s old", self.t - evidence)
            }
            Some(None) => {
                "the first exposition waits for another one, as it may have been repeated".to_owned()
            }
            None => "nothing was ever verified".to_owned(),
        };
        if let Some(error) = cluster.streams.keys().find_map(|id| self.fleet.error_of(&id.feed)) {
            let message = format!("{age}; {error}");
            return self.answer_with(last, Standing::Stale, reason::BACKEND_UNAVAILABLE, message);
        }
        if let Some(skew) = cluster.streams.values().filter_map(|s| s.skew()).next() {
            return self.answer_with(last, Standing::ClockSkew, reason::CLOCK_SKEW, tell_skew(skew));
        }
        if let Some(fault) = heard().find_map(|s| s.fault.as_ref()) {
            let message = format!("{age}; {fault}");
            return self.answer_with(last, Standing::Unverified, reason::UNVERIFIED, message);
        }
        if let Some(why) = self.fleet.unscraped.why(self.name) {
            return self.answer_with(last, Standing::Stale, reason::SCRAPE_FAILED, why);
        }
        let message = match heard().any(Stream::is_repeated) {
            true => format!("{age}: what is scraped is an old exposition, repeated by some gateway"),
            false => age,
        };
        self.answer_with(last, Standing::Stale, reason::EXPORTER_SILENT, message)
    }

    fn source_down(&self, votes: &[Vote<'_>], readers: &[Vote<'_>]) -> Observation {
        let source = &self.package.source;
        let up = readers.iter().filter_map(|vote| vote.verified?.last_up(source)).reduce(f64::max);
        let message = match up {
            Some(at) => {
                format!("source `{source}` of cluster `{}` is cut off since {:.0} s", self.name, self.t - at)
            }
            None => format!("source `{source}` of cluster `{}` was never seen up", self.name),
        };
        let answer = self.answer_with(freshest(votes), Standing::Stale, reason::SOURCE_DOWN, message);
        Observation { as_of: up, ..answer }
    }

    /// Two clusters that are alive under one name.
    fn two_clusters(&self, live: &[Vote<'_>]) -> Option<String> {
        let uids: BTreeSet<Fingerprint> = live.iter().filter_map(|vote| vote.id.uid).collect();
        if uids.len() < 2 {
            return None;
        }
        let shown: Vec<String> = uids.iter().take(4).map(|uid| self.show_cluster(*uid, live)).collect();
        Some(format!("{} clusters report as `{}`: {}", uids.len(), self.name, shown.join(" and ")))
    }

    fn show_cluster(&self, uid: Fingerprint, live: &[Vote<'_>]) -> String {
        let Some(first) = live.iter().find(|vote| vote.id.uid == Some(uid)) else {
            return format!("uid {uid}");
        };
        let mut labels = first.id.distinct_from(live.iter().map(|vote| vote.id));
        labels.truncate(4);
        format!("uid {uid} ({})", labels.join(", "))
    }

    fn show(&self, vote: &Vote<'_>, other: &Vote<'_>) -> String {
        let mut labels = vote.id.distinct_from(std::iter::once(other.id));
        labels.truncate(3);
        if labels.is_empty() {
            labels.push(format!("process {}", vote.id.process));
        }
        let state = match self.row(vote.stream) {
            Some(row) => format!(
                "{} and {} (desired {}, applied {}, healthy {})",
                row.apply, row.health, row.desired, row.applied, row.healthy
            ),
            None => "no such package".to_owned(),
        };
        format!("{{{}}} says {state}", labels.join(","))
    }
}

/// What the exporter of another cluster says.
fn told_by(speaker: &str, told: Observation) -> Observation {
    let message = match told.message.is_empty() {
        true => String::new(),
        false => format!("as the exporter of cluster `{speaker}` says: {}", told.message),
    };
    Observation { message, told_by: Some(Arc::from(speaker)), ..told }
}

/// What counts where a cluster's own exporter and that of another one tell of a package: the worse, and a revision only
/// where both say the same.
fn worse_of(own: Observation, told: Observation) -> Observation {
    if own.standing != Standing::Fresh || told.standing != Standing::Fresh {
        return if own.standing == Standing::Fresh { told } else { own };
    }
    let badness = |seen: &Observation| {
        seen.row.as_ref().map(|row| (row.apply.code(), row.health.code(), row.healthy.is_none()))
    };
    let (mut worse, other) = if badness(&told) > badness(&own) { (told, own) } else { (own, told) };
    worse.as_of = worse.as_of.into_iter().chain(other.as_of).reduce(Seconds::min);
    if let (Some(row), Some(theirs)) = (&mut worse.row, &other.row) {
        row.since = row.since.max(theirs.since);
        let state = |row: &Row| (row.apply, row.health, row.desired, row.applied, row.healthy);
        let revisions = |row: &Row| (row.desired, row.applied, row.healthy);
        if state(row) != state(theirs) {
            if revisions(row) != revisions(theirs) {
                (row.applied, row.healthy) = (Fingerprint::NONE, Fingerprint::NONE);
            }
            worse.reason = reason::STREAMS_DISAGREE;
            worse.message = "the cluster's own exporter and the one that speaks for it disagree".to_owned();
        }
    }
    worse
}

fn tell_skew(skew: Skew) -> String {
    match skew {
        Skew::Rendered(ahead) => format!(
            "the exporter's clock is {:.0} s {} that of the scraper: clock skew, or data that is delivered late",
            ahead.abs(),
            if ahead > 0.0 { "ahead of" } else { "behind" }
        ),
        Skew::Stamped(ahead) => {
            format!("its samples are stamped {ahead:.0} s in the future: the scraper's clock is ahead")
        }
    }
}

fn filtered<'a>(votes: &[Vote<'a>], keep: impl Fn(&Vote<'a>) -> bool) -> Vec<Vote<'a>> {
    votes.iter().copied().filter(|vote| keep(vote)).collect()
}

/// The one that was verified last; of several, always the same.
fn freshest<'a>(votes: &[Vote<'a>]) -> Option<Vote<'a>> {
    let word = |vote: &Vote<'_>| vote.verified.map(|verified| verified.last_word());
    let verified = votes.iter().copied().filter(|vote| vote.verified.is_some());
    verified.reduce(|a, b| if word(&b) > word(&a) { b } else { a })
}
