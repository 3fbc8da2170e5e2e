//! What `/metrics` says of how FleetPackages are delivered: counted from what their histories in the hub come to tell.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::histogram::Histogram;
use statusbridge_api::FleetPackageStatus;
use statusbridge_api::fleet_package::HistoryEntry;
use statusbridge_core::decide::delivery::{Step, steps};
use statusbridge_core::reconcile::object::Key;

/// Upper bounds in seconds: from five minutes to a week.
const BUCKETS: [f64; 7] = [300.0, 900.0, 3600.0, 14_400.0, 86_400.0, 259_200.0, 604_800.0];

/// Bytes of all samples, about: room for 800 FleetPackages with names of 20 letters.
const BUDGET: usize = 2 << 20;

/// Samples of a FleetPackage.
const SAMPLES: usize = 22;

/// Bytes of a sample besides the names, about.
const SAMPLE: usize = 100;

/// What has been counted of each FleetPackage since this process began to lead.
#[derive(Debug, Default)]
pub(super) struct Deliveries {
    packages: BTreeMap<Key, Delivery>,
}

#[derive(Debug)]
struct Delivery {
    uid: String,
    /// As it stood in the hub when it was last read: what it tells is counted.
    history: Vec<HistoryEntry>,
    deployments: u64,
    failed_revisions: u64,
    to_healthy: Histogram,
    to_restore: Histogram,
}

impl Deliveries {
    /// A FleetPackage as it stands in the hub. Nothing counts of what it tells when it is first read: that was counted by
    /// the process that wrote it.
    pub(super) fn see(&mut self, key: &Key, uid: &str, status: Option<&FleetPackageStatus>) {
        let history = status.map(|status| status.history.as_slice()).unwrap_or_default();
        let Some(known) = self.packages.get_mut(key).filter(|known| known.uid == uid) else {
            drop(self.packages.insert(key.clone(), Delivery::new(uid, history)));
            return;
        };
        // A history that was taken away may come back.
        if !history.is_empty() && known.history != history {
            for step in steps(&known.history, history) {
                known.count(step);
            }
            known.history = history.to_vec();
        }
    }

    /// There is no such FleetPackage any more.
    pub(super) fn forget(&mut self, key: &Key) {
        self.packages.remove(key);
    }

    /// Those with a history, as far as there is room. Without a wanted revision there is nothing to count.
    fn shown(&self) -> Vec<(&Key, &Delivery)> {
        let with_history = self.packages.iter().filter(|(_, delivery)| !delivery.history.is_empty());
        let sizes = with_history.scan(0, |sum, (key, delivery)| {
            *sum += SAMPLES * (SAMPLE + key.namespace.len() + key.name.len());
            Some((*sum, key, delivery))
        });
        sizes.take_while(|(sum, ..)| *sum <= BUDGET).map(|(_, key, delivery)| (key, delivery)).collect()
    }

    /// Writes the samples of all that are shown.
    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let shown = self.shown();
        if shown.is_empty() {
            return Ok(());
        }
        let count = |value: fn(&Delivery) -> u64| move |it: &Delivery| ConstCounter::new(value(it));
        family(
            &shown,
            encoder,
            "statusbridge_delivery_deployments",
            "Revisions of the FleetPackage that became healthy in all clusters",
            count(|it| it.deployments),
        )?;
        family(
            &shown,
            encoder,
            "statusbridge_delivery_failed_revisions",
            "Revisions of the FleetPackage that failed in a cluster while they were wanted",
            count(|it| it.failed_revisions),
        )?;
        family(
            &shown,
            encoder,
            "statusbridge_delivery_time_to_healthy_seconds",
            "Time from when a revision of the FleetPackage was first wanted until it was healthy in all clusters",
            |it| it.to_healthy.clone(),
        )?;
        family(
            &shown,
            encoder,
            "statusbridge_delivery_time_to_restore_seconds",
            "Time from when a revision of the FleetPackage first failed until the package was healthy in all clusters again",
            |it| it.to_restore.clone(),
        )
    }
}

fn family<M: EncodeMetric + TypedMetric>(
    shown: &[(&Key, &Delivery)],
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    metric: impl Fn(&Delivery) -> M,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, M::TYPE)?;
    for (key, delivery) in shown {
        let labels =
            [("fleet_package_namespace", key.namespace.as_str()), ("fleet_package", key.name.as_str())];
        metric(delivery).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

impl Delivery {
    fn new(uid: &str, history: &[HistoryEntry]) -> Self {
        Self {
            uid: uid.to_owned(),
            history: history.to_vec(),
            deployments: 0,
            failed_revisions: 0,
            to_healthy: Histogram::new(BUCKETS),
            to_restore: Histogram::new(BUCKETS),
        }
    }

    fn count(&mut self, step: Step) {
        match step {
            Step::Deployed(took) => {
                self.deployments += 1;
                self.to_healthy.observe(took);
            }
            Step::Failed => self.failed_revisions += 1,
            Step::Restored(took) => self.to_restore.observe(took),
        }
    }
}
