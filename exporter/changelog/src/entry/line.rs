//! From an entry to the line that Crossplane's sidecar (crossplane/changelogs-sidecar, `server/server.go`) prints for it:
//! JSON with the names of protojson, fields in the order of their numbers and only where they are set, seconds without a
//! fraction, operations by the names of the enum.

use jiff::{SignedDuration, civil::DateTime};

use super::{Entry, Malformed, Operation, snapshot};

/// An entry ready to be written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Line {
    /// JSON and the end of the line.
    pub(crate) text: Vec<u8>,
    /// Bytes of the snapshot's JSON; `None` without a snapshot.
    pub(crate) snapshot: Option<usize>,
}

impl Line {
    /// # Errors
    /// When something in the entry has no form in JSON.
    pub(crate) fn of(entry: &Entry) -> Result<Self, Malformed> {
        // JSON is a little larger than the encoded snapshot.
        let sent: usize = entry.snapshot.iter().map(bytes::Bytes::len).sum();
        let mut out = Fields(Vec::with_capacity(sent + sent / 4 + 512));
        if let Some(at) = entry.seconds()? {
            out.text("timestamp", &rfc3339(at)?);
        }
        out.unless_empty("provider", &entry.provider);
        out.unless_empty("apiVersion", &entry.api_version);
        out.unless_empty("kind", &entry.kind);
        out.unless_empty("name", &entry.name);
        out.unless_empty("externalName", &entry.external_name);
        match Operation::try_from(entry.operation) {
            Ok(Operation::Unspecified) => {}
            Ok(Operation::Create) => out.text("operation", "OPERATION_TYPE_CREATE"),
            Ok(Operation::Update) => out.text("operation", "OPERATION_TYPE_UPDATE"),
            Ok(Operation::Delete) => out.text("operation", "OPERATION_TYPE_DELETE"),
            // A later version of the protocol added it.
            Err(_) => out.key("operation").extend_from_slice(entry.operation.to_string().as_bytes()),
        }
        let mut snapshot = None;
        if let Some(raw) = entry.whole_snapshot() {
            let out = out.key("snapshot");
            let before = out.len();
            snapshot::write(out, raw)?;
            snapshot = Some(out.len() - before);
        }
        if let Some(message) = &entry.error_message {
            out.text("errorMessage", message);
        }
        if !entry.additional_details.is_empty() {
            // Writing strings to memory never fails.
            let _ = serde_json::to_writer(out.key("additionalDetails"), &entry.additional_details);
        }
        Ok(Self { text: out.end(), snapshot })
    }
}

/// The form of RFC 3339, which `jiff::Timestamp` does not have for the last day of the year 9999.
fn rfc3339(seconds: i64) -> Result<String, Malformed> {
    DateTime::constant(1970, 1, 1, 0, 0, 0, 0)
        .checked_add(SignedDuration::from_secs(seconds))
        .map(|at| format!("{at}Z"))
        .map_err(|_| Malformed::Timestamp(seconds))
}

/// A JSON object under construction.
struct Fields(Vec<u8>);

impl Fields {
    /// Begins a field. The caller writes its value.
    fn key(&mut self, key: &str) -> &mut Vec<u8> {
        self.0.push(if self.0.is_empty() { b'{' } else { b',' });
        snapshot::text(&mut self.0, key);
        self.0.push(b':');
        &mut self.0
    }

    fn text(&mut self, key: &str, value: &str) {
        snapshot::text(self.key(key), value);
    }

    fn unless_empty(&mut self, key: &str, value: &str) {
        if !value.is_empty() {
            self.text(key, value);
        }
    }

