//! The log.

use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

/// Form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line, for log pipelines.
    Json,
}

impl LogFormat {
    /// Logs like this to whatever `writer` makes, as much as `RUST_LOG` says.
    pub fn log_to(self, writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static) {
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
        let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
        // Fails only when a logger is there already, which then does as well.
        let _ = match self {
            Self::Text => log.with_ansi(false).try_init(),
            Self::Json => log.json().flatten_event(true).try_init(),
        };
    }
}
