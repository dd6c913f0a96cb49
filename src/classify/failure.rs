//! Everything that is not an answer: how an attempt failed, and what that proves.
//!
//! Classified from types alone, along `source()` and through `io::Error::get_ref()`, never from the text of a message.

use std::error::Error as StdError;
use std::io;

use reqwest::Url;

use super::status::{self, Circumstances};
use super::{Delivery, Finding};
use crate::body::touch::Touched;
use crate::error::{ErrorKind, causes};

/// The kind of a failed attempt and what it proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) kind: ErrorKind,
    pub(crate) finding: Finding,
    /// An HTTP/2 server said GOAWAY while it waited for the answer.
    gone_away: bool,
}

impl Failure {
    /// The time of the attempt was over before an answer came.
    pub(crate) const TIMEOUT: Self = Self::unknown(ErrorKind::Timeout);

    pub(super) const UNRECOGNISED: Self = Self::last(ErrorKind::Other, Delivery::Unknown);

    /// What is left of it where it may be another request's, as after a redirect: neither a failure nor a refusal speaks for the
    /// one before that.
    pub(crate) fn after_another(mut self) -> Self {
        if let Delivery::NotSent | Delivery::Rejected = self.finding.delivery {
            self.finding.delivery = Delivery::Unknown;
        }
        self
    }

    /// What is left of it where the body of the request was watched (see [`crate::body::touch`]).
    ///
    /// A failure to connect after the body was touched came after a redirect. A body that nothing touched was not sent,
    /// if it was this crate that gave it to reqwest: of what another sender does with it nothing is known. An HTTP/2
    /// stream that was refused is taken for the request's own, which only a client that tells its redirects knows.
    pub(crate) fn watched(mut self, touched: Touched, by_reqwest: bool) -> Self {
        let connecting = matches!(self.kind, ErrorKind::Dns | ErrorKind::Connect | ErrorKind::Tls);
        match (self.finding.delivery, touched) {
            (Delivery::NotSent, Touched::Asked | Touched::Read) if connecting || !by_reqwest => {
                self.finding.delivery = Delivery::Unknown;
            }
            (Delivery::Unknown, Touched::Not) if by_reqwest && self.finding.retry => {
                self.finding.delivery = Delivery::NotSent;
            }
            _ => {}
        }
        self
    }

    /// What is left of it where the body was read and no redirect was followed.
    ///
    /// A GOAWAY ends only the streams the server does not look at. A stream it does look at can fail with the same
    /// error where the two cross, but hyper gives that one up before it reads the body: a body that was read proves that
    /// the server did not look.
    pub(crate) fn unredirected(mut self, touched: Touched) -> Self {
        if self.gone_away && touched == Touched::Read {
            self.finding.delivery = Delivery::NotSent;
        }
        self
    }

    pub(crate) const fn new(kind: ErrorKind, finding: Finding) -> Self {
        Self {
            kind,
            finding,
            gone_away: false,
        }
    }

    pub(super) const fn not_sent(kind: ErrorKind) -> Self {
        Self::new(kind, Finding::retry(Delivery::NotSent))
    }

    pub(super) const fn unknown(kind: ErrorKind) -> Self {
        Self::new(kind, Finding::retry(Delivery::Unknown))
    }

    pub(super) const fn last(kind: ErrorKind, delivery: Delivery) -> Self {
        Self::new(kind, Finding::last(delivery))
    }
}

fn inner_io<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a io::Error> {
    causes(error).filter_map(|cause| cause.downcast_ref()).last()
}

/// What an attempt was doing when it failed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Sending, or waiting for the head of the answer.
    Head,
    /// Reading the body of the answer: the request was received, whatever is said now.
    Body,
}

