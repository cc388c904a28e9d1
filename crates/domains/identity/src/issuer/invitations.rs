//! Invitations as the issuer meets them: somebody shows the inviter's token, or opened one of the links.

use kernel::{Code, Failure, Secret, digest::sha256};
use pg::Origin;
use subtle::ConstantTimeEq as _;

use super::{
    Issuer,
    accounts::NOT_INVITED,
    sessions::{Browser, by_themselves},
    store::accounts as store,
};
use crate::{
    model::{
        invitation::{AcceptedWith, OpenInvitation, SentInvitation},
        invitation_link::{LinkSecret, OpenedLink},
    },
    service::invitations::{invitation_accept, invitation_find_open, invitation_find_sent},
};

/// What the page of an invitation says to somebody who may not join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotJoined {
    /// Signed in with another address than the invited one.
    OtherAccount,
    Refused(&'static str),
}

impl Issuer {
    /// The open invitation that a token is for.
    pub(crate) async fn invitation_by_token(
        &self,
        token: &Secret,
    ) -> Result<Option<OpenInvitation>, Failure> {
        let mut quiet = self.quietly().await?;
        let found = store::invitation_of_token(quiet.conn(), &sha256(token.expose())).await?;
        let Some(id) = found else { return Ok(None) };
        invitation_find_open(quiet.conn(), id.into(), self.now()).await
    }

    /// The invitation that a link is for, whatever became of it. Nothing when the secret is not of it.
    pub(crate) async fn invitation_by_link(
        &self,
        link: &OpenedLink,
    ) -> Result<Option<SentInvitation>, Failure> {
        let mut quiet = self.quietly().await?;
        let sent = invitation_find_sent(quiet.conn(), link.invitation_id).await?;
        Ok(sent.filter(|sent| match &link.secret {
            LinkSecret::Proof(proof) => {
                self.0.links.proves(sent.invitation.id, &sent.invitation.email, proof.expose())
            }
            LinkSecret::Token(token) => sent.token_hash[..].ct_eq(&sha256(token.expose())[..]).into(),
        }))
    }

    /// Whether the invited address has an account here.
    pub(crate) async fn has_account(&self, email: &str) -> Result<bool, Failure> {
        Ok(store::find_by_email(self.quietly().await?.conn(), email).await?.is_some())
    }

    /// Whoever is signed in joins by a link. The mailed one proves the address of their account.
    pub(crate) async fn invitation_join(
        &self,
        link: &OpenedLink,
        invitation: &OpenInvitation,
        browser: &Browser,
        origin: &Origin,
    ) -> Result<Result<(), NotJoined>, Failure> {
        let account = &browser.account;
        if !account.email.eq_ignore_ascii_case(&invitation.email) {
            return Ok(Err(NotJoined::OtherAccount));
        }
        let user = self.user_of(account, origin).await?;
        let (org, id) = (invitation.org_id, invitation.id);
        let mut tx = self.0.db.write(by_themselves(user, origin.clone()), "invitation.accept").await?;
        tx.audit_in_org(org);
        let (_, secret) = link.secret.parameter();
        match invitation_accept(&mut tx, &self.0.links, (org, id), AcceptedWith::Secret(secret), user).await {
            Ok(_) => {}
            Err(Failure::Problem(problem)) => {
                tx.roll_back().await;
                return Ok(Err(NotJoined::Refused(not_accepted(&problem))));
            }
            Err(internal) => return Err(internal),
        }
        if link.secret.proves_address() {
            store::set_email_verified(tx.conn(), account.id, self.now()).await?;
        }
        tx.commit(None).await?;
        Ok(Ok(()))
    }
}

/// A refused acceptance, for somebody who showed the right secret.
pub(crate) fn not_accepted(problem: &kernel::Problem) -> &'static str {
    let reason = problem.details.get("reason").and_then(|reason| reason.as_str());
    match (problem.code, reason) {
        (Code::TenantSuspended, _) => {
            "The organization is suspended: nobody joins it now. Ask an owner or administrator of the organization."
        }
        (Code::AlreadyExists, _) => "You are already a member of the organization.",
        (_, Some("inviter_lost_role")) => {
            "Whoever sent the invitation may not give this role any more. Ask an owner or administrator of the \
             organization for a new invitation."
        }
        _ => NOT_INVITED,
    }
}
