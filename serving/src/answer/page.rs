//! A page of metrics that all clients of a short time share.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;

/// For how long a page is given to everybody who asks.
const SHARED: Duration = Duration::from_secs(1);

/// The page as it was rendered last. Clients that ask within a second share one copy: otherwise each client that does not
/// read would keep a copy of its own in memory.
#[derive(Debug, Default)]
pub struct LastPage(Mutex<Option<(Instant, Bytes)>>);

impl LastPage {
    /// The page at `now`, rendered anew when the last one is older than a second.
    ///
    /// # Errors
    /// Those of `render`.
    pub fn page<E>(&self, now: Instant, render: impl FnOnce() -> Result<String, E>) -> Result<Bytes, E> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, page)) = &*last
            && now.saturating_duration_since(*at) < SHARED
        {
            return Ok(page.clone());
        }
        let page = Bytes::from(render()?);
        *last = Some((now, page.clone()));
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_that_ask_at_once_share_one_page_and_later_clients_get_a_new_one() {
        let (last, start) = (LastPage::default(), Instant::now());
        let page =
            |at: Instant, text: &str| last.page(at, || Ok::<_, std::fmt::Error>(text.to_owned())).unwrap();
        let first = page(start, "1");
        assert_eq!(page(start + SHARED - Duration::from_millis(1), "2").as_ptr(), first.as_ptr());
        assert_eq!(page(start + SHARED, "3"), "3");
        assert!(last.page(start + 2 * SHARED, || Err(std::fmt::Error)).is_err());
    }
}
