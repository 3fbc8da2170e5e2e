//! The sign of life that the sweeper looks for.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::write::{FIELD_MANAGER, HubError, in_time};

/// Name of the Lease.
pub const LEASE: &str = "statusbridge-aggregator-heartbeat";

/// Renews one Lease.
pub struct Heartbeat {
    api: Api<Lease>,
    holder: String,
    seconds: i32,
}

impl Heartbeat {
    /// A heartbeat in `namespace`, renewed by `holder`, meant to come at least every `seconds`.
    pub fn new(client: Client, namespace: &str, holder: String, seconds: i32) -> Self {
        Self { api: Api::namespaced(client, namespace), holder, seconds }
    }

    /// Says that everything that had to be closed is closed.
    pub async fn beat(&self) -> Result<(), HubError> {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": LEASE},
            "spec": {
                "holderIdentity": self.holder,
                "leaseDurationSeconds": self.seconds,
                "renewTime": format!("{:.6}", Timestamp::now()),
            },
        });
        let params = PatchParams::apply(FIELD_MANAGER).force();
        in_time(self.api.patch(LEASE, &params, &Patch::Apply(&lease))).await.map(drop)
    }
}

/// What is seen of a heartbeat from outside: it differs after every beat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beat(Option<String>);

/// Reads the heartbeat; `None` when there never was one.
pub async fn read(client: &Client, namespace: &str) -> Result<Option<Beat>, HubError> {
    let api = Api::<Lease>::namespaced(client.clone(), namespace);
    let lease = in_time(api.get_opt(LEASE)).await?;
    Ok(lease.map(|lease| {
        let spec = lease.spec.unwrap_or_default();
        Beat(spec.renew_time.map(|time| format!("{} {}", spec.holder_identity.unwrap_or_default(), time.0)))
    }))
}
