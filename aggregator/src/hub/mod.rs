//! The hub's API server: what is watched there, and what is written.

pub mod access;
pub(crate) mod admitted;
pub mod announce;
pub(crate) mod directory;
pub mod discover;
pub(crate) mod events;
pub mod heartbeat;
pub(crate) mod holds;
pub(crate) mod hub_clock;
pub(crate) mod leadership_guard;
pub mod lease;
pub mod owned;
pub(crate) mod placements;
pub mod profiles;
pub mod references;
pub mod sweeper;
pub mod write;

use kube::runtime::watcher;
use statusbridge_core::reconcile::store::Event;

/// What a watch has said, in the words of the core.
pub fn event<O>(event: watcher::Event<O>) -> Event<O> {
    match event {
        watcher::Event::Apply(object) => Event::Apply(object),
        watcher::Event::Delete(object) => Event::Delete(object),
        watcher::Event::Init => Event::Init,
        watcher::Event::InitApply(object) => Event::InitApply(object),
        watcher::Event::InitDone => Event::InitDone,
    }
}
