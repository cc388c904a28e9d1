//! Rotating the certificate authority.

use std::collections::HashMap;

use events::fleet::AuthorityChanged;
use kernel::{Code, Failure, Page, PageQuery, Problem, hex::Hex, ids::AuthorityId, text::Reason};
use lifecycle::{Lifecycle as _, Named as _};
use pg::{Connection, ReadTx, WriteTx};
use uuid::Uuid;

use super::{
    super::{
        Trust,
        model::{
            Confirmed, Step,
            authority::{Authority, AuthorityEvent, AuthorityLifecycle, AuthorityState},
            not_from,
        },
        store::{self, authorities::AuthorityRow},
    },
    target,
};

/// How many nodes believe which generation.
struct Counts {
    by_id: HashMap<Uuid, i64>,
    total: i64,
}

impl Counts {
    async fn read(conn: &mut Connection) -> Result<Self, sqlx::Error> {
        let by_id = store::nodes::by_authority(conn).await?.into_iter().collect();
        Ok(Self { by_id, total: store::nodes::total(conn).await? })
    }

    fn confirmed_for(&self, id: AuthorityId) -> Confirmed {
        Confirmed { nodes: self.by_id.get(&id.uuid()).copied().unwrap_or(0), of: self.total }
    }
}

impl Trust {
    pub async fn authority_list(
        &self,
        tx: &mut ReadTx,
        page: &PageQuery,
    ) -> Result<Page<Authority>, Failure> {
        let counts = Counts::read(tx.conn()).await?;
        let rows = store::authorities::list(tx.conn(), page).await?;
        let views = rows.into_iter().map(|row| self.authority_view(row, &counts)).collect();
        Ok(page.page(views, |authority: &Authority| authority.id.uuid()))
    }

    /// A new generation, which nodes learn to believe before it is used.
    pub async fn authority_stage(
        &self,
        tx: &mut WriteTx,
        reason: Option<Reason>,
    ) -> Result<Authority, Failure> {
        store::lock(tx.conn()).await?;
        let id = self.0.db.ambient().id::<AuthorityId>();
        self.authority_insert(tx, id, AuthorityState::Staged).await?;
        let step = Step { force: false, reason };
        self.authority_changed(tx, None, id, &step).await
    }

    /// From now on certificates come from it; the generation before stays believed.
    pub async fn authority_activate(
        &self,
        tx: &mut WriteTx,
        id: AuthorityId,
        step: Step,
    ) -> Result<Authority, Failure> {
        step.check()?;
        store::lock(tx.conn()).await?;
        let row = self.authority_row(tx, id).await?;
        check(&row, AuthorityEvent::Activate)?;
        self.check_heir(tx, &row, &step).await?;
        if let Some(old) = self.authority_in(tx, AuthorityState::Active).await? {
            self.authority_move(tx, &old, AuthorityEvent::Supersede, step.reason()).await?;
        }
        self.authority_move(tx, &row, AuthorityEvent::Activate, step.reason()).await?;
        self.authority_changed(tx, Some(&row), id, &step).await
    }

    /// Its root is believed no more. Refused while nodes live by its certificates.
    pub async fn authority_retire(
        &self,
        tx: &mut WriteTx,
        id: AuthorityId,
        step: Step,
    ) -> Result<Authority, Failure> {
        step.check()?;
        store::lock(tx.conn()).await?;
        let row = self.authority_row(tx, id).await?;
        check(&row, AuthorityEvent::Retire)?;
        let live = store::authorities::live_certificates(tx.conn(), id, self.0.db.ambient().now()).await?;
        if live > 0 && !step.force {
            return Err(Problem::new(Code::InUse, format!("{live} valid certificates of nodes were issued by it."))
                .detail("certificates", live)
                .suggest("Wait until nodes have renewed their certificates (at most the lifetime of a certificate), or send force with a reason.")
                .into());
        }
        self.authority_move(tx, &row, AuthorityEvent::Retire, step.reason()).await?;
        self.authority_changed(tx, Some(&row), id, &step).await
    }

    /// Nothing of it counts any more, from now on. In place of the active one comes the staged one.
    pub async fn authority_revoke(
        &self,
        tx: &mut WriteTx,
        id: AuthorityId,
        step: Step,
    ) -> Result<Authority, Failure> {
        step.check()?;
        store::lock(tx.conn()).await?;
        let row = self.authority_row(tx, id).await?;
        let state = check(&row, AuthorityEvent::Revoke)?;
        let heir = match state {
            AuthorityState::Active => {
                let staged = self.authority_in(tx, AuthorityState::Staged).await?.ok_or_else(|| {
                    Problem::new(
                        Code::InvalidTransition,
                        "Without the active generation, no certificate could be issued.",
                    )
                    .suggest("Stage a generation first; it becomes active when this one is revoked.")
                })?;
                self.check_heir(tx, &staged, &step).await?;
                Some(staged)
            }
            _ => None,
        };
        self.authority_move(tx, &row, AuthorityEvent::Revoke, step.reason()).await?;
        if let Some(heir) = heir {
            self.authority_move(tx, &heir, AuthorityEvent::Activate, step.reason()).await?;
        }
        self.authority_changed(tx, Some(&row), id, &step).await
    }

