//! Texts, as cel-go's strings extension has them. Positions count characters.

use std::sync::LazyLock;

use cel::common::types::{CelInt, CelList, CelString, LIST_TYPE, STRING_TYPE};
use cel::common::value::{CowVal, Val};
use cel::{Context, DeclarationError, Env, ExecutionError, Program, add_member_overload, add_overload};

use super::arguments::{Args, Outcome, count, failed, items, reserve, take, text};
use super::rendered;
use crate::budget::{charge, check_size};

pub(super) const FUNCTIONS: &[&str] = &[
    "charAt",
    "format",
    "indexOf",
    "join",
    "lastIndexOf",
    "lowerAscii",
    "replace",
    "reverse",
    "split",
    "strings.quote",
    "substring",
    "trim",
    "upperAscii",
];

/// Most bytes that a clause of a format makes of a number: 100 digits behind the point, and those before it.
const CLAUSE: usize = 512;
/// Bytes that `format` makes of a byte that it is given: two, in hexadecimal.
const HEXADECIMAL: usize = 2;

type Text = CelString<'static>;

pub(super) fn declare(env: &mut Env) -> Result<(), DeclarationError> {
    add_member_overload!(env, fn char_at: (CelString, CelInt) -> Result<CelString>)?;
    add_member_overload!(env, fn index_of: (CelString, CelString) -> CelInt)?;
    add_member_overload!(env, fn index_of_from: (CelString, CelString, CelInt) -> Result<CelInt>, name = "indexOf")?;
    add_member_overload!(env, fn last_index_of: (CelString, CelString) -> CelInt)?;
    add_member_overload!(env, fn last_index_of_from: (CelString, CelString, CelInt) -> Result<CelInt>, name = "lastIndexOf")?;
    add_member_overload!(env, fn lower_ascii: (CelString) -> Result<CelString>)?;
    add_member_overload!(env, fn upper_ascii: (CelString) -> Result<CelString>)?;
    add_member_overload!(env, fn trim: (CelString) -> Result<CelString>)?;
    add_member_overload!(env, fn replace: (CelString, CelString, CelString) -> Result<CelString>)?;
    add_member_overload!(env, fn replace_some: (CelString, CelString, CelString, CelInt) -> Result<CelString>, name = "replace")?;
    add_member_overload!(env, fn split: (CelString, CelString) -> Result<CelList>)?;
    add_member_overload!(env, fn split_some: (CelString, CelString, CelInt) -> Result<CelList>, name = "split")?;
    add_member_overload!(env, fn substring: (CelString, CelInt) -> Result<CelString>)?;
    add_member_overload!(env, fn substring_to: (CelString, CelInt, CelInt) -> Result<CelString>, name = "substring")?;
    add_member_overload!(env, fn reverse: (CelString) -> Result<CelString>)?;
    add_overload!(env, fn quote: (CelString) -> Result<CelString>, name = "strings.quote")?;
    env.add_member_overload("join", "list_join", LIST_TYPE, vec![], |args| {
        let [list] = take(args)?;
        join(list.as_ref(), "")
    })?;
    env.add_member_overload("join", "list_join_string", LIST_TYPE, vec![STRING_TYPE], |args| {
        let [list, separator] = take(args)?;
        join(list.as_ref(), text(&separator)?)
    })?;
    env.add_member_overload("format", "string_format", STRING_TYPE, vec![LIST_TYPE], format)
}

fn made(text: String) -> Result<Text, ExecutionError> {
    Ok(CelString::from(text))
}

fn out_of_range(function: &str, index: i64) -> ExecutionError {
    failed(function, format!("index out of range: {index}"))
}

/// The byte at which a character begins, and the text's end for the position behind the last one.
fn byte_of(text: &str, position: i64) -> Option<usize> {
    let position = usize::try_from(position).ok()?;
    text.char_indices().map(|(byte, _)| byte).chain([text.len()]).nth(position)
}

fn position_of(text: &str, byte: Option<usize>) -> CelInt {
    let before = byte.and_then(|byte| text.get(..byte));
    before.map_or(CelInt::from(-1), |before| count(before.chars().count()))
}

