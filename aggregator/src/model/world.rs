//! Clusters, backend, aggregators and hub, second by second.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use statusbridge_api::conditions::OPEN;
use statusbridge_contract::Fingerprint;
use statusbridge_core::decide::closing::{self, Unwatched};
use statusbridge_core::fleet::Speakers;
use statusbridge_core::reconcile::calls::CALL_TIMEOUT;
use statusbridge_core::reconcile::object::{GateObject, Object};
use statusbridge_core::time::Seconds;

use super::backend::{Backend, Kind, Part, SHARDS, Tear};
use super::cluster::{Cluster, Liar, Truth};
use super::hub::{Hub, LAST};
use super::promise::{Broken, Claim};
use super::replica::Replica;
use super::story::{Dates, Event, Setup, Story, revision};
use super::timeline::Timeline;
use super::{MAX_SKEW, PACKAGE, POLL_INTERVAL, START};

/// How old the heartbeat gets before the sweeper closes gates, and how often it looks.
const SWEEP_AFTER: Seconds = 60.0;
const SWEEP_EVERY: u64 = 5;
/// By how much news of the hub's objects is late at most.
const LATE_NEWS: Seconds = 30.0;

/// All of it.
pub(super) struct World {
    setup: Setup,
    pub(super) now: Seconds,
    pub(super) clusters: Vec<Cluster>,
    /// Another one that comes to use the name of the first.
    pub(super) impostor: Cluster,
    impostor_until: Seconds,
    backend: Backend,
    pub(super) hub: Hub,
    /// Whose exporters the configuration lets count, by cluster, and what it says therefore.
    granted: Vec<bool>,
    speakers: Speakers,
    /// Which clusters may have which revision.
    admitted: BTreeMap<String, String>,
    /// When the plan had another revision last, and which.
    replanned: (Seconds, String),
    pub(super) replicas: Vec<Replica>,
    /// What is still to become true: when, in which cluster, for which delivery.
    pending: Vec<(Seconds, usize, u32, Step)>,
    deliveries: Vec<u32>,
    /// Until when answers may lack some series of a cluster.
    torn_until: Seconds,
    /// Until when something was not told by the backend, or not asked for.
    unseen_until: Seconds,
    /// Whether the clock of some scraper was ever off.
    restamped: bool,
    /// Until when no aggregator watched.
    unwatched_until: Seconds,
    /// Until when writes took their time.
    slow_until: Seconds,
    /// Until when something may be believed that was sent long ago, and how long it was on its way.
    late: (Seconds, Seconds),
    /// The gate lies from then on: to try the model itself.
    pub(super) lies_from: Option<Seconds>,
    pub(super) timeline: Option<Timeline>,
}

#[derive(Clone, Copy)]
enum Step {
    Applied,
    Well,
    Fails,
    Heals,
}

impl World {
    pub(super) fn new(setup: &Setup) -> Self {
        let interval = u64::from(setup.interval);
        let phase = u64::from(setup.spread) % interval;
        let cluster = |(n, (dates, ahead)): (usize, &(Dates, i8))| {
            let n = n as u64;
            let name = format!("c{n}");
            let mut cluster = Cluster::new(n + 1, &name, *dates, setup.replicas, phase + 4 * n, interval);
            cluster.skew = f64::from(*ahead);
            if setup.speaks { cluster.told_by(&format!("m{n}")) } else { cluster }
        };
        let clusters: Vec<Cluster> = setup.clusters.iter().enumerate().map(cluster).collect();
        let phase = u64::from(setup.spread / 15);
        let mut impostor = Cluster::new(98, &clusters[0].name, Dates::Own, setup.replicas, phase, interval);
        if setup.speaks {
            impostor = impostor.told_by(clusters[0].exporters());
        }
        if setup.apart {
            impostor = impostor.elsewhere();
        }
        let backend = Backend::new(setup.backend, setup.spread);
        let replica = |(n, ahead): (usize, &i8)| Replica::new(n, START, f64::from(*ahead), &backend);
        let replicas = setup.aggregators.iter().enumerate().map(replica).collect();
        Self {
            setup: setup.clone(),
            now: START,
            deliveries: vec![0; clusters.len()],
            hub: Hub::new(START, gate(setup, &clusters), f64::from(setup.stale_after), &terms(setup)),
            granted: Vec::new(),
            speakers: Speakers::default(),
            admitted: BTreeMap::new(),
            replanned: (0.0, revision(1)),
            clusters,
            impostor,
            impostor_until: 0.0,
            backend,
            replicas,
            pending: Vec::new(),
            torn_until: 0.0,
            unseen_until: START,
            restamped: false,
            unwatched_until: START,
            slow_until: 0.0,
            late: (0.0, 0.0),
            lies_from: None,
            timeline: None,
        }
    }

