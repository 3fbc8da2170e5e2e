//! Writes what discovery plans: a FleetPackage for every package that any cluster reports (`--discover-into`).

mod write;

use std::collections::VecDeque;

use kube::Client;
use statusbridge_core::reconcile::discover::{Change, Input, Settings, plan};
use statusbridge_core::reconcile::judge::World;
use statusbridge_core::reconcile::store::Kind;
use statusbridge_core::time::Seconds;
use tracing::{info, warn};

use crate::hub::write::Written;
use crate::metrics::Metrics;

/// Discovery and what it still has to write.
#[derive(Debug)]
pub struct Discovery {
    settings: Settings,
    /// Since when every poll was good.
    good_since: Option<Seconds>,
    pending: VecDeque<Change>,
    left_out: usize,
    last_error: Option<String>,
}

impl Discovery {
    /// Nothing is written yet.
    pub fn new(settings: Settings) -> Self {
        Self { settings, good_since: None, pending: VecDeque::new(), left_out: 0, last_error: None }
    }

    /// A poll failed: what the clusters report is not known, so nothing is made or removed.
    pub fn poll_failed(&mut self) {
        self.good_since = None;
        self.pending.clear();
    }

    /// A poll was good: finds out what is to be done. What the namespace may not see is not there.
    pub fn polled(&mut self, world: &World<'_>, metrics: &Metrics) {
        let now = world.moment.now;
        let good_since = *self.good_since.get_or_insert(now);
        let settings = &self.settings;
        let reported = world.fleet.packages(|package| {
            let grant = world.tenancy.grant(&settings.namespace, package);
            move |cluster: &str| grant.allows(cluster)
        });
        let present: Vec<_> = world.packages.within(&settings.namespace).collect();
        let plan = plan(&Input { reported: &reported, present: &present, settings, good_since, now });
        metrics.discovered(plan.discovered, plan.left_out);
        if plan.left_out > 0 && self.left_out != plan.left_out {
            warn!(
                packages = plan.left_out,
                limit = self.settings.limit,
                "packages are reported that get no FleetPackage: --discover-limit is reached, or their names are not valid"
            );
        } else if plan.left_out == 0 && self.left_out > 0 {
            info!("every reported package has a FleetPackage again");
        }
        self.left_out = plan.left_out;
        self.pending = plan.changes.into();
    }

    /// Whether there is something to write.
    pub fn is_due(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Writes one thing. After an error the rest waits for the next poll.
    pub async fn write_next(&mut self, client: &Client, metrics: &Metrics) {
        let Some(change) = self.pending.pop_front() else { return };
        let namespace = &self.settings.namespace;
        let answer = write::write(client, namespace, &change).await;
        metrics.wrote(Kind::FleetPackage, crate::hub::write::result(&answer));
        match answer {
            Ok(written) => {
                self.last_error = None;
                if !matches!(written, Written::Conflict) {
                    tell(namespace, &change);
                }
            }
            Err(error) => {
                self.pending.clear();
                let error = error.to_string();
                if self.last_error.as_ref() != Some(&error) {
                    warn!(%namespace, %error, "a discovered package could not be written");
                }
                self.last_error = Some(error);
            }
        }
    }
}

fn tell(namespace: &str, change: &Change) {
    match change {
        Change::Create { name, package } => {
            let package_namespace = package.namespace.as_deref().unwrap_or_default();
            info!(
                %namespace, %name, source = package.source, package_namespace, package = package.name,
                "discovered a package"
            );
        }
        Change::Note { .. } => {}
        Change::Delete(version) => {
            info!(object = %version.key, "removed: no cluster has reported the package for --discover-forget-after");
        }
    }
}
