//! Lists, page after page.

use std::{collections::VecDeque, future::Future};

use crate::Error;

const PAGE_SIZE: u64 = 200;

/// What to ask for next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRequest {
    pub page_size: u64,
    pub cursor: Option<String>,
}

/// Items of a page, and where the next one begins.
pub type PageItems<T> = (Vec<T>, Option<String>);

/// Follows the cursors of a list and gives its items one by one.
pub struct Pages<T, F> {
    fetch: F,
    items: VecDeque<T>,
    next: Option<PageRequest>,
}

impl<T, F, Fut> Pages<T, F>
where
    F: FnMut(PageRequest) -> Fut,
    Fut: Future<Output = Result<PageItems<T>, Error>>,
{
    pub fn new(fetch: F) -> Self {
        Self { fetch, items: VecDeque::new(), next: Some(PageRequest { page_size: PAGE_SIZE, cursor: None }) }
    }

    /// The next item; `None` at the end of the list.
    pub async fn next(&mut self) -> Result<Option<T>, Error> {
        loop {
            if let Some(item) = self.items.pop_front() {
                return Ok(Some(item));
            }
            let Some(request) = self.next.take() else { return Ok(None) };
            let before = request.cursor.clone();
            let page_size = request.page_size;
            let (items, cursor) = (self.fetch)(request).await?;
            if cursor.is_some() && cursor == before {
                return Err(Error::Protocol("the server repeats a page of the list without end".to_owned()));
            }
            self.items = items.into();
            self.next = cursor.map(|cursor| PageRequest { page_size, cursor: Some(cursor) });
        }
    }

    /// The first `limit` items, or all of them. No more pages are fetched than are needed.
    pub async fn collect(mut self, limit: Option<usize>) -> Result<Vec<T>, Error> {
        let limit = limit.unwrap_or(usize::MAX);
        if let (Some(request), Ok(size)) = (&mut self.next, u64::try_from(limit)) {
            request.page_size = size.clamp(1, PAGE_SIZE);
        }
        let mut all = Vec::new();
        while all.len() < limit
            && let Some(item) = self.next().await?
        {
            all.push(item);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn numbers(request: PageRequest) -> Result<PageItems<u32>, Error> {
        let from: u32 = request.cursor.map_or(0, |cursor| cursor.parse().unwrap());
        let to = (from + u32::try_from(request.page_size).unwrap()).min(450);
        Ok(((from..to).collect(), (to < 450).then(|| to.to_string())))
    }

    #[tokio::test]
    async fn all_pages_are_followed_in_order() {
        let all = Pages::new(numbers).collect(None).await.unwrap();
        assert_eq!(all, (0..450).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_limit_fetches_only_what_it_needs() {
        let mut fetched = 0;
        let pages = Pages::new(|request: PageRequest| {
            fetched += request.page_size;
            numbers(request)
        });
        assert_eq!(pages.collect(Some(7)).await.unwrap().len(), 7);
        assert_eq!(fetched, 7);
    }

    #[tokio::test]
    async fn a_cursor_that_leads_nowhere_ends_with_an_error() {
        let stuck = |_: PageRequest| async { Ok((vec![1], Some("same".to_owned()))) };
        assert!(matches!(Pages::new(stuck).collect(None).await, Err(Error::Protocol(_))));
    }
}
