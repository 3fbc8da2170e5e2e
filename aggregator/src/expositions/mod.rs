//! One exposition as an exporter renders it, whole and at once: from a scrape of our own, or pushed.
//!
//! ```text
//!   text --read--> Evidence (digest sample, verified content or what arrived) --fold--> Fleet
//! ```
//!
//! The same check as for what a metrics backend returns, with the same words when it fails. Only who the
//! cluster is comes from elsewhere: no label of the text has a say in that.

#[cfg(test)]
mod tests;

use statusbridge_contract::{Metric, Version, exposition, label, stream::StreamLabels};

use crate::clock::Seconds;
use crate::feed::{Sample, excerpt};
use crate::fleet::{Beat, Fleet, Heard};
use crate::verify::{Content, Gathered, diagnose, verify, with_unknown};

/// Names of metrics that the contract does not know which are told, at most.
const UNKNOWN: usize = 4;
/// Longest name of those that is told, in bytes.
const NAME: usize = 100;

/// Where an exposition comes from, and when it came.
#[derive(Debug, Clone, PartialEq)]
pub struct Origin {
    /// Name of the cluster.
    pub cluster: String,
    /// What tells its exporter from others.
    pub stream: StreamLabels,
    /// When it was asked for, or began to arrive, by our own clock: it is not younger than that.
    pub at: Seconds,
}

/// Why a text is no exposition of this contract, so that nothing can be said of its cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoExposition {
    /// It is not UTF-8.
    #[error("it is not UTF-8")]
    NotText,
    /// It is no exposition at all.
    #[error("it is no exposition: {0}")]
    Malformed(#[from] exposition::ReadError),
    /// It has no digest: it is not from an exporter of this contract, or was cut off.
    #[error("it has no {}", Metric::Digest.name())]
    NoDigest,
    /// It has several digests: it is put together from several expositions.
    #[error("it has several samples of {}", .0.name())]
    Several(Metric),
    /// A sample of the contract has a label that no exporter sets.
    #[error("a sample of {metric} has a label `{label}`, which no exporter sets")]
    ForeignLabel {
        /// Name of the metric.
        metric: &'static str,
        /// Name of the label.
        label: String,
    },
}

/// What an exposition says, and whether it adds up.
#[derive(Debug)]
pub struct Evidence {
    beat: Beat,
    said: Result<Content, Box<Gathered>>,
    unknown: Vec<String>,
    /// How many samples of the contract it has.
    pub samples: u64,
}

/// What became of an exposition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It adds up; whether it says anything new.
    Verified {
        /// Something is otherwise than before.
        news: bool,
    },
    /// What is known of the stream is younger.
    Old,
    /// It cannot be relied upon, and why: the fleet has taken note.
    Unverified(String),
}

/// Reads and checks a text. Takes a while when it is large.
///
/// # Errors
/// When it is no exposition of this contract.
pub fn read(text: &[u8], origin: Origin) -> Result<Evidence, NoExposition> {
    let text = std::str::from_utf8(text).map_err(|_| NoExposition::NotText)?;
    let mut found = Found { version: version(text), ..Found::default() };
    exposition::read(text, |sample| found.take(&sample))?;
    found.fault.map_or(Ok(()), Err)?;
    let (contract, digest) = found.digest.ok_or(NoExposition::NoDigest)?;
    let Origin { cluster, stream, at } = origin;
    let rendered = found.rendered.flatten().map(|rendered| (rendered, at));
    let beat = Beat { cluster, stream, contract, digest, at, rendered, ..Beat::default() };
    let samples = found.gathered.samples;
    let said = match digest {
        Some(digest) => verify(found.gathered, digest),
        None => Err(Box::new(found.gathered)),
    };
    Ok(Evidence { beat, said, unknown: found.unknown, samples })
}

/// The version of the contract by which the text has to be read, if that is possible.
fn version(text: &str) -> Option<Version> {
    let begin = format!("\n{}{{", Metric::Digest.name());
    let at = match text.starts_with(begin.trim_start()) {
        true => Some(0),
        false => text.find(&begin).map(|at| at + 1),
    };
    let line = text.get(at?..)?.split_inclusive('\n').next()?;
    let mut version = None;
    let read = exposition::read(line, |sample| {
        let contract = sample.labels.iter().find(|(name, _)| *name == label::CONTRACT);
        version = contract.and_then(|(_, name)| Version::readable(name));
    });
    read.ok().and(version)
}

