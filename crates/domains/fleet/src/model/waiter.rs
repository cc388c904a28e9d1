//! Who waits for the end of a task.

lifecycle::named_enum! {
    /// Who may wait for the end of a task. Each has one `Completion`, which `Completions::check` proves at start-up.
    Waiter = "waiting party" {
        /// The onboarding of a node.
        Onboarding = "node_onboarding",
        /// A suspended step of a saga.
        SagaStep = "saga",
    }
}

/// Who waits for the result.
#[derive(Clone, Debug)]
pub struct Waiting {
    pub waiter: Waiter,
    /// What it is notified with.
    pub key: String,
}
