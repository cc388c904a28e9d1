//! The roles of the one program.

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The public API and the built-in OpenID issuer.
    Api,
    /// Carries events from the outbox to the bus, runs the platform's own consumers and periodic jobs.
    OutboxRelay,
    /// The node listener: enrolment, work, reports. It checks signatures and cannot make any.
    NodeGateway,
    /// Terminals: from clients on the public listener to tunnels of nodes, which dial the node listener of this process. It
    /// carries signed grants and cannot make any.
    TerminalGateway,
    /// Takes in what agents say, on the node listener.
    NodeLogGateway,
    /// Runs the workflows of allocations, follows the fleet, and queues the work that comes of both.
    ProvisioningWorker,
    /// Turns what was used into what is owed, and proves it.
    BillingWorker,
    /// Takes in what the payment provider says, and acts on it.
    WebhookWorker,
    /// Tells people, by mail and webhook.
    NotificationRelay,
}

impl Role {
    pub const ALL: &'static [Role] = &[
        Role::Api,
        Role::OutboxRelay,
        Role::NodeGateway,
        Role::NodeLogGateway,
        Role::TerminalGateway,
        Role::ProvisioningWorker,
        Role::BillingWorker,
        Role::WebhookWorker,
        Role::NotificationRelay,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::OutboxRelay => "outbox-relay",
            Self::NodeGateway => "node-gateway",
            Self::NodeLogGateway => "node-log-gateway",
            Self::TerminalGateway => "terminal-gateway",
            Self::ProvisioningWorker => "provisioning-worker",
            Self::BillingWorker => "billing-worker",
            Self::WebhookWorker => "webhook-worker",
            Self::NotificationRelay => "notification-relay",
        }
    }

    /// Whether it serves on the node listener.
    pub const fn serves_nodes(self) -> bool {
        matches!(self, Self::NodeGateway | Self::NodeLogGateway | Self::TerminalGateway)
    }

    /// Whether it serves on the public listener.
    pub const fn serves_public(self) -> bool {
        matches!(self, Self::Api | Self::WebhookWorker | Self::TerminalGateway)
    }

    /// Whether it needs the fleet's authority and signers.
    pub const fn trusts(self) -> bool {
        match self {
            Self::Api
            | Self::NodeGateway
            | Self::NodeLogGateway
            | Self::TerminalGateway
            | Self::ProvisioningWorker => true,
            Self::OutboxRelay | Self::BillingWorker | Self::WebhookWorker | Self::NotificationRelay => false,
        }
    }

    /// Whether it queues work for nodes, and so holds the keys that sign it.
    pub const fn signs(self) -> bool {
        matches!(self, Self::Api | Self::ProvisioningWorker)
    }
}
