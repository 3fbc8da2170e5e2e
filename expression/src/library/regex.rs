//! Regular expressions: `matches` of the standard library, Kubernetes' regex library, and cel-go's regex extension.
//!
//! What compiling a pattern costs is only known when the tree that runs is made, as a pattern that is written costs
//! nothing then. So these functions run under other names, with that as third argument.

use std::cell::RefCell;
use std::collections::HashMap;

use ::regex::{Captures, Error, Regex, RegexBuilder};
use cel::common::types::{CelBool, CelOptional, CelString, DYN_TYPE};
use cel::common::value::{CowVal, Val};
use cel::{DeclarationError, Env, ExecutionError};

use super::arguments::{Args, Outcome, failed, int, list_of, reserve, text};
use crate::budget::{charge, check_size};

/// Beside `matches`, which the standard library has.
pub(super) const FUNCTIONS: &[&str] =
    &["find", "findAll", "regex.extract", "regex.extractAll", "regex.replace"];

/// The functions, and the names that they run under.
const RUNS_AS: [(&str, &str); 6] = [
    ("matches", "@matches"),
    ("find", "@find"),
    ("findAll", "@findAll"),
    ("regex.extract", "@regex.extract"),
    ("regex.extractAll", "@regex.extractAll"),
    ("regex.replace", "@regex.replace"),
];

/// Bytes of a pattern's program that make it a small one, of which matching takes a step for a byte.
const SMALL_PATTERN: usize = 4 << 10;
/// Longest pattern, in bytes.
const MAX_PATTERN_TEXT: usize = 1024;
/// Most bytes of a pattern's program.
const MAX_PATTERN: usize = 128 << 10;
/// Steps for a byte of text with a pattern that is not small.
const LARGE_PATTERN_STEPS: u64 = 8;
/// How many times as much it takes to find out what a group of a pattern has matched.
const GROUP_FACTOR: u64 = 4;
/// Steps for a pattern that is only known when the expression runs.
pub(crate) const COMPILE_STEPS: u64 = 20_000;
/// Patterns that are kept compiled.
const KEPT_PATTERNS: usize = 64;

pub(super) fn declare(env: &mut Env) -> Result<(), DeclarationError> {
    for (function, name) in RUNS_AS {
        let (least, run): (usize, cel::common::functions::Function) = match function {
            "matches" => (3, matches),
            "find" => (3, find),
            "findAll" => (3, find_all),
            "regex.extract" => (3, extract),
            "regex.extractAll" => (3, extract_all),
            _ => (4, replace),
        };
        let most = if matches!(function, "findAll" | "regex.replace") { least + 1 } else { least };
        for count in least..=most {
            env.add_overload(name, &format!("{name}_{count}"), (0..count).map(|_| DYN_TYPE).collect(), run)?;
        }
    }
    Ok(())
}

/// The name under which a function that takes a text and a pattern runs.
pub(crate) fn runs_as(function: &str) -> Option<&'static str> {
    RUNS_AS.iter().find(|(name, _)| *name == function).map(|(_, runs)| *runs)
}

/// Why a text is no pattern.
pub(crate) fn check(pattern: &str) -> Result<(), String> {
    Pattern::compile(pattern).map(drop)
}

/// A pattern, compiled.
struct Pattern {
    regex: Regex,
    /// For a byte of text.
    steps: u64,
}

impl Pattern {
    fn compile(text: &str) -> Result<Self, String> {
        if text.len() > MAX_PATTERN_TEXT {
            return Err(format!("is a pattern longer than {MAX_PATTERN_TEXT} bytes"));
        }
        let build =
            |size: usize| RegexBuilder::new(text).size_limit(size).dfa_size_limit(MAX_PATTERN).build();
        match build(SMALL_PATTERN) {
            Ok(regex) => Ok(Self { regex, steps: 1 }),
            Err(Error::CompiledTooBig(_)) => match build(MAX_PATTERN) {
                Ok(regex) => Ok(Self { regex, steps: LARGE_PATTERN_STEPS }),
                Err(error) => Err(format!("cannot be used as a pattern: {error}")),
            },
            Err(error) => Err(format!("cannot be used as a pattern: {error}")),
        }
    }

