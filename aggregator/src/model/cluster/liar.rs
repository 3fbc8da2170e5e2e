//! Who lies about a cluster.

use statusbridge_contract::Fingerprint;
use statusbridge_core::time::Seconds;

use super::super::backend::Backend;
use super::super::{CLUSTER_LABEL, JOB, START};
use super::{Attested, Cluster, Truth};

/// It says in an exporter's words what it likes: a pod of a tenant in the cluster that is scraped like the exporter, or the
/// exporter of another cluster, which everybody trusts and nobody has granted to speak for this one.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Liar {
    /// The revision that it says is healthy, and has been all along.
    pub(in super::super) revision: Fingerprint,
    /// By how much it dates itself later than it is.
    pub(in super::super) ahead: Seconds,
    /// Whether it says every 20 seconds that the package has failed, and then again that it is well.
    pub(in super::super) flips: bool,
    /// Whether it is the exporter of another cluster.
    pub(in super::super) elsewhere: bool,
    /// It is gone then.
    pub(in super::super) until: Seconds,
}

/// The cluster whose exporter lies about others, and its UID.
const ROGUE: (&str, u64) = ("rogue", 97);

impl Cluster {
    /// What the liar says arrives with the scrape of the same second, by the same way.
    pub(super) fn scrape_liar(&self, n: usize, now: Seconds, backend: &Backend) {
        let Some(liar) = self.liar.filter(|liar| now < liar.until) else { return };
        let mut says = Truth::healthy_at(liar.revision);
        says.failed = liar.flips && (now / 20.0) as u64 % 2 == 1;
        let by = Attested {
            process: 7,
            since: self.clock(START),
            is_up: true,
            clock: self.clock(now + liar.ahead),
        };
        let stamp = now + self.scrapers[n].fraction + self.stamps_ahead;
        let (samples, target) = if liar.elsewhere {
            let mut target = self.target("rogue", JOB.1, n);
            target[0] = (CLUSTER_LABEL.to_owned(), ROGUE.0.to_owned());
            (says.samples(ROGUE.1, Some(&self.name), by), target)
        } else {
            (says.samples(self.uid, self.told_of(), by), self.target("tenant", "tenant", n))
        };
        for (metric, own, value) in samples {
            let own = own.into_iter().map(|(name, value)| (name.to_owned(), value));
            let id = backend.series(metric, own.chain(target.clone()).collect());
            backend.append(id, now, stamp, Some(value as f64));
        }
    }
}
