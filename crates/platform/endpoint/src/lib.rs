//! Endpoints as data. A declaration says method, path, scope, permission, audit action, rate lane,
//! idempotency and types; routing, authentication, authorization, rate limiting, idempotency, audit,
//! metrics and the OpenAPI document all come from it.
//!
//! **Order of work for a request** (`pipeline`): correlation id → authentication → rate lane → scope and
//! permission → idempotency header → body → transaction → handler → commit with audit, outbox and stored
//! response. A handler therefore receives an already authorized scope, inside an open transaction that it
//! cannot commit: it returns a value, and status and body follow from the value's type.
//!
//! **What cannot be forgotten.** A mutating endpoint has no `handle` method until it was given a permission
//! and an audit action:
//!
//! ```compile_fail
//! # use endpoint::*;
//! # async fn create(_: (), _: Write, _: In<Empty, Empty, ()>) -> Result<NoContent, kernel::Failure> { Ok(NoContent) }
//! let e = post("/api/v1/things", "thing_create", "Create a thing").in_scope(ScopeKind::Person).handle((), create);
//! ```
//! ```compile_fail
//! # use endpoint::*;
//! # async fn create(_: (), _: Write, _: In<Empty, Empty, ()>) -> Result<NoContent, kernel::Failure> { Ok(NoContent) }
//! let e = post("/api/v1/things", "thing_create", "Create a thing").in_scope(ScopeKind::Person)
//!     .needs(kernel::Permission::SelfUpdate).handle((), create);
//! ```
//! ```
//! # use endpoint::*;
//! # async fn create(_: (), _: Write, _: In<Empty, Empty, ()>) -> Result<NoContent, kernel::Failure> { Ok(NoContent) }
//! let e = post("/api/v1/things", "thing_create", "Create a thing").in_scope(ScopeKind::Person)
//!     .needs(kernel::Permission::SelfUpdate).audited("thing.create").handle((), create);
//! assert_eq!(e.declaration().audit, Some("thing.create"));
//! ```

mod answers;
mod authorize;
mod caller;
mod declare;
mod follow;
mod given;
mod handler;
mod input;
mod missing_role;
pub mod openapi;
mod path;
mod pipeline;
mod query;
mod rate;
mod reauthorize;
mod reply;
mod request;
mod respond;
mod router;

pub use authorize::Access;
pub use caller::{
    Authenticator, Caller, ClientInfo, Directory, Grants, OrgFacts, OrgGrant, PolicySource, ProjectFacts,
    Services, SignIn,
};
pub use declare::{Declaration, Endpoint, Idempotency, Lane, ScopeKind, delete, get, patch, post, put};
pub use follow::{SourceState, StreamGuard, StreamSource, Streams, follow};
pub use given::Given;
pub use handler::Write;
pub use input::{Empty, In, Json};
pub use path::{OrgPath, ProjectPath, UserPath};
pub use pipeline::Limits;
pub use query::{Flag, Moment, WaitQuery, Whole, wait_parse};
pub use rate::{Lanes, address_holder};
pub use reauthorize::Stopping;
pub use reply::{Accepted, Created, Csv, Html, Ndjson, NoContent, Pdf, Reply, Sse, SseFrame};
pub use request::is_length_limit;
pub use respond::{problem_response, publish};
pub use router::{refuse_repeated_headers, router};
