//! `history`: which revisions of a package were wanted, and how far each came.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use statusbridge_api::fleet_package::HistoryEntry;
use statusbridge_core::decide::unix;

use super::api::Api;
use super::arguments::{HistoryQuestion, Name};
use super::bound::{Told, plain};
use super::explain::find;
use super::objects::{Package, unreadable};
use crate::text::span;

/// Asks and tells.
pub(super) async fn answer(api: &Api, question: &HistoryQuestion) -> Result<Told, String> {
    let namespace = question.namespace.as_ref().map(Name::as_str);
    let found = find(api, namespace, &question.fleet_package).await?.standing;
    let answer = api.get(&["packages", &found.namespace, &found.name], &[("limit", "1")]).await?;
    let package = Package::read(&answer.body, answer.now).ok_or_else(unreadable)?;
    tell(&package, answer.body.get("adoption").unwrap_or(&Value::Null))
}

fn tell(package: &Package, adoption: &Value) -> Result<Told, String> {
    let status = package.status.clone().unwrap_or_default();
    let mut text = package.line();
    for entry in &status.history {
        text += &format!("\n{}", line(entry));
    }
    if status.history.is_empty() {
        text += "\nNo revision was judged yet.";
    }
    for it in &status.revisions {
        let (applied, healthy) = (it.applied, it.healthy);
        text += &format!(
            "\nrevision {}: applied in {applied} clusters now, healthy in {healthy}",
            plain(&it.revision)
        );
    }
    let data = json!({
        "fleetPackage": package.entry(),
        "history": status.history,
        "lastHealthyRevision": status.last_healthy_revision,
        "revisions": status.revisions,
        "adoption": adoption,
    });
    Told::new(text, data)
}

fn line(entry: &HistoryEntry) -> String {
    let after = |time: &Time| span(unix(time) - unix(&entry.started_at));
    let mut line = format!("revision {}: wanted since {}", plain(&entry.revision), entry.started_at.0);
    for (what, time) in [
        ("applied everywhere", &entry.applied_at),
        ("Ready", &entry.healthy_at),
        ("a cluster failed", &entry.failed_at),
        ("Ready again after the failure", &entry.restored_at),
    ] {
        if let Some(time) = time {
            line += &format!(", {what} after {}", after(time));
        }
    }
    if entry.healthy_at.is_none() {
        line += ", never Ready";
    }
    line
}
