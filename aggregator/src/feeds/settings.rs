//! The feeds that the configuration file names.

use serde::Deserialize;

/// By which ways evidence comes.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Settings {}
