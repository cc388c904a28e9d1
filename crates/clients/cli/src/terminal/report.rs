//! How a session ended, for the person: what to print, what to type next, and the exit code.

use kernel::ids::TerminalSessionId;

use super::{
    attach::End,
    local::Leave,
    mint::{Refusal, Retry},
    protocol::WRITER_ATTACHED,
    retry::PATIENCE,
};
use crate::{
    commands::allocations::refusal::quoted,
    failure::{Exit, Failure},
};

/// A session that ended without an error of this program.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The shell ended with this status.
    Exited(u8),
    /// The session goes on without this window.
    Left(Leave),
}

/// The command as it was typed, to be typed again.
pub struct CommandLine {
    pub allocation: String,
    pub org: Option<String>,
    pub project: Option<String>,
}

impl CommandLine {
    pub fn line(&self, session: Option<TerminalSessionId>, option: &str) -> String {
        let mut line = format!("gpuaas terminal {}", quoted(&self.allocation));
        let session = session.map(|session| session.to_string());
        for (flag, value) in [("--session", &session), ("--org", &self.org), ("--project", &self.project)] {
            if let Some(value) = value {
                line.push_str(&format!(" {flag} {}", quoted(value)));
            }
        }
        if !option.is_empty() {
            line.push_str(&format!(" {option}"));
        }
        line
    }

    /// What an end means: the outcome of the command, or why there is none and whether to try again.
    pub fn judge(&self, end: End, session: Option<TerminalSessionId>) -> Result<Outcome, Refusal> {
        let never = |failure| Refusal { failure, retry: Retry::Never };
        match end {
            End::Left(leave) => Ok(Outcome::Left(leave)),
            End::Closed { reason, exit_status } if reason == "exited" => match exit_status {
                Some(status) => Ok(Outcome::Exited(u8::try_from(status).unwrap_or(1))),
                None => Err(never(Failure::client("the shell ended without an exit status"))),
            },
            End::Closed { reason, .. } => Err(never(self.closed(&reason, session))),
            End::Refused { code, message } if code == WRITER_ATTACHED => {
                let mut failure = Failure::new(Exit::Conflict, message);
                failure.code = Some(code);
                let failure = failure.suggest(format!(
                    "Another window types in this session. Type here instead: {}\nOnly watch: {}",
                    self.line(session, "--take-over"),
                    self.line(session, "--watch")
                ));
                Err(Refusal { failure, retry: Retry::WhileStale })
            }
            End::Refused { code, message } => {
                let exit = match code.as_str() {
                    "revoked" | "not_allowed" | "not_your_session" => Exit::Auth,
                    "protocol" | "not_supported" => Exit::Server,
                    _ => Exit::Conflict,
                };
                let mut failure = Failure::new(exit, message);
                failure.code = Some(code);
                Err(never(failure))
            }
            End::TokenRefused => Err(never(
                Failure::new(Exit::Auth, "the server did not accept the token of the terminal")
                    .suggest("Repeat the command: a token can be used once, for some minutes."),
            )),
            End::Lost { reason } => {
                let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
                let failure = Failure::new(Exit::Server, format!("the connection was lost{reason}"));
                Err(Refusal { failure, retry: Retry::After(std::time::Duration::ZERO) })
            }
            End::Invalid { reason } => Err(never(
                Failure::new(Exit::Server, format!("the server does not follow the protocol: {reason}"))
                    .suggest("The program and the server may be of different versions: compare with `gpuaas --version` and `gpuaas doctor`."),
            )),
            End::NoTerminal(failure) => Err(never(failure)),
        }
    }

    fn closed(&self, reason: &str, session: Option<TerminalSessionId>) -> Failure {
        let text = match reason {
            "taken_over" => {
                return Failure::client("another window took over the session").suggest(format!(
                    "Take it back: {}\nOnly watch: {}",
                    self.line(session, "--take-over"),
                    self.line(session, "--watch")
                ));
            }
            "expired" => "the session reached its longest duration and was ended".to_owned(),
            "idle" => "the session was ended because nothing happened in it for too long".to_owned(),
            "ended" => "the session was ended".to_owned(),
            "released" => "the session was ended because its machine was released".to_owned(),
            "lost" => "the session was lost with its node".to_owned(),
            "unused" => "nobody attached to the session in time".to_owned(),
            "node_stopping" => "the session was ended because its node stops".to_owned(),
            other => format!("the session was ended ({other})"),
        };
        Failure::client(text).suggest(format!("Start another one: {}", self.line(None, "")))
    }

