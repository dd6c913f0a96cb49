//! The rows of the matrix, as data.

use steadfast::Delivery::{Answered, NotSent, Unknown};
use steadfast::ErrorKind::{Connect, Dns, Other, Reset, Timeout, Tls};
use steadfast::Outcome;
use steadfast::StopReason::{Done, NotReplaySafe};

use crate::cell::{
    Cell, First, astray, condemned, deferred, done, ended, failed, healed, lost, rejected, unsent, unsure,
    unsure_for_good,
};
use crate::faults::Fault;
use crate::frames::{CANCEL, INTERNAL_ERROR, NO_ERROR, Part, REFUSED_STREAM};
use crate::front::{Certificate, Meet};
use crate::server::Reply;
use crate::wire_proxy::{AUTHENTICATE, BAD_GATEWAY, FORBIDDEN};

/// A fault, and what becomes of a GET, a keyed POST and a keyless POST.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// Made anew for each operation.
    pub(crate) fault: fn() -> Fault,
    pub(crate) cells: [Cell; 3],
}

const fn row(name: &'static str, fault: fn() -> Fault, cells: [Cell; 3]) -> Row {
    Row { name, fault, cells }
}

pub(crate) fn sections() -> Vec<(&'static str, Vec<Row>)> {
    vec![
        ("Before there is a connection", connecting()),
        ("The request is on its way, and no answer comes", unanswered()),
        ("The answer has begun, and its body does not come", bodies()),
        ("HTTP/2", http2()),
        ("Answers", answers()),
        ("Redirects", redirects()),
    ]
}

fn connecting() -> Vec<Row> {
    let hangs = First::Failure(Timeout);
    let patient = healed(hangs, Unknown, 1);
    vec![
        row("the name does not resolve", || Fault::NoName, unsent(Dns)),
        row("the connection is refused", || Fault::Refused, unsent(Connect)),
        row(
            "the connect hangs until the `connect_timeout` of the inner client",
            || Fault::ConnectHangs { connect_timeout: true },
            unsent(Connect),
        ),
        row(
            "the connect hangs until the attempt timeout",
            || Fault::ConnectHangs { connect_timeout: false },
            [patient, patient, healed(hangs, NotSent, 1)],
        ),
        row(
            "TLS: self-signed certificate",
            || tls(Certificate::SelfSigned),
            condemned(Tls),
        ),
        row("TLS: expired certificate", || tls(Certificate::Expired), condemned(Tls)),
        row(
            "TLS: certificate of another host",
            || tls(Certificate::OfAnotherHost),
            condemned(Tls),
        ),
        row(
            "TLS: no common version",
            || Fault::Tls(Meet::NoCommonVersion),
            condemned(Tls),
        ),
        row(
            "TLS: handshake cut by an end of file",
            || Fault::Tls(Meet::Fin),
            unsent(Connect),
        ),
        row(
            "TLS: handshake cut by a reset",
            || Fault::Tls(Meet::Rst),
            unsent(Connect),
        ),
        row("proxy: 403 to CONNECT", || Fault::Proxy(FORBIDDEN), unsent(Connect)),
        row("proxy: 407 to CONNECT", || Fault::Proxy(AUTHENTICATE), unsent(Connect)),
        row("proxy: 502 to CONNECT", || Fault::Proxy(BAD_GATEWAY), unsent(Connect)),
        row(
            "proxy: CONNECT dropped by an end of file",
            || Fault::Proxy(Meet::Fin),
            unsent(Connect),
        ),
        row(
            "proxy: CONNECT dropped by a reset",
            || Fault::Proxy(Meet::Rst),
            unsent(Connect),
        ),
    ]
}

fn tls(certificate: Certificate) -> Fault {
    Fault::Tls(Meet::Tls(certificate))
}

const EARLY: &str = "HTTP/1.1 103 Early Hints\r\n\r\n";

