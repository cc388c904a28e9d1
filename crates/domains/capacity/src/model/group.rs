//! Allocations that are made together, all or none.

use chrono::{DateTime, Utc};
use kernel::{
    ids::{GroupId, ProjectId},
    principal::PrincipalId,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    allocation::{AllocationState, AllocationView},
    launch_warning::LaunchWarning,
};

/// So many allocations can be made at once.
pub const MOST_MEMBERS: u32 = 64;

/// Where a group stands; it follows from its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum GroupState {
    Requested,
    Provisioning,
    Active,
    /// Some members go on while others end or have ended.
    Degraded,
    Releasing,
    Released,
    /// It is over, and a member was never active.
    Failed,
}

impl GroupState {
    pub fn from_members(members: &[AllocationState]) -> Self {
        use AllocationState as S;
        let any = |states: &[S]| members.iter().any(|state| states.contains(state));
        let launching = any(&[S::Requested, S::Provisioning]);
        let ending = any(&[S::Releasing, S::ReleaseFailed]);
        let over = any(&[S::Released, S::Failed]);
        let onward = launching || any(&[S::Active]);
        match (onward, ending) {
            (true, _) if ending || over => Self::Degraded,
            (true, _) if !launching => Self::Active,
            (true, _) if any(&[S::Provisioning, S::Active]) => Self::Provisioning,
            (true, _) => Self::Requested,
            (false, true) => Self::Releasing,
            (false, false) if any(&[S::Failed]) => Self::Failed,
            (false, false) => Self::Released,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "AllocationGroup")]
pub struct Group {
    pub id: GroupId,
    pub project_id: ProjectId,
    pub name: String,
    /// How many allocations it was made of.
    pub members: i32,
    pub state: GroupState,
    pub created_by: PrincipalId,
    pub created_at: DateTime<Utc>,
}

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "AllocationGroupDetail")]
pub struct GroupDetail {
    #[serde(flatten)]
    pub group: Group,
    pub allocations: Vec<AllocationView>,
    /// What whoever launches it should know; in the answer to the launch only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<LaunchWarning>,
}

#[cfg(test)]
mod tests {
    use super::{AllocationState as S, GroupState as G};

    const ALL: [S; 7] =
        [S::Requested, S::Provisioning, S::Active, S::Releasing, S::Released, S::ReleaseFailed, S::Failed];

    #[test]
    fn members_that_agree_say_where_the_group_stands() {
        for (state, group) in [
            (S::Requested, G::Requested),
            (S::Provisioning, G::Provisioning),
            (S::Active, G::Active),
            (S::Releasing, G::Releasing),
            (S::ReleaseFailed, G::Releasing),
            (S::Released, G::Released),
            (S::Failed, G::Failed),
        ] {
            assert_eq!(G::from_members(&[state]), group);
            assert_eq!(G::from_members(&[state; 3]), group);
        }
    }

    #[test]
    fn a_group_is_active_only_when_every_member_is_and_over_only_when_every_member_is() {
        for a in ALL {
            for b in ALL {
                for c in ALL {
                    let (members, state) = ([a, b, c], G::from_members(&[a, b, c]));
                    assert_eq!(state == G::Active, members.iter().all(|m| *m == S::Active), "{members:?}");
                    let over = matches!(state, G::Released | G::Failed);
                    assert_eq!(over, members.iter().all(|m| m.is_over()), "{members:?}");
                    assert_eq!(state, G::from_members(&[c, a, b]), "the order does not matter");
                }
            }
        }
    }

    #[test]
    fn members_that_go_different_ways_degrade_the_group() {
        assert_eq!(G::from_members(&[S::Active, S::Provisioning]), G::Provisioning);
        assert_eq!(G::from_members(&[S::Requested, S::Active]), G::Provisioning);
        assert_eq!(G::from_members(&[S::Requested, S::Provisioning]), G::Provisioning);
        assert_eq!(G::from_members(&[S::Active, S::Failed]), G::Degraded);
        assert_eq!(G::from_members(&[S::Active, S::Releasing]), G::Degraded);
        assert_eq!(G::from_members(&[S::Failed, S::Releasing]), G::Releasing);
        assert_eq!(G::from_members(&[S::Failed, S::Released]), G::Failed);
    }
}
