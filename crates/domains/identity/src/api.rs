//! What other domains and the composition root may use.

pub use crate::{
    AuthInfo, Identity, endpoints,
    issuer::sign_ins_end,
    jobs::run as run_jobs,
    model::{
        events,
        invitation::OpenInvitation,
        invitation_link::InvitationLinks,
        policy::{PolicyExplanation, PolicyScope},
        role::{MemberRole, PlatformRole},
    },
    service::policy_cache::{Policies, Where},
    store::{
        invitations::invitation_open, orgs::get as org_find, recipients,
        ssh_keys::of_members as ssh_keys_of_members,
    },
};
