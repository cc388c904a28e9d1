//! Credits that a rule alone does not decide: a person does, once, and what is given is exact.

use billing::{
    model::adjustment::{Adjustment, AdjustmentState},
    service::adjustments::{adjustment_approve, adjustment_list, adjustment_reject},
};
use kernel::{
    Code, Failure, PageQuery, Permission, Role,
    ids::{AdjustmentId, AllocationId, UserId},
};
use pg::{Actor, ActorKind, Permit, Scope, WriteTx};
use testmoney::TestMoney;

use super::{
    bank::{self, Bank, RATE},
    credits::{GPU, billed_between, cost, found, node, now, resolved},
    kit::{MACHINE, SLICE},
};

impl Bank {
    /// An administrator who may move money.
    async fn as_treasurer(&self, who: UserId) -> WriteTx {
        let role = Role::PlatformAdmin;
        let actor = Actor { kind: ActorKind::User, id: Some(who.uuid()), role: role.name() };
        let granted = role.permissions().authorize(Permission::MoneyManage).unwrap();
        let permit = Permit::granted(actor, Scope::Platform, self.origin(), granted);
        self.test.db.write(permit, "adjustment.test").await.unwrap()
    }

    pub async fn waiting(&self) -> Vec<Adjustment> {
        let permit = Permit::system("test", self.origin());
        let mut tx = self.test.db.read(&permit).await.unwrap();
        let listed = adjustment_list(&mut tx, None, None, &PageQuery::default()).await.unwrap();
        listed.items.into_iter().filter(|adjustment| adjustment.state == AdjustmentState::Proposed).collect()
    }

    pub async fn approved(&self, id: AdjustmentId) -> Result<Adjustment, Failure> {
        let billing = TestMoney::new(&self.test.db).billing;
        let mut tx = self.as_treasurer(self.other).await;
        match adjustment_approve(&billing, &mut tx, self.other, id).await {
            Ok(done) => {
                tx.commit(None).await.unwrap();
                Ok(done)
            }
            Err(failure) => {
                tx.roll_back().await;
                Err(failure)
            }
        }
    }

    async fn rejected(&self, id: AdjustmentId) {
        let billing = TestMoney::new(&self.test.db).billing;
        let mut tx = self.as_treasurer(self.other).await;
        adjustment_reject(&billing, &mut tx, self.other, id).await.unwrap();
        tx.commit(None).await.unwrap();
    }

    /// Given back by its user, and posted to the end.
    pub async fn released(&self, id: AllocationId) {
        let mut tx = self.as_creator().await;
        capacity::service::release::allocation_release(&self.capacity, &mut tx, self.asked(id))
            .await
            .unwrap();
        tx.commit(None).await.unwrap();
        assert_eq!(self.drive(&id.to_string()).await, "succeeded");
        self.accrue().await;
        assert_eq!(self.meter(id).await, "settled");
    }
}

/// A bank whose tenants are root on whole machines.
async fn with_root() -> Bank {
    let bank = Bank::with(100 * RATE).await;
    bank.test.set_global_policy("allocation.isolation_model", "\"full-reimage\"").await;
    bank
}

#[tokio::test]
async fn a_tenant_with_root_who_unbinds_a_gpu_pays_until_somebody_has_looked_at_it() {
    let bank = with_root().await;
    let id = bank.active(MACHINE).await;
    bank.later(1_000);
    let since = now(&bank);
    let finding = found(&bank, node(&bank, id).await, GPU, "gpu.missing", since).await;
    bank.deliver().await;
    assert_eq!(bank.meter(id).await, "open", "the other GPUs are not free");
    bank.later(500);
    bank.accrue().await;
    let all = billed_between(&bank, id).await;
    assert_eq!(bank.charged(id).await, cost(all));
    let waiting = bank.waiting().await;
    assert_eq!(waiting.len(), 1, "{waiting:?}");
    let fault = waiting[0].fault.clone().unwrap();
    assert_eq!((fault.allocation_id, fault.finding_id, fault.until), (id, finding, None));
    assert_eq!((fault.cause.name(), waiting[0].proposed_by), ("tenant_root", None));
    assert_eq!(bank.events("billing.adjustment_waiting").await, 1, "who may approve is told");

    resolved(&bank, finding).await;
    bank.deliver().await;
    bank.later(700);
    bank.accrue().await;
    let all = billed_between(&bank, id).await;
    assert_eq!(bank.charged(id).await, cost(all), "nothing moved");
    let fault = bank.waiting().await.remove(0).fault.unwrap();
    let lasted = (fault.until.unwrap().timestamp()) - fault.since.timestamp();
    assert!((500..=502).contains(&lasted), "{lasted}");
    let done = bank.approved(waiting[0].id).await.unwrap();
    assert_eq!((done.state, done.decided_by), (AdjustmentState::Posted, Some(bank.other)));
    assert_eq!(bank.charged(id).await, cost(all - lasted), "exact to the second");
    assert_eq!(done.amount_minor, cost(all) - cost(all - lasted));
    assert_eq!(bank.meter(id).await, "open");
    assert_eq!(
        bank.events("billing.adjustment_waiting").await,
        1,
        "once, however much is heard of the fault"
    );
    bank::hold(&bank.test).await;
}

