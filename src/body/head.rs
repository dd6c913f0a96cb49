//! A response without its body.

use std::mem;

use http::response::Parts;
use http::{Extensions, HeaderMap, StatusCode};
use reqwest::{Body, Response, ResponseBuilderExt, Url};

/// Status, version, headers, extensions (the remote address is one) and URL.
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
        let mut builder = http::Response::builder();
        if let Some(extensions) = builder.extensions_mut() {
            mem::swap(extensions, &mut parts.extensions);
        }
        if let Some(extensions) = builder.url(url).extensions_mut() {
            mem::swap(extensions, &mut parts.extensions);
        }
        http::Response::from_parts(parts, body).into()
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.parts.status
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.parts.headers
    }

    pub(crate) fn extensions(&self) -> &Extensions {
        &self.parts.extensions
    }

    pub(crate) fn url(&self) -> &Url {
        &self.url
    }
}
