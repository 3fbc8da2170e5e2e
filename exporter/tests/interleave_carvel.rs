//! A PackageInstall and its App, written the way kapp-controller writes them, in any order and seen
//! with any delay between the two: no moment may claim a version that is not the one deployed.
//!
//! No recording of kapp-controller exists, so this follows its source: a pass over a PackageInstall
//! copies the App's condition, then gives the App the new version, then writes its own status.

#![allow(clippy::expect_used, clippy::indexing_slicing)] // in a test, what cannot be is a failure

mod support;

use proptest::prelude::*;
use serde_json::{Value, json};
use statusbridge_contract::{ApplyState, Fingerprint, Health};
use statusbridge_exporter::state::Shown;
use support::Replay;

fn version(major: u8) -> String {
    format!("{major}.0.0")
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Want(u8),
    Pause(bool),
    /// kapp-controller looks at the PackageInstall.
    Pass,
    /// kapp-controller begins with the App: it is new, changed, or its timer has rung.
    Begin,
    /// What it began ends well or badly.
    End(bool),
}

/// How many writes ago the exporter last heard of the PackageInstall and of the App.
type Lag = (usize, usize);

#[derive(Clone, Default)]
struct Install {
    generation: i64,
    observed: i64,
    wanted: u8,
    paused: bool,
    resolved: u8,
    condition: &'static str,
}

#[derive(Clone)]
struct App {
    generation: i64,
    observed: i64,
    version: u8,
    paused: bool,
    condition: &'static str,
    failures: u32,
}

impl Install {
    fn object(&self) -> Value {
        let status = if self.observed == 0 {
            json!({})
        } else {
            json!({
                "observedGeneration": self.observed,
                "version": version(self.resolved),
                "lastAttemptedVersion": version(self.resolved),
                "conditions": [{"type": self.condition, "status": "True"}],
            })
        };
        json!({
            "apiVersion": "packaging.carvel.dev/v1alpha1",
            "kind": "PackageInstall",
            "metadata": {"name": "p", "namespace": "n", "generation": self.generation},
            "spec": {
                "paused": self.paused,
                "packageRef": {"refName": "p.example.com", "versionSelection": {"constraints": ">0.0.0"}},
            },
            "status": status,
        })
    }
}

impl App {
    /// One that is not there yet.
    const NONE: Self =
        Self { generation: 0, observed: 0, version: 0, paused: false, condition: "", failures: 0 };

    fn object(&self) -> Value {
        let conditions: Vec<Value> = match self.condition {
            "" => vec![],
            kind => vec![json!({"type": kind, "status": "True"})],
        };
        json!({
            "apiVersion": "kappctrl.k14s.io/v1alpha1",
            "kind": "App",
            "metadata": {
                "name": "p",
                "namespace": "n",
                "generation": self.generation,
                "annotations": {
                    "packaging.carvel.dev/package-ref-name": "p.example.com",
                    "packaging.carvel.dev/package-version": version(self.version),
                },
            },
            "spec": {"paused": self.paused},
            "status": {
                "observedGeneration": self.observed,
                "conditions": conditions,
                "consecutiveReconcileFailures": self.failures,
            },
        })
    }
}

/// The cluster, and what an exporter shows of it.
struct World {
    install: Install,
    app: Option<App>,
    /// The version that is being deployed.
    running: Option<u8>,
    /// The version that was last deployed in full, while nothing else is being deployed.
    deployed: Option<u8>,
    /// Every version of the PackageInstall and, with what was deployed then, of the App; and the ones
    /// that the exporter has seen.
    installs: Vec<Value>,
    apps: Vec<(Option<Value>, Option<u8>)>,
    seen: (usize, usize),
    replay: Replay,
    now: i64,
    shown: Option<Shown>,
    transitions: usize,
}

impl World {
    fn new() -> Self {
        let install = Install { generation: 1, wanted: 1, ..Install::default() };
        let installs = vec![install.object()];
        let replay = Replay::of("carvel-packageinstall", &[install.object(), App::NONE.object()]);
        Self {
            install,
            app: None,
            running: None,
            deployed: None,
            installs,
            apps: vec![(None, None)],
            seen: (0, 0),
            replay,
            now: 1_000_000,
            shown: None,
            transitions: 0,
        }
    }

    /// Something was written; the exporter has caught up with each of the two, or lags behind.
    fn look(&mut self, lag: Lag) {
        self.installs.push(self.install.object());
        self.apps.push((self.app.as_ref().map(App::object), self.deployed));
        let newest = self.apps.len() - 1;
        let (install, app) = self.seen;
        self.seen = (install.max(newest.saturating_sub(lag.0)), app.max(newest.saturating_sub(lag.1)));
        self.now += 1_000;
        let (app, deployed) = self.apps[self.seen.1].clone();
        let (shown, changed) = self.replay.step(&self.installs[self.seen.0], app.as_slice(), self.now);
        self.transitions += usize::from(changed);
        let truth = Fingerprint::of(&deployed.map(version).unwrap_or_default());
        for claimed in [shown.verdict.healthy, shown.verdict.applied] {
            assert!(claimed.is_none() || claimed == truth, "claims {claimed}, deployed is {truth}");
        }
        self.shown = Some(shown);
    }

