//! `ChangeLogService`: answers each request at once, whatever standard output does.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use bytes::{Buf as _, Bytes};
use hyper::body::Incoming;
use prost::Message as _;
use tonic::{
    Code, Request, Response, Status,
    body::Body,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    server::{Grpc, UnaryService},
};

use super::{
    buffer::Full,
    labels::Known,
    line::{self, Line},
    malformed::Malformed,
    metrics::{Change, Metrics},
    output::Output,
    repeats::Repeats,
    snapshot,
    wire::{self, Entry, Operation, SEND_CHANGE_LOG},
};

/// The service.
#[derive(Debug, Clone)]
pub struct ChangeLog {
    desk: Arc<Desk>,
}

#[derive(Debug)]
struct Desk {
    output: Output,
    metrics: Arc<Metrics>,
    memory: Mutex<Memory>,
    start: Instant,
    hasher: RandomState,
}

/// What is remembered from one entry to the next.
#[derive(Debug)]
struct Memory {
    known: Known,
    repeats: Repeats,
}

impl ChangeLog {
    /// Writes to `output`, and counts with at most so many kinds.
    pub fn new(output: Output, metrics: Arc<Metrics>, kinds: usize) -> Self {
        let memory = Mutex::new(Memory { known: Known::new(kinds), repeats: Repeats::default() });
        let (start, hasher) = (Instant::now(), RandomState::new());
        Self { desk: Arc::new(Desk { output, metrics, memory, start, hasher }) }
    }

    /// Answers a request over HTTP/2.
    pub async fn answer(&self, request: http::Request<Incoming>) -> http::Response<Body> {
        let response = if request.uri().path() == SEND_CHANGE_LOG {
            Grpc::new(Raw).unary(self.clone(), request).await
        } else {
            let path = request.uri().path();
            Status::unimplemented(format!("there is no method {path}, but {SEND_CHANGE_LOG}")).into_http()
        };
        // An answer that is nothing but an error says so at its beginning.
        let code = response.headers().get("grpc-status").map(|code| Code::from_bytes(code.as_bytes()));
        if let Some(cause) = code.and_then(cause) {
            self.desk.metrics.refused(cause);
        }
        response
    }

    /// Takes an entry, or says why not.
    fn take(&self, request: Bytes) -> Result<(), Status> {
        let unreadable = |malformed: Malformed| Status::invalid_argument(malformed.to_string());
        let request = wire::Request::decode(request).map_err(|error| unreadable(error.into()))?;
        let entry = request.entry.ok_or_else(|| unreadable(Malformed::NoEntry))?;
        let line = Line::of(&entry).map_err(unreadable)?;
        let at = line::seconds(&entry).map_err(unreadable)?;
        self.desk.count(&entry, &line, at);
        self.desk.output.offer(&line.text).map_err(|Full| {
            Status::resource_exhausted("standard output is too slow: the entry is counted, but not written")
        })
    }
}

/// Every cause that there is.
pub const CAUSES: [&str; 5] = ["malformed", "too_large", "unimplemented", "cancelled", "internal"];

/// Why a request was refused; `None` for what is counted elsewhere.
fn cause(code: Code) -> Option<&'static str> {
    match code {
        Code::Ok | Code::ResourceExhausted => None,
        Code::InvalidArgument => Some("malformed"),
        Code::OutOfRange => Some("too_large"),
        Code::Unimplemented => Some("unimplemented"),
        Code::Cancelled => Some("cancelled"),
        _ => Some("internal"),
    }
}

impl Desk {
    fn count(&self, entry: &Entry, line: &Line, at: Option<i64>) {
        let operation = Operation::try_from(entry.operation).unwrap_or(Operation::Unspecified);
        let successful = entry.error_message.is_none();
        let now = jiff::Timestamp::now().as_second();
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let repeat = operation == Operation::Update
            && successful
            && memory.repeats.updated(self.resource(entry), self.start.elapsed());
        let of = memory.known.labels(entry);
        drop(memory);
        self.metrics.changed(&Change {
            of,
            operation,
            successful,
            repeat,
            // A clock that is ahead must not hide what comes later.
            at: at.map_or(now, |at| at.min(now)),
            snapshot: (!entry.snapshot.is_empty()).then_some(line.snapshot),
        });
    }

    /// Stands for the resource that an entry is about.
    fn resource(&self, entry: &Entry) -> u64 {
        let group = entry.api_version.rsplit_once('/').map_or("", |(group, _)| group);
        let namespace =
            line::joined(&entry.snapshot).map(|raw| snapshot::namespace(&raw)).unwrap_or_default();
        self.hasher.hash_one((group, &entry.kind, namespace, &entry.name))
    }
}

