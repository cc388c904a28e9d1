//! The declaration and its builder.

use std::{future::Future, marker::PhantomData, time::Duration};

use http::Method;
use kernel::{Code, Failure, Permission, policy};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::{
    handler::{Erased, Write, erase_public, erase_read, erase_write},
    input::{BodyInput, In},
    reply::{PlainReply, Reply},
};

/// Where an endpoint works, and so which path parameter names the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScopeKind {
    /// Open to everybody, no token.
    Public,
    /// The caller's own things.
    Person,
    /// `{org_id}`
    Org,
    /// `{project_id}`
    Project,
    /// `{invitation_id}`, before membership.
    Invitation,
    Platform,
}

impl ScopeKind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Person => "person",
            Self::Org => "org",
            Self::Project => "project",
            Self::Invitation => "invitation",
            Self::Platform => "platform",
        }
    }

    pub const fn parameter(self) -> Option<&'static str> {
        match self {
            Self::Org => Some("org_id"),
            Self::Project => Some("project_id"),
            Self::Invitation => Some("invitation_id"),
            Self::Public | Self::Person | Self::Platform => None,
        }
    }
}

/// Requests of one kind share a budget; its size is a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    Api,
    Financial,
    Admin,
    /// Terminals.
    Terminal,
    /// Every `ssh`, `scp` and `git` is a connection: many more than terminals.
    Ssh,
    /// WebSockets before their token is looked up, by network address.
    WebSocket,
}

