//! Takes the series out of an answer as its bytes arrive.
//!
//! ```text
//!   {"status":"success","data":{"resultType":"vector","result":[ {…}, {…}, … ]}}
//!    `------------------- the frame: kept ---------------------'  `-- each handed out --'
//! ```
//!
//! Nearly all of an answer is series. Each of them is found as a slice of a reused buffer, which is parsed several times
//! faster than a stream is, byte by byte. What is left is small and parsed as a whole: it decides whether the answer is one.

use std::io::Read;

use super::error::FeedError;

/// How much is read at a time, in bytes.
const READ: usize = 64 << 10;
/// The largest frame, in bytes: backends add statistics and notes.
const FRAME: usize = 16 << 20;
/// The largest series, in bytes: it is in memory as a whole.
const SERIES: usize = 16 << 20;

/// Hands the text of every object in the list `data.result` to `take`, in order, and gives back everything else. Where
/// `result` is something else than a list of objects, nothing is taken out.
///
/// # Errors
/// The one of `take`, or when the body cannot be read or breaks off within a series.
pub(super) fn take_out(
    mut body: impl Read,
    mut take: impl FnMut(&[u8]) -> Result<(), FeedError>,
) -> Result<Vec<u8>, FeedError> {
    let mut buffer = Buffer::default();
    let mut frame = Frame::default();
    loop {
        let in_series = frame.in_series;
        if in_series {
            while let Some(length) = frame.next_series(&mut buffer)? {
                #[expect(clippy::indexing_slicing, reason = "next_series found so many")]
                take(&buffer.unread()[..length])?;
                buffer.start += length;
                frame.separated = false;
                frame.any = true;
            }
        } else {
            let used = frame.read(buffer.unread());
            buffer.start += used;
        }
        if frame.text.len() > FRAME {
            return Err(FeedError::Malformed("there is too much besides the series".to_owned()));
        }
        if in_series && buffer.unread().len() > SERIES {
            return Err(FeedError::Malformed(
                "a series is longer than 16 MiB, which are as many as are read".to_owned(),
            ));
        }
        // Where that has not changed, nothing more can be done with what is there.
        if frame.in_series == in_series && !buffer.fill(&mut body)? {
            if in_series {
                return Err(FeedError::Truncated("the list of series breaks off".to_owned()));
            }
            return Ok(frame.text);
        }
    }
}

/// What was read and is not used up.
#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Buffer {
    #[expect(clippy::indexing_slicing, reason = "start and end are within what fill has read")]
    fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Reads more; false at the end.
    fn fill(&mut self, body: &mut impl Read) -> Result<bool, FeedError> {
        self.bytes.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if self.bytes.len() < self.end + READ {
            self.bytes.resize(self.end + READ, 0);
        }
        #[expect(clippy::indexing_slicing, reason = "resized to hold more just now")]
        let more = body.read(&mut self.bytes[self.end..]);
        let more = more.map_err(|error| FeedError::Truncated(error.to_string()))?;
        self.end += more;
        Ok(more > 0)
    }
}

/// Everything that is not a series, and where in it the reading is.
#[derive(Default)]
struct Frame {
    text: Vec<u8>,
    /// Within the list of series.
    in_series: bool,
    depth: usize,
    /// Within a string, and whether what comes next is escaped.
    string: Option<bool>,
    /// Where in `text` the last string began and ended.
    last: (usize, usize),
    /// Whether the value at this depth is that of `data`, and of `result` within it.
    in_data: bool,
    in_result: bool,
    /// Within the list: whether a comma came after the last series, and whether there was any.
    separated: bool,
    any: bool,
    scan: Scan,
}

