//! What is named on a command line: an object of the hub (`gate/NAME`, `package/NAME`), a revision.

use statusbridge_contract::wanted;
use statusbridge_core::reconcile::object::Kind;

/// Longest name of an object.
const LONGEST_NAME: usize = 253;

/// A gate or a FleetPackage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) kind: Kind,
    pub(crate) name: String,
}

impl std::fmt::Display for Target {
    /// As kubectl names it, less the group.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.kind.name().to_lowercase(), self.name)
    }
}

/// Reads KIND/NAME. Kinds are `gate`, `package`, and the words that kubectl takes.
///
/// # Errors
/// In words for a user, when it is something else.
pub(crate) fn target(text: &str) -> Result<Target, String> {
    let usage = || format!("{text:?} is neither gate/NAME nor package/NAME");
    let (kind, name) = text.split_once('/').ok_or_else(usage)?;
    let kind = match kind.to_ascii_lowercase().split('.').next().unwrap_or_default() {
        "gate" | "rgate" | "rolloutgate" | "rolloutgates" => Kind::RolloutGate,
        "package" | "fpkg" | "fleetpackage" | "fleetpackages" => Kind::FleetPackage,
        _ => return Err(usage()),
    };
    Ok(Target { kind, name: self::name(name)? })
}

/// Reads the name of an object or a namespace.
///
/// # Errors
/// In words for a user, when it cannot be one.
pub(crate) fn name(text: &str) -> Result<String, String> {
    let inside = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b);
    let outermost = [text.bytes().next(), text.bytes().last()];
    let at_ends = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
    if text.len() <= LONGEST_NAME && text.bytes().all(inside) && outermost.into_iter().all(at_ends) {
        Ok(text.to_owned())
    } else {
        Err(format!("{text:?} cannot be a name"))
    }
}

/// Reads a revision that is asked for.
///
/// # Errors
/// In words for a user, when no cluster can report it.
pub(crate) fn revision(text: &str) -> Result<String, wanted::Unmatchable> {
    wanted::fingerprint(text).map(|_| text.to_owned())
}

/// Warns on standard error of a revision that looks like a shortened commit.
pub(crate) fn warn_of(revision: &str) {
    if let Some(doubt) = wanted::doubt(revision) {
        eprintln!("warning: {doubt}");
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("gate/wave-1", Ok("rolloutgate/wave-1"))]
    #[case("rolloutgate.statusbridge.dev/wave-1", Ok("rolloutgate/wave-1"))]
    #[case("FleetPackage/a.b", Ok("fleetpackage/a.b"))]
    #[case("package/payments", Ok("fleetpackage/payments"))]
    #[case("gate/", Err("\"\" cannot be a name"))]
    #[case("gate/..", Err("\"..\" cannot be a name"))]
    #[case("gate/../x", Err("\"../x\" cannot be a name"))]
    #[case("payments", Err("\"payments\" is neither gate/NAME nor package/NAME"))]
    #[case("pod/x", Err("\"pod/x\" is neither gate/NAME nor package/NAME"))]
    fn targets(#[case] text: &str, #[case] expected: Result<&str, &str>) {
        let read = target(text).map(|target| target.to_string());
        assert_eq!(read, expected.map(str::to_owned).map_err(str::to_owned));
    }
}
