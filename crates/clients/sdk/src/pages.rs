//! Lists, page after page.

use std::{collections::VecDeque, num::NonZeroU64};

use crate::Error;

const PAGE_SIZE: NonZeroU64 = NonZeroU64::MIN.saturating_add(199);

/// What to ask for next, as the methods of the client take it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRequest {
    page_size: NonZeroU64,
    cursor: Option<String>,
}

impl PageRequest {
    /// At most this many items.
    pub fn size(&self) -> Option<NonZeroU64> {
        Some(self.page_size)
    }

    /// Where the page begins; `None` for the first.
    pub fn cursor(&self) -> Option<&str> {
        self.cursor.as_deref()
    }
}

/// Items of a page, and where the next one begins.
pub type PageItems<T> = (Vec<T>, Option<String>);

/// Follows the cursors of a list and gives its items one by one.
pub struct Pages<T, F> {
    fetch: F,
    items: VecDeque<T>,
    next: Option<PageRequest>,
}

impl<T, F: AsyncFnMut(PageRequest) -> Result<PageItems<T>, Error>> Pages<T, F> {
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
                return Err(Error::Protocol(
                    "the server returned the same page of the list repeatedly".to_owned(),
                ));
            }
            self.items = items.into();
            self.next = cursor.map(|cursor| PageRequest { page_size, cursor: Some(cursor) });
        }
    }

    /// The first `limit` items, or all of them. No more pages are fetched than are needed.
    pub async fn collect(mut self, limit: Option<usize>) -> Result<Vec<T>, Error> {
        let limit = limit.unwrap_or(usize::MAX);
        if let (Some(request), Ok(size)) = (&mut self.next, u64::try_from(limit)) {
            request.page_size = NonZeroU64::new(size).unwrap_or(NonZeroU64::MIN).min(PAGE_SIZE);
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
        let from: u32 = request.cursor().map_or(0, |cursor| cursor.parse().unwrap());
        let to = (from + u32::try_from(request.page_size.get()).unwrap()).min(450);
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
        let pages = Pages::new(async |request: PageRequest| {
            fetched += request.page_size.get();
            numbers(request).await
        });
        assert_eq!(pages.collect(Some(7)).await.unwrap().len(), 7);
        assert_eq!(fetched, 7);
    }

    #[tokio::test]
    async fn a_cursor_that_leads_nowhere_ends_with_an_error() {
        let stuck = async |_: PageRequest| Ok((vec![1], Some("same".to_owned())));
        assert!(matches!(Pages::new(stuck).collect(None).await, Err(Error::Protocol(_))));
    }
}
