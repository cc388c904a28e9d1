//! Past and future events on standard output.

use std::num::NonZeroU64;

use futures_util::StreamExt as _;
use sdk::types::{AllocationEvent, AllocationHistory};
use serde_json::Value;

use super::{
    Place,
    follow::{EventPrinter, Events, Following},
    stream::Frames,
};
use crate::{
    args::Format,
    failure::{Exit, Failure, Result, local},
    output::{Columns, printable, write_on},
};

const EVENTS: Columns = &[
    ("AT", "at"),
    ("KIND", "kind"),
    ("NAME", "name"),
    ("STATE", "to_state"),
    ("MS", "duration_ms"),
    ("REASON", "reason"),
    ("BY", "actor_kind"),
    ("SEQ", "seq"),
];
/// Maximum number of events per response.
const PAGE: NonZeroU64 = NonZeroU64::MIN.saturating_add(499);

async fn page(place: &Place<'_>, id: &str, after: i64) -> Result<AllocationHistory> {
    Ok(send!(place.client.allocation_events(&place.project, id, Some(after), Some(PAGE))))
}

async fn all(place: &Place<'_>, id: &str) -> Result<Vec<AllocationEvent>> {
    let (mut events, mut after) = (Vec::new(), 0);
    loop {
        let page = page(place, id, after).await?;
        if page.items.is_empty() || page.next_after <= after {
            return Ok(events);
        }
        after = page.next_after;
        events.extend(page.items);
    }
}

/// The sequence number of the newest event.
pub async fn last(place: &Place<'_>, id: &str) -> Result<i64> {
    Ok(all(place, id).await?.last().map_or(0, |event| event.seq))
}

pub async fn events(place: &Place<'_>, id: &str, follow_on: bool) -> Result {
    if follow_on {
        return follow(place, id, 0).await;
    }
    place.app.out.list(&all(place, id).await?, EVENTS)
}

/// Prints the events after a given one until the allocation has ended or the output is closed.
pub async fn follow(place: &Place<'_>, id: &str, after: i64) -> Result {
    let following = Following { client: place.client, project: &place.project, allocation: id };
    let mut events = Events::new(following, after);
    let mut printer = EventPrinter::default();
    loop {
        let event = tokio::select! {
            event = events.next() => event?,
            _ = tokio::signal::ctrl_c() => return Ok(()),
        };
        let Some(event) = event else { return Ok(()) };
        let line = if place.app.out.format == Format::Json {
            serde_json::to_string(&event).map_err(local("the result cannot be printed"))?
        } else {
            let at = event.at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
            printable(&format!("{at}  {}", printer.line(&event)))
        };
        if !write_on(format!("{line}\n").as_bytes())? {
            return Ok(());
        }
    }
}

/// Prints every live allocation of the project, then each one that changes.
pub async fn project(place: &Place<'_>) -> Result {
    loop {
        let mut stream = send!(place.client.allocation_watch(&place.project));
        let mut frames = Frames::default();
        loop {
            let piece = tokio::select! {
                piece = stream.next() => piece,
                _ = tokio::signal::ctrl_c() => return Ok(()),
            };
            // The server ends a stream after some minutes; open another.
            let Some(Ok(piece)) = piece else { break };
            for frame in frames.feed(&piece)? {
                if frame.event == "allocation" && !write_on(changed(place, &frame.data)?.as_bytes())? {
                    return Ok(());
                }
            }
        }
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
}

fn changed(place: &Place<'_>, data: &str) -> Result<String> {
    if place.app.out.format == Format::Json {
        return Ok(format!("{data}\n"));
    }
    let one: Value = serde_json::from_str(data)
        .map_err(|error| Failure::new(Exit::Server, format!("the server sent an invalid event: {error}")))?;
    let text = |name: &str| one[name].as_str().unwrap_or_default().to_owned();
    let reason = Some(text("state_reason")).filter(|reason| !reason.is_empty());
    let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    let line =
        format!("{}  {}  {}  {}{reason}", text("state_changed_at"), text("id"), text("name"), text("state"));
    Ok(format!("{}\n", printable(&line)))
}
