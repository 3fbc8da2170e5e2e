//! Looks at the exporters that the aggregator is to scrape itself, as it would.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt as _;
use kube::Client;
use statusbridge_aggregator::clock;
use statusbridge_aggregator::feed::scrape::{Settings, look};
use statusbridge_core::fleet::{Fleet, FleetSettings};
use statusbridge_core::reconcile::profiles::{self, News, Profiles};

use super::ask::seen;
use super::survey::{Expectation, Survey, Unscraped};

/// Longest wait for the list of ClusterProfiles.
const LIST: Duration = Duration::from_secs(15);

/// Scrapes each exporter once. `addresses` is what ClusterProfiles say of where they answer.
pub(super) async fn survey(
    settings: &Settings,
    addresses: Vec<(String, String)>,
    expectations: Vec<Expectation>,
    fleet: FleetSettings,
) -> Survey {
    let mut survey = Survey {
        max_clock_skew: fleet.max_clock_skew,
        cluster_label: "cluster".to_owned(),
        expectations,
        direct: true,
        ..Survey::default()
    };
    let mut fleet = Fleet::new(fleet);
    for (target, evidence) in look(settings, settings.all_targets(addresses)).await {
        match evidence {
            Ok(evidence) => drop(evidence.fold(&mut fleet, clock::now())),
            Err(failure) => {
                let (url, cluster) = (target.instance(), target.cluster);
                survey.unscraped.push(Unscraped { cluster, url, why: failure.text });
            }
        }
    }
    survey.t = clock::now();
    survey.unscraped.sort_by(|a, b| (&a.cluster, &a.url).cmp(&(&b.cluster, &b.url)));
    survey.streams = seen(&fleet, &BTreeSet::new(), &survey.expectations);
    let interval = settings.interval.as_secs_f64();
    for stream in fleet.streams() {
        let seen = survey.digests.entry(stream.labels.clone()).or_default();
        seen.uids.insert(stream.id.uid);
        // As they will come.
        seen.stamps = vec![survey.t - interval, survey.t];
    }
    survey
}

/// Where exporters answer, as ClusterProfiles tell.
///
/// # Errors
/// In words, when they cannot be listed.
pub(super) async fn addresses(
    client: Client,
    settings: profiles::Settings,
) -> Result<Vec<(String, String)>, String> {
    let mut news = statusbridge_aggregator::hub::profiles::watch(client, &settings);
    let mut profiles = Profiles::new(settings);
    let listed = async {
        while let Some(news) = news.next().await {
            match news {
                News::NotInstalled => return Err("the hub has none".to_owned()),
                News::Broken(error) => return Err(error),
                News::Event(_) => _ = profiles.apply([news], clock::now()),
            }
            if let Ok(addresses) = profiles.addresses() {
                return Ok(addresses);
            }
        }
        Err("they are not told".to_owned())
    };
    let late = |_| Err(format!("no list within {} s", LIST.as_secs()));
    tokio::time::timeout(LIST, listed).await.unwrap_or_else(late)
}
