//! A window on what agents say: taken in batches, bounded per node, followed by operators.

use std::{collections::HashMap, sync::Mutex, time::Duration};

use kernel::{CorrelationId, Failure, Problem, ids::NodeId, policy::keys};
use node_proto::contract::{LOG_LINE_BYTES, LOG_LINES_PER_BATCH, LogBatch, LogsTaken};
use pg::{Connection, Origin, Permit, ReadTx, Watch};
use tokio::time::Instant;

use crate::{
    Fleet,
    model::log::{LogLevel, LogTail},
    service::contacts::keepable,
    store::logs::{self as rows, Line},
};

/// Where the database tells that a node has new lines.
const CHANNEL: &str = "gpuaas_logs";
const SOURCE_BYTES: usize = 64;
const MOST_NODES: usize = 100_000;

/// Lines of each node since its old ones were last forgotten. What a restart forgets here, a job catches up with.
#[derive(Default)]
pub struct LogKeeper(Mutex<HashMap<NodeId, i64>>);

impl LogKeeper {
    pub async fn take(&self, fleet: &Fleet, node: NodeId, batch: LogBatch) -> Result<LogsTaken, Failure> {
        if batch.lines.len() > LOG_LINES_PER_BATCH {
            return Err(Problem::field("lines", format!("at most {LOG_LINES_PER_BATCH} at once")).into());
        }
        let mut lines: Vec<Line> = batch.lines.into_iter().map(line).collect();
        if batch.dropped > 0 {
            let message = format!("{} lines were dropped on the node before this one", batch.dropped);
            let at = fleet.db().ambient().now();
            lines.push(Line { at, level: LogLevel::Warn, source: "agent".to_owned(), message });
        }
        let taken = LogsTaken { lines: u32::try_from(lines.len()).unwrap_or(u32::MAX) };
        if lines.is_empty() {
            return Ok(taken);
        }
        let limit = fleet.policy(keys::FLEET_LOG_LINES_PER_NODE).await?.get();
        let mut upkeep = fleet.db().upkeep("keep what an agent said").await?;
        rows::append(upkeep.conn(), node, &lines).await?;
        if self.is_due(node, i64::from(taken.lines), limit) {
            rows::trim(upkeep.conn(), &[node], limit).await?;
        }
        Ok(taken)
    }

    /// Forgetting is done when a tenth more than allowed may have come together.
    fn is_due(&self, node: NodeId, lines: i64, limit: i64) -> bool {
        let mut counts = self.0.lock().unwrap_or_else(|e| e.into_inner());
        if counts.len() >= MOST_NODES {
            counts.clear();
        }
        let count = counts.entry(node).or_insert(limit);
        *count += lines;
        let due = *count > limit + limit / 10;
        if due {
            *count = limit;
        }
        due
    }
}

fn line(line: node_proto::contract::LogLine) -> Line {
    Line {
        at: keepable(line.at),
        level: line.level.into(),
        source: cut(line.source, SOURCE_BYTES),
        message: cut(line.message, LOG_LINE_BYTES),
    }
}

fn cut(mut text: String, most: usize) -> String {
    if text.len() > most {
        let end = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

/// What a follower asks for.
#[derive(Clone, Copy, Debug)]
pub struct Follow {
    /// The last lines when absent.
    pub after: Option<i64>,
    pub limit: i64,
    /// How long to wait for a line when there is none.
    pub patience: Duration,
}

/// That there is such a node.
pub async fn node_require(conn: &mut Connection, node: NodeId) -> Result<(), Failure> {
    if rows::node_exists(conn, node).await? { Ok(()) } else { Err(Problem::not_found("node").into()) }
}

/// Lines of a node; with patience, as soon as there is one.
pub async fn tail(fleet: &Fleet, mut tx: ReadTx, node: NodeId, follow: Follow) -> Result<LogTail, Failure> {
    node_require(tx.conn(), node).await?;
    let deadline = Instant::now() + follow.patience;
    // Before the first look, so that no line falls between looking and waiting.
    let mut watch = Watch::new(fleet.wake(), CHANNEL, node.uuid().to_string(), follow.patience);
    loop {
        let items = match follow.after {
            Some(after) => rows::after(tx.conn(), node, after, follow.limit).await?,
            None => rows::last(tx.conn(), node, follow.limit).await?,
        };
        if !items.is_empty() || Instant::now() >= deadline {
            let next_after = items.last().map_or(follow.after.unwrap_or(0), |line| line.seq);
            return Ok(LogTail { items, next_after });
        }
        // Nobody holds a connection while waiting.
        drop(tx);
        watch.wait_for_change(deadline).await;
        let origin = Origin::internal(CorrelationId(fleet.db().ambient().uuid()));
        tx = fleet.db().read(&Permit::system("follow the log of a node", origin)).await?;
    }
}

/// Forgets old lines of up to `limit` nodes after `after`; gives the last of them, or nothing at the end.
pub async fn trim_some(fleet: &Fleet, after: uuid::Uuid, limit: i64) -> Result<Option<NodeId>, Failure> {
    let keep = fleet.policy(keys::FLEET_LOG_LINES_PER_NODE).await?.get();
    let mut upkeep = fleet.db().upkeep("forget old log lines of nodes").await?;
    let nodes = rows::nodes_after(upkeep.conn(), after, limit).await?;
    if !nodes.is_empty() {
        rows::trim(upkeep.conn(), &nodes, keep).await?;
    }
    Ok(nodes.last().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_cut_between_characters() {
        assert_eq!(cut("äää".to_owned(), 3), "ä");
        assert_eq!(cut("abc".to_owned(), 3), "abc");
    }

    #[test]
    fn old_lines_are_forgotten_now_and_then_and_not_with_every_batch() {
        let keeper = LogKeeper::default();
        let node = NodeId::from(uuid::Uuid::from_u128(1));
        let due: Vec<bool> = (0..6).map(|_| keeper.is_due(node, 60, 1000)).collect();
        assert_eq!(due, [false, true, false, true, false, true]);
    }
}