fn char_at(this: &CelString<'_>, index: &CelInt) -> Result<Text, ExecutionError> {
    let rest = byte_of(this, *index.inner()).and_then(|byte| this.get(byte..));
    let rest = rest.ok_or_else(|| out_of_range("charAt", *index.inner()))?;
    made(rest.chars().take(1).collect())
}

fn index_of(this: &CelString<'_>, wanted: &CelString<'_>) -> CelInt {
    position_of(this, this.find(wanted.inner()))
}

fn index_of_from(
    this: &CelString<'_>,
    wanted: &CelString<'_>,
    from: &CelInt,
) -> Result<CelInt, ExecutionError> {
    if *from.inner() < 0 {
        return Err(out_of_range("indexOf", *from.inner()));
    }
    let Some(start) = byte_of(this, *from.inner()) else { return Ok(beyond(this, wanted)) };
    let found = this.get(start..).and_then(|rest| rest.find(wanted.inner()));
    Ok(position_of(this, found.map(|byte| start + byte)))
}

/// What a search finds that begins behind the end: nothing, but an empty text at the end.
fn beyond(this: &CelString<'_>, wanted: &CelString<'_>) -> CelInt {
    position_of(this, wanted.is_empty().then_some(this.len()))
}

fn last_index_of(this: &CelString<'_>, wanted: &CelString<'_>) -> CelInt {
    position_of(this, this.rfind(wanted.inner()))
}

fn last_index_of_from(
    this: &CelString<'_>,
    wanted: &CelString<'_>,
    from: &CelInt,
) -> Result<CelInt, ExecutionError> {
    if *from.inner() < 0 {
        return Err(out_of_range("lastIndexOf", *from.inner()));
    }
    // Upstream also finds nothing when it is to begin at the very end, where nothing can begin.
    let start = byte_of(this, *from.inner()).filter(|&start| start < this.len());
    let Some(start) = start else { return Ok(beyond(this, wanted)) };
    // The last place where what begins at `start` can end.
    let end = (start + wanted.len()).min(this.len());
    let end = (start..=end).rev().find(|&byte| this.is_char_boundary(byte)).unwrap_or(start);
    let found = this.get(..end).and_then(|head| head.rfind(wanted.inner()));
    Ok(position_of(this, found))
}

fn lower_ascii(this: &CelString<'_>) -> Result<Text, ExecutionError> {
    reserve(this.len())?;
    made(this.to_ascii_lowercase())
}

fn upper_ascii(this: &CelString<'_>) -> Result<Text, ExecutionError> {
    reserve(this.len())?;
    made(this.to_ascii_uppercase())
}

fn trim(this: &CelString<'_>) -> Result<Text, ExecutionError> {
    let trimmed = this.trim();
    reserve(trimmed.len())?;
    made(trimmed.to_owned())
}

fn replace(this: &CelString<'_>, old: &CelString<'_>, new: &CelString<'_>) -> Result<Text, ExecutionError> {
    replace_some(this, old, new, &CelInt::from(-1))
}

fn replace_some(
    this: &CelString<'_>,
    old: &CelString<'_>,
    new: &CelString<'_>,
    limit: &CelInt,
) -> Result<Text, ExecutionError> {
    let limit = usize::try_from(*limit.inner()).unwrap_or(usize::MAX);
    let times = this.matches(old.inner()).take(limit).count();
    charge(times as u64)?;
    reserve((this.len() - times * old.len()).saturating_add(times.saturating_mul(new.len())))?;
    made(this.replacen(old.inner(), new.inner(), limit))
}

fn split(this: &CelString<'_>, separator: &CelString<'_>) -> Result<CelList<'static>, ExecutionError> {
    split_some(this, separator, &CelInt::from(-1))
}

