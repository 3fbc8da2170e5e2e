//! GitLab: a status of the commit, and a deployment of it.

use reqwest::Method;
use serde_json::{Value, json};
use statusbridge_core::decide::transition::Outcome;

use super::commit::Commit;
use super::http::{Failure, Http, send};
use super::message::Message;
use super::settings::Forge;

/// Most characters of a description.
const MOST_DESCRIPTION: usize = 255;

/// Tells of a commit. `steps` says how much of it was done before, and is kept up.
///
/// # Errors
/// When GitLab does not take it.
pub(super) async fn tell(
    http: &Http,
    forge: &Forge,
    message: &Message,
    commit: &Commit,
    steps: &mut u32,
) -> Result<(), Failure> {
    let project = ["projects", forge.repository.as_str()];
    if forge.commit_statuses && *steps == 0 {
        let path = [&project[..], &["statuses", &commit.sha]].concat();
        let request = http.authorized(&forge.token_file, Method::POST, &path, &[]).await?;
        told(send(request.json(&commit_status(message))).await)?;
        *steps = 1;
    }
    if !forge.deployments {
        return Ok(());
    }
    let environment: &str = &forge.environment(message);
    let path = [&project[..], &["deployments"]].concat();
    let query = [("environment", environment), ("order_by", "id"), ("sort", "desc"), ("per_page", "20")];
    let newest = send(http.authorized(&forge.token_file, Method::GET, &path, &query).await?).await?;
    let status = state(message.outcome);
    match known(&newest, &commit.sha, status) {
        // Only the answer was lost.
        Known::Told => Ok(()),
        Known::Goes(id) => {
            let id = id.to_string();
            let path = [&path[..], &[id.as_str()]].concat();
            let request = http.authorized(&forge.token_file, Method::PUT, &path, &[]).await?;
            told(send(request.json(&json!({"status": status}))).await)
        }
        Known::Nothing => {
            let request = http.authorized(&forge.token_file, Method::POST, &path, &[]).await?;
            send(request.json(&deployment(message, commit, environment))).await.map(drop)
        }
    }
}

/// GitLab refuses to set what is set already.
fn told(answer: Result<Value, Failure>) -> Result<(), Failure> {
    match answer {
        Err(Failure::Never(error)) if error.to_lowercase().contains("cannot transition status") => Ok(()),
        answer => answer.map(drop),
    }
}

/// What GitLab knows of a commit in an environment.
#[derive(Debug, PartialEq)]
enum Known {
    /// No deployment that could go on.
    Nothing,
    /// This one is under way.
    Goes(u64),
    /// The newest says the same already.
    Told,
}

/// By the newest deployments, the newest first.
fn known(deployments: &Value, sha: &str, status: &str) -> Known {
    let of_commit = |it: &&Value| it.get("sha").and_then(Value::as_str) == Some(sha);
    let newest = deployments.as_array().and_then(|all| all.iter().find(of_commit));
    let Some(newest) = newest else { return Known::Nothing };
    match (newest.get("status").and_then(Value::as_str), newest.get("id").and_then(Value::as_u64)) {
        (Some(known), _) if known == status => Known::Told,
        (Some("created" | "running"), Some(id)) => Known::Goes(id),
        _ => Known::Nothing,
    }
}

/// GitLab's word, the same for commits and deployments.
const fn state(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Started => "running",
        Outcome::Succeeded => "success",
        Outcome::Failed => "failed",
    }
}

fn commit_status(message: &Message) -> Value {
    json!({
        "state": state(message.outcome),
        "name": format!("statusbridge/{}/{}", message.namespace, message.label()),
        "description": message.line(MOST_DESCRIPTION),
    })
}

fn deployment(message: &Message, commit: &Commit, environment: &str) -> Value {
    json!({
        "environment": environment,
        "sha": commit.sha,
        "ref": commit.branch.as_ref().unwrap_or(&commit.sha),
        "tag": false,
        "status": state(message.outcome),
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::message::tests::message;
    use super::*;

    #[test]
    fn what_gitlab_is_told() {
        let message = message(Outcome::Failed, 1);
        let commit = message.commit.clone().unwrap();
        let all = [commit_status(&message), deployment(&message, &commit, "production")];
        insta::assert_snapshot!(serde_json::to_string_pretty(&all).unwrap());
    }

    #[rstest]
    #[case::nothing_yet(json!([]), Known::Nothing)]
    #[case::of_another_commit(json!([{"id": 1, "sha": "b", "status": "running"}]), Known::Nothing)]
    #[case::under_way(json!([{"id": 2, "sha": "a", "status": "running"}]), Known::Goes(2))]
    #[case::told_already(json!([{"id": 2, "sha": "a", "status": "success"}]), Known::Told)]
    #[case::over_in_another_way(json!([{"id": 2, "sha": "a", "status": "failed"}]), Known::Nothing)]
    #[case::the_newest_counts(json!([{"id": 3, "sha": "a", "status": "running"}, {"id": 2, "sha": "a", "status": "success"}]), Known::Goes(3))]
    #[case::no_answer(json!({"message": "?"}), Known::Nothing)]
    fn what_gitlab_knows(#[case] deployments: Value, #[case] expected: Known) {
        assert_eq!(known(&deployments, "a", "success"), expected);
    }

    #[rstest]
    #[case::the_same_again(
        "HTTP 400: {\"message\":\"Cannot transition status via :run from :running\"}",
        true
    )]
    #[case::a_refusal("HTTP 400: {\"message\":\"name is missing\"}", false)]
    fn to_say_the_same_again_is_no_failure(#[case] error: &str, #[case] expected: bool) {
        assert_eq!(told(Err(Failure::Never(error.to_owned()))).is_ok(), expected);
    }
}
