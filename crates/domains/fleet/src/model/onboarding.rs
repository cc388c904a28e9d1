//! How a new node becomes one that serves tenants.

lifecycle::lifecycle! {
    /// Discovery only proposes; a person approves; a probe has the last word.
    OnboardingLifecycle = "node_onboarding", initial WaitingForAgent;
    states OnboardingState {
        WaitingForAgent = "waiting_for_agent", Discovering = "discovering",
        AwaitingApproval = "awaiting_approval", Validating = "validating", Done = "done", Failed = "failed",
    }
    events OnboardingEvent {
        Enrolled = "enrolled", Discovered = "discovered", DiscoveryFailed = "discovery_failed",
        Approve = "approve", Rediscover = "rediscover", Passed = "passed", ValidationFailed = "validation_failed",
        Revalidate = "revalidate",
    }
    WaitingForAgent on Enrolled => Discovering;
    Discovering on Discovered => AwaitingApproval;
    Discovering on DiscoveryFailed => Failed;
    AwaitingApproval on Approve => Validating;
    AwaitingApproval on Rediscover => Discovering;
    Validating on Passed => Done;
    Validating on ValidationFailed => Failed;
    Failed on Rediscover => Discovering;
    Failed on Revalidate => Validating;
}
