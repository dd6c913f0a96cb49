//! The name of a group: what a request or an operator calls it, or where the request goes.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};

use reqwest::Url;

use crate::redacted::Redacted;

/// By default the requests to one scheme, host and port are one group (R35).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GroupName<'a> {
    Origin { https: bool, host: Cow<'a, str>, port: u16 },
    Given(Cow<'a, str>),
}

impl<'a> GroupName<'a> {
    /// The group of the requests that name none.
    pub(crate) fn of(url: &'a Url) -> Self {
        let https = url.scheme() == "https";
        Self::Origin {
            https,
            host: url.host_str().unwrap_or_default().into(),
            port: url.port_or_known_default().unwrap_or(0),
        }
    }

    /// A name as somebody wrote it. One that reads as an origin means the group of that origin, with or without its port.
    ///
    /// Names are shown. Of one that is a URL with more to it, user info, query and fragment are dropped: whoever gives
    /// the URL of a request as its name does not mean to print its secrets.
    pub(crate) fn read(name: impl Into<Cow<'a, str>>) -> Self {
        let name = name.into();
        let url = if name.contains("://") {
            Url::parse(&name).ok()
        } else {
            None
        };
        match url.filter(|url| matches!(url.scheme(), "http" | "https")) {
            Some(url) if url.path() == "/" => GroupName::of(&url).into_owned(),
            Some(url) => Self::Given(Redacted(&url).to_string().into()),
            None => Self::Given(name),
        }
    }

    /// The same name, borrowed.
    pub(crate) fn as_ref(&self) -> GroupName<'_> {
        match self {
            Self::Origin { https, host, port } => GroupName::Origin {
                https: *https,
                host: Cow::Borrowed(host),
                port: *port,
            },
            Self::Given(name) => GroupName::Given(Cow::Borrowed(name)),
        }
    }

    pub(crate) fn into_owned<'b>(self) -> GroupName<'b> {
        match self {
            Self::Origin { https, host, port } => GroupName::Origin {
                https,
                host: host.into_owned().into(),
                port,
            },
            Self::Given(name) => GroupName::Given(name.into_owned().into()),
        }
    }
}

/// In two pieces: every operation has its group looked up, and the hasher takes its time for each piece.
impl Hash for GroupName<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Origin { https, host, port } => {
                state.write(host.as_bytes());
                state.write_u32((u32::from(*port) << 2) | (u32::from(*https) << 1) | 1);
            }
            Self::Given(name) => {
                state.write(name.as_bytes());
                state.write_u32(0);
            }
        }
    }
}

impl fmt::Display for GroupName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Origin { https, host, port } => {
                let scheme = if *https { "https" } else { "http" };
                write!(f, "{scheme}://{host}:{port}")
            }
            Self::Given(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(url: &str) -> String {
        GroupName::of(&Url::parse(url).unwrap()).to_string()
    }

    // R35, field 48
    #[test]
    fn scheme_host_and_port_make_a_group() {
        assert_eq!(
            of("https://user:word@API.example.com/a?b#c"),
            "https://api.example.com:443"
        );
        assert_eq!(of("http://api.example.com/"), "http://api.example.com:80");
        assert_eq!(of("http://[::1]:8080/"), "http://[::1]:8080");
    }

    #[test]
    fn a_name_that_reads_as_an_origin_is_that_origin() {
        let url = Url::parse("https://api.example.com/charges").unwrap();
        for name in [
            "https://api.example.com:443",
            "https://api.example.com",
            "https://API.example.com/",
        ] {
            assert_eq!(GroupName::read(name), GroupName::of(&url), "{name}");
        }
    }

    // field 54
    #[test]
    fn the_secrets_of_a_url_are_no_part_of_a_name() {
        let read = |name: &'static str| GroupName::read(name).to_string();
        assert_eq!(
            read("https://user:hunter2@api.example.com/"),
            "https://api.example.com:443"
        );
        assert_eq!(
            read("https://api.example.com/?token=hunter2#hunter2"),
            "https://api.example.com:443"
        );
        assert_eq!(
            read("https://user:hunter2@api.example.com/pay?token=hunter2"),
            "https://api.example.com/pay"
        );
    }

    #[test]
    fn any_other_name_is_as_it_was_given() {
        for name in ["payments", "https://api.example.com/charges", "://", "data://x", ""] {
            assert_eq!(GroupName::read(name), GroupName::Given(name.into()), "{name}");
        }
    }
}
