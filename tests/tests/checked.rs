//! What `statusbridge source check` says about objects, held against what an exporter says that watches them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use statusbridge_contract::{Metric, label};
use statusbridge_tests::exposition::{Exposition, Line};
use statusbridge_tests::{Rig, own_command};

/// What time it is to `check`. A package that is in its state since then does not say since when.
const NOW: &str = "2099-01-01T00:00:00Z";
/// By how many seconds a time that an object gives may differ: the API server tells whole seconds, in both directions.
const ROUNDED: f64 = 2.0;

/// What `source check` with these arguments says about objects, and what it has to say about them to people.
pub(crate) async fn check(
    rig: &Rig,
    name: &str,
    args: &[&str],
    objects: &[Value],
) -> Result<(Exposition, String)> {
    let file = rig.dir().join(format!("{name}.json"));
    std::fs::write(&file, serde_json::to_vec(objects)?)?;
    let file = file.display().to_string();
    let all = [&["source", "check", "-o", "metrics", "--now", NOW], args, &[&file]].concat();
    let output = own_command("statusbridge", &all).await?.output().await.context("running check")?;
    let told = String::from_utf8(output.stderr)?;
    ensure!(output.status.success(), "check failed: {told}");
    Ok((Exposition::parse(&String::from_utf8(output.stdout)?)?, told))
}

/// Ends with an error where an exporter says something else than `check`.
pub(crate) fn agree(exporter: &Exposition, checked: &Exposition) -> Result<()> {
    let (live, checked) = (samples(exporter), samples(checked));
    let mut differences = Vec::new();
    for sample in live.keys().chain(checked.keys()).collect::<BTreeSet<_>>() {
        let values = [live.get(sample).copied(), checked.get(sample).copied()];
        if !same(sample, values) {
            let [exporter, check] =
                values.map(|it| it.map_or("nothing".to_owned(), |value| value.to_string()));
            differences.push(format!("{sample}: the exporter says {exporter}, check says {check}"));
        }
    }
    ensure!(!live.is_empty() && differences.is_empty(), "{}", differences.join("\n"));
    Ok(())
}

/// All that an exposition says about packages and sources, but for what is about the process, or left of what was once so:
/// states that no package has any more, words of reasons that none has.
fn samples(exposition: &Exposition) -> BTreeMap<String, f64> {
    let reasons: BTreeSet<String> = exposition
        .lines
        .iter()
        .filter(|line| line.name == Metric::PackageReason.name())
        .map(|line| line.value.to_string())
        .collect();
    let counts = |line: &&Line| match Metric::from_name(&line.name) {
        None
        | Some(
            Metric::ProcessNumber | Metric::RenderedTimestamp | Metric::Digest | Metric::SourceLastContact,
        ) => false,
        Some(Metric::Packages) => line.value > 0.0,
        Some(Metric::ReasonInfo) => line.labels.get(label::CODE).is_some_and(|code| reasons.contains(code)),
        Some(_) => true,
    };
    let sample = |line: &Line| (format!("{}{:?}", line.name, line.labels), line.value);
    exposition.lines.iter().filter(counts).map(sample).collect()
}

fn same(sample: &str, values: [Option<f64>; 2]) -> bool {
    let is_time = sample.starts_with(Metric::PackageTransitionTimestamp.name());
    match values {
        [Some(live), Some(checked)] if is_time => {
            let now = NOW.parse::<jiff::Timestamp>().unwrap().as_second() as f64;
            checked == now || (live - checked).abs() <= ROUNDED
        }
        [live, checked] => live == checked,
    }
}

const SAID: &str = r#"statusbridge_package_healthy_revision{package="a",package_source="s"} 7
statusbridge_package_transition_timestamp_seconds{package="a",package_source="s"} 1700000000
statusbridge_package_reason{package="b",package_source="s"} 5
statusbridge_reason_info{code="5",package_source="s",reason="Busy"} 1
statusbridge_reason_info{code="6",package_source="s",reason="Past"} 1
statusbridge_packages{apply_state="Applied",health="Current",package_source="s"} 1
statusbridge_packages{apply_state="Pending",health="Unknown",package_source="s"} 0
statusbridge_rendered_timestamp_seconds 1700000009
"#;

#[test]
fn what_counts_has_to_agree() {
    let up = "statusbridge_source_up{package_source=\"s\"} 1\nstatusbridge_rendered";
    for (what, of, checked, expected) in [
        ("the same", "Busy", "Busy", true),
        ("another value", "} 7", "} 8", false),
        ("a sample more", "statusbridge_rendered", up, false),
        ("a reason that some package has", "Busy", "Idle", false),
        ("a reason that none has any more", "Past", "Gone", true),
        ("a state that none has any more", "health=\"Unknown\"", "health=\"Failed\"", true),
        ("a time that was rounded", "1700000000", "1700000002", true),
        ("another time", "1700000000", "1700000003", false),
        ("no time of its own", "1700000000", "4070908800", true),
        ("the time of a scrape", "1700000009", "1700000005", true),
    ] {
        let live = Exposition::parse(SAID).unwrap();
        let checked = Exposition::parse(&SAID.replace(of, checked)).unwrap();
        assert_eq!(agree(&live, &checked).is_ok(), expected, "{what}");
    }
}
