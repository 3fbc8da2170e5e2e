//! Scrapes over real connections.

use std::net::SocketAddr;

use statusbridge_core::fleet::{Fleet, FleetSettings, Standing};
use statusbridge_core::testing::{Exposition, healthy, package, text};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::feed::{Addresses, Feeds, Message, Polled};

/// An exporter that renders anew for everybody who asks, or hangs.
async fn exporter(hangs: bool) -> SocketAddr {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = server.local_addr().unwrap();
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut connection, _)) = server.accept().await {
            let _ = connection.read(&mut [0; 4096]).await;
            if hangs {
                open.push(connection);
                continue;
            }
            let now = clock::now();
            let body = text(&Exposition::new(7).with("p", healthy("r", now as u64 - 100)), now);
            let head =
                format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
            let _ = connection.write_all((head + &body).as_bytes()).await;
        }
    });
    address
}

struct World {
    feeds: Feeds,
    fleet: Fleet,
    addresses: Addresses,
}

impl World {
    fn new(config: &str) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let settings: Settings = serde_saphyr::from_str(config).unwrap();
        let feed = scrape(settings, Duration::from_millis(100), Arc::new(Metrics::aggregator())).unwrap();
        let mut feeds = Feeds::new(vec![feed]);
        feeds.begin();
        Self { feeds, fleet: Fleet::new(FleetSettings::default()), addresses: Err("not listed yet".into()) }
    }

    /// The next report that is like this, and how many came before it.
    async fn report(&mut self, is: impl Fn(&Polled) -> bool) -> (Polled, usize) {
        let mut before = 0;
        let found = async {
            loop {
                match self.feeds.next().await.expect("the feed goes on") {
                    Message::Work(work) => work(&mut self.fleet),
                    Message::Addresses { reply } => drop(reply.send(self.addresses.clone())),
                    Message::Polled { polled, .. } if is(&polled) => return *polled,
                    Message::Polled { .. } => before += 1,
                }
            }
        };
        let polled = tokio::time::timeout(Duration::from_secs(60), found).await.expect("such a report");
        (polled, before)
    }

    fn standing(&self, cluster: &str) -> Standing {
        self.fleet.observe(cluster, &package("p"), clock::now(), 60.0).standing
    }
}

#[tokio::test]
async fn nothing_is_said_of_clusters_before_all_were_tried_and_then_what_is_wrong() {
    let (good, hanging) = (exporter(false).await, exporter(true).await);
    let mut world = World::new(&format!(
        "{{interval: 200ms, timeout: 1s, targets: [{{cluster: a, url: 'http://{good}/'}}, {{cluster: b, url: 'http://{hanging}/'}}]}}"
    ));
    let (polled, before) = world.report(|it| it.report.ok).await;
    assert!(before > 3, "only {before} reports came before one was given up");
    assert_eq!(world.standing("b"), Standing::Missing);
    assert_eq!((polled.report.verified, polled.report.unverified), (1, 1));
    let silent = world.fleet.observe("b", &package("p"), clock::now(), 60.0);
    assert_eq!(
        (silent.reason, &*silent.message),
        ("ScrapeFailed", "cannot be scraped: no whole answer within 1 s")
    );
    let problem = &polled.report.problems[0];
    assert!(problem.contains("cluster b, http://") && problem.contains("within 1 s"), "{problem}");
    // The second of two different expositions is evidence.
    while world.standing("a") != Standing::Fresh {
        world.report(|it| it.report.ok).await;
    }
    // The one that hangs goes on hanging, and the other one goes on being heard.
    let heard = |world: &World| world.fleet.newest_evidence().unwrap();
    let first = heard(&world);
    while heard(&world) <= first {
        world.report(|it| it.report.ok).await;
    }
}

