//! Answers of backends from arbitrary bytes. `cargo test` reads the corpora beside this file, and some bytes at random;
//! `make fuzz` looks for more.

use std::io::Read;

use statusbridge_core::sample::{Labels, Sample, Sink};

use super::{answer, quick};

#[derive(Default)]
struct Lines(Vec<String>);

fn line(labels: &Labels, samples: &[Sample]) -> String {
    let labels: Vec<_> = labels.iter().collect();
    let samples: Vec<_> = samples.iter().map(|sample| (sample.at, sample.value)).collect();
    format!("{labels:?} {samples:?}")
}

impl Sink for Lines {
    fn series(&mut self, labels: &Labels, samples: &[Sample]) {
        self.0.push(line(labels, samples));
    }
}

/// A body that arrives in so many bytes at a time.
struct Pieces<'a>(&'a [u8], usize);

impl Read for Pieces<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let Self(left, size) = self;
        let room = out.len().min(*size);
        left.read(&mut out[..room])
    }
}

#[test]
fn an_answer_says_the_same_in_whatever_pieces_it_arrives() {
    bolero::check!(name = "answer").for_each(|bytes: &[u8]| {
        let read = |size: usize| {
            let mut lines = Lines::default();
            let read = answer::read(Pieces(bytes, size), &mut lines);
            (read.map_err(|error| error.to_string()), lines.0)
        };
        let whole = read(usize::MAX);
        for size in [1, 7] {
            assert_eq!(read(size), whole, "{size} bytes at a time");
        }
    });
}

#[test]
fn both_parsers_of_a_series_read_the_same() {
    bolero::check!(name = "series").for_each(|bytes: &[u8]| {
        let (mut labels, mut samples) = (Labels::default(), Vec::new());
        if quick::series(bytes, &mut labels, &mut samples) {
            let (all_labels, all_samples) = answer::parse_fully(bytes).expect("it is JSON");
            assert_eq!(line(&labels, &samples), line(&all_labels, &all_samples));
        }
    });
}
