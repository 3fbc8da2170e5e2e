//! Sources and objects from arbitrary bytes. `cargo test` reads the corpora beside this file, and some bytes at random;
//! `make fuzz` looks for more.

use std::cell::OnceCell;

use serde::de::DeserializeSeed;
use serde_json::Value;

use super::*;

const NOW: i64 = 1_800_000_000;
/// Longest message about a source.
const LONGEST_MESSAGE: usize = 4096;

#[test]
fn a_source_is_compiled_or_refused() {
    bolero::check!(name = "source").for_each(|bytes: &[u8]| {
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        match Source::parse("a.yaml", text) {
            Err(problem) => assert!(problem.to_string().len() <= LONGEST_MESSAGE, "{problem}"),
            Ok(sources) => {
                for source in sources {
                    source.evaluate(&Value::Null, &RelatedObjects(Vec::new()), NOW);
                }
            }
        }
    });
}

thread_local! {
    static SOURCES: OnceCell<Vec<Source>> = const { OnceCell::new() };
}

#[test]
fn every_preset_has_a_verdict_on_any_object() {
    bolero::check!(name = "object").for_each(|bytes: &[u8]| {
        let Ok(object) = serde_json::from_slice::<Value>(bytes) else { return };
        SOURCES.with(|sources| {
            let sources = sources
                .get_or_init(|| PRESETS.iter().map(|preset| preset.source().expect("it compiles")).collect());
            for source in sources {
                let whole = source.evaluate(&object, &RelatedObjects(Vec::new()), NOW);
                for (name, _, projection) in source.reads() {
                    let mut json = serde_json::Deserializer::from_slice(bytes);
                    let read = projection.seed().deserialize(&mut json).expect("it is JSON");
                    if name == statusbridge_expression::OBJECT {
                        let kept = source.evaluate(&read, &RelatedObjects(Vec::new()), NOW);
                        assert_eq!(kept, whole, "of what is kept of the object");
                    }
                }
            }
        });
    });
}
