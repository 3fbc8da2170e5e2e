//! How statuses get into the hub: closings at once, all else one by one within the write budget, each
//! decided anew at the moment of writing.

use std::collections::BTreeSet;
use std::time::Instant;

use futures::future::{join, join_all};
use futures::stream::{self, StreamExt};
use statusbridge_api::conditions::{OPEN, READY, STALLED, find, is_true};
use statusbridge_api::{Reason, RolloutGateStatus};
use statusbridge_core::decide::Moment;
use statusbridge_core::reconcile::slices::{self, Change};
use statusbridge_core::reconcile::store::{GateObject, Key, Kind, Object, Store};
use statusbridge_core::reconcile::write_queue::Urgency;
use tracing::warn;

use super::Controller;
use super::hanging::HangingClosings;
use crate::clock::Timestamp;
use crate::hub::discover::Discovery;
use crate::hub::heartbeat::{Renewed, named};
use crate::hub::settle::{Judged, Settled, settle};
use crate::hub::write::{self, HubError, Written};
use crate::metrics::{GateState, WriteResult};

/// How many closings are written at the same time.
const CLOSINGS_AT_ONCE: usize = 8;
/// How many slices of one FleetPackage are written at the same time, before it is decided again.
const SLICES_AT_ONCE: usize = 8;

impl Controller {
    /// Writes the closings, and then the heartbeat, which names those that have not landed. What takes longer goes on a
    /// second later: evidence must not wait for as many gates as anybody may make.
    pub(super) async fn close(&mut self) {
        let until = Instant::now() + HangingClosings::FIRST;
        while !self.closings.is_empty() && Instant::now() < until {
            let begun = Instant::now();
            let (first, again) = self.hanging_closings.due(&self.closings, begun);
            let (world, since) = (self.world(self.moment()), Timestamp::now());
            let close = async |key: &Key, patience| match self.gates.get(key) {
                Some(gate) => settle(&self.client, &world, since, &self.metrics, gate, patience, false).await,
                None => Settled::Gone,
            };
            let close = &close;
            let first = stream::iter(first).map(async |key| match begun.elapsed() {
                // Those that hang keep the heartbeat and the others waiting no longer than this.
                waited if waited >= HangingClosings::FIRST => (key.clone(), Settled::Unsettled),
                _ => (key.clone(), close(key, HangingClosings::FIRST).await),
            });
            let again =
                again.into_iter().map(async |key| (key.clone(), close(key, HangingClosings::AGAIN).await));
            let (first, again) =
                join(first.buffer_unordered(CLOSINGS_AT_ONCE).collect::<Vec<_>>(), join_all(again)).await;
            let settled: Vec<(Key, Settled<GateObject, RolloutGateStatus>)> =
                first.into_iter().chain(again).collect();
            let hung =
                settled.iter().filter(|(_, settled)| matches!(settled, Settled::Hung(_))).map(|(key, _)| key);
            self.hanging_closings.hung(hung, begun.elapsed(), Instant::now());
            let mut landed = BTreeSet::new();
            for (key, settled) in settled {
                // By now it may have to be open, which takes the way of all that opens.
                if matches!(settled, Settled::Done(None)) {
                    self.backlog.push((Kind::RolloutGate, key.clone()), Urgency::News);
                }
                if !matches!(settled, Settled::Unsettled | Settled::Unconfirmed(_) | Settled::Hung(_)) {
                    self.closings.remove(&key);
                    landed.insert(key.clone());
                }
                self.remember(&key, settled, |it| &mut it.gates);
            }
            self.board.closing(&self.closings);
            if landed.is_empty() {
                break;
            }
            // What rests on a gate that closed, or did not have to after all.
            let concerned = self.concerned(landed.clone());
            self.sort(BTreeSet::new(), concerned.difference(&landed).cloned().collect());
        }
        self.metrics.unclosed(&self.closings);
        // The sweeper closes what is named.
        self.beat_due |= !self.named.is_subset(&self.closings);
        if let Some(unclosed) = named(&self.closings).filter(|_| self.beat_due && self.can_judge()) {
            let closed_at = Instant::now();
            match self.heartbeat.beat(&unclosed).await {
                Ok(renewed) => {
                    self.restored |= renewed == Renewed::Restored;
                    self.beat_due = false;
                    self.named.clone_from(&self.closings);
                    self.board.spoke(closed_at);
                }
                Err(error) => warn!(%error, "the heartbeat could not be renewed"),
            }
            self.metrics.beat(!self.beat_due);
        }
        self.metrics.queued(self.backlog.len());
    }

