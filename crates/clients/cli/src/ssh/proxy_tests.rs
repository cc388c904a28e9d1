use serde_json::json;

use super::*;

#[test]
fn refusals_say_what_to_do_instead() {
    let refused = refusal("not_supported".to_owned(), "x", "train-1");
    assert_eq!(refused.exit, Exit::Conflict);
    assert!(refused.suggestion.unwrap().contains("gpuaas terminal train-1"));
    assert_eq!(refusal("revoked".to_owned(), "you were signed out", "train-1").exit, Exit::Auth);
    assert_eq!(refusal("node_unreachable".to_owned(), "x", "train-1").exit, Exit::Server);
}

#[test]
fn messages_of_the_server_are_read_and_unknown_ones_are_not_an_end() {
    let read = |value: serde_json::Value| serde_json::from_value::<ServerMessage>(value);
    assert!(matches!(read(json!({ "type": "eof" })), Ok(ServerMessage::Eof)));
    assert!(matches!(read(json!({ "type": "ready" })), Ok(ServerMessage::Other)));
    assert!(matches!(read(json!({ "type": "news", "x": 1 })), Ok(ServerMessage::Other)));
    let error = json!({ "type": "session_error", "code": "c", "message": "m", "retryable": true });
    assert!(matches!(read(error), Ok(ServerMessage::SessionError { .. })));
}
