//! What is wrong with an entry.

/// Why an entry cannot be written. The text is the message of the answer to the provider.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("the request has no entry")]
    NoEntry,
    #[error("the entry cannot be read: {0}")]
    Unreadable(#[from] prost::DecodeError),
    /// Unix seconds for which the JSON of protocol buffers has no form.
    #[error("timestamp: {0} s is not between the years 1 and 9999")]
    Timestamp(i64),
    /// A number for which JSON has no form.
    #[error("snapshot: {0} is not a number in JSON")]
    Number(f64),
    #[error("snapshot: a value has no kind")]
    NoKind,
    #[error("snapshot: nested more than {limit} levels deep")]
    Deep { limit: usize },
}
