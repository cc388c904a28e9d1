//! Handlers behind one boxed type, so that the pipeline is compiled once. Parsing happens first and
//! without a transaction; what it yields runs inside one.

use std::{
    future::Future,
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex},
};

use futures_util::future::BoxFuture;
use kernel::{Failure, Problem};
use pg::{ReadTx, WriteTx};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::{
    input::{BodyInput, In, RawInput, known_parameters, parse_path, parse_query},
    reply::{PlainReply, Reply, ReplyBody},
};

type Home = Arc<Mutex<Option<WriteTx>>>;

/// The open write transaction, on loan to a handler. When the handler is done with it, it goes back to the
/// pipeline, which alone commits.
pub struct Write {
    tx: Option<WriteTx>,
    home: Home,
}

impl Write {
    pub(crate) fn lend(tx: WriteTx) -> (Self, Home) {
        let home = Home::default();
        (Self { tx: Some(tx), home: home.clone() }, home)
    }
}

impl Deref for Write {
    type Target = WriteTx;
    fn deref(&self) -> &WriteTx {
        match &self.tx {
            Some(tx) => tx,
            None => unreachable!("taken only by drop"),
        }
    }
}

impl DerefMut for Write {
    fn deref_mut(&mut self) -> &mut WriteTx {
        match &mut self.tx {
            Some(tx) => tx,
            None => unreachable!("taken only by drop"),
        }
    }
}

impl Drop for Write {
    fn drop(&mut self) {
        *self.home.lock().unwrap_or_else(|e| e.into_inner()) = self.tx.take();
    }
}

pub(crate) fn take_back(home: &Home) -> Option<WriteTx> {
    home.lock().unwrap_or_else(|e| e.into_inner()).take()
}

type Parse<Ready> = Box<dyn Fn(RawInput) -> Result<Ready, Problem> + Send + Sync>;
pub(crate) type ReadyRead = Box<dyn FnOnce(ReadTx) -> BoxFuture<'static, Result<ReplyBody, Failure>> + Send>;
pub(crate) type ReadyWrite = Box<dyn FnOnce(Write) -> BoxFuture<'static, Result<Vec<u8>, Failure>> + Send>;
pub(crate) type ReadyPublic = BoxFuture<'static, Result<ReplyBody, Failure>>;

pub enum Erased {
    Public(Parse<ReadyPublic>),
    Read(Parse<ReadyRead>),
    Write(Parse<ReadyWrite>),
}

fn typed<P, Q, B>(raw: RawInput, parameters: &[String]) -> Result<In<P, Q, B>, Problem>
where
    P: DeserializeOwned,
    Q: DeserializeOwned,
    B: BodyInput,
{
    Ok(In {
        path: parse_path(raw.path)?,
        query: parse_query(&raw.query, parameters)?,
        body: B::parse(&raw.body)?,
        if_match: raw.if_match,
        last_event_id: raw.last_event_id,
        access: raw.access,
    })
}

pub(crate) fn erase_public<S, F, Fut, P, Q, R>(state: S, handler: F) -> Erased
where
    S: Clone + Send + Sync + 'static,
    F: Fn(S, In<P, Q, ()>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, Failure>> + Send + 'static,
    P: DeserializeOwned + Send + 'static,
    Q: DeserializeOwned + JsonSchema + Send + 'static,
    R: Reply,
{
    let parameters = known_parameters::<Q>();
    Erased::Public(Box::new(move |raw| {
        let future = handler(state.clone(), typed(raw, &parameters)?);
        Ok(Box::pin(async move { future.await?.into_body() }))
    }))
}

pub(crate) fn erase_read<S, F, Fut, P, Q, R>(state: S, handler: F) -> Erased
where
    S: Clone + Send + Sync + 'static,
    F: Fn(S, ReadTx, In<P, Q, ()>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, Failure>> + Send + 'static,
    P: DeserializeOwned + Send + 'static,
    Q: DeserializeOwned + JsonSchema + Send + 'static,
    R: Reply,
{
    let (handler, parameters) = (Arc::new(handler), known_parameters::<Q>());
    Erased::Read(Box::new(move |raw| {
        let (input, handler, state) = (typed(raw, &parameters)?, handler.clone(), state.clone());
        Ok(Box::new(move |tx| Box::pin(async move { handler(state, tx, input).await?.into_body() })))
    }))
}

pub(crate) fn erase_write<S, F, Fut, P, Q, B, R>(state: S, handler: F) -> Erased
where
    S: Clone + Send + Sync + 'static,
    F: Fn(S, Write, In<P, Q, B>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, Failure>> + Send + 'static,
    P: DeserializeOwned + Send + 'static,
    Q: DeserializeOwned + JsonSchema + Send + 'static,
    B: BodyInput,
    R: PlainReply,
{
    let (handler, parameters) = (Arc::new(handler), known_parameters::<Q>());
    Erased::Write(Box::new(move |raw| {
        let (input, handler, state) = (typed(raw, &parameters)?, handler.clone(), state.clone());
        Ok(Box::new(move |tx| Box::pin(async move { handler(state, tx, input).await?.into_bytes() })))
    }))
}
