//! The live, read-only page: its files, as `make page` built them from the TypeScript in `page/app`, and the headers to
//! serve them with. The page reads `../v1alpha1/` relative to its own address, which is [`ROOT`].

/// Where the page is served. Addresses within it stand behind `#` and never reach the server.
pub const ROOT: &str = "/ui/";

/// Headers of every answer below [`ROOT`]: the page runs its own files only, and talks to its own server only.
pub const HEADERS: [(&str, &str); 4] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
];

/// One file of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asset {
    /// Its content, without any encoding.
    pub body: &'static [u8],
    /// `content-type` to serve it with.
    pub content_type: &'static str,
    /// `cache-control` to serve it with: another version of the program has other files under the same names.
    pub cache_control: &'static str,
}

impl Asset {
    const fn new(content_type: &'static str, body: &'static [u8]) -> Self {
        Self { body, content_type, cache_control: "no-cache" }
    }
}

const INDEX: Asset = Asset::new("text/html; charset=utf-8", include_bytes!("../dist/index.html"));
const SCRIPT: Asset = Asset::new("text/javascript; charset=utf-8", include_bytes!("../dist/app.js"));
const STYLE: Asset = Asset::new("text/css; charset=utf-8", include_bytes!("../dist/app.css"));
const ICON: Asset = Asset::new("image/svg+xml", include_bytes!("../dist/icon.svg"));

/// The file at `path`, a whole path of a request such as `/ui/app.js`. None where the page has no such file.
pub fn asset(path: &str) -> Option<Asset> {
    match path.strip_prefix(ROOT)? {
        "" => Some(INDEX),
        "app.js" => Some(SCRIPT),
        "app.css" => Some(STYLE),
        "icon.svg" => Some(ICON),
        _ => None,
    }
}
