//! Passwords: argon2id in a few places of its own, so that guesses cannot take all processors.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use argon2::{
    Algorithm, Argon2, Params, PasswordHasher as _, PasswordVerifier as _, Version,
    password_hash::{PasswordHash, SaltString},
};
use kernel::{Ambient, Code, Failure, Problem, Secret};
use tokio::sync::Semaphore;

use super::config::Argon2Params;

const WAIT_FOR_A_PLACE: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
enum HashError {
    #[error("the argon2 settings are not usable: {0}")]
    Params(argon2::Error),
    #[error("a password cannot be hashed: {0}")]
    Hash(argon2::password_hash::Error),
    #[error("a hashing task did not finish")]
    Task(#[source] tokio::task::JoinError),
}

pub(crate) struct Passwords {
    params: Argon2Params,
    ambient: Ambient,
    places: Arc<Semaphore>,
    /// What unknown accounts are checked against: it takes as long, and nothing matches it.
    nobody: Arc<OnceLock<String>>,
}

impl Passwords {
    pub fn new(params: Argon2Params, ambient: Ambient) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        Self {
            params,
            ambient,
            places: Arc::new(Semaphore::new((cores / 2).max(1))),
            nobody: Arc::new(OnceLock::new()),
        }
    }

    async fn in_its_place<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, HashError> + Send + 'static,
    ) -> Result<T, Failure> {
        let place = tokio::time::timeout(WAIT_FOR_A_PLACE, self.places.clone().acquire_owned()).await;
        let Ok(Ok(place)) = place else {
            let text = "Too many concurrent password checks.";
            return Err(Problem::new(Code::ServiceUnavailable, text).retry_after(5).into());
        };
        let done = tokio::task::spawn_blocking(move || {
            // The place goes with the work: a caller that gives up must not free it early.
            let _place = place;
            work()
        });
        Ok(done.await.map_err(HashError::Task)??)
    }

    pub async fn hash(&self, password: Secret) -> Result<String, Failure> {
        let (params, salt) = (self.params, self.ambient.bytes::<16>());
        self.in_its_place(move || hash(params, &salt, password.expose())).await
    }

    /// `stored` is nothing for an account that does not exist.
    pub async fn matches(&self, password: Secret, stored: Option<String>) -> Result<bool, Failure> {
        let (params, salt, nobody) = (self.params, self.ambient.bytes::<16>(), self.nobody.clone());
        self.in_its_place(move || {
            let known = stored.is_some();
            let stored = match stored {
                Some(stored) => stored,
                None => match nobody.get() {
                    Some(hash) => hash.clone(),
                    None => {
                        let made = hash(params, &salt, &hex::encode(salt))?;
                        nobody.get_or_init(|| made).clone()
                    }
                },
            };
            let parsed = PasswordHash::new(&stored).map_err(HashError::Hash)?;
            // The parameters are those of the stored hash.
            let matches = Argon2::default().verify_password(password.expose().as_bytes(), &parsed).is_ok();
            Ok(known && matches)
        })
        .await
    }
}

fn hash(params: Argon2Params, salt: &[u8; 16], password: &str) -> Result<String, HashError> {
    let cost = Params::new(params.memory_kib, params.iterations, params.parallelism, None)
        .map_err(HashError::Params)?;
    let salt = SaltString::encode_b64(salt).map_err(HashError::Hash)?;
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, cost);
    Ok(argon2.hash_password(password.as_bytes(), &salt).map_err(HashError::Hash)?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_password_matches_its_hash_and_nothing_matches_nobody() {
        let cheap = Argon2Params { memory_kib: 8, iterations: 1, parallelism: 1 };
        let passwords = Passwords::new(cheap, Ambient::system());
        let secret = |text: &str| Secret::new(text.to_owned());
        let stored = passwords.hash(secret("correct horse")).await.unwrap();
        assert!(stored.starts_with("$argon2id$v=19$m=8,t=1,p=1$"), "{stored}");
        assert!(passwords.matches(secret("correct horse"), Some(stored.clone())).await.unwrap());
        assert!(!passwords.matches(secret("wrong"), Some(stored)).await.unwrap());
        assert!(!passwords.matches(secret("wrong"), None).await.unwrap());
        let nobody = passwords.nobody.get().cloned();
        assert!(!passwords.matches(secret("again"), None).await.unwrap());
        assert_eq!(passwords.nobody.get().cloned(), nobody, "made once");
    }
}
