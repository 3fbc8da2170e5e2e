//! How far each wave is, and what may be done next.

use super::*;

/// What comes of the waves.
pub(super) struct Progress<'a> {
    pub(super) waves: Vec<WaveStatus>,
    pub(super) steps: Vec<Step<'a>>,
    /// Why nothing goes on, if nothing does.
    pub(super) stop: Option<Obstacle>,
    /// The FleetPackage's clusters that are in no wave.
    pub(super) left_out: Vec<&'a str>,
}

/// Looks at the waves one after the other. `known` is the status, where it is about the same revision.
pub(super) fn of<'a>(
    input: &'a Input<'a>,
    spec: &FleetRolloutSpec,
    known: Option<&FleetRolloutStatus>,
) -> Progress<'a> {
    let gates = input.waves.iter().filter_map(|wave| wave.gate.as_ref());
    let mut taken: HashSet<&str> = gates.flat_map(|gate| gate.members.iter().copied()).collect();
    let mut stop = input.obstacle.clone().or_else(|| overlap(input, spec, &taken));
    // The clusters that no wave names or selects, and that no wave has taken yet.
    let mut rest: Result<Vec<&str>, &Obstacle> =
        input.rest.as_ref().map(|rest| rest.iter().copied().filter(|it| !taken.contains(it)).collect());
    let (mut statuses, mut steps) = (Vec::new(), Vec::new());
    // Whether the gates of all waves so far are open.
    let mut may_grow = stop.is_none() && !spec.paused && input.hold.is_none();
    for (at, (wave, plan)) in input.waves.iter().zip(&spec.waves).enumerate() {
        let before = known.and_then(|it| it.waves.iter().find(|before| before.name == plan.name));
        let passed =
            before.filter(|it| it.opened_at.is_some() && it.gate.is_none() && wave.explicit.is_none());
        let status = match (&wave.gate, passed) {
            (Some(gate), _) => started(input, (at, plan), gate, before, may_grow, &mut steps, &mut stop),
            // It was passed over: clusters that come later wait for the next revision.
            (None, Some(passed)) => passed.clone(),
            (None, None) => {
                let members = would_be(input, (wave, &plan.clusters), &mut taken, &mut rest, may_grow);
                let told =
                    before.filter(|it| it.gate.is_none()).and_then(|it| it.members_fingerprint.as_deref());
                pending(input, (at, &plan.name), wave, (members, told), may_grow, &mut steps, &mut stop)
            }
        };
        may_grow = may_grow && stop.is_none() && status.state == WaveState::Open;
        statuses.push(status);
    }
    if stop.is_none() && spec.paused {
        let message = "spec.paused is true: no further cluster is admitted".to_owned();
        stop = Some(Obstacle { reason: Reason::GatePaused, message, stalled: false });
    }
    stop = stop.or_else(|| input.hold.clone()).or_else(|| input.refusal.clone());
    // Nothing goes on beside what only a person can change.
    if stop.as_ref().is_some_and(|stop| stop.stalled) {
        steps.clear();
    }
    let mut left_out = rest.unwrap_or_default();
    left_out.sort_unstable();
    Progress { waves: statuses, steps, stop, left_out }
}

/// That two waves that have not started name or select the same clusters, if they do. It is not guessed which is meant.
fn overlap(input: &Input<'_>, spec: &FleetRolloutSpec, taken: &HashSet<&str>) -> Option<Obstacle> {
    let mut seen = BTreeMap::<&str, &str>::new();
    let mut twice = Vec::new();
    for (wave, plan) in input.waves.iter().zip(&spec.waves).filter(|(wave, _)| wave.gate.is_none()) {
        for cluster in wave.explicit.iter().flatten().flatten().filter(|it| !taken.contains(*it)) {
            if let Some(other) = seen.insert(cluster, &plan.name).filter(|other| *other != plan.name) {
                twice.push((cluster, other, &plan.name));
            }
        }
    }
    let named = || list_by(&twice, |(cluster, one, other)| format!("{cluster} ({one} and {other})"));
    let message = || format!("{} in more than one wave: {}", clusters(twice.len() as u64), named());
    (!twice.is_empty()).then(|| Obstacle {
        reason: Reason::WavesOverlap,
        message: shorten(&message()),
        stalled: true,
    })
}

