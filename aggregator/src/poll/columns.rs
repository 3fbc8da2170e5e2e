//! Answers with one sample for each stream, and how they are put side by side.

use std::borrow::Cow;
use std::collections::HashMap;

use statusbridge_contract::stream::{self, StreamLabels};
use statusbridge_contract::{Metric, label};

use crate::feed::{Labels, Sample, Sink};

/// What ends a name or a value.
const END: char = '\0';

/// The labels of a sample: contract version and stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key<'a> {
    pub(super) contract: &'a str,
    /// Names and values, each with an end, in order of the names: cheaper to make and to compare than a map.
    labels: &'a str,
}

impl<'a> Key<'a> {
    /// The same, whatever the contract version.
    pub(super) fn of_any_contract(self) -> Self {
        Self { contract: "", ..self }
    }

    fn iter(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let mut parts = self.labels.split_terminator(END);
        std::iter::from_fn(move || parts.next().zip(parts.next()))
    }

    /// The value of a label.
    pub(super) fn label(self, name: &str) -> Option<&'a str> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    fn kept(self, ignored: &[String]) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.iter().filter(|(name, _)| !ignored.iter().any(|it| it == name))
    }

    /// The labels that tell the stream from others, as text.
    pub(super) fn of_stream(self, ignored: &[String]) -> Cow<'a, str> {
        if ignored.is_empty() {
            return Cow::Borrowed(self.labels);
        }
        let mut text = String::with_capacity(self.labels.len());
        self.kept(ignored).for_each(|(name, value)| push(&mut text, name, value));
        Cow::Owned(text)
    }

    /// The same as they are kept.
    pub(super) fn to_stream(self, ignored: &[String]) -> StreamLabels {
        self.kept(ignored).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }
}

fn push(text: &mut String, name: &str, value: &str) {
    for part in [name, value] {
        if part.contains(END) {
            // Such a stream is not found again among what is read, and so never verified.
            text.push_str(&part.replace(END, "\u{fffd}"));
        } else {
            text.push_str(part);
        }
        text.push(END);
    }
}

/// What a query answers of every stream, in the order of the answer.
pub(super) struct Column {
    metric: Metric,
    /// The keys of all rows: there are many, and none is needed by itself.
    text: String,
    rows: Vec<Row>,
}

struct Row {
    /// Where in the text its key begins, and its labels do and end.
    key: [usize; 3],
    sample: Sample,
}

impl Column {
    pub(super) fn of(metric: Metric) -> Self {
        Self { metric, text: String::new(), rows: Vec::new() }
    }

    /// How many samples there are.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    fn key(&self, row: &Row) -> Key<'_> {
        let [begin, labels, end] = row.key;
        Key { contract: &self.text[begin..labels], labels: &self.text[labels..end] }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Key<'_>, Sample)> {
        self.rows.iter().map(|row| (self.key(row), row.sample))
    }

    pub(super) fn finder(&self) -> Finder<'_> {
        Finder { column: self, next: 0, places: None }
    }

    /// Puts down the key of the next row; where it begins and its labels do.
    fn write_key(&mut self, labels: &Labels) -> [usize; 2] {
        let begin = self.text.len();
        if self.metric == Metric::Digest {
            self.text.push_str(labels.get(label::CONTRACT).unwrap_or_default());
        }
        let begins = [begin, self.text.len()];
        let mut before = "";
        for (name, value) in labels.iter() {
            // Whose label that is takes more to find out; so does their order.
            if name.starts_with("exported_") || name < before {
                self.text.truncate(begin);
                return self.write_key_with_care(labels);
            }
            before = name;
            let is_own = self.metric == Metric::Digest && name == label::CONTRACT;
            if !is_own && name != "__name__" {
                push(&mut self.text, name, value);
            }
        }
        begins
    }

    fn write_key_with_care(&mut self, labels: &Labels) -> [usize; 2] {
        let begin = self.text.len();
        let owned = labels.iter().map(|(n, v)| (n.to_owned(), v.to_owned()));
        let split = stream::split(self.metric, owned, &[]);
        let contract = split.own.into_iter().find(|(name, _)| *name == label::CONTRACT);
        self.text.push_str(&contract.map(|(_, value)| value).unwrap_or_default());
        let begins = [begin, self.text.len()];
        split.stream.iter().for_each(|(name, value)| push(&mut self.text, name, value));
        begins
    }
}

