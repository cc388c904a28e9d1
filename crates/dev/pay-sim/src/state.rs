//! Everything the provider knows, and the file it is kept in.
//!
//! Objects are kept in the form in which they are shown. Single writer: [`crate::Sim`], which writes the file before it
//! answers.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use anyhow::Context as _;
use kernel::Ambient;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::fault::Fault;

pub type Object = Map<String, Value>;

const MAX_OBJECTS: usize = 100_000;
const API_VERSION: &str = "2025-03-31.basil";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Customer,
    Session,
    Intent,
    Charge,
    Refund,
    Dispute,
    Event,
}

impl Kind {
    /// What the wire calls it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Customer => "customer",
            Self::Session => "checkout.session",
            Self::Intent => "payment_intent",
            Self::Charge => "charge",
            Self::Refund => "refund",
            Self::Dispute => "dispute",
            Self::Event => "event",
        }
    }

    fn prefix(self) -> &'static str {
        match self {
            Self::Customer => "cus_",
            Self::Session => "cs_test_",
            Self::Intent => "pi_",
            Self::Charge => "ch_",
            Self::Refund => "re_",
            Self::Dispute => "dp_",
            Self::Event => "evt_",
        }
    }

    pub fn from_id(id: &str) -> Option<Self> {
        let all = [
            Self::Customer,
            Self::Session,
            Self::Intent,
            Self::Charge,
            Self::Refund,
            Self::Dispute,
            Self::Event,
        ];
        all.into_iter().find(|kind| id.starts_with(kind.prefix()))
    }
}

/// An event on its way to the webhook.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Delivery {
    pub number: u64,
    pub event: String,
    pub attempts: u32,
    /// Not before this, in milliseconds since the epoch.
    pub due_ms: i64,
    pub last_error: Option<String>,
    pub given_up: bool,
}

/// What was answered under an idempotency key.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Answered {
    pub request: String,
    pub answer: Value,
    pub at: i64,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct State {
    objects: BTreeMap<Kind, Vec<Object>>,
    pub deliveries: Vec<Delivery>,
    pub delivered: u64,
    next_delivery: u64,
    pub answers: BTreeMap<String, Answered>,
    /// Payments that lists do not show.
    pub hidden: BTreeSet<String>,
    /// What the next refund becomes instead of succeeding.
    pub next_refund: Option<String>,
}

/// The surroundings of one change.
pub struct Context<'a> {
    pub ambient: &'a Ambient,
    pub now: i64,
    pub idempotency_key: Option<&'a str>,
    pub public_url: &'a str,
    /// How often each event is sent; 0 when nobody listens.
    pub copies: u32,
    /// When a delivery made now is due, by chance and flags.
    pub first_due_ms: &'a dyn Fn() -> i64,
}

impl Context<'_> {
    pub fn id(&self, kind: Kind) -> String {
        let length = if kind == Kind::Session { 56 } else { 24 };
        format!("{}{}", kind.prefix(), random_text(self.ambient, length))
    }
}

pub fn random_text(ambient: &Ambient, length: usize) -> String {
    const LETTERS: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut bytes = vec![0; length];
    ambient.fill(&mut bytes);
    bytes.iter().map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()])).collect()
}

pub fn text<'a>(object: &'a Object, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

pub fn number(object: &Object, key: &str) -> i64 {
    object.get(key).and_then(Value::as_i64).unwrap_or_default()
}

/// An object of a literal.
pub fn object(value: Value) -> Object {
    match value {
        Value::Object(object) => object,
        _ => Object::new(),
    }
}

impl State {
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        match std::fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes).with_context(|| {
                format!("{} is not a state file of this program; move it away to start anew", path.display())
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// All of it or, after a crash in between, what was there before.
    pub fn save(&self, path: &Path) -> anyhow::Result<()> {
        let beside = path.with_extension("new");
        let mut file =
            std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        file.sync_data()?;
        std::fs::rename(&beside, path)?;
        Ok(())
    }

    pub fn all(&self, kind: Kind) -> &[Object] {
        self.objects.get(&kind).map(Vec::as_slice).unwrap_or_default()
    }

    pub fn find(&self, kind: Kind, id: &str) -> Result<&Object, Fault> {
        let found = self.all(kind).iter().rev().find(|object| text(object, "id") == id);
        found.ok_or_else(|| Fault::not_found(kind.word(), id))
    }

    pub fn find_mut(&mut self, kind: Kind, id: &str) -> Result<&mut Object, Fault> {
        let all = self.objects.entry(kind).or_default();
        let found = all.iter_mut().rev().find(|object| text(object, "id") == id);
        found.ok_or_else(|| Fault::not_found(kind.word(), id))
    }

    pub fn has_room(&self) -> Result<(), Fault> {
        let count: usize = self.objects.values().map(Vec::len).sum();
        if count < MAX_OBJECTS { Ok(()) } else { Err(Fault::full()) }
    }

    pub fn add(&mut self, kind: Kind, object: Object) {
        self.objects.entry(kind).or_default().push(object);
    }

    /// Makes an event of what an object is now, and sends it on its way.
    pub fn emit(&mut self, context: &Context<'_>, kind: &str, of: &Object) {
        let id = context.id(Kind::Event);
        let event = object(json!({
            "id": id, "object": "event", "api_version": API_VERSION, "created": context.now,
            "data": { "object": of }, "livemode": false, "pending_webhooks": context.copies,
            "request": { "id": null, "idempotency_key": context.idempotency_key }, "type": kind,
        }));
        self.add(Kind::Event, event);
        for _ in 0..context.copies {
            self.deliver(&id, (context.first_due_ms)());
        }
    }

    pub fn deliver(&mut self, event: &str, due_ms: i64) {
        self.next_delivery += 1;
        let number = self.next_delivery;
        let event = event.to_owned();
        self.deliveries.push(Delivery {
            number,
            event,
            attempts: 0,
            due_ms,
            last_error: None,
            given_up: false,
        });
    }
}
