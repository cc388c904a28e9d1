//! What other domains and the composition root may use.

pub use crate::{
    AuthInfo, Identity, endpoints,
    jobs::run as run_jobs,
    model::{
        events,
        policy::{PolicyExplanation, PolicyScope},
        role::{MemberRole, PlatformRole},
    },
    service::policy_cache::{Policies, Where},
    store::{orgs::get as org_find, recipients, ssh_keys::of_members as ssh_keys_of_members},
};