impl Sink for Column {
    fn series(&mut self, labels: &Labels, samples: &[Sample]) {
        if let Some(sample) = samples.last() {
            let [begin, labels] = self.write_key(labels);
            self.rows.push(Row { key: [begin, labels, self.text.len()], sample: *sample });
        }
    }
}

/// Finds samples of a column by their keys. Answers mostly come in the same order, so that it is mostly the next.
pub(super) struct Finder<'a> {
    column: &'a Column,
    next: usize,
    places: Option<HashMap<Key<'a>, usize>>,
}

impl<'a> Finder<'a> {
    pub(super) fn find(&mut self, key: Key<'a>) -> Option<Sample> {
        let column = self.column;
        if let Some(row) = column.rows.get(self.next).filter(|row| column.key(row) == key) {
            self.next += 1;
            return Some(row.sample);
        }
        let all = || column.rows.iter().enumerate().map(|(at, row)| (column.key(row), at)).collect();
        let at = *self.places.get_or_insert_with(all).get(&key)?;
        self.next = at + 1;
        column.rows.get(at).map(|row| row.sample)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn column(metric: Metric, rows: &[u8], contract: &str) -> Column {
        let mut column = Column::of(metric);
        for row in rows {
            let instance = row.to_string();
            let labels = [("cluster", "c"), (label::CONTRACT, contract), ("instance", &instance)];
            let labels = labels.into_iter().filter(|(_, value)| !value.is_empty()).collect();
            column.series(&labels, &[Sample { at: 0.0, value: f64::from(*row) }]);
        }
        column
    }

    proptest! {
        #[test]
        fn whatever_the_order_each_finds_its_own(
            asked in prop::collection::vec(any::<u8>(), 0..20),
            there in prop::collection::vec(any::<u8>(), 0..20),
            same_order in any::<bool>(),
        ) {
            let there = if same_order { [asked.as_slice(), &there].concat() } else { there };
            let (asked, known) = (column(Metric::Digest, &asked, "1"), column(Metric::ClusterUid, &there, ""));
            let mut finder = known.finder();
            for (key, sample) in asked.iter() {
                prop_assert_eq!(key.contract, "1");
                let found = finder.find(key.of_any_contract()).map(|found| found.value);
                prop_assert_eq!(found, Some(sample.value).filter(|value| there.contains(&(*value as u8))));
            }
        }
    }

    #[test]
    fn labels_are_told_from_those_of_the_stream_in_any_order() {
        let mut column = Column::of(Metric::Digest);
        let rows: [&[(&str, &str)]; 3] = [
            &[("__name__", "x"), ("cluster", "a"), ("contract", "1"), ("job", "j\0")],
            &[("job", "j\0"), ("contract", "1"), ("cluster", "a")],
            &[("cluster", "a"), ("contract", "the target's"), ("exported_contract", "1"), ("job", "j\0")],
        ];
        for row in rows {
            column.series(&row.iter().copied().collect(), &[Sample { at: 0.0, value: 1.0 }]);
        }
        let seen: Vec<_> = column.iter().map(|(key, _)| (key.contract, key.to_stream(&[]))).collect();
        let stream = |more: &[(&str, &str)]| {
            let all = [("cluster", "a"), ("job", "j\u{fffd}")].into_iter().chain(more.iter().copied());
            all.map(|(name, value)| (name.to_owned(), value.to_owned())).collect::<StreamLabels>()
        };
        assert_eq!(
            seen,
            [("1", stream(&[])), ("1", stream(&[])), ("1", stream(&[("contract", "the target's")]))]
        );
        let without = column.iter().map(|(key, _)| key.of_stream(&["job".to_owned(), "contract".to_owned()]));
        assert!(without.eq(["cluster\0a\0"; 3]));
    }
}