fn unanswered() -> Vec<Row> {
    vec![
        row(
            "reset while the request is read",
            || Fault::Answer(Reply::reset_after_head()),
            failed(Reset),
        ),
        row(
            "reset after the request",
            || Fault::Answer(Reply::new().reset()),
            failed(Reset),
        ),
        row(
            "end of file after the request",
            || Fault::Answer(Reply::new().close()),
            failed(Reset),
        ),
        row(
            "an idle connection closed as the request arrives",
            || Fault::Stale(Reply::new().close()),
            failed(Reset),
        ),
        row(
            "an idle connection reset as the request arrives",
            || Fault::Stale(Reply::new().reset()),
            failed(Reset),
        ),
        row(
            "103 and then an end of file",
            || Fault::Answer(Reply::new().send(EARLY).close()),
            failed(Reset),
        ),
        row(
            "an answer cut in its head",
            || Fault::Answer(Reply::new().send("HTTP/1.1 200 OK\r\nContent-").close()),
            failed(Reset),
        ),
        row(
            "silence until the attempt timeout",
            || Fault::Answer(Reply::new().stall()),
            failed(Timeout),
        ),
        row(
            "an answer that is not HTTP",
            || Fault::Answer(Reply::new().send("220 smtp.example.com\r\n\r\n").close()),
            unsure_for_good(First::Failure(Other)),
        ),
    ]
}

const HEAD: &str = "HTTP/1.1 200 OK\r\n";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

/// A correct head of gzip, and nothing that follows from it.
const GZIP: &[u8] = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff";

fn gzip(body: &[u8]) -> Fault {
    Fault::Answer(Reply::ok([GZIP, body].concat()).header("Content-Encoding", "gzip"))
}

