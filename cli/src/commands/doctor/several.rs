//! Looks at every feed that the configuration file names, and says of each what is wrong with it.

use std::collections::BTreeSet;

use futures::future::{OptionFuture, join_all};
use serde::Serialize;
use statusbridge_aggregator::feed::promql::Trust;
use statusbridge_aggregator::feed::{Backend, push, scrape};
use statusbridge_aggregator::serve::config::Config;

use super::examine::{known, of_feed, ordered, unknown_clusters};
use super::finding::{Check, Finding};
use super::report::{Report, is_fit, lines, verdict};
use super::survey::{Expectation, Survey};
use super::unchecked::unchecked;
use super::{ask, scraped};
use crate::feeds::FeedArgs;
use crate::hub::Access;

/// What each feed comes to, and what concerns them all.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct All {
    /// No problem was found.
    pub(super) fit: bool,
    hub: String,
    feeds: Vec<Report>,
    findings: Vec<Finding>,
}

/// A feed that was looked at.
#[derive(Default)]
pub(super) struct Looked {
    name: String,
    backend: Option<String>,
    survey: Survey,
    /// What is known besides the survey.
    findings: Vec<Finding>,
    /// Clusters that it is to tell of, though it cannot be seen whether they do.
    expected: BTreeSet<String>,
}

/// Looks at every feed.
pub(super) async fn doctor(
    access: &Access,
    args: &FeedArgs,
    config: &Config,
    flags: Option<(Backend, Option<Trust>)>,
    expectations: Vec<Expectation>,
    hub: String,
) -> All {
    let settings = &config.feeds;
    let named = settings.backends.iter().map(|backend| (backend.clone(), Some(backend.trust.clone())));
    let backends = join_all(flags.into_iter().chain(named).map(|it| backend(args, it, &expectations)));
    let scrapes = settings.scrape.as_ref().map(|scrape| scrapes(access, args, config, scrape, &expectations));
    let (mut looked, scraped) = tokio::join!(backends, OptionFuture::from(scrapes));
    looked.extend(scraped);
    looked.extend(settings.push.as_ref().map(pushes));
    all(looked, &expectations, hub)
}

async fn backend(
    args: &FeedArgs,
    (backend, trust): (Backend, Option<Trust>),
    expectations: &[Expectation],
) -> Looked {
    let name = if backend.name.is_empty() { "--backend".to_owned() } else { backend.name.clone() };
    let survey =
        ask::survey(&backend, args.settle_delay, trust, args.backend.fleet(), expectations.to_vec()).await;
    let backend = Some(backend.url.to_string());
    match survey {
        Ok(survey) => Looked { name, backend, findings: of_feed(&survey), survey, ..Looked::default() },
        Err(error) => {
            let fix = "look at its address, its credentials and certificates, and whether it runs";
            let findings = vec![Finding::problem(Check::BackendUnavailable, error.to_string(), fix)];
            Looked { name, backend, findings, ..Looked::default() }
        }
    }
}

async fn scrapes(
    access: &Access,
    args: &FeedArgs,
    config: &Config,
    settings: &scrape::Settings,
    expectations: &[Expectation],
) -> Looked {
    let mut findings = Vec::new();
    let mut addresses = Vec::new();
    if settings.cluster_profiles.is_some() {
        let listed = match access.connect().await {
            Ok(hub) => scraped::addresses(hub.client, config.profiles()).await,
            Err(error) => Err(format!("{error:#}")),
        };
        match listed {
            Ok(listed) => addresses = listed,
            Err(error) => findings.push(Finding::problem(
                Check::ClusterProfiles,
                format!("ClusterProfiles cannot be listed: {error}"),
                "install their CRD, and give whoever asks the right to list them (--kubeconfig, --context)",
            )),
        }
    }
    let survey = scraped::survey(settings, addresses, expectations.to_vec(), args.backend.fleet()).await;
    findings.extend(of_feed(&survey));
    Looked { name: scrape::NAME.to_owned(), survey, findings, ..Looked::default() }
}

/// Who pushes cannot be seen from here; what pushes need can.
fn pushes(settings: &push::Settings) -> Looked {
    let name = push::NAME.to_owned();
    match settings.look() {
        Ok(expected) => Looked { name, expected, ..Looked::default() },
        Err(error) => {
            let fix = "put right the file or the field: the aggregator does not start with it";
            let findings = vec![Finding::problem(Check::Pushes, format!("{error:#}"), fix)];
            Looked { name, findings, ..Looked::default() }
        }
    }
}

