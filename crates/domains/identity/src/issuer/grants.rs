//! Tokens for people: for codes, refresh tokens and approved devices.

use chrono::{DateTime, Utc};
use endpoint::ClientInfo;
use kernel::{
    Failure, Secret,
    digest::sha256,
    ids::{SessionId, UserId},
};
use pg::{Origin, WriteTx};
use serde::Serialize;
use serde_json::json;

use super::{
    AUDIENCE, Issuer,
    failure::TokenError,
    model::{self, Account, Refusal},
    sessions::{Browser, by_themselves},
    store::{accounts, codes, tokens},
};
use crate::authn::store as people;

/// The answer of the token endpoint.
#[derive(Serialize)]
pub(crate) struct Tokens {
    pub access_token: String,
    pub token_type: &'static str,
    pub expires_in: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refresh_token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id_token: Option<String>,
    pub scope: String,
}

/// What a valid authorization request asks for.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub client_id: String,
    pub redirect_uri: String,
    pub code_challenge: String,
    pub scope: String,
    pub nonce: Option<String>,
}

/// Who asks the token endpoint.
pub(crate) struct Asker<'a> {
    pub client: &'a ClientInfo,
    pub origin: &'a Origin,
}

/// A sign-in that tokens are made for.
struct Grant {
    account: Account,
    client_id: String,
    scope: String,
    auth_time: DateTime<Utc>,
    browser_hash: Option<Vec<u8>>,
    nonce: Option<String>,
}

struct Opened {
    session: SessionId,
    sid: String,
    refresh_token: Secret,
}

const GONE: Refusal =
    Refusal::InvalidGrant("The code or token is not valid, has expired, or was already used.");
const ENDED: Refusal = Refusal::InvalidGrant("The account cannot sign in.");

/// What a grant becomes a session for. The account must be locked by then, and before the grant itself: an
/// end of everything that is under way comes either wholly before the new session or wholly after it.
fn usable(account: Option<Account>) -> Result<Account, Refusal> {
    account.filter(|a| a.disabled_at.is_none() && !a.must_change_password).ok_or(ENDED)
}

impl Issuer {
    /// A code for a browser that is signed in; nothing when it no longer is.
    pub(crate) async fn code_create(
        &self,
        browser: &Browser,
        asked: &Asked,
    ) -> Result<Option<Secret>, Failure> {
        let (code, hash) = model::new_secret(self.0.db.ambient());
        let new = codes::NewCode {
            code_hash: &hash,
            account_id: browser.account.id.uuid(),
            browser_hash: &browser.hash,
            client_id: &asked.client_id,
            redirect_uri: &asked.redirect_uri,
            code_challenge: &asked.code_challenge,
            scope: &asked.scope,
            nonce: asked.nonce.as_deref(),
            auth_time: browser.auth_time,
            expires_at: self.now() + model::CODE_LIFE,
        };
        // A code is worth nothing until it is exchanged, which is audited.
        let made = codes::insert(self.quietly().await?.conn(), new).await?;
        Ok(made.then_some(code))
    }

    pub(crate) async fn code_exchange(
        &self,
        code: &str,
        client_id: &str,
        redirect_uri: &str,
        verifier: &str,
        asker: Asker<'_>,
    ) -> Result<Tokens, TokenError> {
        let (hash, now) = (sha256(code), self.now());
        let known = self.code_owner(&hash).await?.ok_or(GONE)?;
        let user = self.user_of(&known, asker.origin).await?;
        let permit = by_themselves(user, asker.origin.clone());
        let mut tx = self.0.db.write(permit, "auth.token.issue").await?;
        let account = accounts::lock(tx.conn(), known.id).await?;
        let row = codes::take(tx.conn(), &hash).await?.ok_or(GONE)?;
        if row.used_at.is_some() {
            tx.roll_back().await;
            if let Some(session) = row.session_id {
                let reason = "an authorization code was used twice";
                self.revoke_session(SessionId::from(session), user, reason, asker.origin).await?;
            }
            return Err(GONE.into());
        }
        let right = row.client_id == client_id
            && row.redirect_uri == redirect_uri
            && row.expires_at > now
            && model::verifier_matches(verifier, &row.code_challenge);
        if !right {
            // Whoever holds the code is not who asked for it: it must not work for anybody any more.
            tx.roll_back().await;
            codes::mark_used(self.quietly().await?.conn(), &hash, None, now).await?;
            return Err(GONE.into());
        }
        let grant = Grant {
            account: usable(account)?,
            client_id: row.client_id,
            scope: row.scope,
            auth_time: row.auth_time,
            browser_hash: Some(row.browser_hash),
            nonce: row.nonce,
        };
        let opened = self.open_session(&mut tx, user, &grant, asker.client).await?;
        codes::mark_used(tx.conn(), &hash, Some(opened.session.uuid()), now).await?;
        self.finish(tx, user, grant, opened).await
    }

