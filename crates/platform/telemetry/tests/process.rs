//! What a whole process writes: seen from outside, in a child that is this test program again.

use serde_json::Value;
use telemetry::{LogConfig, LogFormat, TelemetryError, init};

const CHILD: &str = "TELEMETRY_TEST_CHILD";

fn config() -> LogConfig {
    LogConfig {
        format: LogFormat::Json,
        filter: "info".to_owned(),
        service: "child".to_owned(),
        roles: vec!["api".to_owned()],
    }
}

#[test]
#[allow(clippy::disallowed_methods)] // A test may start itself.
fn stderr_is_json_line_by_line_even_through_a_panic() {
    if std::env::var_os(CHILD).is_some() {
        let _guard = init(config(), None).unwrap();
        assert!(matches!(init(config(), None), Err(TelemetryError::AlreadyInitialised)));
        tracing::info!(org_id = "org-1", "started");
        let _ = std::thread::spawn(|| {
            let _span = tracing::info_span!("request", correlation_id = "c-1").entered();
            panic!("broken\nin two lines");
        })
        .join();
        return;
    }
    let name = "stderr_is_json_line_by_line_even_through_a_panic";
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert_eq!(lines[0]["message"], "started");
    assert_eq!(lines[0]["org_id"], "org-1");
    assert_eq!(lines[1]["error_code"], "panic");
    assert_eq!(lines[1]["message"], "a thread panicked: broken\nin two lines");
    assert_eq!(lines[1]["correlation_id"], "c-1");
}
