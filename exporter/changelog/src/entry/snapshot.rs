//! A snapshot, `google.protobuf.Struct`, as JSON in the form of Go's protojson (google.golang.org/protobuf,
//! `encoding/protojson/well_known_types.go`), apart from white space, which protojson varies on purpose.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message as _;

use super::{
    Malformed,
    wire::{Kind, List, Struct, Value},
};

/// How deep objects and arrays may be nested. Kubernetes' own objects stay below 50, with a CRD inside.
const DEPTH: usize = 500;

/// Writes a struct.
///
/// # Errors
/// When `raw` is not a struct, or JSON has no form for a value in it. `out` then ends in the middle.
pub(super) fn write(out: &mut Vec<u8>, raw: Bytes) -> Result<(), Malformed> {
    object(out, raw, DEPTH)
}

/// `metadata.namespace`; empty when there is none.
pub(super) fn namespace(raw: &Bytes) -> String {
    let metadata = field(raw.clone(), "metadata").and_then(|kind| match kind {
        Kind::Object(raw) => field(raw, "namespace"),
        _ => None,
    });
    match metadata {
        Some(Kind::Text(namespace)) => namespace,
        _ => String::new(),
    }
}

fn field(raw: Bytes, name: &str) -> Option<Kind> {
    let fields = Struct::decode(raw).ok()?.fields;
    // Of repeated keys the last one counts, as in all protocol buffers.
    let found = fields.into_iter().rev().find(|field| field.key == name)?;
    Value::decode(found.value).ok()?.kind
}

fn object(out: &mut Vec<u8>, raw: Bytes, depth: usize) -> Result<(), Malformed> {
    let depth = depth.checked_sub(1).ok_or(Malformed::Deep { limit: DEPTH })?;
    let fields: BTreeMap<String, Bytes> =
        Struct::decode(raw)?.fields.into_iter().map(|field| (field.key, field.value)).collect();
    out.push(b'{');
    for (index, (key, raw)) in fields.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        text(out, &key);
        out.push(b':');
        value(out, raw, depth)?;
    }
    out.push(b'}');
    Ok(())
}

fn array(out: &mut Vec<u8>, raw: Bytes, depth: usize) -> Result<(), Malformed> {
    let depth = depth.checked_sub(1).ok_or(Malformed::Deep { limit: DEPTH })?;
    out.push(b'[');
    for (index, raw) in List::decode(raw)?.values.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        value(out, raw, depth)?;
    }
    out.push(b']');
    Ok(())
}

fn value(out: &mut Vec<u8>, raw: Bytes, depth: usize) -> Result<(), Malformed> {
    match Value::decode(raw)?.kind.ok_or(Malformed::NoKind)? {
        Kind::Null(_) => out.extend_from_slice(b"null"),
        Kind::Bool(value) => out.extend_from_slice(if value { b"true" } else { b"false" }),
        Kind::Number(value) => number(out, value)?,
        Kind::Text(value) => text(out, &value),
        Kind::Object(raw) => object(out, raw, depth)?,
        Kind::List(raw) => array(out, raw, depth)?,
    }
    Ok(())
}

/// A string in quotes.
pub(super) fn text(out: &mut Vec<u8>, text: &str) {
    // Writing to memory never fails.
    let _ = serde_json::to_writer(out, text);
}

