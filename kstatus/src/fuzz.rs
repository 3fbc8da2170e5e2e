//! Objects from arbitrary bytes. `cargo test` reads the corpora beside this file, and some bytes at random; `make fuzz` looks
//! for more.

use statusbridge_contract::Health;

#[test]
fn any_object_has_a_status() {
    bolero::check!(name = "status").for_each(|bytes: &[u8]| {
        let Ok(object) = serde_json::from_slice(bytes) else { return };
        for status in [crate::compute_at(&object, 1_800_000_000), crate::of_package(&object)] {
            match status.health {
                Health::Current => assert_eq!(status.reason, ""),
                // Ours, whatever conditions there are.
                Health::Terminating | Health::Unknown => assert_ne!(status.reason, "", "{status:?}"),
                // A condition need not have one.
                Health::InProgress | Health::Failed | Health::NotFound => {}
            }
        }
    });
}
