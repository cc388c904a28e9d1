//! Writing: one transaction that ends in an audit row, or in nothing.

use kernel::{CorrelationId, Event};
use serde::Serialize;
use serde_json::Value;
use sqlx::Executor as _;
use uuid::Uuid;

use crate::{
    Connection, Db, Error, Permit,
    pool::{Object, roll_back_in_background},
};

/// An idempotency key and what it is bound to.
#[derive(Clone, Debug)]
pub struct IdempotentRequest {
    pub principal_id: Uuid,
    pub endpoint: &'static str,
    pub key: String,
    pub request_hash: [u8; 32],
}

/// The answer kept with the effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredResponse {
    pub status: u16,
    pub body: Vec<u8>,
}

pub enum Begin {
    New(Box<WriteTx>),
    /// The key was used for the same request before; nothing may be done again.
    Replay(StoredResponse),
    /// The key was used for another request.
    KeyReused,
}

/// Proof of a commit, with the place of its audit row.
#[derive(Clone, Copy, Debug)]
pub struct Committed {
    pub audit_seq: i64,
}

struct Target {
    kind: &'static str,
    id: Option<String>,
    before: Option<Vec<u8>>,
    after: Option<Vec<u8>>,
}

struct Pending {
    id: Uuid,
    stream: &'static str,
    event_type: &'static str,
    version: i16,
    payload: Value,
    /// Whom it is about, when that is not who the transaction is for.
    about: Option<(Option<Uuid>, Option<Uuid>)>,
}

/// An open write transaction. `commit` takes it by value, so what only borrows it (every service and
/// store function) cannot end it; dropping it rolls back.
pub struct WriteTx {
    db: Db,
    object: Option<Object>,
    permit: Permit,
    action: &'static str,
    audit_org: Option<Uuid>,
    idempotency: Option<IdempotentRequest>,
    target: Option<Target>,
    events: Vec<Pending>,
    invalidations: Vec<String>,
}

impl WriteTx {
    pub(crate) async fn begin(
        db: Db,
        mut object: Object,
        permit: Permit,
        action: &'static str,
        idempotency: Option<IdempotentRequest>,
    ) -> Result<Begin, Error> {
        object.doubtful = true;
        object.conn.execute("BEGIN READ WRITE").await.map_err(Error::from_sqlx)?;
        object.doubtful = false;
        // From here on, dropping `tx` rolls back.
        let mut tx = Self {
            db,
            object: Some(object),
            permit,
            action,
            audit_org: None,
            idempotency: None,
            target: None,
            events: Vec::new(),
            invalidations: Vec::new(),
        };
        let Some(request) = idempotency else { return Ok(Begin::New(Box::new(tx))) };
        let now = tx.db.ambient().now();
        let row = sqlx::query!(
            r#"SELECT claimed AS "claimed!", same_request AS "same_request!", status, body
               FROM idempotency_claim($1, $2, $3, $4, $5)"#,
            request.principal_id,
            request.endpoint,
            request.key,
            &request.request_hash[..],
            now,
        )
        .fetch_one(tx.conn())
        .await
        .map_err(Error::from_sqlx)?;
        if row.claimed {
            tx.idempotency = Some(request);
            return Ok(Begin::New(Box::new(tx)));
        }
        tx.roll_back().await;
        if !row.same_request {
            return Ok(Begin::KeyReused);
        }
        let status = row.status.and_then(|s| u16::try_from(s).ok()).unwrap_or(200);
        Ok(Begin::Replay(StoredResponse { status, body: row.body.unwrap_or_default() }))
    }

    pub fn conn(&mut self) -> &mut Connection {
        match &mut self.object {
            Some(object) => &mut object.conn,
            // Only `commit`, `roll_back` and `drop` take it, and each ends the value.
            None => unreachable!("a transaction is used after its end"),
        }
    }

    pub fn db(&self) -> &Db {
        &self.db
    }

    pub fn permit(&self) -> &Permit {
        &self.permit
    }

    /// This is the rest of something that was begun elsewhere: its audit row and events carry that correlation and
    /// trace, so that the whole can be followed. Who acts, and from where, stays.
    pub fn continues(&mut self, correlation_id: CorrelationId, traceparent: Option<String>) {
        self.permit.origin.correlation_id = correlation_id;
        self.permit.origin.traceparent = traceparent.or(self.permit.origin.traceparent.take());
    }

    /// What the audit row says was touched, with digests of the resource before and after.
    pub fn record<B: Serialize, A: Serialize>(
        &mut self,
        kind: &'static str,
        id: impl ToString,
        before: Option<&B>,
        after: Option<&A>,
    ) -> Result<(), serde_json::Error> {
        let before = before.map(kernel::digest::of_json).transpose()?.map(Vec::from);
        let after = after.map(kernel::digest::of_json).transpose()?.map(Vec::from);
        self.target = Some(Target { kind, id: Some(id.to_string()), before, after });
        Ok(())
    }

    /// The chain that the audit row joins, when it is not the scope's own: a platform administrator's act
    /// on a tenant is visible to that tenant.
    pub fn audit_in_org(&mut self, org: kernel::ids::OrgId) {
        self.audit_org = Some(org.uuid());
    }

