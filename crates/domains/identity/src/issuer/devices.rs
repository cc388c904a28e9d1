//! Devices without a browser: a code for the device, a shorter one for the person, a decision.

use kernel::{Code, Failure, Problem, Secret};
use pg::Origin;

use super::{
    Issuer,
    model::{self, DEVICE_CODE_LIFE, DEVICE_POLL_SECONDS},
    sessions::{Browser, by_themselves},
    store::devices as store,
};

/// A taken user code is drawn again; that many in a row does not happen.
const DRAWS: usize = 8;

impl Issuer {
    /// (device code, user code)
    pub(crate) async fn device_create(
        &self,
        client_id: &str,
        scope: &str,
        origin: &Origin,
    ) -> Result<(Secret, String), Failure> {
        let (now, ambient) = (self.now(), self.0.db.ambient());
        let (device_code, device_hash) = model::new_secret(ambient);
        let mut quiet = self.quietly().await?;
        for _ in 0..DRAWS {
            let user_code = model::new_user_code(ambient);
            let new = store::NewDevice {
                device_hash: &device_hash,
                user_code: &user_code,
                client_id,
                scope,
                source_ip: origin.source_ip.as_deref(),
                interval_seconds: DEVICE_POLL_SECONDS,
                expires_at: now + DEVICE_CODE_LIFE,
            };
            if store::insert(quiet.conn(), new, now).await? {
                return Ok((device_code, user_code));
            }
        }
        // So many codes are taken that each draw met one.
        Err(Problem::from_code(Code::ServiceUnavailable).retry_after(1).into())
    }

    pub(crate) async fn device_waiting(&self, user_code: &str) -> Result<Option<store::Waiting>, Failure> {
        Ok(store::find_waiting(self.quietly().await?.conn(), user_code, self.now()).await?)
    }

    /// False when there is nothing (any more) to decide.
    pub(crate) async fn device_decide(
        &self,
        user_code: &str,
        browser: &Browser,
        approve: bool,
        origin: &Origin,
    ) -> Result<bool, Failure> {
        let (now, account) = (self.now(), &browser.account);
        let user = self.user_of(account, origin).await?;
        let action = if approve { "auth.device.approve" } else { "auth.device.deny" };
        let mut tx = self.0.db.write(by_themselves(user, origin.clone()), action).await?;
        let done = if approve {
            store::approve(tx.conn(), user_code, account.id.uuid(), &browser.hash, browser.auth_time, now)
                .await?
        } else {
            store::deny(tx.conn(), user_code, now).await?
        };
        if !done {
            tx.roll_back().await;
            return Ok(false);
        }
        tx.record::<(), ()>("local_account", account.id, None, None)?;
        tx.commit(None).await?;
        Ok(true)
    }
}
