//! Times as people read them.

use chrono::{DateTime, Utc};

/// `12s ago`, `in 23h`: the largest whole unit.
pub fn relative(now: DateTime<Utc>, at: DateTime<Utc>) -> String {
    let seconds = (at - now).num_seconds();
    let size = seconds.unsigned_abs();
    let text = match size {
        0..=119 => format!("{size}s"),
        120..=7199 => format!("{}m", size / 60),
        7200..=172_799 => format!("{}h", size / 3600),
        _ => format!("{}d", size / 86400),
    };
    if seconds > 0 { format!("in {text}") } else { format!("{text} ago") }
}

/// `1 h 30 min`, exactly.
pub fn span(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let parts = [(seconds / 3600, "h"), (seconds / 60 % 60, "min"), (seconds % 60, "s")];
    let given: Vec<String> = parts
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, unit)| format!("{number} {unit}"))
        .collect();
    if given.is_empty() { "0 s".to_owned() } else { given.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_shown_relative_to_now() {
        let now = DateTime::UNIX_EPOCH;
        let at = |seconds| relative(now, now + chrono::TimeDelta::seconds(seconds));
        assert_eq!(
            [at(0), at(-119), at(-120), at(7200), at(-172_800)],
            ["0s ago", "119s ago", "2m ago", "in 2h", "2d ago"]
        );
    }

    #[test]
    fn a_span_names_its_parts() {
        assert_eq!(
            [0, 59, 60, 3600, 5400, 3601].map(span),
            ["0 s", "59 s", "1 min", "1 h", "1 h 30 min", "1 h 1 s"]
        );
    }
}
