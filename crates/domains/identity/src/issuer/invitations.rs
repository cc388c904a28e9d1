//! Invitations as the issuer meets them: somebody shows the inviter's token, or opened the mailed link.

use kernel::{Code, Failure, Secret, digest::sha256};
use pg::Origin;

use super::{
    Issuer,
    accounts::NOT_INVITED,
    sessions::{Browser, by_themselves},
    store::accounts as store,
};
use crate::{
    model::{invitation::OpenInvitation, invitation_link::MailedLink},
    service::invitations::{invitation_accept, invitation_find_open},
};

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

    /// The open invitation that a mailed link is for. Nothing when the proof is not of its mail.
    pub(crate) async fn invitation_by_link(
        &self,
        link: &MailedLink,
    ) -> Result<Option<OpenInvitation>, Failure> {
        let mut quiet = self.quietly().await?;
        let open = invitation_find_open(quiet.conn(), link.invitation_id, self.now()).await?;
        Ok(open.filter(|open| self.0.links.proves(open.id, &open.email, link.proof.expose())))
    }

    /// Whoever is signed in joins by the mailed link. That proves the address of their account when it is the invited one.
    pub(crate) async fn invitation_join(
        &self,
        link: &MailedLink,
        browser: &Browser,
        origin: &Origin,
    ) -> Result<Result<OpenInvitation, &'static str>, Failure> {
        let Some(open) = self.invitation_by_link(link).await? else { return Ok(Err(NOT_INVITED)) };
        let (account, links) = (&browser.account, &self.0.links);
        let user = self.user_of(account, origin).await?;
        let mut tx = self.0.db.write(by_themselves(user, origin.clone()), "invitation.accept").await?;
        tx.audit_in_org(open.org_id);
        match invitation_accept(&mut tx, links, open.org_id, open.id, &link.proof, user).await {
            Ok(_) => {}
            Err(Failure::Problem(problem)) => {
                tx.roll_back().await;
                let is_member = problem.code == Code::AlreadyExists;
                let member = "You are already a member of the organization.";
                return Ok(Err(if is_member { member } else { NOT_INVITED }));
            }
            Err(internal) => return Err(internal),
        }
        if account.email.eq_ignore_ascii_case(&open.email) {
            store::set_email_verified(tx.conn(), account.id, self.now()).await?;
        }
        tx.commit(None).await?;
        Ok(Ok(open))
    }
}
