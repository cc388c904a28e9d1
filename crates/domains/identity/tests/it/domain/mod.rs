//! Identity against a real Postgres: what only the database and the code together can show.

mod audit_trail;
mod lifecycles;
mod policies;
mod races;
mod refusal_repeats;
mod sensitive_changes;
mod service_account_keys;
mod tenancy;
mod world;
