//! Following the files that sources come from.

use std::{sync::Arc, time::Duration};

use tokio::sync::mpsc;
use tracing::{error, info, warn};

use crate::{
    metrics::OwnMetrics,
    source::{FileTexts, Source, SourceArgs},
    watch::Event,
};

/// How often the files are looked at. By content: a mounted ConfigMap or Secret changes by swapping
/// a symbolic link, and times of files may stand still.
const LOOK: Duration = Duration::from_secs(2);

/// Tells the engine of new sources until nobody listens; those at work are from what was `seen` in the
/// files. What does not compile changes nothing: the sources of before stay at work.
pub(super) async fn follow(
    of: SourceArgs,
    mut seen: FileTexts,
    metrics: Arc<OwnMetrics>,
    events: mpsc::Sender<Event>,
) {
    if of.files.is_empty() {
        return;
    }
    loop {
        tokio::time::sleep(LOOK).await;
        let texts = of.texts();
        if texts == seen {
            continue;
        }
        match of.compile(&texts) {
            Ok(sources) => {
                info!(sources = sources.len(), "the sources have changed");
                warn_of(&sources);
                metrics.reloaded(true);
                let sources = sources.into_iter().map(Arc::new).collect();
                if events.send(Event::Sources(sources)).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                error!(
                    file = error.file, source_name = error.source_name, field = error.field,
                    expression = error.expression, %error,
                    "the sources have changed and cannot be used: those of before stay at work"
                );
                metrics.reloaded(false);
            }
        }
        seen = texts;
    }
}

/// Logs what whoever wrote the sources may have meant otherwise.
pub(super) fn warn_of(sources: &[Source]) {
    for warning in sources.iter().flat_map(|source| &source.warnings) {
        warn!(file = warning.file, source_name = warning.source_name, field = warning.field, %warning, "a source may mean something else than it says");
    }
}
