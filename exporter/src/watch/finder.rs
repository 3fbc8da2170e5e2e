//! Finding the kinds of a category.

use tracing::warn;

use super::{Contact, Event, WatcherSettings};
use crate::engine::SourceId;

/// Asks for the kinds of these categories, again and again, until nobody listens any more.
pub async fn find(settings: WatcherSettings, source: SourceId, categories: Vec<String>, contact: Contact) {
    let mut told = None;
    loop {
        match settings.discovery.kinds_of(&categories).await {
            Ok(kinds) => {
                contact.touch();
                if told.as_ref() != Some(&kinds) {
                    told = Some(kinds.clone());
                    if settings.updates.send(Event::Found(source, kinds)).await.is_err() {
                        return;
                    }
                }
            }
            Err(fault) => warn!(?categories, %fault, "cannot find the kinds of a category"),
        }
        tokio::time::sleep(settings.look).await;
    }
}
