//! The sign of life that the sweeper looks for: all gates that have to be closed are closed, but for those that it names.

use std::collections::BTreeSet;

use anyhow::bail;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Map, json};
use statusbridge_core::reconcile::object::Key;

use crate::hub::write::{FIELD_MANAGER, HubError, in_time};

/// Namespace of this Lease and the leader's by default: there is one in every hub, and tenants write nothing there. All
/// installations on a hub share them, so that only one works.
pub const NAMESPACE: &str = "kube-system";

/// Name of the Lease.
pub const LEASE: &str = "statusbridge-aggregator-heartbeat";

/// Annotation of the Lease: the gates that have to be closed and could not be, with spaces between them. `namespace/*` is
/// all gates of a namespace.
const UNCLOSED: &str = "statusbridge.dev/unclosed-gates";

/// Renews one Lease.
pub struct Heartbeat {
    api: Api<Lease>,
    holder: String,
    seconds: i32,
    /// Whether a sweeper closes what it names.
    has_sweeper: bool,
    /// The version that was written last, and when it says that it was renewed.
    written: Option<(String, Timestamp)>,
}

/// What a renewal has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewed {
    /// Nothing unusual.
    Later,
    /// The heartbeat is not the one that was written last: the hub was restored to an older state, or another process
    /// writes it. What is known of the hub's objects may not be so.
    Restored,
}

impl Heartbeat {
    /// A heartbeat in `namespace`, renewed by `holder`, meant to come at least every `seconds`.
    pub fn new(client: Client, namespace: &str, holder: String, seconds: i32) -> Self {
        Self { api: Api::namespaced(client, namespace), holder, seconds, has_sweeper: true, written: None }
    }

    /// The same where nobody closes the gates that it names: it comes only once all are closed.
    pub(crate) fn without_sweeper(self) -> Self {
        Self { has_sweeper: false, ..self }
    }

    /// Says that everything that had to be closed is closed but `unclosed`.
    ///
    /// # Errors
    /// When the hub does not take it, or has no sweeper to close these.
    pub(crate) async fn beat(&mut self, unclosed: &BTreeSet<Key>) -> anyhow::Result<Renewed> {
        let names: Vec<String> = unclosed.iter().map(Key::to_string).collect();
        if !self.has_sweeper && !names.is_empty() {
            bail!(
                "these gates have to be closed first, and their files could not be written: {}",
                names.join(", ")
            );
        }
        let now = Timestamp::from_microsecond(Timestamp::now().as_microsecond()).unwrap_or_default();
        let mut metadata = Map::from_iter([
            ("name".to_owned(), json!(LEASE)),
            ("annotations".to_owned(), json!({UNCLOSED: names.join(" ")})),
        ]);
        // The first one of a process takes the Lease as it is.
        if let Some((version, _)) = &self.written {
            metadata.insert("resourceVersion".to_owned(), json!(version));
        }
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                "holderIdentity": self.holder,
                "leaseDurationSeconds": self.seconds,
                "renewTime": format!("{now:.6}"),
            },
        });
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let answer = in_time(self.api.patch(LEASE, &params, &Patch::Apply(&lease))).await;
        let (lease, restored) = match (&answer, &self.written) {
            (Err(HubError::Api(kube::Error::Api(refusal))), Some((_, last))) if refusal.code == 409 => {
                // A later one of this process may have arrived without its answer.
                let there = in_time(self.api.get(LEASE)).await?;
                let spec = there.spec.clone().unwrap_or_default();
                let is_own = spec.holder_identity.as_ref() == Some(&self.holder);
                (there, !is_own || spec.renew_time.is_none_or(|time| time.0 <= *last))
            }
            _ => (answer?, false),
        };
        let version = lease.metadata.resource_version.unwrap_or_default();
        let time = lease.spec.and_then(|spec| spec.renew_time).map_or(now, |time| time.0);
        self.written = Some((version, time));
        Ok(if restored { Renewed::Restored } else { Renewed::Later })
    }
}

/// What is seen of a heartbeat from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beat {
    /// Another one after every beat.
    pub renewed: Option<String>,
    /// The gates that have to be closed and could not be; one with the name
    /// [`EVERY`](statusbridge_core::reconcile::heartbeat::EVERY) is all of a namespace.
    pub unclosed: BTreeSet<Key>,
}

/// Reads the heartbeat; `None` when there never was one.
pub async fn read(client: &Client, namespace: &str) -> Result<Option<Beat>, HubError> {
    let api = Api::<Lease>::namespaced(client.clone(), namespace);
    let lease = in_time(api.get_opt(LEASE)).await?;
    Ok(lease.map(|lease| {
        let named = lease.metadata.annotations.and_then(|mut all| all.remove(UNCLOSED)).unwrap_or_default();
        let key =
            |(namespace, name): (&str, &str)| Key { namespace: namespace.to_owned(), name: name.to_owned() };
        let spec = lease.spec.unwrap_or_default();
        Beat {
            renewed: spec
                .renew_time
                .map(|time| format!("{} {}", spec.holder_identity.unwrap_or_default(), time.0)),
            unclosed: named.split(' ').filter_map(|name| name.split_once('/')).map(key).collect(),
        }
    }))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use kube::client::Body;

    use super::*;

    #[tokio::test]
    async fn without_a_sweeper_it_comes_once_all_gates_are_closed() {
        let hub = tower::service_fn(async |_: Request<Body>| {
            let lease = json!({"metadata": {"name": LEASE, "resourceVersion": "1"}}).to_string();
            Ok::<_, Infallible>(Response::new(Body::from(lease.into_bytes())))
        });
        let client = Client::new(hub, "default");
        let with = || Heartbeat::new(client.clone(), NAMESPACE, "me".to_owned(), 60);
        let key = |name: &str| Key { namespace: "fleet".to_owned(), name: name.to_owned() };
        let unclosed = BTreeSet::from([key("wave-1"), key("wave-2")]);
        assert_eq!(with().beat(&unclosed).await.unwrap(), Renewed::Later);
        let mut without = with().without_sweeper();
        let error = without.beat(&unclosed).await.unwrap_err().to_string();
        assert!(error.ends_with("could not be written: fleet/wave-1, fleet/wave-2"), "{error}");
        assert_eq!(without.beat(&BTreeSet::new()).await.unwrap(), Renewed::Later);
    }
}
