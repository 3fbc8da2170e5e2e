//! Reasons: words in the dictionary metric, codes in the packages' own.

use crate::fingerprint::first_bytes;

/// The code that stands for a reason: the first 24 bits of its SHA-256. 0 is kept for "no reason".
pub fn code(reason: &str) -> u64 {
    if reason.is_empty() { 0 } else { first_bytes(reason, 3).max(1) }
}

/// An expression of the source failed on this object, or the object is not what its kind says.
pub const EVALUATION_FAILED: &str = "EvaluationFailed";
/// Several objects of a source say that they are the same package.
pub const IDENTITY_CONFLICT: &str = "IdentityConflict";
/// The package is applied, and nothing looks at whether it works until somebody turns that on.
pub const NO_HEALTH_CHECKS: &str = "NoHealthChecks";
/// Reasons past the limit of distinct ones are summed up under this one.
pub const OTHER: &str = "Other";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_24_bits_of_sha256_and_never_zero_for_a_reason() {
        // The first six hex digits that `printf NoHealthChecks | sha256sum` prints.
        assert_eq!(code(NO_HEALTH_CHECKS), 0x17bd89);
        assert_eq!(code("BuildFailed"), 0xa9e9b2);
        assert_eq!(code(""), 0);
    }
}