/// Takes the clusters with which a wave would start now, or says why that is not known. Those of a wave that cannot start are
/// only counted, and may be others then.
fn would_be<'a>(
    input: &'a Input<'a>,
    (wave, plan): (&'a Wave<'a>, &WaveClusters),
    taken: &mut HashSet<&'a str>,
    rest: &mut Result<Vec<&'a str>, &'a Obstacle>,
    can_start: bool,
) -> Result<Vec<&'a str>, Obstacle> {
    let in_order = |clusters: &mut [&'a str]| {
        if can_start {
            clusters.sort_by_cached_key(|cluster| {
                ((input.is_excused)(cluster), (input.order)(cluster), *cluster)
            });
        }
    };
    if let Some(explicit) = &wave.explicit {
        let all = explicit.as_ref().map_err(Clone::clone)?;
        let mut free: Vec<&str> = all.iter().filter(|cluster| taken.insert(cluster)).copied().collect();
        in_order(&mut free);
        return Ok(free);
    }
    let rest = rest.as_mut().map_err(|obstacle| obstacle.clone())?;
    let invalid = |message| Obstacle { reason: Reason::InvalidSpec, message, stalled: true };
    let many = match (&plan.count, &plan.percentage) {
        (Some(count), None) => {
            u64::try_from(*count).map_err(|_| invalid("a wave's count must be at least 1".to_owned()))?
        }
        (None, Some(share)) => share.of(rest.len() as u64).map_err(|error| invalid(error.to_string()))?,
        _ => {
            let message = "a wave's clusters must have exactly one of names, selector, count and percentage";
            return Err(invalid(message.to_owned()));
        }
    };
    in_order(rest);
    let many = usize::try_from(many).unwrap_or(usize::MAX).min(rest.len());
    let others = rest.split_off(many);
    Ok(std::mem::replace(rest, others))
}

/// A wave that has started: admits more of its clusters where it may.
fn started<'a>(
    input: &'a Input<'a>,
    (at, plan): (usize, &statusbridge_api::fleet_rollout::Wave),
    gate: &'a Gate<'a>,
    before: Option<&WaveStatus>,
    may_grow: bool,
    steps: &mut Vec<Step<'a>>,
    stop: &mut Option<Obstacle>,
) -> WaveStatus {
    let now = mark(gate.members.iter().copied());
    let members = before.and_then(|it| it.members_fingerprint.clone());
    let waits: Vec<&str> =
        gate.members.iter().copied().filter(|cluster| !(input.is_admitted)(cluster)).collect();
    let total = gate.members.len() as u64;
    let mut message = gate.message.filter(|_| !gate.is_open).map(shorten);
    // That a cluster falls silent does not mend what has failed.
    let had_failed = before.is_some_and(|it| it.state == WaveState::Failed);
    let has_failed = gate.is_stalled || had_failed && !gate.unseen.is_empty();
    if members.as_ref() != Some(&now) {
        let text = format!(
            "gate {} names other clusters than wave {} started with: delete the gate, and the wave starts anew",
            gate.name, plan.name
        );
        message = Some(text.clone());
        stop.get_or_insert(Obstacle { reason: Reason::GateChanged, message: text, stalled: true });
    } else if has_failed {
        let why = match gate.is_stalled {
            true => gate.message.unwrap_or("its gate is stalled").to_owned(),
            false => {
                let unseen = list_by(&gate.unseen, |cluster| (*cluster).to_owned());
                format!("it had failed, and nothing is known of {unseen} now")
            }
        };
        let text = shorten(&format!("wave {}: {why}", plan.name));
        stop.get_or_insert(Obstacle { reason: Reason::WaveFailed, message: text, stalled: true });
    } else if may_grow && !gate.is_held && !waits.is_empty() {
        match room(plan.max_concurrency.as_ref(), gate, waits.len()) {
            Ok(0) => {}
            Ok(room) => steps.push(Step::Admit(at, waits.iter().copied().take(room).collect())),
            Err(message) => {
                stop.get_or_insert(Obstacle { reason: Reason::InvalidSpec, message, stalled: true });
            }
        }
    }
    WaveStatus {
        name: plan.name.clone(),
        state: match () {
            () if has_failed => WaveState::Failed,
            () if gate.is_open => WaveState::Open,
            () => WaveState::Progressing,
        },
        gate: Some(gate.name.to_owned()),
        clusters: total,
        admitted: total - waits.len() as u64,
        members_fingerprint: members,
        started_at: before.and_then(|it| it.started_at.clone()).or_else(|| Some(time(input.moment.now))),
        opened_at: before
            .and_then(|it| it.opened_at.clone())
            .or_else(|| (gate.is_open && waits.is_empty()).then(|| time(input.moment.now))),
        message,
    }
}

