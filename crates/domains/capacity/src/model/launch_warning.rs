//! What whoever launches is warned of, although nothing is refused.

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::Serialize;

lifecycle::named_enum! {
    LaunchWarningCode = "code of a launch warning" {
        /// The balance ends within the time that a launch must be able to pay for; all machines are released then.
        BalanceRunsOutSoon = "balance_runs_out_soon",
    }
}

/// A launch that is allowed and that people should think about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LaunchWarning {
    pub code: LaunchWarningCode,
    pub message: String,
    /// With `balance_runs_out_soon`: when the balance ends if this and everything else runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "DateTime<Utc>")]
    pub runs_out_at: Option<DateTime<Utc>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64")]
    pub runs_out_in_seconds: Option<i64>,
}

impl LaunchWarning {
    /// The balance ends soon with the launch.
    pub fn balance_runs_out(at: DateTime<Utc>, in_seconds: i64) -> Self {
        let message = format!(
            "With this launch the balance lasts about {} (until {}). All machines of the organization are \
             released when it is used up; top up to keep them.",
            duration(in_seconds),
            at.format("%Y-%m-%d %H:%M:%S UTC")
        );
        Self {
            code: LaunchWarningCode::BalanceRunsOutSoon,
            message,
            runs_out_at: Some(at),
            runs_out_in_seconds: Some(in_seconds),
        }
    }
}

/// As people say it, rounded down.
fn duration(seconds: i64) -> String {
    let counted = |count: i64, unit: &str| format!("{count} {unit}{}", if count == 1 { "" } else { "s" });
    match seconds {
        ..120 => counted(seconds, "second"),
        120..7_200 => counted(seconds / 60, "minute"),
        _ => counted(seconds / 3_600, "hour"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_balance_is_said_as_a_time_and_as_a_duration() {
        let warned = LaunchWarning::balance_runs_out(DateTime::UNIX_EPOCH, 600).message;
        assert!(warned.contains("about 10 minutes (until 1970-01-01 00:00:00 UTC)"), "{warned}");
    }

    #[test]
    fn durations_are_rounded_down_to_a_unit_that_says_something() {
        let shown = [0, 1, 119, 120, 7_199, 7_200, 86_400].map(duration);
        let expected =
            ["0 seconds", "1 second", "119 seconds", "2 minutes", "119 minutes", "2 hours", "24 hours"];
        assert_eq!(shown, expected);
    }
}
