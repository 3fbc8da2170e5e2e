//! What comes out of an expression, as the plain bounded data that a field of a source asks for.

use cel::common::{
    traits::Iterable,
    types::{CelBool, CelInt, CelNull, CelOptional, CelString, CelTimestamp, CelUInt, Kind},
    value::Val,
};

use super::{
    Expression, Scope,
    budget::{charge, steps_of_bytes},
};
use crate::{leaves::LeafRef, source::GroupKind, verdict::EvaluationError};

/// Longest revision, in bytes; a longer one is an error, as cutting it would make it another one.
pub const MAX_REVISION: usize = 1024;
/// Longest reason, in bytes; a longer one is cut.
pub const MAX_REASON: usize = 128;
/// Longest message, in bytes; a longer one is cut.
pub const MAX_MESSAGE: usize = 1024;
/// Most revisions that one package has at once.
const MAX_REVISIONS: usize = 64;
/// Most objects that one package may consist of.
const MAX_LEAVES: usize = 20_000;
/// Longest part of a reference to an object, in bytes; Kubernetes has 253 for most.
const MAX_REFERENCE: usize = 1024;
/// Most bytes of all references together, three times what an object of the API server may hold.
const MAX_REFERENCES: usize = 4 << 20;

impl Expression {
    /// True or false.
    pub fn truth(&self, scope: &Scope<'_>) -> Result<bool, EvaluationError> {
        let value = self.run(scope)?;
        value.downcast_ref::<CelBool>().map(|b| *b.inner()).ok_or_else(|| self.mismatch("a bool", &*value))
    }

    /// A text, cut to `limit` bytes; none when empty, null or an empty optional.
    pub fn text_of(&self, scope: &Scope<'_>, limit: usize) -> Result<Option<String>, EvaluationError> {
        let value = self.run(scope)?;
        let Some(value) = present(&*value) else { return Ok(None) };
        let text = value.downcast_ref::<CelString>().ok_or_else(|| self.mismatch("a string", value))?;
        Ok((!text.inner().is_empty()).then(|| cut(text.inner().to_owned(), limit)))
    }

    /// One revision or several; empty text, null and empty optionals are none.
    pub fn revisions(&self, scope: &Scope<'_>) -> Result<Vec<String>, EvaluationError> {
        self.run_to(scope, |value| Ok(self.revisions_of(&*value)))?
    }

    fn revisions_of(&self, value: &dyn Val) -> Result<Vec<String>, EvaluationError> {
        let mut revisions = Vec::new();
        match present(value) {
            None => {}
            Some(value) => match items(value) {
                None => self.push_revision(value, &mut revisions)?,
                Some((length, _)) if length > MAX_REVISIONS => {
                    return Err(self.error(format!("gives more than {MAX_REVISIONS} revisions")));
                }
                Some((_, list)) => {
                    let mut list = list.iter();
                    while let Some(item) = list.next() {
                        if let Some(item) = present(item) {
                            self.push_revision(item, &mut revisions)?;
                        }
                    }
                }
            },
        }
        Ok(revisions)
    }

    fn push_revision(&self, value: &dyn Val, revisions: &mut Vec<String>) -> Result<(), EvaluationError> {
        let text = value
            .downcast_ref::<CelString>()
            .ok_or_else(|| self.mismatch("a string or a list of strings", value))?
            .inner();
        if text.len() > MAX_REVISION {
            return Err(self.error(format!("gives a revision longer than {MAX_REVISION} bytes")));
        }
        if !text.is_empty() {
            revisions.push(text.to_owned());
        }
        Ok(())
    }

    /// A count, never negative.
    pub fn count(&self, scope: &Scope<'_>) -> Result<u64, EvaluationError> {
        let value = self.run(scope)?;
        let int = value.downcast_ref::<CelInt>().map(|i| u64::try_from(*i.inner()));
        let uint = value.downcast_ref::<CelUInt>().map(|u| Ok(*u.inner()));
        match int.or(uint) {
            Some(Ok(count)) => Ok(count),
            Some(Err(_)) => Err(self.error("gives a negative count")),
            None => Err(self.mismatch("an int", &*value)),
        }
    }

