//! Tasks as operators see them.

use kernel::{Failure, Page, PageQuery, Problem, ids::TaskId};
use pg::ReadTx;

use crate::{model::task::TaskView, store::task_views as rows};

pub use crate::store::task_views::Filter;

/// Newest first.
pub async fn task_list(
    tx: &mut ReadTx,
    filter: &Filter<'_>,
    page: &PageQuery,
) -> Result<Page<TaskView>, Failure> {
    let tasks = rows::list(tx.conn(), filter, page.before(), page.limit()).await?;
    Ok(page.page(tasks, |task| task.id.uuid()))
}

pub async fn task_get(tx: &mut ReadTx, task: TaskId) -> Result<TaskView, Failure> {
    Ok(rows::get(tx.conn(), task).await?.ok_or_else(|| Problem::not_found("task"))?)
}