fn bodies() -> Vec<Row> {
    vec![
        row(
            "known length, cut",
            || Fault::Answer(Reply::ok("").cut_body(100, b"0123456789")),
            lost(),
        ),
        row(
            "unknown length, cut",
            || Fault::Answer(Reply::new().send(CHUNKED).send("5\r\nhello\r\n").close()),
            lost(),
        ),
        row("gzip, cut", || gzip(b"\xcb\x48"), lost()),
        row(
            "gzip, corrupt",
            || gzip(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
            lost(),
        ),
        row(
            "known length, silence until the attempt timeout",
            || Fault::Answer(Reply::new().send(HEAD).send("Content-Length: 100\r\n\r\n0123").stall()),
            lost(),
        ),
        row(
            "unknown length, silence until the attempt timeout",
            || Fault::Answer(Reply::new().send(CHUNKED).stall()),
            lost(),
        ),
        row(
            "HTTP/1.0, no length, ended by the end of the connection: whole",
            || Fault::Answer(Reply::new().send("HTTP/1.0 200 OK\r\n\r\ndone").close()),
            [done(200); 3],
        ),
    ]
}

fn http2() -> Vec<Row> {
    let first = First::Failure(Reset);
    let unsure = healed(first, Unknown, 2);
    // Only the body of a keyless POST is watched, and only where redirects are told does it prove anything.
    let spared = [unsure, unsure, healed(first, NotSent, 2)];
    let refused = healed(First::Failure(Reset), NotSent, 2);
    vec![
        row(
            "stream reset: REFUSED_STREAM",
            || Fault::Http2(&[Part::Reset(REFUSED_STREAM)]),
            [refused; 3],
        ),
        row(
            "stream reset: INTERNAL_ERROR",
            || Fault::Http2(&[Part::Reset(INTERNAL_ERROR)]),
            failed(Reset),
        ),
        row(
            "stream reset: CANCEL",
            || Fault::Http2(&[Part::Reset(CANCEL)]),
            failed(Reset),
        ),
        row(
            "GOAWAY before the request was looked at: NO_ERROR",
            || Fault::Http2(&[Part::GoAway(NO_ERROR)]),
            failed(Reset),
        ),
        row(
            "GOAWAY before the request was looked at: NO_ERROR, `from_builder`",
            || Fault::Http2Told(&[Part::GoAway(NO_ERROR)]),
            spared,
        ),
        row(
            "GOAWAY before the request was looked at: INTERNAL_ERROR",
            || Fault::Http2(&[Part::GoAway(INTERNAL_ERROR)]),
            failed(Reset),
        ),
        row(
            "GOAWAY after the request was looked at, and an end of file",
            || Fault::Http2(&[Part::GoAwayAfter(NO_ERROR), Part::Close]),
            failed(Reset),
        ),
        row(
            "end of file after the request",
            || Fault::Http2(&[Part::Close]),
            failed(Reset),
        ),
        row(
            "REFUSED_STREAM after the head of a 200",
            || Fault::Http2(&[Part::Head, Part::Data("do"), Part::Reset(REFUSED_STREAM)]),
            lost(),
        ),
        row(
            "end of file in the body of a 200",
            || Fault::Http2(&[Part::Head, Part::Data("do"), Part::Close]),
            lost(),
        ),
    ]
}

fn answers() -> Vec<Row> {
    vec![
        row("200", || Fault::Answer(Reply::ok("done")), [done(200); 3]),
        row(
            "103 and then 200",
            || Fault::Answer(Reply::new().send(EARLY).then(Reply::ok("done"))),
            [done(200); 3],
        ),
        row("400", || Fault::Answer(Reply::status(400)), rejected(400)),
        row("401", || Fault::Answer(Reply::status(401)), rejected(401)),
        row("404", || Fault::Answer(Reply::status(404)), rejected(404)),
        row("409", || Fault::Answer(Reply::status(409)), rejected(409)),
        row("422", || Fault::Answer(Reply::status(422)), rejected(422)),
        row("429", || Fault::Answer(Reply::status(429)), deferred(429)),
        row("500", || Fault::Answer(Reply::status(500)), unsure(First::Status(500))),
        row(
            "501",
            || Fault::Answer(Reply::status(501)),
            unsure_for_good(First::Status(501)),
        ),
        row("502", || Fault::Answer(Reply::status(502)), unsure(First::Status(502))),
        row("503", || Fault::Answer(Reply::status(503)), unsure(First::Status(503))),
        row(
            "503 with `Retry-After: 0`",
            || Fault::Answer(Reply::status(503).header("Retry-After", "0")),
            deferred(503),
        ),
        row("504", || Fault::Answer(Reply::status(504)), unsure(First::Status(504))),
        row(
            "505",
            || Fault::Answer(Reply::status(505)),
            unsure_for_good(First::Status(505)),
        ),
    ]
}

const fn redirect<const STATUS: u16, const ANSWER: u16, const TOLD: bool>() -> Fault {
    Fault::Redirect {
        status: STATUS,
        answer: if ANSWER == 0 { None } else { Some(ANSWER) },
        told: TOLD,
    }
}

fn redirects() -> Vec<Row> {
    let refused = First::Failure(Connect);
    let assumed = healed(refused, NotSent, 2);
    let cut_off = |outcome| ended(refused, Unknown, 1, NotReplaySafe, outcome);
    let unfollowed = |status| ended(First::Status(status), Answered, 1, Done, Outcome::NotDone);
    let known = [assumed, healed(refused, Unknown, 2)];
    vec![
        row(
            "302 to a 200",
            redirect::<302, 200, false>,
            [done(200), astray(200), astray(200)],
        ),
        row(
            "302 to a 200, `from_builder`",
            redirect::<302, 200, true>,
            [done(200), astray(200), astray(200)],
        ),
        row(
            "303 to a 200",
            redirect::<303, 200, false>,
            [done(200), astray(200), astray(200)],
        ),
        row(
            "303 to a 200, `from_builder`",
            redirect::<303, 200, true>,
            [done(200); 3],
        ),
        row(
            "307 to a 200",
            redirect::<307, 200, false>,
            [done(200), astray(200), unfollowed(307)],
        ),
        row(
            "307 to a 200, `from_builder`",
            redirect::<307, 200, true>,
            [done(200), done(200), unfollowed(307)],
        ),
        row(
            "302 to a refused connection",
            redirect::<302, 0, false>,
            [assumed, assumed, cut_off(Outcome::Unknown)],
        ),
        row(
            "302 to a refused connection, `from_builder`",
            redirect::<302, 0, true>,
            [known[0], known[1], cut_off(Outcome::Unknown)],
        ),
        row(
            "303 to a refused connection",
            redirect::<303, 0, false>,
            [assumed, assumed, cut_off(Outcome::Unknown)],
        ),
        row(
            "303 to a refused connection, `from_builder`",
            redirect::<303, 0, true>,
            [known[0], known[1], cut_off(Outcome::Completed)],
        ),
        row(
            "more than ten",
            || Fault::RedirectLoop,
            unsure_for_good(First::Failure(Other)),
        ),
    ]
}
