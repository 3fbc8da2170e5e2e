//! What kind of backend this seems to be.

use serde_json::Value;

use super::{Flavour, PromFeed};

/// Longest answer that is looked at, in bytes.
const LONGEST: usize = 4 << 20;

impl PromFeed {
    /// What kind of backend this seems to be, told by what only this kind serves; `None` when that
    /// cannot be told, for instance behind a proxy that passes queries only.
    pub async fn probe(&self) -> Option<Flavour> {
        // Of VictoriaMetrics alone (app/vmselect/main.go), of Thanos' querier alone (pkg/api/query/v1.go).
        if self.get("status/top_queries").await.is_some_and(|answer| answer.get("topN").is_some()) {
            return Some(Flavour::VictoriaMetrics);
        }
        if self.get("stores").await.is_some_and(|answer| answer.get("status") == Some(&"success".into())) {
            return Some(Flavour::Thanos);
        }
        self.get("status/buildinfo")
            .await
            .filter(|answer| answer.pointer("/data/version").is_some_and(Value::is_string))
            .map(|_| Flavour::Prometheus)
    }

    /// A JSON answer of another end point of the query API.
    async fn get(&self, path: &str) -> Option<Value> {
        let request = self.connector.client().await.ok()?.get(self.endpoint(path));
        let request = self.config.credentials.sign(request).await.ok()?;
        let mut response = request.send().await.ok().filter(|response| response.status().is_success())?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.ok()? {
            body.extend_from_slice(&chunk);
            if body.len() > LONGEST {
                return None;
            }
        }
        serde_json::from_slice(&body).ok()
    }
}
