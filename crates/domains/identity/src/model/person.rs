//! People: themselves, their sessions, and how the platform's operators see them.

use chrono::{DateTime, Utc};
use kernel::{
    Code, Problem,
    ids::{OrgId, ProjectId, ServiceAccountKeyId, SessionId, UserId},
    principal::{PrincipalId, PrincipalKind},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    org::OrgMembership,
    role::{MemberRole, PlatformRole},
};

/// A person's own record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct User {
    pub id: UserId,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ProjectRole {
    pub id: ProjectId,
    pub role: MemberRole,
}

/// Who is signed in, and what they may reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Me {
    #[serde(flatten)]
    pub user: User,
    /// The session behind the token.
    pub session_id: SessionId,
    pub platform_roles: Vec<PlatformRole>,
    /// The first 200; `GET /api/v1/orgs` lists all.
    pub orgs: Vec<OrgMembership>,
    /// Projects in which you hold a role of your own.
    pub projects: Vec<ProjectRole>,
}

/// Who the token of a request stands for: a user or a service account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct WhoAmI {
    pub kind: PrincipalKind,
    pub id: PrincipalId,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// Of a user, on the platform; of a service account, in its project.
    pub roles: Vec<String>,
    /// The organization of a service account.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub org_id: Option<OrgId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub org_name: Option<String>,
    /// The project of a service account.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ProjectId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project_name: Option<String>,
    /// The key that the token of a service account was given for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_id: Option<ServiceAccountKeyId>,
    /// When the token of a service account expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_expires_at: Option<DateTime<Utc>>,
}

/// Where somebody is signed in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Session {
    pub id: SessionId,
    /// The program that signed in, when it said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_ip: Option<String>,
    /// Whether this request came through it.
    pub current: bool,
    pub created_at: DateTime<Utc>,
    pub last_seen_at: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
}

/// A person as the platform's operators see them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PlatformUser {
    pub id: UserId,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    pub issuer: String,
    pub subject: String,
    pub platform_roles: Vec<PlatformRole>,
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// Somebody to notify, and where mail reaches them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipient {
    pub user_id: UserId,
    pub name: String,
    pub email: Option<String>,
}

/// May somebody's platform roles become `wanted`? `other_admins` counts the administrators besides them.
pub fn platform_roles_change(
    current: &[PlatformRole],
    wanted: &[PlatformRole],
    other_admins: i64,
) -> Result<(), Problem> {
    let loses =
        current.contains(&PlatformRole::PlatformAdmin) && !wanted.contains(&PlatformRole::PlatformAdmin);
    if loses && other_admins == 0 {
        return Err(Problem::new(
            Code::InvalidTransition,
            "The platform must have at least one administrator.",
        )
        .suggest("Grant another user the role platform_admin first."));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{PlatformRole::*, *};

    #[test]
    fn the_last_administrator_stays() {
        assert!(platform_roles_change(&[PlatformAdmin], &[], 0).is_err());
        assert!(platform_roles_change(&[PlatformAdmin], &[PlatformOps], 0).is_err());
        assert!(platform_roles_change(&[PlatformAdmin], &[PlatformOps], 1).is_ok());
        assert!(platform_roles_change(&[PlatformOps], &[], 0).is_ok());
        assert!(platform_roles_change(&[PlatformAdmin], &[PlatformAuditor, PlatformAdmin], 0).is_ok());
    }
}
