//! PostgreSQL as this product uses it: the built-in server, the pools, and the only two ways to tenant
//! data, [`ReadTx`] and [`WriteTx`].
//!
//! **Scope.** A connection always carries the tenant (`app.org_id`) and principal it works for; row-level
//! security does the rest. Requests run as the database role `gpuaas_app`; platform-wide work and jobs as
//! `gpuaas_system`. Neither can insert, change or remove audit rows, nor insert outbox rows or idempotency
//! records, except through `migrations/functions/platform`; the system role marks outbox rows as delivered
//! and removes old ones.
//!
//! **Writing.** A [`WriteTx`] needs a [`Permit`] (proof of authorization, or a stated system reason) and an
//! audit action. Its `commit` writes the audit row, the outbox rows, the idempotency record and the cache
//! invalidations in the same transaction as the effect, in one round trip; there is no other commit.
//! Dropping it rolls back. Connections are read-only outside of it (`default_transaction_read_only`), so a
//! [`ReadTx`] cannot write; the machinery's unaudited bookkeeping goes through [`Db::upkeep`].
//!
//! **Reading.** A [`ReadTx`] is a connection checked out for a scope. Reads are single statements in READ
//! COMMITTED, for which a transaction block would only add round trips; the tenant is a session setting
//! that is set before the first statement whenever it differs from what the connection had.

pub mod builtin;

mod audit_entry;
mod cas;
mod connect;
mod db;
mod error;
mod installation;
mod listen;
mod migrate;
mod object_storage;
mod permit;
mod pool;
mod read;
mod record;
mod schema_code;
mod upkeep;
mod write;

pub use audit_entry::{Refusal, refusal_windows_close, refuse};
pub use cas::Swap;
pub use connect::{Connect, Roles};
pub use db::Db;
pub use error::{Error, constraint_violated, is_restoring, is_transient};
pub use installation::{
    Advance, INSTALLATION_CHANGED, Installation, Mode, Noticed, Outside, Restored, installation_advance,
    installation_compared, installation_get, installation_lock, installation_restore_begin,
    installation_resume,
};
pub use lifecycle::named_columns;
pub use listen::{Notice, Wake, Watch};
pub use migrate::{MIGRATOR, MigrateError, bootstrap, create_database, migrate};
pub use object_storage::object_storage_settle;
pub use permit::{Actor, ActorKind, Origin, Permit, Scope};
pub use read::{ReadTx, Upkeep};
pub use record::{changed, created, found, removed};
pub use schema_code::{CodeFile, SCHEMA_CODE, SchemaCode, SchemaCodeError, schema_code_apply};
pub use upkeep::{idempotency_find, idempotency_forget};
pub use write::{Begin, Committed, IdempotentRequest, StoredResponse, WriteTx};

/// Queries go through this connection type.
pub type Connection = sqlx::PgConnection;