/// A number as ECMAScript writes it: the shortest digits, whole numbers without a point, exponents only for very large and
/// very small numbers. All numbers of a struct are floating-point, and a log pipeline that maps types must read `3`, not
/// `3.0`.
fn number(out: &mut Vec<u8>, value: f64) -> Result<(), Malformed> {
    if !value.is_finite() {
        return Err(Malformed::Number(value));
    }
    let size = value.abs();
    let plain = size == 0.0 || (1e-6..1e21).contains(&size);
    let text = if plain {
        value.to_string()
    } else {
        let text = format!("{value:e}");
        if size < 1.0 { text } else { text.replace('e', "e+") }
    };
    out.extend_from_slice(text.as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::entry::{
        testing::{Json, encoded},
        wire::Field,
    };

    fn written(value: &Json) -> Result<String, Malformed> {
        let mut out = Vec::new();
        write(&mut out, encoded(value)).map(|()| String::from_utf8(out).unwrap())
    }

    #[rstest]
    #[case(3.0, "3")]
    #[case(-0.5, "-0.5")]
    #[case(0.0, "0")]
    #[case(-0.0, "-0")]
    #[case(1e20, "100000000000000000000")]
    #[case(1e21, "1e+21")]
    #[case(-1.5e300, "-1.5e+300")]
    #[case(1e-6, "0.000001")]
    #[case(2.5e-7, "2.5e-7")]
    #[case(9_007_199_254_740_993.0, "9007199254740992")]
    #[case(0.1 + 0.2, "0.30000000000000004")]
    fn numbers_are_written_as_upstream_writes_them(#[case] value: f64, #[case] text: &str) {
        let mut out = Vec::new();
        number(&mut out, value).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), text);
    }

    #[rstest]
    #[case(f64::NAN)]
    #[case(f64::INFINITY)]
    #[case(f64::NEG_INFINITY)]
    fn numbers_that_are_not_finite_are_refused(#[case] value: f64) {
        let raw = Value { kind: Some(Kind::Number(value)) }.encode_to_vec();
        let raw = Struct { fields: vec![Field { key: "n".into(), value: raw.into() }] };
        let refused = write(&mut Vec::new(), raw.encode_to_vec().into());
        assert!(matches!(refused, Err(Malformed::Number(_))), "{refused:?}");
    }

    #[test]
    fn a_value_without_a_kind_is_refused() {
        let field = Field { key: "n".into(), value: Bytes::new() };
        let raw = Struct { fields: vec![field] }.encode_to_vec();
        assert_eq!(write(&mut Vec::new(), raw.into()), Err(Malformed::NoKind));
    }

    #[test]
    fn snapshots_are_written_down_to_the_depth_that_is_allowed() {
        let nested = |levels: usize| {
            (1..levels).fold(Json::Object(Default::default()), |inner, _| {
                Json::Object([("x".to_owned(), inner)].into_iter().collect())
            })
        };
        let text = written(&nested(DEPTH)).unwrap();
        assert_eq!(text.matches('{').count(), DEPTH);
        assert_eq!(written(&nested(DEPTH + 1)), Err(Malformed::Deep { limit: DEPTH }));
    }

    #[rstest]
    #[case(r#"{"metadata": {"namespace": "team-a", "name": "b"}}"#, "team-a")]
    #[case(r#"{"metadata": {"name": "b"}}"#, "")]
    #[case(r#"{"metadata": 3}"#, "")]
    #[case(r#"{"metadata": {"namespace": 3}}"#, "")]
    #[case("{}", "")]
    fn the_namespace_is_found(#[case] object: &str, #[case] expected: &str) {
        assert_eq!(namespace(&encoded(&serde_json::from_str(object).unwrap())), expected);
    }

    fn json() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::Bool),
            (-1_000_000_i64..1_000_000).prop_map(Json::from),
            (-1_000_000_i32..1_000_000).prop_map(|n| Json::from(f64::from(n) / 64.0)),
            any::<String>().prop_map(Json::String),
        ];
        leaf.prop_recursive(5, 64, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Json::Array),
                prop::collection::btree_map(any::<String>(), inner, 0..6)
                    .prop_map(|fields| Json::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn numbers_lose_nothing(value in any::<f64>().prop_filter("finite", |n| n.is_finite())) {
            let mut out = Vec::new();
            number(&mut out, value).unwrap();
            prop_assert_eq!(String::from_utf8(out).unwrap().parse::<f64>().unwrap().to_bits(), value.to_bits());
        }

        #[test]
        fn a_written_snapshot_reads_back(fields in prop::collection::btree_map(any::<String>(), json(), 0..6)) {
            let value = Json::Object(fields.into_iter().collect());
            let text = written(&value).unwrap();
            prop_assert!(!text.contains('\n'));
            let read: Json = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(as_floats(&read), as_floats(&value));
        }

        #[test]
        fn no_bytes_make_it_panic_or_write_broken_json(raw in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut out = Vec::new();
            if write(&mut out, raw.clone().into()).is_ok() {
                let read: Result<Json, _> = serde_json::from_slice(&out);
                prop_assert!(read.is_ok(), "{:?}", String::from_utf8_lossy(&out));
            }
            namespace(&raw.into());
        }
    }

    /// The only type of number that a struct has.
    fn as_floats(value: &Json) -> Json {
        match value {
            Json::Number(n) => Json::from(n.as_f64().unwrap()),
            Json::Array(items) => items.iter().map(as_floats).collect(),
            Json::Object(fields) => {
                Json::Object(fields.iter().map(|(key, value)| (key.clone(), as_floats(value))).collect())
            }
            other => other.clone(),
        }
    }
}
