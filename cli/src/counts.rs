//! How far the clusters of a gate are, in words: `12/14 healthy, 2 soaking 4m left, 1 failed`.

use statusbridge_api::Reason;
use statusbridge_core::decide::unix;
use statusbridge_core::reconcile::gate_verdict::GateVerdict;
use statusbridge_core::time::Seconds;

use crate::text::{one_line, span};

/// How far the clusters are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Counts {
    /// How many are healthy, and how many soak.
    healthy: String,
    /// How long the last of those that soak still has to, which changes all the time.
    pub(crate) left: Option<String>,
    /// How many are otherwise.
    others: String,
}

/// How far the clusters are; `None` where nobody has counted them.
pub(crate) fn counts(reading: &GateVerdict, now: Seconds) -> Option<Counts> {
    let mut healthy = format!("{} healthy", one_line(reading.healthy.as_deref()?));
    let (mut left, mut others) = (None, String::new());
    if let Some(clusters) = &reading.clusters {
        if clusters.soaking > 0 {
            healthy += &format!(", {} soaking", clusters.soaking);
            let soaking = reading.waiting_for.iter().find(|it| it.reason == Reason::Soaking.name());
            let until = soaking.and_then(|it| it.until.as_ref()).map(unix);
            left = until.filter(|until| *until > now).map(|until| format!("{} left", span(until - now)));
        }
        let unobserved = clusters.stale + clusters.missing + clusters.unverified + clusters.conflicting;
        let counted = [
            (clusters.progressing.saturating_sub(clusters.soaking), "in progress"),
            (clusters.superseded, "superseded"),
            (clusters.failed, "failed"),
            (unobserved, "unobserved"),
            (clusters.excused, "excused"),
        ];
        for (count, what) in counted.into_iter().filter(|(count, _)| *count > 0) {
            others += &format!(", {count} {what}");
        }
    }
    Some(Counts { healthy, left, others })
}

impl Counts {
    pub(crate) fn text(&self) -> String {
        let left = self.left.as_ref().map(|left| format!(" {left}")).unwrap_or_default();
        format!("{}{left}{}", self.healthy, self.others)
    }

    /// All but what changes all the time.
    pub(crate) fn news(&self) -> String {
        format!("{}{}", self.healthy, self.others)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};
    use statusbridge_core::reconcile::gate_verdict::{Gate, Question, read};
    use statusbridge_core::reconcile::object::{GateObject, Object};

    use super::*;

    /// 2026-01-01T00:00:00Z
    const NOW: Seconds = 1_767_225_600.0;

    fn text(status: Value) -> Option<String> {
        let object: GateObject = Object::read(
            serde_json::from_value(json!({
                "metadata": {"name": "eu", "namespace": "fleet", "generation": 1},
                "spec": {"fleetPackageRef": {"name": "p"}, "revision": "r", "clusters": {"names": ["a"]}},
                "status": status,
            }))
            .unwrap(),
        )
        .unwrap();
        let question = Question { revision: None, stale_after: None, slack: 0.0, now: NOW };
        counts(&read(&Gate::from(&object), &question), NOW).map(|counts| counts.text())
    }

    #[rstest]
    #[case::not_counted(json!({}), None)]
    #[case::done(json!({"healthy": "14/14", "clusters": {"total": 14, "healthy": 14}}), Some("14/14 healthy"))]
    #[case::soaking(
        json!({
            "healthy": "12/14", "clusters": {"total": 14, "healthy": 12, "progressing": 2, "soaking": 2},
            "waitingFor": [{"reason": "Soaking", "message": "", "count": 2, "until": "2026-01-01T00:04:00Z"}],
        }),
        Some("12/14 healthy, 2 soaking 4m left")
    )]
    #[case::all_sorts(
        json!({
            "healthy": "1/9",
            "clusters": {"total": 9, "healthy": 1, "progressing": 3, "soaking": 1, "failed": 2, "superseded": 1,
                "stale": 1, "missing": 1},
            "waitingFor": [{"reason": "Soaking", "message": "", "count": 2, "until": "2025-12-31T23:59:59Z"}],
        }),
        Some("1/9 healthy, 1 soaking, 2 in progress, 1 superseded, 2 failed, 2 unobserved")
    )]
    #[case::hostile(json!({"healthy": "1\u{1b}[2J/9"}), Some("1 [2J/9 healthy"))]
    fn texts(#[case] status: Value, #[case] expected: Option<&str>) {
        assert_eq!(text(status).as_deref(), expected);
    }
}
