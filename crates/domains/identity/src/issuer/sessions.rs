//! Who is signed in at the issuer, and the end of sessions.

use chrono::{DateTime, Utc};
use kernel::{
    Failure, Permission, Role, Secret,
    digest::sha256,
    ids::{LocalAccountId, SessionId, UserId},
};
use pg::{Actor, ActorKind, Origin, Permit, Scope, Upkeep, WriteTx};

use super::{
    Issuer,
    model::{self, Account, BROWSER_SESSION_LIFE},
    store::{accounts, browsers, codes, devices, tokens},
};
use crate::{
    authn::{service::ensure_user, store as people},
    model::events::SessionRevoked,
};

/// A browser that is signed in.
#[derive(Clone, Debug)]
pub(crate) struct Browser {
    pub account: Account,
    pub auth_time: DateTime<Utc>,
    pub hash: [u8; 32],
}

/// The person acts for themselves, having just proved who they are.
pub(crate) fn by_themselves(user: UserId, origin: Origin) -> Permit {
    let actor = Actor { kind: ActorKind::User, id: Some(user.uuid()), role: Role::Person.name() };
    match Role::Person.permissions().authorize(Permission::SelfUpdate) {
        Some(granted) => Permit::granted(actor, Scope::Platform, origin, granted),
        None => Permit::system("somebody signs in", origin),
    }
}

impl Issuer {
    /// A connection for reads, and for counters that nobody would audit.
    pub(crate) async fn quietly(&self) -> Result<Upkeep, Failure> {
        Ok(self.0.db.upkeep("the built-in issuer's own tables").await?)
    }

    pub(crate) fn now(&self) -> DateTime<Utc> {
        self.0.db.ambient().now()
    }

    pub(crate) async fn browser(&self, cookie: Option<&str>) -> Result<Option<Browser>, Failure> {
        let Some(cookie) = cookie.filter(|c| c.len() <= 128) else { return Ok(None) };
        let hash = sha256(cookie);
        let mut read = self.quietly().await?;
        let Some(row) = browsers::find(read.conn(), &hash, self.now()).await? else { return Ok(None) };
        let account = accounts::find(read.conn(), LocalAccountId::from(row.account_id)).await?;
        Ok(account.map(|account| Browser { account, auth_time: row.auth_time, hash }))
    }

    /// Signs the browser in, in the caller's transaction; the answer is its cookie.
    pub(crate) async fn open_browser(
        &self,
        tx: &mut WriteTx,
        account: LocalAccountId,
    ) -> Result<Secret, Failure> {
        let (cookie, hash) = model::new_secret(self.0.db.ambient());
        let now = self.now();
        browsers::insert(tx.conn(), &hash, account, now, now + BROWSER_SESSION_LIFE).await?;
        Ok(cookie)
    }

    pub(crate) async fn sign_out(&self, browser: &Browser, origin: &Origin) -> Result<(), Failure> {
        let user = self.user_of(&browser.account, origin).await?;
        let mut tx = self.0.db.write(by_themselves(user, origin.clone()), "auth.sign_out").await?;
        browsers::remove(tx.conn(), &browser.hash).await?;
        tx.record::<(), ()>("local_account", browser.account.id, None, None)?;
        tx.commit(None).await?;
        Ok(())
    }

    pub(crate) async fn user_of(&self, account: &Account, origin: &Origin) -> Result<UserId, Failure> {
        ensure_user(&self.0.db, &account.identity(&self.0.config.public_url), origin).await
    }

    /// Ends a session: its tokens are refused everywhere within seconds.
    pub(crate) async fn revoke_session(
        &self,
        session: SessionId,
        user: UserId,
        reason: &'static str,
        origin: &Origin,
    ) -> Result<(), Failure> {
        let mut tx = self.0.db.write(Permit::system(reason, origin.clone()), "session.revoke").await?;
        if !people::session_revoke(tx.conn(), session.uuid(), self.now()).await? {
            tx.roll_back().await;
            return Ok(());
        }
        tx.record::<(), ()>("session", session, None, None)?;
        tx.emit(&SessionRevoked { user_id: user, session_id: session })?;
        tx.invalidate(format!("session:{}", session.uuid()));
        tx.commit(None).await?;
        Ok(())
    }

    /// Ends everything that is signed in to an account or was about to be, in the caller's transaction. The
    /// account is locked first, as everybody does who signs something in to it.
    pub(crate) async fn end_all(&self, tx: &mut WriteTx, account: LocalAccountId) -> Result<(), Failure> {
        let now = self.now();
        accounts::lock(tx.conn(), account).await?;
        // Codes and approvals are made from browsers: when no browser is left, no more of them come.
        browsers::remove_of_account(tx.conn(), account).await?;
        codes::remove_of_account(tx.conn(), account.uuid()).await?;
        devices::remove_of_account(tx.conn(), account.uuid()).await?;
        let issuer = &self.0.config.public_url;
        if let Some(user) = people::user_find(tx.conn(), issuer, &account.to_string()).await? {
            people::sessions_revoke_of_user(tx.conn(), user, now).await?;
            tx.invalidate(format!("user:{user}"));
        }
        Ok(())
    }
}

/// The database was restored from a backup: whatever was signed in by then, or about to be, is ended, because what was
/// revoked since the backup would come back with it. Answers how many sessions that were.
pub async fn sign_ins_end(tx: &mut WriteTx) -> Result<u64, Failure> {
    let now = tx.db().ambient().now();
    // In the order in which one is made from the other: what is made meanwhile is seen by the statement after it.
    browsers::remove_all(tx.conn()).await?;
    codes::remove_all(tx.conn()).await?;
    devices::remove_all(tx.conn()).await?;
    tokens::remove_all(tx.conn()).await?;
    let ended = people::sessions_end_all(tx.conn(), now).await?;
    tx.invalidate("*".to_owned());
    Ok(ended)
}
