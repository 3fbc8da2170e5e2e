//! The metrics: those of the contract, and those of the programs about themselves.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use statusbridge_aggregator::gate_cache::GateCache;
use statusbridge_aggregator::metrics::Metrics;
use statusbridge_contract::{ApplyState, CONTRACT_VERSION, Health, Metric, label};
use statusbridge_core::reconcile::object::Key;
use statusbridge_exporter::{metrics::OwnMetrics, watch::Fault};
use statusbridge_serving::format::Format;

use crate::family::{self, ANY, Family};
use crate::markdown::{code, codes, sentence, table};

/// The metric with the words for the reasons of gates.
const GATE_REASONS: &str = "statusbridge_gate_reason_info";

/// The page.
pub(crate) fn page() -> Result<String> {
    let mut out = format!(
        "# Metrics\n\n\
         - [The contract](#the-contract): what an exporter says of packages, and an aggregator verifies\n\
         - [Codes](#codes): the words that values stand for\n\
         - [The exporter's own](#the-exporters-own), [the aggregator's](#the-aggregators), \
         [the sweeper's](#the-sweepers), [the change-log sidecar's](#the-change-log-sidecars): what the programs say of themselves\n\n\
         ## The contract\n\n\
         Version {CONTRACT_VERSION}. How the digest is made and what a pipeline may do to these: \
         [contract.md](contract.md). Every value is a whole number.\n\n"
    );
    out.push_str(&table(["metric", "type", "labels", "unit", "in the digest", "meaning"], contract()));
    out.push_str(
        "\nA package that is Applied and Current has two of the series with the label `package`, three where its resources are counted; \
         no package has more than ten.\n\n",
    );
    let labels = label::ALL.iter().map(|(name, meaning)| [code(name), sentence(meaning.trim())]);
    out.push_str(&table(["label", "meaning"], labels));
    out.push_str("\n## Codes\n\nOrdered by severity, so that `max` over packages is the worst of them.\n\n");
    let states = ApplyState::ALL.iter().map(|s| state(s.code(), s.name(), s.meaning()));
    out.push_str(&table([&code(Metric::PackageApplyState.name()), "word", "meaning"], states));
    out.push('\n');
    let states = Health::ALL.iter().map(|s| state(s.code(), s.name(), s.meaning()));
    out.push_str(&table([&code(Metric::PackageHealth.name()), "word", "meaning"], states));
    out.push_str(&format!(
        "\nThe codes of {} are the first 24 bits of the word's SHA-256; {} has each that is in use, as `code` and \
         `reason`, and everything past the 128th of a source as `Other`.\n",
        code(Metric::PackageReason.name()),
        code(Metric::ReasonInfo.name()),
    ));

    out.push_str("\n## The exporter's own\n\nOn the same page as the contract's, and no part of it.\n\n");
    let own = OwnMetrics::with_every_series(ANY, &Fault::CAUSES).render(Format::OpenMetrics)?;
    out.push_str(&own_table(family::read(&own).context("the exporter's metrics")?));

    out.push_str(
        "\n## The aggregator's\n\nThe number of series is fixed, but for those of gates, FleetPackages and sinks. A standby shows the same series; what \
         only a leader knows is 0 there, and ages are NaN.\n\n",
    );
    let metrics = Metrics::aggregator().with_gates(Some(GateCache::with_every_series(ANY)));
    metrics.unclosed(&BTreeSet::from([Key { namespace: ANY.to_owned(), name: ANY.to_owned() }]));
    metrics.sinks([ANY].into_iter());
    let mut own = family::read(&metrics.render()?).context("the aggregator's metrics")?;
    // The words of the dictionary are those of the API's reference.
    own.iter_mut().filter(|family| family.name == GATE_REASONS).for_each(Family::any_label_value);
    out.push_str(&own_table(own));
    out.push_str(
        "\nA code of a gate's reason is the first 24 bits of the word's SHA-256, as for packages; `statusbridge_gate_reason_info` \
         has each of [the words that there are](api.md#reasons). Replicas that do not lead may show gates with the value 0: take \
         `max by (gate_namespace, gate)`.\n",
    );

    out.push_str("\n## The sweeper's\n\n");
    out.push_str(&own_table(family::read(&Metrics::sweeper().render()?).context("the sweeper's metrics")?));

    out.push_str(
        "\n## The change-log sidecar's\n\n`statusbridge-changelog` serves these alone: \
         [change-logs.md](change-logs.md) says what bounds `provider`, `group` and `kind`.\n\n",
    );
    let own = statusbridge_changelog::with_every_series(ANY)?;
    out.push_str(&own_table(family::read(&own).context("the sidecar's metrics")?));
    Ok(out)
}

