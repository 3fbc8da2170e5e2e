//! The change-log sidecar loses nothing, never makes a provider wait, and prints what upstream's would.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use statusbridge_tests::exposition::Exposition;
use statusbridge_tests::*;
use std::collections::BTreeSet;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn lines(text: &str) -> Result<Vec<Value>> {
    text.lines().map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
}

fn read(out: &Path) -> Result<Vec<Value>> {
    lines(&std::fs::read_to_string(out)?)
}

/// What [`Changelog::load`] gave the n-th entry.
fn numbers(lines: &[Value]) -> BTreeSet<u64> {
    let number = |line: &Value| line["additionalDetails"]["n"].as_str()?.parse().ok();
    lines.iter().filter_map(number).collect()
}

fn count(says: &Exposition, what: &str) -> u64 {
    says.sum(&format!("statusbridge_changelog_{what}")) as u64
}

/// A page of metrics is at most a second old, so a count may come a little later.
async fn counted(sidecar: &Changelog, what: &str, expected: u64) -> Result<()> {
    eventually(SOON, what, async || {
        let counted = count(&sidecar.says().await?, what);
        ensure!(counted == expected, "{counted} of {expected}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn every_entry_is_printed_once_as_upstream_would_and_counted() {
    run("e2e-changelog", async |rig| {
        let out = rig.dir().join("out.jsonl");
        let sidecar = Changelog::start(rig, "sidecar", &out, &[]).await?;
        ensure!(std::fs::metadata(sidecar.socket())?.permissions().mode() & 0o777 == 0o660);

        let sent = sidecar.load(3000, 16).await?;
        ensure!((sent.sent, sent.failed) == (3000, 0), "{sent:?}");
        counted(&sidecar, "written_total", 3000).await?;
        let printed = read(&out)?;
        ensure!(printed.len() == 3000 && numbers(&printed) == (1..=3000).collect());
        let says = sidecar.says().await?;
        let of_kind = [("provider", "provider-example"), ("group", "s3.example.org"), ("kind", "Bucket")];
        let changes = |operation, result| {
            let labels = [&of_kind[..], &[("operation", operation), ("result", result)]].concat();
            says.value("statusbridge_changelog_entries_total", &labels)
        };
        ensure!(changes("create", "success") == Some(300.0));
        ensure!(changes("update", "failure") == Some(300.0));
        ensure!(changes("update", "success") == Some(2400.0));
        ensure!(count(&says, "entries_total") == 3000 && count(&says, "dropped_total") == 0);
        ensure!(count(&says, "snapshot_bytes_count") == 3000);
        // The sidecar is no exporter: an aggregator must find nothing of the contract there.
        ensure!(says.sum("statusbridge_digest") == 0.0 && says.packages().is_empty());

        // A crash leaves the socket's file behind; whoever comes next takes it over, and the provider finds it.
        sidecar.process().kill();
        ensure!(sidecar.socket().exists());
        sidecar.process().start()?;
        sidecar.wait_ready().await?;
        std::fs::File::create(&out)?;
        let entries = odd_entries();
        let answers = sidecar.echo(&entries).await?;
        counted(&sidecar, "written_total", entries.len() as u64).await?;
        let upstream: Vec<Value> = answers.iter().map(|answer| answer["line"].clone()).collect();
        ensure!(answers.iter().all(|answer| answer["code"] == "OK"), "{answers:?}");
        for (ours, upstream) in read(&out)?.iter().zip(&upstream) {
            // Numbers are compared by their type as well: 3 is not 3.0.
            ensure!(ours == upstream, "{ours}\nupstream: {upstream}");
        }
        let refused = sidecar.echo(&[json!(null)]).await?;
        ensure!(refused == [json!({"code": "InvalidArgument", "message": "the request has no entry"})]);
        counted(&sidecar, "refused_total", 1).await?;

        // Asked to stop in the middle, it goes on for a provider that has not finished.
        std::fs::File::create(&out)?;
        let stopped = async {
            eventually(SOON, "some are taken", async || {
                let taken = count(&sidecar.says().await?, "entries_total");
                ensure!(taken > 100, "{taken}");
                Ok(())
            })
            .await?;
            sidecar.process().terminate(SOON).await
        };
        let load = tokio::time::timeout(SOON, sidecar.load(3000, 16));
        let (sent, stopped) = tokio::join!(load, stopped);
        let sent = sent.context("the provider waits for a sidecar that is gone")??;
        ensure!(stopped?.success() && (sent.sent, sent.failed) == (3000, 0), "{sent:?}");
        ensure!(numbers(&read(&out)?) == (1..=3000).collect(), "{} lines", read(&out)?.len());
        ensure!(!sidecar.socket().exists(), "the socket's file is left");
        Ok(())
    })
    .await;
}

/// What is printed in some special way.
fn odd_entries() -> Vec<Value> {
    vec![
        json!({}),
        json!({
            "timestamp": "2024-02-29T23:59:59.987654321Z", "provider": "p:v1", "apiVersion": "g/v1", "kind": "K",
            "name": "n", "externalName": "e", "operation": "OPERATION_TYPE_DELETE",
            "snapshot": {
                "whole": 3, "fraction": 1.5, "zero": -0.0, "large": 1e21, "below": 1e20, "small": 1e-7, "above": 1e-6,
                "inexact": 9_007_199_254_740_993_i64, "most": 1e308, "least": 5e-324, "none": null, "": [[], {}],
                "text": "\u{0}\u{1f}\u{7f}\u{2028}<>&\"\\/é😀\n"
            },
            "errorMessage": "", "additionalDetails": {"b": "1", "a": "", "": "2"}
        }),
        json!({"operation": 77, "snapshot": {}}),
        json!({"operation": "OPERATION_TYPE_CREATE", "timestamp": "9999-12-31T23:59:59Z"}),
        json!({"operation": "OPERATION_TYPE_UPDATE", "timestamp": "0001-01-01T00:00:00Z"}),
        json!({"timestamp": "1970-01-01T00:00:00Z", "errorMessage": "no\nand no"}),
    ]
}

#[tokio::test]
async fn an_output_that_nobody_reads_holds_up_no_provider_and_what_is_dropped_is_counted() {
    run("e2e-changelog-slow", async |rig| {
        let (pipe, log) = (rig.dir().join("pipe"), rig.dir().join("log"));
        let made = std::process::Command::new("mkfifo").args([&pipe, &log]).status().context("mkfifo")?;
        ensure!(made.success());
        // Opening either end waits for the other one.
        let ends = [log.clone(), pipe.clone()];
        let ends = tokio::task::spawn_blocking(move || ends.map(std::fs::File::open));
        // Nobody reads its log either, of which there is much.
        let environment = vec![("LOG", log.into()), ("RUST_LOG", "trace".into())];
        let more = ["--buffer-bytes", "1000000"];
        let sidecar = Changelog::start_in(rig, "sidecar", &pipe, environment, &more).await?;
        let [_log, end] = ends.await?;
        let (_log, mut end) = (_log?, end?);

        let sent = sidecar.load(1500, 16).await?;
        ensure!(sent.sent + sent.failed == 1500 && sent.sent > 100 && sent.failed > 100, "{sent:?}");
        // The provider's side gives up after 10 s: none of them waited for that.
        ensure!(sent.slowest.as_secs() < 10, "{sent:?}");
        let says = sidecar.says().await?;
        ensure!(count(&says, "entries_total") == 1500, "not all are counted");
        ensure!(count(&says, "dropped_total") == sent.failed && count(&says, "buffered_bytes") <= 1_000_000);

        // All that was answered well comes out once somebody reads, even if asked to stop by then.
        let reading = tokio::task::spawn_blocking(move || {
            let mut text = String::new();
            end.read_to_string(&mut text).map(|_| text)
        });
        ensure!(sidecar.process().terminate(SOON).await?.success());
        let printed = lines(&reading.await??)?;
        ensure!(printed.len() as u64 == sent.sent && numbers(&printed).len() == printed.len());
        Ok(())
    })
    .await;
}
