//! A node and its states.

lifecycle::lifecycle! {
    /// Offline only says that nobody has heard of the node: it stops new placement and nothing else.
    NodeLifecycle = "node", initial BootstrapIssued;
    states NodeState {
        BootstrapIssued = "bootstrap_issued", Enrolling = "enrolling", Active = "active", Offline = "offline",
        Quarantined = "quarantined", Draining = "draining", Retired = "retired", Removing = "removing",
        Deleted = "deleted",
    }
    events NodeEvent {
        Enroll = "enroll", Activate = "activate", LoseContact = "lose_contact", RegainContact = "regain_contact",
        Quarantine = "quarantine", Release = "release", Drain = "drain", Undrain = "undrain", Retire = "retire",
        Remove = "remove", Delete = "delete",
    }
    BootstrapIssued on Enroll => Enrolling;
    BootstrapIssued on Remove => Removing;
    Enrolling on Activate => Active;
    Enrolling on Quarantine => Quarantined;
    Enrolling on Remove => Removing;
    Active on LoseContact => Offline;
    Offline on RegainContact => Active;
    Active on Quarantine => Quarantined;
    Offline on Quarantine => Quarantined;
    Quarantined on Release => Active;
    Quarantined on Drain => Draining;
    Active on Drain => Draining;
    Offline on Drain => Draining;
    Draining on Undrain => Active;
    Draining on Retire => Retired;
    Retired on Remove => Removing;
    Removing on Delete => Deleted;
}