#[tokio::test]
async fn what_is_approved_while_it_lasts_stands_still_and_what_is_rejected_is_paid_for() {
    let bank = with_root().await;
    let (sick, liar) = (bank.active(MACHINE).await, bank.active(MACHINE).await);
    bank.later(300);
    let finding = found(&bank, node(&bank, sick).await, GPU, "xid.79", now(&bank)).await;
    found(&bank, node(&bank, liar).await, GPU, "gpu.driver", now(&bank)).await;
    found(&bank, node(&bank, liar).await, GPU, "gpu.missing", now(&bank)).await;
    bank.deliver().await;
    bank.later(600);
    bank.accrue().await;
    let waiting = bank.waiting().await;
    assert_eq!(waiting.len(), 2, "gpu.driver does not pay: {waiting:?}");
    for adjustment in waiting {
        if adjustment.fault.unwrap().allocation_id == sick {
            bank.approved(adjustment.id).await.unwrap();
        } else {
            bank.rejected(adjustment.id).await;
        }
    }
    assert_eq!((bank.meter(sick).await.as_str(), bank.meter(liar).await.as_str()), ("paused", "open"));
    let charged = bank.charged(sick).await;
    assert!((cost(300)..=cost(303)).contains(&charged), "{charged}");
    bank.later(100);
    resolved(&bank, finding).await;
    bank.deliver().await;
    assert_eq!(bank.meter(sick).await, "open");
    bank.accrue().await;
    assert_eq!(bank.charged(liar).await, cost(billed_between(&bank, liar).await));
    assert_eq!(bank.waiting().await.len(), 0);
    bank::hold(&bank.test).await;
}

#[tokio::test]
async fn whatever_is_reported_by_a_machine_on_which_the_tenant_is_root_is_reviewed() {
    let bank = with_root().await;
    let (slice, whole) = (bank.active(SLICE).await, bank.active(MACHINE).await);
    found(&bank, node(&bank, slice).await, GPU, "gpu.missing", now(&bank)).await;
    found(&bank, node(&bank, whole).await, GPU, "xid.95", now(&bank)).await;
    bank.deliver().await;
    assert_eq!((bank.meter(slice).await.as_str(), bank.meter(whole).await.as_str()), ("paused", "open"));
    let waiting = bank.waiting().await;
    assert_eq!(waiting.len(), 1, "a slice has no root on the machine: {waiting:?}");
    let fault = waiting[0].fault.as_ref().unwrap();
    assert_eq!(
        (fault.allocation_id, fault.code.as_str(), fault.cause.name()),
        (whole, "xid.95", "tenant_root")
    );
    let unprivileged = Bank::with(100 * RATE).await;
    let id = unprivileged.active(MACHINE).await;
    found(&unprivileged, node(&unprivileged, id).await, GPU, "gpu.missing", now(&unprivileged)).await;
    unprivileged.deliver().await;
    assert_eq!(unprivileged.meter(id).await, "paused", "who is not root cannot have caused it");
}

