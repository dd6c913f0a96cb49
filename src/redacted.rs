//! A URL as it may be shown: without user info, query and fragment.

use std::fmt;

use reqwest::{Method, Url};

pub(crate) struct Redacted<'a>(pub(crate) &'a Url);

impl Redacted<'_> {
    fn write_to(&self, text: &mut impl fmt::Write) -> fmt::Result {
        let Redacted(url) = *self;
        text.write_str(url.scheme())?;
        let Some(host) = url.host_str() else {
            // Not a URL of HTTP: anything after the scheme may be data.
            return text.write_str(":");
        };
        text.write_str("://")?;
        text.write_str(host)?;
        if let Some(port) = url.port() {
            write!(text, ":{port}")?;
        }
        text.write_str(url.path())
    }
}

impl fmt::Display for Redacted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_to(f)
    }
}

/// Method and URL as errors show them.
pub(crate) fn target(method: &Method, url: &Url) -> String {
    let mut text = String::with_capacity(method.as_str().len() + " ".len() + url.as_str().len());
    text.push_str(method.as_str());
    text.push(' ');
    // A string takes all that is written to it.
    let _ = Redacted(url).write_to(&mut text);
    text
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
