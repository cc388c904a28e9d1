//! Rotating the signers: rows, the next list and its signature in one transaction.

use std::collections::BTreeMap;

use events::fleet::SignerChanged;
use kernel::{Code, Failure, Page, PageQuery, Problem, hex::Hex, text::Reason};
use lifecycle::{Lifecycle as _, Named as _};
use node_proto::Keyset;
use pg::{Connection, ReadTx, WriteTx};
use uuid::Uuid;

use super::{
    super::{
        Trust, TrustError,
        model::{
            Confirmed, Step,
            keyset::{self, Change, KeysetView},
            not_from,
            signer::{Signer, SignerEvent, SignerLifecycle, SignerState, signer_is_believed},
        },
        store::{self, signers::SignerRow},
    },
    ensure::next_serial,
    target,
};

/// The list in force, since when each signer is what it is, and which nodes know.
struct KeysetStatus {
    keyset: Keyset,
    since: BTreeMap<u32, u64>,
    by_serial: Vec<(i64, i64)>,
    total: i64,
}

impl KeysetStatus {
    fn confirmed_for(&self, signer_version: u32) -> (Option<u64>, Confirmed) {
        let since = self.since.get(&signer_version).copied();
        // When it is not known since when, only nodes with the list in force count.
        let at_least = since.unwrap_or(self.keyset.serial);
        let knows = |serial: i64| u64::try_from(serial).is_ok_and(|serial| serial >= at_least);
        let nodes = self.by_serial.iter().filter(|(serial, _)| knows(*serial)).map(|(_, count)| count).sum();
        (since, Confirmed { nodes, of: self.total })
    }
}

impl Trust {
    pub async fn signer_list(&self, tx: &mut ReadTx, page: &PageQuery) -> Result<Page<Signer>, Failure> {
        let status = self.keyset_status(tx.conn()).await?;
        let rows = store::signers::list(tx.conn(), page).await?;
        let views = rows.into_iter().map(|row| view(row, &status)).collect();
        Ok(page.page(views, |signer: &Signer| Uuid::from_u128(signer.signer_version.into())))
    }

    pub async fn keyset_get(&self) -> Result<KeysetView, Failure> {
        let (keyset, signed) = self.keyset().await?;
        Ok(KeysetView { keyset, signed, keyset_key: self.keyset_key().hex() })
    }

    /// A new key in custody, announced to nodes before it is used.
    pub async fn signer_stage(&self, tx: &mut WriteTx, reason: Option<Reason>) -> Result<Signer, Failure> {
        let custody = self.custody()?;
        store::lock(tx.conn()).await?;
        let current = self.current(tx.conn()).await?;
        let (stored, _) = store::signers::highest(tx.conn()).await?;
        let listed = current.signers.iter().map(|key| key.signer_version).max().unwrap_or_default();
        let highest = u32::try_from(stored).unwrap_or_default().max(listed);
        let next = highest.checked_add(1).filter(|v| i32::try_from(*v).is_ok());
        let version = next.ok_or(TrustError::Exhausted)?;
        // Before a key is made: is there room for it?
        Change::Stage { signer_version: version, public_key: Vec::new() }.moves(&current)?;
        let public_key = custody.generate(version)?;
        let now = self.0.db.ambient().now();
        let state = SignerState::Staged;
        store::signers::insert(tx.conn(), number(version)?, state, &public_key, now).await?;
        let change = Change::Stage { signer_version: version, public_key: public_key.to_vec() };
        self.signer_change(tx, &current, version, &change, &Step { force: false, reason }).await
    }

    /// From now on it signs new work; what the one before signed still counts.
    pub async fn signer_activate(
        &self,
        tx: &mut WriteTx,
        version: u32,
        step: Step,
    ) -> Result<Signer, Failure> {
        step.check()?;
        let current = self.begin(tx, version).await?;
        let change = Change::Activate(version);
        change.moves(&current)?;
        let (_, confirmed) = self.keyset_status(tx.conn()).await?.confirmed_for(version);
        confirmed.check(&step, "the keyset with this signer")?;
        self.signer_change(tx, &current, version, &change, &step).await
    }

    /// Nothing that it signed counts any more. Nodes learn it with their next report.
    pub async fn signer_retire(&self, tx: &mut WriteTx, version: u32, step: Step) -> Result<Signer, Failure> {
        step.check()?;
        let current = self.begin(tx, version).await?;
        self.signer_change(tx, &current, version, &Change::Retire(version), &step).await
    }

    /// The same at once and from any state; in place of the active one comes the staged one.
    pub async fn signer_revoke(
        &self,
        tx: &mut WriteTx,
        version: u32,
        reason: Reason,
    ) -> Result<Signer, Failure> {
        let current = self.begin(tx, version).await?;
        let step = Step::because(reason);
        if keyset::find(&current, version).is_some() {
            return self.signer_change(tx, &current, version, &Change::Revoke(version), &step).await;
        }
        // Nodes do not believe it anyway (it was retired, or is not ours): only the row changes.
        let row = self.signer_row(tx, version).await?;
        self.signer_move(tx, version, row.state, SignerEvent::Revoke, current.serial, &step).await?;
        self.signer_changed(tx, Some(row), version, &step).await
    }

