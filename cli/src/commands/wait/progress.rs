//! How far the clusters of a gate are, on one line of standard error: `eu 12/14 healthy, 2 soaking 4m left`.

use std::io::{self, IsTerminal, Write};

use statusbridge_api::Reason;
use statusbridge_core::decide::unix;
use statusbridge_core::reconcile::gate_verdict::GateVerdict;
use statusbridge_core::time::Seconds;

use crate::text::{one_line, span};

/// How far the clusters are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    /// How many are how far.
    counts: String,
    /// How long the last of those that soak still has to, which changes all the time.
    left: Option<String>,
    /// What else there is to say.
    rest: String,
}

/// How far the clusters are; `None` where nobody has counted them.
pub(super) fn of(reading: &GateVerdict, now: Seconds) -> Option<Line> {
    let healthy = one_line(reading.healthy.as_deref()?);
    let mut counts = format!("{} {healthy} healthy", one_line(&reading.name));
    let (mut left, mut rest) = (None, String::new());
    if let Some(clusters) = &reading.clusters {
        if clusters.soaking > 0 {
            counts += &format!(", {} soaking", clusters.soaking);
            let soaking = reading.waiting_for.iter().find(|it| it.reason == Reason::Soaking.name());
            let until = soaking.and_then(|it| it.until.as_ref()).map(unix);
            left = until.filter(|until| *until > now).map(|until| format!(" {} left", span(until - now)));
        }
        let unobserved = clusters.stale + clusters.missing + clusters.unverified + clusters.conflicting;
        let others = [
            (clusters.progressing.saturating_sub(clusters.soaking), "in progress"),
            (clusters.superseded, "superseded"),
            (clusters.failed, "failed"),
            (unobserved, "unobserved"),
            (clusters.excused, "excused"),
        ];
        for (count, what) in others.into_iter().filter(|(count, _)| *count > 0) {
            rest += &format!(", {count} {what}");
        }
    }
    Some(Line { counts, left, rest })
}

impl Line {
    fn text(&self) -> String {
        format!("{}{}{}", self.counts, self.left.as_deref().unwrap_or_default(), self.rest)
    }
}

/// The line: on a terminal it is one that changes, elsewhere a new one whenever a count changes.
pub(super) struct Progress {
    terminal: bool,
    shown: Option<Line>,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self { terminal: io::stderr().is_terminal(), shown: None }
    }

    /// Shows how far the clusters are. Standard error may be closed; the wait goes on.
    pub(super) fn show(&mut self, line: Option<Line>) {
        let Some(line) = line else { return };
        let is_news = |shown: &Line| (&shown.counts, &shown.rest) != (&line.counts, &line.rest);
        if self.terminal {
            self.clear();
            let _ = write!(io::stderr(), "{}", line.text()).and_then(|()| io::stderr().flush());
        } else if self.shown.as_ref().is_none_or(is_news) {
            let _ = writeln!(io::stderr(), "{}", line.text());
        }
        self.shown = Some(line);
    }

    /// Makes room for another line.
    pub(super) fn clear(&mut self) {
        if self.terminal && self.shown.is_some() {
            let _ = write!(io::stderr(), "\r\u{1b}[2K");
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};
    use statusbridge_core::reconcile::gate_verdict::{Gate, Question, read};
    use statusbridge_core::reconcile::store::GateObject;
    use statusbridge_core::reconcile::store::Object;

    use super::*;

    /// 2026-01-01T00:00:00Z
    const NOW: Seconds = 1_767_225_600.0;

    fn line(status: Value) -> Option<String> {
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
        of(&read(&Gate::from(&object), &question), NOW).map(|line| line.text())
    }

    #[rstest]
    #[case::not_counted(json!({}), None)]
    #[case::done(json!({"healthy": "14/14", "clusters": {"total": 14, "healthy": 14}}), Some("eu 14/14 healthy"))]
    #[case::soaking(
        json!({
            "healthy": "12/14", "clusters": {"total": 14, "healthy": 12, "progressing": 2, "soaking": 2},
            "waitingFor": [{"reason": "Soaking", "message": "", "count": 2, "until": "2026-01-01T00:04:00Z"}],
        }),
        Some("eu 12/14 healthy, 2 soaking 4m left")
    )]
    #[case::all_sorts(
        json!({
            "healthy": "1/9",
            "clusters": {"total": 9, "healthy": 1, "progressing": 3, "soaking": 1, "failed": 2, "superseded": 1,
                "stale": 1, "missing": 1},
            "waitingFor": [{"reason": "Soaking", "message": "", "count": 2, "until": "2025-12-31T23:59:59Z"}],
        }),
        Some("eu 1/9 healthy, 1 soaking, 2 in progress, 1 superseded, 2 failed, 2 unobserved")
    )]
    #[case::hostile(json!({"healthy": "1\u{1b}[2J/9"}), Some("eu 1 [2J/9 healthy"))]
    fn lines(#[case] status: Value, #[case] expected: Option<&str>) {
        assert_eq!(line(status).as_deref(), expected);
    }
}
