//! The colour and symbol of a state.

use comfy_table::Color;

/// What a state means for somebody who reads a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    Good,
    /// It will change by itself, or somebody should look at it.
    Busy,
    Bad,
    /// Over, or of no weight.
    Plain,
}

impl Mood {
    /// Of a value in a column of states; none of other columns.
    pub fn of_cell(path: &str, text: &str) -> Option<Self> {
        let name = path.rsplit('.').next().unwrap_or(path);
        let state = matches!(name, "state" | "health" | "ok" | "result" | "contact_state")
            || name.ends_with("_state");
        state.then_some(match text {
            "active" | "healthy" | "available" | "yes" | "paid" | "posted" | "succeeded" | "sent"
            | "done" | "allowed" | "processed" | "accepted" | "enabled" | "applied" | "online"
            | "resolved" => Self::Good,
            "requested" | "provisioning" | "releasing" | "pending" | "queued" | "running" | "proposed"
            | "low_balance" | "warning" | "draining" | "cleaning" | "enrolling" | "bootstrap_issued"
            | "discovered" | "approved" | "reserved" | "open" | "dispatched" | "undoing" | "created"
            | "degraded" | "warn" | "cordon" | "staged" | "grace" | "acknowledged" | "received"
            | "unknown" | "removing" => Self::Busy,
            "failed"
            | "release_failed"
            | "no"
            | "depleted"
            | "auto_release_pending"
            | "quarantined"
            | "offline"
            | "dead"
            | "refused"
            | "suspended"
            | "cleanup_blocked"
            | "stuck"
            | "lost"
            | "revoked"
            | "quarantine"
            | "blocked"
            | "restricted" => Self::Bad,
            _ => Self::Plain,
        })
    }

    pub fn symbol(self) -> &'static str {
        match self {
            Self::Good => "●",
            Self::Busy => "◐",
            Self::Bad => "✗",
            Self::Plain => "○",
        }
    }

    pub fn colour(self) -> Option<Color> {
        match self {
            Self::Good => Some(Color::Green),
            Self::Busy => Some(Color::Yellow),
            Self::Bad => Some(Color::Red),
            Self::Plain => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_states_have_a_mood() {
        assert_eq!(Mood::of_cell("state", "active"), Some(Mood::Good));
        assert_eq!(Mood::of_cell("contact_state", "offline"), Some(Mood::Bad));
        assert_eq!(Mood::of_cell("state", "released"), Some(Mood::Plain));
        assert_eq!(Mood::of_cell("name", "failed"), None);
    }
}
