//! `verdict`: whether a revision is where it should be, read and judged by this process itself: no hub, no aggregator.
//!
//! ```text
//!   backend or exporters ─> Evidence ─(the aggregator's own core)─> verdict ─> text or JSON, exit code
//! ```

use std::time::Duration;

use anyhow::{Result, bail};
use clap::{ArgGroup, Args};
use futures::future::OptionFuture;
use statusbridge_api::PackageRef;
use statusbridge_api::Reason;
use statusbridge_api::common::{Amount, ClusterSet, Reporting, duration};
use statusbridge_api::rollout_gate::Require;
use statusbridge_core::reconcile::revision_verdict::{RevisionQuestion, RevisionState, RevisionVerdict};
use statusbridge_serving::signals::told_to_stop;
use tokio::time::{Instant, sleep_until};

use crate::exit::Exit;
use crate::feeds::{Evidence, FeedArgs};
use crate::output::{Output, OutputArgs, say};
use crate::target::{revision, warn_of};
use crate::text::{Colour, one_line, paint};

/// Flags of `verdict`.
#[derive(Debug, Clone, Args)]
#[command(group = ArgGroup::new("which").required(true).args(["clusters", "reporting"]))]
pub(crate) struct VerdictArgs {
    #[command(flatten)]
    feeds: FeedArgs,
    /// The package: SOURCE/NAMESPACE/NAME, or SOURCE/NAME for a cluster-scoped one
    #[arg(long, value_parser = package)]
    package: PackageRef,
    /// The revision: in the delivery system's words, or 12 hex digits
    #[arg(long, value_parser = revision)]
    revision: String,
    /// The clusters that count, by name, separated by commas
    #[arg(long, value_delimiter = ',')]
    clusters: Vec<String>,
    /// Every cluster counts that reports the package; there must be at least so many
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    reporting: Option<u32>,
    /// How long a cluster must have been at the revision before it counts
    #[arg(long, value_name = "DURATION")]
    min_success_time: Option<String>,
    /// How many clusters may have failed or be unobserved: a number, or a percentage
    #[arg(long, value_name = "AMOUNT", value_parser = amount)]
    max_failures: Option<Amount>,
    /// How many clusters must count: a number, or a percentage [default: all but --max-failures]
    #[arg(long, value_name = "AMOUNT", value_parser = amount)]
    min_healthy: Option<Amount>,
    /// Applied is enough: do not look at health
    #[arg(long)]
    applied: bool,
    /// How old evidence may be
    #[arg(long, default_value = "3m", value_name = "DURATION")]
    stale_after: String,
    /// How long to wait until it is so [default: not at all]
    #[arg(long, value_parser = duration)]
    wait: Option<Duration>,
    /// Time between polls while it waits
    #[arg(long, default_value = "5s", value_parser = duration)]
    poll_interval: Duration,
    #[command(flatten)]
    output: OutputArgs,
}

fn amount(text: &str) -> Result<Amount, String> {
    let amount = Amount::from(text);
    amount.of_rounded_up(1).map(|_| amount).map_err(|error| error.to_string())
}

fn package(text: &str) -> Result<PackageRef, String> {
    let words: Vec<&str> = text.splitn(3, '/').collect();
    let (source, namespace, name) = match words.as_slice() {
        [source, namespace, name] => (*source, Some((*namespace).to_owned()), *name),
        [source, name] => (*source, None, *name),
        _ => return Err(format!("{text:?} is neither SOURCE/NAMESPACE/NAME nor SOURCE/NAME")),
    };
    if source.is_empty() || name.is_empty() || namespace.as_deref() == Some("") {
        return Err(format!("{text:?} has an empty part: a package is SOURCE/NAMESPACE/NAME or SOURCE/NAME"));
    }
    Ok(PackageRef { source: source.to_owned(), namespace, name: name.to_owned() })
}

impl VerdictArgs {
    fn question(&self) -> RevisionQuestion {
        let reporting = self.reporting.map(|least| Reporting { min_clusters: least.into() });
        let names = reporting.is_none().then(|| self.clusters.clone());
        RevisionQuestion {
            asker: String::new(),
            package: self.package.clone(),
            revision: self.revision.clone(),
            clusters: ClusterSet { names, reporting, ..ClusterSet::default() },
            require: if self.applied { Require::Applied } else { Require::Healthy },
            min_healthy: self.min_healthy.clone(),
            max_failures: self.max_failures.clone(),
            min_success_time: self.min_success_time.clone(),
            stale_after: self.stale_after.clone(),
        }
    }
}

