//! Stripe's own SDK, the judge of everything that claims to speak its wire format.

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

const LIMIT: Duration = Duration::from_secs(60);

/// Runs `stripe_sdk.py` with a body on its standard input; gives what it says, or how it refuses.
// Test processes are started here, and only here.
#[allow(clippy::disallowed_methods)]
pub async fn stripe_sdk(arguments: &[&str], body: &[u8]) -> Result<String, String> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = own.join("../../../.tools/venv/bin/python");
    assert!(python.exists(), "the Stripe SDK is missing: `make test` installs it (scripts/tools.sh stripe)");
    let mut command = Command::new(python);
    command.arg(own.join("src/stripe_sdk.py")).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("start Python");
    let body = body.to_vec();
    let work = tokio::task::spawn_blocking(move || {
        // Dropped at the end of the statement, which ends the input. A program that ended early says why.
        let _ = child.stdin.take().expect("its input").write_all(&body);
        child.wait_with_output().expect("its output")
    });
    let output = tokio::time::timeout(LIMIT, work).await.expect("the SDK takes too long").expect("join");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}
