//! Finding the kinds of a category.

use tracing::warn;

use super::{
    update::{Event, SourceId},
    watcher::WatcherSettings,
};

/// Asks for the kinds of these categories, again and again, until nobody listens any more.
pub async fn find(settings: WatcherSettings, source: SourceId, categories: Vec<String>) {
    let mut told = None;
    loop {
        let at = settings.clock.now().boot;
        match settings.discovery.kinds_of(&categories).await {
            Ok(kinds) => {
                let news = (told.as_ref() != Some(&kinds)).then(|| kinds.clone());
                told = Some(kinds);
                if settings.updates.send(Event::Found { source, kinds: news, at }).await.is_err() {
                    return;
                }
            }
            Err(fault) => warn!(?categories, %fault, "cannot find the kinds of a category"),
        }
        tokio::time::sleep(settings.look).await;
    }
}