/// Prints the verdict; with `--wait` each time that it changes, until it is open or the time is over.
///
/// # Errors
/// When no feed can be asked, or the question makes no sense.
pub(crate) async fn run(args: VerdictArgs) -> Result<Exit> {
    warn_of(&args.revision);
    let (question, output) = (args.question(), args.output.output);
    let until = args.wait.and_then(|wait| Instant::now().checked_add(wait));
    let stopped = told_to_stop()?;
    let mut evidence = Evidence::begin(&args.feeds, args.poll_interval.max(Duration::from_secs(1)))?;
    let mut last = None;
    tokio::select! {
        ended = follow(&mut evidence, &question, &args, &mut last) => {
            let (verdict, exit) = ended?;
            output.print(&text(&verdict), &verdict)?;
            Ok(exit)
        }
        Some(()) = OptionFuture::from(until.map(sleep_until)) => {
            if let Some(verdict) = &last {
                output.print(&text(verdict), verdict)?;
            }
            Ok(Exit::TimedOut)
        }
        () = stopped => bail!("told to stop"),
    }
}

/// The verdict that ends the command, and how. Those before are told and kept in `last`.
async fn follow(
    evidence: &mut Evidence,
    question: &RevisionQuestion,
    args: &VerdictArgs,
    last: &mut Option<RevisionVerdict>,
) -> Result<(RevisionVerdict, Exit)> {
    let waits = args.wait.is_some();
    match evidence.first().await {
        // A backend that does not answer now may do so before the time is over.
        Err(_) if waits => {}
        first => first?,
    }
    loop {
        let verdict = evidence.world().revision(question);
        if let Some(exit) = end(&verdict, waits) {
            return Ok((verdict, exit));
        }
        let is_news = last.as_ref().is_none_or(|last| last.message != verdict.message);
        if is_news && args.output.output == Output::Text {
            say(text(&verdict).trim_end());
        }
        *last = Some(verdict);
        evidence.polled().await?;
    }
}

/// How the command ends with this verdict, if it does: as `wait` would.
fn end(verdict: &RevisionVerdict, waits: bool) -> Option<Exit> {
    let over_budget = verdict.reason == Reason::FailureBudgetExceeded.name();
    match verdict.state {
        RevisionState::Open => Some(Exit::Done),
        RevisionState::Invalid | RevisionState::Forbidden => Some(Exit::Usage),
        RevisionState::Closed if over_budget => Some(Exit::Stalled),
        RevisionState::Closed => (!waits).then_some(Exit::TimedOut),
        RevisionState::Unknown => (!waits).then_some(Exit::Stale),
    }
}

fn text(verdict: &RevisionVerdict) -> String {
    let colour = match verdict.state {
        RevisionState::Open => Colour::Green,
        RevisionState::Closed => Colour::Yellow,
        RevisionState::Unknown | RevisionState::Invalid | RevisionState::Forbidden => Colour::Red,
    };
    let state = paint(verdict.state.name(), colour, &std::io::stdout());
    let healthy = verdict.healthy.as_ref().map(|healthy| format!(" {healthy}")).unwrap_or_default();
    let mut text = format!("{state}{healthy}: {} ({})\n", one_line(&verdict.message), verdict.reason);
    for waiting in verdict.waiting_for.iter().skip(1) {
        text += &format!("  also: {}\n", one_line(&waiting.message));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("flux-kustomization/flux-system/payments", Some(("flux-kustomization", Some("flux-system"), "payments")))]
    #[case("crossplane-package/aws", Some(("crossplane-package", None, "aws")))]
    #[case("kpt/ns/a/b", Some(("kpt", Some("ns"), "a/b")))]
    #[case("payments", None)]
    #[case("flux//payments", None)]
    #[case("/ns/payments", None)]
    #[case("flux/ns/", None)]
    fn a_package_is_named(#[case] text: &str, #[case] expected: Option<(&str, Option<&str>, &str)>) {
        let read = package(text).ok();
        let words = read.as_ref().map(|it| (it.source.as_str(), it.namespace.as_deref(), it.name.as_str()));
        assert_eq!(words, expected);
    }

    #[rstest]
    #[case("2", true)]
    #[case("5%", true)]
    #[case("-1", false)]
    #[case("many", false)]
    #[case("101%", false)]
    fn an_amount_is_a_number_or_a_percentage(#[case] text: &str, #[case] good: bool) {
        assert_eq!(amount(text).is_ok(), good);
    }
}
