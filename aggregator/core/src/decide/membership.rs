//! Whether the targets of an object are all the clusters that its spec means.

use statusbridge_api::Reason;

use super::{Backend, Moment, list, shorten};
use crate::time::Seconds;

/// Whether the targets are all that the spec means.
#[derive(Debug, Clone, PartialEq)]
pub enum Membership {
    /// They are.
    Known,
    /// They were when ClusterProfiles could last be read.
    Outdated {
        /// When that ended, by the wall clock.
        since: Seconds,
        /// Why.
        error: String,
    },
    /// ClusterProfiles have not been read yet, for this reason: there are no targets.
    Unlisted(String),
    /// There are no ClusterProfiles to select from.
    NotInstalled,
    /// The namespace may not see what is meant, for this reason: there are no targets.
    Forbidden(String),
}

/// Why there is nothing to judge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    /// The reason.
    pub reason: Reason,
    /// The same in words.
    pub message: String,
    /// Only a person can change it.
    pub stalled: bool,
}

/// Says that ClusterProfiles leave doubt about which clusters they mean, if some do.
pub(crate) fn unclear_profiles(clusters: &[String]) -> Option<String> {
    (!clusters.is_empty()).then(|| format!("ClusterProfiles leave doubt about {}", list(clusters)))
}

impl Membership {
    /// Why there is nothing to judge, if there is nothing.
    pub(crate) fn obstacle(&self) -> Option<Obstacle> {
        let (reason, message, stalled) = match self {
            Self::Known | Self::Outdated { .. } => return None,
            Self::Unlisted(error) => (
                Reason::ClusterProfilesUnavailable,
                format!("ClusterProfiles cannot be read: {error}"),
                false,
            ),
            Self::NotInstalled => (
                Reason::ClusterProfilesUnavailable,
                "the hub does not serve ClusterProfiles (multicluster.x-k8s.io), so nothing can be selected"
                    .to_owned(),
                false,
            ),
            Self::Forbidden(refusal) => (Reason::Forbidden, refusal.clone(), true),
        };
        Some(Obstacle { reason, message: shorten(&message), stalled })
    }

    /// Whether something that is needed has not been read once since the start.
    pub(super) fn is_unread(&self, backend: Backend<'_>) -> bool {
        match self {
            Self::Unlisted(_) => true,
            Self::NotInstalled | Self::Forbidden(_) => false,
            Self::Known | Self::Outdated { .. } => matches!(backend, Backend::Unknown(_)),
        }
    }

    /// What is to be said along with a judgement, because clusters may have joined unseen.
    pub(crate) fn doubt(&self) -> Option<String> {
        match self {
            Self::Outdated { error, .. } => Some(shorten(&format!(
                "the list of clusters may be out of date, ClusterProfiles cannot be read: {error}"
            ))),
            _ => None,
        }
    }

    /// Whether the doubt forbids a good verdict: always one that was not good before, and in the end
    /// also one that was, since membership is evidence that ages as any other.
    pub(super) fn forbids(&self, was_good: bool, moment: Moment, stale_after: Seconds) -> bool {
        match self {
            Self::Outdated { since, .. } => !was_good || moment.now - since > stale_after,
            _ => false,
        }
    }
}
