//! Following an allocation: prints its events until the goal is reached or has failed.

use std::{collections::VecDeque, time::Duration};

use chrono::{DateTime, Utc};
use futures_util::StreamExt as _;
use sdk::{
    ByteStream, Client,
    types::{AllocationEvent, AllocationEventKind as Kind, AllocationState as State},
};

use super::stream::{Frame, Frames};
use crate::{
    failure::{Exit, Failure, Result},
    output::note,
};

const COME_AGAIN: Duration = Duration::from_secs(1);
/// Consecutive failed requests before giving up.
const MOST_FAILURES: u32 = 10;

/// The state that the user waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    Launch,
    Release,
    Restart,
}

impl Goal {
    /// The effect of an event on the goal: reached, failed with a reason, or still open.
    fn reached(self, event: &AllocationEvent) -> Option<std::result::Result<(), String>> {
        let state = event.to_state.filter(|_| event.kind == Kind::State);
        let operation = Some(event.name.as_str()).filter(|_| event.kind == Kind::Operation);
        let because = |text: &str| Some(Err(format!("{text}{}", reason(event))));
        match (self, state, operation) {
            (Self::Launch, Some(State::Active), _) => Some(Ok(())),
            (Self::Launch, Some(State::Failed), _) => because("the launch failed"),
            (Self::Launch, Some(State::Releasing | State::Released | State::ReleaseFailed), _) => {
                because("it was released")
            }
            // A launch that is cancelled ends in this state.
            (Self::Release, Some(State::Released | State::Failed), _) => Some(Ok(())),
            (Self::Release, Some(State::ReleaseFailed), _) => because("the release failed"),
            (Self::Restart, _, Some("restarted")) => Some(Ok(())),
            (Self::Restart, _, Some("restart_failed")) => because("the restart failed"),
            (Self::Restart, Some(State::Releasing | State::Released | State::Failed), _) => {
                because("it was released")
            }
            _ => None,
        }
    }

    fn advice(self, id: &str) -> String {
        match self {
            Self::Launch => format!(
                "It is not billed. See its events with `gpuaas allocations events {id}`, and launch again."
            ),
            Self::Release => format!(
                "It is no longer billed. Retry with `gpuaas allocations retry {id}`, or contact your operator."
            ),
            Self::Restart => format!("See its events with `gpuaas allocations events {id}`."),
        }
    }
}

fn reason(event: &AllocationEvent) -> String {
    if event.reason.is_empty() { String::new() } else { format!(": {}", event.reason) }
}

/// An allocation that is followed.
#[derive(Clone, Copy)]
pub struct Following<'a> {
    pub client: &'a Client,
    pub project: &'a str,
    pub allocation: &'a str,
}

impl Following<'_> {
    /// Prints events until the goal is reached. Stopping earlier does not affect the
    /// allocation.
    pub async fn to_the_end(self, goal: Goal, after: i64, limit: Duration) -> Result {
        let id = self.allocation;
        let go_on =
            format!("The operation continues. Follow it with `gpuaas allocations show {id} --watch`.");
        let release = match goal {
            Goal::Launch => format!(" To cancel it: `gpuaas allocations release {id}`."),
            Goal::Release | Goal::Restart => String::new(),
        };
        let go_on = format!("{go_on}{release}");
        tokio::select! {
            ended = self.reached(goal, after) => ended,
            () = tokio::time::sleep(limit) => {
                let text = format!("{id} is still in progress after {} s", limit.as_secs());
                Err(Failure::new(Exit::Server, text).suggest(go_on))
            }
            _ = tokio::signal::ctrl_c() => Err(Failure::new(Exit::Interrupted, "stopped waiting").suggest(go_on)),
        }
    }

    async fn reached(self, goal: Goal, after: i64) -> Result {
        let mut events = Events::new(self, after);
        let mut printer = EventPrinter::default();
        while let Some(event) = events.next().await? {
            note(&printer.line(&event));
            match goal.reached(&event) {
                Some(Ok(())) => return Ok(()),
                Some(Err(why)) => {
                    let failure = Failure::new(Exit::Server, format!("{}: {why}", self.allocation));
                    return Err(failure.suggest(goal.advice(self.allocation)));
                }
                None => {}
            }
        }
        // The allocation has ended, and its last event is before `after`.
        match goal {
            Goal::Release => Ok(()),
            Goal::Launch | Goal::Restart => {
                let text = format!("{} has ended", self.allocation);
                Err(Failure::new(Exit::Conflict, text).suggest(goal.advice(self.allocation)))
            }
        }
    }
}

/// The events of an allocation after a given one; a closed connection is reopened at the last event seen.
pub struct Events<'a> {
    of: Following<'a>,
    after: i64,
    open: Option<(ByteStream, Frames)>,
    frames: VecDeque<Frame>,
    failures: u32,
}

impl<'a> Events<'a> {
    pub fn new(of: Following<'a>, after: i64) -> Self {
        Self { of, after, open: None, frames: VecDeque::new(), failures: 0 }
    }

    /// The next event; none when the allocation has ended.
    pub async fn next(&mut self) -> Result<Option<AllocationEvent>> {
        loop {
            let Some(frame) = self.frames.pop_front() else {
                self.more().await?;
                continue;
            };
            match frame.event.as_str() {
                "end" => return Ok(None),
                "allocation" => {
                    let event: AllocationEvent = serde_json::from_str(&frame.data).map_err(|error| {
                        Failure::new(Exit::Server, format!("the server sent an invalid event: {error}"))
                    })?;
                    self.after = event.seq;
                    return Ok(Some(event));
                }
                _ => {}
            }
        }
    }