impl Frame {
    /// Takes bytes up to where a list of series begins; how many.
    fn read(&mut self, bytes: &[u8]) -> usize {
        for (n, byte) in bytes.iter().enumerate() {
            self.text.push(*byte);
            match (self.string, *byte) {
                (Some(true), _) => self.string = Some(false),
                (Some(false), b'\\') => self.string = Some(true),
                (Some(false), b'"') => {
                    self.string = None;
                    self.last.1 = self.text.len() - 1;
                }
                (Some(false), _) => {}
                (None, b'"') => {
                    self.string = Some(false);
                    self.last.0 = self.text.len();
                }
                (None, b':') if self.depth == 1 => self.in_data = self.last_string() == b"data",
                (None, b':') if self.depth == 2 => self.in_result = self.last_string() == b"result",
                (None, b'{' | b'[') => {
                    self.depth += 1;
                    if self.depth == 2 {
                        self.in_result = false;
                    }
                    if *byte == b'[' && self.depth == 3 && self.in_data && self.in_result {
                        (self.in_series, self.separated, self.any) = (true, false, false);
                        return n + 1;
                    }
                }
                (None, b'}' | b']') => self.depth = self.depth.saturating_sub(1),
                (None, _) => {}
            }
        }
        bytes.len()
    }

    fn last_string(&self) -> &[u8] {
        self.text.get(self.last.0..self.last.1).unwrap_or_default()
    }

    /// The length of the series at which the buffer begins, after what separates it from the last one. None when it is not
    /// there as a whole yet, or when the list is over.
    fn next_series(&mut self, buffer: &mut Buffer) -> Result<Option<usize>, FeedError> {
        while let Some(byte) = buffer.unread().first() {
            match byte {
                b' ' | b'\n' | b'\r' | b'\t' => {}
                b',' if self.any && !self.separated => self.separated = true,
                b'{' if !self.any || self.separated => return Ok(self.scan.length(buffer.unread())),
                // What follows a comma has to be a series, and a series either the end or a comma.
                b']' if self.separated => return Err(misplaced(*byte)),
                _ if self.any && *byte != b']' => return Err(misplaced(*byte)),
                // The end, or no list of series: all that comes belongs to the frame.
                _ => {
                    self.in_series = false;
                    return Ok(None);
                }
            }
            buffer.start += 1;
        }
        Ok(None)
    }
}

fn misplaced(byte: u8) -> FeedError {
    FeedError::Malformed(format!("`{}` in the list of series", char::from(byte)))
}

/// How far into an object the reading is, so that no byte of a long one is looked at twice.
#[derive(Default)]
struct Scan {
    at: usize,
    depth: usize,
    in_string: bool,
}

