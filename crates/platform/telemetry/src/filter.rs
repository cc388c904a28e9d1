//! The log filter chooses events; it must not remove context. A process that logs only warnings still wants
//! the correlation id of the request that caused one, so spans of INFO and above always pass.

use tracing::{Level, Metadata, span, subscriber::Interest};
use tracing_subscriber::{
    EnvFilter,
    filter::LevelFilter,
    layer::{Context, Filter},
};

use crate::TelemetryError;

pub(crate) struct KeepContext(EnvFilter);

impl KeepContext {
    /// Reads directives such as `info,sqlx=warn`; an empty text means `info`.
    pub(crate) fn parse(directives: &str) -> Result<Self, TelemetryError> {
        EnvFilter::builder()
            .with_default_directive(LevelFilter::INFO.into())
            .parse(directives)
            .map(Self)
            .map_err(|source| TelemetryError::Filter { filter: directives.to_owned(), source })
    }
}

fn is_context(meta: &Metadata<'_>) -> bool {
    meta.is_span() && *meta.level() <= Level::INFO
}

impl<S> Filter<S> for KeepContext {
    fn enabled(&self, meta: &Metadata<'_>, cx: &Context<'_, S>) -> bool {
        is_context(meta) || Filter::<S>::enabled(&self.0, meta, cx)
    }

    fn callsite_enabled(&self, meta: &'static Metadata<'static>) -> Interest {
        // Asked even when the answer is known: this is how EnvFilter learns of spans named in directives.
        let interest = Filter::<S>::callsite_enabled(&self.0, meta);
        if is_context(meta) { Interest::always() } else { interest }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Filter::<S>::max_level_hint(&self.0).map(|level| level.max(LevelFilter::INFO))
    }

    fn on_new_span(&self, attrs: &span::Attributes<'_>, id: &span::Id, cx: Context<'_, S>) {
        Filter::<S>::on_new_span(&self.0, attrs, id, cx);
    }

    fn on_record(&self, id: &span::Id, values: &span::Record<'_>, cx: Context<'_, S>) {
        Filter::<S>::on_record(&self.0, id, values, cx);
    }

    fn on_enter(&self, id: &span::Id, cx: Context<'_, S>) {
        Filter::<S>::on_enter(&self.0, id, cx);
    }

    fn on_exit(&self, id: &span::Id, cx: Context<'_, S>) {
        Filter::<S>::on_exit(&self.0, id, cx);
    }

    fn on_close(&self, id: span::Id, cx: Context<'_, S>) {
        Filter::<S>::on_close(&self.0, id, cx);
    }
}
