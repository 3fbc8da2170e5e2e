//! `rollout pause` and `rollout resume`: `spec.paused`, and nothing else of the spec.

use anyhow::{Context, Result, bail};
use clap::Args;
use kube::api::{Api, DynamicObject};
use serde_json::json;
use statusbridge_aggregator::hub::write::{Written, in_time};
use statusbridge_core::reconcile::lazy_object::LazyObject;
use statusbridge_core::reconcile::object::{HubObject, Key, Kind, RolloutObject};

use super::one::not_found;
use super::text::head;
use crate::exit::Exit;
use crate::hub::{Access, Hub};
use crate::output::say;
use crate::rollout::Rollout;
use crate::target::name;
use crate::text::one_line;

/// Annotation of a FleetRollout: why somebody has paused it.
pub(super) const PAUSED_BECAUSE: &str = "statusbridge.dev/paused-because";
/// How often a write is tried again because the status has changed meanwhile.
const ATTEMPTS: usize = 10;
/// Most characters of a reason.
const LONGEST_REASON: usize = 1024;

/// Flags of `rollout pause`.
#[derive(Debug, Clone, Args)]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    which: WhichArgs,
    /// Why, for those who read it later: it becomes the annotation statusbridge.dev/paused-because
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    reason: Option<String>,
}

/// Flags of `rollout resume`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    which: WhichArgs,
}

#[derive(Debug, Clone, Args)]
struct WhichArgs {
    /// Name of the FleetRollout
    #[arg(value_parser = name)]
    rollout: String,
    /// Only say what would be done; the API server checks it, but keeps nothing
    #[arg(long)]
    dry_run: bool,
}

/// Reads a reason, as the API server takes it for an override.
///
/// # Errors
/// In words for a user, when it is empty or too long.
pub(super) fn reason(text: &str) -> Result<String, String> {
    match text.chars().count() {
        0 => Err("it must say something".to_owned()),
        1..=LONGEST_REASON => Ok(text.to_owned()),
        long => Err(format!("it has {long} characters, at most {LONGEST_REASON}")),
    }
}

/// Pauses it.
///
/// # Errors
/// When there is no such FleetRollout, it may not be changed, or somebody else changes it.
pub(super) async fn pause(access: &Access, args: PauseArgs) -> Result<Exit> {
    let done = "paused: no further cluster is admitted, and those that are admitted stay so";
    set(&access.connect().await?, args.which, true, args.reason, done).await
}

/// Resumes it.
///
/// # Errors
/// As [`pause`].
pub(super) async fn resume(access: &Access, args: ResumeArgs) -> Result<Exit> {
    let done = "resumed: clusters are admitted as its waves go on";
    set(&access.connect().await?, args.which, false, None, done).await
}

async fn set(hub: &Hub, args: WhichArgs, to: bool, because: Option<String>, done: &str) -> Result<Exit> {
    let key = Key { namespace: hub.namespace.clone(), name: args.rollout };
    let (first, why) = read(hub, &key).await?;
    let which = format!("rollout/{}", key.name);
    let shown = Rollout::of(&first, None, std::iter::empty(), hub.now().await?);
    let why = why.map(|why| format!(", paused because: {}", one_line(&why))).unwrap_or_default();
    say(&format!("{}{why}", head(&shown)));
    if shown.paused == to {
        say(&format!("{which} is {} already", if to { "paused" } else { "not paused" }));
        return Ok(Exit::Done);
    }
    let change = json!({
        "metadata": {"annotations": {PAUSED_BECAUSE: because}},
        "spec": {"paused": to},
    });
    let mut object = first.clone();
    for _ in 0..ATTEMPTS {
        let written = hub.patch(Kind::FleetRollout, &object.version(), change.clone(), args.dry_run).await;
        match written.with_context(|| format!("{which} could not be changed"))? {
            Written::Done(_) => {
                say(&format!("{which} {done}{}", if args.dry_run { " (dry run)" } else { "" }));
                return Ok(Exit::Done);
            }
            Written::Gone => return Err(not_found(&key)),
            Written::Conflict => object = read(hub, &key).await?.0,
        }
        // Its status may be written at any time, its spec by somebody else only.
        if (&object.uid, object.generation) != (&first.uid, first.generation) {
            bail!("somebody else has changed {which} meanwhile: look at it, and run this again");
        }
    }
    bail!("{which} keeps changing; tried {ATTEMPTS} times")
}

