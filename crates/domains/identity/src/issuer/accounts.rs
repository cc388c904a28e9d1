//! Local accounts: signing in and up, changing passwords, and what administrators do for others.

use kernel::{
    Code, Failure, Problem, Secret,
    ids::LocalAccountId,
    text::{Email, Name},
};
use pg::{Origin, Permit, WriteTx};

use super::{
    Issuer,
    guesses::GuessedBy,
    invitations::not_accepted,
    model::{self, Account},
    sessions::{Browser, by_themselves},
    store::{accounts as store, guesses},
};
use crate::{
    authn::{
        service::{is_without_admin, make_first_admin, provision, provision_or_find},
        store as people,
    },
    model::{
        events::AccountDisabled,
        invitation::{AcceptedWith, Standing},
        invitation_link::OpenedLink,
        role::PlatformRole,
        sensitive_change::check_reset_alone,
    },
    service::invitations::invitation_accept,
    store::people as platform,
};

/// Shown once, and to be changed at the first sign-in.
pub type OneTimePassword = Secret<String>;

#[derive(Clone, Debug)]
pub struct NewAccount {
    pub email: Email,
    pub name: Option<Name>,
}

#[derive(Clone, Debug)]
pub struct SignUp {
    pub by: SignUpBy,
    pub name: Option<Name>,
    pub password: Secret,
}

/// What lets somebody make an account. An invitation brings its own address.
#[derive(Clone, Debug)]
pub enum SignUpBy {
    /// Where anybody may.
    Address(Option<Email>),
    /// The token that the inviter was shown. It says nothing about the address.
    Token(Secret),
    /// A link to the invitation. The mailed one proves the address; the one with the token is as good as the token.
    Link(OpenedLink),
}

/// How a new account begins.
#[derive(Clone, Copy)]
struct Made {
    must_change_password: bool,
    email_verified: bool,
}

const BY_ADMINISTRATOR: Made = Made { must_change_password: true, email_verified: false };

/// One answer for an unknown address, a wrong password, a disabled account, and too many wrong passwords.
pub(crate) const WRONG: &str = "The e-mail address or the password is wrong, or there were too many failed attempts from your network address. In that case, wait some minutes or sign in from another network.";
pub(crate) const NOT_INVITED: &str =
    "The invitation is not valid: it was used, revoked, or has expired. Ask for a new invitation.";
pub(crate) const USE_THE_LINK: &str = "To create an account, open the link that was mailed to the invited address; the token alone does not prove that the address is yours. If you do not have the mail, ask for a new invitation.";

impl Issuer {
    /// Whether what was proved still holds: neither a new password nor an end of the account came between.
    /// The account is then locked until the transaction ends.
    async fn still_holds(&self, tx: &mut WriteTx, proved: &Account) -> Result<bool, Failure> {
        let now = store::lock(tx.conn(), proved.id).await?;
        Ok(now.is_some_and(|account| account.version == proved.version))
    }

    /// Signs a browser in; the answer is its cookie, or nothing when it is refused.
    pub(crate) async fn sign_in(
        &self,
        email: &str,
        password: Secret,
        origin: &Origin,
    ) -> Result<Option<Secret>, Failure> {
        let proved = self.prove(email, password, GuessedBy::Address, origin).await?;
        let Some(account) = proved else { return Ok(None) };
        let user = self.user_of(&account, origin).await?;
        let mut tx = self.0.db.write(by_themselves(user, origin.clone()), "auth.sign_in").await?;
        if !self.still_holds(&mut tx, &account).await? {
            tx.roll_back().await;
            return Ok(None);
        }
        let cookie = self.open_browser(&mut tx, account.id).await?;
        tx.record::<(), ()>("local_account", account.id, None, None)?;
        tx.commit(None).await?;
        Ok(Some(cookie))
    }

