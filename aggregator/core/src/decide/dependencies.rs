//! What a gate's dependencies come to.

use statusbridge_api::Reason;

use super::list;

/// How another gate, which a gate depends on, stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dependency {
    /// Open at its present generation, and at the same revision if it is about the same package.
    Open,
    /// There is none of this name.
    NotFound,
    /// About the same package, but another revision.
    AtAnotherRevision,
    /// Closed, not judged yet, or it cannot be read.
    NotOpen,
}

/// All that a gate depends on.
#[derive(Debug, Clone, Default)]
pub struct Dependencies<'a> {
    /// The other gates by name, in the order of the spec.
    pub gates: Vec<(&'a str, Dependency)>,
    /// The gates by way of which the gate waits for itself, in words.
    pub cycle: Option<String>,
}

impl Dependencies<'_> {
    /// Whether nothing of it keeps the gate closed.
    pub(super) fn are_met(&self) -> bool {
        self.cycle.is_none() && self.gates.iter().all(|(_, standing)| *standing == Dependency::Open)
    }

    /// That the gate waits for itself, if it does.
    pub(super) fn circular(&self) -> Option<(Reason, String)> {
        self.cycle.as_ref().map(|path| (Reason::DependencyCycle, format!("depends on itself: {path}")))
    }

    /// What keeps the gate closed, most important first.
    pub(super) fn waiting(&self) -> Vec<(Reason, String)> {
        let of = |standing| -> Vec<String> {
            let gates = self.gates.iter().filter(|(_, is)| *is == standing);
            gates.map(|(name, _)| (*name).to_owned()).collect()
        };
        let rest = [
            (Dependency::NotFound, Reason::DependencyNotFound, "does not exist", "do not exist"),
            (
                Dependency::AtAnotherRevision,
                Reason::DependencyAtAnotherRevision,
                "is about another revision of the package",
                "are about another revision of the package",
            ),
            (Dependency::NotOpen, Reason::DependencyNotOpen, "is not open", "are not open"),
        ];
        let rest = rest.into_iter().filter_map(|(standing, reason, one, several)| {
            let names = of(standing);
            match names.len() {
                0 => None,
                1 => Some((reason, format!("gate {} {one}", list(&names)))),
                _ => Some((reason, format!("gates {} {several}", list(&names)))),
            }
        });
        self.circular().into_iter().chain(rest).collect()
    }
}
