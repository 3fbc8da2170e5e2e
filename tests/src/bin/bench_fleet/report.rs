//! The result as a table in Markdown.

use crate::figures::{Figures, Run, Work};
use crate::generated::Generated;
use crate::viewers::{VERDICTS, VIEWERS};
use std::time::Duration;

/// What a row asks for: in words, and whether the value is good enough.
type Aim = Option<(&'static str, bool)>;

/// The table. The aims are about a whole fleet of a million packages; on a smaller one they are not asked for.
pub(crate) fn render(
    backend: &str,
    machine: &str,
    fleet: &Generated,
    run: &Run,
    figures: &Figures,
) -> String {
    let (clusters, packages) = (fleet.len(), fleet.packages.len());
    let whole = clusters * packages >= 1_000_000;
    let told = match fleet.speakers().len() {
        0 => String::new(),
        speakers => format!(", told of by the exporters of {speakers} management clusters"),
    };
    let mut table = format!(
        "{clusters} clusters with {packages} packages each{told}, {} series, in {backend}, scraped every {} s; {} \
         FleetPackages with three gates each. {machine}.\n\n| | | aim | met |\n|---|---|---|---|\n",
        fleet.samples(),
        fleet.interval / 1000,
        run.fleet_packages,
    );
    let mut row = |what: &str, value: String, aim: Aim| {
        let (aim, met) = match aim.filter(|_| whole) {
            Some((aim, met)) => (aim, if met { "yes" } else { "**no**" }),
            None => ("", ""),
        };
        table += &format!("| {what} | {value} | {aim} | {met} |\n");
    };
    let f = figures;
    let ratio = |work: &Work| work.took.as_secs_f64() / f.yardstick.as_secs_f64();

    row("resident memory after the first synchronisation", mega(f.resident[0]), None);
    row("the same with all objects in the hub", mega(f.resident[1]), None);
    let most = f.resident[2].max(f.resident[3]);
    row("resident memory at most, restart included", mega(most), Some(("300 MB", most <= 300_000_000)));
    row("the same for a package", format!("{:.0} bytes", most as f64 / (clusters * packages) as f64), None);

    row("reading everything once, without looking at it", seconds(f.yardstick), None);
    row("first synchronisation", seconds(f.first.took), None);
    row("the same in readings", format!("{:.2}", ratio(&f.first)), None);
    let (first, read) = (f.first.account.processor, f.first.account.bytes);
    row("CPU for it", seconds(first), Some(("6 s", first <= Duration::from_secs(6))));
    row("bytes read, before compression", mega(read), Some(("1.1 GB", read <= 1_100_000_000)));
    row("the backend's CPU meanwhile", seconds(f.first.backend), None);

    let polls = |work: &Work| work.account.polls.max(1) as f64;
    let each = |work: &Work| work.account.processor.div_f64(polls(work));
    let aim = Duration::from_millis(185);
    row(
        "CPU for a quiet poll, nothing in the hub",
        millis(each(&f.bare)),
        Some(("185 ms", each(&f.bare) <= aim)),
    );
    row(
        "CPU for a quiet poll, all judged and refreshed",
        millis(each(&f.quiet)),
        Some(("185 ms", each(&f.quiet) <= aim)),
    );
    let bytes = f.quiet.account.bytes as f64 / polls(&f.quiet);
    row("bytes of a quiet poll, before compression", mega(bytes as u64), Some(("8 MB", bytes <= 8e6)));
    let minutes = f.quiet.took.as_secs_f64() / 60.0;
    let rate = |(writes, bytes): (u64, u64)| {
        format!("{:.0} of {}", writes as f64 / minutes, kilo(bytes.checked_div(writes).unwrap_or_default()))
    };
    row("writes to the hub a minute while quiet", rate(f.quiet_writes), None);

    let watched = &f.watched;
    let more = each(&watched.quiet).saturating_sub(each(&f.quiet));
    let aim = Duration::from_millis(50);
    row(
        &format!("CPU of a quiet poll more, while {VIEWERS} look at the page"),
        millis(more),
        Some(("50 ms", more <= aim)),
    );
    row("memory more for it", mega(watched.memory), Some(("30 MB", watched.memory <= 30_000_000)));
    row("first picture", millis(watched.first), Some(("1 s", watched.first <= Duration::from_secs(1))));
    row("its bytes", mega(watched.bytes), None);
    let [half, most] = watched.verdicts;
    row("a verdict on any revision in 100 clusters, median", tenths(half), None);
    row("the same at the 99th percentile", tenths(most), Some(("20 ms", most <= Duration::from_millis(20))));
    row(
        &format!("refused for lack of time, of {VERDICTS}"),
        watched.refused.to_string(),
        Some(("0", watched.refused == 0)),
    );

    let (objects, judged) = &f.judged;
    row(&format!("from {objects} new objects to a status on each"), seconds(judged.took), None);
    row("CPU for it, polls included", seconds(judged.account.processor), None);

    row(&format!("CPU for {} changed clusters", f.changed.0), millis(f.changed.1.account.processor), None);
    let wave = f.wave.account.processor;
    row(
        &format!("CPU for {} changed clusters at once", run.wave.min(clusters)),
        millis(wave),
        Some(("under 2 s", wave < Duration::from_secs(2))),
    );
    row("bytes read for them, before compression", mega(f.wave.account.bytes), None);
    let opened: Vec<String> = f.opened.iter().map(|it| seconds(*it)).collect();
    row("from their change to the gate's verdict", opened.join(", "), None);
    let (writes, bytes) = f.wave_writes;
    row("writes to the hub meanwhile", format!("{writes}, {} in all", kilo(bytes)), None);

    if let Some(silence) = &f.silence {
        let what =
            format!("all exporters silent, from `staleAfter` until {} gates are closed", silence.gates);
        row(&what, seconds(silence.closed), None);
        row("the same until every FleetPackage says so", seconds(silence.written), None);
        row("CPU for it", millis(silence.work.account.processor), None);
        let (writes, bytes) = silence.writes;
        row("writes to the hub meanwhile", format!("{writes}, {} in all", kilo(bytes)), None);
        row("from their next scrape until the gates are open again", seconds(silence.back), None);
    }
    if let Some(rollouts) = &f.rollouts {
        let (many, waves) = run.rollouts;
        let took = rollouts.work.took;
        row(
            &format!("from {many} FleetRollouts of {waves} waves until all are rolled out"),
            seconds(took),
            None,
        );
        row("CPU for it, polls included", seconds(rollouts.work.account.processor), None);
        let writes = rollouts.work.account.writes;
        let rate = writes as f64 / took.as_secs_f64();
        row(
            "writes to the hub meanwhile",
            format!("{writes}, {rate:.0} a second"),
            Some(("100 a second", rate <= 105.0)),
        );
        row("CPU for a quiet poll with their gates", millis(each(&rollouts.quiet)), None);
        let seconds = rollouts.quiet.took.as_secs_f64();
        row(
            "writes to the hub a second while quiet",
            format!("{:.0}", rollouts.quiet.account.writes as f64 / seconds),
            None,
        );
        row("resident memory with them", mega(rollouts.resident), None);
    }
    let restart = f.restart.took;
    row("restart to first verdict", seconds(restart), Some(("6 s", restart <= Duration::from_secs(6))));
    // Reading takes its time, and the backend is on the same machine.
    row(
        "the same in readings",
        format!("{:.2}", ratio(&f.restart)),
        Some(("bounded by the backend", ratio(&f.restart) < 2.0)),
    );
    row("CPU for it", seconds(f.restart.account.processor), None);
    row("the backend's CPU meanwhile", seconds(f.restart.backend), None);
    row(
        "streams that had to be read again",
        (f.quiet.account.reread + f.wave.account.reread).to_string(),
        None,
    );
    table
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

fn millis(time: Duration) -> String {
    format!("{:.0} ms", time.as_secs_f64() * 1e3)
}

fn tenths(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

fn mega(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

fn kilo(bytes: u64) -> String {
    format!("{:.1} KB", bytes as f64 / 1e3)
}