impl UnaryService<Bytes> for ChangeLog {
    type Response = ();
    type Future = std::future::Ready<Result<Response<()>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        std::future::ready(self.take(request.into_inner()).map(Response::new))
    }
}

/// Requests as the bytes that they are, so that [`ChangeLog::take`] says what is wrong with them;
/// `SendChangeLogResponse`, which is empty, in return.
#[derive(Debug, Clone, Copy)]
struct Raw;

impl Codec for Raw {
    type Encode = ();
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = ();
    type Error = Status;

    fn encode(&mut self, (): (), _: &mut EncodeBuf<'_>) -> Result<(), Status> {
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(message.copy_to_bytes(message.remaining())))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::{super::testing::encoded, *};
    use crate::exposition::Format;

    struct Rig {
        log: ChangeLog,
        metrics: Arc<Metrics>,
    }

    fn rig(limit: usize) -> Rig {
        let metrics = Arc::new(Metrics::default());
        let output = Output::start(std::io::sink(), limit, metrics.clone()).unwrap();
        Rig { log: ChangeLog::new(output, metrics.clone(), 10), metrics }
    }

    impl Rig {
        fn send(&self, entry: Entry) -> Result<(), Status> {
            self.log.take(wire::Request { entry: Some(entry) }.encode_to_vec().into())
        }

        fn shows(&self, line: &str) {
            let text = self.metrics.render(Format::Text).unwrap();
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
    }

    fn update(namespace: &str, name: &str) -> Entry {
        Entry {
            provider: "p:v1".into(),
            api_version: "g/v1".into(),
            kind: "K".into(),
            name: name.into(),
            operation: Operation::Update as i32,
            snapshot: vec![encoded(&json!({"metadata": {"namespace": namespace}}))],
            ..Entry::default()
        }
    }

    #[test]
    fn only_updates_of_the_same_resource_that_succeed_are_repeats() {
        let rig = rig(1 << 20);
        let failed = Entry { error_message: Some("no".into()), ..update("a", "x") };
        let created = Entry { operation: Operation::Create as i32, ..update("a", "x") };
        for entry in [failed.clone(), created, update("a", "x"), update("b", "x"), update("a", "y"), failed] {
            rig.send(entry).unwrap();
        }
        rig.shows(r#"statusbridge_changelog_repeated_updates_total{provider="p",group="g",kind="K"} 0"#);
        // The version of the API is another one, the resource is not.
        rig.send(Entry { api_version: "g/v2".into(), ..update("a", "x") }).unwrap();
        rig.shows(r#"statusbridge_changelog_repeated_updates_total{provider="p",group="g",kind="K"} 1"#);
    }

    #[test]
    fn a_clock_that_is_ahead_is_not_believed() {
        let rig = rig(1 << 20);
        let before = jiff::Timestamp::now().as_second();
        let timestamp = wire::Timestamp { seconds: before + 86_400, nanos: 0 };
        rig.send(Entry { timestamp: Some(timestamp), ..update("a", "x") }).unwrap();
        let text = rig.metrics.render(Format::Text).unwrap();
        let name =
            r#"statusbridge_changelog_last_change_timestamp_seconds{provider="p",group="g",kind="K"} "#;
        let at: i64 = text.lines().find_map(|line| line.strip_prefix(name)?.parse().ok()).unwrap();
        assert!((before..before + 3600).contains(&at), "{at}");
    }

    #[rstest]
    #[case::no_entry(wire::Request { entry: None }.encode_to_vec(), "the request has no entry")]
    #[case::rubbish(vec![0xff; 20], "the entry cannot be read: ")]
    #[case::no_utf_8(vec![0x0a, 0x03, 0x12, 0x01, 0xff], "the entry cannot be read: ")]
    #[case::no_time(
        wire::Request { entry: Some(Entry {
            timestamp: Some(wire::Timestamp { seconds: i64::MAX, nanos: 0 }), ..Entry::default()
        }) }.encode_to_vec(),
        "timestamp: "
    )]
    fn what_is_malformed_is_answered_clearly_and_not_counted(#[case] request: Vec<u8>, #[case] why: &str) {
        let rig = rig(1 << 20);
        let status = rig.log.take(request.into()).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().starts_with(why), "{status}");
        assert!(!rig.metrics.render(Format::Text).unwrap().contains("entries_total{"));
    }
}
