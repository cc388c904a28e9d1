//! Organizations.

use chrono::{DateTime, Utc};
use kernel::{Code, Problem, ids::OrgId};
use schemars::JsonSchema;
use serde::Serialize;

use super::role::MemberRole;

lifecycle::named_enum! {
    OrgKind = "organization kind" {
        /// Made at a person's first sign-in; it stays theirs alone.
        Personal = "personal",
        Enterprise = "enterprise",
    }
}

lifecycle::named_enum! {
    OrgState = "organization state" {
        Active = "active",
        /// It can be read, not changed.
        Suspended = "suspended",
    }
}

impl OrgKind {
    /// Other people join enterprise organizations only.
    pub fn takes_members(self) -> Result<(), Problem> {
        match self {
            Self::Enterprise => Ok(()),
            Self::Personal => {
                Err(Problem::new(Code::Unprocessable, "A personal organization has exactly one member.")
                    .suggest("Ask a platform administrator for an enterprise organization."))
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Org {
    pub id: OrgId,
    pub name: String,
    pub slug: String,
    pub kind: OrgKind,
    pub state: OrgState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspended_at: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspended_reason: Option<String>,
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// An organization with the people to ask for access.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OrgDetails {
    #[serde(flatten)]
    pub org: Org,
    /// Owners and administrators, who can add you to projects and change roles; the first ten.
    pub contacts: Vec<OrgContact>,
}

/// Somebody who can give access to an organization and its projects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OrgContact {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    pub role: MemberRole,
}

impl Org {
    /// Suspending and resuming each work once.
    pub fn check_suspension(&self, suspend: bool) -> Result<(), Problem> {
        if self.suspended_at.is_some() != suspend {
            return Ok(());
        }
        let text = if suspend {
            "The organization is already suspended."
        } else {
            "The organization is not suspended."
        };
        Err(Problem::new(Code::InvalidTransition, text).detail("state", self.state.name()))
    }
}

/// An organization as one of its members sees it in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OrgMembership {
    pub id: OrgId,
    pub name: String,
    pub slug: String,
    pub kind: OrgKind,
    pub state: OrgState,
    /// What you are there.
    pub role: MemberRole,
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}
