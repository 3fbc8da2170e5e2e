//! Objects from arbitrary bytes. `cargo test` reads the corpora beside this file, and some bytes at random; `make fuzz` looks
//! for more.

use serde_json::Value;
use statusbridge_contract::Health;

/// Whether a condition has no reason, or an empty one.
fn may_lack_a_reason(object: &Value) -> bool {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["reason"].as_str().is_none_or(str::is_empty))
}

#[test]
fn any_object_has_a_status() {
    bolero::check!(name = "status").for_each(|bytes: &[u8]| {
        let Ok(object) = serde_json::from_slice(bytes) else { return };
        for status in [crate::compute_at(&object, 1_800_000_000), crate::of_package(&object)] {
            let has_none = match status.health {
                Health::Current => true,
                // Ours, whatever conditions there are.
                Health::Terminating | Health::Unknown => false,
                // That of a condition, which need not have one.
                Health::InProgress | Health::Failed | Health::NotFound => {
                    status.reason.is_empty() && may_lack_a_reason(&object)
                }
            };
            assert_eq!(status.reason.is_empty(), has_none, "{status:?}");
        }
    });
}