/// Puts together what was found.
fn all(looked: Vec<Looked>, expectations: &[Expectation], hub: String) -> All {
    let clusters: BTreeSet<&str> = looked
        .iter()
        .flat_map(|it| known(&it.survey).into_iter().chain(it.expected.iter().map(String::as_str)))
        .collect();
    let mut findings = unknown_clusters(expectations, &clusters, "cluster");
    findings.extend(unchecked(expectations, looked.iter().flat_map(|it| &it.survey.streams)));
    let findings = ordered(findings);
    let feeds: Vec<Report> = looked
        .into_iter()
        .map(|it| {
            let report = Report::of(it.backend, &it.survey, ordered(it.findings));
            let clusters = report.clusters.max(it.expected.len());
            Report { feed: Some(it.name), clusters, ..report }
        })
        .collect();
    All { fit: is_fit(&findings) && feeds.iter().all(|feed| feed.fit), hub, feeds, findings }
}

impl All {
    pub(super) fn text(&self) -> String {
        let feeds: String = self.feeds.iter().map(Report::body).collect();
        format!("{feeds}hub: {}\n{}{}", self.hub, lines(&self.findings), verdict(self.fit))
    }
}

#[cfg(test)]
mod tests {
    use statusbridge_contract::Fingerprint;

    use super::*;
    use crate::commands::doctor::survey::{DigestSeen, Named, StreamSeen, Unscraped};
    use statusbridge_core::fleet::StreamId;
    use statusbridge_core::testing::{package, stream};

    fn looked(name: &str, cluster: &str, uid: u64) -> Looked {
        let labels = stream(&[("cluster", cluster)]);
        let id = StreamId {
            labels: labels.clone().into(),
            uid: Fingerprint::from_value(uid),
            process: 1,
            ..StreamId::default()
        };
        let stamps = vec![980.0, 995.0];
        let survey = Survey {
            t: 1000.0,
            digests: [(labels, DigestSeen { uids: [id.uid].into(), stamps, ..DigestSeen::default() })].into(),
            streams: vec![StreamSeen {
                cluster: cluster.to_owned(),
                id,
                newest: Some(995.0),
                ..StreamSeen::default()
            }],
            direct: true,
            ..Survey::default()
        };
        Looked { name: name.to_owned(), survey, ..Looked::default() }
    }

    fn expects(clusters: &[&str]) -> Expectation {
        let clusters = clusters.iter().map(|it| (*it).to_owned()).collect();
        Expectation {
            who: "FleetPackage a/b".to_owned(),
            stale_after: 180.0,
            clusters: Named(Some(clusters)),
            ..Expectation::default()
        }
    }

    #[test]
    fn a_package_that_nothing_checks_is_named_once_for_all_feeds() {
        let (mut east, mut scrape) = (looked("east", "a", 1), looked("scrape", "b", 2));
        for feed in [&mut east, &mut scrape] {
            let stream = &mut feed.survey.streams[0];
            stream.packages.insert(package("p"), [(stream.cluster.clone(), true)].into());
        }
        let expectation = Expectation { package: Some(package("p")), ..expects(&["a", "b"]) };
        let all = all(vec![east, scrape], &[expectation], String::new());
        let [finding] = all.findings.as_slice() else { panic!("{:#?}", all.findings) };
        assert!(finding.message.contains("in 2 of 2 clusters, for instance `a`"), "{}", finding.message);
        assert!(all.fit, "no gate waits for it");
    }

    #[test]
    fn each_finding_says_whose_it_is_and_a_cluster_of_another_feed_is_known() {
        let (east, mut scrape) = (looked("east", "a", 1), looked("scrape", "b", 2));
        scrape.survey.unscraped.push(Unscraped {
            cluster: "c".to_owned(),
            url: "http://c/".to_owned(),
            why: "connection refused".to_owned(),
        });
        scrape.findings = of_feed(&scrape.survey);
        let pushes = Looked { expected: ["d".to_owned()].into(), ..looked("push", "d", 3) };
        let expectations = [expects(&["a", "b", "c", "d"]), expects(&["a", "z"])];
        let all = all(vec![east, scrape, pushes], &expectations, "2 FleetPackages".to_owned());
        insta::assert_snapshot!(all.text(), @r"
        feed east
        clusters 1, streams 1, verified 1, scraped every 15 s
        feed scrape
        clusters 1, streams 1, verified 1, scraped every 15 s
        problem ScrapeFailed: cluster `c`, http://c/: connection refused
            -> look whether the exporter runs there, and whether a network policy, a token or a certificate keeps this machine out
        feed push
        clusters 1, streams 1, verified 1, scraped every 15 s
        hub: 2 FleetPackages
        problem UnknownCluster: FleetPackage a/b names clusters that send nothing: z
            -> write names as the label `cluster` has them, or ship these clusters' metrics
        not fit
        ");
        assert!(!all.fit && all.feeds[0].fit && !all.feeds[1].fit);
    }
}
