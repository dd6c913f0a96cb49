//! A URL as it may be shown: without user info, query and fragment.

use std::fmt;

use reqwest::{Method, Url};

pub(crate) struct Redacted<'a>(pub(crate) &'a Url);

impl fmt::Display for Redacted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Redacted(url) = *self;
        let Some(host) = url.host_str() else {
            // Not a URL of HTTP: anything after the scheme may be data.
            return write!(f, "{}:", url.scheme());
        };
        write!(f, "{}://{host}", url.scheme())?;
        if let Some(port) = url.port() {
            write!(f, ":{port}")?;
        }
        f.write_str(url.path())
    }
}

/// Method and URL as errors show them.
pub(crate) fn target(method: &Method, url: &Url) -> String {
    format!("{method} {}", Redacted(url))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(url: &str) -> String {
        Redacted(&Url::parse(url).unwrap()).to_string()
    }

    // field 54
    #[test]
    fn user_info_query_and_fragment_are_left_out() {
        assert_eq!(
            redacted("https://user:secret@example.com:8443/a/b?token=secret#secret"),
            "https://example.com:8443/a/b"
        );
        assert_eq!(redacted("http://[::1]/"), "http://[::1]/");
    }

    #[test]
    fn a_url_of_another_kind_shows_its_scheme_only() {
        assert_eq!(redacted("data:text/plain,secret"), "data:");
        assert_eq!(redacted("mailto:secret@example.com"), "mailto:");
    }
}
