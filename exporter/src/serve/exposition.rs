//! Rendering a snapshot in the Prometheus text format 0.0.4 or as OpenMetrics, piece by piece so
//! that a large exposition is never in memory as a whole.

use std::{cell::RefCell, sync::Arc};

use bytes::Bytes;
use statusbridge_contract::{Metric, PACKAGE_METRICS, sample};
use statusbridge_serving::format::Format;

use crate::state::{Block, Packer, Snapshot, Stream};

/// About how large one piece is, in bytes. A client that does not read keeps about two.
const PIECE: usize = 16 * 1024;
thread_local! {
    /// One for all: it takes hundreds of kilobytes, which each client that does not read would keep. But one for each
    /// thread: the one that pushes must not wait for the one that serves.
    static PACKER: RefCell<Packer> = RefCell::default();
}

/// A snapshot being rendered.
#[derive(Debug)]
pub struct Exposition {
    snapshot: Snapshot,
    /// The blocks of all sources.
    blocks: Vec<Arc<Block>>,
    format: Format,
    rendered_at: Option<u64>,
    /// Text of the process's own metrics in the same format, without the end mark.
    own: Bytes,
    /// Index into [`Metric::ALL`]; past its end the own metrics and the end mark are left.
    family: usize,
    /// Index of the next block of a metric that packages have.
    block: usize,
    headed: bool,
    done: bool,
}

/// A part of an exposition.
#[derive(Debug)]
enum Piece {
    Text(Vec<u8>),
    /// The samples of `PACKAGE_METRICS[.1]` of a block.
    Rows(Arc<Block>, usize),
}

impl Exposition {
    /// Renders `snapshot`, then `own`. Without `rendered_at` (unix seconds) it is not attested.
    pub fn new(snapshot: Snapshot, format: Format, rendered_at: Option<u64>, own: Bytes) -> Self {
        let blocks = snapshot.sources.iter().flat_map(|s| s.blocks.iter().cloned()).collect();
        let (family, block, headed, done) = Default::default();
        Self { snapshot, blocks, format, rendered_at, own, family, block, headed, done }
    }

    /// The text, in pieces.
    pub fn plain(self) -> impl Iterator<Item = Bytes> + Send + Sync {
        Plain(self)
    }

    /// The text compressed, in pieces.
    pub fn gzip(self) -> impl Iterator<Item = Bytes> + Send + Sync {
        Gzip { exposition: self, stream: None, done: false }
    }

    fn header(metric: Metric) -> Vec<u8> {
        let name = metric.name();
        format!("# HELP {name} {}\n# TYPE {name} gauge\n", metric.help()).into_bytes()
    }

    /// The next piece of a metric that packages have; `None` when all of it is out.
    fn packages(&mut self, metric: Metric, index: usize) -> Option<Piece> {
        while let Some(block) = self.blocks.get(self.block) {
            if !block.has(index) {
                self.block += 1;
            } else if self.headed {
                self.block += 1;
                return Some(Piece::Rows(block.clone(), index));
            } else {
                self.headed = true;
                return Some(Piece::Text(Self::header(metric)));
            }
        }
        (self.block, self.headed) = Default::default();
        None
    }

    /// The next piece; `None` at the end.
    fn piece(&mut self) -> Option<Piece> {
        while let Some(metric) = Metric::ALL.get(self.family).copied() {
            let piece = match PACKAGE_METRICS.iter().position(|m| *m == metric) {
                Some(index) => self.packages(metric, index),
                None => None,
            };
            if piece.is_some() {
                return piece;
            }
            self.family += 1;
            let text = self.others(metric);
            if !text.is_empty() {
                return Some(Piece::Text(text));
            }
        }
        if std::mem::replace(&mut self.done, true) {
            return None;
        }
        Some(Piece::Text([&self.own, self.format.end_mark().as_bytes()].concat()))
    }

    /// A metric of which there are few samples; empty when there are none.
    fn others(&self, metric: Metric) -> Vec<u8> {
        let mut lines = String::new();
        let mut line = |labels: &[(&str, &str)], value: u64| {
            lines.push_str(metric.name());
            if !labels.is_empty() {
                sample::write_labels(&mut lines, labels);
            }
            lines.push_str(&format!(" {value}\n"));
        };
        match (metric, self.rendered_at) {
            (Metric::Digest, Some(at)) => self.snapshot.attest(at, line),
            (Metric::RenderedTimestamp, Some(at)) => line(&[], at),
            _ => self.snapshot.for_each_sample(metric, line),
        }
        if lines.is_empty() { Vec::new() } else { [Self::header(metric), lines.into_bytes()].concat() }
    }
}

struct Plain(Exposition);

impl Iterator for Plain {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let mut out = Vec::with_capacity(PIECE + PIECE / 2);
        while out.len() < PIECE {
            match self.0.piece() {
                Some(Piece::Text(text)) => out.extend_from_slice(&text),
                Some(Piece::Rows(block, index)) => block.write(index, &mut out),
                None => break,
            }
        }
        (!out.is_empty()).then(|| out.into())
    }
}

struct Gzip {
    exposition: Exposition,
    /// `None` before the beginning.
    stream: Option<Stream>,
    done: bool,
}

impl Iterator for Gzip {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.done {
            return None;
        }
        Some(PACKER.with_borrow_mut(|packer| self.piece(packer)))
    }
}

