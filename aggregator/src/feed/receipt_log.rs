//! What came of expositions, between one report to the controller and the next.

use std::collections::BTreeMap;
use std::time::Duration;

use statusbridge_core::exposition::Outcome;
use statusbridge_core::time::Seconds;
use tokio::time::Instant;

use super::Polled;
use crate::feed::promql::poll::PollReport;

/// What is new is told after so long at the latest, so that what comes at the same time is judged once.
const SOON: Duration = Duration::from_secs(1);
/// Problems of a report are bounded; so are those that are kept.
const PROBLEMS: usize = 16;

/// One exposition, or that there was none.
#[derive(Debug)]
pub(crate) struct Receipt {
    /// Which exporter it was about: told apart from others, and shown.
    pub subject: String,
    /// Samples of the contract that came.
    pub samples: u64,
    /// Bytes that came, unpacked.
    pub bytes: u64,
    /// What became of them.
    pub outcome: Result<Outcome, String>,
}

/// Adds up receipts.
#[derive(Debug)]
pub(super) struct ReceiptLog {
    interval: Duration,
    since: Instant,
    due: Option<Instant>,
    samples: u64,
    bytes: u64,
    /// By subject: when last heard of, and what is wrong.
    last: BTreeMap<String, (Instant, Option<String>)>,
}

impl ReceiptLog {
    /// Reports are due at least every `interval`.
    pub(super) fn new(interval: Duration, now: Instant) -> Self {
        let (samples, bytes, due) = Default::default();
        Self { interval, since: now, due, samples, bytes, last: BTreeMap::new() }
    }

    /// Takes one in.
    pub(super) fn take(&mut self, receipt: Receipt, now: Instant) {
        let Receipt { subject, samples, bytes, outcome } = receipt;
        self.samples += samples;
        self.bytes += bytes;
        let problem = match outcome {
            Ok(Outcome::Verified { news }) => {
                if news {
                    self.due_by(now + SOON);
                }
                None
            }
            Ok(Outcome::Old) => return,
            Ok(Outcome::Unverified(fault)) => Some(fault),
            Err(error) => Some(error),
        };
        self.last.insert(subject, (now, problem));
    }

    /// A report has to be made by then.
    pub(super) fn due_by(&mut self, then: Instant) {
        self.due = Some(self.due.map_or(then, |due| due.min(then)));
    }

    /// When the next report is due.
    pub(super) fn due(&self) -> Instant {
        let regular = self.since + self.interval;
        self.due.map_or(regular, |due| due.min(regular))
    }

    /// What there is to report at `t`, and why nothing could be tried if so. What was not heard of for
    /// `forget_after` is not told any longer.
    pub(super) fn report(
        &mut self,
        error: Option<String>,
        forget_after: Duration,
        now: Instant,
        t: Seconds,
    ) -> Polled {
        self.last.retain(|_, (heard, _)| now.duration_since(*heard) < forget_after);
        let problems = self.last.iter().filter_map(|(subject, (_, it))| Some((subject, it.as_ref()?)));
        let unverified = problems.clone().count();
        let report = PollReport {
            ok: error.is_none(),
            error,
            verified: self.last.len() - unverified,
            unverified,
            read: self.last.len(),
            samples: std::mem::take(&mut self.samples),
            bytes: std::mem::take(&mut self.bytes),
            problems: problems.map(|(subject, it)| format!("{subject}: {it}")).take(PROBLEMS).collect(),
            ..PollReport::default()
        };
        let took = now.duration_since(self.since).as_secs_f64();
        (self.since, self.due) = (now, None);
        Polled { t, settle: 0.0, took, report }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receipt(subject: &str, outcome: Result<Outcome, String>) -> Receipt {
        Receipt { subject: subject.into(), samples: 3, bytes: 100, outcome }
    }

    #[test]
    fn what_is_new_is_told_soon_and_all_else_in_time() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let minute = Duration::from_secs(60);
        let mut tally = ReceiptLog::new(Duration::from_secs(15), begin);
        tally.take(receipt("a", Ok(Outcome::Verified { news: false })), at(0));
        assert_eq!(tally.due(), at(15));
        tally.take(receipt("b", Ok(Outcome::Verified { news: true })), at(3));
        assert_eq!(tally.due(), at(4));
        tally.take(receipt("c", Ok(Outcome::Unverified("it is torn".into()))), at(3));
        tally.take(receipt("d", Err("refused".into())), at(3));
        let polled = tally.report(None, minute, at(4), 1000.0);
        let report = polled.report;
        assert!(report.ok && report.error.is_none());
        assert_eq!((polled.t, polled.took), (1000.0, 4.0));
        assert_eq!((report.verified, report.unverified, report.samples, report.bytes), (2, 2, 12, 400));
        assert_eq!(report.problems, ["c: it is torn", "d: refused"]);
        assert_eq!(tally.due(), at(19));

        tally.take(receipt("d", Ok(Outcome::Verified { news: false })), at(4));
        tally.take(receipt("a", Ok(Outcome::Old)), at(64));
        let report = tally.report(Some("nobody is there".into()), minute, at(64), 1060.0).report;
        assert!(!report.ok && report.problems.is_empty());
        assert_eq!((report.verified, report.samples), (0, 6));
    }
}
