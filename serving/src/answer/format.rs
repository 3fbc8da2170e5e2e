//! The text formats of Prometheus that `/metrics` can be asked for.

/// An exposition format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text format 0.0.4.
    Text,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl Format {
    /// The format for a client that sent this `Accept` header: OpenMetrics when the client ranks it at least as high as
    /// plain text, text when in doubt.
    pub(crate) fn negotiate(accept: &str) -> Self {
        let (mut openmetrics, mut text) = (0.0, 0.0_f32);
        for part in accept.split(',') {
            let mut params = part.split(';').map(str::trim);
            let media = params.next().unwrap_or("");
            let params: Vec<&str> = params.collect();
            let weight =
                params.iter().find_map(|p| p.strip_prefix("q=")).and_then(|q| q.parse().ok()).unwrap_or(1.0);
            match media {
                "application/openmetrics-text" if known_version(&params) => {
                    openmetrics = f32::max(openmetrics, weight);
                }
                "text/plain" | "text/*" | "*/*" => text = f32::max(text, weight),
                _ => {}
            }
        }
        if openmetrics > 0.0 && openmetrics >= text { Self::OpenMetrics } else { Self::Text }
    }

    /// Value of the `Content-Type` header.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The last line of an exposition; empty where the format has none.
    pub const fn end_mark(self) -> &'static str {
        match self {
            Self::Text => "",
            Self::OpenMetrics => "# EOF\n",
        }
    }
}

fn known_version(params: &[&str]) -> bool {
    params.iter().find_map(|p| p.strip_prefix("version=")).is_none_or(|v| matches!(v, "0.0.1" | "1.0.0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_negotiated() {
        for (accept, expected) in [
            ("", Format::Text),
            ("*/*", Format::Text),
            ("application/openmetrics-text", Format::OpenMetrics),
            ("application/openmetrics-text; version=7.0.0", Format::Text),
            (
                "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3",
                Format::OpenMetrics,
            ),
            ("application/openmetrics-text;q=0.2,text/plain;q=0.9", Format::Text),
            ("text/html", Format::Text),
        ] {
            assert_eq!(Format::negotiate(accept), expected, "{accept}");
        }
    }
}