    /// Uses a pattern; compiled ones are kept, which makes no difference to what they cost.
    fn with<T>(
        function: &str,
        text: &str,
        run: impl FnOnce(&Self) -> Result<T, ExecutionError>,
    ) -> Result<T, ExecutionError> {
        thread_local! {
            static KEPT: RefCell<HashMap<String, Pattern>> = RefCell::default();
        }
        KEPT.with_borrow_mut(|kept| {
            if let Some(pattern) = kept.get(text) {
                return run(pattern);
            }
            let compiled = Self::compile(text).map_err(|error| failed(function, error))?;
            if kept.len() >= KEPT_PATTERNS {
                kept.clear();
            }
            run(kept.entry(text.to_owned()).or_insert(compiled))
        })
    }

    fn groups(&self) -> usize {
        self.regex.captures_len() - 1
    }

    /// Pays for a search in so many bytes.
    fn charge(&self, bytes: usize, factor: u64) -> Result<(), ExecutionError> {
        charge(1 + bytes as u64 * self.steps * factor)
    }

    /// The text of each match, or of the group in it, if it matched. Each search may go on to the end of the text
    /// and is paid for as if it did.
    fn each<'t>(
        &self,
        text: &'t str,
        mut take: impl FnMut(&Match<'_, 't>) -> Result<bool, ExecutionError>,
    ) -> Result<(), ExecutionError> {
        let mut from = 0;
        if self.groups() == 0 {
            let mut matches = self.regex.find_iter(text);
            loop {
                self.charge(text.len() - from, 1)?;
                let Some(found) = matches.next() else { return Ok(()) };
                from = found.end();
                let found =
                    Match { from: found.start(), to: found.end(), whole: found.as_str(), groups: None };
                if !take(&found)? {
                    return Ok(());
                }
            }
        }
        let mut matches = self.regex.captures_iter(text);
        loop {
            self.charge(text.len() - from, GROUP_FACTOR)?;
            let Some(groups) = matches.next() else { return Ok(()) };
            let Some(found) = groups.get(0) else { return Ok(()) };
            from = found.end();
            let found =
                Match { from: found.start(), to: found.end(), whole: found.as_str(), groups: Some(&groups) };
            if !take(&found)? {
                return Ok(());
            }
        }
    }
}

struct Match<'m, 't> {
    from: usize,
    to: usize,
    whole: &'t str,
    /// If the pattern has any.
    groups: Option<&'m Captures<'t>>,
}

impl<'t> Match<'_, 't> {
    /// What a group matched, and all of it for 0; empty when it did not match.
    fn group(&self, number: usize) -> &'t str {
        match self.groups {
            Some(groups) => groups.get(number).map_or("", |group| group.as_str()),
            None => self.whole,
        }
    }
}

/// Texts that are found, paid for one by one.
#[derive(Default)]
struct Found<'v>(Vec<Box<dyn Val + 'v>>);

impl Found<'_> {
    fn push(&mut self, found: &str) -> Result<(), ExecutionError> {
        reserve(found.len())?;
        check_size(2 * self.0.len() as u64)?;
        self.0.push(Box::new(CelString::from(found.to_owned())));
        Ok(())
    }
}

/// Text and pattern of a search, compiling which is paid for; what else it is given follows.
fn search<'a, 'b, 'v>(
    args: &'a [CowVal<'b, 'v>],
) -> Result<(&'a str, &'a str, &'a [CowVal<'b, 'v>]), ExecutionError> {
    let [searched, pattern, steps, rest @ ..] = args else {
        return Err(ExecutionError::invalid_argument_count(3, args.len()));
    };
    let (searched, pattern) = (text(searched)?, text(pattern)?);
    charge(int(steps)?.unsigned_abs())?;
    Ok((searched, pattern, rest))
}

fn matches<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let (searched, pattern, _) = search(&args)?;
    let found = Pattern::with("matches", pattern, |pattern| {
        pattern.charge(searched.len(), 1)?;
        Ok(pattern.regex.is_match(searched))
    })?;
    Ok(CowVal::owned(CelBool::from(found)))
}

fn find<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let (searched, pattern, _) = search(&args)?;
    let found = Pattern::with("find", pattern, |pattern| {
        pattern.charge(searched.len(), 1)?;
        Ok(pattern.regex.find(searched).map_or("", |found| found.as_str()))
    })?;
    reserve(found.len())?;
    Ok(CowVal::owned(CelString::from(found.to_owned())))
}