#[derive(Default)]
struct Found {
    version: Option<Version>,
    digest: Option<(String, Option<u64>)>,
    rendered: Option<Option<Seconds>>,
    gathered: Gathered,
    unknown: Vec<String>,
    fault: Option<NoExposition>,
}

impl Found {
    fn take(&mut self, sample: &exposition::Sample<'_, '_>) {
        let Some(metric) = Metric::from_name(sample.name) else { return self.note_unknown(sample.name) };
        let mut own = [("", ""); 3];
        let mut labels = 0;
        for (name, value) in sample.labels {
            let known = metric.labels().iter().find(|own| *own == name);
            let (Some(name), Some(place)) = (known, own.get_mut(labels)) else {
                let label = excerpt(name, NAME);
                self.fault.get_or_insert(NoExposition::ForeignLabel { metric: metric.name(), label });
                return;
            };
            *place = (*name, value.as_ref());
            labels += 1;
        }
        let own = &own[..labels];
        let value = Sample { at: 0.0, value: sample.value };
        match metric {
            Metric::Digest => {
                let contract = own.iter().find(|(name, _)| *name == label::CONTRACT);
                let contract = contract.map(|(_, version)| (*version).to_owned()).unwrap_or_default();
                if self.digest.replace((contract, value.whole())).is_some() {
                    self.fault.get_or_insert(NoExposition::Several(metric));
                }
            }
            Metric::RenderedTimestamp => {
                if self.rendered.replace(value.whole().map(|at| at as Seconds)).is_some() {
                    self.fault.get_or_insert(NoExposition::Several(metric));
                }
            }
            _ if self.version.is_some_and(|version| version.knows(metric)) => {
                self.gathered.add(metric, own, value);
            }
            _ => self.note_unknown(sample.name),
        }
    }

    fn note_unknown(&mut self, name: &str) {
        let ours = name.starts_with("statusbridge_") && !name.starts_with("statusbridge_exporter_");
        if ours && self.unknown.len() < UNKNOWN && !self.unknown.iter().any(|it| it == name) {
            self.unknown.push(excerpt(name, NAME));
        }
    }
}

impl Evidence {
    /// Brings the fleet up to what the exposition says, at `t`.
    pub fn fold(self, fleet: &mut Fleet, t: Seconds) -> Outcome {
        let Self { beat, said, unknown, .. } = self;
        let content = match said {
            Ok(content) => content,
            Err(gathered) => return reject(fleet, beat, &gathered, &unknown, t),
        };
        match fleet.hear(&beat, t) {
            Heard::Confirmed => Outcome::Verified { news: false },
            Heard::Unread | Heard::Tried => {
                fleet.accept(&beat, content, t);
                Outcome::Verified { news: true }
            }
            Heard::Old => Outcome::Old,
            Heard::Unusable => {
                let fault = fleet.fault(&beat.cluster, &beat.stream);
                Outcome::Unverified(fault.unwrap_or_default().to_owned())
            }
        }
    }
}

/// Takes note of an exposition that does not add up. What it says of its digest does not confirm what
/// was verified before, even where it is the same.
fn reject(fleet: &mut Fleet, beat: Beat, gathered: &Gathered, unknown: &[String], t: Seconds) -> Outcome {
    let Some(digest) = beat.digest.filter(|_| Version::readable(&beat.contract).is_some()) else {
        // What it lacks is found out where it is heard of.
        fleet.hear(&beat, t);
        let fault = fleet.fault(&beat.cluster, &beat.stream).unwrap_or_default().to_owned();
        return Outcome::Unverified(fault);
    };
    let last = fleet.verified(&beat.cluster, &beat.stream);
    let fault = diagnose(gathered, digest, &beat.stream, last, &[]);
    let fault = with_unknown(fault, &beat.contract, unknown);
    if fleet.hear(&Beat { digest: None, ..beat.clone() }, t) == Heard::Old {
        return Outcome::Old;
    }
    fleet.reject(&beat, fault.clone(), gathered.uid);
    Outcome::Unverified(fault)
}