    async fn more(&mut self) -> Result {
        let Some((stream, frames)) = &mut self.open else { return self.connect().await };
        match stream.next().await {
            Some(Ok(piece)) => {
                self.failures = 0;
                self.frames.extend(frames.feed(&piece)?);
            }
            // The server ends a stream after some minutes; it also ends with the connection.
            Some(Err(_)) | None => {
                self.open = None;
                tokio::time::sleep(COME_AGAIN).await;
            }
        }
        Ok(())
    }

    async fn connect(&mut self) -> Result {
        let Following { client, project, allocation } = self.of;
        let opened = Box::pin(client.allocation_stream(project, allocation, Some(self.after))).await;
        match opened.map_err(sdk::Error::from) {
            Ok(answer) => self.open = Some((answer.into_inner(), Frames::default())),
            Err(error) => {
                let lasting =
                    matches!(&error, sdk::Error::Api(error) if error.status < 500 && error.status != 429);
                self.failures += 1;
                if lasting || matches!(error, sdk::Error::Auth(_)) || self.failures > MOST_FAILURES {
                    return Err(error.into());
                }
                tokio::time::sleep(COME_AGAIN).await;
            }
        }
        Ok(())
    }
}

/// Prints one line per event, with durations.
#[derive(Default)]
pub struct EventPrinter {
    /// When the last step ended.
    step: Option<DateTime<Utc>>,
}

impl EventPrinter {
    pub fn line(&mut self, event: &AllocationEvent) -> String {
        let name = &event.name;
        match event.kind {
            Kind::State => {
                self.step = Some(event.at);
                let state = event.to_state.map_or_else(|| name.clone(), |state| state.to_string());
                format!("{state}{}", reason(event))
            }
            // A part of a step; the step itself comes after its parts.
            Kind::Phase => {
                let took = match event.duration_ms {
                    Some(ms) => Some(ms),
                    None => self.step.replace(event.at).map(|before| (event.at - before).num_milliseconds()),
                };
                let took = took.map(|ms| format!(" took {}", duration(ms))).unwrap_or_default();
                format!("  {name}{took}{}", reason(event))
            }
            Kind::Access | Kind::Operation => format!("  {name}{}", reason(event)),
        }
    }
}

pub fn duration(ms: i64) -> String {
    match ms {
        ..10_000 => format!("{} ms", ms.max(0)),
        _ => format!("{} s", ms / 1000),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn event(kind: &str, more: &Value) -> AllocationEvent {
        let mut value = json!({
            "seq": 1, "allocation_id": "alloc_0193b3a0000070008000000000000001", "at": "2026-01-02T03:04:05Z",
            "kind": kind, "name": "x", "reason": "", "actor_kind": "system",
        });
        for (name, one) in more.as_object().unwrap() {
            value[name] = one.clone();
        }
        serde_json::from_value(value).unwrap()
    }

    fn state(to: &str, reason: &str) -> AllocationEvent {
        event("state", &json!({ "to_state": to, "reason": reason }))
    }

    #[test]
    fn a_goal_is_reached_by_its_own_events_only() {
        let end = |goal: Goal, event: &AllocationEvent| goal.reached(event);
        assert_eq!(end(Goal::Launch, &state("provisioning", "")), None);
        assert_eq!(end(Goal::Launch, &state("active", "")), Some(Ok(())));
        let failed = end(Goal::Launch, &state("failed", "the machine did not answer in time"));
        assert_eq!(failed, Some(Err("the launch failed: the machine did not answer in time".to_owned())));
        assert_eq!(end(Goal::Release, &state("releasing", "")), None);
        assert_eq!(end(Goal::Release, &state("failed", "cancelled")), Some(Ok(())));
        assert!(matches!(end(Goal::Release, &state("release_failed", "")), Some(Err(_))));
        let restarted = event("operation", &json!({ "name": "restarted" }));
        assert_eq!(end(Goal::Restart, &restarted), Some(Ok(())));
        assert_eq!(end(Goal::Launch, &restarted), None);
        let failed = event("operation", &json!({ "name": "restart_failed", "reason": "r" }));
        assert!(matches!(end(Goal::Restart, &failed), Some(Err(_))));
    }

    #[test]
    fn steps_are_printed_with_their_durations() {
        let mut printer = EventPrinter::default();
        assert_eq!(printer.line(&state("provisioning", "")), "provisioning");
        let part = json!({ "name": "account.create", "duration_ms": 12 });
        assert_eq!(printer.line(&event("phase", &part)), "  account.create took 12 ms");
        let step = json!({ "name": "account", "at": "2026-01-02T03:04:06.5Z" });
        assert_eq!(printer.line(&event("phase", &step)), "  account took 1500 ms");
        let step = json!({ "name": "check", "at": "2026-01-02T03:04:36.5Z", "reason": "8 GPUs" });
        assert_eq!(printer.line(&event("phase", &step)), "  check took 30 s: 8 GPUs");
        assert_eq!(printer.line(&state("failed", "why")), "failed: why");
    }
}