    /// Makes an account and signs the browser in; or says what stands in the way.
    pub(crate) async fn sign_up(
        &self,
        form: SignUp,
        origin: &Origin,
    ) -> Result<Result<Secret, &'static str>, Failure> {
        let mut email_verified = false;
        // The invitation with the secret that it is accepted by.
        let (email, invited) = match form.by {
            SignUpBy::Address(email) => (email.filter(|_| self.0.config.self_signup), None),
            SignUpBy::Token(token) => match self.invitation_by_token(&token).await? {
                Some(_) if self.0.links.is_mailed() => return Ok(Err(USE_THE_LINK)),
                found => (None, found.map(|invited| (invited, token))),
            },
            SignUpBy::Link(link) => {
                email_verified = link.secret.proves_address();
                if !email_verified && self.0.links.is_mailed() {
                    return Ok(Err(USE_THE_LINK));
                }
                let found = self.invitation_by_link(&link).await?;
                let open = found.filter(|sent| sent.standing(self.now()) == Standing::Open);
                (None, open.map(|sent| (sent.invitation, link.secret.parameter().1.clone())))
            }
        };
        let of_invitation =
            invited.as_ref().and_then(|(invited, _)| Email::parse(invited.email.clone()).ok());
        let Some(email) = email.or(of_invitation) else { return Ok(Err(NOT_INVITED)) };
        if let Err(text) = model::check_password(form.password.expose(), email.as_str()) {
            return Ok(Err(text));
        }
        let hash = self.0.passwords.hash(form.password).await?;
        let new = NewAccount { email, name: form.name };
        let mut tx = self.0.db.write(Permit::system("sign-up", origin.clone()), "auth.sign_up").await?;
        let made = Made { must_change_password: false, email_verified };
        let Some(account) = self.insert(&mut tx, &new, &hash, made).await? else {
            tx.roll_back().await;
            return Ok(Err("An account with this e-mail address already exists. Sign in instead."));
        };
        let user = provision(&mut tx, &account.identity(&self.0.config.public_url)).await?;
        if let (Some(user), Some((invited, secret))) = (user, &invited) {
            // The invitation is consumed with what it was for, or neither happens: it makes one account, once.
            let (at, with) = ((invited.org_id, invited.id), AcceptedWith::Secret(secret));
            match invitation_accept(&mut tx, &self.0.links, at, with, user).await {
                Ok(_) => tx.audit_in_org(invited.org_id),
                Err(Failure::Problem(problem)) => {
                    tx.roll_back().await;
                    return Ok(Err(not_accepted(&problem)));
                }
                Err(internal) => return Err(internal),
            }
        }
        let cookie = self.open_browser(&mut tx, account.id).await?;
        tx.commit(None).await?;
        Ok(Ok(cookie))
    }

    /// A new password ends everything else that is signed in; the browser gets a new cookie.
    pub(crate) async fn change_password(
        &self,
        browser: &Browser,
        current: Secret,
        new: Secret,
        origin: &Origin,
    ) -> Result<Result<Secret, &'static str>, Failure> {
        let email = browser.account.email.as_str();
        if let Err(text) = model::check_password(new.expose(), email) {
            return Ok(Err(text));
        }
        if current == new {
            return Ok(Err("The new password must differ from the current one."));
        }
        const WRONG: &str =
            "The current password is wrong, or there were too many failed attempts in this browser.";
        let proved = self.prove(email, current, GuessedBy::Browser(browser), origin).await?;
        let Some(proved) = proved else { return Ok(Err(WRONG)) };
        let hash = self.0.passwords.hash(new).await?;
        let user = self.user_of(&browser.account, origin).await?;
        let mut tx = self.0.db.write(by_themselves(user, origin.clone()), "auth.password.change").await?;
        if !self.still_holds(&mut tx, &proved).await? {
            tx.roll_back().await;
            return Ok(Err(WRONG));
        }
        store::set_password(tx.conn(), browser.account.id, &hash, false, self.now()).await?;
        self.end_all(&mut tx, browser.account.id).await?;
        let cookie = self.open_browser(&mut tx, browser.account.id).await?;
        tx.record::<(), ()>("local_account", browser.account.id, None, None)?;
        tx.commit(None).await?;
        Ok(Ok(cookie))
    }

    async fn insert(
        &self,
        tx: &mut WriteTx,
        new: &NewAccount,
        password_hash: &str,
        made: Made,
    ) -> Result<Option<Account>, Failure> {
        let id: LocalAccountId = self.0.db.ambient().id();
        let row = store::NewRow {
            id,
            email: new.email.as_str(),
            name: &model::account_name(new.name.clone(), &new.email),
            password_hash,
            must_change_password: made.must_change_password,
            email_verified: made.email_verified,
        };
        if !store::insert(tx.conn(), row, self.now()).await? {
            return Ok(None);
        }
        Ok(store::find(tx.conn(), id).await?)
    }

    /// An account made by an administrator, with a password to pass on.
    pub async fn create_account(
        &self,
        tx: &mut WriteTx,
        new: &NewAccount,
    ) -> Result<(Account, OneTimePassword), Failure> {
        // Hashed with the transaction open: administrators do this seldom, and the wait is bounded.
        let password = model::random_password(self.0.db.ambient());
        let hash = self.0.passwords.hash(password.clone()).await?;
        let account = self.insert(tx, new, &hash, BY_ADMINISTRATOR).await?.ok_or_else(|| {
            Problem::new(Code::AlreadyExists, "An account with this e-mail address already exists.")
        })?;
        tx.record::<(), _>("local_account", account.id, None, Some(&account))?;
        Ok((account, password))
    }

    /// A new password to pass on; everything that is signed in to the account ends, and wrong ones are forgotten.
    pub async fn reset_password(
        &self,
        tx: &mut WriteTx,
        id: LocalAccountId,
    ) -> Result<OneTimePassword, Failure> {
        let before = store::find(tx.conn(), id).await?.ok_or_else(|| Problem::not_found("account"))?;
        self.check_reset_alone(tx, id).await?;
        let password = model::random_password(self.0.db.ambient());
        let hash = self.0.passwords.hash(password.clone()).await?;
        store::set_password(tx.conn(), id, &hash, true, self.now()).await?;
        guesses::remove_of_account(tx.conn(), id.uuid()).await?;
        self.end_all(tx, id).await?;
        let after = store::find(tx.conn(), id).await?;
        tx.record("local_account", id, Some(&before), after.as_ref())?;
        Ok(password)
    }

    /// Whoever resets a password can sign in with it.
    async fn check_reset_alone(&self, tx: &mut WriteTx, id: LocalAccountId) -> Result<(), Failure> {
        let issuer = &self.0.config.public_url;
        let Some(user) = people::user_find(tx.conn(), issuer, &id.to_string()).await? else { return Ok(()) };
        let is_own = tx.permit().actor().id == Some(user);
        let person = platform::platform_get(tx.conn(), user.into()).await?;
        let roles = person.map(|person| person.platform_roles).unwrap_or_default();
        Ok(check_reset_alone(&roles, is_own)?)
    }

    /// A disabled account cannot sign in, and what was signed in ends. Somebody who can administer the
    /// platform must be left.
    pub async fn set_account_disabled(
        &self,
        tx: &mut WriteTx,
        id: LocalAccountId,
        disabled: bool,
    ) -> Result<Account, Failure> {
        if disabled {
            self.check_not_the_last_admin(tx, id).await?;
        }
        let before = store::lock(tx.conn(), id).await?.ok_or_else(|| Problem::not_found("account"))?;
        let now = self.now();
        if before.disabled_at.is_some() != disabled {
            store::set_disabled(tx.conn(), id, disabled.then_some(now), now).await?;
        }
        if disabled {
            self.end_all(tx, id).await?;
            let issuer = &self.0.config.public_url;
            if let Some(user) = people::user_find(tx.conn(), issuer, &id.to_string()).await? {
                tx.emit(&AccountDisabled { user_id: user.into() })?;
            }
        }
        let after = store::find(tx.conn(), id).await?.ok_or_else(|| Problem::not_found("account"))?;
        tx.record("local_account", id, Some(&before), Some(&after))?;
        Ok(after)
    }

    async fn check_not_the_last_admin(&self, tx: &mut WriteTx, id: LocalAccountId) -> Result<(), Failure> {
        // Roles cannot change, and no other administrator be disabled, until the transaction ends.
        platform::lock_platform_roles(tx.conn()).await?;
        let issuer = &self.0.config.public_url;
        let Some(user) = people::user_find(tx.conn(), issuer, &id.to_string()).await? else { return Ok(()) };
        let held = platform::platform_get(tx.conn(), user.into()).await?;
        let is_admin = held.is_some_and(|user| user.platform_roles.contains(&PlatformRole::PlatformAdmin));
        if is_admin && platform::other_admins(tx.conn(), user.into()).await? == 0 {
            let text = "This is the account of the only platform administrator who can sign in.";
            let first = "Grant another user the role of platform administrator first.";
            return Err(Problem::new(Code::InUse, text).suggest(first).into());
        }
        Ok(())
    }

    pub(crate) async fn account_list(
        &self,
        conn: &mut pg::Connection,
        query: &kernel::PageQuery,
    ) -> Result<Vec<Account>, Failure> {
        Ok(store::list(conn, query.after(), query.limit()).await?)
    }

    /// Makes the first administrator when there is none, and says whether it did. Safe to call by every
    /// replica at every start.
    ///
    /// `keep` gets the password and must not return before it is safe: the account comes to be only after
    /// that, and not at all when `keep` fails, so there is never an administrator whose password is lost.
    pub async fn seed_admin(
        &self,
        email: &Email,
        keep: impl FnOnce(&OneTimePassword) -> std::io::Result<()> + Send,
    ) -> Result<bool, Failure> {
        if self.has_admin().await? {
            return Ok(false);
        }
        let origin = Origin::internal(kernel::CorrelationId(self.0.db.ambient().uuid()));
        let password = model::random_password(self.0.db.ambient());
        let hash = self.0.passwords.hash(password.clone()).await?;
        let permit = Permit::system("the first administrator", origin);
        let mut tx = self.0.db.write(permit, "platform.admin.seed").await?;
        if !is_without_admin(&mut tx).await? {
            tx.roll_back().await;
            return Ok(false);
        }
        let account = match store::find_by_email(tx.conn(), email.as_str()).await? {
            Some(account) => {
                store::set_password(tx.conn(), account.id, &hash, true, self.now()).await?;
                account
            }
            None => {
                let new = NewAccount { email: email.clone(), name: None };
                let made = self.insert(&mut tx, &new, &hash, BY_ADMINISTRATOR).await?;
                made.ok_or_else(|| {
                    Problem::new(Code::Conflict, "Another request created the account first.")
                })?
            }
        };
        let user = provision_or_find(&mut tx, &account.identity(&self.0.config.public_url)).await?;
        make_first_admin(&mut tx, user).await?;
        // Last before the commit, and under the lock: what another replica kept is not overwritten.
        if let Err(error) = keep(&password) {
            tx.roll_back().await;
            return Err(error.into());
        }
        tx.commit(None).await?;
        Ok(true)
    }

    /// Whether anybody administers the platform.
    pub async fn has_admin(&self) -> Result<bool, Failure> {
        Ok(people::any_platform_admin(self.quietly().await?.conn()).await?)
    }
}