    /// Plays a story to its end; `Err` says which promise was broken when.
    pub(super) fn play(story: &Story) -> Result<(), Broken> {
        Self::new(&story.setup).go(story)
    }

    pub(super) fn go(&mut self, story: &Story) -> Result<(), Broken> {
        self.play_for(story, story.length())?;
        self.quiet()
    }

    /// Plays so many seconds of a story.
    pub(super) fn play_for(&mut self, story: &Story, seconds: u64) -> Result<(), Broken> {
        let mut events = story.events.clone();
        events.sort_by_key(|(at, _)| *at);
        let mut events = events.into_iter().peekable();
        for second in 0..seconds {
            while let Some((_, event)) = events.next_if(|(at, _)| u64::from(*at) <= second) {
                self.tell(|line| line.happens(&event));
                self.happens(event);
            }
            self.second()?;
        }
        Ok(())
    }

    /// When all faults are over and every cluster is healthy at the gate's revision, it opens.
    fn quiet(&mut self) -> Result<(), Broken> {
        self.tell(Timeline::all_is_well);
        let (now, wanted) = (self.now, self.wanted());
        self.backend.fault(|faults| *faults = Default::default());
        self.impostor_until = now;
        self.hub.heal();
        self.pending.clear();
        // Prometheus takes nothing that is stamped before what it has.
        let is_new = self.setup.backend == Kind::Prometheus && self.restamped;
        for cluster in &mut self.clusters {
            cluster.heal(now, is_new);
            // Only as far as it takes to be believed.
            cluster.skew = cluster.skew.clamp(10.0 - MAX_SKEW, MAX_SKEW - 10.0);
            cluster.becomes(now, |t| *t = Truth::healthy_at(wanted));
        }
        self.replicas.iter_mut().for_each(|replica| replica.heal(now));
        // The least that docs ask for; with less a gate opens now and then.
        if self.setup.stale_after < 4 * self.setup.interval {
            return Ok(());
        }
        // What was wrong has to go out of date, and samples that were sent late to arrive.
        let intervals = 10.0 * f64::from(self.setup.interval);
        let patience =
            f64::from(self.setup.min_success) + 2.0 * f64::from(self.setup.stale_after) + 300.0 + intervals;
        let end = now + patience;
        let mut waits_for = "the gate is closed";
        while self.now < end {
            self.second()?;
            let may = self.admitted.get(LAST).map(|revision| Fingerprint::of(revision));
            waits_for = match (self.is_open(), may == Some(self.wanted())) {
                (true, true) => return Ok(()),
                (false, _) => "the gate is closed",
                (true, false) => "the last wave has not been admitted",
            };
        }
        Err(Broken { at: self.now, why: format!("{waits_for} still, {patience} s after all was well") })
    }

    pub(super) fn wanted(&self) -> Fingerprint {
        wanted(self.hub.gate())
    }

    /// The replica that leads, or did last.
    fn leader(&self) -> usize {
        let leads = |(_, replica): &(usize, &Replica)| replica.leads() && self.now >= replica.frozen_until;
        let all = || self.replicas.iter().enumerate();
        all().find(leads).or_else(|| all().find(|(_, it)| it.leads())).map_or(0, |(n, _)| n)
    }