    fn end(mut self) -> Vec<u8> {
        if self.0.is_empty() {
            self.0.push(b'{');
        }
        self.0.extend_from_slice(b"}\n");
        self.0
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::entry::{testing::encoded, wire};

    fn text(entry: &Entry) -> String {
        String::from_utf8(Line::of(entry).unwrap().text).unwrap()
    }

    #[test]
    fn a_whole_entry() {
        let entry = Entry {
            timestamp: Some(wire::Timestamp { seconds: 1_700_000_000, nanos: 999_999_999 }),
            provider: "provider-aws-s3:v1.2.0".into(),
            api_version: "s3.aws.upbound.io/v1beta1".into(),
            kind: "Bucket".into(),
            name: "b".into(),
            external_name: "b-external".into(),
            operation: 2,
            snapshot: vec![encoded(
                &json!({"spec": {"days": 3, "on": true, "none": null, "list": ["a\n<b>", 0.5]}}),
            )],
            error_message: Some("the cloud says \"no\"\nand that is it".into()),
            additional_details: [("k".to_owned(), "v".to_owned())].into(),
        };
        let expected = concat!(
            r#"{"timestamp":"2023-11-14T22:13:20Z","provider":"provider-aws-s3:v1.2.0","#,
            r#""apiVersion":"s3.aws.upbound.io/v1beta1","kind":"Bucket","name":"b","externalName":"b-external","#,
            r#""operation":"OPERATION_TYPE_UPDATE","#,
            r#""snapshot":{"spec":{"days":3,"list":["a\n<b>",0.5],"none":null,"on":true}},"#,
            r#""errorMessage":"the cloud says \"no\"\nand that is it","additionalDetails":{"k":"v"}}"#,
            "\n",
        );
        assert_eq!(text(&entry), expected);
        assert_eq!(
            Line::of(&entry).unwrap().snapshot,
            Some(r#"{"spec":{"days":3,"list":["a\n<b>",0.5],"none":null,"on":true}}"#.len())
        );
    }

    #[test]
    fn only_fields_that_are_set_are_written_even_if_they_are_empty() {
        assert_eq!(text(&Entry::default()), "{}\n");
        let entry = Entry {
            timestamp: Some(wire::Timestamp::default()),
            snapshot: vec![bytes::Bytes::new()],
            error_message: Some(String::new()),
            ..Entry::default()
        };
        let expected = "{\"timestamp\":\"1970-01-01T00:00:00Z\",\"snapshot\":{},\"errorMessage\":\"\"}\n";
        assert_eq!(text(&entry), expected);
    }

    #[rstest]
    #[case(0, "{}\n")]
    #[case(1, "{\"operation\":\"OPERATION_TYPE_CREATE\"}\n")]
    #[case(2, "{\"operation\":\"OPERATION_TYPE_UPDATE\"}\n")]
    #[case(3, "{\"operation\":\"OPERATION_TYPE_DELETE\"}\n")]
    #[case(4, "{\"operation\":4}\n")]
    #[case(-1, "{\"operation\":-1}\n")]
    fn operations_have_the_names_of_the_enum(#[case] operation: i32, #[case] expected: &str) {
        assert_eq!(text(&Entry { operation, ..Entry::default() }), expected);
    }

    #[rstest]
    #[case(-62_135_596_800, Some("0001-01-01T00:00:00Z"))]
    #[case(253_402_300_799, Some("9999-12-31T23:59:59Z"))]
    #[case(-1, Some("1969-12-31T23:59:59Z"))]
    #[case(-62_135_596_801, None)]
    #[case(253_402_300_800, None)]
    #[case(i64::MAX, None)]
    #[case(i64::MIN, None)]
    fn times_outside_the_years_1_to_9999_are_refused(#[case] seconds: i64, #[case] expected: Option<&str>) {
        let entry = Entry { timestamp: Some(wire::Timestamp { seconds, nanos: -5 }), ..Entry::default() };
        match expected {
            Some(at) => assert_eq!(text(&entry), format!("{{\"timestamp\":\"{at}\"}}\n")),
            None => assert_eq!(Line::of(&entry), Err(Malformed::Timestamp(seconds))),
        }
    }

    #[test]
    fn a_snapshot_in_pieces_is_one() {
        let pieces = vec![encoded(&json!({"a": 1, "b": 1})), encoded(&json!({"b": 2}))];
        let entry = Entry { snapshot: pieces, ..Entry::default() };
        assert_eq!(text(&entry), "{\"snapshot\":{\"a\":1,\"b\":2}}\n");
    }
}
