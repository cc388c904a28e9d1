//! How an organization stands, and what follows from a change.

lifecycle::lifecycle! {
    /// Any state can follow any other: a posting may be small or large.
    BalanceLifecycle = "balance", initial Healthy;
    states BalanceState {
        Healthy = "healthy", LowBalance = "low_balance", AutoReleasePending = "auto_release_pending", Depleted = "depleted",
    }
    events BalanceEvent {
        Recover = "recover", FallLow = "fall_low", NearEnd = "near_end", Deplete = "deplete",
    }
    Healthy on FallLow => LowBalance;
    Healthy on NearEnd => AutoReleasePending;
    Healthy on Deplete => Depleted;
    LowBalance on Recover => Healthy;
    LowBalance on NearEnd => AutoReleasePending;
    LowBalance on Deplete => Depleted;
    AutoReleasePending on Recover => Healthy;
    AutoReleasePending on FallLow => LowBalance;
    AutoReleasePending on Deplete => Depleted;
    Depleted on Recover => Healthy;
    Depleted on FallLow => LowBalance;
    Depleted on NearEnd => AutoReleasePending;
}