    fn happens(&mut self, event: Event) {
        let now = self.now;
        let n = self.clusters.len();
        let end = |lasts: u16| now + f64::from(lasts);
        let which = |cluster: u8| usize::from(cluster) % n;
        let leader = self.leader();
        if let Event::Refused { lasts } | Event::Torn { lasts, .. } | Event::Forgotten { lasts, .. } = event {
            self.unseen_until = self.unseen_until.max(end(lasts));
        }
        match event {
            Event::Deliver { cluster, to, takes, good } => {
                let cluster = which(cluster);
                let revision = Fingerprint::of(&revision(to));
                self.deliveries[cluster] += 1;
                let delivery = self.deliveries[cluster];
                self.clusters[cluster].becomes(now, |t| t.desired = revision);
                let takes = f64::from(takes);
                self.pending.push((now + takes, cluster, delivery, Step::Applied));
                let end = if good { Step::Well } else { Step::Fails };
                self.pending.push((now + 2.0 * takes, cluster, delivery, end));
            }
            Event::Break { cluster, recovers } => {
                let cluster = which(cluster);
                let delivery = self.deliveries[cluster];
                self.clusters[cluster].becomes(now, |t| t.failed = true);
                if let Some(after) = recovers {
                    self.pending.push((now + f64::from(after), cluster, delivery, Step::Heals));
                }
            }
            Event::Restart { cluster, away, moves } => {
                self.clusters[which(cluster)].restart(now, f64::from(away), moves);
            }
            Event::Suspended { cluster, lasts } => self.clusters[which(cluster)].suspend(end(lasts)),
            Event::Upgraded { cluster, lasts } => self.clusters[which(cluster)].upgrade(end(lasts)),
            Event::Unscraped { cluster, lasts } => self.clusters[which(cluster)].unscraped_until = end(lasts),
            Event::Repeated { cluster, replica, alternates, lasts } => {
                let replica = replica.map(usize::from);
                self.clusters[which(cluster)].repeat(now, replica, end(lasts), alternates);
            }
            Event::ScraperKilled { cluster, replica, away } => {
                self.clusters[which(cluster)].kill_scraper(replica.map(usize::from), end(away));
            }
            Event::HeldUp { cluster, replica, by, lasts } => {
                let replica = replica.map(usize::from);
                self.clusters[which(cluster)].hold_up(replica, f64::from(by), end(lasts));
            }
            Event::Cut { cluster, lasts } => self.clusters[which(cluster)].cut_until = end(lasts),
            Event::Clock { cluster, ahead } => self.clusters[which(cluster)].skew = f64::from(ahead),
            Event::Stamps { cluster, ahead } => {
                // By no number of scrapes: samples would have the stamps of others, and a backend gives one of both.
                self.clusters[which(cluster)].stamps_ahead = f64::from(ahead) * 1.001;
                self.restamped = true;
            }
            Event::Impostor { revision: number, lasts } => {
                let revision = Fingerprint::of(&revision(number));
                self.impostor.becomes(now, |t| *t = Truth::healthy_at(revision));
                self.impostor_until = end(lasts);
            }
            Event::Liar { cluster, revision: number, ahead, flips, lasts }
            | Event::Ungranted { cluster, revision: number, ahead, flips, lasts } => {
                let revision = Fingerprint::of(&revision(number));
                let (ahead, until) = (f64::from(ahead), end(lasts));
                let elsewhere = matches!(event, Event::Ungranted { .. });
                self.clusters[which(cluster)].liar = Some(Liar { revision, ahead, flips, elsewhere, until });
            }
            Event::Withdrawn { cluster, lasts } => self.clusters[which(cluster)].withdrawn_until = end(lasts),
            Event::Lag { shard, delay, lasts } => {
                let (delay, end) = (f64::from(delay), end(lasts));
                self.backend.fault(|faults| faults.lag[usize::from(shard) % SHARDS] = (delay, end));
                self.unseen_until = self.unseen_until.max(end + delay);
            }
            Event::LoseMarkers { lasts } => self.backend.fault(|faults| faults.markers_lost = end(lasts)),
            Event::Torn { cluster, part, behind, lasts } => {
                let name = self.clusters[which(cluster)].exporters().to_owned();
                if matches!(part, Part::Third(_)) {
                    self.torn_until = self.torn_until.max(end(lasts));
                }
                let tear = Tear { part, behind: behind.map(f64::from), until: end(lasts) };
                self.backend.fault(|faults| _ = faults.torn.insert(name, tear));
            }
            Event::Forgotten { cluster, lasts } => {
                let name = self.clusters[which(cluster)].exporters().to_owned();
                self.backend.fault(|faults| _ = faults.forgotten.insert(name, end(lasts)));
            }
            Event::Refused { lasts } => self.backend.fault(|faults| faults.refuses = end(lasts)),
            Event::Frozen { lasts } => self.replicas[leader].frozen_until = end(lasts),
            Event::Stalled { lasts } => self.replicas[leader].stalls = Some(f64::from(lasts)),
            Event::Killed { away } => self.replicas[leader].kill(now, f64::from(away)),
            Event::OwnClock { ahead } => self.replicas[leader].set_clock(f64::from(ahead)),
            Event::Isolated { lasts } => self.replicas[leader].isolated_until = end(lasts),
            Event::SlowWrites { seconds, lasts } => {
                self.hub.mishaps.slow = (f64::from(seconds), end(lasts));
            }
            Event::LostAnswers { lasts } => self.hub.mishaps.no_answers = end(lasts),
            Event::LateWrite { by } => {
                self.hub.mishaps.late = Some(f64::from(by));
            }
            Event::LostWrite => self.hub.mishaps.lost = true,
            Event::LateNews { by, lasts } => {
                self.hub.mishaps.late_news = (f64::from(by).min(LATE_NEWS), end(lasts));
            }
            Event::Regate { to } => {
                self.hub.change(now, |gate| {
                    if let Ok(spec) = &mut gate.spec
                        && spec.revision != revision(to)
                    {
                        Arc::make_mut(spec).revision = revision(to);
                        gate.generation += 1;
                    }
                });
                if let Some(before) = self.hub.replan(now, revision(to)) {
                    self.replanned = (now, before);
                }
            }
        }
    }