    async fn authority_row(&self, tx: &mut WriteTx, id: AuthorityId) -> Result<AuthorityRow, Failure> {
        let row = store::authorities::get(tx.conn(), id).await?;
        Ok(row.ok_or_else(|| Problem::not_found("authority"))?)
    }

    async fn authority_in(
        &self,
        tx: &mut WriteTx,
        state: AuthorityState,
    ) -> Result<Option<AuthorityRow>, Failure> {
        let rows = store::authorities::believed(tx.conn()).await?;
        Ok(rows.into_iter().find(|row| row.state == state))
    }

    /// Whoever comes into use must be ours, and known to the nodes.
    async fn check_heir(&self, tx: &mut WriteTx, heir: &AuthorityRow, step: &Step) -> Result<(), Failure> {
        if self.open(heir).is_none() {
            return Err(Problem::new(
                Code::Unprocessable,
                "Its keys cannot be decrypted with the master key: another installation created it.",
            )
            .suggest("Revoke it and stage a new one.")
            .into());
        }
        Ok(Counts::read(tx.conn()).await?.confirmed_for(heir.id()).check(step, "its root")?)
    }

    async fn authority_move(
        &self,
        tx: &mut WriteTx,
        row: &AuthorityRow,
        event: AuthorityEvent,
        reason: &str,
    ) -> Result<(), Failure> {
        let from = row.state;
        let to = AuthorityLifecycle::next(from, event)
            .ok_or_else(|| not_from("authority", from.name(), event.name()))?;
        let now = self.0.db.ambient().now();
        let moved = store::authorities::set_state(tx.conn(), row.id(), from, to, now).await?;
        moved.ok_or_else(|| Problem::from_code(Code::Conflict))?;
        tx.emit(&AuthorityChanged { authority_id: row.id(), state: to, reason: reason.to_owned() })?;
        tx.invalidate(format!("authority:{}", row.id));
        Ok(())
    }

    /// Leaves the audit target, and shows how it is now.
    async fn authority_changed(
        &self,
        tx: &mut WriteTx,
        before: Option<&AuthorityRow>,
        id: AuthorityId,
        step: &Step,
    ) -> Result<Authority, Failure> {
        let counts = Counts::read(tx.conn()).await?;
        let after = self.authority_row(tx, id).await?;
        let before = before.map(|row| self.authority_view(row.clone(), &counts));
        let after = self.authority_view(after, &counts);
        if before.is_none() {
            let (state, reason) = (after.state, step.reason().to_owned());
            tx.emit(&AuthorityChanged { authority_id: id, state, reason })?;
            tx.invalidate(format!("authority:{}", id.uuid()));
        }
        tx.record("authority", target(id, step.reason()), before.as_ref(), Some(&after))?;
        Ok(after)
    }

    /// Certificates as they are sealed, where they are ours: the readable columns could say anything.
    fn authority_view(&self, row: AuthorityRow, counts: &Counts) -> Authority {
        let opened = self.open(&row);
        let hex = |digest: [u8; 32]| Hex(digest.to_vec());
        let (id, confirmed) = (row.id(), counts.confirmed_for(row.id()));
        Authority {
            id,
            state: row.state,
            genuine: opened.is_some(),
            root_sha256: opened.as_ref().map(|a| hex(a.root().fingerprint())),
            issuing_sha256: opened.as_ref().map(|a| hex(a.issuing_fingerprint())),
            not_after: opened.as_ref().map_or(row.not_after, trust::ca::Authority::not_after),
            root_certificate: opened.as_ref().map_or(row.root_certificate, |a| a.root_pem()),
            issuing_certificate: opened.as_ref().map_or(row.issuing_certificate, |a| a.issuing_pem()),
            nodes_confirmed: confirmed.nodes,
            nodes_total: confirmed.of,
            version: row.version,
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

fn check(row: &AuthorityRow, event: AuthorityEvent) -> Result<AuthorityState, Problem> {
    match AuthorityLifecycle::next(row.state, event) {
        Some(_) => Ok(row.state),
        None => Err(not_from("authority", row.state.name(), event.name())),
    }
}
