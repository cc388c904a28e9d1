//! Keeping the certificate alive, and following changes of trust.
//!
//! A new key is kept before its certificate is asked for, and the request is made again with the same key until the
//! control plane has heard the new pair: a crash or a lost answer at any point leaves a node that can go on. A new pair
//! is used as soon as it is there; the old one is kept until the control plane has heard the new one, and comes back if
//! the new one is refused. A certificate that has expired cannot renew itself: the agent
//! says so, keeps trying, and takes over the identity that `gpuaas-agent repair` leaves in the store.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use node_proto::contract::RenewRequest;
use tokio::time::{Instant, sleep};

use super::{Session, Who, lock};
use crate::{
    client::CallError,
    executor::Executor,
    identity::{FreshKey, Identity, IdentityError, TrustInForce},
    journal::Journal,
    transport::{Backoff, Connect, fraction},
};

/// Renewal begins so long before the end, or after two thirds of a shorter life.
const LEAD: TimeDelta = TimeDelta::hours(1);
/// Clocks may be set while the agent sleeps, so it never sleeps longer.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);
/// After an attempt the control plane is not asked for trust again sooner.
const TRUST_PAUSE: Duration = Duration::from_secs(10);
/// An answer that asks for a new key may come twice.
const AFTER_ASKED: Duration = Duration::from_secs(1);
const SAY_EVERY: Duration = Duration::from_secs(60);

/// When the pair in use is to be renewed.
struct Plan {
    not_before: DateTime<Utc>,
    expires_at: DateTime<Utc>,
    due_at: DateTime<Utc>,
    lead: TimeDelta,
}

