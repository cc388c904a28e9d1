//! One event, one line, one JSON object. Fields of the surrounding spans are flattened into it: an inner
//! span's value wins over an outer one's, the event's own over both. The names in [`RESERVED`] always mean
//! what the line says they mean; a field that would shadow one is written as `field_<name>`.

use std::{error::Error, fmt, io::Write, sync::OnceLock};

use serde_json::{Map, Value};
use tracing::{
    Dispatch, Event, Subscriber,
    dispatcher::WeakDispatch,
    field::{Field, Visit},
    span,
};
use tracing_subscriber::{
    Layer,
    fmt::{
        MakeWriter,
        format::Writer,
        time::{FormatTime, SystemTime},
    },
    layer::Context,
    registry::LookupSpan,
};

use crate::traces;

const RESERVED: [&str; 5] = ["timestamp", "level", "target", "message", "service"];
/// Longer values are cut: one careless field must not fill a disk.
const VALUE_LIMIT_BYTES: usize = 8 * 1024;

pub(crate) struct JsonLayer<W> {
    writer: W,
    service: String,
    role: String,
    dispatch: OnceLock<WeakDispatch>,
}

impl<W> JsonLayer<W> {
    pub(crate) fn new(writer: W, service: &str, roles: &[String]) -> Self {
        Self { writer, service: service.to_owned(), role: roles.join(","), dispatch: OnceLock::new() }
    }
}

/// Fields of one span, kept with the span until it closes.
#[derive(Default)]
struct Fields(Vec<(&'static str, Value)>);

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        let name = field.name();
        let name = name.strip_prefix("r#").unwrap_or(name);
        // `otel.*` fields are instructions to the trace exporter, not facts.
        if name.starts_with("otel.") {
            return;
        }
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some(slot) => slot.1 = value,
            None => self.0.push((name, value)),
        }
    }

    fn take_message(&mut self) -> Value {
        match self.0.iter().position(|(name, _)| *name == "message") {
            Some(at) => self.0.remove(at).1,
            None => Value::String(String::new()),
        }
    }
}

fn text(mut value: String) -> Value {
    if value.len() > VALUE_LIMIT_BYTES {
        let mut end = VALUE_LIMIT_BYTES;
        while !value.is_char_boundary(end) {
            end -= 1;
        }
        value.truncate(end);
        value.push_str("...(cut)");
    }
    Value::String(value)
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, text(value.to_owned()));
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }
    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        // Our errors do not repeat their source, so the chain is written here, once.
        let mut chain = value.to_string();
        let mut source = value.source();
        while let Some(cause) = source {
            chain.push_str(": ");
            chain.push_str(&cause.to_string());
            source = cause.source();
        }
        self.put(field, text(chain));
    }
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, text(format!("{value:?}")));
    }
}

fn flatten(line: &mut Map<String, Value>, fields: &Fields) {
    for (name, value) in &fields.0 {
        if RESERVED.contains(name) {
            line.insert(format!("field_{name}"), value.clone());
        } else {
            line.insert((*name).to_owned(), value.clone());
        }
    }
}

fn timestamp() -> String {
    let mut out = String::new();
    // Writing to a String cannot fail; a line without a time is still better than no line.
    let _ = SystemTime.format_time(&mut Writer::new(&mut out));
    out
}

impl<S, W> Layer<S> for JsonLayer<W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'w> MakeWriter<'w> + 'static,
{
    fn on_register_dispatch(&self, dispatch: &Dispatch) {
        let _ = self.dispatch.set(dispatch.downgrade());
    }

    fn on_new_span(&self, attrs: &span::Attributes<'_>, id: &span::Id, cx: Context<'_, S>) {
        let Some(span) = cx.span(id) else { return };
        let mut fields = Fields::default();
        attrs.record(&mut fields);
        span.extensions_mut().replace(fields);
    }

    fn on_record(&self, id: &span::Id, values: &span::Record<'_>, cx: Context<'_, S>) {
        let Some(span) = cx.span(id) else { return };
        if let Some(fields) = span.extensions_mut().get_mut::<Fields>() {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, cx: Context<'_, S>) {
        let mut own = Fields::default();
        event.record(&mut own);

        let meta = event.metadata();
        let mut line = Map::new();
        line.insert("timestamp".into(), timestamp().into());
        line.insert("level".into(), meta.level().as_str().into());
        line.insert("target".into(), meta.target().into());
        line.insert("message".into(), own.take_message());
        line.insert("service".into(), self.service.clone().into());
        line.insert("role".into(), self.role.clone().into());

        let mut trace_id = None;
        if let Some(span) = cx.event_span(event) {
            for ancestor in span.scope().from_root() {
                if let Some(fields) = ancestor.extensions().get::<Fields>() {
                    flatten(&mut line, fields);
                }
            }
            trace_id = self
                .dispatch
                .get()
                .and_then(WeakDispatch::upgrade)
                .and_then(|dispatch| traces::trace_id_of_span(&span.id(), &dispatch));
        }
        flatten(&mut line, &own);
        if let Some(trace_id) = trace_id {
            line.insert("trace_id".into(), trace_id.into());
        }

        // One write per line keeps lines of many threads whole. There is nowhere to report a lost stderr.
        if let Ok(mut bytes) = serde_json::to_vec(&line) {
            bytes.push(b'\n');
            let _ = self.writer.make_writer_for(meta).write_all(&bytes);
        }
    }
}
