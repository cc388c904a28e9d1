//! Newcomers and new sessions.

use chrono::{DateTime, TimeDelta, Utc};
use endpoint::ClientInfo;
use kernel::{
    CorrelationId, Failure,
    ids::{OrgId, ProjectId, SessionId, UserId},
};
use pg::{Db, Origin, Permit, WriteTx};

use super::{model::Identity, store};
use crate::model::{
    events::{PlatformRolesChanged, UserCreated},
    role::PlatformRole,
};

/// How long a session of an external issuer is remembered after its last token was seen.
const REMEMBERED_FOR: TimeDelta = TimeDelta::days(30);

/// A session that was seen for the first time.
#[derive(Clone, Debug)]
pub struct SeenSession {
    pub issuer_sid: String,
    pub client_id: Option<String>,
    pub expires_at: DateTime<Utc>,
}

pub(crate) fn origin(db: &Db, client: &ClientInfo) -> Origin {
    Origin {
        correlation_id: CorrelationId(db.ambient().uuid()),
        source_ip: client.source_ip.clone(),
        traceparent: None,
    }
}

/// Makes the user with a personal organization, its project `default` and ownership of both. Nothing when
/// somebody else was faster: the transaction is then of no use.
pub(crate) async fn provision(tx: &mut WriteTx, identity: &Identity) -> Result<Option<UserId>, Failure> {
    let ambient = tx.db().ambient().clone();
    let (user_id, org_id, project_id): (UserId, OrgId, ProjectId) =
        (ambient.id(), ambient.id(), ambient.id());
    let now = ambient.now();
    let user = store::NewUser {
        id: user_id.uuid(),
        issuer: &identity.issuer,
        subject: &identity.subject,
        email: identity.email.as_ref().map(|e| e.as_str()),
        name: identity.name.as_str(),
    };
    if !store::user_insert(tx.conn(), user, now).await? {
        return Ok(None);
    }
    let slug = identity.personal_slug(&ambient);
    let new = store::PersonalOrg {
        org: org_id.uuid(),
        project: project_id.uuid(),
        user: user_id.uuid(),
        slug: &slug,
        name: identity.name.as_str(),
    };
    store::personal_org_insert(tx.conn(), new, now).await?;
    let event = UserCreated { user_id, org_id, project_id, issuer: identity.issuer.clone() };
    tx.record::<(), _>("user", user_id, None, Some(&event))?;
    tx.audit_in_org(org_id);
    tx.emit(&event)?;
    tx.invalidate(format!("user:{}", user_id.uuid()));
    Ok(Some(user_id))
}

async fn find(db: &Db, identity: &Identity, origin: &Origin) -> Result<Option<UserId>, Failure> {
    let mut read = db.read(&Permit::system("find who signed in", origin.clone())).await?;
    let found = store::user_find(read.conn(), &identity.issuer, &identity.subject).await?;
    Ok(found.map(UserId::from))
}

/// The user of an identity, made if this is the first time. Safe to race: exactly one is made.
pub async fn ensure_user(db: &Db, identity: &Identity, origin: &Origin) -> Result<UserId, Failure> {
    if let Some(user) = find(db, identity, origin).await? {
        return Ok(user);
    }
    let mut tx = db.write(Permit::system("first sign-in", origin.clone()), "user.first_sign_in").await?;
    if let Some(user) = provision(&mut tx, identity).await? {
        tx.commit(None).await?;
        return Ok(user);
    }
    tx.roll_back().await;
    let lost = || Failure::bug("a user that exists cannot be found");
    find(db, identity, origin).await?.ok_or_else(lost)
}

/// Lets in somebody whose session was not seen before: a newcomer gets user, personal organization and
/// session in one transaction; a known person only the session. Whoever is `chosen` to administer the
/// platform does so from then on, when nobody else does. Safe to race.
pub async fn first_sign_in(
    db: &Db,
    identity: &Identity,
    session: &SeenSession,
    client: &ClientInfo,
    chosen: bool,
) -> Result<(), Failure> {
    let origin = origin(db, client);
    if chosen && sign_in_first_admin(db, identity, session, client, &origin).await? {
        return Ok(());
    }
    if find(db, identity, &origin).await?.is_none() {
        let mut tx = db.write(Permit::system("first sign-in", origin.clone()), "user.first_sign_in").await?;
        if let Some(user) = provision(&mut tx, identity).await? {
            open_session(&mut tx, user, &identity.issuer, session, client).await?;
            tx.commit(None).await?;
            return Ok(());
        }
        tx.roll_back().await;
    }
    let Some(user) = find(db, identity, &origin).await? else {
        return Err(Failure::bug("a user that exists cannot be found"));
    };
    let mut tx = db.write(Permit::system("a new session was seen", origin), "session.open").await?;
    match open_session(&mut tx, user, &identity.issuer, session, client).await? {
        Some(id) => {
            tx.record::<(), ()>("session", id, None, None)?;
            tx.commit(None).await?;
        }
        None => tx.roll_back().await,
    }
    Ok(())
}