    fn happen(&mut self, event: Event, lag: Lag) {
        match event {
            Event::Want(wanted) => {
                self.install.wanted = wanted;
                self.install.generation += 1;
            }
            Event::Pause(paused) => {
                self.install.paused = paused;
                self.install.generation += 1;
            }
            Event::Pass => return self.pass(lag),
            Event::Begin => {
                let Some(app) = self.app.as_mut().filter(|_| self.running.is_none()) else { return };
                app.observed = app.generation;
                if !app.paused {
                    app.condition = "Reconciling";
                    self.running = Some(app.version);
                    self.deployed = self.deployed.filter(|deployed| *deployed == app.version);
                }
            }
            Event::End(well) => {
                let (Some(app), Some(running)) = (self.app.as_mut(), self.running.take()) else { return };
                app.condition = if well { "ReconcileSucceeded" } else { "ReconcileFailed" };
                app.failures = if well { 0 } else { app.failures + 1 };
                self.deployed = well.then_some(running);
            }
        }
        self.look(lag);
    }

    fn pass(&mut self, lag: Lag) {
        // The status as it will be is not seen before it is written.
        let mut install = self.install.clone();
        install.observed = install.generation;
        install.resolved = install.wanted;
        install.condition = match &self.app {
            Some(app) if app.generation == app.observed && !app.condition.is_empty() => app.condition,
            _ => "Reconciling",
        };
        let before = self.app.clone().unwrap_or(App::NONE);
        if before.version != install.wanted || before.paused != install.paused {
            self.app = Some(App {
                generation: before.generation + 1,
                version: install.wanted,
                paused: install.paused,
                ..before
            });
            self.look(lag);
        }
        self.install = install;
        self.look(lag);
    }

    fn state(&self) -> (ApplyState, Health, Fingerprint) {
        let verdict = &self.shown.as_ref().expect("something is shown").verdict;
        (verdict.apply, verdict.health, verdict.healthy)
    }
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        1 => (1u8..4).prop_map(Event::Want),
        1 => any::<bool>().prop_map(Event::Pause),
        4 => Just(Event::Pass),
        4 => Just(Event::Begin),
        4 => prop::bool::weighted(0.7).prop_map(Event::End),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn only_what_is_deployed_is_claimed_and_in_the_end_it_is(
        events in prop::collection::vec((event(), (0usize..4, 0usize..4)), 1..60)
    ) {
        let mut world = World::new();
        for (event, lag) in events {
            world.happen(event, lag);
        }
        let settle = [Event::Pause(false), Event::Want(9), Event::End(true), Event::Pass, Event::Begin, Event::End(true), Event::Pass];
        for event in settle {
            world.happen(event, (0, 0));
        }
        prop_assert_eq!(world.state(), (ApplyState::Applied, Health::Current, Fingerprint::of("9.0.0")));
    }

    #[test]
    fn neither_a_timer_nor_a_retry_is_a_transition(
        well in any::<bool>(), rounds in prop::collection::vec((0usize..3, 1usize..3), 1..20)
    ) {
        let mut world = World::new();
        for event in [Event::Pass, Event::Begin, Event::End(well), Event::Pass] {
            world.happen(event, (0, 0));
        }
        let (state, transitions) = (world.state(), world.transitions);
        // However often it looks in between, kapp-controller looks at the PackageInstall after each end: every write of
        // the App wakes it.
        for (between, after) in rounds {
            let passes = |n| std::iter::repeat_n(Event::Pass, n);
            let round = [Event::Begin].into_iter().chain(passes(between)).chain([Event::End(well)]).chain(passes(after));
            for event in round {
                world.happen(event, (0, 0));
            }
        }
        prop_assert_eq!((world.state(), world.transitions), (state, transitions));
    }
}

#[test]
fn the_window_of_stale_success_is_shown_as_what_it_is() {
    let mut world = World::new();
    for event in [Event::Pass, Event::Begin, Event::End(true), Event::Pass] {
        world.happen(event, (0, 0));
    }
    assert_eq!(world.state(), (ApplyState::Applied, Health::Current, Fingerprint::of("1.0.0")));
    world.happen(Event::Want(2), (0, 0));
    world.happen(Event::Pass, (0, 0));
    assert_eq!((world.install.condition, world.install.resolved), ("ReconcileSucceeded", 2));
    assert_eq!(world.state(), (ApplyState::Pending, Health::Unknown, Fingerprint::NONE));
    world.happen(Event::Begin, (0, 0));
    assert_eq!(world.state(), (ApplyState::Applying, Health::InProgress, Fingerprint::NONE));
    // The PackageInstall still says ReconcileSucceeded, now rightly.
    world.happen(Event::End(true), (0, 0));
    assert_eq!(world.state(), (ApplyState::Applied, Health::Current, Fingerprint::of("2.0.0")));
}