    /// Puts an event into the outbox; it leaves only if the transaction commits.
    pub fn emit<E: Event>(&mut self, event: &E) -> Result<(), serde_json::Error> {
        self.emit_about(event, None)
    }

    /// The same for work that is done for many tenants at once: the event belongs to this one.
    pub fn emit_for<E: Event>(
        &mut self,
        org: kernel::ids::OrgId,
        project: Option<kernel::ids::ProjectId>,
        event: &E,
    ) -> Result<(), serde_json::Error> {
        self.emit_about(event, Some((Some(org.uuid()), project.map(|p| p.uuid()))))
    }

    fn emit_about<E: Event>(
        &mut self,
        event: &E,
        about: Option<(Option<Uuid>, Option<Uuid>)>,
    ) -> Result<(), serde_json::Error> {
        self.events.push(Pending {
            id: self.db.ambient().uuid(),
            stream: E::STREAM.name(),
            event_type: E::TYPE,
            version: i16::try_from(E::VERSION).unwrap_or(i16::MAX),
            payload: serde_json::to_value(event)?,
            about,
        });
        Ok(())
    }

    /// Drops what every replica has cached under `key` when the transaction commits.
    pub fn invalidate(&mut self, key: String) {
        self.invalidations.push(key);
    }

    pub async fn commit(mut self, response: Option<StoredResponse>) -> Result<Committed, Error> {
        let audit_seq = self.finish(response).await?;
        let Some(mut object) = self.object.take() else { unreachable!("a transaction is committed once") };
        // When the answer to COMMIT is lost, so is the certainty; the connection must not be used again.
        object.doubtful = true;
        object.conn.execute("COMMIT").await.map_err(Error::from_sqlx)?;
        object.doubtful = false;
        drop(object);
        for key in &self.invalidations {
            self.db.invalidate(key);
        }
        Ok(Committed { audit_seq })
    }

    /// Ends the transaction without effect, waiting for it.
    pub async fn roll_back(mut self) {
        if let Some(mut object) = self.object.take() {
            object.doubtful = true;
            if object.conn.execute("ROLLBACK").await.is_ok() {
                object.doubtful = false;
            }
        }
    }

    async fn finish(&mut self, response: Option<StoredResponse>) -> Result<i64, Error> {
        let (id, now) = (self.db.ambient().uuid(), self.db.ambient().now());
        let permit = self.permit.clone();
        let (actor, scope, origin) = (permit.actor, permit.scope, permit.origin);
        let org = self.audit_org.or(scope.org().map(|o| o.uuid()));
        let project = scope.project().map(|p| p.uuid());
        let target =
            self.target.take().unwrap_or(Target { kind: "none", id: None, before: None, after: None });
        let events = std::mem::take(&mut self.events);
        let idempotency = self.idempotency.take();
        let (status, body) =
            response.map_or((None, None), |r| (Some(i16::try_from(r.status).unwrap_or(200)), Some(r.body)));
        let (i_principal, i_endpoint, i_key) =
            idempotency.map_or((None, None, None), |c| (Some(c.principal_id), Some(c.endpoint), Some(c.key)));
        let invalidations = self.invalidations.clone();
        sqlx::query_scalar!(
            r#"SELECT write_finish(
                ROW($1, $2, $3, $4, $5, $6, NULL, $7, $8, $9, $10, NULL, NULL, $11, $12, $13, $14, NULL)::audit_entry,
                ROW($15, $16, $17, $18, $19, $20, $21)::event_batch, $22,
                ROW($23, $24, $25, $26, $27)::stored_answer, $28) AS "seq!""#,
            id,
            org.unwrap_or(Uuid::nil()),
            now,
            actor.kind.name(),
            actor.id as Option<Uuid>,
            actor.role,
            self.action,
            target.kind,
            target.id as Option<String>,
            project as Option<Uuid>,
            origin.correlation_id.0,
            origin.source_ip as Option<String>,
            target.before as Option<Vec<u8>>,
            target.after as Option<Vec<u8>>,
            &events.iter().map(|e| e.id).collect::<Vec<_>>(),
            &events.iter().map(|e| e.stream.to_owned()).collect::<Vec<_>>(),
            &events.iter().map(|e| e.event_type.to_owned()).collect::<Vec<_>>(),
            &events.iter().map(|e| e.version).collect::<Vec<_>>(),
            &events.iter().map(|e| e.about.map_or(org, |(org, _)| org)).collect::<Vec<_>>()
                as &[Option<Uuid>],
            &events.iter().map(|e| e.about.map_or(project, |(_, project)| project)).collect::<Vec<_>>()
                as &[Option<Uuid>],
            &events.iter().map(|e| e.payload.clone()).collect::<Vec<_>>(),
            origin.traceparent as Option<String>,
            i_principal as Option<Uuid>,
            i_endpoint as Option<&str>,
            i_key as Option<String>,
            status as Option<i16>,
            body as Option<Vec<u8>>,
            &invalidations,
        )
        .fetch_one(self.conn())
        .await
        .map_err(Error::from_sqlx)
    }
}

impl Drop for WriteTx {
    fn drop(&mut self) {
        if let Some(object) = self.object.take() {
            roll_back_in_background(object);
        }
    }
}
