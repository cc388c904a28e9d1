//! Who waits for the end of a task.

/// Who may wait for the end of a task. Each has one `Completion`, which `Completions::check` proves at start-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiter {
    /// The onboarding of a node.
    Onboarding,
    /// A suspended step of a saga.
    SagaStep,
}

impl Waiter {
    pub const ALL: [Self; 2] = [Self::Onboarding, Self::SagaStep];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Onboarding => "node_onboarding",
            Self::SagaStep => "saga",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|waiter| waiter.name() == name)
    }
}

/// Who waits for the result.
#[derive(Clone, Debug)]
pub struct Waiting {
    pub waiter: Waiter,
    /// What it is notified with.
    pub key: String,
}
