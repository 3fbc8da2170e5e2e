//! What a provider sends: `changelogs.proto.v1alpha1` of crossplane/crossplane-runtime
//! (`apis/changelogs/proto/v1alpha1/changelog.proto`).
//!
//! A snapshot is nearly all of an entry, and of it only its text is wanted. So it stays the bytes that it came
//! as, and [`crate::changelog::snapshot`] writes it level by level, to a depth of its own choosing.

use bytes::Bytes;

/// Path of the one method.
pub const SEND_CHANGE_LOG: &str = "/changelogs.proto.v1alpha1.ChangeLogService/SendChangeLog";

/// `SendChangeLogRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Request {
    /// The change.
    #[prost(message, optional, tag = "1")]
    pub entry: Option<Entry>,
}

/// `ChangeLogEntry`: one change that a provider made, or tried to make.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Entry {
    /// When it was made.
    #[prost(message, optional, tag = "1")]
    pub timestamp: Option<Timestamp>,
    /// Name and version of the provider, as provider-aws-s3:v1.2.0.
    #[prost(string, tag = "2")]
    pub provider: String,
    /// API version of the resource.
    #[prost(string, tag = "3")]
    pub api_version: String,
    /// Kind of the resource.
    #[prost(string, tag = "4")]
    pub kind: String,
    /// Name of the resource.
    #[prost(string, tag = "5")]
    pub name: String,
    /// What the resource is called outside the cluster.
    #[prost(string, tag = "6")]
    pub external_name: String,
    /// Number of an [`Operation`], or of one that came later.
    #[prost(int32, tag = "7")]
    pub operation: i32,
    /// The resource as it was before, a `google.protobuf.Struct`: none, or pieces that are to be read as one.
    #[prost(bytes = "bytes", repeated, tag = "8")]
    pub snapshot: Vec<Bytes>,
    /// Why the change could not be made.
    #[prost(string, optional, tag = "9")]
    pub error_message: Option<String>,
    /// Whatever else the provider has to say.
    #[prost(btree_map = "string, string", tag = "10")]
    pub additional_details: std::collections::BTreeMap<String, String>,
}

/// `google.protobuf.Timestamp`.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Timestamp {
    /// Unix seconds.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// What upstream's sidecar throws away.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

/// `OperationType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum Operation {
    /// Nobody said.
    Unspecified = 0,
    /// Create.
    Create = 1,
    /// Update.
    Update = 2,
    /// Delete.
    Delete = 3,
}

/// `google.protobuf.Struct`, one level of it.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Struct {
    #[prost(message, repeated, tag = "1")]
    pub(super) fields: Vec<Field>,
}

/// An entry of `Struct.fields`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Field {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    /// A [`Value`]; nothing in it is no value at all.
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) value: Bytes,
}

/// `google.protobuf.ListValue`, one level of it.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct List {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub(super) values: Vec<Bytes>,
}

/// `google.protobuf.Value`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Value {
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5, 6")]
    pub(super) kind: Option<Kind>,
}

/// What a [`Value`] is.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Kind {
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