#[tokio::test]
async fn above_the_policy_the_past_waits_and_the_meter_stands_still_meanwhile() {
    let bank = Bank::with(100 * RATE).await;
    bank.test.set_global_policy("billing.credit_approval_minor", "100").await;
    let id = bank.active(SLICE).await;
    bank.later(1_000);
    let since = now(&bank);
    bank.later(777);
    bank.accrue().await;
    let before = bank.charged(id).await;
    let finding = found(&bank, node(&bank, id).await, GPU, "xid.79", since).await;
    bank.deliver().await;
    assert_eq!(bank.meter(id).await, "paused");
    assert!(bank.charged(id).await >= before, "nothing went back yet");
    bank.later(500);
    resolved(&bank, finding).await;
    bank.deliver().await;
    bank.accrue().await;
    let waiting = bank.waiting().await;
    assert_eq!(waiting.len(), 1, "{waiting:?}");
    assert_eq!(waiting[0].fault.as_ref().unwrap().cause.name(), "amount");
    assert!((cost(776)..=cost(779) + 1).contains(&waiting[0].amount_minor), "{}", waiting[0].amount_minor);
    bank.approved(waiting[0].id).await.unwrap();
    let sick: i64 =
        bank.one("SELECT sum(extract(epoch FROM resumed_at - since))::bigint FROM meter_pauses").await;
    assert!((1_277..=1_281).contains(&sick), "{sick}");
    assert_eq!(bank.charged(id).await, cost(billed_between(&bank, id).await - sick));
    bank::hold(&bank.test).await;
}

#[tokio::test]
async fn what_ended_before_its_faults_were_known_gets_each_second_back_once_when_somebody_agrees() {
    let bank = Bank::with(100 * RATE).await;
    let id = bank.active(SLICE).await;
    let host = node(&bank, id).await;
    bank.later(400);
    let early = now(&bank);
    bank.later(100);
    let late = now(&bank);
    bank.later(301);
    bank.released(id).await;
    let all = billed_between(&bank, id).await;
    found(&bank, host, GPU, "xid.79", late).await;
    bank.deliver().await;
    found(&bank, host, "node", "xid.79", early).await;
    bank.deliver().await;
    assert_eq!(bank.charged(id).await, cost(all), "it has ended: a person decides");
    let mut waiting = bank.waiting().await;
    assert_eq!(waiting.len(), 2, "{waiting:?}");
    assert!(waiting.iter().all(|adjustment| adjustment.fault.as_ref().unwrap().cause.name() == "ended"));
    waiting.sort_by_key(|adjustment| adjustment.fault.as_ref().unwrap().since);
    let (first, second) = (waiting[0].id, waiting[1].id);
    bank.approved(second).await.unwrap();
    let charged = bank.charged(id).await;
    assert!((cost(all - 303)..=cost(all - 300)).contains(&charged), "{charged} for {all} seconds");
    bank.approved(first).await.unwrap();
    let charged = bank.charged(id).await;
    assert!(
        (cost(all - 403)..=cost(all - 400)).contains(&charged),
        "the earlier part, too: {charged} for {all} seconds"
    );
    assert_eq!(bank.events("billing.credit_posted").await, 2);
    let again = bank.approved(second).await;
    assert!(matches!(again, Err(Failure::Problem(problem)) if problem.code == Code::InvalidTransition));
    // A third one for the same time has nothing to give back, and says so by not being there.
    found(&bank, host, GPU, "xid.95", late).await;
    bank.deliver().await;
    assert_eq!(bank.waiting().await.len(), 0);
    bank::hold(&bank.test).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_approval_that_races_with_the_resolution_leaves_no_meter_standing_still() {
    let bank = with_root().await;
    for _ in 0..15 {
        let id = bank.active(MACHINE).await;
        bank.later(100);
        let finding = found(&bank, node(&bank, id).await, GPU, "xid.79", now(&bank)).await;
        bank.deliver().await;
        bank.later(600);
        let waiting = bank.waiting().await.remove(0).id;
        resolved(&bank, finding).await;
        let (approved, ()) = tokio::join!(bank.approved(waiting), bank.deliver());
        approved.unwrap();
        assert_eq!(bank.meter(id).await, "open");
        let sick: i64 = bank
            .one(&format!(
                "SELECT sum(extract(epoch FROM p.resumed_at - p.since))::bigint FROM meter_pauses p
                 JOIN meters m ON m.id = p.meter_id WHERE m.allocation_id = '{}'",
                id.uuid()
            ))
            .await;
        assert!((599..=603).contains(&sick), "{sick}");
        bank.accrue().await;
        assert_eq!(bank.charged(id).await, cost(billed_between(&bank, id).await - sick));
    }
    bank::hold(&bank.test).await;
}