    fn second(&mut self) -> Result<(), Broken> {
        self.now += 1.0;
        let now = self.now;
        self.backend.set_now(now);
        let due: Vec<_> = self.pending.extract_if(.., |(at, ..)| *at <= now).collect();
        for (_, cluster, delivery, step) in due {
            let current = delivery == self.deliveries[cluster];
            self.clusters[cluster].becomes(now, |t| match step {
                Step::Applied if current => {
                    *t = Truth { applied: t.desired, well: false, failed: false, ..*t };
                }
                Step::Well if current => t.well = true,
                Step::Fails if current => t.failed = true,
                Step::Heals => t.failed = false,
                _ => {}
            });
        }
        self.impostor.unscraped_until = if now < self.impostor_until { 0.0 } else { f64::MAX };
        for cluster in self.clusters.iter_mut().chain([&mut self.impostor]) {
            cluster.tick(now, &self.backend);
        }
        self.hub.arrive(now);
        self.configure();
        for replica in &mut self.replicas {
            replica.tick(now, &mut self.hub, &self.speakers);
        }
        // The sweeper sees the heartbeat as it was renewed.
        let silent = now - self.hub.heartbeat > SWEEP_AFTER;
        if (now as u64).is_multiple_of(SWEEP_EVERY) && (silent || self.hub.unclosed) {
            self.sweep();
        }
        if self.lies_from.is_some_and(|from| now >= from) {
            self.lie();
        }
        self.excuse();
        let is_open = self.is_open();
        if let Some(timeline) = &mut self.timeline {
            timeline.now(now);
            let truths = self.clusters.iter().chain([&self.impostor]).map(Cluster::now_true).collect();
            let leaders = self.replicas.iter().map(Replica::leads).collect();
            timeline.watch(truths, leaders, self.hub.gate(), is_open);
        }
        self.no_lie()?;
        self.no_early_admission()
    }

