//! Who looks for what.

use std::sync::Arc;

use crate::watch::{PackageKey, SourceId};

/// An object, or a package.
pub(super) type Key = Arc<PackageKey>;

/// A package of a source.
pub(super) type Referrer = (SourceId, Key);
