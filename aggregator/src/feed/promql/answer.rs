//! Reads an answer of the Prometheus query API series by series, without building it in memory.

use std::fmt;
use std::io::Read;

use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use statusbridge_core::sample::{Labels, Sample, Sink};

use super::error::FeedError;
use super::{elements, quick};

/// Reads one whole answer and hands its series to `sink`.
///
/// Fields may come in any order. A body that ends early, goes on after its end, or says anything
/// but an unreserved success is an error.
pub fn read(body: impl Read, sink: &mut dyn Sink) -> Result<(), FeedError> {
    let mut series = Series::default();
    let frame = elements::take_out(body, |text| {
        if !quick::series(text, &mut series.labels, &mut series.samples) {
            series = serde_json::from_slice(text).map_err(why)?;
        }
        sink.series(&series.labels, &series.samples);
        Ok(())
    })?;
    let mut json = serde_json::Deserializer::from_slice(&frame);
    let head = json.deserialize_map(Answer { sink }).and_then(|head| json.end().map(|()| head));
    head.map_err(why)?.verdict()
}

fn why(error: serde_json::Error) -> FeedError {
    match error.classify() {
        serde_json::error::Category::Eof | serde_json::error::Category::Io => {
            FeedError::Truncated(error.to_string())
        }
        _ => FeedError::Malformed(error.to_string()),
    }
}

/// Everything of an answer but its series.
#[derive(Default)]
struct Head {
    status: Option<String>,
    error_type: Option<String>,
    error: Option<String>,
    warnings: Vec<String>,
    partial: bool,
    data: bool,
}

impl Head {
    fn verdict(self) -> Result<(), FeedError> {
        match self.status.as_deref() {
            Some("success") if !self.warnings.is_empty() => Err(FeedError::Warnings(self.warnings)),
            Some("success") if self.partial => Err(FeedError::Partial),
            Some("success") if !self.data => Err(FeedError::Malformed("success without data".into())),
            Some("success") => Ok(()),
            Some("error") => Err(FeedError::Api {
                kind: self.error_type.unwrap_or_else(|| "unknown".into()),
                message: self.error.unwrap_or_default(),
            }),
            Some(other) => Err(FeedError::Malformed(format!("status is `{other}`"))),
            None => Err(FeedError::Malformed("no status".into())),
        }
    }
}

struct Answer<'a> {
    sink: &'a mut dyn Sink,
}

impl<'de> Visitor<'de> for Answer<'_> {
    type Value = Head;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an answer of the query API")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Head, A::Error> {
        let mut head = Head::default();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "status" => head.status = map.next_value()?,
                "errorType" => head.error_type = map.next_value()?,
                "error" => head.error = map.next_value()?,
                "warnings" => head.warnings = map.next_value::<Option<_>>()?.unwrap_or_default(),
                "isPartial" | "partial" => head.partial |= map.next_value::<Option<bool>>()?.unwrap_or(false),
                "data" => head.data |= map.next_value_seed(Data { sink: self.sink })?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(head)
    }
}

/// `data`: true when it holds a result that the sink takes, false when it is null.
struct Data<'a> {
    sink: &'a mut dyn Sink,
}

impl<'de> DeserializeSeed<'de> for Data<'_> {
    type Value = bool;
    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<bool, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Data<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the answer's data")
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        let (mut kind, mut result) = (None::<String>, false);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "resultType" => kind = map.next_value()?,
                "result" => {
                    if kind.as_deref() == Some("scalar") {
                        self.sink.series(&Labels::default(), &[map.next_value()?]);
                    } else {
                        map.next_value_seed(Everything { sink: self.sink })?;
                    }
                    result = true;
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        match kind.as_deref() {
            Some(kind) if !self.sink.takes(kind) => {
                Err(A::Error::custom(format!("result is a {kind}, which was not asked for")))
            }
            Some(_) if result => Ok(true),
            Some(_) => Err(A::Error::missing_field("result")),
            None => Err(A::Error::missing_field("resultType")),
        }
    }
}

struct Everything<'a> {
    sink: &'a mut dyn Sink,
}

impl<'de> DeserializeSeed<'de> for Everything<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Everything<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of series")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(Series { labels, samples }) = seq.next_element()? {
            self.sink.series(&labels, &samples);
        }
        Ok(())
    }
}

/// One series. What [`quick::series`] reads into it reuses its buffers.
#[derive(Default)]
struct Series {
    labels: Labels,
    samples: Vec<Sample>,
}

/// What the parser makes of one series that knows all of JSON.
#[cfg(test)]
pub(super) fn parse_fully(series: &[u8]) -> Result<(Labels, Vec<Sample>), FeedError> {
    let Series { labels, samples } = serde_json::from_slice(series).map_err(why)?;
    Ok((labels, samples))
}

impl<'de> Deserialize<'de> for Series {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Series;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a series")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Series, A::Error> {
                let mut series = Series::default();
                while let Some(field) = map.next_key::<String>()? {
                    match field.as_str() {
                        "metric" => series.labels = map.next_value()?,
                        "value" => series.samples.push(map.next_value()?),
                        "values" => series.samples.append(&mut map.next_value()?),
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(series)
            }
        }
        json.deserialize_map(Fields)
    }
}
