//! A session across connections: mint a token, connect, attach, and do so again when the connection is lost.

use std::{io::IsTerminal as _, time::Duration};

use kernel::{Ambient, ids::TerminalSessionId};
use sdk::reqwest;
use tokio::time::{Instant, sleep, timeout};

use super::{
    attach::{Attachment, End, Position},
    local::Local,
    mint::{Mint, Refusal, Retry},
    protocol::Access,
    report::{CommandLine, Outcome},
    retry::Retries,
    screen::Screen,
    socket,
};
use crate::failure::{Failure, Result};

/// For the last output, on a terminal that takes none.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// What a program switches on, and switches off at its end, which this window does not see: the other screen, mouse
/// reports, bracketed paste, application keys, a hidden cursor, colours.
const RESET_MODES: &[u8] =
    b"\x1b[?47l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1l\x1b>\x1b[?25h\x1b[0m";

pub struct Run<'a, M> {
    pub mint: M,
    pub http: reqwest::Client,
    pub server: &'a str,
    pub ambient: &'a Ambient,
    pub command: CommandLine,
    /// None before the first token of a new session.
    pub session: Option<TerminalSessionId>,
    pub access: Access,
}

impl<M: Mint> Run<'_, M> {
    /// Until the session ends or is left; its output is written then.
    pub async fn run(&mut self, local: &mut Local, screen: &Screen) -> Result<Outcome> {
        let outcome = self.attachments(local, screen).await;
        if local.is_raw() && !matches!(outcome, Ok(Outcome::Exited(_))) {
            if std::io::stdout().is_terminal() {
                screen.control(RESET_MODES);
            }
            screen.line_break();
        }
        let _ = timeout(DRAIN_TIMEOUT, screen.drained()).await;
        outcome
    }

    async fn attachments(&mut self, local: &mut Local, screen: &Screen) -> Result<Outcome> {
        let mut position = Position::default();
        let mut retries = Retries::default();
        let mut is_first = true;
        loop {
            position.ready_at = None;
            let attempt = match Box::pin(self.attempt(local, screen, &mut position)).await {
                // A computer that slept between the token and its use: the next token is a new one.
                Ok(End::TokenRefused) if position.attachments > 0 => {
                    Ok(End::Lost { reason: Some("the token was too old".to_owned()) })
                }
                other => other,
            };
            let reason = match &attempt {
                Ok(End::Lost { reason: Some(reason) }) => format!(" ({reason})"),
                _ => String::new(),
            };
            let refusal = match attempt.map(|end| self.command.judge(end, self.session)) {
                Ok(Ok(outcome)) => return Ok(outcome),
                Ok(Err(refusal)) => refusal,
                // At the start there is nothing to come back to.
                Err(refusal) if is_first => return Err(refusal.failure),
                Err(refusal) => refusal,
            };
            is_first = false;
            // A writer that is attached before we ever were is not this window.
            if refusal.retry == Retry::WhileStale && position.attachments == 0 {
                return Err(refusal.failure);
            }
            if position.attachments > 0 && self.access == Access::TakeOver {
                // Once: who takes over from this window while it is away keeps the session.
                self.access = Access::Write;
            }
            let now = Instant::now();
            let is_news = retries.lost(position.ready_at, now);
            let jitter = f64::from(self.ambient.bytes::<1>()[0]) / 255.0;
            let Some(pause) = retries.pause(refusal.retry, jitter, now) else {
                return Err(self.command.gave_up(refusal, self.session));
            };
            if is_news {
                screen.notice(&format!("connection lost{reason}; reconnecting …"));
                local.forget_typed();
            }
            tokio::select! {
                () = sleep(pause) => {}
                leave = local.left(screen) => return Ok(Outcome::Left(leave)),
            }
        }
    }

    /// One connection, from its token to its end. All output is on the screen before the server is asked for more, so
    /// that a terminal that takes none does not fill the memory.
    async fn attempt(
        &mut self,
        local: &mut Local,
        screen: &Screen,
        position: &mut Position,
    ) -> std::result::Result<End, Refusal> {
        let session = &mut self.session;
        let (mint, http, server, access) = (&self.mint, &self.http, self.server, self.access);
        let connect = async {
            let gone = |_| Failure::client("the terminal cannot be written any more");
            screen.drained().await.map_err(gone)?;
            let minted = mint.mint(*session, access).await?;
            *session = Some(minted.session_id);
            Ok::<_, Refusal>(socket::connect(http, server, &minted).await?)
        };
        let socket = tokio::select! {
            connected = connect => connected?,
            leave = local.left(screen) => return Ok(End::Left(leave)),
        };
        // Typed while there was no connection: it was meant for what is not on the screen any more.
        if position.attachments > 0 {
            local.forget_typed();
        }
        Ok(Attachment::new(socket, local, screen, position).run().await)
    }
}
