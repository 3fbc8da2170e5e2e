//! Reading fields as Go's helpers for unstructured objects do, wrong types and nulls included.

use jiff::civil::DateTime;
use serde_json::Value;

/// What a null is where a field of a certain type is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nulls {
    /// A value of the wrong type, as for Go.
    AreValues,
    /// No field at all, as for the API server and in lean objects.
    AreAbsent,
}

/// Why an object cannot be read. Go returns an error there, or panics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Malformed {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Malformed {
    /// The wrong type at a path; the reason names the part of the object, for who counts reasons.
    fn new(path: &[&str], value: &Value, expected: &str) -> Self {
        let reason = match path {
            [] => "Malformed",
            ["metadata", ..] => "MalformedMetadata",
            ["status", "conditions", ..] => "MalformedConditions",
            _ => "MalformedStatus",
        };
        let found = match value {
            Value::Null => "null",
            Value::Bool(_) => "a bool",
            Value::Number(n) if n.is_i64() => "an integer",
            Value::Number(_) => "no 64-bit integer",
            Value::String(_) => "a string",
            Value::Array(_) => "a list",
            Value::Object(_) => "a map",
        };
        Self { reason, message: format!(".{} is {found}, expected {expected}", path.join(".")) }
    }
}

/// A condition, each of its fields empty when it is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Condition<'v> {
    pub(super) type_: &'v str,
    pub(super) status: &'v str,
    pub(super) reason: &'v str,
    pub(super) message: &'v str,
}

/// An object to look into.
#[derive(Debug, Clone, Copy)]
pub(super) struct Object<'v> {
    root: &'v Value,
    nulls: Nulls,
}

impl<'v> Object<'v> {
    pub(super) fn new(root: &'v Value, nulls: Nulls) -> Self {
        Self { root, nulls }
    }

    /// Refuses what is no map, null included: Go cannot even be asked about it.
    pub(super) fn check(&self) -> Result<(), Malformed> {
        if self.root.is_object() { Ok(()) } else { Err(Malformed::new(&[], self.root, "a map")) }
    }