/// False when the platform has an administrator: this is then a sign-in like any other.
async fn sign_in_first_admin(
    db: &Db,
    identity: &Identity,
    session: &SeenSession,
    client: &ClientInfo,
    origin: &Origin,
) -> Result<bool, Failure> {
    let permit = Permit::system("the first administrator", origin.clone());
    // Asked without the lock first: almost always somebody administers the platform already.
    if store::any_platform_admin(db.read(&permit).await?.conn()).await? {
        return Ok(false);
    }
    let mut tx = db.write(permit, "platform.admin.seed").await?;
    if !is_without_admin(&mut tx).await? {
        tx.roll_back().await;
        return Ok(false);
    }
    let user = provision_or_find(&mut tx, identity).await?;
    open_session(&mut tx, user, &identity.issuer, session, client).await?;
    make_first_admin(&mut tx, user).await?;
    tx.commit(None).await?;
    tracing::info!(user_id = %user, "the chosen person signed in and administers the platform");
    Ok(true)
}

/// Whether nobody administers the platform, which then stays so until the transaction ends.
pub(crate) async fn is_without_admin(tx: &mut WriteTx) -> Result<bool, Failure> {
    store::seed_lock(tx.conn()).await?;
    Ok(!store::any_platform_admin(tx.conn()).await?)
}

/// Like [`provision`], for somebody who may be known.
pub(crate) async fn provision_or_find(tx: &mut WriteTx, identity: &Identity) -> Result<UserId, Failure> {
    if let Some(user) = provision(tx, identity).await? {
        return Ok(user);
    }
    let found = store::user_find(tx.conn(), &identity.issuer, &identity.subject).await?;
    Ok(found.ok_or_else(|| Failure::bug("a user that exists cannot be found"))?.into())
}

pub(crate) async fn make_first_admin(tx: &mut WriteTx, user: UserId) -> Result<(), Failure> {
    let now = tx.db().ambient().now();
    store::bind_platform_admin(tx.conn(), user.uuid(), now).await?;
    let event = PlatformRolesChanged { user_id: user, roles: vec![PlatformRole::PlatformAdmin] };
    tx.record::<(), _>("user", user, None, Some(&event))?;
    tx.emit(&event)?;
    tx.invalidate(format!("user:{}", user.uuid()));
    Ok(())
}

/// A session where there was a revoked one of the same person, issuer and client, whose tokens are no longer seen.
pub(crate) async fn reopen_session(
    db: &Db,
    user: UserId,
    issuer: &str,
    revoked: SessionId,
    session: &SeenSession,
    client: &ClientInfo,
) -> Result<(), Failure> {
    let permit = Permit::system("a new session was seen", origin(db, client));
    let mut tx = db.write(permit, "session.open").await?;
    let ambient = tx.db().ambient().clone();
    let (id, now): (SessionId, _) = (ambient.id(), ambient.now());
    let new = new_session(id, user, issuer, session, client, now);
    if store::session_reopen(tx.conn(), revoked.uuid(), new, now).await? {
        tx.record::<(), ()>("session", id, None, None)?;
        tx.invalidate(format!("session:{}", revoked.uuid()));
        tx.commit(None).await?;
    } else {
        tx.roll_back().await;
    }
    Ok(())
}

fn new_session<'a>(
    id: SessionId,
    user: UserId,
    issuer: &'a str,
    session: &'a SeenSession,
    client: &'a ClientInfo,
    now: DateTime<Utc>,
) -> store::NewSession<'a> {
    store::NewSession {
        id: id.uuid(),
        user: user.uuid(),
        issuer,
        issuer_sid: &session.issuer_sid,
        client_id: session.client_id.as_deref(),
        user_agent: client.user_agent.as_deref(),
        source_ip: client.source_ip.as_deref(),
        expires_at: session.expires_at.max(now + REMEMBERED_FOR),
    }
}

/// Nothing when the session is there already.
async fn open_session(
    tx: &mut WriteTx,
    user: UserId,
    issuer: &str,
    session: &SeenSession,
    client: &ClientInfo,
) -> Result<Option<SessionId>, Failure> {
    let ambient = tx.db().ambient().clone();
    let (id, now): (SessionId, _) = (ambient.id(), ambient.now());
    let new = new_session(id, user, issuer, session, client, now);
    Ok(store::session_insert(tx.conn(), new, now).await?.then_some(id))
}
