//! An API server's answer: its body, and what time it says it is.

use std::time::Duration;

use futures::{AsyncBufRead, TryStreamExt as _};
use http_body_util::BodyExt as _;
use kube::{Client, client::Body};
use tokio::time::timeout;

use super::{fault::Fault, path::request};
use crate::clock::Clock;

/// How long a page of a LIST, or the head of a watch's answer, may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// The answer to a GET.
pub(super) struct Answer {
    body: Body,
    /// By how many milliseconds the server's clock is ahead of the `run` clock at least: its time was taken before the
    /// answer came, and rounded down.
    pub(super) server: Option<i64>,
}

impl Answer {
    /// Asks, and waits for the head of the answer.
    pub(super) async fn get(client: &Client, clock: &Clock, uri: &str, accept: &str) -> Result<Self, Fault> {
        let answer = client.send(request(uri, accept)?.map(Body::from));
        let answer = timeout(PATIENCE, answer).await.map_err(|_| Fault::Silent(PATIENCE))??;
        let now = clock.now();
        let date = answer.headers().get(http::header::DATE).and_then(|date| date.to_str().ok());
        let server = date.and_then(unix_millis).map(|millis| millis - now.run);
        let (status, found) = (answer.status(), Self { body: answer.into_body(), server });
        if status.is_success() {
            return Ok(found);
        }
        let text = found.text().await?;
        let said: Option<serde_json::Value> = serde_json::from_str(&text).ok();
        let message = said.as_ref().and_then(|said| said.get("message")?.as_str());
        Err(Fault::from_status(status.as_u16(), message.unwrap_or(text.trim())))
    }

    /// All of it.
    pub(super) async fn text(self) -> Result<String, Fault> {
        let whole = timeout(PATIENCE, self.body.collect()).await.map_err(|_| Fault::Silent(PATIENCE))?;
        let bytes = whole.map_err(|error| Fault::Connection(error.to_string()))?.to_bytes();
        String::from_utf8(bytes.to_vec()).map_err(|error| Fault::Malformed(error.to_string()))
    }

    /// The body as it comes.
    pub(super) fn read(self) -> impl AsyncBufRead + Unpin {
        Box::pin(self.body.into_data_stream().map_err(std::io::Error::other).into_async_read())
    }
}

/// The time in a `Date` header.
fn unix_millis(date: &str) -> Option<i64> {
    Some(jiff::fmt::rfc2822::parse(date).ok()?.timestamp().as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_read_as_servers_write_it() {
        assert_eq!(unix_millis("Sun, 22 Nov 2026 15:25:29 GMT"), Some(1_795_361_129_000));
        assert_eq!(unix_millis("yesterday"), None);
    }
}
