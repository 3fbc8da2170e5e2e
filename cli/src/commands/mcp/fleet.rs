//! `fleet_status`: packages and gates, those that wait first.

use serde_json::{Value, json};

use super::api::Api;
use super::arguments::{FleetQuestion, Name};
use super::bound::{Listed, Told, list};
use super::objects::{self, Gate, Object, Package};

/// Asks and tells.
pub(super) async fn answer(api: &Api, question: &FleetQuestion) -> Result<Told, String> {
    let query: Vec<_> =
        question.namespace.iter().map(|namespace| ("namespace", namespace.as_str())).collect();
    let (packages, gates) = tokio::try_join!(api.get(&["packages"], &query), api.get(&["gates"], &query))?;
    tell(question, objects::packages(&packages)?, objects::gates(&gates)?)
}

fn tell(question: &FleetQuestion, packages: Vec<Package>, gates: Vec<Gate>) -> Result<Told, String> {
    let asked_for = question.fleet_package.as_ref().map(Name::as_str);
    let packages = packages.into_iter().filter(|it| asked_for.is_none_or(|name| it.standing.name == name));
    let gates = gates.into_iter().filter(|it| asked_for.is_none_or(|name| it.fleet_package() == Some(name)));
    let (packages, gates) = (Group::of(packages, question), Group::of(gates, question));
    let mut lines = vec![format!(
        "{}: {} of {} packages Ready, {} of {} gates open.",
        question
            .namespace
            .as_ref()
            .map_or_else(|| "All namespaces".to_owned(), |it| format!("Namespace {}", it.as_str())),
        packages.open,
        packages.total,
        gates.open,
        gates.total
    )];
    let (shown_packages, shown_gates) =
        (packages.list(question, Package::entry), gates.list(question, Gate::entry));
    packages.lines(&shown_packages, &mut lines);
    gates.lines(&shown_gates, &mut lines);
    let data = json!({
        "namespace": question.namespace.as_ref().map(Name::as_str),
        "totals": {
            "packages": packages.total, "packagesReady": packages.open, "gates": gates.total, "gatesOpen": gates.open,
        },
        "packages": shown_packages.shown,
        "gates": shown_gates.shown,
        "leftOut": {"packages": shown_packages.left_out, "gates": shown_gates.left_out},
    });
    Told::new(lines.join("\n"), data)
}

/// Objects of one kind, and how many there were before some were left out on purpose.
struct Group<S, T> {
    total: usize,
    open: usize,
    wanted: Vec<Object<S, T>>,
}

impl<S, T> Group<S, T> {
    fn of(all: impl Iterator<Item = Object<S, T>>, question: &FleetQuestion) -> Self {
        let mut wanted: Vec<_> = all.collect();
        let (total, open) = (wanted.len(), wanted.iter().filter(|it| it.standing.open).count());
        wanted.retain(|it| !question.only_waiting || !it.standing.open);
        wanted.sort_by_key(|it| it.standing.open);
        Self { total, open, wanted }
    }

    fn list(&self, question: &FleetQuestion, entry: impl Fn(&Object<S, T>) -> Value) -> Listed {
        list(self.wanted.iter().map(entry), question.limit.into())
    }

    fn lines(&self, listed: &Listed, lines: &mut Vec<String>) {
        lines.extend(self.wanted.iter().take(listed.shown.len()).map(Object::line));
        if let (Some(it), 1..) = (self.wanted.first(), listed.left_out) {
            let more = listed.left_out;
            lines.push(format!(
                "{}s left out: {more}. Name a namespace or a fleetPackage, or raise limit.",
                it.kind
            ));
        }
    }
}