    async fn code_owner(&self, hash: &[u8]) -> Result<Option<Account>, TokenError> {
        let mut read = self.quietly().await?;
        let Some(row) = codes::take(read.conn(), hash).await? else { return Ok(None) };
        Ok(accounts::find(read.conn(), row.account_id.into()).await?)
    }

    async fn open_session(
        &self,
        tx: &mut WriteTx,
        user: UserId,
        grant: &Grant,
        client: &ClientInfo,
    ) -> Result<Opened, TokenError> {
        let ambient = self.0.db.ambient();
        let (session, now): (SessionId, _) = (ambient.id(), self.now());
        let sid = hex::encode(ambient.bytes::<16>());
        let (refresh_token, refresh_hash) = model::new_secret(ambient);
        let expires_at = now + model::SESSION_LIFE;
        let new = people::NewSession {
            id: session.uuid(),
            user: user.uuid(),
            issuer: &self.0.config.public_url,
            issuer_sid: &sid,
            client_id: Some(&grant.client_id),
            user_agent: client.user_agent.as_deref(),
            source_ip: client.source_ip.as_deref(),
            expires_at,
        };
        people::session_insert(tx.conn(), new, now).await?;
        let token = tokens::NewToken {
            token_hash: &refresh_hash,
            session_id: session.uuid(),
            account_id: grant.account.id.uuid(),
            browser_hash: grant.browser_hash.as_deref(),
            client_id: &grant.client_id,
            scope: &grant.scope,
            auth_time: grant.auth_time,
            expires_at,
        };
        tokens::insert(tx.conn(), token, now).await?;
        Ok(Opened { session, sid, refresh_token })
    }

    async fn finish(
        &self,
        mut tx: WriteTx,
        user: UserId,
        grant: Grant,
        opened: Opened,
    ) -> Result<Tokens, TokenError> {
        tx.record::<(), ()>("session", opened.session, None, None)?;
        tx.invalidate(format!("user:{}", user.uuid()));
        tx.commit(None).await?;
        self.tokens(&grant, &opened.sid, opened.refresh_token).await
    }

    async fn tokens(&self, grant: &Grant, sid: &str, refresh_token: Secret) -> Result<Tokens, TokenError> {
        let (now, account) = (self.now(), &grant.account);
        let expires = now + model::ACCESS_TOKEN_LIFE;
        let access = json!({
            "iss": self.0.config.public_url, "sub": account.id, "aud": AUDIENCE,
            "iat": now.timestamp(), "exp": expires.timestamp(), "jti": hex::encode(self.0.db.ambient().bytes::<16>()),
            "sid": sid, "azp": grant.client_id, "client_id": grant.client_id, "scope": grant.scope,
            "auth_time": grant.auth_time.timestamp(), "email": account.email, "email_verified": account.email_verified,
            "name": account.name,
        });
        let id_token = if model::has_scope(&grant.scope, "openid") {
            let mut claims = json!({
                "iss": self.0.config.public_url, "sub": account.id, "aud": grant.client_id,
                "iat": now.timestamp(), "exp": expires.timestamp(), "sid": sid, "azp": grant.client_id,
                "auth_time": grant.auth_time.timestamp(),
            });
            if let Some(nonce) = &grant.nonce {
                claims["nonce"] = json!(nonce);
            }
            if model::has_scope(&grant.scope, "email") {
                claims["email"] = json!(account.email);
                claims["email_verified"] = json!(account.email_verified);
            }
            if model::has_scope(&grant.scope, "profile") {
                claims["name"] = json!(account.name);
            }
            Some(self.0.ring.sign("JWT", &claims).await?)
        } else {
            None
        };
        Ok(Tokens {
            access_token: self.0.ring.sign("at+jwt", &access).await?,
            token_type: "Bearer",
            expires_in: model::ACCESS_TOKEN_LIFE.num_seconds(),
            refresh_token: Some(refresh_token.expose().clone()),
            id_token,
            scope: grant.scope.clone(),
        })
    }