#[tokio::test]
async fn however_many_hang_all_others_are_tried_before_anything_is_said() {
    let (good, hanging) = (exporter(false).await, exporter(true).await);
    // Those that hang take all turns, four times.
    let many = (0..4 * AT_ONCE).map(|i| format!("{{cluster: c{i}, url: 'http://{hanging}/'}}, "));
    let many: String = many.collect();
    let mut world = World::new(&format!(
        "{{interval: 200ms, timeout: 300ms, targets: [{many}{{cluster: last, url: 'http://{good}/'}}]}}"
    ));
    world.report(|it| it.report.ok).await;
    assert_ne!(world.standing("last"), Standing::Missing);
    assert_eq!(world.standing("c0"), Standing::Missing);
}

#[tokio::test]
async fn who_comes_later_and_hangs_holds_nobody_up() {
    let (good, hanging) = (exporter(false).await, exporter(true).await);
    let mut world = World::new(&format!(
        "{{interval: 100ms, timeout: 200ms, clusterProfiles: {{property: p}}, targets: [{{cluster: a, url: 'http://{good}/'}}]}}"
    ));
    for round in 0.. {
        world.addresses = Ok(vec![("b".into(), format!("http://{hanging}/{round}"))]);
        let (polled, _) = world.report(|_| true).await;
        if polled.report.ok {
            break;
        }
        assert!(round < 20, "{:?}", polled.report);
    }
}

#[tokio::test]
async fn clusters_that_profiles_name_are_waited_for_until_profiles_are_known() {
    let address = exporter(false).await;
    let mut world = World::new("{interval: 100ms, timeout: 200ms, clusterProfiles: {property: p}}");
    let unlisted = Some("ClusterProfiles: not listed yet");
    world.report(|it| it.report.error.as_deref() == unlisted).await;
    for _ in 0..8 {
        let (polled, _) = world.report(|_| true).await;
        assert_eq!(polled.report.error.as_deref(), unlisted);
    }
    world.addresses = Ok(vec![("a".into(), format!("http://{address}/"))]);
    world.report(|it| it.report.ok && it.report.verified == 1).await;
    // The second of two different expositions is evidence.
    while world.standing("a") != Standing::Fresh {
        world.report(|it| it.report.ok).await;
    }
}

#[tokio::test]
async fn secrets_of_an_address_are_sent_and_not_shown() {
    let good = exporter(false).await;
    let mut world = World::new(&format!(
        "{{interval: 100ms, timeout: 200ms, targets: [
            {{cluster: a, url: 'http://{good}/metrics?apikey=secret'}},
            {{cluster: a, url: 'http://{good}/metrics?apikey=another-secret'}},
            {{cluster: b, url: 'http://127.0.0.1:1/metrics?apikey=secret'}}]}}"
    ));
    world.addresses = Ok(Vec::new());
    let (polled, _) = world.report(|it| it.report.ok && it.report.verified == 2).await;
    assert!(polled.report.problems[0].contains("cluster b, http://127.0.0.1:1/metrics?…: "));
    let instances: Vec<&str> = world.fleet.streams().map(|it| it.labels["instance"].as_str()).collect();
    let shown = format!("http://{good}/metrics?…");
    assert_eq!(
        instances.into_iter().collect::<BTreeSet<_>>(),
        BTreeSet::from([&*shown, &format!("{shown} (2)")])
    );
    let refused: Settings =
        serde_saphyr::from_str("targets: [{cluster: a, url: 'ftp://a:secret@b/?c=secret'}]").unwrap();
    let refused = format!("{:#}", refused.check().unwrap_err());
    assert_eq!(refused, "feeds.scrape.targets[0]: url `ftp://b/?…` is neither http nor https");
}

#[tokio::test]
async fn a_token_is_not_sent_in_the_clear_to_whomever_a_profile_names() {
    let address = exporter(false).await;
    let mut world = World::new(
        "{interval: 100ms, timeout: 1s, clusterProfiles: {property: p, bearerTokenFile: /nowhere}}",
    );
    world.addresses =
        Ok(vec![("a".into(), format!("http://{address}/")), ("b".into(), "file:///etc/passwd".into())]);
    let (polled, _) = world.report(|it| it.report.ok && it.report.unverified == 2).await;
    let problems = polled.report.problems.join("\n");
    assert!(problems.contains("a bearer token is sent over https only"), "{problems}");
    assert!(problems.contains("is neither http nor https"), "{problems}");
}
