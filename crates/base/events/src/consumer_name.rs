//! Who listens.

lifecycle::named_enum! {
    /// The durable consumers of the product. The names are kept in the database: a renamed consumer is a new one and gets
    /// only what comes from then on.
    ConsumerName = "consumer" {
        InvitationCloser = "identity-invitation-closer",
        Onboarding = "fleet-onboarding",
        Groups = "capacity-groups",
        Depletion = "capacity-depletion",
        Budgets = "capacity-budgets",
        SpendCaps = "capacity-spend-caps",
        Faults = "capacity-faults",
        Active = "capacity-active",
        AccessLost = "capacity-access-lost",
        NodeBack = "capacity-node-back",
        BillingNotices = "notify-billing",
        PaymentNotices = "notify-payments",
        ProvisioningNotices = "notify-provisioning",
        NodeNotices = "notify-nodes",
        InvitationMails = "notify-invitations",
    }
}