    /// Writes into the configuration who is granted to speak for whom now, for every aggregator to read.
    fn configure(&mut self) {
        let now = self.now;
        let granted: Vec<bool> = self.clusters.iter_mut().map(|cluster| cluster.note_grant(now)).collect();
        // Another one that uses the name of the first one's exporter speaks by the same grant.
        self.impostor.granted = self.clusters[0].granted;
        if granted != self.granted {
            let all = self.clusters.iter().zip(&granted).filter(|(_, is_granted)| **is_granted);
            let grants = all.filter_map(|(cluster, _)| cluster.grant()).collect();
            self.speakers = Speakers::new(grants).expect("one for each");
            self.granted = granted;
        }
    }

    /// Takes note of what may keep a gate open for longer.
    fn excuse(&mut self) {
        let now = self.now;
        let watched = self.replicas.iter().any(|replica| replica.watches(now));
        if !watched {
            self.unwatched_until = now;
        }
        if !self.replicas.iter().any(|replica| replica.polls(now)) {
            self.unseen_until = self.unseen_until.max(now);
        }
        if self.hub.has_trouble(now) {
            self.slow_until = now;
        }
        // What a leader sent is refused once there is another, and one that has written.
        if let Some(delay) = self.hub.is_late(now)
            && (self.replicas.len() == 1 || !watched)
        {
            self.late = (now, delay);
        }
    }

    fn sweep(&mut self) {
        let gate = self.hub.gate();
        let (Ok(spec), Some(status)) = (&gate.spec, &gate.status) else { return };
        if let Some(closed) = closing::unwatched(Unwatched::Silent, Ok(spec), status, self.now) {
            self.hub.change(self.now, |gate| gate.status = Some(closed));
        }
    }

    /// Opens the gate, come what may.
    fn lie(&mut self) {
        self.hub.change(self.now, |gate| {
            let Some(status) = &mut gate.status else { return };
            status.observed_generation = Some(gate.generation);
            for condition in status.conditions.iter_mut().filter(|condition| condition.type_ == OPEN) {
                condition.observed_generation = Some(gate.generation);
                condition.status = "True".to_owned();
                condition.message = "believe me".to_owned();
            }
        });
    }

    /// Whether a reader who follows the rules is let through.
    pub(super) fn is_open(&self) -> bool {
        self.hub.gate().is_open_now()
    }

    /// How old the evidence of an open gate may be. A verdict is good for `staleAfter` of the time that
    /// polls look at, and stands until the next poll.
    fn patience(&self) -> Seconds {
        let settle = self.replicas.iter().filter_map(Replica::settle_delay).fold(5.0, f64::max);
        let behind = self.replicas.iter().map(Replica::behind).fold(0.0, f64::max);
        let lately = |until: Seconds, and_then: Seconds| self.now - until <= and_then;
        let call = CALL_TIMEOUT.as_secs_f64();
        let mut patience = f64::from(self.setup.stale_after) + settle + behind + POLL_INTERVAL + 3.0;
        // The closing was sent twice, the first time after another write.
        let sent_twice = if lately(self.slow_until, POLL_INTERVAL + call) { 2.0 * call } else { 0.0 };
        patience += sent_twice;
        // Nobody watched, until the sweeper noticed or somebody came back and was heard.
        if lately(self.unwatched_until, 2.0 + behind + sent_twice) {
            patience += SWEEP_AFTER + SWEEP_EVERY as f64;
        }
        let (late_until, delay) = self.late;
        if lately(late_until, POLL_INTERVAL + LATE_NEWS) {
            patience += delay + LATE_NEWS;
        }
        patience
    }

    /// The promise: an open gate has the clusters behind it that it asks for.
    fn no_lie(&self) -> Result<(), Broken> {
        if !self.is_open() {
            return Ok(());
        }
        self.claims(self.wanted(), "the gate is open")
    }

