//! Clocks of exporters and scrapers, and ways that hold up or repeat what they carry: none makes evidence younger than
//! it is, and once it is over two scrapes are enough.

use crate::e2e::reader::Reader;
use crate::e2e::world::*;
use anyhow::{Result, ensure};
use statusbridge_aggregator::clock;
use statusbridge_aggregator::feed::promql::Flavour;
use statusbridge_contract::{Fingerprint, Metric, label};
use statusbridge_core::fleet::Standing;
use statusbridge_tests::exposition::{Attestation, Page};
use statusbridge_tests::fake_fleet::SOURCE;
use statusbridge_tests::*;
use std::collections::VecDeque;
use std::time::Duration;

/// Older evidence is not relied upon: two scrapes of the slowest and a bit.
const STALE_AFTER: f64 = 150.0;
const HOUR: f64 = 3600.0;

/// How a cluster's expositions reach the backend, all in seconds.
struct Way {
    cluster: &'static str,
    /// Time between scrapes.
    every: f64,
    /// By how much the exporter's clock is ahead.
    exporter: f64,
    /// By how much the scraper's clock is ahead.
    scraper: f64,
    /// How long an exposition is on its way until it is stamped.
    held: f64,
    /// Whether every scrape finds one old exposition.
    repeats: bool,
    expected: &'static [Standing],
}

const RIGHT: Way = Way {
    cluster: "right",
    every: 60.0,
    exporter: 0.0,
    scraper: 0.0,
    held: 0.0,
    repeats: false,
    expected: &[Standing::Fresh],
};
const SKEWED: &[Standing] = &[Standing::ClockSkew];
const TOO_OLD: &[Standing] = &[Standing::Stale, Standing::ClockSkew];
/// So old that it is not even looked for.
const FORGOTTEN: &[Standing] = &[Standing::Missing];

const WAYS: [Way; 18] = [
    RIGHT,
    Way { cluster: "every-two-minutes", every: 120.0, ..RIGHT },
    Way { cluster: "slightly-ahead", exporter: 30.0, ..RIGHT },
    Way { cluster: "slightly-behind", exporter: -30.0, ..RIGHT },
    Way { cluster: "exporter-ahead", exporter: 300.0, expected: SKEWED, ..RIGHT },
    Way { cluster: "exporter-behind", exporter: -300.0, expected: TOO_OLD, ..RIGHT },
    Way { cluster: "exporter-hour-ahead", exporter: HOUR, expected: SKEWED, ..RIGHT },
    Way { cluster: "exporter-hour-behind", exporter: -HOUR, expected: TOO_OLD, ..RIGHT },
    Way { cluster: "scraper-ahead", scraper: 300.0, expected: SKEWED, ..RIGHT },
    Way { cluster: "scraper-behind", scraper: -300.0, expected: TOO_OLD, ..RIGHT },
    Way { cluster: "scraper-hour-ahead", scraper: HOUR, expected: SKEWED, ..RIGHT },
    Way { cluster: "scraper-hour-behind", scraper: -HOUR, expected: FORGOTTEN, ..RIGHT },
    Way { cluster: "both-ahead", exporter: 300.0, scraper: 300.0, expected: SKEWED, ..RIGHT },
    Way { cluster: "both-behind", exporter: -300.0, scraper: -300.0, expected: TOO_OLD, ..RIGHT },
    Way { cluster: "both-hour-ahead", exporter: HOUR, scraper: HOUR, expected: SKEWED, ..RIGHT },
    Way { cluster: "both-hour-behind", exporter: -HOUR, scraper: -HOUR, expected: FORGOTTEN, ..RIGHT },
    Way { cluster: "store-and-forward", held: 200.0, expected: TOO_OLD, ..RIGHT },
    Way { cluster: "gateway-that-repeats", every: 15.0, repeats: true, expected: TOO_OLD, ..RIGHT },
];

impl Way {
    /// What was scraped so many scrapes before `now`, as text with timestamps.
    fn scrape(&self, now: f64, ago: f64) -> String {
        let scraped = now - ago * self.every;
        let rendered = if self.repeats { now - HOUR } else { scraped - self.held } + self.exporter;
        self.page(rendered, 1_700_000_000, scraped + self.scraper)
    }

    /// What was rendered and stamped then, of a package that has been healthy since this time.
    fn page(&self, rendered: f64, since: u64, stamped: f64) -> String {
        let mut page = Page::default();
        let labels = [
            (label::PACKAGE, APP),
            (label::PACKAGE_NAMESPACE, FLUX_NAMESPACE),
            (label::PACKAGE_SOURCE, SOURCE),
        ];
        page.say(Metric::PackageHealthyRevision, &labels, Fingerprint::of(&revision(1)).value());
        page.say(Metric::PackageTransitionTimestamp, &labels, since);
        page.say(Metric::SourceUp, &[(label::PACKAGE_SOURCE, SOURCE)], 1);
        page.say(Metric::SourcePackages, &[(label::PACKAGE_SOURCE, SOURCE)], 1);
        let page = page.attested(Attestation::new(Fingerprint::of(self.cluster), 1, rendered as u64));
        let stamp = (stamped * 1000.0) as u64;
        page.lines().map(|line| format!("{line} {stamp}\n")).collect()
    }

