//! A JSON value as the expression language sees it, read where it lies and never converted whole.
//!
//! A map is a view on the JSON; a list is a list of views; a scalar borrows. A field that is null is
//! a field that is not there, as for the API server, so `.?` and `has` are all that an expression
//! needs against both.

use std::sync::OnceLock;

use cel::{
    ExecutionError,
    common::{
        traits::{Container, Indexer, Iterable, Iterator as ValueIterator, Sizer, Zeroer},
        types::{CelBool, CelDouble, CelInt, CelList, CelNull, CelString, CelUInt, Kind, MAP_TYPE, Type},
        value::{CowVal, Val},
    },
};
use serde_json::{Map, Value};

/// `value` as a value of the expression language that borrows from it.
pub(super) fn wrap<'v>(value: &'v Value) -> Box<dyn Val + 'v> {
    match value {
        Value::Null => Box::new(CelNull),
        Value::Bool(b) => Box::new(CelBool::from(*b)),
        Value::String(s) => Box::new(CelString::from(s.as_str())),
        Value::Array(items) => Box::new(CelList::from(items.iter().map(wrap).collect::<Vec<_>>())),
        Value::Object(map) => Box::new(JsonMap::new(map)),
        Value::Number(n) => match (n.as_i64(), n.as_u64()) {
            (Some(i), _) => Box::new(CelInt::from(i)),
            (None, Some(u)) => Box::new(CelUInt::from(u)),
            (None, None) => Box::new(CelDouble::from(n.as_f64().unwrap_or(f64::NAN))),
        },
    }
}

/// A view on a JSON object.
#[derive(Debug, Clone)]
struct JsonMap<'j> {
    map: &'j Map<String, Value>,
    /// Made when somebody iterates over the map, which few expressions do.
    keys: OnceLock<Vec<CelString<'j>>>,
}

impl<'j> JsonMap<'j> {
    fn new(map: &'j Map<String, Value>) -> Self {
        Self { map, keys: OnceLock::new() }
    }

    fn find(&self, key: &str) -> Option<&'j Value> {
        self.map.get(key).filter(|v| !v.is_null())
    }

    fn fields(&self) -> impl Iterator<Item = (&'j String, &'j Value)> {
        self.map.iter().filter(|(_, v)| !v.is_null())
    }
}

impl Val for JsonMap<'_> {
    fn get_type(&self) -> &Type {
        &MAP_TYPE
    }

    fn cel_type() -> &'static Type {
        &MAP_TYPE
    }

    fn as_container(&self) -> Option<&dyn Container> {
        Some(self)
    }

    fn as_indexer<'b, 'w>(&'b self) -> Option<&'b (dyn Indexer + 'w)>
    where
        Self: 'w,
    {
        Some(self)
    }

    fn as_iterable<'b, 'w>(&'b self) -> Option<&'b (dyn Iterable + 'w)>
    where
        Self: 'w,
    {
        Some(self)
    }

    fn as_sizer(&self) -> Option<&dyn Sizer> {
        Some(self)
    }

    fn as_zeroer(&self) -> Option<&dyn Zeroer> {
        Some(self)
    }

    fn equals(&self, other: &dyn Val) -> bool {
        let (Kind::Map, Some(sizer), Some(indexer)) =
            (other.get_type().kind(), other.as_sizer(), other.as_indexer())
        else {
            return false;
        };
        sizer.size() == self.size()
            && self.fields().all(|(key, value)| {
                indexer.get(&CelString::from(key.as_str())).is_ok_and(|theirs| wrap(value).equals(&*theirs))
            })
    }

    fn clone_as_boxed<'w>(&self) -> Box<dyn Val + 'w>
    where
        Self: 'w,
    {
        Box::new(Self::new(self.map))
    }
}

impl Indexer for JsonMap<'_> {
    fn get<'b, 'w>(&'b self, key: &dyn Val) -> Result<CowVal<'b, 'w>, ExecutionError>
    where
        Self: 'w,
    {
        let key = key.downcast_ref::<CelString>().ok_or_else(|| ExecutionError::UnexpectedType {
            got: key.get_type().name().to_owned(),
            want: "string".to_owned(),
        })?;
        match self.find(key.inner()) {
            Some(value) => Ok(CowVal::Owned(wrap(value))),
            None => Err(ExecutionError::no_such_key(key.inner())),
        }
    }

    fn steal<'w>(self: Box<Self>, key: &dyn Val) -> Result<Box<dyn Val + 'w>, ExecutionError>
    where
        Self: 'w,
    {
        self.get(key).map(CowVal::into_owned)
    }
}

impl Container for JsonMap<'_> {
    fn contains(&self, key: &dyn Val) -> Result<bool, ExecutionError> {
        Ok(key.downcast_ref::<CelString>().is_some_and(|key| self.find(key.inner()).is_some()))
    }
}

impl Sizer for JsonMap<'_> {
    fn size(&self) -> CelInt {
        CelInt::from(i64::try_from(self.fields().count()).unwrap_or(i64::MAX))
    }
}

impl Zeroer for JsonMap<'_> {
    fn is_zero_value(&self) -> bool {
        self.fields().next().is_none()
    }
}

impl Iterable for JsonMap<'_> {
    fn iter<'b, 'w>(&'b self) -> Box<dyn ValueIterator<'b, 'w> + 'b>
    where
        Self: 'w,
    {
        let keys =
            self.keys.get_or_init(|| self.fields().map(|(k, _)| CelString::from(k.as_str())).collect());
        Box::new(Keys(keys.iter()))
    }
}

struct Keys<'b, 'j>(std::slice::Iter<'b, CelString<'j>>);

impl<'b, 'j: 'w, 'w> ValueIterator<'b, 'w> for Keys<'b, 'j> {
    fn next(&mut self) -> Option<&'b (dyn Val + 'w)> {
        self.0.next().map(|key| key as &'b (dyn Val + 'w))
    }
}
