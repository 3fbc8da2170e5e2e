//! Which commit a revision is of.

use serde::{Deserialize, Serialize};
use statusbridge_api::trace::StageStatus;
use statusbridge_contract::Fingerprint;

/// A commit, and the branch or tag before it, if the revision names one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Commit {
    /// 40 hex digits.
    pub(super) sha: String,
    pub(super) branch: Option<String>,
}

/// The commit that a revision names; or, where the revision is an artifact that a stage of the trace takes in or gives on,
/// the one that is traced there.
pub(super) fn commit(revision: &str, trace: &[StageStatus]) -> Option<Commit> {
    let traced = || {
        let artifact = Fingerprint::of(revision).to_string();
        let stage = trace.iter().find(|stage| {
            let is_it = |known: &Option<String>| known.as_ref() == Some(&artifact);
            is_it(&stage.input) || is_it(&stage.output)
        });
        named(&stage?.revision)
    };
    named(revision).or_else(traced)
}

/// `main@sha1:<40 hex>`, `sha1:<40 hex>` or the digits alone. Digests of images are no commits.
fn named(revision: &str) -> Option<Commit> {
    let (before, sha) = match revision.rsplit_once("sha1:") {
        Some((before, sha)) => (before, sha),
        None => ("", revision),
    };
    let is_sha = sha.len() == 40 && sha.bytes().all(|byte| byte.is_ascii_hexdigit());
    let branch = before.strip_suffix('@').unwrap_or(before);
    is_sha.then(|| Commit {
        sha: sha.to_ascii_lowercase(),
        branch: Some(branch).filter(|branch| !branch.is_empty()).map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const SHA: &str = "4f0e2a91c3d5b7e6f80912a4b6c8d0e2f4a6b8c0";
    const IMAGE: &str = "registry.example.com/payments@sha256:5555555555555555555555555555555555555555555555555555555555555555";

    fn stage() -> StageStatus {
        StageStatus {
            revision: format!("main@sha1:{SHA}"),
            input: Some("4f0e2a91c3d5".to_owned()),
            output: Some(Fingerprint::of(IMAGE).to_string()),
            ..StageStatus::default()
        }
    }

    #[rstest]
    #[case::with_a_branch(&format!("main@sha1:{SHA}"), Some(Some("main")))]
    #[case::with_a_branch_that_has_slashes(&format!("feature/x@sha1:{SHA}"), Some(Some("feature/x")))]
    #[case::without_a_branch(&format!("sha1:{SHA}"), Some(None))]
    #[case::alone(SHA, Some(None))]
    #[case::in_capitals(&SHA.to_ascii_uppercase(), Some(None))]
    #[case::too_short("main@sha1:4f0e2a9", None)]
    #[case::a_version("1.2.3", None)]
    #[case::a_digest(IMAGE, None)]
    #[case::forty_letters_that_are_no_digits(&"z".repeat(40), None)]
    fn what_a_revision_names(#[case] revision: &str, #[case] branch: Option<Option<&str>>) {
        let found = commit(revision, &[]);
        assert_eq!(found.as_ref().map(|it| it.branch.as_deref()), branch);
        assert!(found.is_none_or(|it| it.sha == SHA));
    }

    #[rstest]
    #[case::what_the_stage_made(IMAGE, true)]
    #[case::what_it_took_in("4f0e2a91c3d5", true)]
    #[case::something_else("1.2.3", false)]
    fn an_artifact_is_of_the_commit_that_it_was_traced_from(#[case] revision: &str, #[case] is_traced: bool) {
        assert_eq!(commit(revision, &[stage()]).map(|it| it.sha), is_traced.then(|| SHA.to_owned()));
    }
}
