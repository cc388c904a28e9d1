//! Generations of the authority, signers and the list of them: types and decisions, pure.

pub mod authority;
pub mod keyset;
pub mod signer;

use kernel::{Code, Problem, text::Reason};

/// How an operator asks for a step that may be refused for the sake of nodes.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// Do it although nodes would be lost.
    pub force: bool,
    pub reason: Option<Reason>,
}

impl Step {
    /// Forcing needs a reason.
    pub fn check(&self) -> Result<(), Problem> {
        if self.force && self.reason.is_none() {
            return Err(Problem::field("reason", "is required when force is set"));
        }
        Ok(())
    }

    pub fn because(reason: Reason) -> Self {
        Self { force: false, reason: Some(reason) }
    }

    pub fn reason(&self) -> &str {
        self.reason.as_ref().map(Reason::as_str).unwrap_or_default()
    }
}

/// Nodes that matter for a rotation: enrolled and in service, whether they report or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmed {
    pub nodes: i64,
    pub of: i64,
}

impl Confirmed {
    /// A step that would leave nodes behind waits for them, or is forced.
    pub fn check(self, step: &Step, what: &'static str) -> Result<(), Problem> {
        if step.force || self.nodes >= self.of {
            return Ok(());
        }
        let text = format!("{} of {} nodes do not have {what} yet.", self.of - self.nodes, self.of);
        Err(Problem::new(Code::InvalidTransition, text)
            .detail("nodes_confirmed", self.nodes)
            .detail("nodes_total", self.of)
            .suggest("Wait until nodes_confirmed equals nodes_total, or send force with a reason; the other nodes then need a repair token."))
    }
}

/// The answer to a step that the state does not allow.
pub(super) fn not_from(kind: &'static str, state: &str, step: &str) -> Problem {
    Problem::new(
        Code::InvalidTransition,
        format!("The {kind} is {state}, which does not allow this step: {step}."),
    )
    .detail("state", state)
}
