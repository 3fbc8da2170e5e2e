//! What a status says in words.

use statusbridge_api::Reason;

use super::{Target, clusters};
use crate::fleet::observation::reason::{CLUSTER_NAME_UNKNOWN, CONTROL_PLANE_UNHEALTHY, SCRAPE_FAILED};

/// Why nothing is heard of a cluster, where a status tells the message too.
pub(crate) const EXPLAINED: [&str; 3] = [CLUSTER_NAME_UNKNOWN, CONTROL_PLANE_UNHEALTHY, SCRAPE_FAILED];

/// What is the matter with so many clusters, in words.
pub(super) fn phrase(reason: Reason, count: u64) -> String {
    let (is, has) = if count == 1 { ("is", "has") } else { ("are", "have") };
    let n = clusters(count);
    match reason {
        Reason::Failed => format!("{n} failed"),
        Reason::Conflict => format!("{n} {has} conflicting reports"),
        Reason::ClockSkew => format!("{n} {has} a clock that cannot be believed"),
        Reason::Unverified => format!("{n} cannot be verified"),
        Reason::Stale => format!("{n} not heard from in time"),
        Reason::Missing => format!("{n} {} not report the package", if count == 1 { "does" } else { "do" }),
        Reason::TimeOut => format!("{n} not at the revision by the deadline"),
        Reason::Superseded => format!("{n} {has} moved on to another revision"),
        Reason::NotUpdated => format!("{n} not at the revision yet"),
        Reason::Paused => format!("{n} {is} paused"),
        Reason::Deleting => format!("{n} {is} deleting the package"),
        Reason::HealthUnknown => format!("{n} cannot tell the package's health"),
        Reason::Soaking => format!("{n} healthy, but not for long enough yet"),
        _ => format!("{n} in progress"),
    }
}

/// The cluster's name, and for a failure the package's own word for it; for one that is not heard
/// from what its ClusterProfile says, or why it cannot be scraped.
pub(super) fn named(reason: Reason, target: &Target) -> String {
    let seen = &target.observation;
    let word = match reason {
        Reason::Failed | Reason::HealthUnknown => seen.row.as_ref().and_then(|row| row.reason.as_deref()),
        Reason::Stale | Reason::Missing if EXPLAINED.contains(&seen.reason) => {
            Some(seen.message.as_str()).filter(|message| !message.is_empty())
        }
        _ => None,
    };
    match word {
        Some(word) => format!("{} ({word})", target.cluster),
        None => target.cluster.clone(),
    }
}

/// What an observation says besides an age: a text that grows older with every poll would be
/// written at every poll.
pub(crate) fn lasting(message: &str) -> &str {
    match message.split_once("; ") {
        Some((age, rest)) if age.ends_with(" old") || age.ends_with("verified") => rest,
        _ => message,
    }
}
