//! The regions that a launch is tried in, kept in memory for a moment.

use std::sync::{Arc, Mutex};

use chrono::{DateTime, TimeDelta, Utc};
use kernel::{Failure, Problem};
use pg::Connection;

use crate::{model::sku::listed, store};

const LIFETIME: TimeDelta = TimeDelta::seconds(30);

type Known = (DateTime<Utc>, Arc<[String]>);

/// Cheap to clone; all clones share what is known.
#[derive(Clone, Default)]
pub struct Regions(Arc<Mutex<Option<Known>>>);

impl Regions {
    /// The wanted region, or all of them in order when nobody said. One that was made a moment ago is found too.
    pub async fn wanted(
        &self,
        conn: &mut Connection,
        region: Option<&str>,
        now: DateTime<Utc>,
    ) -> Result<Vec<String>, Failure> {
        let known = self.lock().clone().filter(|(loaded_at, _)| now < *loaded_at + LIFETIME);
        let there = |known: &[String]| region.is_none_or(|region| known.iter().any(|known| known == region));
        let known = match known {
            Some((_, known)) if there(&known) && !known.is_empty() => known,
            _ => {
                let known: Arc<[String]> = store::candidates::regions(conn).await?.into();
                *self.lock() = Some((now, known.clone()));
                known
            }
        };
        match region {
            None => Ok(known.to_vec()),
            Some(region) if there(&known) => Ok(vec![region.to_owned()]),
            Some(_) => {
                let text = format!("unknown region; choose one of {}", listed(&known));
                Err(Problem::field("region", text).into())
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Known>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
}
