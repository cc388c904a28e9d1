//! Tokens for service accounts, for their keys.

use kernel::{
    Code,
    ids::{OrgId, ProjectId, ServiceAccountId, ServiceAccountKeyId},
};
use pg::{Actor, ActorKind, Origin, Scope};
use serde_json::json;
use subtle::ConstantTimeEq as _;

use super::{
    AUDIENCE, Issuer,
    failure::TokenError,
    grants::{Asker, Tokens},
    model::{self, Refusal},
    store::tokens,
};
use crate::{authn::store as people, model::service_account::key_parse};

impl Issuer {
    /// A service account's key for a token of its project. `client_id` is the key's id, when it is given.
    pub(crate) async fn key_exchange(
        &self,
        client_id: &str,
        secret: &str,
        asker: Asker<'_>,
    ) -> Result<Tokens, TokenError> {
        const WRONG: Refusal = Refusal::InvalidClient("The service account's key is not valid.");
        let now = self.now();
        let (key, hash) = key_parse(secret).ok_or(WRONG)?;
        if client_id != key.to_string() {
            return Err(WRONG.into());
        }
        let mut quiet = self.quietly().await?;
        let row = people::service_account_key(quiet.conn(), key.uuid()).await?.ok_or(WRONG)?;
        let refused = if !bool::from(row.secret_hash.ct_eq(&hash[..])) {
            Some(Code::TokenInvalid)
        } else if row.revoked {
            Some(Code::TokenRevoked)
        } else {
            row.expires_at.is_some_and(|at| at <= now).then_some(Code::TokenExpired)
        };
        if let Some(code) = refused {
            drop(quiet);
            self.refuse_key(key, &row, code, asker.origin).await?;
            return Err(WRONG.into());
        }
        tokens::key_used(quiet.conn(), key.uuid(), now).await?;
        drop(quiet);
        let expires = row
            .expires_at
            .map_or(now + model::SERVICE_TOKEN_LIFE, |at| at.min(now + model::SERVICE_TOKEN_LIFE));
        let claims = json!({
            "iss": self.0.config.public_url, "sub": ServiceAccountId::from(row.account_id), "aud": AUDIENCE,
            "iat": now.timestamp(), "exp": expires.timestamp(), "jti": hex::encode(self.0.db.ambient().bytes::<16>()),
            "client_id": key, "gpuaas_key": key, "gpuaas_project": ProjectId::from(row.project_id),
            "gpuaas_org": OrgId::from(row.org_id),
        });
        Ok(Tokens {
            access_token: self.0.ring.sign("at+jwt", &claims).await?,
            token_type: "Bearer",
            expires_in: (expires - now).num_seconds(),
            refresh_token: None,
            id_token: None,
            scope: String::new(),
        })
    }

    /// A key that is known was refused. Who knows its secret is the account, and its organization sees it;
    /// who does not is a stranger, and strangers write only to the platform's own trail.
    async fn refuse_key(
        &self,
        key: ServiceAccountKeyId,
        row: &people::ServiceAccountRow,
        code: Code,
        origin: &Origin,
    ) -> Result<(), TokenError> {
        if code == Code::TokenInvalid && !self.may_audit_refusal().await? {
            return Ok(());
        }
        let (actor, scope) = if code == Code::TokenInvalid {
            (Actor::ANONYMOUS, Scope::Platform)
        } else {
            let id = Some(row.account_id);
            let actor = Actor { kind: ActorKind::ServiceAccount, id, role: "service_account" };
            (actor, Scope::Project(OrgId::from(row.org_id), ProjectId::from(row.project_id)))
        };
        let target = ("service_account_key", Some(key.to_string()));
        let refusal = pg::Refusal { actor, scope, action: "auth.key.exchange", target, code };
        Ok(pg::refuse(&self.0.db, refusal, origin).await?)
    }
}
