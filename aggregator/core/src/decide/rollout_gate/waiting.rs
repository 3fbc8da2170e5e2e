//! What a gate waits for, in words.

use statusbridge_api::rollout_gate::Waiting;
use statusbridge_api::{Reason, RolloutGateSpec};
use statusbridge_contract::{Fingerprint, wanted};

use super::{Input, Terms};
use crate::decide::words::{lasting, named, phrase};
use crate::decide::{Target, clusters, list, revisions, shorten, time};
use crate::time::Seconds;

/// Most clusters that one `waitingFor` entry names.
pub(super) const MOST_CLUSTERS: usize = 10;

/// One `waitingFor` entry: the clusters that are in one state, or all that have failed.
pub(super) fn entry(
    input: &Input<'_>,
    spec: &RolloutGateSpec,
    terms: &Terms<'_>,
    state: Reason,
    group: &[(Reason, &Target)],
) -> Waiting {
    let count = group.len() as u64;
    let name = |(reason, target): &(Reason, &Target)| match (state, reason) {
        (Reason::FailureBudgetExceeded, Reason::TimeOut) => format!("{} (TimeOut)", target.cluster),
        _ => named(*reason, target),
    };
    let names: Vec<String> = group.iter().map(name).collect();
    let plain = format!("{}: {}", phrase(state, count), list(&names));
    let last_since = if state == Reason::Soaking { last_since(group) } else { None };
    let (reason, message) = match state {
        Reason::FailureBudgetExceeded => {
            let message = format!("{} failed, {} allowed: {}", clusters(count), terms.budget, list(&names));
            let unknown =
                group.iter().any(|(reason, _)| *reason == Reason::TimeOut) && !(input.seen_anywhere)();
            let why = unknown.then(|| never_seen(input, spec, terms.demand.revision));
            (state, why.map_or(message.clone(), |why| format!("{message}; {why}")))
        }
        Reason::NotUpdated if !(input.seen_anywhere)() => {
            (Reason::RevisionNeverSeen, never_seen(input, spec, terms.demand.revision))
        }
        Reason::Stale => match input.backend.error() {
            Some(error) => {
                (state, format!("{plain}; the metrics backend does not answer: {}", shorten(error)))
            }
            None => (state, plain),
        },
        Reason::Unverified | Reason::Conflict => {
            let example = group.first().map_or("", |(_, target)| lasting(&target.observation.message));
            (state, if example.is_empty() { plain } else { format!("{plain}; {}", shorten(example)) })
        }
        Reason::Soaking => {
            let since = last_since.map(|since| format!("; the last since {}", time(since).0));
            (state, plain + &since.unwrap_or_default())
        }
        _ => (state, plain),
    };
    Waiting {
        reason: reason.name().to_owned(),
        message,
        count,
        until: last_since.map(|since| time(since + terms.demand.min_success)),
        clusters: group.iter().take(MOST_CLUSTERS).map(|(_, target)| target.cluster.clone()).collect(),
    }
}

/// Since when the last cluster is as it is.
fn last_since(group: &[(Reason, &Target)]) -> Option<Seconds> {
    let since = group.iter().filter_map(|(_, target)| Some(target.observation.row.as_ref()?.since));
    since.reduce(Seconds::max)
}

fn never_seen(input: &Input<'_>, spec: &RolloutGateSpec, wanted: Fingerprint) -> String {
    let mut seen: Vec<_> = revisions(input.targets).into_iter().collect();
    seen.sort_by_key(|(revision, (applied, _))| (std::cmp::Reverse(*applied), *revision));
    let instead: Vec<String> =
        seen.iter().map(|(revision, (applied, _))| format!("{revision} in {}", clusters(*applied))).collect();
    let instead =
        if instead.is_empty() { String::new() } else { format!("; seen instead: {}", list(&instead)) };
    // As it is compared, unless the spec writes it so.
    let short = if spec.revision == wanted.to_string() { String::new() } else { format!(" ({wanted})") };
    let doubt = wanted::doubt(&spec.revision).map(|doubt| format!("; {doubt}")).unwrap_or_default();
    format!("no cluster has reported revision {}{short}{instead}{doubt}", shorten(&spec.revision))
}