/// An empty separator splits between characters, and not also before the first and behind the last one.
fn split_some(
    this: &CelString<'_>,
    separator: &CelString<'_>,
    limit: &CelInt,
) -> Result<CelList<'static>, ExecutionError> {
    let limit = usize::try_from(*limit.inner()).unwrap_or(usize::MAX);
    let mut parts: Vec<Box<dyn Val>> = Vec::new();
    let mut rest = Some(this.inner());
    if limit == 0 || (separator.is_empty() && this.is_empty()) {
        rest = None;
    }
    while let Some(text) = rest {
        let cut = if parts.len() + 1 >= limit {
            None
        } else if separator.is_empty() {
            text.char_indices().nth(1).and_then(|(byte, _)| text.split_at_checked(byte))
        } else {
            text.split_once(separator.inner())
        };
        let part = cut.map_or(text, |(part, _)| part);
        reserve(part.len())?;
        check_size(2 * parts.len() as u64)?;
        parts.push(Box::new(CelString::from(part.to_owned())));
        rest = cut.map(|(_, rest)| rest);
    }
    Ok(CelList::from(parts))
}

fn substring(this: &CelString<'_>, start: &CelInt) -> Result<Text, ExecutionError> {
    let rest = byte_of(this, *start.inner()).and_then(|byte| this.get(byte..));
    let rest = rest.ok_or_else(|| out_of_range("substring", *start.inner()))?;
    reserve(rest.len())?;
    made(rest.to_owned())
}

fn substring_to(this: &CelString<'_>, start: &CelInt, end: &CelInt) -> Result<Text, ExecutionError> {
    let (start, end) = (*start.inner(), *end.inner());
    if start > end {
        let message = format!("invalid substring range. start: {start}, end: {end}");
        return Err(failed("substring", message));
    }
    let byte = |position| byte_of(this, position).ok_or_else(|| out_of_range("substring", position));
    let part = this.get(byte(start)?..byte(end)?).unwrap_or_default();
    reserve(part.len())?;
    made(part.to_owned())
}

fn reverse(this: &CelString<'_>) -> Result<Text, ExecutionError> {
    reserve(this.len())?;
    made(this.chars().rev().collect())
}

fn quote(this: &CelString<'_>) -> Result<Text, ExecutionError> {
    reserve(2 * this.len() + 2)?;
    let mut quoted = String::from("\"");
    for c in this.chars() {
        match c {
            '\x07' => quoted.push_str("\\a"),
            '\x08' => quoted.push_str("\\b"),
            '\x0c' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\x0b' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    made(quoted)
}

fn join<'b, 'v>(list: &dyn Val, separator: &str) -> Outcome<'b, 'v> {
    let mut parts = Vec::new();
    let mut length = 0usize;
    for item in items(list)? {
        let part = item.downcast_ref::<CelString>().map(CelString::inner);
        let part = part.ok_or_else(|| {
            failed("join", format!("the list holds {}, not only strings", item.get_type().name()))
        })?;
        length = length.saturating_add(part.len()).saturating_add(separator.len());
        parts.push(part);
    }
    reserve(length)?;
    Ok(CowVal::owned(CelString::from(parts.join(separator))))
}

/// Formats with the library's own implementation, once it is known how long the outcome can become.
fn format<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    static LIBRARY: LazyLock<Option<(std::sync::Arc<Env>, Program)>> = LazyLock::new(|| {
        let mut env = Env::stdlib();
        cel::extensions::strings(&mut env).ok()?;
        let program = env.compile("template.format(values)").ok()?;
        Some((std::sync::Arc::new(env), program))
    });
    let [template, values] = take(args)?;
    let Some((env, program)) = &*LIBRARY else {
        return Err(failed("format", "the expression language has no such function"));
    };
    let clauses = text(&template)?.matches('%').count();
    let length = rendered::bytes(values.as_ref())?.saturating_mul(HEXADECIMAL);
    reserve(length.saturating_add(clauses * CLAUSE).saturating_add(text(&template)?.len()))?;
    let mut context = Context::with_env(std::sync::Arc::clone(env));
    context.add_variable_as_val("template", template.into_owned());
    context.add_variable_as_val("values", values.into_owned());
    let formatted = cel::Value::resolve_val(program.expression(), &context)?;
    let formatted = formatted.downcast_ref::<CelString>().map(|text| text.inner().to_owned());
    Ok(CowVal::owned(CelString::from(formatted.unwrap_or_default())))
}
