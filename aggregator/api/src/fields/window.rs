//! When a gate may be open, and whether somebody has to approve.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A time that comes again and again, in which a gate may be open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Window {
    /// When it begins, in the five fields of cron: minute, hour, day of month, month, day of week, as
    /// in `0 9 * * MON-FRI`.
    #[schemars(length(min = 9, max = 256), regex(pattern = r"^[^ ]+( [^ ]+){4}$"))]
    pub schedule: String,
    /// How long it lasts, at most 168h. It is time that passes: on the day on which clocks are set
    /// back, 8h end an hour earlier by the clock.
    #[schemars(length(max = 21), extend("x-kubernetes-validations" = [
        {
            "rule": "self.matches('^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?$') && size(self) > 0",
            "message": "duration must be a duration such as 90m, 8h or 1h30m"
        },
        {
            "rule": "!self.matches('^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?$') || size(self) == 0 || (duration(self) >= duration('1m') && duration(self) <= duration('168h'))",
            "message": "duration must be from 1m to 168h"
        }
    ]))]
    pub duration: String,
    /// The time zone of `schedule`, by its IANA name. Default `Etc/UTC`. A beginning that the change
    /// to daylight saving time skips is moved to the end of the gap; one that comes twice counts once,
    /// the first time.
    #[serde(default = "default_time_zone")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$"))]
    pub time_zone: String,
}

fn default_time_zone() -> String {
    "Etc/UTC".to_owned()
}

/// Whether a gate waits for an approval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Approval {
    /// It waits for none.
    #[default]
    NotRequired,
    /// It waits for a RolloutApproval of its revision.
    Required,
}
