//! Puts together what a decision needs: the hub's objects, the fleet, the backend, the time.

use std::collections::BTreeSet;

use statusbridge_api::check::Check;
use statusbridge_api::common::{self, ClusterSet};
use statusbridge_api::fleet_package::Detail;
use statusbridge_api::package_ref::PackageRef;
use statusbridge_api::trace::StageStatus;
use statusbridge_api::window::Approval;
use statusbridge_api::{FleetPackageSpec, FleetPackageStatus, Reason, RolloutGateSpec, RolloutGateStatus};
use statusbridge_contract::Fingerprint;

use self::again::{NEVER, fleet_key};
use crate::checks::{Asking, resolve};
use crate::decide::dependencies::{Dependencies, Dependency};
use crate::decide::excused::{Excused, Excuses};
use crate::decide::fleet_package::{self, RarelyScraped, Wanted};
use crate::decide::hold::Approvals;
use crate::decide::rollout_gate::{self, Asked, NoQuery, PackageSpec};
use crate::decide::rows::{self, Evident};
use crate::decide::trace::{self, Trace};
use crate::decide::{Backend, Membership, Moment, Obstacle, Target, worth_writing};
use crate::fleet::Standing;
use crate::reconcile::object::{GateObject, Key, Kind, PackageObject};
use crate::reconcile::observation_cache::ObservationCache;
use crate::reconcile::references::Resolution;
use crate::reconcile::state::State;
use crate::reconcile::targets::{Chosen, Counted, Sources, shown, shown_backend};
use crate::reconcile::tenancy::Grant;
use crate::reconcile::verdict_cache::{Decided, Found, VerdictCache};
use crate::time::Seconds;

/// What can be said of the clusters of a FleetPackage one by one: what its slices should hold.
#[derive(Debug, Clone, PartialEq)]
pub enum Rows<R = Vec<Evident>> {
    /// This.
    Known(R),
    /// Nothing can be said now: what is there stays, with its age.
    Unknown,
    /// Another reporter sees to them.
    NotOurs,
}

/// All that is known at one moment.
#[derive(Clone, Copy)]
pub struct World<'a> {
    /// What verdicts rest on.
    pub(crate) state: &'a State,
    /// Gates that are about to be closed: nothing may rest on them any more.
    pub(crate) closing: &'a BTreeSet<Key>,
    /// What was found out about the fleet, as it is now.
    pub(crate) observations: &'a ObservationCache,
    /// What objects were judged to be, and what that rests on.
    pub(crate) verdicts: &'a VerdictCache,
    /// When.
    pub moment: Moment,
}

impl<'a> World<'a> {
    /// The world at a moment.
    pub fn new(state: &'a State, moment: Moment) -> Self {
        let State { closings: closing, observations, verdicts, .. } = state;
        Self { state, closing, observations, verdicts, moment }
    }
}

