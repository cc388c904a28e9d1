//! How a table is shown: its width, and whether it is for a person at a terminal.

use std::io::IsTerminal as _;

use chrono::{DateTime, Utc};
use comfy_table::Table;

/// What a table may assume about its reader.
#[derive(Clone, Copy)]
pub struct View {
    /// Characters in a line; unlimited when it is not known.
    pub width: Option<usize>,
    /// States get a symbol.
    pub symbols: bool,
    pub colour: bool,
    pub now: DateTime<Utc>,
}

impl View {
    /// Of standard output. `COLUMNS` counts where there is no terminal to ask.
    pub fn of_terminal(wide: bool, now: DateTime<Utc>) -> Self {
        let terminal = std::io::stdout().is_terminal();
        let asked = || Table::new().width().map(usize::from);
        let named = || std::env::var("COLUMNS").ok()?.parse().ok();
        let width = if terminal { asked() } else { named() };
        let colour = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { width: width.filter(|width| !wide && *width > 0), symbols: terminal, colour, now }
    }

    /// Short ids, relative times and no empty columns, because the width is limited.
    pub fn is_compact(&self) -> bool {
        self.width.is_some()
    }
}

#[cfg(test)]
impl View {
    pub fn limited(width: Option<usize>) -> Self {
        let now = DateTime::UNIX_EPOCH + chrono::TimeDelta::days(20_000);
        Self { width, symbols: false, colour: false, now }
    }
}
