//! How long it takes from the wish for a terminal to its first byte.

use std::time::Instant;

use serde_json::json;
use tokio::task::block_in_place;

use super::{Bench, doors::Doors};
use crate::times::Times;

/// Before the first that counts.
const WARM_UP: usize = 5;

/// A token, and what was opened with it.
#[derive(Default)]
struct Openings {
    mint: Vec<std::time::Duration>,
    connect: Vec<std::time::Duration>,
}

impl Bench {
    /// The first stream to nodes that have no tunnel. The first shell of all finds out how shells are confined here, and does not count.
    pub async fn open_cold(&mut self, doors: &Doors, nodes: u32) -> anyhow::Result<()> {
        let mut times = Vec::new();
        for number in 0..nodes as usize {
            let token = doors.mint(number, json!({})).await?;
            let begun = Instant::now();
            let terminal = doors.attach(number, &token, 0)?;
            if number > 0 {
                times.push(begun.elapsed());
            }
            block_in_place(|| terminal.exit())?;
        }
        let times = Times::new(times);
        let name = format!("token → session_ready, the node dials first, new shell, {} nodes", times.count());
        self.report.figure(&name, times.text(), "p99 ≤ 100 ms");
        Ok(())
    }

    /// Streams to nodes that have a tunnel: to new shells, and to one that runs.
    pub async fn open_warm(&mut self, doors: &Doors) -> anyhow::Result<()> {
        let mut new = Openings::default();
        let opens = self.options.opens as usize;
        for number in 0..WARM_UP + opens {
            let begun = Instant::now();
            let token = doors.mint(number, json!({})).await?;
            let minted = Instant::now();
            let terminal = doors.attach(number, &token, 0)?;
            if number >= WARM_UP {
                new.mint.push(minted - begun);
                new.connect.push(minted.elapsed());
            }
            block_in_place(|| terminal.exit())?;
        }
        let mut running = Openings::default();
        let mut terminal = doors.open(0).await?;
        for number in 0..WARM_UP + opens {
            let (session, received) = (terminal.session.clone(), terminal.received());
            block_in_place(|| terminal.detach())?;
            let begun = Instant::now();
            let body = json!({ "session_id": session, "access": "take_over" });
            let token = doors.mint(0, body).await?;
            let minted = Instant::now();
            terminal = doors.attach(0, &token, received)?;
            if number >= WARM_UP {
                running.mint.push(minted - begun);
                running.connect.push(minted.elapsed());
            }
        }
        block_in_place(|| terminal.exit())?;
        // To start a confined shell is the node's work; the aim is for the stream.
        for (what, times, aim) in [("new shell", new, ""), ("shell that runs", running, "p99 ≤ 10 ms")] {
            let (mint, connect) = (Times::new(times.mint), Times::new(times.connect));
            self.report.figure(
                &format!("token → session_ready, tunnel is there, {what}, {} times", connect.count()),
                connect.text(),
                aim,
            );
            let name = format!("token minted through the API, {what}, {} times", mint.count());
            self.report.figure(&name, mint.text(), "");
        }
        Ok(())
    }
}
