//! The rig: typed handles for the real servers that tests, demo and benchmarks run against.
//!
//! ```text
//! Rig ── a directory of its own, reserved ports, logs kept when something failed
//!  ├─ Etcd ── ApiServer … ApiServer            several API servers share one etcd by prefix
//!  │            ├─ KustomizeController, Flux   packages delivered by somebody else's controller
//!  │            ├─ SourceController, Registry  the same from a registry
//!  │            ├─ ArgoCd, GitRepository        the same from git
//!  │            ├─ Kpt                          packages applied by a command that leaves an inventory
//!  │            └─ Exporter, Aggregator        our own programs
//!  ├─ Prometheus, VictoriaMetrics (one node, or a cluster of them), Thanos, Mimir
//!  ├─ Pipeline                                  what scrapes and writes, by the files of deploy/pipelines
//!  ├─ Guard, Authority                         TLS, certificates and passwords in front of them
//!  ├─ FaultProxy, FileServer, FakeFleet        in this process: faults on the way, bytes to serve, many clusters
//!  ├─ PushDoor                                  where exporters push to
//!  └─ Workload, Hub, History                   a whole cluster, a whole hub, every version of an object
//! ```
//!
//! Everything is started with an `async fn start(&rig, …)` that returns once the server answers, and stopped when
//! its handle is dropped. Nothing outlives the process, however it ends (see [`watchdog`]). Waiting is always for a
//! condition, with a deadline: [`eventually`] and [`holds_for`].
//!
//! A test is one call of [`run`]:
//!
//! ```no_run
//! # use statusbridge_tests::*;
//! #[tokio::test]
//! async fn a_fresh_api_server_has_a_default_namespace() {
//!     run("default-namespace", async |rig| {
//!         let etcd = Etcd::start(rig).await?;
//!         let api = ApiServer::start(rig, &etcd, "one").await?;
//!         let out = api.kubectl(&["get", "namespace", "default", "-o", "name"]).await?;
//!         assert_eq!(out.trim(), "namespace/default");
//!         Ok(())
//!     })
//!     .await
//! }
//! ```

#![allow(clippy::indexing_slicing, clippy::string_slice)] // what cannot be ends a test

mod apiserver;
mod argocd;
mod authority;
pub mod bench;
mod changelog;
pub mod crds;
mod etcd;
pub mod exposition;
pub mod fake_fleet;
mod fault_proxy;
mod file_server;
mod flux;
mod guard;
pub mod history;
pub mod hub;
mod kpt;
mod kubeconfig;
mod mimir;
mod oci;
mod own;
mod pipelines;
mod ports;
mod process;
mod prometheus;
mod push_door;
mod rig;
mod servers;
mod thanos;
pub mod usage;
mod victoria_cluster;
mod victoria_metrics;
mod wait;
mod wall_clock;
pub mod watchdog;
pub mod workload;

pub use apiserver::ApiServer;
pub use argocd::{ArgoCd, GitRepository};
pub use authority::{Authority, Certified};
pub use changelog::{Changelog, Sent};
pub use etcd::Etcd;
pub use fake_fleet::{FakeFleet, FakePackage};
pub use fault_proxy::{Fault, FaultProxy};
pub use file_server::FileServer;
pub use flux::{
    Flux, KustomizationOptions, KustomizeController, NAMESPACE as FLUX_NAMESPACE, Rollout,
    deployment_manifest,
};
pub use guard::{Demand, Guard};
pub use history::History;
pub use hub::Hub;
pub use kpt::{Kpt, KptPackage, config_map_manifest, put_inventory, revision_manifest};
pub use kubeconfig::Kubeconfig;
pub use mimir::{Mimir, MimirIngester, MimirTenant};
pub use oci::{Registry, SourceController};
pub use own::{Aggregator, AggregatorOptions, Exporter, PROGRAMS, Sweeper, own_command, own_program};
pub use pipelines::{Pipeline, Route};
pub use ports::Port;
pub use process::Process;
pub use prometheus::{Asked, Prometheus, PrometheusConfig, Sample, ScrapeJob, queries};
pub use push_door::{PushDoor, token_entry};
pub use rig::{Rig, run};
pub use servers::program;
pub use thanos::{ThanosQuerier, ThanosSidecar};
pub use victoria_cluster::{VictoriaCluster, VmSelect};
pub use victoria_metrics::VictoriaMetrics;
pub use wait::{SOON, eventually, holds_for};
pub use wall_clock::WallClock;
pub use workload::Workload;
