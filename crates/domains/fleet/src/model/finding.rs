//! Health findings: what nodes reported, and what was done.

use chrono::{DateTime, TimeDelta, Utc};
use kernel::{
    Code, Problem,
    ids::{FindingId, NodeId, SlotId},
};
use lifecycle::{Lifecycle as _, Named as _};
use node_proto::contract;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::{health_rule::HealthAction, text::tame};

lifecycle::lifecycle! {
    /// Open while it lasts or nobody looked; resolved by a person. What comes again after that is a new one.
    FindingLifecycle = "health_finding", initial Open;
    states FindingState as "HealthFindingState" { Open = "open", Acknowledged = "acknowledged", Resolved = "resolved" }
    events FindingEvent { Acknowledge = "acknowledge", Resolve = "resolve" }
    Open on Acknowledge => Acknowledged;
    Open on Resolve => Resolved;
    Acknowledged on Resolve => Resolved;
}

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "HealthFinding")]
pub struct Finding {
    pub id: FindingId,
    pub node_id: NodeId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot_id: Option<SlotId>,
    pub code: String,
    pub subject: String,
    pub message: String,
    pub evidence: Value,
    /// What the table said when it was opened.
    pub action: HealthAction,
    pub state: FindingState,
    /// How often it was reported.
    pub seen: i64,
    pub first_seen_at: DateTime<Utc>,
    pub last_seen_at: DateTime<Utc>,
    pub note: String,
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

impl Finding {
    pub fn after(&self, event: FindingEvent) -> Result<FindingState, Problem> {
        FindingLifecycle::next(self.state, event).ok_or_else(|| {
            let text = format!("The finding is {}, which does not allow {}.", self.state, event.name());
            Problem::new(Code::InvalidTransition, text).detail("state", self.state.name())
        })
    }
}

/// What a node reported, within bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    pub code: String,
    pub subject: String,
    pub message: String,
    pub evidence: Value,
    pub observed_at: DateTime<Utc>,
}

/// The times that a report can be about, by what the gateway itself saw. Findings move money from their time on, so a
/// node's own word for it counts only in here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportWindow {
    first: DateTime<Utc>,
    last: DateTime<Utc>,
}

impl ReportWindow {
    /// `last_accepted_at` is when the node's previous report was accepted. What had begun before that would have been in it,
    /// unless the node was slow to notice, for which it has `slack`. A node that never reported has no more than `slack`.
    pub fn new(now: DateTime<Utc>, last_accepted_at: Option<DateTime<Utc>>, slack: TimeDelta) -> Self {
        let last_accepted_at = last_accepted_at.map_or(now, |before| before.min(now));
        Self { first: last_accepted_at.checked_sub_signed(slack).unwrap_or(last_accepted_at), last: now }
    }

    fn bound(self, at: DateTime<Utc>) -> DateTime<Utc> {
        at.clamp(self.first, self.last)
    }
}

const LONGEST_CODE: usize = 64;
const LONGEST_SUBJECT: usize = 64;
const LONGEST_MESSAGE: usize = 500;
const LARGEST_EVIDENCE: usize = 8 * 1024;

/// The reports of one heartbeat: those that make no sense are left out, each thing is there once, and nothing
/// lies outside of the window.
pub fn readable(findings: &[contract::Finding], window: ReportWindow) -> Vec<Report> {
    let mut out: Vec<Report> = Vec::new();
    for finding in findings.iter().take(contract::FINDINGS_PER_HEARTBEAT) {
        let (code, subject) = (finding.code.as_str(), tame(&finding.subject, LONGEST_SUBJECT));
        if !is_code(code) || subject.is_empty() || out.iter().any(|r| r.code == code && r.subject == subject)
        {
            continue;
        }
        out.push(Report {
            code: code.to_owned(),
            subject,
            message: tame(&finding.message, LONGEST_MESSAGE),
            evidence: evidence(&finding.evidence),
            observed_at: window.bound(finding.observed_at),
        });
    }
    // One order for everybody who locks rows.
    out.sort_by(|a, b| (&a.code, &a.subject).cmp(&(&b.code, &b.subject)));
    out
}

fn is_code(code: &str) -> bool {
    let word = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    code.len() <= LONGEST_CODE && code.split('.').all(word)
}

/// Evidence is kept when it is not too large.
fn evidence(value: &Value) -> Value {
    if value.to_string().len() > LARGEST_EVIDENCE {
        return serde_json::json!({ "omitted": "too large" });
    }
    if value.is_null() { serde_json::json!({}) } else { value.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(code: &str, subject: &str) -> contract::Finding {
        contract::Finding {
            code: code.to_owned(),
            subject: subject.to_owned(),
            message: "x\0y".to_owned(),
            observed_at: DateTime::UNIX_EPOCH + chrono::TimeDelta::days(9),
            evidence: Value::Null,
        }
    }

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds)
    }

    #[test]
    fn no_time_is_before_the_previous_report_less_the_slack_or_in_the_future() {
        let slack = TimeDelta::seconds(300);
        let window = ReportWindow::new(at(10_000), Some(at(9_990)), slack);
        for (claimed, believed) in
            [(0, 9_690), (9_689, 9_690), (9_700, 9_700), (10_000, 10_000), (20_000, 10_000)]
        {
            assert_eq!(window.bound(at(claimed)), at(believed), "{claimed}");
        }
        assert_eq!(ReportWindow::new(at(10_000), None, slack).bound(at(0)), at(9_700));
        let ahead = ReportWindow::new(at(10_000), Some(at(11_000)), slack);
        assert_eq!(ahead.bound(at(0)), at(9_700), "a gateway whose clock is ahead widens nothing");
        assert_eq!(ahead.bound(at(10_500)), at(10_000));
        let silent = ReportWindow::new(at(90_000), Some(at(1_000)), slack);
        assert_eq!(silent.bound(at(2_000)), at(2_000), "nobody knows of the time in which it was silent");
    }

    #[test]
    fn nonsense_and_repetitions_are_left_out_and_the_future_is_now() {
        let now = DateTime::UNIX_EPOCH;
        let window = ReportWindow::new(now, None, TimeDelta::zero());
        let given = [
            finding("xid.79", "0000:1b:00.0"),
            finding("xid.79", "0000:1b:00.0"),
            finding("XID", "node"),
            finding("a", ""),
        ];
        let read = readable(&given, window);
        assert_eq!(read.len(), 1);
        assert_eq!((read[0].message.as_str(), read[0].observed_at), ("x y", now));
    }

    #[test]
    fn large_evidence_is_not_kept() {
        let mut large = finding("a", "node");
        large.evidence = Value::String("x".repeat(LARGEST_EVIDENCE));
        let window = ReportWindow::new(DateTime::UNIX_EPOCH, None, TimeDelta::zero());
        assert!(readable(&[large], window)[0].evidence.get("omitted").is_some());
    }
}