    /// A time in unix seconds: a timestamp, RFC 3339 text or an int; none when empty, null or an
    /// empty optional.
    pub fn time(&self, scope: &Scope<'_>) -> Result<Option<i64>, EvaluationError> {
        let value = self.run(scope)?;
        let Some(value) = present(&*value) else { return Ok(None) };
        if let Some(time) = value.downcast_ref::<CelTimestamp>() {
            return Ok(Some(time.inner().timestamp()));
        }
        if let Some(seconds) = value.downcast_ref::<CelInt>() {
            return Ok(Some(*seconds.inner()));
        }
        match value.downcast_ref::<CelString>().map(CelString::inner) {
            Some("") => Ok(None),
            Some(text) => match text.parse::<jiff::Timestamp>() {
                Ok(time) => Ok(Some(time.as_second())),
                Err(error) => Err(self.error(format!("`{}` is no time: {error}", cut(text.to_owned(), 64)))),
            },
            None => Err(self.mismatch("a timestamp", value)),
        }
    }

    /// References to objects: inventory ids, or maps with `kind`, `name`, `namespace` and `group` or
    /// `apiVersion`.
    pub fn leaves(&self, scope: &Scope<'_>) -> Result<Vec<LeafRef>, EvaluationError> {
        let mut bytes = 0;
        self.each(scope, |item| {
            let leaf = self.leaf(item)?;
            bytes += leaf.group.len() + leaf.kind.len() + leaf.name.len();
            bytes += leaf.namespace.as_ref().map_or(0, |namespace| namespace.len());
            if bytes > MAX_REFERENCES {
                return Err(self.error(format!("gives references of more than {MAX_REFERENCES} bytes")));
            }
            Ok(leaf)
        })
    }

    fn leaf(&self, item: &dyn Val) -> Result<LeafRef, EvaluationError> {
        if let Some(id) = item.downcast_ref::<CelString>() {
            let id = id.inner();
            return (id.len() <= MAX_REFERENCE)
                .then(|| LeafRef::from_id(id))
                .flatten()
                .ok_or_else(|| self.error(format!("`{}` is no inventory id", cut(id.to_owned(), 256))));
        }
        let GroupKind { group, kind } = self.group_kind(item)?;
        let name = self.field_of(item, "name")?.unwrap_or_default();
        if name.is_empty() {
            return Err(self.error("gives an object without a name"));
        }
        let namespace = self.field_of(item, "namespace")?.unwrap_or_default();
        Ok(LeafRef::new(&group, &kind, &namespace, &name))
    }

    /// Kinds: maps with `kind` and `group` or `apiVersion`.
    pub fn group_kinds(&self, scope: &Scope<'_>) -> Result<Vec<GroupKind>, EvaluationError> {
        self.each(scope, |item| self.group_kind(item))
    }

    fn group_kind(&self, item: &dyn Val) -> Result<GroupKind, EvaluationError> {
        let kind = self.field_of(item, "kind")?.unwrap_or_default();
        if kind.is_empty() {
            return Err(self.error("gives an object without a kind"));
        }
        let group = match self.field_of(item, "apiVersion")? {
            Some(version) => version.rsplit_once('/').map_or("", |(group, _)| group).to_owned(),
            None => self.field_of(item, "group")?.unwrap_or_default(),
        };
        Ok(GroupKind { group, kind })
    }

    /// The items of a list, on the budget: to go over a list costs as much as to make one.
    fn each<T>(
        &self,
        scope: &Scope<'_>,
        take: impl FnMut(&dyn Val) -> Result<T, EvaluationError>,
    ) -> Result<Vec<T>, EvaluationError> {
        self.run_to(scope, |value| Ok(self.each_of(&*value, take)))?
    }

    fn each_of<T>(
        &self,
        value: &dyn Val,
        mut take: impl FnMut(&dyn Val) -> Result<T, EvaluationError>,
    ) -> Result<Vec<T>, EvaluationError> {
        let Some(value) = present(value) else { return Ok(Vec::new()) };
        let (length, list) = items(value).ok_or_else(|| self.mismatch("a list", value))?;
        if length > MAX_LEAVES {
            return Err(self.error(format!("gives more than {MAX_LEAVES} items")));
        }
        let mut list = list.iter();
        let mut taken = Vec::new();
        while let Some(item) = list.next() {
            self.pay(1)?;
            if let Some(item) = present(item) {
                taken.push(take(item)?);
            }
        }
        Ok(taken)
    }

