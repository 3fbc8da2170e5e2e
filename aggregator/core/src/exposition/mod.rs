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

use statusbridge_contract::stream::StreamLabels;
use statusbridge_contract::{Fingerprint, Metric, Version, exposition, label};
use tracing::warn;

use crate::fleet::{DigestSample, Digests, Exposition, FeedName, Fleet, Heard, Signs, StreamId, lack_of};
use crate::sample::{Sample, excerpt};
use crate::time::Seconds;
use crate::verify::{Attested, Content, Excess, Gathered, diagnose, verify, with_unknown};

/// Names of metrics that the contract does not know which are told, at most.
const UNKNOWN: usize = 4;
/// Longest name of those that is told, in bytes.
const NAME: usize = 100;

/// Where an exposition comes from, and when it came.
#[derive(Debug, Clone, PartialEq)]
pub struct Origin {
    /// Name of the cluster.
    pub cluster: String,
    /// The feed that brings it.
    pub feed: FeedName,
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
    digests: Digests,
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
    let Head { contract, uid, digest } = found.digest.take().ok_or(NoExposition::NoDigest)?;
    let Origin { cluster, feed, stream: labels, at } = origin;
    let samples = found.gathered.samples;
    let process = found.gathered.process;
    let lack = match (uid, digest, found.rendered.flatten(), process) {
        (None, ..) => Some(format!("its digest has no label {}", label::CLUSTER_UID)),
        (_, None, ..) => Some(format!("the value of {} is no whole number", Metric::Digest.name())),
        (_, _, None, _) => Some(lack_of(Metric::RenderedTimestamp)),
        (_, _, _, None) => Some(lack_of(Metric::ProcessNumber)),
        _ => None,
    };
    let exposition = Exposition {
        digest: digest.unwrap_or_default(),
        rendered: found.rendered.flatten().unwrap_or_default(),
    };
    let stream = StreamId { feed, labels: labels.into(), uid, process: process.unwrap_or_default() };
    let attested = Attested { state: exposition.state(), process: stream.process };
    let said = match lack {
        None => verify(found.gathered, attested),
        Some(_) => Err(Box::new(found.gathered)),
    };
    let known = lack.is_none().then_some(DigestSample { at, exposition });
    let (samples_of_it, is_torn) = (known.into_iter().collect(), said.is_err());
    let digests = Digests {
        cluster: cluster.into(),
        stream,
        contract: contract.into(),
        samples: samples_of_it,
        parts: std::sync::Arc::default(),
        is_torn,
        seen: lack.as_ref().map(|_| at),
        lack,
        signs: Signs::default(),
    };
    Ok(Evidence { digests, said, unknown: found.unknown, samples })
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

/// A digest with its labels.
struct Head {
    contract: String,
    uid: Option<Fingerprint>,
    digest: Option<u64>,
}

#[derive(Default)]
struct Found {
    version: Option<Version>,
    digest: Option<Head>,
    rendered: Option<Option<u64>>,
    gathered: Gathered,
    unknown: Vec<String>,
    fault: Option<NoExposition>,
}

impl Found {
    fn take(&mut self, sample: &exposition::Sample<'_, '_>) {
        let Some(metric) = Metric::from_name(sample.name) else { return self.note_unknown(sample.name) };
        let mut own = [("", ""); 4];
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
        let own = own.get(..labels).unwrap_or_default();
        let value = Sample { at: 0.0, value: sample.value };
        match metric {
            Metric::Digest => {
                let label =
                    |of: &str| own.iter().find(|(name, _)| *name == of).map_or("", |(_, value)| *value);
                // The digest of a part attests nothing by itself.
                if !label(label::PACKAGE_CLUSTER).is_empty() {
                    return;
                }
                let uid = Some(label(label::CLUSTER_UID)).filter(|uid| !uid.is_empty()).map(Fingerprint::of);
                let contract = label(label::CONTRACT).to_owned();
                if self.digest.replace(Head { contract, uid, digest: value.whole() }).is_some() {
                    self.fault.get_or_insert(NoExposition::Several(metric));
                }
            }
            Metric::RenderedTimestamp => {
                if self.rendered.replace(value.whole()).is_some() {
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
    /// What it has more of than is read.
    pub fn excess(&self) -> Option<Excess> {
        self.said.as_ref().err().and_then(|gathered| gathered.excess)
    }

    /// Brings the fleet up to what the exposition says, at `t`.
    pub fn fold(self, fleet: &mut Fleet, t: Seconds) -> Outcome {
        let Self { digests, said, unknown, .. } = self;
        let key = (&*digests.cluster, &digests.stream);
        let heard = fleet.hear(&digests, t);
        let content = match (heard, said) {
            (Heard::Old, _) => return Outcome::Old,
            (Heard::Unusable, _) => {
                let fault =
                    fleet.fault(key.0, key.1).unwrap_or("too many streams of the cluster go on already");
                return Outcome::Unverified(fault.to_owned());
            }
            (Heard::Confirmed, Ok(_)) => return Outcome::Verified { news: false },
            (Heard::Unread(_), Ok(content)) => content,
            (_, Err(gathered)) => {
                let attested = digests.samples.first().map(|it| it.exposition.state()).unwrap_or_default();
                let attested = Attested { state: attested, process: digests.stream.process };
                let last = fleet.verified(key.0, key.1);
                let fault = diagnose(&gathered, attested, &digests.stream.labels, last, &[]);
                let fault = with_unknown(fault, &digests.contract, &unknown);
                fleet.reject(key, fault.clone());
                return Outcome::Unverified(fault);
            }
        };
        let Some(sample) = digests.samples.first() else { return Outcome::Old };
        let accepted = fleet.accept(key, sample, content, t);
        for claim in accepted.claims {
            warn!(cluster = key.0, claim, "an exporter claims more than was seen");
        }
        accepted.refused.map_or(Outcome::Verified { news: true }, Outcome::Unverified)
    }
}