    async fn begin(&self, tx: &mut WriteTx, version: u32) -> Result<Keyset, Failure> {
        self.custody()?;
        store::lock(tx.conn()).await?;
        self.signer_row(tx, version).await?;
        self.current(tx.conn()).await
    }

    /// The list in force as the database has it now, its signature checked.
    async fn current(&self, conn: &mut Connection) -> Result<Keyset, Failure> {
        let checked = self.newest_keyset(conn).await?;
        let text = "No keyset is signed by our key; restore the database or the signing directory.";
        Ok(checked.ok_or_else(|| Problem::new(Code::ServiceUnavailable, text))?.keyset)
    }

    async fn keyset_status(&self, conn: &mut Connection) -> Result<KeysetStatus, Failure> {
        let keyset = self.current(conn).await?;
        let since = keyset::since(&self.keyset_history(conn).await?);
        let by_serial = store::nodes::by_serial(conn).await?;
        Ok(KeysetStatus { keyset, since, by_serial, total: store::nodes::total(conn).await? })
    }

    async fn signer_row(&self, tx: &mut WriteTx, version: u32) -> Result<SignerRow, Failure> {
        let row = match i32::try_from(version) {
            Ok(version) => store::signers::get(tx.conn(), version).await?,
            Err(_) => None,
        };
        Ok(row.ok_or_else(|| Problem::not_found("signer"))?)
    }

    async fn signer_change(
        &self,
        tx: &mut WriteTx,
        current: &Keyset,
        version: u32,
        change: &Change,
        step: &Step,
    ) -> Result<Signer, Failure> {
        let custody = self.custody()?;
        let before = match change {
            Change::Stage { .. } => None,
            _ => Some(self.signer_row(tx, version).await?),
        };
        let (_, stored) = store::signers::highest(tx.conn()).await?;
        let serial = next_serial(stored.max(i64::try_from(current.serial).unwrap_or(i64::MAX)), custody)?;
        let (next, moves) = change.next(current, serial, self.0.db.ambient().now())?;
        for (moved, event) in moves {
            let state = keyset::find(current, moved).map(|key| keyset::state_of(key.state));
            let state = state.ok_or(TrustError::RowDisagrees(moved))?;
            self.signer_move(tx, moved, state, event, serial, step).await?;
        }
        self.keyset_publish(tx, custody, &next).await?;
        if before.is_none() {
            let (state, reason) = (SignerState::Staged, step.reason().to_owned());
            tx.emit(&SignerChanged { signer_version: version, state, keyset_serial: serial, reason })?;
            tx.invalidate(format!("signer:{version}"));
        }
        self.signer_changed(tx, before, version, step).await
    }

    async fn signer_move(
        &self,
        tx: &mut WriteTx,
        version: u32,
        from: SignerState,
        event: SignerEvent,
        keyset_serial: u64,
        step: &Step,
    ) -> Result<(), Failure> {
        let to = SignerLifecycle::next(from, event)
            .ok_or_else(|| not_from("signer", from.name(), event.name()))?;
        let now = self.0.db.ambient().now();
        let moved = store::signers::set_state(tx.conn(), number(version)?, from, to, now).await?;
        moved.ok_or(TrustError::RowDisagrees(version))?;
        let reason = step.reason().to_owned();
        tx.emit(&SignerChanged { signer_version: version, state: to, keyset_serial, reason })?;
        tx.invalidate(format!("signer:{version}"));
        Ok(())
    }

    /// Leaves the audit target, and shows how it is now.
    async fn signer_changed(
        &self,
        tx: &mut WriteTx,
        before: Option<SignerRow>,
        version: u32,
        step: &Step,
    ) -> Result<Signer, Failure> {
        let status = self.keyset_status(tx.conn()).await?;
        let before = before.map(|row| view(row, &status));
        let after = view(self.signer_row(tx, version).await?, &status);
        tx.record("signer", target(version, step.reason()), before.as_ref(), Some(&after))?;
        Ok(after)
    }
}

fn view(row: SignerRow, status: &KeysetStatus) -> Signer {
    let version = row.number();
    let (keyset_serial, confirmed) = status.confirmed_for(version);
    let listed = keyset::find(&status.keyset, version);
    let said = listed.map(|key| keyset::state_of(key.state));
    let genuine = match listed {
        Some(key) => said == Some(row.state) && key.public_key.0 == row.public_key,
        None => !signer_is_believed(row.state),
    };
    Signer {
        signer_version: version,
        state: row.state,
        genuine,
        public_key: Hex(row.public_key),
        keyset_serial,
        nodes_confirmed: confirmed.nodes,
        nodes_total: confirmed.of,
        version: row.version,
        created_at: row.created_at,
        updated_at: row.updated_at,
    }
}

fn number(version: u32) -> Result<i32, TrustError> {
    i32::try_from(version).map_err(|_| TrustError::Exhausted)
}
