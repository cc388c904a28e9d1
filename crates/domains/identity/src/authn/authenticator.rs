//! The authenticator that the pipeline asks.

use std::sync::{Arc, atomic::Ordering};

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use endpoint::{Authenticator, Caller, ClientInfo, SignIn};
use kernel::{
    Code, CorrelationId, Failure, Problem,
    digest::sha256,
    ids::{OrgId, ProjectId, ServiceAccountId, ServiceAccountKeyId, SessionId},
    policy::keys,
    text::Email,
};
use pg::{Db, Origin, Permit};
use quick_cache::sync::Cache;
use tokio::sync::Semaphore;

use super::{
    model::Verified,
    principal::{Dated, Person, Remembered},
    service::{self, SeenSession},
    store,
    verify::{TrustedIssuer, check_expiry, verify},
};
use crate::{
    model::service_account::ServiceAccountRole,
    service::policy_cache::{Policies, Where},
};

const LONGEST_TOKEN_BYTES: usize = 16 * 1024;
const MOST_TOKENS: usize = 20_000;
const NOTE_USE_EVERY: TimeDelta = TimeDelta::minutes(1);
/// Uses that may be noted at the same time; beyond that a use goes unnoted until the next request.
const NOTING_AT_ONCE: usize = 2;

/// What to do when a session was revoked that cannot be told from a new one.
const UNNAMED: &str = "Tokens of your issuer do not identify the session, so tokens of this client are refused until none was seen for the hours of the policy identity.unnamed_session_quiet_hours. Sign in through another client, and configure the issuer to send the claim sid or auth_time.";

struct Inner {
    db: Db,
    issuers: Vec<TrustedIssuer>,
    first_admin: Option<Email>,
    tokens: Cache<[u8; 32], Arc<Verified>>,
    remembered: Remembered,
    noting: Arc<Semaphore>,
    policies: Policies,
}

/// Turns bearer tokens into callers. Cheap to clone; making one touches no database.
#[derive(Clone)]
pub struct Authn(Arc<Inner>);

fn refused(code: Code) -> Failure {
    Problem::from_code(code).into()
}

impl Authn {
    pub fn new(db: Db, issuers: Vec<TrustedIssuer>) -> Self {
        Self::with_first_admin(db, issuers, None)
    }

    /// As long as nobody administers the platform, whoever signs in at an external issuer with this address,
    /// verified, becomes its administrator.
    pub fn with_first_admin(db: Db, issuers: Vec<TrustedIssuer>, first_admin: Option<Email>) -> Self {
        let inner = Arc::new(Inner {
            issuers,
            first_admin,
            tokens: Cache::new(MOST_TOKENS),
            remembered: Remembered::new(),
            noting: Arc::new(Semaphore::new(NOTING_AT_ONCE)),
            policies: Policies::new(db.clone()),
            db,
        });
        let listener = Arc::downgrade(&inner);
        inner.db.on_invalidate(move |key| {
            let Some(inner) = listener.upgrade() else { return };
            if key == "issuer_keys" {
                inner.tokens.clear();
            }
            inner.remembered.drop_key(key);
        });
        Self(inner)
    }

    /// Who the token was made for, when it still counts.
    pub(crate) async fn verified(&self, token: &str) -> Result<Arc<Verified>, Failure> {
        if token.len() > LONGEST_TOKEN_BYTES {
            return Err(refused(Code::TokenInvalid));
        }
        let now = self.0.db.ambient().now();
        let digest = sha256(token);
        if let Some(verified) = self.0.tokens.get(&digest) {
            check_expiry(&verified, now).inspect_err(|_| drop(self.0.tokens.remove(&digest)))?;
            return Ok(verified);
        }
        let verified = Arc::new(verify(&self.0.issuers, token, now).await?);
        self.0.tokens.insert(digest, verified.clone());
        Ok(verified)
    }

    fn permit(&self) -> Permit {
        let origin = Origin::internal(CorrelationId(self.0.db.ambient().uuid()));
        Permit::system("who calls, and with which roles", origin)
    }

