//! Full handshakes with certificates on both sides, beside OpenSSL's own server.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use testkit::free_port;

use super::Bench;
use crate::{
    cpu, exec,
    report::{Peer, Sample, median},
    scenarios::wait_for,
};

/// The least share of OpenSSL's rate that we mean to reach.
const AIM: f64 = 0.5;
/// The server finishes what the client has left already.
const SETTLE: Duration = Duration::from_millis(300);

/// Where the client's certificate and all roots are.
struct Client {
    cert: PathBuf,
    key: PathBuf,
    authorities: PathBuf,
    seconds: u32,
}

impl Bench {
    pub async fn handshakes(&mut self) -> anyhow::Result<()> {
        let dir = self.product.dir.path().join("handshakes");
        std::fs::create_dir_all(&dir)?;
        let certified = self.operator.enroll(&self.product, "bench-handshakes").await?;
        let (root, issuing) = self.operator.authority().await?;
        chain(&dir).await?;
        let file = |name: &str, text: &str| -> anyhow::Result<PathBuf> {
            let path = dir.join(name);
            std::fs::write(&path, text)?;
            Ok(path)
        };
        let others = std::fs::read_to_string(dir.join("root.pem"))?;
        let client = Client {
            // The client's own file holds one certificate; the rest of its chain it finds among the authorities.
            cert: file(
                "node.pem",
                certified
                    .chain
                    .split_inclusive("-----END CERTIFICATE-----\n")
                    .next()
                    .unwrap_or(&certified.chain),
            )?,
            key: file("node.key", &certified.key)?,
            authorities: file("all.pem", &format!("{root}\n{issuing}\n{others}"))?,
            seconds: self.seconds,
        };
        let ours_roots = file("ours.pem", &format!("{root}\n{issuing}\n"))?;
        let (peer, peer_port) = serve(&dir, &ours_roots).await?;
        let (mut ours, mut theirs) = (vec![], vec![]);
        for _ in 0..self.pairs {
            ours.push(
                client.connect(self.product.node_port, self.product.pid(), self.product.postmaster()).await?,
            );
            theirs.push(client.connect(peer_port, peer.pid(), 0).await?);
        }
        let peer = Peer {
            name: "openssl s_server, same kinds of certificates",
            sample: median(&theirs),
            aim: Some(AIM),
        };
        self.report.compare("full mTLS handshake, TLS 1.3", median(&ours), &[peer]);
        Ok(())
    }
}

impl Client {
    async fn connect(&self, port: u16, server: u32, postmaster: u32) -> anyhow::Result<Sample> {
        let mut command = exec::command("openssl");
        command.args(["s_time", "-new", "-tls1_3", "-verify", "3", "-connect", &format!("127.0.0.1:{port}")]);
        command.args(["-time", &self.seconds.to_string()]);
        command.arg("-cert").arg(&self.cert).arg("-key").arg(&self.key).arg("-CAfile").arg(&self.authorities);
        let read =
            || (cpu::process_micros(server), cpu::family_micros(postmaster), cpu::finished_children_micros());
        let (before, begun) = (read(), Instant::now());
        let text = exec::output(command).await?;
        let elapsed = begun.elapsed();
        tokio::time::sleep(SETTLE).await;
        let after = read();
        let count = text.lines().find_map(|line| line.split_once(" connections in ")?.0.parse::<f64>().ok());
        let count = count.filter(|n| *n > 0.0).with_context(|| format!("no connections: {text}"))?;
        let each = |a: u64, b: u64| b.saturating_sub(a) as f64 / count;
        Ok(Sample {
            per_second: count / elapsed.as_secs_f64(),
            product_cpu: each(before.0, after.0),
            postgres_cpu: each(before.1, after.1),
            client_cpu: each(before.2, after.2),
        })
    }
}

/// OpenSSL's server, which believes our nodes. It answers nothing, as the client asks nothing.
async fn serve(dir: &Path, roots: &Path) -> anyhow::Result<(exec::Running, u16)> {
    let port = free_port();
    let mut command = exec::command("openssl");
    command.args([
        "s_server",
        "-tls1_3",
        "-www",
        "-quiet",
        "-num_tickets",
        "0",
        "-accept",
        &format!("127.0.0.1:{port}"),
    ]);
    command.args(["-Verify", "3", "-verify_return_error", "-verify_quiet"]).arg("-CAfile").arg(roots);
    command.arg("-cert").arg(dir.join("server.pem")).arg("-key").arg(dir.join("server.key"));
    command.arg("-cert_chain").arg(dir.join("issuing.pem"));
    command.stdout(Stdio::null()).stderr(std::fs::File::create(dir.join("log"))?);
    let running = exec::Running::start(command)?;
    wait_for(port).await?;
    Ok((running, port))
}

/// Root, issuing authority and server with keys like ours.
async fn chain(dir: &Path) -> anyhow::Result<()> {
    std::fs::write(dir.join("ca.ext"), "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\n")?;
    std::fs::write(dir.join("server.ext"), "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth\n")?;
    let openssl = async |text: String| {
        let mut command = exec::command("openssl");
        command.args(text.split(' ')).current_dir(dir);
        exec::output(command).await
    };
    for name in ["root", "issuing", "server"] {
        openssl(format!("ecparam -name prime256v1 -genkey -noout -out {name}.key")).await?;
        openssl(format!("req -new -key {name}.key -subj /CN={name} -out {name}.csr")).await?;
    }
    openssl("x509 -req -in root.csr -signkey root.key -days 30 -extfile ca.ext -out root.pem".to_owned())
        .await?;
    for (name, by, extensions) in [("issuing", "root", "ca.ext"), ("server", "issuing", "server.ext")] {
        openssl(format!(
            "x509 -req -in {name}.csr -CA {by}.pem -CAkey {by}.key -CAcreateserial -days 30 -extfile {extensions} -out {name}.pem"
        ))
        .await?;
    }
    Ok(())
}