impl<C: Connect, J: Journal, E: Executor> Session<C, J, E> {
    /// Never ends.
    pub(super) async fn renew(self: &Arc<Self>) {
        let mut backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(120));
        let mut plan = self.plan();
        // A request whose answer was lost is made again first of all.
        let mut asked = self.is_pending();
        loop {
            let certified = self.identity().certified.clone();
            if (plan.not_before, plan.expires_at) != (certified.not_before, certified.not_after) {
                plan = self.plan();
            }
            let now = self.client.server_now();
            if now < plan.due_at && !asked {
                let left = (plan.due_at - now).to_std().unwrap_or(LONGEST_SLEEP).min(LONGEST_SLEEP);
                tokio::select! {
                    () = sleep(left) => {}
                    () = self.renew_asked.notified() => asked = true,
                    () = self.not_believed.notified() => {
                        asked = self.is_pending();
                        if !asked {
                            self.refused_early().await;
                        }
                    }
                }
                continue;
            }
            match Box::pin(self.renew_once()).await {
                Ok(()) => {
                    backoff.succeeded();
                    if std::mem::take(&mut asked) {
                        sleep(AFTER_ASKED).await;
                        continue;
                    }
                    // A certificate that is refused at once must not be followed by the next one at once.
                    sleep(plan.lead.to_std().map_or(LONGEST_SLEEP, |lead| (lead / 4).min(LONGEST_SLEEP)))
                        .await;
                }
                Err(_) if self.take_over_repair().await => asked = false,
                Err(error) => {
                    self.log_not_renewed(&plan, now, &error);
                    sleep(backoff.failed(&self.ambient)).await;
                }
            }
        }
    }

    /// Not the same moment for all nodes that joined together.
    fn plan(&self) -> Plan {
        let certified = &self.identity().certified;
        let lead = LEAD.min((certified.not_after - certified.not_before) / 3);
        let spread = fraction(&self.ambient, (lead / 3).to_std().unwrap_or_default());
        let due_at = certified.not_after - lead + TimeDelta::from_std(spread).unwrap_or_default();
        Plan { not_before: certified.not_before, expires_at: certified.not_after, due_at, lead }
    }

    /// The certificate is refused before its end: the node was revoked, or has been repaired.
    async fn refused_early(&self) {
        if !self.take_over_repair().await {
            if self.may_complain() {
                self.log.error(
                    "identity",
                    "the control plane refuses this node's certificate; unless the node was revoked on purpose, \
                     get a repair token for it and run `gpuaas-agent repair`",
                );
            }
            sleep(Duration::from_secs(2)).await;
        }
    }

    fn log_not_renewed(&self, plan: &Plan, now: DateTime<Utc>, error: &IdentityError) {
        let end = plan.expires_at;
        if end > now {
            self.log
                .warn("identity", &format!("the certificate ends at {end} and is not renewed yet: {error}"));
        } else if self.may_complain() {
            let text = format!(
                "the certificate has expired at {end} and cannot be renewed any more; get a repair token for \
                 this node and run `gpuaas-agent repair` ({error})"
            );
            self.log.error("identity", &text);
        }
    }

    /// Once in a while, not with every attempt.
    fn may_complain(&self) -> bool {
        let mut complained = lock(&self.complained);
        let may = complained.is_none_or(|at| at.elapsed() > SAY_EVERY);
        if may {
            *complained = Some(Instant::now());
        }
        may
    }

    async fn renew_once(&self) -> Result<(), IdentityError> {
        let _changing = self.changing_trust.lock().await;
        let identity = self.identity();
        let key = self.pending_key(&identity)?;
        let renewed = match self.client.renew(&RenewRequest { csr_pem: key.csr_pem.clone() }).await {
            // This key is not taken: the next attempt makes another.
            Err(error @ CallError::Refused { status: 400 | 422, .. }) => {
                self.store.discard_pending()?;
                return Err(error.into());
            }
            other => other?,
        };
        let certified = key.certified(&renewed.certificate.chain_pem, self.node)?;
        if certified.not_after <= self.client.server_now() {
            return Err(IdentityError::Certificate("the new one has ended already".to_owned()));
        }
        let trust = match identity.trust.newer(renewed.trust) {
            Ok(trust) => {
                if trust.stored != identity.trust.stored {
                    self.store.save_trust(&trust.stored)?;
                }
                trust
            }
            Err(error) => {
                self.log.error("identity", &format!("trust stays as it was: {error}"));
                identity.trust.clone()
            }
        };
        self.store.save_next(&certified.pair)?;
        let next = Identity { join: identity.join.clone(), certified, trust };
        let tls = next.tls(&self.ambient)?;
        self.log
            .info("identity", &format!("the certificate is renewed and good until {}", next.expires_at()));
        *lock(&self.who) = Who { current: Arc::new(next), before: Some(identity) };
        self.client.change_tls(tls).await;
        self.beat_now.notify_one();
        Ok(())
    }

    /// A key whose certificate was asked for, and has not been used.
    fn is_pending(&self) -> bool {
        let pending = self.store.load_pending().ok().flatten();
        pending.is_some_and(|key| key.expose() != self.identity().certified.pair.key_pem.expose())
    }

    /// The key of a request whose answer may have been lost; or a new one, which is kept before it is used.
    fn pending_key(&self, identity: &Identity) -> Result<FreshKey, IdentityError> {
        if let Some(kept) = self.store.load_pending()?
            && kept.expose() != identity.certified.pair.key_pem.expose()
            && let Ok(key) = FreshKey::read(&kept)
        {
            return Ok(key);
        }
        let key = FreshKey::generate()?;
        self.store.save_pending(&key.key_pem())?;
        Ok(key)
    }

    /// The control plane has accepted a report with the pair in use.
    pub(super) fn new_pair_works(&self) {
        if lock(&self.who).before.take().is_none() {
            return;
        }
        if let Err(error) = self.store.promote_next().and_then(|()| self.store.discard_pending()) {
            // What is kept beside the old pair is found there as well.
            self.log.warn("identity", &error.to_string());
        }
    }

    /// Returns to the previous pair, if the control plane never accepted the new one.
    pub(super) async fn new_pair_refused(&self) {
        let before = {
            let mut who = lock(&self.who);
            let Some(before) = who.before.take() else { return };
            let before = Arc::new(Identity { trust: who.current.trust.clone(), ..(*before).clone() });
            who.current = before.clone();
            before
        };
        self.log.error("identity", "the new certificate is refused; going back to the one before");
        if let Err(error) = self.store.discard_next() {
            self.log.warn("identity", &error.to_string());
        }
        if let Ok(tls) = before.tls(&self.ambient) {
            self.client.change_tls(tls).await;
        }
    }

    /// True when the store has another identity than the one in use, which is refused. Which of them ends later says
    /// nothing: a repair may give a certificate of a shorter life.
    async fn take_over_repair(&self) -> bool {
        let current = self.identity();
        let Ok(Some(stored)) = self.store.load() else { return false };
        let is_other = stored.certified.pair.chain_pem != current.certified.pair.chain_pem;
        if !is_other || stored.node_id() != self.node {
            return false;
        }
        let Ok(tls) = stored.tls(&self.ambient) else { return false };
        self.log
            .info("identity", &format!("took over a certificate that is good until {}", stored.expires_at()));
        *lock(&self.who) = Who { current: Arc::new(stored), before: None };
        self.client.change_tls(tls).await;
        self.beat_now.notify_one();
        true
    }

    /// Asks for the trust in force and takes it over, if it is newer and rightly signed. True when it was.
    pub(super) async fn refresh_trust(&self) -> bool {
        let mut not_before = self.changing_trust.lock().await;
        if not_before.is_some_and(|at| Instant::now() < at) {
            return false;
        }
        *not_before = Some(Instant::now() + TRUST_PAUSE);
        let identity = self.identity();
        let taken = async {
            let trust = identity.trust.newer(self.client.trust().await?)?;
            if trust.stored != identity.trust.stored {
                self.store.save_trust(&trust.stored)?;
            }
            Ok::<TrustInForce, IdentityError>(trust)
        };
        match taken.await {
            Ok(trust) => {
                let roots_changed = trust.root_digests() != identity.trust.root_digests();
                let serial = trust.keyset.serial;
                let next = {
                    let mut who = lock(&self.who);
                    who.current = Arc::new(Identity { trust, ..(*who.current).clone() });
                    who.current.clone()
                };
                self.log.info("identity", &format!("trust is in force: list of signers {serial}"));
                if roots_changed && let Ok(tls) = next.tls(&self.ambient) {
                    self.client.change_tls(tls).await;
                }
                true
            }
            Err(error) => {
                self.log.warn("identity", &format!("trust stays as it was: {error}"));
                false
            }
        }
    }
}