    async fn person(&self, verified: &Verified, client: &ClientInfo) -> Result<Caller, Failure> {
        let now = self.0.db.ambient().now();
        let person = match self.0.remembered.person(&verified.session_key, now) {
            // Another token of the revoked session may have been made for a new sign-in.
            Some(person) if !(person.value.revoked && verified.is_unnamed()) => person,
            _ => self.load_person(verified, client, now).await?,
        };
        let value = &person.value;
        if value.subject != verified.claims.sub {
            return Err(refused(Code::TokenInvalid));
        }
        // The built-in issuer ends its sessions; how long an external one lives is the external issuer's affair.
        if value.revoked && verified.is_unnamed() {
            return Err(Problem::from_code(Code::TokenRevoked).suggest(UNNAMED).into());
        }
        if value.revoked || (verified.builtin && value.expires_at <= now) {
            return Err(refused(Code::TokenRevoked));
        }
        self.note_use(&person, verified, now);
        Ok(value.caller.clone())
    }

    async fn load_person(
        &self,
        verified: &Verified,
        client: &ClientInfo,
        now: DateTime<Utc>,
    ) -> Result<Arc<Dated<Person>>, Failure> {
        let mut mark = self.0.remembered.mark();
        let session = || SeenSession {
            issuer_sid: verified.sid.clone(),
            client_id: verified.client().map(str::to_owned),
            expires_at: verified.expires_at,
        };
        let row = match self.read_person(verified).await? {
            Some(row)
                if row.revoked && verified.is_unnamed() && self.is_new_sign_in(verified, &row).await? =>
            {
                let (user, revoked) = (row.user_id.into(), row.session_id.into());
                let issuer = &verified.claims.iss;
                service::reopen_session(&self.0.db, user, issuer, revoked, &session(), client).await?;
                mark = self.0.remembered.mark();
                self.read_person(verified).await?.ok_or_else(|| refused(Code::TokenInvalid))?
            }
            Some(row) => row,
            None if verified.builtin => return Err(refused(Code::TokenRevoked)),
            None if self.is_of_before_restore(verified).await? => return Err(refused(Code::TokenRevoked)),
            None => {
                let session = session();
                let chosen = self.0.first_admin.as_ref().is_some_and(|email| verified.is_proven_to_be(email));
                service::first_sign_in(&self.0.db, &verified.identity(), &session, client, chosen).await?;
                mark = self.0.remembered.mark();
                self.read_person(verified).await?.ok_or_else(|| refused(Code::TokenInvalid))?
            }
        };
        let person = Arc::new(Dated { at: now, value: Person::from_row(row) });
        self.0.remembered.keep_person(mark, verified.session_key, &person);
        Ok(person)
    }

    /// Whether a token of a session that is not known was made before the database was restored from a backup: its
    /// session may have been revoked since the backup.
    async fn is_of_before_restore(&self, verified: &Verified) -> Result<bool, Failure> {
        let mut read = self.0.db.read(&self.permit()).await?;
        let since = store::sign_ins_since(read.conn()).await?;
        // Tokens have whole seconds. One that does not say when it was made may be from before.
        let is_before = |since: DateTime<Utc>| {
            verified.issued_at().is_none_or(|issued_at| issued_at.timestamp() < since.timestamp())
        };
        Ok(since.is_some_and(is_before))
    }

    /// Whether a token of a revoked session whose issuer does not name sessions can be of a new sign-in. Whoever still
    /// refreshes tokens of the revoked one goes on doing so: only after a time without any is a token taken for new.
    async fn is_new_sign_in(&self, verified: &Verified, row: &store::PrincipalRow) -> Result<bool, Failure> {
        let Some(issued_at) = verified.issued_at() else { return Ok(false) };
        let hours = self.0.policies.setting_at(keys::UNNAMED_SESSION_QUIET_HOURS, Where::default());
        if row.ended_by_itself {
            return Ok(row.revoked_at.is_some_and(|revoked_at| issued_at > revoked_at));
        }
        let last_seen = row.revoked_at.unwrap_or(row.last_seen_at).max(row.last_seen_at);
        if issued_at >= last_seen + TimeDelta::hours(hours.await?.get()) {
            return Ok(true);
        }
        if issued_at > last_seen {
            let mut upkeep = self.0.db.upkeep("note a token of a revoked session").await?;
            store::session_note_refused(upkeep.conn(), row.session_id, issued_at).await?;
        }
        Ok(false)
    }

    async fn read_person(&self, verified: &Verified) -> Result<Option<store::PrincipalRow>, Failure> {
        let mut read = self.0.db.read(&self.permit()).await?;
        Ok(store::principal(read.conn(), &verified.claims.iss, &verified.sid).await?)
    }

