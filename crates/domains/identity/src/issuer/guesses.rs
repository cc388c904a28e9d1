//! Passwords, right and wrong.
//!
//! A wrong password counts against the address that it came from, and against that address at that account: never
//! against the account itself, so nobody can lock somebody else out. Whoever is signed in already is asked for the
//! password in a place of their own, which strangers do not reach. Time is the database's, not this process's.

use chrono::TimeDelta;
use kernel::{
    Code, Failure, Secret,
    policy::{IntegerKey, keys},
    text::Email,
};
use pg::{Actor, Origin, Refusal, Scope};

use super::{
    Issuer,
    limits::address_holder,
    model::Account,
    sessions::Browser,
    store::{
        accounts,
        guesses::{self, Allowance},
    },
};

/// Where a password comes from.
#[derive(Clone, Copy)]
pub(crate) enum GuessedBy<'a> {
    /// Somebody who is not signed in.
    Address,
    /// Somebody who is, and is asked again.
    Browser(&'a Browser),
}

/// The budget that all refusals of strangers share in the audit trail.
const AUDITED: &str = "audited refusals";

impl Issuer {
    async fn policy(&self, key: IntegerKey) -> Result<i64, Failure> {
        Ok(self.0.policies.setting(key, None, None).await?.get())
    }

    /// The account, when the password is its own. A wrong one is counted and audited.
    pub(crate) async fn prove(
        &self,
        email: &str,
        password: Secret,
        by: GuessedBy<'_>,
        origin: &Origin,
    ) -> Result<Option<Account>, Failure> {
        let lock = TimeDelta::seconds(self.policy(keys::SIGN_IN_LOCK_SECONDS).await?);
        let at_account = Allowance { step: lock, burst: self.policy_count(keys::SIGN_IN_ATTEMPTS).await? };
        let burst = self.policy_count(keys::SIGN_IN_ATTEMPTS_PER_ADDRESS).await?;
        let in_all = Allowance { step: lock / burst, burst };
        let source = match by {
            GuessedBy::Address => address_holder(origin.source_ip.as_deref().unwrap_or_default()),
            GuessedBy::Browser(browser) => format!("browser {}", hex::encode(browser.hash)),
        };
        let mut quiet = self.quietly().await?;
        // Counted before it is checked.
        let may_guess = match by {
            GuessedBy::Address => guesses::spend(quiet.conn(), &source, None, in_all).await?,
            GuessedBy::Browser(_) => true,
        };
        let mut known = None;
        if let (true, Ok(email)) = (may_guess, Email::parse(email)) {
            known = accounts::credentials(quiet.conn(), email.as_str()).await?;
        }
        if let Some(account) = &known
            && !guesses::spend(quiet.conn(), &source, Some(account.id), at_account).await?
        {
            known = None;
        }
        drop(quiet);
        let stored = known.as_ref().map(|known| known.password_hash.clone());
        if self.0.passwords.matches(password, stored).await?
            && let Some(known) = known
        {
            let mut quiet = self.quietly().await?;
            guesses::forgive(quiet.conn(), &source, known.id, in_all.step).await?;
            let account = accounts::find(quiet.conn(), known.id.into()).await?;
            return Ok(account.filter(|account| account.version == known.version));
        }
        self.refuse_sign_in(email, origin).await?;
        Ok(None)
    }

    async fn policy_count(&self, key: IntegerKey) -> Result<i32, Failure> {
        Ok(i32::try_from(self.policy(key).await?).unwrap_or(i32::MAX).max(1))
    }

    /// Whether one more refusal of a stranger may be written to the audit trail. What strangers write there is
    /// bounded in all, over all replicas, whatever number of addresses they have.
    pub(crate) async fn may_audit_refusal(&self) -> Result<bool, Failure> {
        let burst = self.policy_count(keys::REFUSALS_AUDITED_PER_MINUTE).await?;
        let allowance = Allowance { step: TimeDelta::minutes(1) / burst, burst };
        let mut quiet = self.quietly().await?;
        Ok(guesses::spend(quiet.conn(), AUDITED, None, allowance).await?)
    }

    /// Audits a refused sign-in; it names the account that it was for, if there is one.
    async fn refuse_sign_in(&self, email: &str, origin: &Origin) -> Result<(), Failure> {
        if !self.may_audit_refusal().await? {
            return Ok(());
        }
        let account = match Email::parse(email) {
            Ok(email) => accounts::find_by_email(self.quietly().await?.conn(), email.as_str()).await?,
            Err(_) => None,
        };
        let refusal = Refusal {
            actor: Actor::ANONYMOUS,
            scope: Scope::Platform,
            action: "auth.sign_in",
            target: ("local_account", account.map(|account| account.id.to_string())),
            code: Code::TokenInvalid,
        };
        Ok(pg::refuse(&self.0.db, refusal, origin).await?)
    }
}
