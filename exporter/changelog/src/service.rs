//! `ChangeLogService` of Crossplane: answers each request at once, however slow standard output is.

use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use hyper::body::Incoming;
use prost::Message as _;
use tonic::{
    Code, Request, Response, Status,
    body::Body,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    server::{Grpc, UnaryService},
};

use crate::{
    entry::{
        Line, Malformed,
        wire::{self, SEND_CHANGE_LOG},
    },
    metrics::{Metrics, REFUSALS},
    output::{Full, Output},
};

#[derive(Debug, Clone)]
pub(crate) struct ChangeLog {
    output: Output,
    metrics: Arc<Metrics>,
}

impl ChangeLog {
    pub(crate) fn new(output: Output, metrics: Arc<Metrics>) -> Self {
        Self { output, metrics }
    }

    /// Answers a request over HTTP/2.
    pub(crate) async fn answer(&self, request: http::Request<Incoming>) -> http::Response<Body> {
        let response = if request.uri().path() == SEND_CHANGE_LOG {
            Grpc::new(Raw).unary(self.clone(), request).await
        } else {
            let path = request.uri().path();
            Status::unimplemented(format!("there is no method {path}, but {SEND_CHANGE_LOG}")).into_http()
        };
        // An answer without a message has its status among its headers.
        let code = response.headers().get("grpc-status").map(|code| Code::from_bytes(code.as_bytes()));
        if let Some(cause) = code.and_then(cause) {
            self.metrics.refused(cause);
        }
        response
    }

    /// Takes an entry, or says why not.
    fn take(&self, request: Bytes) -> Result<(), Status> {
        let unreadable = |malformed: Malformed| Status::invalid_argument(malformed.to_string());
        let request = wire::Request::decode(request).map_err(|error| unreadable(error.into()))?;
        let entry = request.entry.ok_or_else(|| unreadable(Malformed::NoEntry))?;
        let line = Line::of(&entry).map_err(unreadable)?;
        self.metrics.changed(&entry, line.snapshot);
        self.output.offer(&line.text).map_err(|Full| {
            Status::resource_exhausted("standard output is too slow: the entry is counted, but not written")
        })
    }
}

/// Why a request was refused; `None` for codes that are counted elsewhere.
fn cause(code: Code) -> Option<&'static str> {
    let [malformed, too_large, unimplemented, cancelled, internal] = REFUSALS;
    match code {
        Code::Ok | Code::ResourceExhausted => None,
        Code::InvalidArgument => Some(malformed),
        Code::OutOfRange => Some(too_large),
        Code::Unimplemented => Some(unimplemented),
        Code::Cancelled => Some(cancelled),
        _ => Some(internal),
    }
}

impl UnaryService<Bytes> for ChangeLog {
    type Response = ();
    type Future = std::future::Ready<Result<Response<()>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        std::future::ready(self.take(request.into_inner()).map(Response::new))
    }
}

/// Requests as undecoded bytes, so that [`ChangeLog::take`] says what is wrong with them. The answer,
/// `SendChangeLogResponse`, is empty.
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
    use statusbridge_serving::format::Format;

    use super::*;
    use crate::entry::Entry;

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
    fn malformed_requests_are_refused_with_the_reason_and_not_counted(
        #[case] request: Vec<u8>,
        #[case] why: &str,
    ) {
        let metrics = Arc::new(Metrics::new(10));
        let output = Output::start(std::io::sink(), 1 << 20, metrics.clone()).unwrap();
        let status = ChangeLog::new(output, metrics.clone()).take(request.into()).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().starts_with(why), "{status}");
        assert!(!metrics.render(Format::Text).unwrap().contains("entries_total{"));
    }
}