impl Gzip {
    fn piece(&mut self, packer: &mut Packer) -> Bytes {
        let mut out = Vec::with_capacity(PIECE + PIECE / 2);
        let stream = self.stream.get_or_insert_with(|| Stream::begin(&mut out));
        while out.len() < PIECE {
            match self.exposition.piece() {
                Some(Piece::Text(text)) => stream.add(&packer.pack(&text), &mut out),
                Some(Piece::Rows(block, index)) => stream.add(block.packed(index, packer), &mut out),
                None => {
                    self.stream.take().unwrap_or_default().end(&mut out);
                    self.done = true;
                    break;
                }
            }
        }
        out.into()
    }
}

/// Renders a snapshot as a whole, without the process's own metrics.
pub fn render(snapshot: &Snapshot, format: Format, rendered_at: Option<u64>) -> Vec<u8> {
    Exposition::new(snapshot.clone(), format, rendered_at, Bytes::new()).plain().collect::<Vec<_>>().concat()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use statusbridge_contract::{ApplyState, Digest, Fingerprint, Health, exposition};

    use super::*;
    use crate::{
        source::{Counts, Verdict},
        state::{Limits, Publisher, Shown, SourceStanding, Store},
        watch::PackageKey,
    };

    fn store() -> Store {
        let good = Verdict {
            apply: ApplyState::Applied,
            health: Health::Current,
            desired: Fingerprint::of("r1"),
            applied: Fingerprint::of("r1"),
            healthy: Fingerprint::of("r1"),
            reason: None,
            since: None,
            resources: None,
        };
        let bad = Verdict {
            apply: ApplyState::Failed,
            health: Health::Unknown,
            healthy: Fingerprint::NONE,
            reason: Some(Arc::from("BuildFailed")),
            resources: Some(Counts { total: 3, current: 1, failed: 2 }),
            ..good.clone()
        };
        let mut store = Store::new(Limits::default());
        ["plain", "counted", "absent"].iter().for_each(|name| store.add_source(name));
        let shown = |verdict| Shown { verdict, since: 1_700_000_000_000 };
        store.put(0, None, &PackageKey::new(Some("apps"), "pay\"ments"), &shown(good));
        store.put(1, None, &PackageKey::new(None, "wide"), &shown(bad));
        store
    }

    fn text(format: Format) -> String {
        let up = |up| SourceStanding::Published { up, last_contact: 1_700_000_100 };
        let publisher = Publisher { cluster_uid: Some(Fingerprint::of("uid")), process_number: Some(4711) };
        let snapshot = store().snapshot(publisher, &[up(true), up(false), SourceStanding::Unpublished]);
        String::from_utf8(render(&snapshot, format, Some(1_700_000_200))).unwrap()
    }

    #[test]
    fn text_exposition() {
        insta::assert_snapshot!(text(Format::Text));
    }

    #[test]
    fn openmetrics_differs_in_the_end_mark_only() {
        assert_eq!(text(Format::OpenMetrics), text(Format::Text) + "# EOF\n");
    }

    #[test]
    fn what_is_written_reads_back_and_adds_up() {
        for format in [Format::Text, Format::OpenMetrics] {
            let (mut digest, mut said, mut names) = (Digest::default(), None, Vec::new());
            exposition::read(&text(format), |sample| {
                let metric = Metric::from_name(sample.name).unwrap();
                let labels: Vec<(&str, &str)> = sample.labels.iter().map(|(n, v)| (*n, v.as_ref())).collect();
                if metric.in_digest() {
                    digest.add(sample::hash(sample.name, &labels, sample.value as u64));
                } else if metric == Metric::Digest {
                    said = Some(sample.value as u64);
                }
                names.extend(labels.iter().filter(|(n, _)| *n == "package").map(|(_, v)| (*v).to_owned()));
            })
            .unwrap();
            assert_eq!(said, Some(digest.value()));
            names.dedup();
            assert!(names.starts_with(&["pay\"ments".to_owned(), "wide".to_owned()]), "{names:?}");
        }
        let own = crate::metrics::OwnMetrics::default();
        own.pushed(true);
        for format in [Format::Text, Format::OpenMetrics] {
            exposition::read(&own.render(format).unwrap(), |_| {}).unwrap();
        }
    }

    #[test]
    fn many_packages_come_in_many_pieces_and_lose_none() {
        let mut store = Store::new(Limits::default());
        store.add_source("s");
        let verdict = Verdict {
            apply: ApplyState::Unknown,
            health: Health::Unknown,
            desired: Fingerprint::NONE,
            applied: Fingerprint::NONE,
            healthy: Fingerprint::NONE,
            reason: Some(Arc::from("X")),
            since: None,
            resources: None,
        };
        for n in 0..3000 {
            let shown = Shown { verdict: verdict.clone(), since: 1_000 };
            store.put(0, None, &PackageKey::new(Some("ns"), &format!("p{n}")), &shown);
        }
        let snapshot =
            store.snapshot(Publisher::default(), &[SourceStanding::Published { up: true, last_contact: 1 }]);
        let pieces: Vec<Bytes> =
            Exposition::new(snapshot, Format::Text, Some(1), Bytes::from_static(b"own 1\n"))
                .plain()
                .collect();
        assert!(pieces.len() > 10 && pieces.iter().all(|p| p.len() < 2 * PIECE));
        let all = String::from_utf8(pieces.concat()).unwrap();
        assert!(all.ends_with("own 1\n"));
        for metric in
            [Metric::PackageHealthyRevision, Metric::PackageTransitionTimestamp, Metric::PackageReason]
        {
            let name = format!("{}{{", metric.name());
            assert_eq!(all.lines().filter(|l| l.starts_with(&name)).count(), 3000, "{name}");
            assert_eq!(all.matches(&format!("# TYPE {} ", metric.name())).count(), 1);
        }
    }
}
