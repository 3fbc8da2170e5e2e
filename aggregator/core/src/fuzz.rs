//! Expositions and objects of the hub from arbitrary bytes. `cargo test` reads the corpora beside this file, and some bytes at
//! random; `make fuzz` looks for more.

use std::time::Duration;

use serde_json::Value;

use crate::decide::Moment;
use crate::exposition::{self, Origin, Outcome};
use crate::fleet::Fleet;
use crate::reconcile::judge::World;
use crate::reconcile::judging::Judges;
use crate::reconcile::lazy_object::LazyObject;
use crate::reconcile::object::Kind;
use crate::reconcile::reconciler::Reconciler;
use crate::reconcile::store::Event;
use crate::testing::{Exposition, healthy, state, tell};
use crate::time::{Now, Seconds};

const T: Seconds = 1_800_000_000.0;
/// Longest message that a status or log has to carry.
const LONGEST_MESSAGE: usize = 4096;
/// Most that an API server takes of an object.
const LARGEST_OBJECT: usize = 1_500_000;

#[test]
fn an_exposition_is_taken_or_refused() {
    bolero::check!(name = "exposition").for_each(|bytes: &[u8]| {
        let origin = Origin {
            feed: "".into(),
            cluster: "c".to_owned(),
            stream: [("cluster".to_owned(), "c".to_owned())].into(),
            at: T,
        };
        let mut fleet = Fleet::default();
        tell(&mut fleet, &[("cluster", "c")], &Exposition::new(1).with("p", healthy("r", 10)), T - 60.0);
        match exposition::read(bytes, origin).map(|evidence| evidence.fold(&mut fleet, T)) {
            Err(error) => assert!(error.to_string().len() <= LONGEST_MESSAGE),
            Ok(Outcome::Unverified(why)) => assert!(why.len() <= LONGEST_MESSAGE, "{why}"),
            Ok(Outcome::Verified { .. } | Outcome::Old) => {}
        }
    });
}

/// The kind of an object, as it names itself.
fn kind(object: &Value) -> Option<Kind> {
    const KINDS: [Kind; 7] = [
        Kind::FleetPackage,
        Kind::RolloutGate,
        Kind::FleetPackageSlice,
        Kind::FleetRollout,
        Kind::FleetRolloutSlice,
        Kind::RolloutFreeze,
        Kind::RolloutApproval,
    ];
    let name = object.get("kind")?.as_str()?;
    KINDS.into_iter().find(|kind| format!("{kind:?}") == name)
}

#[test]
fn objects_of_the_hub_are_judged_whatever_they_say() {
    bolero::check!(name = "objects").for_each(|bytes: &[u8]| {
        let Ok(objects) = serde_json::from_slice::<Vec<Value>>(bytes) else { return };
        let mut fleet = Fleet::default();
        for cluster in ["a", "b"] {
            tell(
                &mut fleet,
                &[("cluster", cluster)],
                &Exposition::new(1).with("p", healthy("r", 10)),
                T - 5.0,
            );
        }
        let now = Now { wall: T, passed: Duration::ZERO };
        let mut reconciler = Reconciler::new(state(fleet), Judges::default(), None);
        for object in objects {
            let (Some(kind), Ok(object)) = (kind(&object), serde_json::from_value::<LazyObject>(object))
            else {
                continue;
            };
            reconciler.heard(kind, Event::Apply(object), now);
        }
        let world = World::new(reconciler.state(), Moment { t: T, now: T });
        let sizes = reconciler.state().packages.iter().filter_map(|it| world.package(it)).map(|it| size(&it));
        let gates = reconciler.state().gates.iter().filter_map(|it| world.gate(it)).map(|it| size(&it));
        assert!(sizes.chain(gates).all(|size| size <= LARGEST_OBJECT));
        while reconciler.next_write(now).is_some() {}
    });
}

fn size(status: &impl serde::Serialize) -> usize {
    serde_json::to_vec(status).map_or(usize::MAX, |text| text.len())
}
