//! `verdict`: whether a revision is where it should be, whether or not a gate names it.

use serde::Deserialize;
use serde_json::Value;
use statusbridge_api::rollout_gate::{Require, Waiting};
use statusbridge_core::time::Seconds;

use super::api::{Answer, Api};
use super::arguments::{Name, RevisionQuestion};
use super::bound::{Told, plain, quoted};
use super::objects::unreadable;
use crate::text::span;

/// What of an answer the text is made from.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Verdict {
    open: bool,
    reason: String,
    message: String,
    fingerprint: String,
    complete: bool,
    healthy: Option<String>,
    age_seconds: Option<Seconds>,
    #[serde(default)]
    waiting_for: Vec<Waiting>,
}

/// Asks and tells.
pub(super) async fn answer(api: &Api, question: &RevisionQuestion) -> Result<Told, String> {
    let query = query(question)?;
    let query: Vec<_> = query.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let answer = api.ask(&["verdict"], &query).await?;
    match tell(&answer)? {
        Some(told) => Ok(told),
        None => Err(api.refusal(&answer)),
    }
}

fn query(question: &RevisionQuestion) -> Result<Vec<(&'static str, String)>, String> {
    let names = question.clusters.as_deref().unwrap_or_default();
    if let Some(name) = names.iter().find(|name| name.trim().is_empty() || name.contains(',')) {
        return Err(format!(
            "{} cannot be the name of a cluster: clusters has one name in each entry",
            quoted(name)
        ));
    }
    let require = question.require.map(|require| match require {
        Require::Healthy => "Healthy".to_owned(),
        Require::Applied => "Applied".to_owned(),
    });
    let given = [
        ("source", Some(question.source.clone())),
        ("namespace", question.package_namespace.clone()),
        ("package", Some(question.package.clone())),
        ("revision", Some(question.revision.clone())),
        ("clusters", question.clusters.as_ref().map(|names| names.join(","))),
        ("selector", question.selector.clone()),
        ("reporting", question.reporting.map(|least| least.to_string())),
        ("require", require),
        ("minHealthy", question.min_healthy.clone()),
        ("maxFailures", question.max_failures.clone()),
        ("minSuccessTime", question.min_success_time.clone()),
        ("staleAfter", question.stale_after.clone()),
        ("hubNamespace", question.hub_namespace.as_ref().map(|it| Name::as_str(it).to_owned())),
    ];
    Ok(given.into_iter().filter_map(|(name, value)| Some((name, value?))).collect())
}

/// None when there is no verdict in it.
fn tell(answer: &Answer) -> Result<Option<Told>, String> {
    let state = answer.body.get("state").and_then(Value::as_str);
    let begin = match (answer.status, state) {
        (200, Some("Open")) => "Yes, it is where it should be",
        (409, Some("Closed")) => "No, it is not where it should be yet",
        (503, Some("Unknown")) => "Nothing can be said at the moment; ask again",
        (200 | 409, _) => return Err(unreadable()),
        _ => return Ok(None),
    };
    let verdict = Verdict::deserialize(&answer.body).map_err(|_| unreadable())?;
    if verdict.open != (answer.status == 200) {
        return Err(unreadable());
    }
    let Verdict { reason, message, fingerprint, .. } = &verdict;
    let mut text =
        format!("{begin}. Revision {}: {}: {}.", plain(fingerprint), plain(reason), quoted(message));
    if let Some(healthy) = &verdict.healthy {
        text += &format!(" {} clusters count.", plain(healthy));
    }
    if let Some(age) = verdict.age_seconds {
        text += &format!(" The oldest evidence is {} old.", span(age));
    }
    if !verdict.complete {
        text += " There is no fresh and verified evidence of some of the clusters.";
    }
    text += &waits(&verdict.waiting_for);
    Told::new(text, answer.body.clone()).map(Some)
}

/// What something waits for, a line each.
pub(super) fn waits(all: &[Waiting]) -> String {
    let line = |waiting: &Waiting| {
        format!("\nIt waits for {}: {}", plain(&waiting.reason), quoted(&waiting.message))
    };
    all.iter().map(line).collect()
}
