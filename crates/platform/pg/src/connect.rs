//! How each database role connects.

use std::{path::Path, str::FromStr};

use sqlx::postgres::{PgConnectOptions, PgSslMode};

/// The three service roles and the bootstrap administrator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Roles {
    /// Creates the other roles, once.
    Admin,
    Owner,
    App,
    System,
}

impl Roles {
    pub const fn database_name(self) -> Option<&'static str> {
        match self {
            Self::Admin => None,
            Self::Owner => Some("gpuaas_owner"),
            Self::App => Some("gpuaas_app"),
            Self::System => Some("gpuaas_system"),
        }
    }
}

/// Where the database is.
#[derive(Clone)]
pub struct Connect {
    base: PgConnectOptions,
    /// The built-in server lets each role log in by itself (its socket is private). An external server is
    /// given one login that may take the three roles; the role is then a start-up option of the
    /// connection, which `RESET ROLE` returns to.
    login_per_role: bool,
}

impl Connect {
    pub fn builtin(socket_dir: &Path, port: u16, admin: &str, database: &str) -> Self {
        let base = PgConnectOptions::new_without_pgpass()
            .socket(socket_dir)
            .port(port)
            .username(admin)
            .database(database)
            .ssl_mode(PgSslMode::Disable);
        Self { base, login_per_role: true }
    }

    pub fn external(url: &str) -> Result<Self, sqlx::Error> {
        Ok(Self { base: PgConnectOptions::from_str(url)?, login_per_role: false })
    }

    pub fn database(mut self, name: &str) -> Self {
        self.base = self.base.database(name);
        self
    }

    pub const fn roles_may_log_in(&self) -> bool {
        self.login_per_role
    }

    pub fn options(&self, role: Roles) -> PgConnectOptions {
        let options = self.base.clone().application_name("gpuaas");
        let Some(name) = role.database_name() else { return options };
        let options =
            if self.login_per_role { options.username(name) } else { options.options([("role", name)]) };
        match role {
            // A request waits for a lock at most this long, and no statement or open transaction is unbounded.
            // Nothing is written but in a write transaction or by declared upkeep: both say so explicitly.
            Roles::App => options.options([
                ("default_transaction_read_only", "on"),
                ("lock_timeout", "5s"),
                ("statement_timeout", "20s"),
                ("idle_in_transaction_session_timeout", "30s"),
            ]),
            Roles::System => options.options([
                ("default_transaction_read_only", "on"),
                ("lock_timeout", "10s"),
                ("statement_timeout", "60s"),
                ("idle_in_transaction_session_timeout", "60s"),
            ]),
            Roles::Admin | Roles::Owner => options,
        }
    }
}
