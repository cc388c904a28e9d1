//! What sessions cost in which nothing happens.

use std::time::{Duration, Instant};

use super::{
    Bench,
    doors::{Doors, Idle},
};
use crate::{cpu, machines::SETTLE};

impl Bench {
    /// Memory and CPU of open sessions; gives as many of them as are to stay open.
    pub async fn idle(&mut self, doors: &Doors) -> anyhow::Result<Idle> {
        let (all, stay) = (self.options.idle, self.options.beside);
        let product = &doors.machines.product;
        tokio::time::sleep(SETTLE).await;
        let before = cpu::resident_kib(product.pid());
        let staying = doors.open_idle(stay).await?;
        let others = doors.open_idle(all.saturating_sub(stay)).await?;
        tokio::time::sleep(SETTLE).await;
        let after = cpu::resident_kib(product.pid());
        let count = f64::from(all.max(stay));
        let each = after.saturating_sub(before) as f64 / count;
        self.report.figure(
            &format!("{count} idle sessions: resident memory of gpuaasd per session"),
            format!("{each:.1} KB (from {} MB to {} MB)", before / 1024, after / 1024),
            "< 64 KB",
        );
        let (spent, begun) = (doors.machines.cpu(), Instant::now());
        tokio::time::sleep(Duration::from_secs(u64::from(self.seconds) * 5)).await;
        let wall = begun.elapsed().as_micros() as f64;
        let now = doors.machines.cpu();
        let share = |n: usize| 100.0 * now[n].saturating_sub(spent[n]) as f64 / wall;
        self.report.figure(
            &format!("{count} idle sessions: CPU, of one core"),
            format!("gpuaasd {:.1} %, Postgres {:.1} %, nodes {:.1} %", share(0), share(1), share(2)),
            "",
        );
        others.end().await?;
        Ok(staying)
    }
}