impl Scan {
    /// The length of the object at which the text begins, once all of it is there: until then the text may only grow.
    fn length(&mut self, text: &[u8]) -> Option<usize> {
        loop {
            if self.in_string {
                let rest = text.get(self.at..)?;
                let Some(found) = memchr::memchr2(b'"', b'\\', rest) else {
                    self.at = text.len();
                    return None;
                };
                self.in_string = *rest.get(found)? != b'"';
                self.at += found + if self.in_string { 2 } else { 1 };
                continue;
            }
            match text.get(self.at)? {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return Some(std::mem::take(self).at + 1);
                    }
                }
                _ => {}
            }
            self.at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    /// Gives so many bytes at a time.
    struct Drip<'a>(&'a [u8], usize);

    impl Read for Drip<'_> {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            let n = self.1.min(out.len());
            self.0.read(&mut out[..n])
        }
    }

    fn split(body: &str, at_once: usize) -> Result<(Vec<String>, String), FeedError> {
        let mut series = Vec::new();
        let frame = take_out(Drip(body.as_bytes(), at_once), |text| {
            series.push(String::from_utf8(text.to_vec()).unwrap());
            Ok(())
        })?;
        Ok((series, String::from_utf8(frame).unwrap()))
    }

    #[rstest]
    #[case::a_vector(
        r#"{"status":"success","data":{"resultType":"vector","result":[{"a":"}]\"\\"}, {"b":[{}]}]},"x":[{}]}"#,
        &[r#"{"a":"}]\"\\"}"#, r#"{"b":[{}]}"#],
        r#"{"status":"success","data":{"resultType":"vector","result":[]},"x":[{}]}"#)]
    #[case::a_scalar(r#"{"data":{"result":[1,"2"]}}"#, &[], r#"{"data":{"result":[1,"2"]}}"#)]
    #[case::elsewhere(
        r#"{"result":[{}],"stats":{"result":[{}]},"data":{"x":{"result":[{}]},"y":"result","z":[{}]}}"#,
        &[],
        r#"{"result":[{}],"stats":{"result":[{}]},"data":{"x":{"result":[{}]},"y":"result","z":[{}]}}"#)]
    #[case::twice(r#"{"data":{"result":[{}],"result":[{ }]}}"#, &["{}", "{ }"], r#"{"data":{"result":[],"result":[]}}"#)]
    fn series_are_taken_out_and_the_frame_is_left(
        #[case] body: &str,
        #[case] series: &[&str],
        #[case] frame: &str,
    ) {
        for at_once in [1, 2, 7, 1000] {
            let (got, rest) = split(body, at_once).unwrap();
            assert_eq!(
                (got.iter().map(String::as_str).collect::<Vec<_>>(), rest.as_str()),
                (series.to_vec(), frame)
            );
        }
    }

    #[rstest]
    #[case::no_comma(r#"{"data":{"result":[{}{}]}}"#, "malformed")]
    #[case::two_commas(r#"{"data":{"result":[{},,{}]}}"#, "malformed")]
    #[case::a_comma_at_the_end(r#"{"data":{"result":[{},]}}"#, "malformed")]
    #[case::something_else(r#"{"data":{"result":[{},1]}}"#, "malformed")]
    #[case::a_series_breaks_off(r#"{"data":{"result":[{},{"a":"#, "truncated")]
    #[case::the_list_breaks_off(r#"{"data":{"result":[{}"#, "truncated")]
    fn a_list_that_is_none_is_an_error(#[case] body: &str, #[case] kind: &str) {
        assert_eq!(split(body, 3).unwrap_err().kind(), kind);
    }

    /// Gives what it is asked for, byte after byte without end.
    struct Endless<'a>(&'a [u8]);

    impl Read for Endless<'_> {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            if self.0.is_empty() {
                out.fill(b'{');
                return Ok(out.len());
            }
            self.0.read(out)
        }
    }

    #[test]
    fn a_series_without_end_is_an_error_soon() {
        for begin in [r#"{"data":{"result":["#, r#"{"data":{"result":[{"metric":{"a":""#] {
            let error = take_out(Endless(begin.as_bytes()), |_| Ok(())).unwrap_err().to_string();
            assert!(error.contains("a series is longer than 16 MiB"), "{error}");
        }
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            any::<i32>().prop_map(|n| n.into()),
            "[a-z\"\\\\\\]{}\u{e9}]{0,6}".prop_map(|s| s.into())
        ];
        leaf.prop_recursive(3, 12, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
                prop::collection::btree_map("[a-z\"\\\\]{0,4}", inner, 0..4)
                    .prop_map(|all| serde_json::Value::Object(all.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn whatever_the_series_are_they_come_out_as_they_went_in(
            all in prop::collection::vec(prop::collection::btree_map("[a-z]{0,3}", json(), 0..4), 0..6),
            note in json(),
            at_once in 1..50_usize,
        ) {
            let body = serde_json::json!({"a": note, "data": {"result": all, "z": note}});
            let (series, frame) = split(&body.to_string(), at_once).unwrap();
            let got: Vec<serde_json::Value> = series.iter().map(|s| serde_json::from_str(s).unwrap()).collect();
            prop_assert_eq!(serde_json::Value::from(got), body["data"]["result"].clone());
            let frame: serde_json::Value = serde_json::from_str(&frame).unwrap();
            prop_assert_eq!(frame, serde_json::json!({"a": note, "data": {"result": [], "z": note}}));
        }
    }
}
