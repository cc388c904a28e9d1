//! Upkeep beside a gateway: ends that were asked for, ends that nobody told, and what nobody needs any more.

mod recordings;

use std::time::Duration;

use fleet::api::{ReachError, Tunnels};
use node_proto::{contract::TunnelClass, grant::SignedGrant};
use node_tunnel::OpenError;
use pg::Wake;
use tokio::task::JoinSet;

pub use self::recordings::run_recordings;
use crate::{
    Terminals,
    model::session::END_CHANNEL,
    service::upkeep::{ToEnd, session_ends_claim, session_note_end, sessions_end_lost, terminals_tidy},
};

/// What a missed notification costs at most.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Somebody who lost the right to enter keeps a shell that they are not attached to for less than a minute.
const TIDY_EVERY: Duration = Duration::from_secs(20);
/// Sessions that are ended at the same time.
const ENDS_AT_ONCE: usize = 32;

/// Ends sessions on their nodes. A node that is away keeps nobody else waiting. Never ends itself.
pub async fn run_ends(terminals: Terminals, tunnels: Tunnels, wake: Wake) {
    let mut notices = wake.subscribe();
    let mut running = JoinSet::new();
    loop {
        let free = ENDS_AT_ONCE.saturating_sub(running.len());
        match session_ends_claim(&terminals, free).await {
            Ok(due) => due.into_iter().for_each(|one| {
                running.spawn(session_end(terminals.clone(), tunnels.clone(), one));
            }),
            Err(failure) => {
                tracing::warn!(error = ?failure, "could not look for sessions to end; trying again")
            }
        }
        tokio::select! {
            () = Wake::wait(&mut notices, END_CHANNEL, LOOK_EVERY) => {}
            Some(_) = running.join_next(), if !running.is_empty() => {}
        }
    }
}

/// What could not be ended is claimed again, until the session is over by itself.
async fn session_end(terminals: Terminals, tunnels: Tunnels, one: ToEnd) {
    let Ok(grant) = serde_json::from_slice::<SignedGrant>(&one.grant) else { return };
    match tunnels.open(one.node, TunnelClass::Interactive, &grant).await {
        Ok(_) => {}
        Err(ReachError::Open(OpenError::Refused(code))) if is_gone(&code) => {}
        Err(error) => {
            tracing::warn!(session_id = %one.id, %error, "a terminal session could not be ended; it is tried again");
            return;
        }
    }
    if let Err(failure) = session_note_end(&terminals, one.id, "ended", None).await {
        tracing::warn!(session_id = %one.id, error = ?failure, "the end of a terminal session could not be noted");
    }
}

/// What a node says of a session that is over there, or whose end it has begun.
fn is_gone(code: &str) -> bool {
    matches!(code, "no_such_session" | "session_ended" | "no_such_owner" | "replayed" | "superseded")
}

/// Forgets and notes what is over, and has sessions ended whose owners may not enter any more. Never ends itself.
pub async fn run_tidy(terminals: Terminals) {
    bus::periodic::every(TIDY_EVERY, "terminal sessions and tokens were tidied", move || {
        let terminals = terminals.clone();
        async move {
            // Tokens are forgotten although it cannot be said who lost access, and the other way round.
            let (asked, tidied) = tokio::join!(sessions_end_lost(&terminals), terminals_tidy(&terminals));
            let touched = asked?.saturating_add(tidied?);
            Ok(usize::try_from(touched).unwrap_or(usize::MAX))
        }
    })
    .await
}
