//! A part of a node that can be sold by itself.

lifecycle::lifecycle! {
    /// Only an approved, validated and healthy slot is ever available.
    SlotLifecycle = "slot", initial Discovered;
    states SlotState {
        Discovered = "discovered", Approved = "approved", Available = "available", Reserved = "reserved",
        InUse = "in_use", Cleaning = "cleaning", CleanupBlocked = "cleanup_blocked", Quarantined = "quarantined",
    }
    events SlotEvent {
        Approve = "approve", Withdraw = "withdraw", Validate = "validate", Reserve = "reserve", Free = "free",
        Occupy = "occupy", Clean = "clean", Cleaned = "cleaned", CleaningFailed = "cleaning_failed",
        Retry = "retry", ForceCleanup = "force_cleanup", Quarantine = "quarantine", Restore = "restore",
    }
    Discovered on Approve => Approved;
    Approved on Withdraw => Discovered;
    Available on Withdraw => Discovered;
    Approved on Validate => Available;
    Available on Reserve => Reserved;
    Reserved on Free => Available;
    Reserved on Occupy => InUse;
    InUse on Clean => Cleaning;
    Cleaning on Cleaned => Available;
    Cleaning on CleaningFailed => CleanupBlocked;
    CleanupBlocked on Retry => Cleaning;
    CleanupBlocked on ForceCleanup => Available;
    Approved on Quarantine => Quarantined;
    Available on Quarantine => Quarantined;
    Cleaning on Quarantine => Quarantined;
    CleanupBlocked on Quarantine => Quarantined;
    Quarantined on Restore => Approved;
}