    /// Rotates: the old token is used up. One that comes back was copied, so its whole session ends.
    pub(crate) async fn refresh(
        &self,
        token: &str,
        client_id: &str,
        asker: Asker<'_>,
    ) -> Result<Tokens, TokenError> {
        let old = sha256(token);
        let (next, next_hash) = model::new_secret(self.0.db.ambient());
        let rotated = {
            let mut quiet = self.quietly().await?;
            tokens::rotate(quiet.conn(), &old, &next_hash, client_id, self.now()).await?
        };
        let Some(row) = rotated else {
            self.notice_reuse(&old, client_id, asker.origin).await?;
            return Err(GONE.into());
        };
        let account = Account {
            id: row.account_id.into(),
            email: row.email,
            name: row.name,
            email_verified: row.email_verified,
            must_change_password: false,
            locked_until: None,
            disabled_at: None,
            version: 0,
            created_at: row.auth_time,
        };
        let grant = Grant {
            account,
            client_id: client_id.to_owned(),
            scope: row.scope,
            auth_time: row.auth_time,
            browser_hash: None,
            nonce: None,
        };
        self.tokens(&grant, &row.issuer_sid, next).await
    }

    async fn notice_reuse(&self, hash: &[u8], client_id: &str, origin: &Origin) -> Result<(), TokenError> {
        let known = tokens::find(self.quietly().await?.conn(), hash).await?;
        let Some(known) = known.filter(|k| k.used && k.client_id == client_id) else { return Ok(()) };
        tracing::warn!(session_id = %known.session_id, "a refresh token was used twice; its session is revoked");
        let (session, user) = (SessionId::from(known.session_id), UserId::from(known.user_id));
        self.revoke_session(session, user, "a refresh token was used twice", origin).await?;
        Ok(())
    }

    /// RFC 7009: ends the session behind a refresh or access token. What it cannot read it ignores.
    pub(crate) async fn revoke(&self, token: &str, asker: Asker<'_>) -> Result<(), TokenError> {
        let known = tokens::find(self.quietly().await?.conn(), &sha256(token)).await?;
        let found = match known {
            Some(known) => Some((SessionId::from(known.session_id), UserId::from(known.user_id))),
            None => {
                use endpoint::{Authenticator as _, Caller};
                match self.0.authn.authenticate(token, asker.client).await {
                    Ok(Caller::User { id, session, .. }) => Some((session, id)),
                    _ => None,
                }
            }
        };
        if let Some((session, user)) = found {
            self.revoke_session(session, user, "its holder revoked it", asker.origin).await?;
        }
        Ok(())
    }

    pub(crate) async fn device_exchange(
        &self,
        device_code: &str,
        client_id: &str,
        asker: Asker<'_>,
    ) -> Result<Tokens, TokenError> {
        use super::store::devices;
        let (hash, now) = (sha256(device_code), self.now());
        let polled = {
            let mut quiet = self.quietly().await?;
            devices::poll(quiet.conn(), &hash, client_id, now).await?.ok_or(GONE)?
        };
        if polled.used {
            return Err(GONE.into());
        }
        if polled.expires_at <= now {
            return Err(Refusal::ExpiredToken.into());
        }
        if polled.denied {
            return Err(Refusal::AccessDenied.into());
        }
        if polled.too_soon {
            return Err(Refusal::SlowDown.into());
        }
        if !polled.approved {
            return Err(Refusal::AuthorizationPending.into());
        }
        let owner = devices::owner(self.quietly().await?.conn(), &hash).await?.ok_or(GONE)?;
        let account = accounts::find(self.quietly().await?.conn(), owner.into()).await?;
        let user = self.user_of(&account.ok_or(ENDED)?, asker.origin).await?;
        let permit = by_themselves(user, asker.origin.clone());
        let mut tx = self.0.db.write(permit, "auth.token.issue").await?;
        let account = accounts::lock(tx.conn(), owner.into()).await?;
        let row = devices::take_approved(tx.conn(), &hash, owner, now).await?.ok_or(GONE)?;
        let grant = Grant {
            account: usable(account)?,
            client_id: client_id.to_owned(),
            scope: row.scope,
            auth_time: row.auth_time,
            browser_hash: row.browser_hash,
            nonce: None,
        };
        let opened = self.open_session(&mut tx, user, &grant, asker.client).await?;
        self.finish(tx, user, grant, opened).await
    }
}