/// The error of a call of `reqwest::Client::execute`, or of reading what it gave.
pub(super) fn of_reqwest(error: &reqwest::Error) -> Failure {
    if error.is_builder() {
        // The operation itself has an HTTP URL: another one is where a redirect led after the request was answered.
        return match error.url().map(Url::scheme) {
            None | Some("http" | "https") => Failure::last(ErrorKind::Request, Delivery::NotSent),
            Some(_) => Failure::UNRECOGNISED,
        };
    }
    if let Some(status) = error.status() {
        let finding = status::finding(status, Circumstances::default());
        return Failure::new(ErrorKind::Status, finding);
    }
    if error.is_redirect() || error.is_upgrade() {
        return Failure::UNRECOGNISED;
    }
    if error.is_body() || error.is_decode() {
        let own = |cause: &&(dyn StdError + 'static)| !cause.is::<reqwest::Error>();
        let below = causes(error).find(own).and_then(|cause| cause.downcast_ref());
        return match below {
            _ if error.is_timeout() => Failure::TIMEOUT,
            Some(error) => of_hyper(error, Phase::Body),
            None => Failure::UNRECOGNISED,
        };
    }
    // A request that was given to a connection failed exactly here. A hyper error elsewhere is somebody else's: a
    // resolver may have one, and so may the body the caller sends. So may what `is_connect` and `is_timeout` look at.
    if let Some(error) = error
        .source()
        .and_then(StdError::source)
        .and_then(|error| error.downcast_ref())
    {
        return of_hyper(error, Phase::Head);
    }
    if error.is_connect() {
        return match error {
            error if error.is_dns() => Failure::not_sent(ErrorKind::Dns),
            error if is_tls_verdict(error) => Failure::last(ErrorKind::Tls, Delivery::NotSent),
            _ => Failure::not_sent(ErrorKind::Connect),
        };
    }
    if error.is_timeout() {
        return Failure::TIMEOUT;
    }
    Failure::UNRECOGNISED
}

fn of_hyper(error: &hyper::Error, phase: Phase) -> Failure {
    let head = phase == Phase::Head;
    if error.is_user() {
        // Our side broke off. What stopped the body to be sent says nothing of the connection, even where it looks so.
        let body_failed = error.source().is_some_and(|source| source.is::<reqwest::Error>());
        let kind = if body_failed || error.is_body_write_aborted() {
            ErrorKind::Body
        } else {
            ErrorKind::Other
        };
        return Failure::last(kind, Delivery::Unknown);
    }
    if head && (error.is_canceled() || error.is_closed()) {
        // The connection was gone before the request was given to it.
        return if is_tls_verdict(error) {
            Failure::last(ErrorKind::Tls, Delivery::NotSent)
        } else {
            Failure::not_sent(ErrorKind::Connect)
        };
    }
    if error.is_timeout() {
        return Failure::TIMEOUT;
    }
    if error.is_parse() {
        return Failure::UNRECOGNISED;
    }
    if error.is_incomplete_message() || error.is_shutdown() {
        return Failure::unknown(ErrorKind::Reset);
    }
    if let Some(error) = error.source().and_then(|source| source.downcast_ref()) {
        return of_h2(error, phase);
    }
    if head && is_tls_verdict(error) {
        return Failure::last(ErrorKind::Tls, Delivery::Unknown);
    }
    of_inner_io(error)
}

fn of_h2(error: &h2::Error, phase: Phase) -> Failure {
    if let Some(io) = error.get_io() {
        return of_io(io.kind()).unwrap_or(Failure::UNRECOGNISED);
    }
    if !error.is_remote() {
        // We broke off: over the body to be sent, or over what the peer did against the protocol.
        let over_body = error.is_reset() && !error.is_library();
        let kind = if over_body { ErrorKind::Body } else { ErrorKind::Other };
        return Failure::last(kind, Delivery::Unknown);
    }
    let refused = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
    if refused && phase == Phase::Head {
        return Failure::not_sent(ErrorKind::Reset);
    }
    // Of a GOAWAY too: it names the last stream the server looks at, but that number does not come through.
    Failure {
        gone_away: error.is_go_away() && phase == Phase::Head,
        ..Failure::unknown(ErrorKind::Reset)
    }
}

/// The error of a layer around what sends, which never reached it or gave it up.
#[cfg(feature = "tower")]
pub(super) fn of_layer(error: &(dyn StdError + 'static)) -> Option<Failure> {
    if error.is::<::tower::timeout::error::Elapsed>() {
        Some(Failure::TIMEOUT)
    } else if error.is::<::tower::load_shed::error::Overloaded>() {
        Some(Failure::not_sent(ErrorKind::Other))
    } else {
        None
    }
}

#[cfg(not(feature = "tower"))]
pub(super) fn of_layer(_: &(dyn StdError + 'static)) -> Option<Failure> {
    None
}

/// Whether the innermost `io::Error` is the error itself, and not one that another error has as its cause.
pub(super) fn is_io(error: &(dyn StdError + 'static)) -> bool {
    let is_io = |cause: &&(dyn StdError + 'static)| cause.is::<io::Error>();
    causes(error).take_while(is_io).count() == causes(error).filter(is_io).count()
}

/// What an `io::Error` inside another error says, if there is one that is recognised.
pub(super) fn of_inner_io(error: &(dyn StdError + 'static)) -> Failure {
    let io = inner_io(error).and_then(|io| of_io(io.kind()));
    io.unwrap_or(Failure::UNRECOGNISED)
}

fn of_io(kind: io::ErrorKind) -> Option<Failure> {
    use io::ErrorKind as Io;
    match kind {
        // No connection, so nothing was sent on it.
        Io::ConnectionRefused => Some(Failure::not_sent(ErrorKind::Connect)),
        Io::TimedOut => Some(Failure::TIMEOUT),
        Io::ConnectionReset | Io::ConnectionAborted | Io::BrokenPipe | Io::NotConnected => {
            Some(Failure::unknown(ErrorKind::Reset))
        }
        Io::UnexpectedEof | Io::WriteZero => Some(Failure::unknown(ErrorKind::Reset)),
        // Also said of a connection that was in use.
        Io::HostUnreachable | Io::NetworkUnreachable | Io::NetworkDown => Some(Failure::unknown(ErrorKind::Reset)),
        _ => None,
    }
}

/// Whether TLS spoke, and not the transport under it: rustls wraps its own errors, and only those, as `InvalidData`.
///
/// A handshake that is cut has the kind of the cut. What native-tls says of a certificate cannot be told from other
/// failures to connect.
fn is_tls_verdict(error: &(dyn StdError + 'static)) -> bool {
    inner_io(error).is_some_and(|io| io.kind() == io::ErrorKind::InvalidData && io.get_ref().is_some())
}
#[cfg(test)]
mod tests {
    use super::*;

    use crate::classify::attempt_error::AttemptError;
    use crate::error::BoxError;

    fn of(kind: io::ErrorKind) -> Failure {
        AttemptError::from(io::Error::from(kind)).facts.failure
    }

    // R3
    #[test]
    fn a_lost_connection_is_unknown_and_retried() {
        use io::ErrorKind as Io;
        for kind in [
            Io::ConnectionReset,
            Io::ConnectionAborted,
            Io::BrokenPipe,
            Io::UnexpectedEof,
        ] {
            assert_eq!(of(kind), Failure::unknown(ErrorKind::Reset), "{kind}");
        }
        assert_eq!(of(Io::TimedOut), Failure::unknown(ErrorKind::Timeout));
        assert_eq!(of(Io::ConnectionRefused), Failure::not_sent(ErrorKind::Connect));
    }

    // R2: no catch-all that retries.
    #[test]
    fn what_is_not_recognised_is_unknown_and_final() {
        for kind in [
            io::ErrorKind::Other,
            io::ErrorKind::InvalidData,
            io::ErrorKind::PermissionDenied,
        ] {
            assert_eq!(of(kind), Failure::last(ErrorKind::Other, Delivery::Unknown), "{kind}");
        }
        let error: BoxError = "some middleware".into();
        assert_eq!(AttemptError::from(error).facts.failure, Failure::UNRECOGNISED);
    }

    // field 22
    #[test]
    fn a_touched_body_makes_a_failure_to_connect_unknown() {
        let refused = Failure::not_sent(ErrorKind::Connect);
        for touched in [Touched::Asked, Touched::Read] {
            assert_eq!(refused.watched(touched, true), Failure::unknown(ErrorKind::Connect));
        }
        assert_eq!(refused.watched(Touched::Not, true), refused);
        // An HTTP/2 server refuses a stream whose body was asked for, and still has not looked at it.
        let stream = Failure::not_sent(ErrorKind::Reset);
        assert_eq!(stream.watched(Touched::Read, true), stream);
        assert_eq!(stream.watched(Touched::Read, false), Failure::unknown(ErrorKind::Reset));
    }

    #[test]
    fn a_goaway_proves_that_a_request_was_not_looked_at_once_its_body_was_read() {
        let gone = Failure {
            gone_away: true,
            ..Failure::unknown(ErrorKind::Reset)
        };
        assert_eq!(gone.unredirected(Touched::Asked), gone);
        assert_eq!(
            gone.unredirected(Touched::Read).finding,
            Finding::retry(Delivery::NotSent)
        );
        let reset = Failure::unknown(ErrorKind::Reset);
        assert_eq!(reset.unredirected(Touched::Read), reset);
    }

    // field 22
    #[test]
    fn an_untouched_body_was_not_sent_if_reqwest_had_it() {
        let hangs = Failure::TIMEOUT;
        assert_eq!(hangs.watched(Touched::Not, true), Failure::not_sent(ErrorKind::Timeout));
        assert_eq!(hangs.watched(Touched::Not, false), hangs);
        assert_eq!(hangs.watched(Touched::Read, true), hangs);
        assert_eq!(Failure::UNRECOGNISED.watched(Touched::Not, true), Failure::UNRECOGNISED);
    }
}
