//! The clusters that a gate keeps to when it freezes them.
//!
//! ```text
//!   first judgement of a revision ──fixing──> status.members, closed ──written──> judged by these alone
//! ```
//!
//! They are fixed only when all that are meant are known: one that is left out would be so for as long as the revision
//! lasts. What a gate names is fixed by itself.

use std::collections::BTreeSet;

use statusbridge_api::common::{MOST_NAMES, MOST_OF_NAMES};
use statusbridge_api::rollout_gate::{Members, Newcomers};
use statusbridge_api::{LabelSelector, Reason, RolloutGateSpec, RolloutGateStatus};
use statusbridge_contract::Fingerprint;

use super::Input;
use super::waiting::MOST_CLUSTERS;
use crate::decide::{Membership, clusters, shorten, time, unclear_profiles};
use crate::fleet::observation::reason;

/// Newcomers that a message names.
const NAMED: usize = 3;

/// What is to be done about the members of a gate.
pub(super) enum Fixing {
    /// Nothing: it freezes none, or they are fixed already.
    Nothing,
    /// These are the members from now on.
    Now(Members),
    /// They cannot be fixed now, for this reason.
    Cannot(Reason, String),
}

/// The selector whose clusters a gate freezes.
fn frozen(spec: &RolloutGateSpec) -> Option<&LabelSelector> {
    spec.clusters.selector.as_ref().filter(|_| spec.clusters.freeze)
}

/// Stands for a revision and a selector.
fn of(spec: &RolloutGateSpec, selector: &LabelSelector) -> String {
    let selector = serde_json::to_string(selector).unwrap_or_default();
    Fingerprint::of(&format!("{} {selector}", Fingerprint::of(&spec.revision))).to_string()
}

/// The members of a gate that were fixed for its revision and its selector.
pub fn kept_members<'a>(
    spec: &RolloutGateSpec,
    status: Option<&'a RolloutGateStatus>,
) -> Option<&'a Members> {
    let selector = frozen(spec)?;
    let members = status?.members.as_ref()?;
    (members.of == of(spec, selector) && !members.clusters.is_empty()).then_some(members)
}

/// Whether a gate freezes its members and they are not fixed yet.
pub(super) fn are_missing(input: &Input<'_>, spec: &RolloutGateSpec) -> bool {
    frozen(spec).is_some() && kept_members(spec, input.previous).is_none()
}

/// What is to be done about the members of a gate that can be judged.
pub(super) fn fixing(input: &Input<'_>, spec: &RolloutGateSpec) -> Fixing {
    let Some(selector) = frozen(spec).filter(|_| are_missing(input, spec)) else { return Fixing::Nothing };
    if *input.membership != Membership::Known {
        // Why is said of every gate.
        return Fixing::Nothing;
    }
    let excused = input.excused.targets().iter().map(|it| &it.target);
    let all: Vec<_> = input.targets.iter().chain(excused).collect();
    let is_unclear =
        |seen: &str| [reason::CLUSTER_NAME_UNKNOWN, reason::CLUSTER_PROFILE_CONFLICT].contains(&seen);
    let unclear = all.iter().filter(|it| is_unclear(it.observation.reason));
    let unclear = unclear_profiles(&unclear.map(|it| it.cluster.clone()).collect::<Vec<_>>());
    let mut names: Vec<String> = all.iter().map(|it| it.cluster.clone()).collect();
    let bytes: usize = names.iter().map(String::len).sum();
    if let Some(error) = input.unheard {
        let message = format!("clusters cannot be frozen before every feed has answered: {}", shorten(error));
        Fixing::Cannot(Reason::BackendUnavailable, message)
    } else if let Some(unclear) = unclear {
        let message = format!("clusters cannot be frozen while {unclear}");
        Fixing::Cannot(Reason::ClusterProfilesUnavailable, message)
    } else if names.len() > MOST_NAMES || bytes > MOST_OF_NAMES {
        let message = format!(
            "{} with names of {bytes} bytes are selected, and at most {MOST_NAMES} with {MOST_OF_NAMES} can be frozen: make \
             several gates, or a FleetRollout, whose gates name the clusters of a wave",
            clusters(names.len() as u64)
        );
        Fixing::Cannot(Reason::InvalidSpec, message)
    } else if names.is_empty() {
        // That nobody is meant is said of every gate.
        Fixing::Nothing
    } else {
        names.sort_unstable();
        Fixing::Now(Members { of: of(spec, selector), since: time(input.moment.now), clusters: names })
    }
}

/// The members and the newcomers for the status; `fixed` are those that were fixed now.
pub(super) fn standing(input: &Input<'_>, fixed: Option<Members>) -> (Option<Members>, Option<Newcomers>) {
    let Ok(spec) = input.spec else {
        // A spec that cannot be read says nothing about them.
        let previous = input.previous;
        return previous.map(|it| (it.members.clone(), it.newcomers.clone())).unwrap_or_default();
    };
    match kept_members(spec, input.previous) {
        None => (fixed, None),
        Some(kept) => {
            let before = input.previous.and_then(|it| it.newcomers.clone());
            (Some(kept.clone()), input.selected.map_or(before, |selected| newcomers(kept, selected)))
        }
    }
}

fn newcomers(members: &Members, selected: &[String]) -> Option<Newcomers> {
    let members: BTreeSet<&String> = members.clusters.iter().collect();
    let joined: Vec<&String> = selected.iter().filter(|name| !members.contains(name)).collect();
    let clusters = joined.iter().take(MOST_CLUSTERS).map(|name| (*name).clone()).collect();
    (!joined.is_empty()).then_some(Newcomers { count: joined.len() as u64, clusters })
}

/// What is to be said of newcomers along with a verdict.
pub(super) fn words(newcomers: &Newcomers) -> String {
    let count = newcomers.count;
    let verb = if count == 1 { "waits" } else { "wait" };
    let named: Vec<&str> = newcomers.clusters.iter().take(NAMED).map(String::as_str).collect();
    let more = count.saturating_sub(named.len() as u64);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{} joined later and {verb} for the next revision: {}{more}", clusters(count), named.join(", "))
}
