//! Reading objects beside a watch, as they are now: without a resource version the API server
//! answers with what is stored, not with what its cache has seen.

use serde_json::Value;
use tracing::warn;

use super::{
    event::{Parser, key_of},
    fault::Fault,
    key::PackageKey,
    path::encode,
    update::{Change, Event, ReadRequest, Reading, Update},
    watcher::{BACKOFF, PAGE, WatcherSettings},
};

/// Reads what was asked for until it succeeds, and tells the engine.
pub async fn read(settings: WatcherSettings, wanted: ReadRequest) {
    let parser = Parser::new(wanted.projection.clone(), &wanted.of.kind);
    let mut backoff = BACKOFF.0;
    loop {
        let change = match objects(&settings, &parser, &wanted).await {
            Ok(objects) => Change::Read { reading: wanted.reading.clone(), objects, asked: wanted.asked },
            Err(fault) => {
                let (group, kind) = (&wanted.of.group, &wanted.of.kind);
                warn!(group, kind, reading = ?wanted.reading, %fault, "cannot read objects");
                settings.metrics.watch_error(&wanted.of, fault.cause());
                tokio::time::sleep(backoff).await;
                backoff = (backoff * 2).min(BACKOFF.1);
                continue;
            }
        };
        // Nobody listens any more when this fails.
        let _ = settings.updates.send(Event::Heard(Update { kind: wanted.kind, change })).await;
        return;
    }
}

async fn objects(
    settings: &WatcherSettings,
    parser: &Parser,
    wanted: &ReadRequest,
) -> Result<Vec<(PackageKey, Value)>, Fault> {
    let Some(path) = settings.discovery.path(&wanted.of).await? else { return Ok(Vec::new()) };
    let selector = match &wanted.reading {
        Reading::Object(key) => {
            return match settings.get(&path.one(key), parser.forms.object).await {
                Ok(text) => Ok(vec![(key.clone(), parser.object(&text)?)]),
                Err(Fault::NotServed) => Ok(Vec::new()),
                Err(fault) => Err(fault),
            };
        }
        Reading::Labelled { label, value } => {
            format!("&labelSelector={}", encode(&format!("{label}={value}")))
        }
        Reading::All => String::new(),
    };
    let (mut objects, mut next) = (Vec::new(), String::new());
    loop {
        let uri = format!("{}?limit={PAGE}{selector}{next}", path.all());
        let page = parser.page(&settings.get(&uri, parser.forms.list).await?)?;
        for object in page.objects {
            objects.push((key_of(&object)?, object));
        }
        match page.next {
            Some(token) => next = format!("&continue={}", encode(&token)),
            None => return Ok(objects),
        }
    }
}
