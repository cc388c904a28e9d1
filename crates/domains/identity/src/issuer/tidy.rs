//! What has to be done now and then: keys grow old, codes and tokens expire.

use chrono::TimeDelta;
use kernel::Failure;

use super::{
    Issuer,
    store::{browsers, codes, devices, guesses, keys, tokens},
};

/// Used codes are kept this long after they expired, to notice when one comes back.
const KEEP_CODES: TimeDelta = TimeDelta::hours(1);

impl Issuer {
    /// Replaces the signing key when it is old, and removes what has expired. Every replica may call it,
    /// every few minutes.
    pub async fn tidy(&self) -> Result<(), Failure> {
        self.0.ring.rotate_by_age().await?;
        let now = self.now();
        let mut quiet = self.quietly().await?;
        keys::remove_expired(quiet.conn(), now).await?;
        browsers::remove_expired(quiet.conn(), now).await?;
        codes::remove_expired(quiet.conn(), now - KEEP_CODES).await?;
        devices::remove_expired(quiet.conn(), now - KEEP_CODES).await?;
        tokens::remove_expired(quiet.conn(), now).await?;
        guesses::remove_expired(quiet.conn()).await?;
        Ok(())
    }
}
