//! Lists and watches RolloutFreezes and RolloutApprovals, and says when the hub does not serve or give them.

use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt};
use kube::Client;
use kube::runtime::watcher::{self, Event, watcher};
use statusbridge_core::reconcile::holds::News;
use statusbridge_core::reconcile::lazy_object::LazyObject;
use statusbridge_core::reconcile::object::Kind;
use tokio::time::timeout;

use crate::hub::write;

/// Time until it is tried again.
const RETRY: Duration = Duration::from_secs(5);
/// Seconds after which a watch is begun anew, so that one that has died unnoticed is found out.
const WATCH: u32 = 60;
/// After so long without a word something is wrong, as a watch is begun anew before.
const PATIENCE: Duration = Duration::from_secs(90);
/// Time that the first list may take.
const LIST: Duration = Duration::from_secs(10);
/// Objects of a page. Whoever writes them may hang 1.5 MiB on each.
const PAGE: u32 = 16;

enum Step {
    Begin,
    /// Whether the list is whole.
    Follow(BoxStream<'static, watcher::Result<Event<LazyObject>>>, bool),
    Rest,
}

/// Everything there is to be heard of a kind, for ever.
pub(crate) fn watch(client: Client, kind: Kind) -> BoxStream<'static, News> {
    stream::unfold(Step::Begin, move |mut step| {
        let client = client.clone();
        async move {
            loop {
                step = match step {
                    Step::Begin => {
                        let config = watcher::Config::default().page_size(PAGE).timeout(WATCH);
                        Step::Follow(watcher(write::everywhere(&client, kind), config).boxed(), false)
                    }
                    Step::Follow(mut events, whole) => {
                        let patience = if whole { PATIENCE } else { LIST };
                        match timeout(patience, events.next()).await {
                            Ok(Some(Ok(event))) => {
                                let whole = match event {
                                    Event::Init | Event::InitApply(_) => false,
                                    Event::InitDone => true,
                                    Event::Apply(_) | Event::Delete(_) => whole,
                                };
                                let news = crate::hub::event(event).into();
                                return Some((news, Step::Follow(events, whole)));
                            }
                            Ok(Some(Err(error))) => return Some((news(kind, &error), Step::Rest)),
                            Ok(None) => Step::Rest,
                            // Nothing changes for long in most hubs.
                            Err(_) if whole => Step::Begin,
                            Err(_) => {
                                let error = format!("{}s are not listed in time", kind.name());
                                return Some((News::Broken(error), Step::Rest));
                            }
                        }
                    }
                    Step::Rest => {
                        tokio::time::sleep(RETRY).await;
                        Step::Begin
                    }
                }
            }
        }
    })
    .boxed()
}

/// A watch that goes on after an error says nothing until something changes: only a new list shows that nothing was missed.
fn news(kind: Kind, error: &watcher::Error) -> News {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(refusal)) if refusal.code == 404 => {
            News::NotServed
        }
        error => News::Broken(format!("{}s: {error}", kind.name())),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use rstest::rstest;

    use super::*;

    fn refusal(code: u16) -> kube::Error {
        kube::Error::Api(Box::new(Status {
            code,
            message: format!("refused with {code}"),
            ..Status::default()
        }))
    }

    #[rstest]
    #[case::no_such_kind(watcher::Error::InitialListFailed(refusal(404)), true)]
    #[case::forbidden(watcher::Error::InitialListFailed(refusal(403)), false)]
    #[case::unavailable(watcher::Error::InitialListFailed(refusal(503)), false)]
    #[case::gone_while_it_is_watched(watcher::Error::WatchStartFailed(refusal(404)), false)]
    fn only_a_hub_that_has_no_such_kind_has_none(#[case] error: watcher::Error, #[case] none: bool) {
        let news = news(Kind::RolloutFreeze, &error);
        assert_eq!(matches!(news, News::NotServed), none, "{news:?}");
    }
}
