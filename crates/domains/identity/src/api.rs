//! What other domains and the composition root may use.

pub use crate::{
    AuthInfo, Identity, endpoints,
    issuer::sign_ins_end,
    jobs::run as run_jobs,
    model::{
        invitation::OpenInvitation,
        invitation_link::InvitationLinks,
        policy::{PolicyExplanation, PolicyScope},
        role::{MemberRole, PlatformRole},
    },
    service::{
        invitations::invitation_open,
        orgs::org_find,
        people::recipients,
        policy_cache::{Policies, Where},
        ssh_keys::ssh_keys_of_members,
    },
};