    /// `NestedFieldNoCopy`: a null on the way there is nothing, anything else but a map is an error.
    fn at(&self, path: &[&str]) -> Result<Option<&'v Value>, Malformed> {
        let mut value = self.root;
        for (depth, field) in path.iter().enumerate() {
            value = match value {
                Value::Null => return Ok(None),
                Value::Object(map) => match map.get(*field) {
                    Some(value) => value,
                    None => return Ok(None),
                },
                _ => return Err(Malformed::new(path.get(..depth).unwrap_or(path), value, "a map")),
            };
        }
        Ok(self.present(value))
    }

    fn present(&self, value: &'v Value) -> Option<&'v Value> {
        (self.nulls == Nulls::AreValues || !value.is_null()).then_some(value)
    }

    /// `NestedString`.
    pub(super) fn string(&self, path: &[&str]) -> Result<Option<&'v str>, Malformed> {
        let Some(value) = self.at(path)? else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| Malformed::new(path, value, "a string"))
    }

    /// `NestedInt64`.
    pub(super) fn int64(&self, path: &[&str]) -> Result<Option<i64>, Malformed> {
        let Some(value) = self.at(path)? else { return Ok(None) };
        value.as_i64().map(Some).ok_or_else(|| Malformed::new(path, value, "an integer"))
    }

    /// `GetIntField`: the default also for what is no integer, or not where it should be.
    pub(super) fn int_or(&self, path: &[&str], default: i64) -> i64 {
        self.lenient(path).and_then(Value::as_i64).unwrap_or(default)
    }

    /// `GetStringField`.
    pub(super) fn string_or(&self, path: &[&str], default: &'v str) -> &'v str {
        self.lenient(path).and_then(Value::as_str).unwrap_or(default)
    }

    /// `GetBoolField`.
    pub(super) fn bool_or(&self, path: &[&str], default: bool) -> bool {
        self.lenient(path).and_then(Value::as_bool).unwrap_or(default)
    }

    fn lenient(&self, path: &[&str]) -> Option<&'v Value> {
        self.at(path).ok().flatten()
    }

    /// `GetKind`.
    pub(super) fn kind(&self) -> &'v str {
        self.string_or(&["kind"], "")
    }

    /// `GroupVersionKind`, as the table of kinds has it: `group/kind`, or the kind alone in the core
    /// group; empty where the group cannot be read.
    pub(super) fn group_kind(&self) -> String {
        let version = self.string_or(&["apiVersion"], "");
        match version.split('/').collect::<Vec<_>>()[..] {
            [_] => group_kind("", self.kind()),
            [group, _] => group_kind(group, self.kind()),
            _ => String::new(),
        }
    }

    /// `GetObjectWithConditions`: one field of the wrong type spoils all of them.
    pub(super) fn conditions(&self) -> Result<Vec<Condition<'v>>, Malformed> {
        let path = ["status", "conditions"];
        let items = match self.root.get("status") {
            None | Some(Value::Null) => return Ok(Vec::new()),
            Some(Value::Object(status)) => match status.get("conditions") {
                None | Some(Value::Null) => return Ok(Vec::new()),
                Some(Value::Array(items)) => items,
                Some(other) => return Err(Malformed::new(&path, other, "a list")),
            },
            Some(other) => return Err(Malformed::new(&["status"], other, "a map")),
        };
        let field = |item: &'v Value, name: &str| match item.get(name) {
            None | Some(Value::Null) => Ok(""),
            Some(Value::String(text)) => Ok(text.as_str()),
            Some(other) => Err(Malformed::new(&["status", "conditions", name], other, "a string")),
        };
        let condition = |item: &'v Value| {
            if !item.is_object() && !item.is_null() {
                return Err(Malformed::new(&path, item, "a list of maps"));
            }
            Ok(Condition {
                type_: field(item, "type")?,
                status: field(item, "status")?,
                reason: field(item, "reason")?,
                message: field(item, "message")?,
            })
        };
        items.iter().map(condition).collect()
    }

    /// The conditions, each with the generation that it says it was made of.
    pub(super) fn conditions_with_generation(&self) -> Result<Vec<(Condition<'v>, Option<i64>)>, Malformed> {
        let path = ["status", "conditions"];
        let conditions = self.conditions()?;
        let items = self.at(&path)?.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let observed = |item: &'v Value| {
            let Some(observed) = item.get("observedGeneration").and_then(|o| self.present(o)) else {
                return Ok(None);
            };
            let path = ["status", "conditions", "observedGeneration"];
            observed.as_i64().map(Some).ok_or_else(|| Malformed::new(&path, observed, "an integer"))
        };
        conditions.into_iter().zip(items).map(|(condition, item)| Ok((condition, observed(item)?))).collect()
    }

    /// The names of the containers that wait for the reason `reason`. Go panics on wrong types below
    /// a container status.
    pub(super) fn containers_waiting(&self, reason: &str) -> Result<Vec<&'v str>, Malformed> {
        let path = ["status", "containerStatuses"];
        let items = match self.at(&path)? {
            None => return Ok(Vec::new()),
            Some(Value::Array(items)) => items,
            Some(other) => return Err(Malformed::new(&path, other, "a list")),
        };
        let mut names = Vec::new();
        for item in items {
            let Some(name) = self.below(item, "name")? else { continue };
            let name = name.as_str().ok_or_else(|| Malformed::new(&path, name, "names that are strings"))?;
            let Some(state) = self.below(item, "state")? else { continue };
            let Some(waiting) = self.below(state, "waiting")? else { continue };
            let Some(why) = self.below(waiting, "reason")? else { continue };
            let why = why.as_str().ok_or_else(|| Malformed::new(&path, why, "reasons that are strings"))?;
            if why == reason {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn below(&self, value: &'v Value, field: &str) -> Result<Option<&'v Value>, Malformed> {
        match value {
            Value::Object(map) => Ok(map.get(field).and_then(|value| self.present(value))),
            other => Err(Malformed::new(&["status", "containerStatuses"], other, "a list of maps of maps")),
        }
    }

    /// `GetCreationTimestamp` in nanoseconds since 1970; `None` for what Go reads as its zero time.
    pub(super) fn creation(&self) -> Option<i128> {
        go_time(self.string_or(&["metadata", "creationTimestamp"], ""))
    }
}

/// The key of a kind: `group/kind`, or the kind alone in the core group.
pub(super) fn group_kind(group: &str, kind: &str) -> String {
    if group.is_empty() { kind.to_owned() } else { format!("{group}/{kind}") }
}

/// `time.Parse(time.RFC3339, …)`, which takes less than other parsers do (no space for the T, no
/// lower case, no leap second), and a bit more (an hour of one digit, a comma before the fraction).
fn go_time(text: &str) -> Option<i128> {
    let (date, rest) = text.split_once('T')?;
    let [year, month, day] = numbers(date, '-', &[4..=4, 2..=2, 2..=2])?;
    let end = rest.find(['Z', '+', '-'])?;
    let (time, zone) = rest.split_at(end);
    let (time, fraction) = match time.split_once(['.', ',']) {
        Some((_, fraction)) if fraction.is_empty() || !fraction.bytes().all(|b| b.is_ascii_digit()) => {
            return None;
        }
        Some((time, fraction)) => (time, fraction.get(..9).unwrap_or(fraction)),
        None => (time, ""),
    };
    let [hour, minute, second] = numbers(time, ':', &[1..=2, 2..=2, 2..=2])?;
    let nanosecond: i32 = format!("{fraction:0<9}").parse().ok()?;
    let offset = match zone {
        "Z" => 0,
        _ => {
            let [hours, minutes] = numbers(zone.get(1..)?, ':', &[2..=2, 2..=2])?;
            if hours > 24 || minutes > 60 {
                return None;
            }
            i128::from(hours) * 3600 + i128::from(minutes) * 60
        }
    };
    let offset = if zone.starts_with('-') { -offset } else { offset };
    let narrow = |n: i32| i8::try_from(n).ok();
    let (hour, minute, second) = (narrow(hour)?, narrow(minute)?, narrow(second)?);
    let (year, month, day) = (i16::try_from(year).ok()?, narrow(month)?, narrow(day)?);
    let time = DateTime::new(year, month, day, hour, minute, second, nanosecond).ok()?;
    let since = time.duration_since(DateTime::new(1970, 1, 1, 0, 0, 0, 0).ok()?);
    Some(since.as_nanos() - offset * 1_000_000_000)
}

/// Numbers with a separator between them, each of so many digits.
fn numbers<const N: usize>(
    text: &str,
    separator: char,
    digits: &[std::ops::RangeInclusive<usize>; N],
) -> Option<[i32; N]> {
    let mut found = [0; N];
    let mut parts = text.split(separator);
    for (number, digits) in found.iter_mut().zip(digits) {
        let part = parts.next()?;
        if !digits.contains(&part.len()) || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(found)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::go_time;

    #[rstest]
    #[case::plain("1970-01-01T00:00:01Z", Some(1_000_000_000))]
    #[case::fraction("1970-01-01T00:00:00.5Z", Some(500_000_000))]
    #[case::comma("1970-01-01T00:00:00,5Z", Some(500_000_000))]
    #[case::finer_than_nanoseconds("1970-01-01T00:00:00.1234567899Z", Some(123_456_789))]
    #[case::hour_of_one_digit("1970-01-01T1:00:00Z", Some(3_600_000_000_000))]
    #[case::east("1970-01-01T01:00:00+01:00", Some(0))]
    #[case::west("1970-01-01T00:00:00-00:01", Some(60_000_000_000))]
    #[case::leap_second("1970-01-01T00:00:60Z", None)]
    #[case::lower_case("1970-01-01t00:00:00z", None)]
    #[case::space("1970-01-01 00:00:00Z", None)]
    #[case::no_zone("1970-01-01T00:00:00", None)]
    #[case::no_such_day("1970-02-30T00:00:00Z", None)]
    #[case::nothing("", None)]
    fn times_are_read_as_go_reads_them(#[case] text: &str, #[case] expected: Option<i128>) {
        assert_eq!(go_time(text), expected);
    }
}