/// How many clusters more may be admitted, of a wave of which so many wait.
fn room(
    most: Option<&statusbridge_api::common::Amount>,
    gate: &Gate<'_>,
    waits: usize,
) -> Result<usize, String> {
    let Some(most) = most else { return Ok(waits) };
    let total = gate.members.len() as u64;
    let most = most.of_rounded_up(total).map_err(|error| format!("maxConcurrency: {error}"))?.max(1);
    Ok(waits.min(usize::try_from(most.saturating_sub(gate.on_the_way as u64)).unwrap_or(usize::MAX)))
}

/// A wave that has not started: starts it where it may, with the clusters that the status has told.
fn pending<'a>(
    input: &'a Input<'a>,
    (at, name): (usize, &str),
    wave: &Wave<'_>,
    (members, told): (Result<Vec<&'a str>, Obstacle>, Option<&str>),
    can_start: bool,
    steps: &mut Vec<Step<'a>>,
    stop: &mut Option<Obstacle>,
) -> WaveStatus {
    let mut status = unstarted(name);
    status.clusters = members.as_ref().map_or(0, |it| it.len() as u64);
    let none_at_all = |rest: &&[&str]| rest.is_empty() && input.waves.iter().all(|wave| wave.gate.is_none());
    let say = |status: &mut WaveStatus, message: String| status.message = Some(shorten(&message));
    let members = wave.hindrance.clone().map_or(members, Err);
    match members {
        Err(obstacle) => {
            say(&mut status, obstacle.message.clone());
            if can_start {
                let message = shorten(&format!("wave {name}: {}", obstacle.message));
                stop.get_or_insert(Obstacle { message, ..obstacle });
            }
        }
        Ok(_) if !can_start => {}
        Ok(members) if !fits(&members) => {
            let message = format!(
                "wave {name} has {}, at most {MOST_NAMES} with names of {MOST_OF_NAMES} characters fit in one: split it",
                clusters(members.len() as u64)
            );
            say(&mut status, message.clone());
            stop.get_or_insert(Obstacle { reason: Reason::InvalidSpec, message, stalled: true });
        }
        Ok(members) if !members.is_empty() => {
            let mark = mark(members.iter().copied());
            if told == Some(mark.as_str()) {
                steps.push(Step::Start(at, members));
            }
            status.members_fingerprint = Some(mark);
        }
        // A selector or names that mean nobody who is not in a wave already, or a package that is nowhere: a person may
        // have meant another.
        Ok(_) if wave.explicit.is_some() || input.rest.as_ref().is_ok_and(none_at_all) => {
            let message = format!("wave {name} waits for a cluster: {}", nobody(input, wave));
            say(&mut status, message.clone());
            stop.get_or_insert(Obstacle { reason: Reason::NoTargets, message, stalled: false });
        }
        Ok(_) => {
            say(&mut status, "no cluster is left for it".to_owned());
            status.state = WaveState::Open;
            status.opened_at = Some(time(input.moment.now));
        }
    }
    status
}

/// Why a wave that waits for a cluster has none.
fn nobody(input: &Input<'_>, wave: &Wave<'_>) -> String {
    match &wave.explicit {
        // Names are at least one.
        Some(Ok(all)) if all.is_empty() => "its selector matches no ClusterProfile".to_owned(),
        Some(_) => "all that it names or selects are in other waves".to_owned(),
        None => {
            let package = input.spec.map_or("", |spec| &spec.fleet_package_ref.name);
            let are_claimed = input.waves.iter().any(|wave| wave.explicit.is_some());
            let besides = if are_claimed { " besides those that waves name or select" } else { "" };
            format!("FleetPackage {package} has none{besides}")
        }
    }
}

/// Whether a gate can name all of these.
fn fits(members: &[&str]) -> bool {
    members.len() <= MOST_NAMES && members.iter().map(|it| it.chars().count()).sum::<usize>() <= MOST_OF_NAMES
}

fn unstarted(name: &str) -> WaveStatus {
    WaveStatus {
        name: name.to_owned(),
        state: WaveState::Pending,
        gate: None,
        clusters: 0,
        admitted: 0,
        members_fingerprint: None,
        started_at: None,
        opened_at: None,
        message: None,
    }
}