    /// No more attempts.
    pub fn gave_up(&self, refusal: Refusal, session: Option<TerminalSessionId>) -> Failure {
        match refusal.retry {
            Retry::Never | Retry::WhileStale => refusal.failure,
            Retry::After(_) => {
                let minutes = PATIENCE.as_secs() / 60;
                let text = format!("no connection for {minutes} minutes: {}", refusal.failure.message);
                Failure { message: text, ..refusal.failure }.suggest(format!(
                    "The session may still go on; come back with: {}",
                    self.line(session, "")
                ))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "term_0193b3a000007000800000000000c0de";

    fn command() -> CommandLine {
        CommandLine { allocation: "my box".to_owned(), org: None, project: Some("lab".to_owned()) }
    }

    fn judge(end: End) -> Result<Outcome, Refusal> {
        command().judge(end, Some(ID.parse().unwrap()))
    }

    fn closed(reason: &str, exit_status: Option<i64>) -> End {
        End::Closed { reason: reason.to_owned(), exit_status }
    }

    #[test]
    fn the_exit_status_of_the_shell_is_ours() {
        for (status, expected) in [(0, 0), (3, 3), (255, 255), (256, 1), (-1, 1)] {
            assert_eq!(judge(closed("exited", Some(status))).unwrap(), Outcome::Exited(expected));
        }
        let refusal = judge(closed("exited", None)).unwrap_err();
        assert_eq!((refusal.failure.exit, refusal.retry), (Exit::Client, Retry::Never));
    }

    #[test]
    fn every_other_end_says_why_and_what_to_type() {
        let session = format!("gpuaas terminal 'my box' --session {ID} --project lab");
        let fresh = "gpuaas terminal 'my box' --project lab".to_owned();
        for (end, exit, retry, message, suggestion) in [
            (
                closed("taken_over", None),
                Exit::Client,
                Retry::Never,
                "took over",
                format!("{session} --take-over"),
            ),
            (closed("idle", None), Exit::Client, Retry::Never, "nothing happened", fresh.clone()),
            (closed("expired", None), Exit::Client, Retry::Never, "longest duration", fresh.clone()),
            (closed("node_stopping", None), Exit::Client, Retry::Never, "node stops", fresh.clone()),
            (closed("ended", None), Exit::Client, Retry::Never, "was ended", fresh.clone()),
            (closed("moon", None), Exit::Client, Retry::Never, "(moon)", fresh),
            (
                End::Refused { code: WRITER_ATTACHED.to_owned(), message: "m".to_owned() },
                Exit::Conflict,
                Retry::WhileStale,
                "m",
                format!("{session} --watch"),
            ),
            (
                End::Refused { code: "revoked".to_owned(), message: "m".to_owned() },
                Exit::Auth,
                Retry::Never,
                "m",
                String::new(),
            ),
            (
                End::Refused { code: "too_many_attached".to_owned(), message: "m".to_owned() },
                Exit::Conflict,
                Retry::Never,
                "m",
                String::new(),
            ),
            (End::TokenRefused, Exit::Auth, Retry::Never, "did not accept", "Repeat".to_owned()),
            (
                End::Lost { reason: Some("r".to_owned()) },
                Exit::Server,
                Retry::After(std::time::Duration::ZERO),
                "lost: r",
                String::new(),
            ),
            (
                End::Invalid { reason: "r".to_owned() },
                Exit::Server,
                Retry::Never,
                "protocol: r",
                String::new(),
            ),
        ] {
            let shown = format!("{end:?}");
            let refusal = judge(end).unwrap_err();
            assert_eq!((refusal.failure.exit, refusal.retry), (exit, retry), "{shown}");
            assert!(refusal.failure.message.contains(message), "{shown}: {}", refusal.failure.message);
            let suggested = refusal.failure.suggestion.unwrap_or_default();
            assert!(suggested.contains(&suggestion), "{shown}: {suggested}");
        }
    }

    #[test]
    fn giving_up_says_how_to_come_back() {
        let refusal = judge(End::Lost { reason: None }).unwrap_err();
        let failure = command().gave_up(refusal, Some(ID.parse().unwrap()));
        assert_eq!(failure.message, "no connection for 10 minutes: the connection was lost");
        assert!(failure.suggestion.unwrap().ends_with(&format!("--session {ID} --project lab")));
    }
}