    pub(super) fn has_writes(&self) -> bool {
        !self.backlog.is_empty() || self.discovery.as_ref().is_some_and(Discovery::is_due)
    }

    /// Writes what waits longest, as it should be by now. Says how many writes that were.
    pub(super) async fn write_next(&mut self) -> u32 {
        let written = self.write_queued().await;
        if written == 0
            && let Some(discovery) = &mut self.discovery
        {
            discovery.write_next(&self.client, &self.metrics).await;
        }
        self.metrics.queued(self.backlog.len());
        written.max(1)
    }

    async fn write_queued(&mut self) -> u32 {
        // One moment for all: what was found out of the fleet is remembered for that.
        let (moment, since) = (self.moment(), Timestamp::now());
        // Most of what waited may have been settled meanwhile; that costs no write.
        while let Some((kind, key)) = self.backlog.pop() {
            // What hung is left alone for a while; a poll after that finds it again.
            let job = (kind, key.clone());
            let Some(patience) = self.hanging_statuses.patience(&job, Instant::now()) else { continue };
            if kind == Kind::RolloutGate && !self.may_be_written(&key, moment).await {
                // The next poll finds it again.
                break;
            }
            let world = self.world(moment);
            match kind {
                Kind::RolloutGate => {
                    let Some(gate) = self.gates.get(&key) else { continue };
                    let settled =
                        settle(&self.client, &world, since, &self.metrics, gate, patience, true).await;
                    match &settled {
                        Settled::Done(None) => continue,
                        Settled::Hung(_) => self.hanging_statuses.hung(&job, Instant::now()),
                        _ => {}
                    }
                    self.remember(&key, settled, |it| &mut it.gates);
                    let mut concerned = self.concerned(BTreeSet::from([key.clone()]));
                    concerned.remove(&key);
                    self.judge(BTreeSet::new(), concerned).await;
                }
                Kind::FleetPackage => {
                    let Some(package) = self.packages.get(&key) else { continue };
                    let settled =
                        settle(&self.client, &world, since, &self.metrics, package, patience, true).await;
                    match &settled {
                        Settled::Done(None) => continue,
                        Settled::Hung(_) => self.hanging_statuses.hung(&job, Instant::now()),
                        _ => {}
                    }
                    self.remember(&key, settled, |it| &mut it.packages);
                }
                Kind::FleetPackageSlice => match self.write_slices(&key, moment).await {
                    0 => continue,
                    written => return written,
                },
            }
            return 1;
        }
        0
    }

    /// Writes some of the slices of a FleetPackage; what is left goes to the end of the queue. Says how
    /// many writes that were.
    async fn write_slices(&mut self, package: &Key, moment: Moment) -> u32 {
        let owned = slices::by_owner(&self.slices);
        let changes = slices::changes(&self.world(moment), &self.slices, &owned, package);
        let is_delete = |change: &Change| matches!(change, Change::Delete(_));
        // Removals only once all else has landed.
        let removing = changes.first().is_some_and(is_delete);
        let now: Vec<&Change> =
            changes.iter().take_while(|it| is_delete(it) == removing).take(SLICES_AT_ONCE).collect();
        let uid = self.packages.get(package).map(|it| it.uid.as_str()).unwrap_or_default();
        let client = &self.client;
        let results: Vec<_> = stream::iter(&now)
            .map(|change| crate::hub::slices::write(client, package, uid, change))
            .buffered(SLICES_AT_ONCE)
            .collect()
            .await;
        let mut landed = true;
        for (change, answer) in now.iter().zip(results) {
            let told = match write::result(&answer) {
                WriteResult::Gone if is_delete(change) => WriteResult::Done,
                told => told,
            };
            self.metrics.wrote(Kind::FleetPackageSlice, told);
            match (answer, change) {
                (Ok(Written::Done(object)), _) => drop(self.slices.insert(*object)),
                (Ok(Written::Gone), Change::Update(slice, _) | Change::Delete(slice)) => {
                    self.slices.remove(&slice.key);
                }
                (Ok(Written::Gone), Change::Create(..)) => {}
                // The watch brings what it is now, and the next poll finds it again.
                (Ok(Written::Conflict), _) => landed = false,
                (Err(error), _) => {
                    warn!(%package, %error, "a slice could not be written");
                    if matches!(error, HubError::Timeout) {
                        let job = (Kind::FleetPackageSlice, package.clone());
                        self.hanging_statuses.hung(&job, Instant::now());
                    }
                    landed = false;
                }
            }
        }
        let written = now.len();
        if landed && written < changes.len() {
            self.backlog.push((Kind::FleetPackageSlice, package.clone()), Urgency::Refresh);
        }
        u32::try_from(written).unwrap_or(u32::MAX)
    }

