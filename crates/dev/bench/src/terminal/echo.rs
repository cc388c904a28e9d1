//! From a key to its echo.

use tokio::task::block_in_place;

use super::{
    Bench,
    direct::Direct,
    doors::{Doors, Idle},
    line::{Terminal, start_echo, time_echoes},
    peer::Peer,
    spent::Spent,
};
use crate::times::Times;

/// Before the first that counts.
const WARM_UP: u32 = 20;
/// Ours to a direct web terminal, at most.
const AIM: f64 = 1.6;

impl Bench {
    pub async fn echo(&mut self, doors: &Doors, peer: &Peer, idle: Idle) -> anyhow::Result<()> {
        let dir = doors.machines.product.dir.path();
        let ours = format!("gpuaasd with {} idle sessions beside it", self.options.beside);
        let mut variants: [(&str, Box<dyn Terminal>); 3] = [
            ("plain PTY", Box::new(Direct::open(dir)?)),
            ("terminado", Box::new(peer.open()?)),
            (&ours, Box::new(doors.open(0).await?)),
        ];
        let rounds = u32::try_from(self.pairs)?;
        let presses = self.options.presses.div_ceil(rounds);
        let mut spent = [Spent::default(); 3];
        let times = block_in_place(|| {
            for (_, terminal) in &mut variants {
                start_echo(terminal.as_mut())?;
                time_echoes(terminal.as_mut(), WARM_UP)?;
            }
            let mut times = [Vec::new(), Vec::new(), Vec::new()];
            for _ in 0..rounds {
                for (n, (_, terminal)) in variants.iter_mut().enumerate() {
                    let before = Spent::read(doors, peer);
                    times[n].extend(time_echoes(terminal.as_mut(), presses)?);
                    spent[n] += Spent::read(doors, peer).since(&before);
                }
            }
            anyhow::Ok(times.map(Times::new))
        })?;
        idle.end().await?;
        for (n, (variant, _)) in variants.iter().enumerate() {
            let count = times[n].count();
            let name = format!("key → echo, {variant}, {count} times");
            self.report.figure(&name, times[n].text_micros(), "");
            let each = spent[n].scaled((count as f64).recip()).text(0);
            self.report.figure(&format!("CPU µs per key, {variant}"), each, "");
        }
        let [direct, web, ours] = &times;
        let ratio = |other: &Times, share| ours.quantile(share) / other.quantile(share);
        self.report.figure(
            "key → echo, gpuaasd ÷ terminado (a direct web terminal)",
            format!("p50 {:.2}, p99 {:.2}", ratio(web, 0.5), ratio(web, 0.99)),
            &format!("p50 ≤ {AIM}"),
        );
        let figure = format!("p50 {:.2}, p99 {:.2}", ratio(direct, 0.5), ratio(direct, 0.99));
        self.report.figure("key → echo, gpuaasd ÷ plain PTY", figure, "");
        Ok(())
    }
}
