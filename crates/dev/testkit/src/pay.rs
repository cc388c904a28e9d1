//! The simulated payment provider as a real process.

use std::{
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use reqwest::Method;
use serde_json::Value;
use url::Url;

use crate::{Api, Browser, Page, ServerOptions, eventually, free_port, process::child_kill, program};

/// Where the control plane hears what became of payments.
pub const WEBHOOK_PATH: &str = "/webhooks/payments";
const KEY: &str = "sk_test_of_the_tests"; // secret-scan: allow

/// `gpuaas-pay-sim` with a directory of its own, killed when dropped.
pub struct PaySim {
    pub base: String,
    pub dir: tempfile::TempDir,
    arguments: Vec<String>,
    child: Option<Child>,
}

impl PaySim {
    /// Chooses a port and the secrets, without starting anything: the control plane wants to know both first.
    pub fn prepare() -> Self {
        let dir = tempfile::Builder::new().prefix("gpuaas-pay-").tempdir().expect("a temporary directory");
        let sim = Self {
            base: format!("http://127.0.0.1:{}", free_port()),
            dir,
            arguments: Vec::new(),
            child: None,
        };
        sim.set_secrets(&["whsec_of_the_tests"]);
        write_private(sim.file("api-key"), KEY);
        sim
    }

    /// A provider whose messages go to `webhook_url`, with more arguments.
    pub async fn start(&mut self, webhook_url: &str, arguments: &[&str]) {
        let own = ["--webhook-url", webhook_url, "--retry-ms", "50"];
        self.arguments = own.iter().chain(arguments).map(|argument| (*argument).to_owned()).collect();
        self.restart().await;
    }

    /// Starts it again on what it knew.
    // Test processes are started here, and only here.
    #[allow(clippy::disallowed_methods)]
    pub async fn restart(&mut self) {
        self.kill();
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.file("pay-sim.log"));
        let log = log.expect("open the log");
        let errors = log.try_clone().expect("a second handle");
        let mut command = Command::new(program("gpuaas-pay-sim"));
        command.args(["--listen", self.base.trim_start_matches("http://")]).args(&self.arguments);
        for (flag, name) in [
            ("--state", "state.json"),
            ("--webhook-secret-file", "webhook-secret"),
            ("--api-key-file", "api-key"),
        ] {
            command.arg(flag).arg(self.file(name));
        }
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        self.child = Some(command.spawn().expect("start gpuaas-pay-sim"));
        let api = self.api();
        eventually("the simulated provider answers", || async {
            let sent = api.request(Method::GET, "/healthz").send().await;
            sent.is_ok_and(|response| response.status().is_success()).then_some(())
        })
        .await;
    }

    pub fn kill(&mut self) {
        child_kill(&mut self.child);
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.file("pay-sim.log")).unwrap_or_default()
    }

    /// What messages are signed with from now on. The control plane knows those that were set before `options`.
    pub fn set_secrets(&self, secrets: &[&str]) {
        write_private(self.file("webhook-secret.new"), &secrets.join("\n"));
        std::fs::rename(self.file("webhook-secret.new"), self.file("webhook-secret"))
            .expect("replace the secrets");
    }

    /// Server options that take payments through this provider.
    pub fn options(&self) -> ServerOptions {
        let secrets = std::fs::read_to_string(self.file("webhook-secret")).expect("the secrets");
        let files = secrets.lines().enumerate().map(|(at, secret)| {
            let file = self.file(&format!("webhook-secret-{at}"));
            write_private(file.clone(), secret);
            format!("\"{}\"", file.display())
        });
        let config = format!(
            "[payments]\nprovider = \"simulated\"\napi_url = \"{}\"\nsecret_key_file = \"{}\"\nwebhook_secret_files = [{}]\n",
            self.base,
            self.file("api-key").display(),
            files.collect::<Vec<_>>().join(", "),
        );
        ServerOptions { config, ..ServerOptions::default() }
    }

    pub fn api(&self) -> Api {
        Api::new(&self.base, Some(KEY.to_owned()))
    }

    /// Does what no real provider offers, or what its clients do.
    pub async fn post(&self, path: &str, form: &[(&str, &str)]) -> Value {
        let api = self.api();
        api.send(api.request(Method::POST, path).form(form)).await.expect(200)
    }

    pub async fn get(&self, path: &str) -> Value {
        self.api().get(path).await.expect(200)
    }

    /// Presses a button (`pay`, `decline`, `cancel`) of a checkout page; gives where that leads to.
    pub async fn press(&self, checkout_url: &str, button: &str) -> Page {
        let mut browser = Browser::default();
        let page = browser.open(Url::parse(checkout_url).expect("a URL"), None).await;
        assert!(page.status == 200 && page.html.contains("SIMULATED"), "{}: {}", page.status, page.html);
        // Where people come from and go back to is not opened.
        browser.submit(&page, &format!("/{button}"), &[], Some("http://127.0.0.1")).await
    }

    /// Waits until every message was taken.
    pub async fn all_delivered(&self) {
        eventually("every message of the provider is taken", || async {
            let told = self.get("/sim/deliveries").await;
            assert_eq!(told["given_up"], serde_json::json!([]), "messages were given up");
            (told["waiting"] == 0).then_some(())
        })
        .await;
    }
}

fn write_private(path: PathBuf, text: &str) {
    std::fs::write(&path, format!("{text}\n")).expect("write a secret");
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&path, private).expect("permissions");
}

impl Drop for PaySim {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let log = self.log();
            let skipped = log.len().saturating_sub(4_000);
            println!("the end of the simulated provider's log:\n{}", log.get(skipped..).unwrap_or(&log));
        }
    }
}