fn find_all<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let (searched, pattern, rest) = search(&args)?;
    let limit = rest.first().map(int).transpose()?.map(usize::try_from);
    let limit = limit.and_then(Result::ok).unwrap_or(usize::MAX);
    let mut found = Found::default();
    Pattern::with("findAll", pattern, |pattern| {
        if limit == 0 {
            return Ok(());
        }
        pattern.each(searched, |one| {
            found.push(one.whole)?;
            Ok(found.0.len() < limit)
        })
    })?;
    Ok(list_of(found.0))
}

/// That a pattern has at most one group, which is what is extracted.
fn check_groups(function: &str, pattern: &Pattern) -> Result<usize, ExecutionError> {
    match pattern.groups() {
        groups @ 0..=1 => Ok(groups),
        groups => Err(failed(function, format!("the pattern has {groups} groups, where one is extracted"))),
    }
}

fn extract<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let (searched, pattern, _) = search(&args)?;
    let mut extracted = None;
    Pattern::with("regex.extract", pattern, |pattern| {
        let group = check_groups("regex.extract", pattern)?;
        pattern.each(searched, |found| {
            extracted = Some(found.group(group)).filter(|text| group == 0 || !text.is_empty());
            Ok(false)
        })
    })?;
    let extracted = extracted.map(|text| Box::new(CelString::from(text.to_owned())) as Box<dyn Val + 'v>);
    Ok(CowVal::owned(CelOptional::from(extracted)))
}

fn extract_all<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let (searched, pattern, _) = search(&args)?;
    let mut extracted = Found::default();
    Pattern::with("regex.extractAll", pattern, |pattern| {
        let group = check_groups("regex.extractAll", pattern)?;
        pattern.each(searched, |found| {
            let text = found.group(group);
            if group == 0 || !text.is_empty() {
                extracted.push(text)?;
            }
            Ok(true)
        })
    })?;
    Ok(list_of(extracted.0))
}

fn replace<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let (searched, pattern, rest) = search(&args)?;
    let replacement = rest.first().map(text).transpose()?.unwrap_or_default();
    let limit = rest.get(1).map(int).transpose()?.map(usize::try_from);
    let limit = limit.and_then(Result::ok).unwrap_or(usize::MAX);
    let mut replaced = Replaced::default();
    let mut behind = 0;
    if limit > 0 {
        let mut times = 0;
        Pattern::with("regex.replace", pattern, |pattern| {
            pattern.each(searched, |found| {
                replaced.push(searched.get(behind..found.from).unwrap_or_default())?;
                expand(&mut replaced, replacement, found, pattern.groups())?;
                behind = found.to;
                times += 1;
                Ok(times < limit)
            })
        })?;
    }
    replaced.push(searched.get(behind..).unwrap_or_default())?;
    Ok(CowVal::owned(CelString::from(replaced.0)))
}

/// A text that grows, paid for as it does.
#[derive(Default)]
struct Replaced(String);

impl Replaced {
    fn push(&mut self, text: &str) -> Result<(), ExecutionError> {
        reserve(text.len())?;
        check_size((self.0.len() + text.len()) as u64 / 64)?;
        self.0.push_str(text);
        Ok(())
    }
}

/// The replacement, in which `\1` stands for what the first group matched and `\\` for a backslash.
fn expand(
    into: &mut Replaced,
    replacement: &str,
    found: &Match<'_, '_>,
    groups: usize,
) -> Result<(), ExecutionError> {
    let mut rest = replacement;
    while let Some((plain, behind)) = rest.split_once('\\') {
        into.push(plain)?;
        let mut characters = behind.chars();
        match characters.next() {
            Some('\\') => into.push("\\")?,
            Some(digit @ '0'..='9') => {
                let number = digit.to_digit(10).unwrap_or(0) as usize;
                if number > groups {
                    let message = format!("`{replacement}` has group {number}, and the pattern {groups}");
                    return Err(failed("regex.replace", message));
                }
                into.push(found.group(number))?;
            }
            _ => {
                let message =
                    format!("in `{replacement}` a backslash stands before neither digit nor backslash");
                return Err(failed("regex.replace", message));
            }
        }
        rest = characters.as_str();
    }
    into.push(rest)
}
