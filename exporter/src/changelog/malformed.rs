//! Why an entry cannot be written.

/// What is wrong with an entry. The text is the message of the answer to the provider.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Malformed {
    /// The request has no entry.
    #[error("the request has no entry")]
    NoEntry,
    /// Bytes that are not what they should be.
    #[error("the entry cannot be read: {0}")]
    Unreadable(#[from] prost::DecodeError),
    /// A time that JSON of protocol buffers has no form for.
    #[error("timestamp: {0} s is not between the years 1 and 9999")]
    Timestamp(i64),
    /// A number that JSON has no form for.
    #[error("snapshot: {0} is not a number in JSON")]
    Number(f64),
    /// A value that says neither what it is nor null.
    #[error("snapshot: a value has no kind")]
    NoKind,
    /// Nested more deeply than anybody means to.
    #[error("snapshot: nested more than {limit} levels deep")]
    Deep {
        /// How deep it may be.
        limit: usize,
    },
}
