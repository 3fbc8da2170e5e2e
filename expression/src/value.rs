//! A JSON value as the expression language sees it, read where it lies and never converted whole.
//!
//! Maps and lists are views on the JSON; a scalar borrows. A field that is null is a field that is
//! not there, as for the API server, so `.?` and `has` are all that an expression needs against both.

use std::sync::OnceLock;

use cel::ExecutionError;
use cel::common::traits::{Adder, Container, Indexer, Iterable, Iterator as ValueIterator, Sizer, Zeroer};
use cel::common::types::{
    CelBool, CelDouble, CelInt, CelList, CelNull, CelString, CelUInt, LIST_TYPE, MAP_TYPE, Type,
};
use cel::common::value::{CowVal, Val};
use serde_json::{Map, Value};

use super::budget::{charge, is_exceeded};
use super::equality::equal;

/// Entries of a map that are passed over in one step.
const ENTRIES: usize = 16;

/// `value` as a value of the expression language that borrows from it.
pub(super) fn wrap<'v>(value: &'v Value) -> Box<dyn Val + 'v> {
    match value {
        Value::Null => Box::new(CelNull),
        Value::Bool(b) => Box::new(CelBool::from(*b)),
        Value::String(s) => Box::new(CelString::from(s.as_str())),
        Value::Array(items) => Box::new(JsonList::new(items)),
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

    /// Pays for going over all fields; who may not is stopped where the next step is counted.
    fn charge(&self) {
        let _ = charge(1 + (self.map.len() / ENTRIES) as u64);
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
        equal(self, other).unwrap_or(false)
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
        self.charge();
        CelInt::from(i64::try_from(self.fields().count()).unwrap_or(i64::MAX))
    }
}

impl Zeroer for JsonMap<'_> {
    fn is_zero_value(&self) -> bool {
        self.charge();
        self.fields().next().is_none()
    }
}

impl Iterable for JsonMap<'_> {
    fn iter<'b, 'w>(&'b self) -> Box<dyn ValueIterator<'b, 'w> + 'b>
    where
        Self: 'w,
    {
        let keys = self.keys.get_or_init(|| {
            self.charge();
            self.fields().map(|(k, _)| CelString::from(k.as_str())).collect()
        });
        Box::new(Keys(keys.iter()))
    }
}

struct Keys<'b, 'j>(std::slice::Iter<'b, CelString<'j>>);

impl<'b, 'j: 'w, 'w> ValueIterator<'b, 'w> for Keys<'b, 'j> {
    fn next(&mut self) -> Option<&'b (dyn Val + 'w)> {
        self.0.next().map(|key| key as &'b (dyn Val + 'w))
    }
}

/// A view on a JSON array.
#[derive(Debug)]
struct JsonList<'j> {
    list: &'j [Value],
    /// Made when somebody iterates over the list.
    items: OnceLock<Vec<Box<dyn Val + 'j>>>,
}

impl<'j> JsonList<'j> {
    fn new(list: &'j [Value]) -> Self {
        Self { list, items: OnceLock::new() }
    }
}

impl Val for JsonList<'_> {
    fn get_type(&self) -> &Type {
        &LIST_TYPE
    }

    fn cel_type() -> &'static Type {
        &LIST_TYPE
    }

    fn as_adder<'b, 'w>(&'b self) -> Option<&'b (dyn Adder + 'w)>
    where
        Self: 'w,
    {
        Some(self)
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
        equal(self, other).unwrap_or(false)
    }

    fn clone_as_boxed<'w>(&self) -> Box<dyn Val + 'w>
    where
        Self: 'w,
    {
        Box::new(Self::new(self.list))
    }
}

impl Adder for JsonList<'_> {
    fn add<'b, 'w>(&'b self, other: &(dyn Val + 'w)) -> Result<CowVal<'b, 'w>, ExecutionError>
    where
        Self: 'w,
    {
        let list = CelList::from(self.list.iter().map(wrap).collect::<Vec<_>>());
        Ok(CowVal::Owned(list.add(other)?.into_owned()))
    }
}

impl Indexer for JsonList<'_> {
    fn get<'b, 'w>(&'b self, index: &dyn Val) -> Result<CowVal<'b, 'w>, ExecutionError>
    where
        Self: 'w,
    {
        let position = match (index.downcast_ref::<CelInt>(), index.downcast_ref::<CelUInt>()) {
            (Some(int), _) => i128::from(*int.inner()),
            (_, Some(uint)) => i128::from(*uint.inner()),
            _ => {
                return Err(ExecutionError::UnexpectedType {
                    got: index.get_type().name().to_owned(),
                    want: "int|uint".to_owned(),
                });
            }
        };
        let found = usize::try_from(position).ok().and_then(|i| self.list.get(i));
        let missing = || ExecutionError::IndexOutOfBounds(i64::try_from(position).unwrap_or(i64::MAX).into());
        found.map(|value| CowVal::Owned(wrap(value))).ok_or_else(missing)
    }

    fn steal<'w>(self: Box<Self>, index: &dyn Val) -> Result<Box<dyn Val + 'w>, ExecutionError>
    where
        Self: 'w,
    {
        self.get(index).map(CowVal::into_owned)
    }
}

impl Container for JsonList<'_> {
    fn contains(&self, value: &dyn Val) -> Result<bool, ExecutionError> {
        for item in self.list {
            if equal(&*wrap(item), value)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Sizer for JsonList<'_> {
    fn size(&self) -> CelInt {
        CelInt::from(i64::try_from(self.list.len()).unwrap_or(i64::MAX))
    }
}

impl Zeroer for JsonList<'_> {
    fn is_zero_value(&self) -> bool {
        self.list.is_empty()
    }
}

impl Iterable for JsonList<'_> {
    fn iter<'b, 'w>(&'b self) -> Box<dyn ValueIterator<'b, 'w> + 'b>
    where
        Self: 'w,
    {
        let items = self.items.get_or_init(|| {
            let _ = charge(self.list.len() as u64);
            if is_exceeded() { Vec::new() } else { self.list.iter().map(wrap).collect() }
        });
        Box::new(Items(items.iter()))
    }
}

struct Items<'b, 'j>(std::slice::Iter<'b, Box<dyn Val + 'j>>);

impl<'b, 'j: 'w, 'w> ValueIterator<'b, 'w> for Items<'b, 'j> {
    fn next(&mut self) -> Option<&'b (dyn Val + 'w)> {
        self.0.next().map(|item| &**item as &'b (dyn Val + 'w))
    }
}
