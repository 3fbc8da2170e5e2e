//! What discovery has planned and not yet done.

use std::collections::VecDeque;

use tracing::{info, warn};

use super::Settings;
use super::plan::{Change, Input, plan};
use crate::reconcile::judge::World;
use crate::time::Seconds;

/// Discovery and what it still has to write.
#[derive(Debug)]
pub struct Discovery {
    settings: Settings,
    /// Since when every poll was good.
    good_since: Option<Seconds>,
    pending: VecDeque<Change>,
    under_way: Option<Change>,
    discovered: usize,
    left_out: usize,
    last_error: Option<String>,
}

impl Discovery {
    /// Nothing is written yet.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            good_since: None,
            pending: VecDeque::new(),
            under_way: None,
            discovered: 0,
            left_out: 0,
            last_error: None,
        }
    }

    /// The namespace that FleetPackages are made in.
    pub fn namespace(&self) -> &str {
        &self.settings.namespace
    }

    /// How many FleetPackages discovery has made that are there, and how many reported packages get none.
    pub fn counts(&self) -> (usize, usize) {
        (self.discovered, self.left_out)
    }

    /// A poll failed: what the clusters report is not known, so nothing is made or removed.
    pub(crate) fn poll_failed(&mut self) {
        self.good_since = None;
        self.pending.clear();
    }

    /// A poll was good: finds out what is to be done. What the namespace may not see is not there.
    pub fn polled(&mut self, world: &World<'_>) {
        let now = world.moment.now;
        let good_since = *self.good_since.get_or_insert(now);
        let settings = &self.settings;
        let reported = world.state.fleet.packages(|package| {
            let grant = world.state.rules.tenancy.grant(&settings.namespace, package);
            move |cluster: &str| grant.allows(cluster)
        });
        let present: Vec<_> = world.state.packages.within(&settings.namespace).collect();
        let plan = plan(&Input { reported: &reported, present: &present, settings, good_since, now });
        if plan.left_out > 0 && self.left_out != plan.left_out {
            warn!(
                packages = plan.left_out,
                limit = self.settings.limit,
                "packages are reported that get no FleetPackage: --discover-limit is reached, or their names are not valid"
            );
        } else if plan.left_out == 0 && self.left_out > 0 {
            info!("every reported package has a FleetPackage again");
        }
        (self.discovered, self.left_out) = (plan.discovered, plan.left_out);
        self.pending = plan.changes.into();
    }

    /// Whether there is something to write, and nothing is being written.
    pub fn is_due(&self) -> bool {
        self.under_way.is_none() && !self.pending.is_empty()
    }

    /// The next thing to write.
    pub(crate) fn begin_next(&mut self) -> Option<Change> {
        if self.is_due() {
            self.under_way = self.pending.pop_front();
            return self.under_way.clone();
        }
        None
    }

    /// It was written, or had changed meanwhile, which is no harm. After an error the rest waits for the next poll.
    pub fn wrote(&mut self, answer: Result<bool, String>) {
        let Some(change) = self.under_way.take() else { return };
        let namespace = &self.settings.namespace;
        match answer {
            Ok(landed) => {
                self.last_error = None;
                if landed {
                    tell(namespace, &change);
                }
            }
            Err(error) => {
                self.pending.clear();
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