    /// Notes now and then, behind the request and as well as it can, that a session is in use.
    fn note_use(&self, person: &Arc<Dated<Person>>, verified: &Verified, now: DateTime<Utc>) {
        let value = &person.value;
        if now - value.last_seen_at < NOTE_USE_EVERY || value.noting.swap(true, Ordering::Relaxed) {
            return;
        }
        let Ok(turn) = self.0.noting.clone().try_acquire_owned() else { return };
        let (this, session, alive_until) = (self.clone(), value.session, verified.expires_at);
        tokio::spawn(async move {
            let _turn = turn;
            let noted = async {
                let mut read = this.0.db.upkeep("note the use of a session").await?;
                // Not a change anybody would audit, so it takes no write transaction.
                Ok::<_, Failure>(store::session_touch(read.conn(), session, now, alive_until).await?)
            };
            if let Err(error) = noted.await {
                tracing::debug!(error = ?error, "the use of a session was not noted");
            }
        });
    }

    /// A person whose session still lives.
    async fn session(&self, session: SessionId) -> Result<Caller, Failure> {
        let now = self.0.db.ambient().now();
        let key = sha256(session.to_string());
        let person = match self.0.remembered.person(&key, now) {
            Some(person) => person,
            None => {
                let mark = self.0.remembered.mark();
                let gone = || refused(Code::TokenRevoked);
                let mut read = self.0.db.read(&self.permit()).await?;
                let name = store::session_name(read.conn(), session.uuid()).await?.ok_or_else(gone)?;
                let row = store::principal(read.conn(), &name.issuer, &name.issuer_sid).await?;
                let row = row.ok_or_else(gone)?;
                let is_builtin = |known: &TrustedIssuer| known.is_builtin() && known.issuer == name.issuer;
                if self.0.issuers.iter().any(is_builtin) && row.expires_at <= now {
                    return Err(gone());
                }
                let person = Arc::new(Dated { at: now, value: Person::from_row(row) });
                self.0.remembered.keep_person(mark, key, &person);
                person
            }
        };
        if person.value.revoked { Err(refused(Code::TokenRevoked)) } else { Ok(person.value.caller.clone()) }
    }

    async fn machine(&self, verified: &Verified, key: &str) -> Result<Caller, Failure> {
        let key: ServiceAccountKeyId = key.parse().map_err(|_| refused(Code::TokenInvalid))?;
        let caller = self.machine_of_key(key, verified.expires_at).await?;
        let Caller::ServiceAccount { id, project, .. } = &caller else {
            return Err(refused(Code::TokenInvalid));
        };
        let claims = &verified.claims;
        if claims.sub != id.to_string()
            || claims.gpuaas_project.as_deref() != Some(project.to_string().as_str())
        {
            return Err(refused(Code::TokenInvalid));
        }
        Ok(caller)
    }

    /// A service account whose key still counts.
    async fn machine_of_key(
        &self,
        key: ServiceAccountKeyId,
        token_expires_at: DateTime<Utc>,
    ) -> Result<Caller, Failure> {
        let now = self.0.db.ambient().now();
        let machine = match self.0.remembered.machine(key.uuid(), now) {
            Some(machine) => machine,
            None => {
                let mark = self.0.remembered.mark();
                let mut read = self.0.db.read(&self.permit()).await?;
                let row = store::service_account_key(read.conn(), key.uuid()).await?;
                let row = row.ok_or_else(|| refused(Code::TokenRevoked))?;
                let machine = Arc::new(Dated { at: now, value: row });
                self.0.remembered.keep_machine(mark, key.uuid(), &machine);
                machine
            }
        };
        let row = &machine.value;
        if row.revoked || row.expires_at.is_some_and(|at| at <= now) {
            return Err(refused(Code::TokenRevoked));
        }
        Ok(Caller::ServiceAccount {
            id: ServiceAccountId::from(row.account_id),
            org: OrgId::from(row.org_id),
            project: ProjectId::from(row.project_id),
            role: ServiceAccountRole::of_stored(row.role.as_deref()),
            key,
            token_expires_at,
        })
    }
}

#[async_trait]
impl Authenticator for Authn {
    async fn authenticate(&self, bearer: &str, client: &ClientInfo) -> Result<Caller, Failure> {
        let verified = self.verified(bearer).await?;
        match &verified.claims.gpuaas_key {
            // Only our own signature makes this claim mean anything.
            Some(key) if verified.builtin => self.machine(&verified, key).await,
            _ => self.person(&verified, client).await,
        }
    }

    async fn signed_in(&self, sign_in: SignIn) -> Result<Caller, Failure> {
        match sign_in {
            SignIn::User { session } => self.session(session).await,
            SignIn::ServiceAccount { key } => self.machine_of_key(key, self.0.db.ambient().now()).await,
        }
    }
}
