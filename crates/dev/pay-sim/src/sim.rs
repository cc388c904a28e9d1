//! The provider itself: its state behind one lock, and how it was started.

use std::{
    path::PathBuf,
    sync::{Mutex, MutexGuard},
};

use kernel::Ambient;
use serde_json::Value;
use tokio::sync::Notify;

use crate::{
    fault::Fault,
    state::{Answered, Context, State},
};

const KEY_KEPT_SECONDS: i64 = 24 * 3600;
/// Deliveries of a reordered event wait up to this long, each by itself.
const REORDER_MS: i64 = 700;

#[derive(Clone, Debug)]
pub struct Options {
    /// How people reach the checkout page.
    pub public_url: String,
    pub state: PathBuf,
    pub webhook_url: Option<String>,
    pub webhook_secret_file: PathBuf,
    pub api_key: String,
    /// So many more deliveries of each event.
    pub duplicate: u32,
    /// Events overtake each other.
    pub reorder: bool,
    /// Each delivery waits this long.
    pub delay_ms: u32,
    /// The first attempt of each delivery is lost on the way.
    pub drop_first: bool,
    /// Before the second attempt; doubled for each one after it.
    pub retry_ms: u32,
    pub max_attempts: u32,
}

pub struct Sim {
    pub options: Options,
    pub ambient: Ambient,
    state: Mutex<State>,
    /// Something may be due.
    pub wake: Notify,
}

impl Sim {
    pub fn open(options: Options, ambient: Ambient) -> anyhow::Result<Self> {
        let state = State::load(&options.state)?;
        Ok(Self { options, ambient, state: Mutex::new(state), wake: Notify::new() })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Changes the state, and writes it down before anybody hears of it.
    pub(crate) fn change<T>(
        &self,
        key: Option<&str>,
        change: impl FnOnce(&mut State, &Context<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let mut state = self.state();
        let made = self.with_context(key, |context| change(&mut state, context))?;
        state.save(&self.options.state).map_err(|error| {
            tracing::error!(error = format!("{error:#}"), "the state cannot be written");
            Fault::internal("The simulated provider cannot write its state; see its log.")
        })?;
        drop(state);
        self.wake.notify_one();
        Ok(made)
    }

    /// The same, at most once for an idempotency key. Gives whether the answer is a repeated one.
    pub(crate) fn change_once(
        &self,
        key: Option<&str>,
        request: &str,
        change: impl FnOnce(&mut State, &Context<'_>) -> Result<Value, Fault>,
    ) -> Result<(Value, bool), Fault> {
        let Some(key) = key else { return Ok((self.change(None, change)?, false)) };
        self.change(Some(key), |state, context| {
            state.answers.retain(|_, answered| answered.at > context.now - KEY_KEPT_SECONDS);
            match state.answers.get(key) {
                Some(answered) if answered.request == request => Ok((answered.answer.clone(), true)),
                Some(_) => Err(Fault::key_reused()),
                None => {
                    let answer = change(state, context)?;
                    let answered = Answered { request: request.to_owned(), answer, at: context.now };
                    let answer = answered.answer.clone();
                    state.answers.insert(key.to_owned(), answered);
                    Ok((answer, false))
                }
            }
        })
    }

    fn with_context<T>(&self, key: Option<&str>, work: impl FnOnce(&Context<'_>) -> T) -> T {
        let now = self.ambient.now();
        let first_due_ms = || {
            let chance = i64::from(u16::from_le_bytes(self.ambient.bytes()));
            let late = if self.options.reorder { chance % REORDER_MS } else { 0 };
            now.timestamp_millis() + i64::from(self.options.delay_ms) + late
        };
        work(&Context {
            ambient: &self.ambient,
            now: now.timestamp(),
            idempotency_key: key,
            public_url: &self.options.public_url,
            copies: if self.options.webhook_url.is_some() { 1 + self.options.duplicate } else { 0 },
            first_due_ms: &first_due_ms,
        })
    }
}
