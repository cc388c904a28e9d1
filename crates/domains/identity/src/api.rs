//! What other domains and the composition root may use.

pub use crate::{
    AuthInfo, Identity, endpoints,
    issuer::sign_ins_end,
    jobs::run as run_jobs,
    model::{
        invitation::{InvitedProject, OpenInvitation},
        invitation_link::InvitationLinks,
        person::Recipient,
        policy::{PolicyExplanation, PolicyScope},
        role::{MemberRole, PlatformRole},
        service_account::ServiceAccountRole,
        ssh_key::check as ssh_key_check,
    },
    service::{
        invitations::invitation_find_open,
        orgs::org_find,
        owner_labels::{OwnedBy, owner_labels},
        policy_cache::{Policies, Where},
        recipients::{member_recipient, org_recipients, permission_recipients, platform_recipients},
        resource_names::{org_names, project_names},
        service_accounts::service_account_check,
        ssh_keys::member_ssh_keys,
    },
};
