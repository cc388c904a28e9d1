//! The roles of the one program.

/// What a process does. The other roles of the product come with their domains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The public API and the built-in OpenID issuer.
    Api,
    /// Carries events from the outbox to the bus, runs the platform's own consumers and periodic jobs.
    OutboxRelay,
}

impl Role {
    pub const ALL: &'static [Role] = &[Role::Api, Role::OutboxRelay];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::OutboxRelay => "outbox-relay",
        }
    }
}
