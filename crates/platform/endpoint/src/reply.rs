//! What a handler returns. Status and body follow from the type, so document and server cannot disagree.

use bytes::Bytes;
use futures_util::{StreamExt as _, stream::BoxStream};
use kernel::Failure;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{declare::SchemaFn, input::Json};

pub enum ReplyBody {
    Plain(Vec<u8>),
    Stream(BoxStream<'static, Result<Bytes, Failure>>),
}

pub trait Reply: Send + 'static {
    const STATUS: u16;
    const CONTENT: &'static str = "application/json";
    const SCHEMA: Option<SchemaFn>;
    fn into_body(self) -> Result<ReplyBody, Failure>;
}

/// A reply that can be stored with its effect and replayed; the only kind a mutation may return.
pub trait PlainReply: Reply {
    fn into_bytes(self) -> Result<Vec<u8>, Failure>;
}

/// 201: the thing was made.
pub struct Created<T>(pub T);
/// 202: the thing is on its way.
pub struct Accepted<T>(pub T);
/// 204
pub struct NoContent;
/// One JSON document a line, as long as it takes.
pub struct Ndjson(pub BoxStream<'static, Result<Bytes, Failure>>);
/// A table as text, one record a line, as long as it takes.
pub struct Csv(pub BoxStream<'static, Result<Bytes, Failure>>);
/// A page to be read or printed.
pub struct Html(pub String);
/// A document to be kept.
pub struct Pdf(pub Vec<u8>);
/// Server-sent events: what happened, then what happens, until the stream ends and the client comes again with the
/// last id that it saw.
pub struct Sse(pub BoxStream<'static, Result<SseFrame, Failure>>);

/// One frame of a stream of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SseFrame(Bytes);

impl SseFrame {
    /// `id` is what the client sends as `Last-Event-ID` when it comes again.
    pub fn event<T: Serialize>(id: i64, event: &'static str, data: &T) -> Result<Self, serde_json::Error> {
        // JSON on one line: no line break in the data can end the frame.
        let data = serde_json::to_string(data)?;
        Ok(Self(Bytes::from(format!("id: {id}\nevent: {event}\ndata: {data}\n\n"))))
    }

    /// How something is now, for a stream that begins with how everything is: nothing to resume after.
    pub fn state<T: Serialize>(event: &'static str, data: &T) -> Result<Self, serde_json::Error> {
        Ok(Self(Bytes::from(format!("event: {event}\ndata: {}\n\n", serde_json::to_string(data)?))))
    }

    /// Nothing happened, and the connection stands.
    pub const fn heartbeat() -> Self {
        Self(Bytes::from_static(b": \n\n"))
    }

    /// How soon a client whose stream ended comes again.
    pub fn retry_after(after: std::time::Duration) -> Self {
        Self(Bytes::from(format!("retry: {}\n\n", after.as_millis())))
    }
}

macro_rules! json_reply {
    ($($name:ident = $status:literal),*) => {$(
        impl<T: Serialize + JsonSchema + Send + 'static> Reply for $name<T> {
            const STATUS: u16 = $status;
            const SCHEMA: Option<SchemaFn> = Some(|g| g.subschema_for::<T>());
            fn into_body(self) -> Result<ReplyBody, Failure> {
                self.into_bytes().map(ReplyBody::Plain)
            }
        }
        impl<T: Serialize + JsonSchema + Send + 'static> PlainReply for $name<T> {
            fn into_bytes(self) -> Result<Vec<u8>, Failure> {
                Ok(serde_json::to_vec(&self.0)?)
            }
        }
    )*};
}

json_reply!(Json = 200, Created = 201, Accepted = 202);

impl Reply for NoContent {
    const STATUS: u16 = 204;
    const SCHEMA: Option<SchemaFn> = None;
    fn into_body(self) -> Result<ReplyBody, Failure> {
        Ok(ReplyBody::Plain(Vec::new()))
    }
}

impl PlainReply for NoContent {
    fn into_bytes(self) -> Result<Vec<u8>, Failure> {
        Ok(Vec::new())
    }
}

macro_rules! stream_reply {
    ($($name:ident = $content:literal),*) => {$(
        impl Reply for $name {
            const STATUS: u16 = 200;
            const CONTENT: &'static str = $content;
            const SCHEMA: Option<SchemaFn> = None;
            fn into_body(self) -> Result<ReplyBody, Failure> {
                Ok(ReplyBody::Stream(self.0))
            }
        }
    )*};
}

stream_reply!(Ndjson = "application/x-ndjson", Csv = "text/csv");

/// What is whole already, sent as its own type.
macro_rules! document_reply {
    ($($name:ident = $content:literal),*) => {$(
        impl Reply for $name {
            const STATUS: u16 = 200;
            const CONTENT: &'static str = $content;
            const SCHEMA: Option<SchemaFn> = None;
            fn into_body(self) -> Result<ReplyBody, Failure> {
                let whole = Bytes::from(self.0);
                Ok(ReplyBody::Stream(futures_util::stream::once(async { Ok(whole) }).boxed()))
            }
        }
    )*};
}

document_reply!(Html = "text/html", Pdf = "application/pdf");

impl Reply for Sse {
    const STATUS: u16 = 200;
    const CONTENT: &'static str = "text/event-stream";
    const SCHEMA: Option<SchemaFn> = None;
    fn into_body(self) -> Result<ReplyBody, Failure> {
        Ok(ReplyBody::Stream(self.0.map(|frame| frame.map(|frame| frame.0)).boxed()))
    }
}