    /// A text in a map; `None` when it is not there.
    fn field_of(&self, map: &dyn Val, name: &str) -> Result<Option<String>, EvaluationError> {
        let missing = || self.mismatch("an inventory id or a map", map);
        let (fields, contents) = map.as_indexer().zip(map.as_container()).ok_or_else(missing)?;
        let key = CelString::from(name);
        if !contents.contains(&key).unwrap_or(false) {
            return Ok(None);
        }
        let value = fields.get(&key).map_err(|error| self.error(error.to_string()))?;
        let Some(value) = present(&*value) else { return Ok(None) };
        let text = value.downcast_ref::<CelString>().ok_or_else(|| self.mismatch("a string", value))?.inner();
        if text.len() > MAX_REFERENCE {
            return Err(
                self.error(format!("gives an object with a {name} longer than {MAX_REFERENCE} bytes"))
            );
        }
        Ok(Some(text.to_owned()))
    }

    /// Hash of scalars and lists of them, to compare for equality.
    pub fn hash_of(&self, scope: &Scope<'_>) -> Result<u64, EvaluationError> {
        use std::hash::{DefaultHasher, Hasher};
        let hash = |value: &dyn Val| {
            let mut hasher = DefaultHasher::new();
            self.hash_into(value, &mut hasher)?;
            Ok(hasher.finish())
        };
        self.run_to(scope, |value| Ok(hash(&*value)))?
    }

    fn hash_into(&self, value: &dyn Val, hasher: &mut impl std::hash::Hasher) -> Result<(), EvaluationError> {
        use std::hash::Hash;
        self.pay(1)?;
        match present(value) {
            None => 0u8.hash(hasher),
            Some(value) => {
                if let Some(text) = value.downcast_ref::<CelString>() {
                    self.pay(steps_of_bytes(text.inner().len()))?;
                    (1u8, text.inner()).hash(hasher);
                } else if let Some(int) = value.downcast_ref::<CelInt>() {
                    (2u8, *int.inner()).hash(hasher);
                } else if let Some(truth) = value.downcast_ref::<CelBool>() {
                    (3u8, *truth.inner()).hash(hasher);
                } else if let Some((length, list)) = items(value) {
                    (4u8, length).hash(hasher);
                    let mut list = list.iter();
                    while let Some(item) = list.next() {
                        self.hash_into(item, hasher)?;
                    }
                } else {
                    return Err(self.mismatch("a string, an int, a bool or a list of these", value));
                }
            }
        }
        Ok(())
    }

    fn pay(&self, steps: u64) -> Result<(), EvaluationError> {
        charge(steps).map_err(|error| self.error(error.to_string()))
    }

    fn mismatch(&self, want: &str, got: &dyn Val) -> EvaluationError {
        self.error(format!("gives {}, where {want} is needed", got.get_type().name()))
    }
}

/// The value of an optional, or the value itself; `None` for null and for an empty optional.
fn present<'b, 'v>(value: &'b (dyn Val + 'v)) -> Option<&'b (dyn Val + 'v)> {
    let value = match value.downcast_ref::<CelOptional>() {
        Some(optional) => optional.option()?,
        None => value,
    };
    value.downcast_ref::<CelNull>().is_none().then_some(value)
}

/// The length and the items of a list, wherever it lies.
fn items<'b>(value: &'b dyn Val) -> Option<(usize, &'b (dyn Iterable + 'b))> {
    if value.get_type().kind() != Kind::List {
        return None;
    }
    let length = *value.as_sizer()?.size().inner();
    Some((usize::try_from(length).unwrap_or(usize::MAX), value.as_iterable()?))
}

/// `text` cut to at most `limit` bytes, between characters.
pub(super) fn cut(mut text: String, limit: usize) -> String {
    if text.len() > limit {
        let end = (0..=limit).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0);
        text.truncate(end);
    }
    text
}
