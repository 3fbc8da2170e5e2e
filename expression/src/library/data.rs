//! What a document holds, as values of the expression language.

use std::collections::HashMap;

use cel::common::types::{
    CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, CelUInt,
};
use cel::common::value::Val;
use serde_json::Value;

/// A JSON value as a value of the expression language that borrows nothing. As everywhere, a field
/// that is null is a field that is not there.
pub(super) fn owned(value: Value) -> Box<dyn Val + 'static> {
    match value {
        Value::Null => Box::new(CelNull),
        Value::Bool(b) => Box::new(CelBool::from(b)),
        Value::String(s) => Box::new(CelString::from(s)),
        Value::Array(items) => Box::new(CelList::from(items.into_iter().map(owned).collect::<Vec<_>>())),
        Value::Object(fields) => {
            let fields = fields.into_iter().filter(|(_, v)| !v.is_null());
            let map: HashMap<_, _> = fields.map(|(key, v)| (CelMapKey::from(key), owned(v))).collect();
            Box::new(CelMap::from(map))
        }
        Value::Number(n) => match (n.as_i64(), n.as_u64()) {
            (Some(i), _) => Box::new(CelInt::from(i)),
            (None, Some(u)) => Box::new(CelUInt::from(u)),
            (None, None) => Box::new(CelDouble::from(n.as_f64().unwrap_or(f64::NAN))),
        },
    }
}
