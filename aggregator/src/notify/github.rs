//! GitHub: a status of the commit, and a deployment of it with its status.

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use statusbridge_core::decide::transition::Outcome;

use super::commit::Commit;
use super::http::{Failure, Http, send};
use super::message::Message;
use super::settings::Forge;

/// Most characters of a description.
const MOST_DESCRIPTION: usize = 140;

/// Tells of a commit. `steps` says how much of it was done before, and is kept up.
///
/// # Errors
/// When GitHub does not take it.
pub(super) async fn tell(
    http: &Http,
    forge: &Forge,
    message: &Message,
    commit: &Commit,
    steps: &mut u32,
) -> Result<(), Failure> {
    let (owner, name) = forge.repository.split_once('/').unwrap_or_default();
    let within = |rest: &[&'static str]| [&["repos", owner, name][..], rest].concat();
    if forge.commit_statuses && *steps == 0 {
        let path = [&within(&["statuses"])[..], &[commit.sha.as_str()]].concat();
        let request = request(http, forge, Method::POST, &path, &[]).await?;
        send(request.json(&commit_status(message))).await?;
        *steps = 1;
    }
    if !forge.deployments {
        return Ok(());
    }
    let environment: &str = &forge.environment(message);
    // Only the answer may have been lost.
    let query = [("sha", commit.sha.as_str()), ("environment", environment), ("per_page", "1")];
    let request_for = request(http, forge, Method::GET, &within(&["deployments"]), &query).await?;
    let known = send(request_for).await?;
    let deployment = match known.get(0) {
        Some(known) => known.clone(),
        None => {
            let request = request(http, forge, Method::POST, &within(&["deployments"]), &[]).await?;
            send(request.json(&deployment(message, commit, environment))).await?
        }
    };
    let Some(id) = deployment.get("id").and_then(Value::as_u64) else {
        return Err(Failure::Never("GitHub's answer has no `id` of a deployment".to_owned()));
    };
    let id = id.to_string();
    let path = [&within(&["deployments"])[..], &[id.as_str(), "statuses"]].concat();
    let request = request(http, forge, Method::POST, &path, &[]).await?;
    send(request.json(&deployment_status(message, environment))).await.map(drop)
}

async fn request(
    http: &Http,
    forge: &Forge,
    method: Method,
    path: &[&str],
    query: &[(&str, &str)],
) -> Result<RequestBuilder, Failure> {
    let request = http.authorized(&forge.token_file, method, path, query).await?;
    Ok(request.header("accept", "application/vnd.github+json").header("x-github-api-version", "2022-11-28"))
}

fn commit_status(message: &Message) -> Value {
    let state = match message.outcome {
        Outcome::Started => "pending",
        Outcome::Succeeded => "success",
        Outcome::Failed => "failure",
    };
    json!({
        "state": state,
        "context": format!("statusbridge/{}/{}", message.namespace, message.label()),
        "description": message.line(MOST_DESCRIPTION),
    })
}

fn deployment(message: &Message, commit: &Commit, environment: &str) -> Value {
    json!({
        "ref": commit.sha,
        "environment": environment,
        "description": format!("{} of {}", message.fleet_package, message.namespace),
        // It runs already: nothing is to be merged or waited for.
        "auto_merge": false,
        "required_contexts": [],
    })
}

fn deployment_status(message: &Message, environment: &str) -> Value {
    let state = match message.outcome {
        Outcome::Started => "in_progress",
        Outcome::Succeeded => "success",
        Outcome::Failed => "failure",
    };
    json!({
        "state": state,
        "environment": environment,
        "description": message.line(MOST_DESCRIPTION),
    })
}

#[cfg(test)]
mod tests {
    use super::super::message::tests::message;
    use super::*;

    #[test]
    fn what_github_is_told() {
        let message = message(Outcome::Succeeded, 1);
        let commit = message.commit.clone().unwrap();
        let all = [
            commit_status(&message),
            deployment(&message, &commit, "payments-wave-1"),
            deployment_status(&message, "payments-wave-1"),
        ];
        insta::assert_snapshot!(serde_json::to_string_pretty(&all).unwrap());
    }

    #[test]
    fn a_description_is_no_longer_than_github_takes() {
        let message = Message { text: "\u{e9}".repeat(300), ..message(Outcome::Failed, 1) };
        assert_eq!(
            commit_status(&message)["description"].as_str().unwrap().chars().count(),
            MOST_DESCRIPTION
        );
    }
}