/// A FleetRollout, and why it is paused.
async fn read(hub: &Hub, key: &Key) -> Result<(RolloutObject, Option<String>)> {
    let resource = Kind::FleetRollout.resource();
    let rollouts = Api::<DynamicObject>::namespaced_with(hub.client.clone(), &key.namespace, &resource);
    let object = in_time(rollouts.get_opt(&key.name)).await.context("FleetRollout")?;
    let object = object.ok_or_else(|| not_found(key))?;
    let why = object.metadata.annotations.as_ref().and_then(|all| all.get(PAUSED_BECAUSE)).cloned();
    let read = RolloutObject::read(LazyObject::from(object)).ok_or_else(|| not_found(key))?;
    Ok((read, why))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    use http_body_util::{BodyExt, Full};
    use hyper::body::{Bytes, Incoming};
    use hyper::service::service_fn;
    use hyper::{Method, Request, Response};
    use hyper_util::rt::TokioIo;
    use kube::{Client, Config};
    use rstest::rstest;
    use serde_json::Value;

    use super::*;
    use crate::example;

    /// An API server whose FleetRollout changes once, before the first write: then it is of this generation.
    struct Server {
        generation: i64,
        version: u64,
        patches: Vec<Value>,
    }

    impl Server {
        fn answer(&mut self, method: &Method, path: &str, body: &[u8]) -> (u16, Value) {
            let mut object = example::rollout();
            object["metadata"]["resourceVersion"] = json!(self.version.to_string());
            object["metadata"]["generation"] = json!(if self.version == 1 { 1 } else { self.generation });
            if path == "/version" || *method == Method::GET {
                return (200, object);
            }
            let patch: Value = serde_json::from_slice(body).unwrap();
            let is_current = patch["metadata"]["resourceVersion"] == object["metadata"]["resourceVersion"];
            self.patches.push(patch);
            if self.version == 1 || !is_current {
                self.version = 2;
                let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                    "message": "the object has been modified", "reason": "Conflict", "code": 409});
                return (409, status);
            }
            (200, object)
        }
    }

    /// Starts it, and a client of it.
    async fn hub(server: Arc<Mutex<Server>>) -> Hub {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let server = server.clone();
                let service = service_fn(move |request: Request<Incoming>| {
                    let server = server.clone();
                    async move {
                        let (head, body) = request.into_parts();
                        let body = body.collect().await.unwrap().to_bytes();
                        let (code, answer) =
                            server.lock().unwrap().answer(&head.method, head.uri.path(), &body);
                        let answer = Full::new(Bytes::from(answer.to_string()));
                        Ok::<_, Infallible>(Response::builder().status(code).body(answer).unwrap())
                    }
                });
                let served = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                tokio::spawn(served);
            }
        });
        let config = Config::new(format!("http://{address}").parse().unwrap());
        Hub { client: Client::try_from(config).unwrap(), namespace: "fleet".to_owned() }
    }

    #[rstest]
    #[case::a_status_was_written(1, Ok(Exit::Done), 2)]
    #[case::somebody_else_has_changed_it(
        2,
        Err("somebody else has changed rollout/payments meanwhile: look at it, and run this again"),
        1
    )]
    #[tokio::test]
    async fn a_change_in_between_is_told(
        #[case] generation: i64,
        #[case] expected: Result<Exit, &str>,
        #[case] writes: usize,
    ) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let server = Arc::new(Mutex::new(Server { generation, version: 1, patches: Vec::new() }));
        let hub = hub(server.clone()).await;
        let which = WhichArgs { rollout: "payments".to_owned(), dry_run: false };
        let ended = set(&hub, which, true, Some("why".to_owned()), "paused").await;
        assert_eq!(ended.map_err(|error| error.to_string()), expected.map_err(str::to_owned));
        let patches = &server.lock().unwrap().patches;
        assert_eq!(patches.len(), writes);
        let first = json!({
            "metadata": {"uid": "uid of payments", "resourceVersion": "1", "annotations": {PAUSED_BECAUSE: "why"}},
            "spec": {"paused": true},
        });
        assert_eq!(patches[0], first);
    }
}
