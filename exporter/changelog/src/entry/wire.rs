//! What a provider sends: `changelogs.proto.v1alpha1` of crossplane/crossplane-runtime
//! (`apis/changelogs/proto/v1alpha1/changelog.proto`).
//!
//! A snapshot is nearly all of an entry, and it is needed only as JSON. So it is kept as the bytes that came, and
//! [`super::snapshot`] decodes it level by level, to a bounded depth.

use bytes::Bytes;

/// Path of the only method.
pub(crate) const SEND_CHANGE_LOG: &str = "/changelogs.proto.v1alpha1.ChangeLogService/SendChangeLog";

/// `SendChangeLogRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Request {
    #[prost(message, optional, tag = "1")]
    pub(crate) entry: Option<Entry>,
}

/// `ChangeLogEntry`: one change that a provider made, or tried to make.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Entry {
    #[prost(message, optional, tag = "1")]
    pub(crate) timestamp: Option<Timestamp>,
    /// Name and version, as provider-aws-s3:v1.2.0.
    #[prost(string, tag = "2")]
    pub(crate) provider: String,
    #[prost(string, tag = "3")]
    pub(crate) api_version: String,
    #[prost(string, tag = "4")]
    pub(crate) kind: String,
    #[prost(string, tag = "5")]
    pub(crate) name: String,
    /// The resource's name outside the cluster.
    #[prost(string, tag = "6")]
    pub(crate) external_name: String,
    /// Number of an [`Operation`], or of one that a later version of the protocol added.
    #[prost(int32, tag = "7")]
    pub(crate) operation: i32,
    /// The resource before the change, a `google.protobuf.Struct`: none, or pieces that together are one message.
    #[prost(bytes = "bytes", repeated, tag = "8")]
    pub(crate) snapshot: Vec<Bytes>,
    /// Why the change could not be made.
    #[prost(string, optional, tag = "9")]
    pub(crate) error_message: Option<String>,
    #[prost(btree_map = "string, string", tag = "10")]
    pub(crate) additional_details: std::collections::BTreeMap<String, String>,
}

/// `google.protobuf.Timestamp`.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct Timestamp {
    /// Unix time.
    #[prost(int64, tag = "1")]
    pub(crate) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(crate) nanos: i32,
}

/// `OperationType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum Operation {
    Unspecified = 0,
    Create = 1,
    Update = 2,
    Delete = 3,
}

/// `google.protobuf.Struct`, one level of it.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Struct {
    #[prost(message, repeated, tag = "1")]
    pub(crate) fields: Vec<Field>,
}

/// An entry of `Struct.fields`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Field {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    /// A [`Value`]. No bytes are a value without a kind, which is malformed.
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) value: Bytes,
}

/// `google.protobuf.ListValue`, one level of it.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct List {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub(crate) values: Vec<Bytes>,
}

/// `google.protobuf.Value`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Value {
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5, 6")]
    pub(crate) kind: Option<Kind>,
}

/// The kind of a [`Value`].
#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Kind {
    #[prost(int32, tag = "1")]
    Null(i32),
    #[prost(double, tag = "2")]
    Number(f64),
    #[prost(string, tag = "3")]
    Text(String),
    #[prost(bool, tag = "4")]
    Bool(bool),
    /// A [`Struct`].
    #[prost(bytes = "bytes", tag = "5")]
    Object(Bytes),
    /// A [`List`].
    #[prost(bytes = "bytes", tag = "6")]
    List(Bytes),
}
