//! What other domains and the composition root may use.

pub use crate::{Notify, Settings, Smtp, WebhookClient};
