//! What differs between what is expected and what is shown, in words.

use std::fmt;

use statusbridge_contract::Fingerprint;

use crate::{
    rehearsal::{Package, PackageId, Transition},
    source::{Detail, Expectation, Revisions, Verdict, stands_for},
};

/// Most pairs of transitions that are compared to find the shortest difference.
const MAX_PAIRS: usize = 4_000_000;

/// A package, or that there is none any more.
pub(super) struct Seen<'a> {
    pub(super) id: &'a PackageId,
    pub(super) package: Option<&'a Package>,
    /// Since when, in unix milliseconds.
    pub(super) at: i64,
}

/// What a field is to be.
enum Wanted {
    Text(String),
    Revision(Revisions),
}

/// What a field is. No text is nothing.
enum Found {
    Text(String),
    Revision(Fingerprint, Option<String>),
}

/// A field of an expectation: its name, and how to have it of what is expected and of what is shown.
struct Field {
    name: &'static str,
    wanted: fn(&Expectation) -> Option<Wanted>,
    found: fn(&Seen<'_>) -> Option<Found>,
}

/// All of them, in the order in which people read them.
const FIELDS: [Field; 18] = [
    Field { name: "package", wanted: |it| text(&it.package), found: |it| found(Some(it.id)) },
    Field {
        name: "version",
        wanted: |it| text(&it.version),
        found: |it| found(it.package.map(|it| it.version)),
    },
    Field {
        name: "time",
        wanted: |it| text(&it.time),
        found: |it| found(jiff::Timestamp::from_millisecond(it.at).ok()),
    },
    Field { name: "shown", wanted: |it| text(&it.shown), found: |it| found(Some(it.package.is_some())) },
    Field { name: "apply", wanted: |it| text(&it.apply), found: |it| found(it.verdict().map(|it| it.apply)) },
    Field {
        name: "health",
        wanted: |it| text(&it.health),
        found: |it| found(it.verdict().map(|it| it.health)),
    },
    Field { name: "reason", wanted: |it| text(&it.reason), found: |it| found(it.verdict()?.reason.as_ref()) },
    Field {
        name: "message",
        wanted: |it| text(&it.message),
        found: |it| found(it.detail().map(|it| &it.message)),
    },
    Field {
        name: "desiredRevision",
        wanted: |it| revision(&it.desired_revision),
        found: |it| Some(Found::Revision(it.verdict()?.desired, it.detail()?.desired_revision.clone())),
    },
    Field {
        name: "attemptedRevision",
        wanted: |it| text(&it.attempted_revision),
        found: |it| found(it.detail()?.attempted_revision.as_ref()),
    },
    Field {
        name: "appliedRevision",
        wanted: |it| revision(&it.applied_revision),
        found: |it| Some(Found::Revision(it.verdict()?.applied, it.detail()?.applied_revision.clone())),
    },
    Field {
        name: "healthyRevision",
        wanted: |it| revision(&it.healthy_revision),
        found: |it| Some(Found::Revision(it.verdict()?.healthy, it.detail()?.applied_revision.clone())),
    },
    Field {
        name: "resources",
        wanted: |it| text(&it.resources),
        found: |it| {
            let counts = it.verdict()?.resources?;
            found(Some(format!("{}/{}/{}", counts.total, counts.current, counts.failed)))
        },
    },
    Field {
        name: "worstResource",
        wanted: |it| text(&it.worst_resource),
        found: |it| found(it.detail()?.worst_resource.as_ref()),
    },
    Field {
        name: "operation",
        wanted: |it| text(&it.operation),
        found: |it| found(it.detail()?.operation.as_ref()),
    },
    Field {
        name: "since",
        wanted: |it| text(&it.since),
        found: |it| found(jiff::Timestamp::from_second(it.verdict()?.since?).ok()),
    },
    Field {
        name: "undecided",
        wanted: |it| text(&it.undecided),
        found: |it| found(it.package.map(|it| it.undecided)),
    },
    Field {
        name: "error",
        wanted: |it| text(&it.error),
        found: |it| found(it.package?.error.as_ref().map(|it| &it.field)),
    },
];

fn text(wanted: &Option<impl ToString>) -> Option<Wanted> {
    wanted.as_ref().map(|wanted| Wanted::Text(wanted.to_string()))
}

fn revision(wanted: &Option<Revisions>) -> Option<Wanted> {
    wanted.clone().map(Wanted::Revision)
}

fn found(found: Option<impl ToString>) -> Option<Found> {
    found.map(|found| Found::Text(found.to_string()))
}

impl<'a> Seen<'a> {
    pub(super) fn of(transition: &'a Transition) -> Self {
        Self { id: &transition.id, package: transition.package.as_ref(), at: transition.at }
    }

    fn verdict(&self) -> Option<&'a Verdict> {
        self.package.map(|package| &package.shown.verdict)
    }

    fn detail(&self) -> Option<&'a Detail> {
        self.package.map(|package| &package.detail)
    }
}

impl Field {
    fn found(&self, seen: &Seen<'_>) -> Found {
        (self.found)(seen).unwrap_or(Found::Text(String::new()))
    }

    /// Whether it is what is expected, if anything is.
    fn is_right(&self, expected: &Expectation, seen: &Seen<'_>) -> bool {
        match ((self.wanted)(expected), self.found(seen)) {
            (None, _) => true,
            (Some(Wanted::Revision(wanted)), Found::Revision(found, _)) => wanted.fingerprint() == found,
            (Some(wanted), found) => wanted.to_string() == found.to_string(),
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Revision(revisions) => f.write_str(&revisions.text()),
        }
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Revision(fingerprint, _) if fingerprint.is_none() => Ok(()),
            Self::Revision(fingerprint, Some(text)) if stands_for(*fingerprint, text) => f.write_str(text),
            Self::Revision(fingerprint, _) => write!(f, "{fingerprint}"),
        }
    }
}