impl Lane {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Financial => "financial",
            Self::Admin => "admin",
            Self::Terminal => "terminal",
            Self::Ssh => "ssh",
            Self::WebSocket => "websocket",
        }
    }

    pub const fn policy(self) -> policy::IntegerKey {
        match self {
            Self::Api => policy::keys::RATE_API,
            Self::Financial => policy::keys::RATE_FINANCIAL,
            Self::Admin => policy::keys::RATE_ADMIN,
            Self::Terminal => policy::keys::RATE_TERMINAL_TOKEN,
            Self::Ssh => policy::keys::RATE_SSH_TOKEN,
            Self::WebSocket => policy::keys::RATE_WEBSOCKET,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idempotency {
    /// Reads need none.
    None,
    Accepted,
    /// Where money or capacity moves.
    Required,
}

/// All there is to know about an endpoint.
#[derive(Clone, Debug)]
pub struct Declaration {
    pub method: Method,
    pub path: &'static str,
    pub id: &'static str,
    pub summary: &'static str,
    pub description: &'static str,
    pub scope: ScopeKind,
    pub permission: Option<Permission>,
    pub audit: Option<&'static str>,
    pub lane: Lane,
    pub idempotency: Idempotency,
    pub body_limit_bytes: usize,
    pub timeout: Duration,
    pub errors: &'static [Code],
    pub(crate) types: Types,
}

impl Declaration {
    /// The part of the path that names the resource: what documents group by.
    pub fn tag(&self) -> &'static str {
        let literal = |part: &&'static str| !part.is_empty() && !part.starts_with('{');
        let mut parts = self.path.trim_start_matches("/api/v1/").split('/').filter(literal);
        match (parts.next(), parts.next()) {
            (Some("orgs" | "projects" | "me" | "platform"), Some(second)) => second,
            (Some(first), _) => first,
            (None, _) => "api",
        }
    }
}

pub(crate) type SchemaFn = fn(&mut schemars::SchemaGenerator) -> schemars::Schema;

/// How the document learns the types of an endpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Types {
    pub path: SchemaFn,
    pub query: SchemaFn,
    pub body: Option<SchemaFn>,
    pub reply: Option<SchemaFn>,
    pub reply_status: u16,
    pub reply_content: &'static str,
}

/// A declaration with its handler. Made only by the builder.
pub struct Endpoint {
    pub(crate) declaration: Declaration,
    pub(crate) run: Erased,
}

impl Endpoint {
    pub fn declaration(&self) -> &Declaration {
        &self.declaration
    }
}

pub struct Reads;
pub struct Mutates;
pub struct Given;
pub struct Missing;

/// `M`: whether it mutates; `P`: permission given; `A`: audit action given.
pub struct Builder<M, P, A> {
    method: Method,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    description: &'static str,
    scope: ScopeKind,
    permission: Option<Permission>,
    audit: Option<&'static str>,
    lane: Option<Lane>,
    idempotency: Idempotency,
    body_limit_bytes: usize,
    errors: &'static [Code],
    state: PhantomData<(M, P, A)>,
}

const BODY_LIMIT_BYTES: usize = 64 * 1024;
const TIMEOUT: Duration = Duration::from_secs(30);

fn builder<M>(
    method: Method,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
) -> Builder<M, Missing, Missing> {
    let idempotency = if method == Method::GET { Idempotency::None } else { Idempotency::Accepted };
    Builder {
        method,
        path,
        id,
        summary,
        description: "",
        scope: ScopeKind::Platform,
        permission: None,
        audit: None,
        lane: None,
        idempotency,
        body_limit_bytes: BODY_LIMIT_BYTES,
        errors: &[],
        state: PhantomData,
    }
}

pub fn get(path: &'static str, id: &'static str, summary: &'static str) -> Builder<Reads, Missing, Missing> {
    builder(Method::GET, path, id, summary)
}
pub fn post(
    path: &'static str,
    id: &'static str,
    summary: &'static str,
) -> Builder<Mutates, Missing, Missing> {
    builder(Method::POST, path, id, summary)
}
pub fn put(
    path: &'static str,
    id: &'static str,
    summary: &'static str,
) -> Builder<Mutates, Missing, Missing> {
    builder(Method::PUT, path, id, summary)
}
pub fn patch(
    path: &'static str,
    id: &'static str,
    summary: &'static str,
) -> Builder<Mutates, Missing, Missing> {
    builder(Method::PATCH, path, id, summary)
}
pub fn delete(
    path: &'static str,
    id: &'static str,
    summary: &'static str,
) -> Builder<Mutates, Missing, Missing> {
    builder(Method::DELETE, path, id, summary)
}

impl<M, P, A> Builder<M, P, A> {
    fn become_<P2, A2>(self) -> Builder<M, P2, A2> {
        Builder {
            method: self.method,
            path: self.path,
            id: self.id,
            summary: self.summary,
            description: self.description,
            scope: self.scope,
            permission: self.permission,
            audit: self.audit,
            lane: self.lane,
            idempotency: self.idempotency,
            body_limit_bytes: self.body_limit_bytes,
            errors: self.errors,
            state: PhantomData,
        }
    }

    pub fn describe(mut self, text: &'static str) -> Self {
        self.description = text;
        self
    }

    pub fn in_scope(mut self, scope: ScopeKind) -> Self {
        self.scope = scope;
        self
    }

    /// The default is `Admin` for platform endpoints and `Api` for all others.
    pub fn lane(mut self, lane: Lane) -> Self {
        self.lane = Some(lane);
        self
    }

    /// Codes beyond those that any endpoint can answer with.
    pub fn errors(mut self, codes: &'static [Code]) -> Self {
        self.errors = codes;
        self
    }

    fn declaration(self, types: Types) -> Declaration {
        let lane =
            self.lane.unwrap_or(if self.scope == ScopeKind::Platform { Lane::Admin } else { Lane::Api });
        Declaration {
            method: self.method,
            path: self.path,
            id: self.id,
            summary: self.summary,
            description: self.description,
            scope: self.scope,
            permission: self.permission,
            audit: self.audit,
            lane,
            idempotency: self.idempotency,
            body_limit_bytes: self.body_limit_bytes,
            timeout: TIMEOUT,
            errors: self.errors,
            types,
        }
    }
}

fn types<P: JsonSchema, Q: JsonSchema, B: BodyInput, R: Reply>() -> Types {
    Types {
        path: |g| g.subschema_for::<P>(),
        query: |g| g.subschema_for::<Q>(),
        body: B::SCHEMA,
        reply: R::SCHEMA,
        reply_status: R::STATUS,
        reply_content: R::CONTENT,
    }
}

impl<M, A> Builder<M, Missing, A> {
    pub fn needs(mut self, permission: Permission) -> Builder<M, Given, A> {
        self.permission = Some(permission);
        self.become_()
    }
}

impl<P> Builder<Mutates, P, Missing> {
    pub fn audited(mut self, action: &'static str) -> Builder<Mutates, P, Given> {
        self.audit = Some(action);
        self.become_()
    }
}

impl<P, A> Builder<Mutates, P, A> {
    pub fn idempotency_required(mut self) -> Self {
        self.idempotency = Idempotency::Required;
        self
    }
}

impl Builder<Reads, Missing, Missing> {
    /// Open to everybody: no token, no tenant data (the handler gets no transaction).
    pub fn public<S, F, Fut, P, Q, R>(mut self, state: S, handler: F) -> Endpoint
    where
        S: Clone + Send + Sync + 'static,
        F: Fn(S, In<P, Q, ()>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Failure>> + Send + 'static,
        P: DeserializeOwned + JsonSchema + Send + 'static,
        Q: DeserializeOwned + JsonSchema + Send + 'static,
        R: Reply,
    {
        self.scope = ScopeKind::Public;
        let run = erase_public(state, handler);
        Endpoint { declaration: self.declaration(types::<P, Q, (), R>()), run }
    }
}

impl Builder<Reads, Given, Missing> {
    pub fn handle<S, F, Fut, P, Q, R>(self, state: S, handler: F) -> Endpoint
    where
        S: Clone + Send + Sync + 'static,
        F: Fn(S, ReadTx, In<P, Q, ()>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Failure>> + Send + 'static,
        P: DeserializeOwned + JsonSchema + Send + 'static,
        Q: DeserializeOwned + JsonSchema + Send + 'static,
        R: Reply,
    {
        let run = erase_read(state, handler);
        Endpoint { declaration: self.declaration(types::<P, Q, (), R>()), run }
    }
}

impl Builder<Mutates, Given, Given> {
    pub fn handle<S, F, Fut, P, Q, B, R>(self, state: S, handler: F) -> Endpoint
    where
        S: Clone + Send + Sync + 'static,
        F: Fn(S, Write, In<P, Q, B>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Failure>> + Send + 'static,
        P: DeserializeOwned + JsonSchema + Send + 'static,
        Q: DeserializeOwned + JsonSchema + Send + 'static,
        B: BodyInput,
        R: PlainReply,
    {
        let run = erase_write(state, handler);
        Endpoint { declaration: self.declaration(types::<P, Q, B, R>()), run }
    }
}
