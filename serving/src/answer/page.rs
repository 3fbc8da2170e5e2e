//! A page of metrics that all clients of a short time share.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;

/// For how long a page is given to everybody who asks.
const SHARED: Duration = Duration::from_secs(1);

/// For how long, while clients that do not read hold many older ones.
const SHARED_LONGER: Duration = Duration::from_secs(5);
/// So many.
const MANY: usize = 4;

/// The page as it was rendered last. Clients that ask within a second share one copy: otherwise each client that does not
/// read would keep a copy of its own in memory. While such clients keep many copies, new ones are made less often.
#[derive(Debug, Default)]
pub struct LastPage(Mutex<Pages>);

#[derive(Debug, Default)]
struct Pages {
    last: Option<(Instant, Bytes)>,
    /// Earlier ones that some client has not read to the end.
    held: Vec<Bytes>,
}

impl LastPage {
    /// The page at `now`, rendered anew when the last one is older than a second; than five, while four older ones are held.
    ///
    /// # Errors
    /// Those of `render`.
    pub fn page<E>(&self, now: Instant, render: impl FnOnce() -> Result<String, E>) -> Result<Bytes, E> {
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Pages { last, held } = &mut *pages;
        held.retain(|page| !page.is_unique());
        let shared = if held.len() < MANY { SHARED } else { SHARED_LONGER };
        if let Some((at, page)) = last
            && now.saturating_duration_since(*at) < shared
        {
            return Ok(page.clone());
        }
        let page = Bytes::from(render()?);
        held.extend(last.replace((now, page.clone())).map(|(_, page)| page));
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

    #[test]
    fn while_many_pages_are_not_read_there_are_new_ones_less_often() {
        let (last, start) = (LastPage::default(), Instant::now());
        let page = |second: u32| {
            last.page(start + second * SHARED, || Ok::<_, std::fmt::Error>(second.to_string())).unwrap()
        };
        let mut unread: Vec<Bytes> = (0..=4).map(page).collect();
        assert_eq!(unread.last().unwrap(), "4");
        assert_eq!((page(5), page(8), page(9)), ("4".into(), "4".into(), "9".into()));
        unread.clear();
        assert_eq!((page(10), page(11)), ("10".into(), "11".into()), "all are read");
    }
}
