//! Who calls an endpoint, in tests that are not about signing in.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use endpoint::{
    Authenticator, Caller, ClientInfo, Directory, Grants, OrgFacts, OrgGrant, PolicySource, ProjectFacts,
    Services, SignIn,
};
use kernel::{
    Failure, Role, Secret,
    ids::{InvitationId, OrgId, ProjectId, ServiceAccountId, ServiceAccountKeyId, SessionId, UserId},
    policy::{IntegerKey, PolicyKey as _, Setting},
};
use uuid::Uuid;

/// The authenticator and the directory of endpoints under test: a token is the id of a user or any name, and its owner
/// may do what was granted here. The owner of an unknown token is somebody without any right.
#[derive(Clone, Default)]
pub struct Callers(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    grants: HashMap<String, Arc<Grants>>,
    service_accounts: HashMap<String, Caller>,
    projects: HashMap<ProjectId, OrgId>,
}

impl Callers {
    /// The tokens `ops`, `admin` and `auditor` with their roles on the platform.
    pub fn operators() -> Self {
        let callers = Self::default();
        for (token, role) in
            [("ops", Role::PlatformOps), ("admin", Role::PlatformAdmin), ("auditor", Role::PlatformAuditor)]
        {
            callers.platform_role(token, role);
        }
        callers
    }

    fn change(&self, token: impl ToString, change: impl FnOnce(&mut Grants)) {
        let mut known = self.0.lock().unwrap();
        change(Arc::make_mut(known.grants.entry(token.to_string()).or_default()));
    }

    pub fn platform_role(&self, token: impl ToString, role: Role) {
        self.change(token, |grants| grants.platform.push(role));
    }

    /// In place of the role that the token's owner had there.
    pub fn org_role(&self, token: impl ToString, org: OrgId, role: Role) {
        self.change(token, |grants| {
            grants.orgs.insert(org, OrgGrant { role, suspended: false });
        });
    }

    pub fn project_role(&self, token: impl ToString, project: ProjectId, role: Role) {
        self.change(token, |grants| {
            grants.projects.insert(project, role);
        });
    }

    pub fn service_account(&self, token: &str, org: OrgId, project: ProjectId) {
        let caller = Caller::ServiceAccount {
            id: ServiceAccountId::from(Uuid::from_u128(3)),
            org,
            project,
            role: Role::ServiceAccount,
            key: ServiceAccountKeyId::from(Uuid::from_u128(4)),
            token_expires_at: std::time::SystemTime::UNIX_EPOCH.into(),
        };
        self.0.lock().unwrap().service_accounts.insert(token.to_owned(), caller);
    }

    /// Only projects that were added are found.
    pub fn project(&self, org: OrgId, project: ProjectId) {
        self.0.lock().unwrap().projects.insert(project, org);
    }

    /// What endpoints are wired to, with these callers.
    pub fn services(&self, db: &pg::Db, policies: impl PolicySource + 'static) -> Services {
        let sealer = trust::Sealer::for_purpose(&Secret::new([7; 32]), b"stored responses");
        Services {
            db: db.clone(),
            authenticator: Arc::new(self.clone()),
            directory: Arc::new(self.clone()),
            policies: Arc::new(policies),
            answers: Arc::new(sealer.unwrap()),
        }
    }
}

#[async_trait]
impl Authenticator for Callers {
    async fn authenticate(&self, bearer: &str, _: &ClientInfo) -> Result<Caller, Failure> {
        let known = self.0.lock().unwrap();
        if let Some(caller) = known.service_accounts.get(bearer) {
            return Ok(caller.clone());
        }
        Ok(Caller::User {
            id: bearer.parse().unwrap_or_else(|_| UserId::from(Uuid::from_u128(1))),
            session: SessionId::from(Uuid::from_u128(2)),
            grants: known.grants.get(bearer).cloned().unwrap_or_default(),
        })
    }

    /// Nobody here has a session to look up.
    async fn signed_in(&self, _: SignIn) -> Result<Caller, Failure> {
        Err(kernel::Problem::from_code(kernel::Code::TokenRevoked).into())
    }
}

#[async_trait]
impl Directory for Callers {
    async fn org(&self, _: OrgId) -> Result<Option<OrgFacts>, Failure> {
        Ok(Some(OrgFacts { suspended: false }))
    }

    async fn project(&self, id: ProjectId) -> Result<Option<ProjectFacts>, Failure> {
        let org = self.0.lock().unwrap().projects.get(&id).copied();
        Ok(org.map(|org| ProjectFacts { org, suspended: false }))
    }

    async fn invitation(&self, _: InvitationId) -> Result<Option<OrgId>, Failure> {
        Ok(None)
    }
}

/// Policies that nobody changed, without identity, which keeps those that somebody did.
pub struct DefaultPolicies;

#[async_trait]
impl PolicySource for DefaultPolicies {
    async fn setting(
        &self,
        key: IntegerKey,
        _: Option<OrgId>,
        _: Option<UserId>,
    ) -> Result<Setting, Failure> {
        Ok(key.default_setting())
    }
}
