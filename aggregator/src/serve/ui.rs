//! The page's files. They hold nothing of the fleet, so everybody gets them who reaches the server.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Response, StatusCode, header};
use http_body_util::Full;
use statusbridge_page::{HEADERS, ROOT, asset};
use statusbridge_serving::response::{PLAIN, respond};

/// The answer to a request for the page; None where the path is none of its.
pub(crate) fn answer(path: &str, method: &Method) -> Option<Response<Full<Bytes>>> {
    if path == "/" || Some(path) == ROOT.strip_suffix('/') {
        let mut response = respond(StatusCode::FOUND, PLAIN, "the page is at /ui/\n");
        response.headers_mut().insert(header::LOCATION, HeaderValue::from_static(ROOT));
        return Some(response);
    }
    if !path.starts_with(ROOT) {
        return None;
    }
    if method != Method::GET && method != Method::HEAD {
        return Some(respond(StatusCode::METHOD_NOT_ALLOWED, PLAIN, "only GET and HEAD are answered\n"));
    }
    let mut response = match asset(path) {
        Some(asset) => {
            let mut response = respond(StatusCode::OK, asset.content_type, asset.body);
            let age = HeaderValue::from_static(asset.cache_control);
            response.headers_mut().insert(header::CACHE_CONTROL, age);
            response
        }
        None => respond(StatusCode::NOT_FOUND, PLAIN, "the page has no such file\n"),
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    Some(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_served_with_its_headers_and_nothing_else_is() {
        let page = answer("/ui/", &Method::GET).unwrap();
        assert_eq!(
            (page.status(), &page.headers()["content-type"]),
            (StatusCode::OK, &"text/html; charset=utf-8".parse().unwrap())
        );
        for (name, value) in HEADERS {
            assert_eq!(page.headers()[name], value);
        }
        for (path, status) in
            [("/", 302), ("/ui", 302), ("/ui/app.js", 200), ("/ui/../secret", 404), ("/ui/app.jsx", 404)]
        {
            assert_eq!(answer(path, &Method::GET).unwrap().status().as_u16(), status, "{path}");
        }
        assert_eq!(answer("/ui/", &Method::POST).unwrap().status(), StatusCode::METHOD_NOT_ALLOWED);
        for path in ["/metrics", "/uix", "/v1alpha1/fleet"] {
            assert!(answer(path, &Method::GET).is_none(), "{path}");
        }
    }
}
