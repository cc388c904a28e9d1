//! A long output through each kind of terminal.

use tokio::task::block_in_place;

use super::{
    Bench,
    direct::Direct,
    doors::Doors,
    line::{Terminal, count_lines, start_stream, time_stream},
    peer::Peer,
    spent::Spent,
};
use crate::report::{self, Sample, median};

/// Of a plain PTY's rate, at least; and of terminado's.
const AIM_OF_PTY: f64 = 0.85;
const AIM_OF_PEER: f64 = 1.0;
const VARIANTS: [&str; 4] =
    ["gpuaasd", "plain PTY, read by the client", "terminado", "gpuaasd, recording switched off"];

/// One run through one kind of terminal.
#[derive(Clone, Copy)]
struct Run {
    megabytes_per_second: f64,
    /// For each MB.
    spent: Spent,
}

impl Run {
    /// The servers of a run are the gateway, the node's process and the peer.
    fn sample(&self) -> Sample {
        Sample {
            per_second: self.megabytes_per_second,
            product_cpu: self.spent.product + self.spent.node + self.spent.peer,
            postgres_cpu: self.spent.postgres,
            client_cpu: self.spent.client,
        }
    }
}

impl Bench {
    pub async fn stream(&mut self, doors: &Doors, peer: &Peer) -> anyhow::Result<()> {
        let dir = doors.machines.product.dir.path();
        let recorded = doors.open(0).await?;
        doors.set_recording("off").await;
        let mut terminals: [Box<dyn Terminal>; VARIANTS.len()] = [
            Box::new(recorded),
            Box::new(Direct::open(dir)?),
            Box::new(peer.open()?),
            Box::new(doors.open(1).await?),
        ];
        let megabytes = f64::from(self.options.megabytes);
        let lines = count_lines(u64::from(self.options.megabytes) * 1_000_000);
        let mut runs: [Vec<Run>; VARIANTS.len()] = Default::default();
        block_in_place(|| {
            for terminal in &mut terminals {
                start_stream(terminal.as_mut(), lines)?;
            }
            for _ in 0..self.pairs {
                for (terminal, runs) in terminals.iter_mut().zip(&mut runs) {
                    let before = Spent::read(doors, peer);
                    let seconds = time_stream(terminal.as_mut(), lines)?.as_secs_f64();
                    let spent = Spent::read(doors, peer).since(&before).scaled(megabytes.recip());
                    runs.push(Run { megabytes_per_second: megabytes / seconds, spent });
                }
            }
            anyhow::Ok(())
        })?;
        let [ours, peers @ ..] = &runs;
        let sample = |runs: &[Run]| median(&runs.iter().map(Run::sample).collect::<Vec<_>>());
        let aims = [Some(AIM_OF_PTY), Some(AIM_OF_PEER), None];
        let peers: Vec<report::Peer> = (VARIANTS[1..].iter().zip(peers).zip(aims))
            .map(|((name, runs), aim)| report::Peer { name, sample: sample(runs), aim })
            .collect();
        let operation = format!("a MB of an output of {megabytes} MB");
        self.report.compare(&operation, sample(ours), &peers);
        for (variant, runs) in VARIANTS.iter().zip(&runs) {
            let spent = Spent::median(&runs.iter().map(|run| run.spent).collect::<Vec<_>>());
            // Microseconds per MB are milliseconds per GB.
            let text = spent.scaled(1e-3).text(2);
            self.report.figure(&format!("CPU seconds per GB of output, {variant}"), text, "");
        }
        Ok(())
    }
}