/// What differs between what is seen and what is expected of it, a line for each field.
pub(super) fn differences(expected: &Expectation, seen: &Seen<'_>) -> Vec<String> {
    let wrong: Vec<&Field> = FIELDS.iter().filter(|field| !field.is_right(expected, seen)).collect();
    let width = wrong.iter().map(|field| field.name.len()).max().unwrap_or_default();
    let or_nothing = |text: String| if text.is_empty() { "nothing".to_owned() } else { text };
    let line = |field: &&Field| {
        let wanted = (field.wanted)(expected).map(|wanted| wanted.to_string()).unwrap_or_default();
        let found = field.found(seen).to_string();
        format!("{:width$}  expected {}, found {}", field.name, or_nothing(wanted), or_nothing(found))
    };
    let mut lines: Vec<String> = wrong.iter().map(line).collect();
    if let Some(error) = seen.package.and_then(|package| package.error.as_ref()).filter(|_| !lines.is_empty())
    {
        lines.push(format!("an expression failed: {error}"));
    }
    lines
}

/// What differs between transitions and those that are expected, as the lines of a difference; none if nothing does.
pub(super) fn transition_differences(expected: &[Expectation], transitions: &[Transition]) -> Vec<String> {
    let is_right = |(expected, transition): (&Expectation, &Transition)| {
        let seen = Seen::of(transition);
        FIELDS.iter().all(|field| field.is_right(expected, &seen))
    };
    let pairs = align(expected.len(), transitions.len(), &|e, f| {
        expected.get(e).zip(transitions.get(f)).is_some_and(is_right)
    });
    if pairs.iter().all(|pair| matches!(pair, (Some(_), Some(_)))) {
        return Vec::new();
    }
    let of_expected = |expected: &Expectation| {
        flow(FIELDS.iter().filter_map(|field| Some((field.name, (field.wanted)(expected)?.to_string()))))
    };
    // Of what is found, the fields that are expected somewhere.
    let matters = |field: &&Field| expected.iter().any(|expected| (field.wanted)(expected).is_some());
    let of_found = |transition: &Transition| {
        let seen = Seen::of(transition);
        let cells = FIELDS.iter().filter(matters).map(|field| (field.name, field.found(&seen).to_string()));
        flow(cells.filter(|(_, found)| !found.is_empty()))
    };
    let line = |pair: &(Option<usize>, Option<usize>)| {
        let mark = match pair {
            (Some(_), Some(_)) => ' ',
            (Some(_), None) => '-',
            (None, _) => '+',
        };
        let text = match *pair {
            (Some(e), None) => expected.get(e).map(of_expected),
            (_, f) => f.and_then(|f| transitions.get(f)).map(of_found),
        };
        format!("{mark} {}", text.unwrap_or_default())
    };
    std::iter::once("transitions, - expected, + found:".to_owned()).chain(pairs.iter().map(line)).collect()
}

/// Fields as YAML has them on one line.
fn flow(cells: impl Iterator<Item = (&'static str, String)>) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./@+".contains(letter);
    let cell = |(name, value): (&str, String)| match !value.is_empty() && value.chars().all(plain) {
        true => format!("{name}: {value}"),
        false => format!("{name}: {value:?}"),
    };
    format!("{{{}}}", cells.map(cell).collect::<Vec<_>>().join(", "))
}

/// Pairs what is expected with what is found so that most of it matches, in order: by the longest common subsequence. What
/// is expected in vain stands before what is found in its place.
fn align(
    expected: usize,
    found: usize,
    matches: &dyn Fn(usize, usize) -> bool,
) -> Vec<(Option<usize>, Option<usize>)> {
    if expected.saturating_mul(found) > MAX_PAIRS {
        let pair = |at: usize| match (at < expected, at < found) {
            (true, true) if matches(at, at) => vec![(Some(at), Some(at))],
            (wanted, is) => {
                let (wanted, is) = (wanted.then_some((Some(at), None)), is.then_some((None, Some(at))));
                wanted.into_iter().chain(is).collect()
            }
        };
        return (0..expected.max(found)).flat_map(pair).collect();
    }
    // How many match from these on.
    let mut longest = vec![vec![0_usize; found + 1]; expected + 1];
    let at = |longest: &Vec<Vec<usize>>, e: usize, f: usize| {
        longest.get(e).and_then(|row| row.get(f)).copied().unwrap_or_default()
    };
    for e in (0..expected).rev() {
        for f in (0..found).rev() {
            let skipped = at(&longest, e + 1, f).max(at(&longest, e, f + 1));
            let best = if matches(e, f) { skipped.max(at(&longest, e + 1, f + 1) + 1) } else { skipped };
            if let Some(cell) = longest.get_mut(e).and_then(|row| row.get_mut(f)) {
                *cell = best;
            }
        }
    }
    let (mut e, mut f, mut pairs) = (0, 0, Vec::new());
    while e < expected || f < found {
        if e < expected && f < found && matches(e, f) && at(&longest, e, f) == at(&longest, e + 1, f + 1) + 1
        {
            pairs.push((Some(e), Some(f)));
            (e, f) = (e + 1, f + 1);
        } else if e < expected && (f == found || at(&longest, e + 1, f) >= at(&longest, e, f + 1)) {
            pairs.push((Some(e), None));
            e += 1;
        } else {
            pairs.push((None, Some(f)));
            f += 1;
        }
    }
    pairs
}