fn contract() -> impl Iterator<Item = [String; 6]> {
    Metric::ALL.iter().map(|metric| {
        let mut meaning = sentence(metric.help());
        if *metric == Metric::PackageResources {
            meaning.push_str(" Only for sources that count resources.");
        }
        let digest = if metric.in_digest() { "yes" } else { "no" };
        [code(metric.name()), "gauge".into(), labels_of(metric), unit(*metric).into(), digest.into(), meaning]
    })
}

fn labels_of(metric: &Metric) -> String {
    let labels = codes(metric.labels());
    if labels.is_empty() { "–".to_owned() } else { labels }
}

/// What a value is counted in.
const fn unit(metric: Metric) -> &'static str {
    match metric {
        Metric::PackageApplyState | Metric::PackageHealth | Metric::PackageReason => "[code](#codes)",
        Metric::PackageDesiredRevision | Metric::PackageAppliedRevision | Metric::PackageHealthyRevision => {
            "[fingerprint](contract.md#fingerprint)"
        }
        Metric::PackageTransitionTimestamp | Metric::RenderedTimestamp | Metric::SourceLastContact => {
            "unix seconds"
        }
        Metric::PackageResources | Metric::PackageResourcesCurrent | Metric::PackageResourcesFailed => {
            "objects"
        }
        Metric::ReasonInfo | Metric::SourceUp | Metric::ProcessNumber => "–",
        Metric::SourcePackages | Metric::Packages => "packages",
        Metric::Digest => "[digest](contract.md#canonical-form-and-digest)",
    }
}

fn state(code: u64, word: &str, meaning: &str) -> [String; 3] {
    [code.to_string(), word.to_owned(), sentence(meaning.trim())]
}

fn own_table(families: Vec<Family>) -> String {
    let rows = families.into_iter().map(|family| {
        let labels: Vec<_> = family
            .labels
            .iter()
            .map(|(name, values)| match values.as_slice() {
                [any] if any == ANY || any == env!("CARGO_PKG_VERSION") => code(name),
                values => format!("{}: {}", code(name), codes(values)),
            })
            .collect();
        let labels = if labels.is_empty() { "–".to_owned() } else { labels.join("; ") };
        [
            code(&family.name),
            family.kind.clone(),
            labels,
            own_unit(&family).to_owned(),
            sentence(&family.help),
        ]
    });
    table(["metric", "type", "labels", "unit", "meaning"], rows)
}

/// By the name, as Prometheus' conventions have it.
fn own_unit(family: &Family) -> &'static str {
    let name = family.name.trim_end_matches("_total");
    if name.ends_with("_timestamp_seconds") {
        "unix seconds"
    } else if name.ends_with("_seconds") {
        "seconds"
    } else if name.ends_with("_bytes") {
        "bytes"
    } else if ["statusbridge_gate_open", "statusbridge_gate_target_revision"].contains(&name) {
        "[fingerprint](contract.md#fingerprint)"
    } else if name == "statusbridge_gate_reason" {
        "[code](#codes)"
    } else {
        "–"
    }
}