    async fn arrives(
        &self,
        backend: &VictoriaMetrics,
        now: f64,
        scrapes: std::ops::RangeInclusive<u32>,
    ) -> Result<()> {
        for ago in scrapes.rev() {
            let labels = [("cluster", self.cluster), ("instance", "i"), ("job", "statusbridge")];
            backend.import_as(self.scrape(now, f64::from(ago)), &labels).await?;
        }
        Ok(())
    }
}

#[tokio::test]
async fn no_clock_and_no_detour_makes_evidence_younger_than_it_is() {
    run("e2e-clocks", async |rig| {
        let backend = VictoriaMetrics::start(rig).await?;
        let began = clock::now();
        for way in &WAYS {
            way.arrives(&backend, began - 5.0, 0..=3).await?;
        }
        let new = || {
            let reader = Reader::behind(backend.url(), Flavour::VictoriaMetrics)?;
            anyhow::Ok(reader.stale_after(STALE_AFTER))
        };
        let check = |reader: &Reader| {
            for way in &WAYS {
                let seen = reader.observe(way.cluster, APP);
                ensure!(way.expected.contains(&seen.standing), "{}: {seen:?}", way.cluster);
            }
            Ok(())
        };
        let mut reader = eventually(SOON, "all is told apart at the first poll", async || {
            // What was written a moment ago is not found yet.
            let mut reader = new()?;
            let report = reader.poll().await;
            ensure!(report.ok, "{report:?}");
            check(&reader)?;
            Ok(reader)
        })
        .await?;
        // At the next one, too.
        let report = reader.poll().await;
        ensure!(report.ok, "{report:?}");
        check(&reader)?;

        // Once it is over, the second scrape is good; where a clock was set back only time tells it from an old
        // exposition.
        let wrong = || {
            WAYS.iter()
                .filter(|way| way.expected != RIGHT.expected && way.scraper <= 0.0 && way.exporter <= 0.0)
        };
        for ago in [1, 0] {
            let now = clock::now();
            for way in wrong() {
                let right = Way { cluster: way.cluster, every: 2.0, ..RIGHT };
                right.arrives(&backend, now, ago..=ago).await?;
            }
        }
        for way in wrong() {
            reader.until(way.cluster, APP, Standing::Fresh).await?;
        }
        Ok(())
    })
    .await;
}

/// How late the second shard of remote write is, in seconds.
const LATE: f64 = 9.0;

#[tokio::test]
async fn a_shard_that_is_always_late_makes_evidence_older_and_nothing_else() {
    run("e2e-late-shard", async |rig| {
        let backend = VictoriaMetrics::start(rig).await?;
        let mut reader = Reader::behind(backend.url(), Flavour::VictoriaMetrics)?.stale_after(40.0);
        let way = Way { cluster: "late", every: 2.0, ..RIGHT };
        let labels = [("cluster", way.cluster), ("instance", "i"), ("job", "statusbridge")];
        let is_late = |line: &&str| line.starts_with(Metric::PackageTransitionTimestamp.name());
        let (began, mut on_the_way) = (clock::now(), VecDeque::new());
        let mut found = None;
        let mut scrapes = tokio::time::interval(Duration::from_secs_f64(way.every));
        loop {
            scrapes.tick().await;
            let now = clock::now();
            // What is as it was needs no reading: so something has changed in every scrape.
            let page = way.page(now, now as u64, now);
            let (late, prompt): (Vec<&str>, Vec<&str>) = page.lines().partition(is_late);
            backend.import_as(prompt.join("\n") + "\n", &labels).await?;
            on_the_way.push_back((now + LATE, late.join("\n") + "\n"));
            let arrived = on_the_way.iter().take_while(|(at, _)| *at <= now).count();
            for (_, late) in on_the_way.drain(..arrived) {
                backend.import_as(late, &labels).await?;
            }
            let report = reader.poll().await;
            let seen = reader.observe(way.cluster, APP);
            // The server takes a while to find what was never there before.
            if found.is_none() && seen.standing != Standing::Fresh {
                ensure!(now < began + 10.0 * LATE, "never found: {seen:?} after {report:?}");
                continue;
            }
            let as_of = seen.as_of.unwrap_or_default();
            ensure!(seen.standing == Standing::Fresh, "{seen:?} after {report:?}");
            ensure!(now - as_of >= LATE, "it is {} s old, younger than what came last", now - as_of);
            if now > *found.get_or_insert(now) + 3.0 * LATE {
                return Ok(());
            }
        }
    })
    .await;
}
