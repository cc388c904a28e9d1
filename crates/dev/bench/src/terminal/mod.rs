//! Terminals: how much output goes through one, how soon a key is answered, how long it takes to get in, and what sessions
//! cost in which nothing happens.
//!
//! One `gpuaasd` in all roles serves them, recording as it does by default; the shells are those of simulated nodes, another
//! process on the same machine, behind real tunnels. The same programs run on a PTY that this process reads itself, which is
//! the limit, and in terminado, which is a web terminal without a control plane. Clients are blocking sockets that count bytes.

mod copy;
mod direct;
mod doors;
mod echo;
mod host;
mod idle;
mod line;
mod opening;
mod peer;
mod spent;
mod stream;
mod web;

use doors::Doors;
use peer::Peer;

use crate::{TERMINAL_EXPECTED, fleet::raise_open_files, progress::Progress, report::Report};

const NOTE: &str = "An operation is a MB of output: `cat` of a file of printable lines, from Enter to the last byte; ops/s are \
     MB/s, CPU µs/op are µs per MB. \
     Ours: client ↔ WebSocket ↔ gpuaasd, which records by policy ↔ tunnel (mTLS, HTTP/2) ↔ simulated node ↔ confined shell; its server is \
     gpuaasd and the process of the node together. Plain PTY: this process reads the same program's output itself, so all \
     of it is the client's. terminado: a WebSocket to a process with a PTY, no tunnel, no recording. The CPU of the program that prints is not \
     counted, as it is the same for all. Keys are typed one after the other into a program that prints what it reads. scp: from its start to its end, so \
     connecting and signing in count; through the tunnel its server is gpuaasd and the agent together, and the CPU of \
     sshd is not counted; both copy between the same client and the same sshd, on a host in namespaces with the real agent.";
/// Sessions of one allocation, of sixteen that a node allows.
const SESSIONS_EACH: u32 = 15;

#[derive(Clone, clap::Args)]
pub struct Options {
    /// Megabytes of output in one run, and of a file that is copied.
    #[arg(long, default_value_t = 200)]
    megabytes: u32,
    /// Keys typed into each kind of terminal.
    #[arg(long, default_value_t = 1000)]
    presses: u32,
    /// Idle sessions whose memory is measured.
    #[arg(long, default_value_t = 200)]
    idle: u32,
    /// So many of them stay open while keys are typed.
    #[arg(long, default_value_t = 100)]
    beside: u32,
    /// Terminals opened on nodes that have a tunnel.
    #[arg(long, default_value_t = 300)]
    opens: u32,
    /// Terminals opened on nodes that have none; each needs a node of its own.
    #[arg(long, default_value_t = 15)]
    cold: u32,
    /// Measure only these.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Opening,
    Idle,
    Keys,
    Stream,
    Scp,
}

impl Options {
    fn has(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }
}

struct Bench {
    report: Report,
    seconds: u32,
    pairs: usize,
    options: Options,
}

pub async fn all((seconds, pairs): (u32, usize), options: &Options, quick: bool) -> anyhow::Result<String> {
    raise_open_files()?;
    let options = if quick {
        Options {
            megabytes: 4,
            presses: 50,
            idle: 20,
            beside: 10,
            opens: 10,
            cold: 3,
            only: options.only.clone(),
        }
    } else {
        options.clone()
    };
    let report = Report::new("Terminals", NOTE, Progress::new("terminal", 7, TERMINAL_EXPECTED));
    let mut bench = Bench { report, seconds, pairs, options };
    bench.measure().await?;
    Ok(bench.report.render())
}

impl Bench {
    async fn measure(&mut self) -> anyhow::Result<()> {
        self.report.step("machines for terminals");
        let idle = self.options.idle.max(self.options.beside);
        let nodes = (self.options.cold + 1).max(idle.div_ceil(SESSIONS_EACH));
        let mut doors = Doors::start(nodes).await?;
        let peer = Peer::start(doors.machines.product.dir.path()).await?;
        if self.options.has(Part::Opening) {
            self.report.step("terminals on nodes without a tunnel");
            self.open_cold(&doors, nodes).await?;
            self.report.step("terminals on nodes with a tunnel");
            self.open_warm(&doors).await?;
        }
        if self.options.has(Part::Idle) || self.options.has(Part::Keys) {
            self.report.step("idle sessions");
            doors.machines.operator.refresh().await?;
            let idle = self.idle(&doors).await?;
            self.report.step("keys");
            self.echo(&doors, &peer, idle).await?;
        }
        if self.options.has(Part::Stream) {
            self.report.step("a long output");
            doors.machines.operator.refresh().await?;
            self.stream(&doors, &peer).await?;
        }
        if self.options.has(Part::Scp) {
            self.report.step("scp");
            self.copy(&doors).await?;
        }
        Ok(())
    }
}
