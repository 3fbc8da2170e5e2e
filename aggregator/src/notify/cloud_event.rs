//! CloudEvents 1.0 in structured mode, whose data is a CDEvent: a rollout is a pipeline run, a wave a task run of it.

use reqwest::Method;
use reqwest::header::CONTENT_TYPE;
use ring::hmac;
use serde_json::{Value, json};
use statusbridge_core::decide::transition::Outcome;

use super::http::{Failure, Http, secret, send};
use super::message::{About, Message};
use super::settings::Target;

/// Version of the CDEvents specification, and of the events of it.
const CD_EVENTS: &str = "0.4.1";
const EVENT: &str = "0.2.0";
/// Header of the signature: HMAC-SHA256 of the body, as hex digits.
const SIGNATURE: &str = "x-signature";

/// Sends a message to a webhook.
///
/// # Errors
/// When the receiver does not take it.
pub(super) async fn tell(http: &Http, target: &Target, message: &Message) -> Result<(), Failure> {
    let Target::Webhook { secret_file, token_file, .. } = target else { return Ok(()) };
    let body = payload(message).to_string();
    let mut request =
        http.request(Method::POST, &[], &[]).await?.header(CONTENT_TYPE, "application/cloudevents+json");
    if let Some(file) = secret_file {
        request = request.header(SIGNATURE, signature(&secret(file).await?, body.as_bytes()));
    }
    if let Some(file) = token_file {
        request = request.bearer_auth(secret(file).await?);
    }
    send(request.body(body)).await.map(drop)
}

fn signature(key: &str, body: &[u8]) -> String {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes()), body);
    let digits: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256={digits}")
}

/// The CloudEvent.
fn payload(message: &Message) -> Value {
    let (namespace, name) = (&message.namespace, &message.name);
    let subject = format!("{}/{namespace}/{name}", message.about.kind());
    let (subject_type, predicate) = match (message.about, message.outcome) {
        (About::RolloutGate, Outcome::Started) => ("taskRun", "taskrun.started"),
        (About::RolloutGate, _) => ("taskRun", "taskrun.finished"),
        (About::FleetPackage | About::FleetRollout, Outcome::Started) => {
            ("pipelineRun", "pipelinerun.started")
        }
        (About::FleetPackage | About::FleetRollout, _) => ("pipelineRun", "pipelinerun.finished"),
    };
    let kind = format!("dev.cdevents.{predicate}.{EVENT}");
    let source = format!("/statusbridge/{namespace}");
    let run = format!("{subject}/{}", message.revision);
    let mut content = match message.about {
        About::RolloutGate => {
            let (about, of) = match &message.fleet_rollout {
                Some(rollout) => (About::FleetRollout, rollout),
                None => (About::FleetPackage, &message.fleet_package),
            };
            let id = format!("{}/{namespace}/{of}/{}", about.kind(), message.revision);
            json!({"taskName": name, "pipelineRun": {"id": id, "source": source}})
        }
        About::FleetPackage | About::FleetRollout => json!({"pipelineName": name}),
    };
    let result = match message.outcome {
        Outcome::Started => None,
        Outcome::Succeeded => Some("success"),
        Outcome::Failed => Some("failure"),
    };
    if let (Some(outcome), Some(content)) = (result, content.as_object_mut()) {
        content.insert("outcome".to_owned(), json!(outcome));
        if message.outcome == Outcome::Failed {
            content.insert("errors".to_owned(), json!(message.text));
        }
    }
    json!({
        "specversion": "1.0",
        "id": message.id,
        "source": source,
        "type": kind,
        "subject": run,
        "time": message.time(),
        "datacontenttype": "application/json",
        "data": {
            "context": {
                "version": CD_EVENTS,
                "id": message.id,
                "source": source,
                "type": kind,
                "timestamp": message.time(),
            },
            "subject": {"id": run, "source": source, "type": subject_type, "content": content},
            "customDataContentType": "application/json",
            "customData": {
                "kind": message.about.kind(),
                "namespace": namespace,
                "name": name,
                "fleetPackage": message.fleet_package,
                "fleetRollout": message.fleet_rollout,
                "package": message.package,
                "revision": message.revision,
                "commit": message.commit.as_ref().map(|commit| &commit.sha),
                "outcome": message.outcome,
                "reason": message.reason,
                "message": message.text,
                "healthy": message.healthy.map(|(healthy, _)| healthy),
                "clusters": message.healthy.map(|(_, total)| total),
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::super::message::tests::message;
    use super::*;

    #[test]
    fn the_signature_is_that_of_rfc_4231() {
        let expected = "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(signature("Jefe", b"what do ya want for nothing?"), expected);
    }

    #[test]
    fn what_a_wave_that_opens_looks_like() {
        insta::assert_snapshot!(
            serde_json::to_string_pretty(&payload(&message(Outcome::Succeeded, 1_764_000_000))).unwrap()
        );
    }

    #[test]
    fn what_a_package_that_fails_looks_like() {
        let message = Message {
            about: About::FleetPackage,
            name: "payments".to_owned(),
            reason: "Failed".to_owned(),
            text: "1 cluster failed: eu-2 (HealthCheckFailed)".to_owned(),
            healthy: Some((2, 3)),
            ..message(Outcome::Failed, 1_764_000_000)
        };
        insta::assert_snapshot!(serde_json::to_string_pretty(&payload(&message)).unwrap());
    }

    #[test]
    fn each_outcome_of_each_kind_has_its_event() {
        let mut all = Vec::new();
        for about in [About::RolloutGate, About::FleetPackage, About::FleetRollout] {
            for outcome in [Outcome::Started, Outcome::Succeeded, Outcome::Failed] {
                let payload = payload(&Message { about, ..message(outcome, 1) });
                let outcome = &payload["data"]["subject"]["content"]["outcome"];
                all.push(format!("{} {outcome}", payload["type"].as_str().unwrap()));
            }
        }
        insta::assert_snapshot!(all.join("\n"), @r#"
        dev.cdevents.taskrun.started.0.2.0 null
        dev.cdevents.taskrun.finished.0.2.0 "success"
        dev.cdevents.taskrun.finished.0.2.0 "failure"
        dev.cdevents.pipelinerun.started.0.2.0 null
        dev.cdevents.pipelinerun.finished.0.2.0 "success"
        dev.cdevents.pipelinerun.finished.0.2.0 "failure"
        dev.cdevents.pipelinerun.started.0.2.0 null
        dev.cdevents.pipelinerun.finished.0.2.0 "success"
        dev.cdevents.pipelinerun.finished.0.2.0 "failure"
        "#);
    }

    #[test]
    fn a_wave_of_a_rollout_is_a_task_of_that_run() {
        let rollout = Some("payments".to_owned());
        let wave = Message { fleet_rollout: rollout.clone(), ..message(Outcome::Started, 1) };
        let (name, about) = ("payments".to_owned(), About::FleetRollout);
        let run = payload(&Message { about, name, ..wave.clone() });
        let wave = payload(&wave);
        assert_eq!(wave["data"]["subject"]["content"]["pipelineRun"]["id"], run["data"]["subject"]["id"]);
        assert_eq!(run["data"]["subject"]["content"], json!({"pipelineName": "payments"}));
        assert_eq!(run["data"]["customData"]["fleetRollout"], "payments");
    }
}
