//! What comes out of an expression, as the plain bounded data that whoever wrote it asks for.

use cel::common::traits::Iterable;
use cel::common::types::{CelBool, CelInt, CelNull, CelOptional, CelString, CelTimestamp, CelUInt, Kind};
use cel::common::value::Val;

use super::budget::{charge, steps_of_bytes};
use super::expression::{EvaluationError, Expression, Scope, cut};

/// Longest revision, in bytes; a longer one is an error, as cutting it would make it another one.
pub const MAX_REVISION: usize = 1024;
/// Longest reason, in bytes; a longer one is cut.
pub const MAX_REASON: usize = 128;
/// Most revisions that one package has at once.
const MAX_REVISIONS: usize = 64;

impl Expression {
    /// True or false.
    pub fn truth(&self, scope: &mut Scope<'_>) -> Result<bool, EvaluationError> {
        let value = self.run(scope)?;
        value.downcast_ref::<CelBool>().map(|b| *b.inner()).ok_or_else(|| self.mismatch("a bool", &*value))
    }

    /// A text, cut to `limit` bytes; none when empty, null or an empty optional.
    pub fn text_of(&self, scope: &mut Scope<'_>, limit: usize) -> Result<Option<String>, EvaluationError> {
        let value = self.run(scope)?;
        let Some(value) = present(&*value) else { return Ok(None) };
        let text = value.downcast_ref::<CelString>().ok_or_else(|| self.mismatch("a string", value))?;
        Ok((!text.inner().is_empty()).then(|| cut(text.inner().to_owned(), limit)))
    }

    /// A whole text; none when empty, null or an empty optional, and an error when longer than `limit`
    /// bytes.
    pub fn whole_text_of(
        &self,
        scope: &mut Scope<'_>,
        limit: usize,
    ) -> Result<Option<String>, EvaluationError> {
        let value = self.run(scope)?;
        let Some(value) = present(&*value) else { return Ok(None) };
        let text = value.downcast_ref::<CelString>().ok_or_else(|| self.mismatch("a string", value))?.inner();
        if text.len() > limit {
            return Err(self.error(format!("gives a text longer than {limit} bytes")));
        }
        Ok((!text.is_empty()).then(|| text.to_owned()))
    }

    /// One revision or several; empty text, null and empty optionals are none.
    pub fn revisions(&self, scope: &mut Scope<'_>) -> Result<Vec<String>, EvaluationError> {
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
    pub fn count(&self, scope: &mut Scope<'_>) -> Result<u64, EvaluationError> {
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
    pub fn time(&self, scope: &mut Scope<'_>) -> Result<Option<i64>, EvaluationError> {
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

    /// What `take` makes of each of at most `limit` items of a list; null and empty optionals are left
    /// out, and also taken for an empty list. On the budget: to go over a list costs as much as to
    /// make one.
    pub fn each<T>(
        &self,
        scope: &mut Scope<'_>,
        limit: usize,
        take: impl FnMut(Item<'_>) -> Result<T, EvaluationError>,
    ) -> Result<Vec<T>, EvaluationError> {
        self.run_to(scope, |value| Ok(self.each_of(&*value, limit, take)))?
    }

    fn each_of<T>(
        &self,
        value: &dyn Val,
        limit: usize,
        mut take: impl FnMut(Item<'_>) -> Result<T, EvaluationError>,
    ) -> Result<Vec<T>, EvaluationError> {
        let Some(value) = present(value) else { return Ok(Vec::new()) };
        let (length, list) = items(value).ok_or_else(|| self.mismatch("a list", value))?;
        if length > limit {
            return Err(self.error(format!("gives more than {limit} items")));
        }
        let mut list = list.iter();
        let mut taken = Vec::new();
        while let Some(item) = list.next() {
            self.pay(1)?;
            if let Some(value) = present(item) {
                taken.push(take(Item { expression: self, value })?);
            }
        }
        Ok(taken)
    }

    /// Hash of scalars and lists of them, to compare for equality.
    pub fn hash_of(&self, scope: &mut Scope<'_>) -> Result<u64, EvaluationError> {
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

/// An item of a list that an expression gave.
#[derive(Clone, Copy)]
pub struct Item<'i> {
    expression: &'i Expression,
    value: &'i (dyn Val + 'i),
}

impl<'i> Item<'i> {
    /// The text that it is, of whatever length.
    pub fn text(&self) -> Option<&'i str> {
        self.value.downcast_ref::<CelString>().map(CelString::inner)
    }

    /// Whether it has fields.
    pub fn has_fields(&self) -> bool {
        self.value.as_indexer().is_some() && self.value.as_container().is_some()
    }

    /// A text in a map, of at most `limit` bytes; `None` when it is not there.
    pub fn field(&self, name: &str, limit: usize) -> Result<Option<String>, EvaluationError> {
        let expression = self.expression;
        let (fields, contents) =
            self.value.as_indexer().zip(self.value.as_container()).ok_or_else(|| self.mismatch("a map"))?;
        let key = CelString::from(name);
        if !contents.contains(&key).unwrap_or(false) {
            return Ok(None);
        }
        let value = fields.get(&key).map_err(|error| self.error(error.to_string()))?;
        let Some(value) = present(&*value) else { return Ok(None) };
        let text =
            value.downcast_ref::<CelString>().ok_or_else(|| expression.mismatch("a string", value))?.inner();
        if text.len() > limit {
            return Err(self.error(format!("gives an object with a {name} longer than {limit} bytes")));
        }
        Ok(Some(text.to_owned()))
    }

    /// An error about it.
    pub fn error(&self, message: impl Into<String>) -> EvaluationError {
        self.expression.error(message)
    }

    /// An error that says what it is and what it should be.
    pub fn mismatch(&self, want: &str) -> EvaluationError {
        self.expression.mismatch(want, self.value)
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