    /// Before a gate that depends on others opens, these are read anew: a watch that lags must not
    /// let it open on what they said of an earlier spec. False when that is not possible.
    pub(super) async fn may_be_written(&mut self, key: &Key, moment: Moment) -> bool {
        let Some(gate) = self.gates.get(key) else { return true };
        let others = gate.spec.as_ref().map(|spec| spec.depends_on.as_slice()).unwrap_or_default();
        if others.is_empty()
            || gate.is_open_now()
            || !self.world(moment).gate(gate).is_some_and(|status| status.says_open())
        {
            return true;
        }
        let others: BTreeSet<Key> = others.iter().map(|other| key.beside(&other.name)).collect();
        let mut changed = BTreeSet::new();
        for other in others {
            match write::read(&self.client, Kind::RolloutGate, &other).await {
                Ok(Some(object)) => changed.extend(self.gates.insert(object)),
                Ok(None) => {
                    self.gates.remove(&other);
                    changed.insert(other);
                }
                Err(error) => {
                    warn!(gate = %key, dependency = %other, %error, "could not be read");
                    return false;
                }
            }
        }
        for key in &changed {
            self.is_new(Kind::RolloutGate, key);
        }
        if !changed.is_empty() {
            let concerned = self.concerned(changed);
            self.judge(BTreeSet::new(), concerned).await;
        }
        true
    }

    fn remember<S: Judged>(
        &mut self,
        key: &Key,
        settled: Settled<Object<S, S::Status>, S::Status>,
        store: impl Fn(&mut Self) -> &mut Store<S, S::Status>,
    ) {
        let changed = match settled {
            Settled::Done(Some(object)) => store(self).keep(*object),
            Settled::Gone => {
                store(self).remove(key);
                true
            }
            Settled::Unconfirmed(sent) | Settled::Hung(sent) => {
                self.unconfirmed.insert((S::KIND, key.clone()));
                store(self).sent(key, [*sent]);
                false
            }
            // The next poll finds it again.
            Settled::Done(None) | Settled::Unsettled => false,
        };
        if changed {
            self.is_new(S::KIND, key);
        }
    }

    /// Tells the metrics how the gates stand. That takes a look at each of them, so it is not done for every write.
    pub(super) fn count_gates(&mut self) {
        self.metrics.foreign(Kind::RolloutGate, self.gates.take_foreign());
        self.metrics.foreign(Kind::FleetPackage, self.packages.take_foreign());
        let gates = || self.gates.iter().filter_map(|gate| gate.status.as_ref());
        self.metrics.gates(self.gates.iter().map(|gate| gate_state(gate.status.as_ref())));
        let packages = self.packages.iter().filter_map(|package| package.status.as_ref());
        let invalid = |conditions| {
            find(conditions, READY).is_some_and(|ready| ready.reason == Reason::InvalidSpec.name())
        };
        self.metrics.invalid(Kind::RolloutGate, gates().filter(|it| invalid(&it.conditions)).count());
        self.metrics.invalid(Kind::FleetPackage, packages.filter(|it| invalid(&it.conditions)).count());
    }
}

fn gate_state(status: Option<&RolloutGateStatus>) -> GateState {
    let Some(status) = status else { return GateState::Closed };
    let by_hand = find(&status.conditions, OPEN).is_some_and(|open| open.reason == Reason::Overridden.name());
    match () {
        () if by_hand => GateState::Overridden,
        () if status.says_open() => GateState::Open,
        () if is_true(&status.conditions, STALLED) => GateState::Stalled,
        () => GateState::Closed,
    }
}
