//! Semantic versions, as Kubernetes' semver library has them.

use std::any::Any;
use std::cmp::Ordering;

use ::semver::Version;
use cel::common::types::{CelBool, CelInt, CelString, Type};
use cel::common::value::{StaticVal, Val};
use cel::{DeclarationError, Env, ExecutionError, add_member_overload, add_overload};

use super::arguments::failed;

pub(super) const FUNCTIONS: &[&str] =
    &["compareTo", "isGreaterThan", "isLessThan", "isSemver", "major", "minor", "patch", "semver"];

/// Longest version, in bytes.
const MAX_VERSION: usize = 1024;

pub(super) fn declare(env: &mut Env) -> Result<(), DeclarationError> {
    add_overload!(env, fn semver: (CelString) -> Result<Semver>)?;
    add_overload!(env, fn semver_normalized: (CelString, CelBool) -> Result<Semver>, name = "semver")?;
    add_overload!(env, fn is_semver: (CelString) -> CelBool)?;
    add_overload!(env, fn is_semver_normalized: (CelString, CelBool) -> CelBool, name = "isSemver")?;
    add_member_overload!(env, fn is_less_than: (Semver, Semver) -> CelBool)?;
    add_member_overload!(env, fn is_greater_than: (Semver, Semver) -> CelBool)?;
    add_member_overload!(env, fn compare_to: (Semver, Semver) -> CelInt)?;
    add_member_overload!(env, fn major: (Semver) -> CelInt)?;
    add_member_overload!(env, fn minor: (Semver) -> CelInt)?;
    add_member_overload!(env, fn patch: (Semver) -> CelInt)?;
    env.add_type(SEMVER.to_owned())
}

static SEMVER: Type = Type::new_unspecified_type("kubernetes.Semver");

/// A version; what is behind its `+` makes no difference.
#[derive(Debug, Clone)]
struct Semver(Version);

impl Val for Semver {
    fn get_type(&self) -> &Type {
        &SEMVER
    }

    fn cel_type() -> &'static Type {
        &SEMVER
    }

    fn equals(&self, other: &dyn Val) -> bool {
        other.downcast_ref::<Self>().is_some_and(|other| self.0.cmp_precedence(&other.0).is_eq())
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl StaticVal for Semver {}

fn parse(text: &str, normalize: bool) -> Result<Semver, String> {
    if text.len() > MAX_VERSION {
        return Err(format!("the version is longer than {MAX_VERSION} bytes"));
    }
    let normalized = if normalize { normalized(text)? } else { text.to_owned() };
    let version =
        Version::parse(&normalized).map_err(|error| format!("`{text}` is no semantic version: {error}"))?;
    let too_large = |part: &str| part.bytes().all(|b| b.is_ascii_digit()) && part.parse::<u64>().is_err();
    if !version.pre.is_empty() && version.pre.split('.').any(too_large) {
        return Err(format!("`{text}` is no semantic version: a number in its pre-release is too large"));
    }
    Ok(Semver(version))
}

/// Without `v` in front and zeros in front of numbers, and with the numbers that are left out.
fn normalized(text: &str) -> Result<String, String> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text.splitn(3, '.').map(without_zeros).collect();
    if parts.len() < 3 && parts.last().is_some_and(|last| last.contains(['+', '-'])) {
        return Err(format!("`{text}` has a pre-release or build, but not three numbers"));
    }
    parts.resize(3, "0".to_owned());
    Ok(parts.join("."))
}

fn without_zeros(part: &str) -> String {
    let rest = part.trim_start_matches('0');
    if part.len() < 2 {
        part.to_owned()
    } else if rest.starts_with(|c: char| c.is_ascii_digit()) {
        rest.to_owned()
    } else {
        format!("0{rest}")
    }
}

fn semver(text: &CelString<'_>) -> Result<Semver, ExecutionError> {
    parse(text, false).map_err(|error| failed("semver", error))
}

fn semver_normalized(text: &CelString<'_>, normalize: &CelBool) -> Result<Semver, ExecutionError> {
    parse(text, *normalize.inner()).map_err(|error| failed("semver", error))
}

fn is_semver(text: &CelString<'_>) -> CelBool {
    CelBool::from(parse(text, false).is_ok())
}

fn is_semver_normalized(text: &CelString<'_>, normalize: &CelBool) -> CelBool {
    CelBool::from(parse(text, *normalize.inner()).is_ok())
}

fn compare(a: &Semver, b: &Semver) -> Ordering {
    a.0.cmp_precedence(&b.0)
}

fn is_less_than(this: &Semver, other: &Semver) -> CelBool {
    CelBool::from(compare(this, other).is_lt())
}

fn is_greater_than(this: &Semver, other: &Semver) -> CelBool {
    CelBool::from(compare(this, other).is_gt())
}

fn compare_to(this: &Semver, other: &Semver) -> CelInt {
    CelInt::from(compare(this, other) as i64)
}

/// A number beyond those that the language has becomes negative, as upstream.
fn number(n: u64) -> CelInt {
    CelInt::from(n.cast_signed())
}

fn major(this: &Semver) -> CelInt {
    number(this.0.major)
}

fn minor(this: &Semver) -> CelInt {
    number(this.0.minor)
}

fn patch(this: &Semver) -> CelInt {
    number(this.0.patch)
}
