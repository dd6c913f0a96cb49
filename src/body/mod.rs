//! Bodies: what is sent again, what is read inside an attempt, what is handed over, and what is thrown away.

pub(crate) mod discard;
pub(crate) mod handed;
pub(crate) mod outgoing;
pub(crate) mod read;
pub(crate) mod touch;

use http::response::Parts;
use reqwest::{Body, Response, ResponseBuilderExt, Url};

/// A response without its body: status, version, headers, extensions (the remote address is one) and URL.
pub(crate) struct Head {
    parts: Parts,
    url: Url,
}

impl Head {
    pub(crate) fn split(response: Response) -> (Self, Body) {
        let url = response.url().clone();
        let (parts, body) = http::Response::from(response).into_parts();
        (Self { parts, url }, body)
    }

    pub(crate) fn join(self, body: Body) -> Response {
        let Self { mut parts, url } = self;
        // The one way to give a response its URL is through a builder, which keeps it among the extensions.
        if let Some(with_url) = http::Response::builder().url(url).extensions_mut() {
            parts.extensions.extend(std::mem::take(with_url));
        }
        http::Response::from_parts(parts, body).into()
    }
}