    /// Whether the clusters are, or were not too long ago, as a gate asks for that is said to be open for a revision.
    fn claims(&self, revision: Fingerprint, what: &str) -> Result<(), Broken> {
        let since = self.now - self.patience();
        let began = self.replicas.iter().filter_map(Replica::began).fold(self.unseen_until, f64::max);
        let mut claim = Claim {
            now: self.now,
            since,
            watched: began + 120.0,
            revision,
            soak: f64::from(self.setup.min_success),
            need: usize::from(self.setup.min_healthy),
            budget: usize::from(self.setup.max_failures),
            clusters: &self.clusters,
            successor: None,
        };
        if claim.holds().is_ok() {
            return Ok(());
        }
        // While nothing comes of a cluster, another one of its name is taken for it: clusters are replaced.
        let unheard = self.clusters[0].was_silent(since, self.now) || self.torn_until >= since;
        claim.successor = unheard.then_some(&self.impostor);
        claim.holds().map_err(|why| Broken { at: self.now, why: format!("{what}, but {why}") })
    }

    /// The promise: a cluster may have what the plan has, once the gates of the waves before are open; and nobody takes it back.
    fn no_early_admission(&mut self) -> Result<(), Broken> {
        let admitted = self.hub.admitted();
        let broken = |why| Err(Broken { at: self.now, why });
        if let Some(gone) = self.admitted.keys().find(|it| !admitted.contains_key(it.as_str())) {
            return broken(format!("{gone} may have nothing any more"));
        }
        let is_new =
            |(cluster, revision): &(&String, &String)| self.admitted.get(*cluster) != Some(*revision);
        for (cluster, revision) in admitted.iter().filter(is_new) {
            let (since, before) = &self.replanned;
            let was_planned = before == revision && self.now - since <= self.patience();
            if Fingerprint::of(revision) != self.wanted() && !was_planned {
                return broken(format!("{cluster} may have {revision}, for which nobody asks"));
            }
            if cluster == LAST {
                self.claims(Fingerprint::of(revision), &format!("{cluster} may have {revision}"))?;
            }
        }
        if admitted != self.admitted {
            let told = format!("may have {:?}", admitted.iter().filter(is_new).collect::<Vec<_>>());
            self.tell(|timeline| timeline.line("clusters", &told));
            self.admitted = admitted;
        }
        Ok(())
    }

    fn tell(&mut self, tell: impl FnOnce(&mut Timeline)) {
        let now = self.now;
        if let Some(timeline) = &mut self.timeline {
            timeline.now(now);
            tell(timeline);
        }
    }
}

/// The revision that a gate is about.
fn wanted(gate: &GateObject) -> Fingerprint {
    gate.spec.as_deref().map_or(Fingerprint::NONE, |spec| Fingerprint::of(&spec.revision))
}

/// What the gate asks for, and the first wave.
fn terms(setup: &Setup) -> Value {
    json!({
        "maxFailures": setup.max_failures,
        "minHealthy": setup.min_healthy,
        "minSuccessTime": format!("{}s", setup.min_success),
    })
}

/// The gate as it is made.
fn gate(setup: &Setup, clusters: &[Cluster]) -> GateObject {
    let names: Vec<&str> = clusters.iter().map(|c| c.name.as_str()).collect();
    let mut object = json!({
        "apiVersion": "statusbridge.dev/v1alpha1",
        "kind": "RolloutGate",
        "metadata": {
            "namespace": "fleet",
            "name": "gate",
            "uid": "1",
            "resourceVersion": "1",
            "generation": 1,
        },
        "spec": {
            "fleetPackageRef": {"name": PACKAGE},
            "revision": revision(1),
            "clusters": {"names": names},
        },
        "status": {"observedGeneration": -1},
    });
    for (term, value) in terms(setup).as_object().into_iter().flatten() {
        object["spec"][term] = value.clone();
    }
    Object::read(serde_json::from_value(object).expect("a gate")).expect("a name")
}

/// Plays a story once more, and tells it.
pub(super) fn tell(story: &Story) -> String {
    tell_of(World::new(&story.setup), story)
}

/// The same of a world that was tampered with.
pub(super) fn tell_of(mut world: World, story: &Story) -> String {
    world.timeline = Some(Timeline::new(&story.setup));
    let outcome = world.go(story);
    let mut timeline = world.timeline.take().unwrap_or_default();
    timeline.now(world.now);
    match outcome {
        Ok(()) => timeline.line("end", "every promise was kept"),
        Err(broken) => timeline.line("BROKEN", &broken.why),
    }
    timeline.text
}
