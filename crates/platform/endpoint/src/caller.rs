//! Who calls, and the services that the pipeline asks about them. The `identity` domain implements these.

use std::{collections::HashMap, sync::Arc};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use kernel::{
    Failure, Role,
    ids::{InvitationId, OrgId, ProjectId, ServiceAccountId, ServiceAccountKeyId, SessionId, UserId},
    policy::{IntegerKey, Setting},
    principal::PrincipalId,
};
use pg::{Actor, ActorKind};

/// What is known of the connection a request came over.
#[derive(Clone, Debug, Default)]
pub struct ClientInfo {
    pub source_ip: Option<String>,
    pub user_agent: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrgGrant {
    pub role: Role,
    pub suspended: bool,
}

/// Everything that authorization is decided from: memberships and bindings, nothing else.
#[derive(Clone, Debug, Default)]
pub struct Grants {
    pub platform: Vec<Role>,
    pub orgs: HashMap<OrgId, OrgGrant>,
    pub projects: HashMap<ProjectId, Role>,
}

/// An authenticated principal.
#[derive(Clone, Debug)]
pub enum Caller {
    User {
        id: UserId,
        session: SessionId,
        grants: Arc<Grants>,
    },
    ServiceAccount {
        id: ServiceAccountId,
        org: OrgId,
        project: ProjectId,
        /// In its project.
        role: Role,
        /// The key that its token was given for.
        key: ServiceAccountKeyId,
        token_expires_at: DateTime<Utc>,
    },
}

/// What somebody signed in with: enough to look again whether it still counts, and no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignIn {
    User { session: SessionId },
    ServiceAccount { key: ServiceAccountKeyId },
}

impl Caller {
    pub fn sign_in(&self) -> SignIn {
        match self {
            Self::User { session, .. } => SignIn::User { session: *session },
            Self::ServiceAccount { key, .. } => SignIn::ServiceAccount { key: *key },
        }
    }

    pub fn id(&self) -> uuid::Uuid {
        match self {
            Self::User { id, .. } => id.uuid(),
            Self::ServiceAccount { id, .. } => id.uuid(),
        }
    }

    pub fn principal(&self) -> PrincipalId {
        match self {
            Self::User { id, .. } => PrincipalId::User(*id),
            Self::ServiceAccount { id, .. } => PrincipalId::ServiceAccount(*id),
        }
    }

    pub fn user(&self) -> Option<UserId> {
        match self {
            Self::User { id, .. } => Some(*id),
            Self::ServiceAccount { .. } => None,
        }
    }

    pub(crate) fn actor(&self, role: &'static str) -> Actor {
        let kind = match self {
            Self::User { .. } => ActorKind::User,
            Self::ServiceAccount { .. } => ActorKind::ServiceAccount,
        };
        Actor { kind, id: Some(self.id()), role }
    }
}

/// Turns a bearer token into a caller. Every failure is one of the 401 problems, or internal.
#[async_trait]
pub trait Authenticator: Send + Sync {
    async fn authenticate(&self, bearer: &str, client: &ClientInfo) -> Result<Caller, Failure>;
    /// Who signed in, with the roles of now, if the sign-in still counts.
    async fn signed_in(&self, sign_in: SignIn) -> Result<Caller, Failure>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrgFacts {
    pub suspended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProjectFacts {
    pub org: OrgId,
    pub suspended: bool,
}

/// Where things named in a path live. Answers may be up to five seconds old.
#[async_trait]
pub trait Directory: Send + Sync {
    async fn org(&self, id: OrgId) -> Result<Option<OrgFacts>, Failure>;
    async fn project(&self, id: ProjectId) -> Result<Option<ProjectFacts>, Failure>;
    /// The organization of a pending invitation.
    async fn invitation(&self, id: InvitationId) -> Result<Option<OrgId>, Failure>;
}

/// Resolves policy settings; cached, so that asking on every request is cheap.
#[async_trait]
pub trait PolicySource: Send + Sync {
    async fn setting(
        &self,
        key: IntegerKey,
        org: Option<OrgId>,
        user: Option<UserId>,
    ) -> Result<Setting, Failure>;
}

/// What the pipeline is wired to.
#[derive(Clone)]
pub struct Services {
    pub db: pg::Db,
    pub authenticator: Arc<dyn Authenticator>,
    pub directory: Arc<dyn Directory>,
    pub policies: Arc<dyn PolicySource>,
    /// Seals stored responses: some hold a secret that is shown once and kept nowhere else.
    pub answers: Arc<trust::Sealer>,
}