impl World<'_> {
    /// The status that a FleetPackage should get, if it is worth a write.
    pub fn package(&self, object: &PackageObject) -> Option<FleetPackageStatus> {
        let spec = object.spec.as_deref();
        if spec.is_ok_and(|spec| spec.managed_by.is_some()) {
            return None;
        }
        let basis = self.basis_of_package(object);
        let basis = basis.as_ref().map(|(basis, spec)| (basis, *spec));
        let as_of = object.status.as_ref().and_then(|status| status.as_of.as_ref());
        if let Some(known) = self.again(Kind::FleetPackage, object, basis, as_of, Decided::package) {
            return known;
        }
        let grant = match spec {
            Ok(spec) => self.state.rules.tenancy.grant(&object.key.namespace, &spec.package),
            Err(_) => self.state.rules.tenancy.grant_for_unreadable(),
        };
        let mark = self.mark(&grant, &object.key, spec.ok());
        let previous = object.status.as_ref().filter(|status| carries_over(&mark, &status.tenancy));
        let unread = Obstacle {
            reason: Reason::Pending,
            message: "revisionFrom: the object has not been read yet, or the expression not evaluated"
                .to_owned(),
            stalled: false,
        };
        let wanted = match spec.map(|spec| self.wanted(&object.key, spec)) {
            // After a restart, what was said of this very reference stands until it was read again.
            Ok(None) if answers(previous, object.generation) => return None,
            Ok(None) => Wanted::Unresolved(&unread),
            Ok(Some(wanted)) => wanted,
            Err(_) => Wanted::Own,
        };
        let known = match (spec, previous) {
            (Ok(spec), _) if spec.trace.is_empty() => &[],
            (_, previous) => previous.map(|it| it.trace.as_slice()).unwrap_or_default(),
        };
        let trace = match (spec, wanted.text()) {
            (Ok(spec), Some(revision)) => Some(self.trace(&object.key, spec, revision, known)),
            _ => None,
        };
        let wanted = trace.as_ref().map_or(wanted, |trace| wanted.through(trace));
        let chosen = match spec {
            Ok(spec) => self.count(&grant, spec, &spec.clusters, self.excuses(spec)),
            Err(_) => Counted::nobody(),
        };
        let mut status = fleet_package::decide(&fleet_package::Input {
            spec: spec.map_err(String::as_str),
            generation: object.generation,
            previous,
            wanted,
            // While it cannot be said what is traced, what was known stays as it was.
            stages: trace.as_ref().map_or(known, |trace| &trace.stages),
            targets: &chosen.targets,
            excused: &chosen.excused,
            membership: &chosen.membership,
            rarely_scraped: spec
                .ok()
                .and_then(|spec| self.rarely_scraped(stale_after(spec), &chosen.targets)),
            backend: shown_backend(
                self.backend_of(spec.ok().map(|it| (&it.clusters, &it.package)), &chosen.targets),
                &grant,
            ),
            moment: self.moment,
        });
        status.tenancy = mark;
        status.epoch = Some(self.state.epoch);
        let patience = self.patience(Kind::FleetPackage, &object.key, spec.map_or(0.0, stale_after));
        let worth = worth_writing(object.status.as_ref(), &status, patience);
        let found = Found {
            package: spec.map(fleet_key).unwrap_or_default(),
            targets: &chosen.targets,
            excused: &chosen.excused,
            stale_after: spec.map_or(0.0, stale_after),
            // What was counted before gets no younger.
            as_of: status.as_of.as_ref().filter(|_| status.last_counted.is_none()),
            until: Moment { t: NEVER, now: chosen.excused.until() },
            due: worth.then(|| Decided::Package(Box::new(status.clone()))),
        };
        self.keep(Kind::FleetPackage, object, basis, found);
        worth.then_some(status)
    }

    /// What the last polls mean for these targets. As long as some feed has never answered, nobody knows
    /// what it would say of a cluster that was never seen, nor which clusters report. One that answers no
    /// more concerns the clusters that it told of, whoever may be missing, and who reports.
    pub(super) fn backend_of(
        &self,
        of: Option<(&ClusterSet, &PackageRef)>,
        targets: &[Target],
    ) -> Backend<'_> {
        let never_seen = |target: &Target| {
            let is_missing =
                target.observation.standing == Standing::Missing && target.observation.as_of.is_none();
            is_missing
                || of.is_some_and(|(_, package)| self.state.fleet.knows_by_speaker(&target.cluster, package))
        };
        let whoever_reports = of.is_some_and(|(clusters, _)| clusters.reporting.is_some());
        match (self.state.feeds.unheard(), self.state.feeds.backend(), of) {
            (Some(error), ..) if whoever_reports || targets.iter().any(never_seen) => Backend::Unknown(error),
            (_, Backend::Fails(any), Some((_, package))) if !whoever_reports && !targets.is_empty() => {
                let concerns = |target: &Target| match self.state.fleet.feed_of(&target.cluster, package) {
                    Some(feed) => self.state.fleet.error_of(feed),
                    None => Some(any),
                };
                targets.iter().find_map(concerns).map_or(Backend::Answers, Backend::Fails)
            }
            _ => self.state.feeds.backend(),
        }
    }

    /// The revision that a FleetPackage wants; `None` as long as what it refers to was not read.
    pub(super) fn wanted<'b>(&'b self, key: &Key, spec: &'b FleetPackageSpec) -> Option<Wanted<'b>> {
        let Some(from) = &spec.revision_from else { return Some(Wanted::literal(spec)) };
        match self.state.references.resolution(key, from) {
            Resolution::Pending => None,
            Resolution::Revision(revision) => Some(Wanted::Revision(revision)),
            Resolution::Unresolved(unresolved) => Some(Wanted::Unresolved(unresolved)),
        }
    }

    /// How far a revision has come in the stages of a FleetPackage, and what comes of it. `known` is what
    /// was found out before.
    fn trace(&self, key: &Key, spec: &FleetPackageSpec, revision: &str, known: &[StageStatus]) -> Trace {
        if spec.trace.is_empty() {
            return Trace::none(revision);
        }
        let stale_after = stale_after(spec);
        let stages: Vec<trace::Stage<'_>> = spec
            .trace
            .iter()
            .map(|stage| {
                let (package, clusters) = (stage.package(), stage.clusters());
                let grant = self.state.rules.tenancy.grant(&key.namespace, &package);
                let chosen = self.sources(&grant).choose(&package, &clusters, stale_after);
                let backend = self.backend_of(Some((&clusters, &package)), &chosen.targets);
                let unanswered = match shown_backend(backend, &grant) {
                    Backend::Unknown(error) => Some(error.to_owned()),
                    Backend::Answers | Backend::Fails(_) => None,
                };
                let Chosen { targets, membership } = chosen;
                trace::Stage { spec: stage, targets, membership, unanswered }
            })
            .collect();
        trace::follow(&stages, revision, known, stale_after, self.moment)
    }

    /// Stands for all that the namespace of a FleetPackage may see of what it is about.
    fn mark(&self, grant: &Grant<'_>, key: &Key, spec: Option<&FleetPackageSpec>) -> Option<String> {
        let own = grant.mark()?;
        let stages = spec.map(|spec| spec.trace.as_slice()).unwrap_or_default();
        if stages.is_empty() {
            return Some(own);
        }
        let stages = stages
            .iter()
            .filter_map(|it| self.state.rules.tenancy.grant(&key.namespace, &it.package()).mark());
        let all: Vec<String> = std::iter::once(own).chain(stages).collect();
        Some(Fingerprint::of(&all.join(" ")).to_string())
    }

    /// What the slices of a FleetPackage should hold.
    pub fn rows(&self, object: &PackageObject) -> Rows {
        match object.spec.as_deref().map(|spec| spec.detail) {
            Ok(Detail::Problems | Detail::None) if self.is_ours(object) => Rows::Known(Vec::new()),
            _ => self.each_cluster(object, rows::rows),
        }
    }

    fn is_ours(&self, object: &PackageObject) -> bool {
        object
            .spec
            .as_deref()
            .is_ok_and(|spec| spec.managed_by.is_none() && fleet_package::check(spec).is_ok())
    }

    /// What `tell` makes of every cluster that a FleetPackage is about, those that count and those that are excused, and
    /// of the revision that it wants.
    pub(super) fn each_cluster<R: Default>(
        &self,
        object: &PackageObject,
        tell: impl FnOnce(Wanted<'_>, &[Target], &Excused<'_>) -> R,
    ) -> Rows<R> {
        let Ok(spec) = &object.spec else { return Rows::Unknown };
        if spec.managed_by.is_some() {
            return Rows::NotOurs;
        }
        if fleet_package::check(spec).is_err() {
            return Rows::Unknown;
        }
        let grant = self.state.rules.tenancy.grant(&object.key.namespace, &spec.package);
        let told = self.with_wanted(object, spec, |wanted| {
            let chosen = self.count(&grant, spec, &spec.clusters, self.excuses(spec));
            let backend = self.backend_of(Some((&spec.clusters, &spec.package)), &chosen.targets);
            match (chosen.membership, backend) {
                (Membership::Forbidden(_), _) => Rows::Known(R::default()),
                (Membership::Unlisted(_) | Membership::NotInstalled, _) | (_, Backend::Unknown(_)) => {
                    Rows::Unknown
                }
                (Membership::Known | Membership::Outdated { .. }, _) => {
                    Rows::Known(tell(wanted, &chosen.targets, &chosen.excused))
                }
            }
        });
        told.unwrap_or(Rows::Unknown)
    }

    /// What `tell` makes of the revision that clusters are held to; None while that has not been read.
    pub(super) fn with_wanted<R>(
        &self,
        object: &PackageObject,
        spec: &FleetPackageSpec,
        tell: impl FnOnce(Wanted<'_>) -> R,
    ) -> Option<R> {
        let wanted = self.wanted(&object.key, spec)?;
        let grant = self.state.rules.tenancy.grant(&object.key.namespace, &spec.package);
        let known = traced(object, &self.mark(&grant, &object.key, Some(spec)));
        let trace = wanted.text().map(|text| self.trace(&object.key, spec, text, known));
        Some(tell(trace.as_ref().map_or(wanted, |trace| wanted.through(trace))))
    }

    /// Whether the namespace of a FleetPackage may see the package in this cluster.
    pub(crate) fn may_show(&self, object: &PackageObject, cluster: &str) -> bool {
        let grant = match &object.spec {
            Ok(spec) => self.state.rules.tenancy.grant(&object.key.namespace, &spec.package),
            Err(_) => self.state.rules.tenancy.grant_for_unreadable(),
        };
        grant.allows(cluster)
    }

    /// Whether a gate is open by young evidence, and nothing else ends or begins by itself: no excuse, no window, no freeze.
    pub(super) fn names_young_evidence(&self, gate: &GateObject) -> bool {
        let package = self.package_of(gate).and_then(|package| package.spec.as_deref().ok());
        let known = gate.spec.as_deref().ok().zip(package).zip(gate.status.as_ref());
        known.is_some_and(|((spec, package), status)| {
            status.clusters.is_none_or(|counts| counts.excused == 0)
                && spec.terms.windows.is_empty()
                && self.state.holds.freezes(&gate.key.namespace).0.all.is_empty()
                && rollout_gate::is_open_by_young_evidence(
                    gate.generation,
                    spec,
                    package,
                    status,
                    self.moment,
                )
        })
    }

    /// The status that a RolloutGate should get, if it is worth a write.
    pub fn gate(&self, object: &GateObject) -> Option<RolloutGateStatus> {
        let basis = self.basis_of_gate(object);
        let basis = basis.as_ref().map(|(basis, package)| (basis, *package));
        let as_of = object.status.as_ref().and_then(|status| status.as_of.as_ref());
        if let Some(known) = self.again(Kind::RolloutGate, object, basis, as_of, Decided::gate) {
            return known;
        }
        self.with_input(object, |input, stale_after, tenancy| {
            let status =
                RolloutGateStatus { tenancy, epoch: Some(self.state.epoch), ..rollout_gate::decide(input) };
            let patience = self.patience(Kind::RolloutGate, &object.key, stale_after);
            let worth = worth_writing(object.status.as_ref(), &status, patience);
            let never = Moment { t: NEVER, now: NEVER };
            let found = Found {
                package: basis.map(|(_, package)| fleet_key(package)).unwrap_or_default(),
                targets: input.targets,
                excused: input.excused,
                stale_after,
                as_of: status.as_of.as_ref(),
                until: input.spec.map_or(never, |spec| rollout_gate::holds_until(input, spec)),
                due: worth.then(|| Decided::Gate(Box::new(status.clone()))),
            };
            // What was just fixed is judged by once it stands in the hub.
            let kept = input.spec.ok().and_then(|spec| rollout_gate::kept_members(spec, input.previous));
            let basis = basis.filter(|_| kept.is_some() || status.members.is_none());
            self.keep(Kind::RolloutGate, object, basis, found);
            worth.then_some(status)
        })
    }

    /// The queries that the checks of a gate call for now.
    pub fn questions(&self, object: &GateObject) -> Vec<String> {
        let has_checks = object.spec.as_deref().is_ok_and(|spec| !spec.terms.checks.is_empty());
        if !has_checks {
            return Vec::new();
        }
        self.with_input(object, |input, _, _| rollout_gate::questions(input))
    }

    /// The FleetPackage of a gate, if the hub has it.
    pub(super) fn package_of(&self, object: &GateObject) -> Option<&PackageObject> {
        self.state.packages.get(&object.package()?)
    }

    /// Puts together what a gate is judged by, with its `staleAfter` and the mark of its tenancy.
    pub(super) fn with_input<R>(
        &self,
        object: &GateObject,
        decide: impl FnOnce(&rollout_gate::Input<'_>, Seconds, Option<String>) -> R,
    ) -> R {
        let found = self.package_of(object);
        let spec = found.and_then(|it| it.spec.as_deref().ok());
        let excuses = spec.map_or_else(Excuses::none, |spec| self.excuses(spec));
        self.with_excuses(object, found, &excuses, decide)
    }

    /// The same with this FleetPackage and these excuses.
    pub(super) fn with_excuses<R>(
        &self,
        object: &GateObject,
        found: Option<&PackageObject>,
        excuses: &Excuses<'_>,
        decide: impl FnOnce(&rollout_gate::Input<'_>, Seconds, Option<String>) -> R,
    ) -> R {
        let package = found.map(|it| it.spec.as_deref().map_err(String::as_str));
        let of = package.and_then(Result::ok).map(|it| &it.package);
        let grant = match package {
            Some(Ok(package)) => self.state.rules.tenancy.grant(&object.key.namespace, &package.package),
            Some(Err(_)) | None => self.state.rules.tenancy.grant_for_unreadable(),
        };
        // While there is no package, nothing is shown that was not granted before.
        let mark = match package {
            Some(spec) => self.mark(&grant, &object.key, spec.ok()),
            None => object.status.as_ref().and_then(|status| status.tenancy.clone()),
        };
        let previous = object.status.as_ref().filter(|status| carries_over(&mark, &status.tenancy));
        let trace = match (found, package, &object.spec) {
            (Some(found), Some(Ok(package)), Ok(gate)) => {
                self.trace(&found.key, package, &gate.revision, traced(found, &mark))
            }
            _ => Trace::none(""),
        };
        let artifact = trace.artifact.as_ref().copied().map_err(String::as_str);
        let mut selected = None;
        let (package, chosen, stale_after) = match (package, &object.spec) {
            (Some(Ok(package)), Ok(gate)) => {
                let stale_after = stale_after(package);
                let members = rollout_gate::kept_members(gate, previous);
                selected =
                    members.and_then(|_| self.sources(&grant).selected(gate.clusters.selector.as_ref()?));
                let fixed = members.map(|it| ClusterSet::named(it.clusters.clone()));
                let clusters = fixed.as_ref().unwrap_or(&gate.clusters);
                let chosen = self.count(&grant, package, clusters, excuses.clone());
                (PackageSpec::Found(package), chosen, stale_after)
            }
            (Some(Err(error)), _) => (PackageSpec::Unreadable(error), Counted::nobody(), 0.0),
            _ => (PackageSpec::NotFound, Counted::nobody(), 0.0),
        };
        let seen_anywhere = || {
            of.zip(artifact.ok()).is_some_and(|(package, revision)| {
                let survey = self.observations.of(package.clone(), self.moment.t, stale_after);
                survey.seen_anywhere(&self.state.fleet, revision, |cluster| grant.allows(cluster))
            })
        };
        let dependencies = self.dependencies(object);
        let checks = self.checks(object, &grant, &chosen.targets);
        let clusters = object.spec.as_deref().ok().map(|it| &it.clusters);
        let input = rollout_gate::Input {
            spec: object.spec.as_deref().map_err(String::as_str),
            generation: object.generation,
            previous,
            package,
            artifact,
            stages: &trace.stages,
            targets: &chosen.targets,
            excused: &chosen.excused,
            membership: &chosen.membership,
            selected: selected.as_deref(),
            unheard: self.state.feeds.unheard().map(|error| shown(error, &grant)),
            seen_anywhere: &seen_anywhere,
            dependencies: &dependencies,
            checks: &checks,
            freezes: self.state.holds.freezes(&object.key.namespace).0,
            approvals: self.approvals(object),
            backend: shown_backend(self.backend_of(clusters.zip(of), &chosen.targets), &grant),
            moment: self.moment,
        };
        decide(&input, stale_after, mark)
    }

    /// The approvals of a gate; none are looked for where it asks for none.
    fn approvals(&self, object: &GateObject) -> Approvals<'_> {
        match &object.spec {
            Ok(spec) if spec.terms.approval == Approval::Required => {
                self.state.holds.approvals(&object.key, &spec.revision)
            }
            _ => Approvals::default(),
        }
    }

    /// How the gates stand that a gate depends on.
    fn dependencies<'o>(&self, object: &'o GateObject) -> Dependencies<'o> {
        let Ok(spec) = &object.spec else { return Dependencies::default() };
        let standing = |name| self.dependency(&object.key, spec, name);
        Dependencies {
            gates: spec.depends_on.iter().map(|it| (it.name.as_str(), standing(&it.name))).collect(),
            cycle: self.state.graph.cycle(object).map(|cycle| cycle.to_string()),
        }
    }

    fn dependency(&self, key: &Key, spec: &RolloutGateSpec, name: &str) -> Dependency {
        let Some(other) = self.state.gates.get(&key.beside(name)) else { return Dependency::NotFound };
        let Ok(theirs) = &other.spec else { return Dependency::NotOpen };
        let package = |gate: &RolloutGateSpec| {
            let package = self.state.packages.get(&key.beside(&gate.fleet_package_ref.name))?;
            package.spec.as_deref().ok().map(|spec| &spec.package)
        };
        let same_package = match (package(spec), package(theirs)) {
            _ if spec.fleet_package_ref == theirs.fleet_package_ref => true,
            (Some(own), Some(their)) => own == their,
            // Without both it cannot be told, and neither is open for long.
            _ => return Dependency::NotOpen,
        };
        if same_package && Fingerprint::of(&spec.revision) != Fingerprint::of(&theirs.revision) {
            Dependency::AtAnotherRevision
        } else if other.is_open_now() && !self.closing.contains(&other.key) {
            Dependency::Open
        } else {
            Dependency::NotOpen
        }
    }

    /// The checks of a gate, with their queries and what was said to them.
    fn checks(&self, object: &GateObject, grant: &Grant<'_>, targets: &[Target]) -> Vec<Asked<'_>> {
        let checks = object.spec.as_deref().map(|spec| spec.terms.checks.as_slice()).unwrap_or_default();
        if checks.is_empty() {
            return Vec::new();
        }
        let clusters: Vec<&str> = targets.iter().map(|target| target.cluster.as_str()).collect();
        let gate = Asking { namespace: &object.key.namespace, clusters: &clusters };
        checks
            .iter()
            .map(|check| {
                let query = self.query(gate, check);
                let answer = query.as_ref().ok().and_then(|query| self.state.checks.answers().get(query));
                Asked { query, answer, discreet: grant.is_one_of_several() }
            })
            .collect()
    }

    /// The query of a check, or why it has none. Who may ask what is decided here.
    fn query(&self, gate: Asking<'_>, check: &Check) -> Result<String, NoQuery> {
        match self.state.rules.tenancy.refuses_query(gate.namespace, check.template.as_deref()) {
            Some(refusal) => Err(NoQuery::Forbidden(refusal.to_string())),
            None => resolve(check, &self.state.rules.templates, gate)
                .map_err(|error| NoQuery::Invalid(error.to_string())),
        }
    }

    /// `stale_after`, by which a refresh is measured; an object in doubt is refreshed whenever its
    /// evidence has moved at all, so that a write that comes late finds another version.
    pub(super) fn patience(&self, kind: Kind, key: &Key, stale_after: Seconds) -> Seconds {
        if self.state.unconfirmed.contains(&(kind, key.clone())) { 0.0 } else { stale_after }
    }

    /// Who need not be healthy for a FleetPackage and its gates now.
    pub(super) fn excuses<'b>(&'b self, package: &'b FleetPackageSpec) -> Excuses<'b> {
        Excuses::new(&package.excused, &self.state.profiles, self.moment.now)
    }

    /// The clusters that a FleetPackage or a gate of it is about.
    fn count<'b>(
        &'b self,
        grant: &'b Grant<'b>,
        package: &FleetPackageSpec,
        clusters: &ClusterSet,
        excuses: Excuses<'b>,
    ) -> Counted<'b> {
        let sources = self.sources(grant);
        let chosen = sources.choose(&package.package, clusters, stale_after(package));
        sources.count(chosen, excuses)
    }

    pub(super) fn sources<'b>(&'b self, grant: &'b Grant<'b>) -> Sources<'b> {
        Sources {
            fleet: &self.state.fleet,
            profiles: &self.state.profiles,
            observations: self.observations,
            grant,
            t: self.moment.t,
        }
    }

    /// The target that is scraped too rarely for so short a `staleAfter`, if there is one.
    fn rarely_scraped<'t>(&self, stale_after: Seconds, targets: &'t [Target]) -> Option<RarelyScraped<'t>> {
        let settle = self.moment.now - self.moment.t;
        let too_short = |interval: Seconds| stale_after < fleet_package::least_stale_after(interval, settle);
        if !too_short(self.observations.slowest_scrapes(&self.state.fleet)) {
            return None;
        }
        let exporters = targets.iter().map(Target::exporter);
        let scraped = exporters.filter_map(|it| Some((it, self.state.fleet.scrape_interval(it)?)));
        let (cluster, interval) = scraped.reduce(|a, b| if b.1 > a.1 { b } else { a })?;
        too_short(interval).then_some(RarelyScraped { cluster, interval })
    }
}

/// Whether a status that was written under the mark `then` may be built upon now: not when the
/// namespace might see something else then.
pub(super) fn carries_over(now: &Option<String>, then: &Option<String>) -> bool {
    now.is_none() || now == then
}

/// What a status says of the stages of the trace, as far as it may be built upon.
fn traced<'a>(object: &'a PackageObject, mark: &Option<String>) -> &'a [StageStatus] {
    let status = object.status.as_ref().filter(|status| carries_over(mark, &status.tenancy));
    status.map(|status| status.trace.as_slice()).unwrap_or_default()
}

fn answers(status: Option<&FleetPackageStatus>, generation: i64) -> bool {
    status.is_some_and(|status| status.observed_generation == Some(generation))
}

/// A duration that cannot be read makes everything stale; deciding says why.
pub(super) fn stale_after(package: &FleetPackageSpec) -> Seconds {
    common::seconds(&package.stale_after).unwrap_or(0.0)
}

pub(super) mod again;
#[cfg(test)]
mod dependency_tests;
#[cfg(test)]
mod feed_tests;
#[cfg(test)]
mod reference_tests;
#[cfg(test)]
mod refresh_tests;
#[cfg(test)]
mod tests;
