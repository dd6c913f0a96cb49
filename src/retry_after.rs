//! What the server asked for: `Retry-After` (RFC 9110 section 10.2.3) and its relative `retry-after-ms`.
//!
//! The result is how long to wait from the moment the answer arrived. Whatever is not a valid value is as good as
//! absent: a typo of a server must neither stop an operation nor send it into a hot loop.

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::{DATE, HeaderName, HeaderValue, RETRY_AFTER};

const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

/// Which of the two headers are obeyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Obeyed {
    pub(crate) retry_after: bool,
    pub(crate) retry_after_ms: bool,
}

/// The wait the answer asks for, or `None` where it asks for none.
///
/// Milliseconds win over seconds and dates, and of several lines the longest valid one counts. A date is measured
/// from the answer's own `Date`, so that the clock of this machine does not matter; from `now` where the answer has
/// no valid one. A date in the past asks for zero.
pub(crate) fn asked(headers: &HeaderMap, obeyed: Obeyed, now: impl Fn() -> SystemTime) -> Option<Duration> {
    let longest = |obeyed: bool, name, read: &dyn Fn(&str) -> Option<Duration>| {
        let lines = headers.get_all(name).into_iter().filter(|_| obeyed);
        lines.filter_map(text).filter_map(read).max()
    };
    longest(obeyed.retry_after_ms, &RETRY_AFTER_MS, &milliseconds).or_else(|| {
        longest(obeyed.retry_after, &RETRY_AFTER, &|value| {
            seconds(value).or_else(|| until(value, headers, &now))
        })
    })
}

/// A header value without the optional white space around it; `None` for bytes that are not text.
fn text(value: &HeaderValue) -> Option<&str> {
    let value = value.to_str().ok()?;
    Some(value.trim_matches([' ', '\t']))
}

fn seconds(value: &str) -> Option<Duration> {
    whole(value).map(Duration::from_secs)
}

fn milliseconds(value: &str) -> Option<Duration> {
    whole(value).map(Duration::from_millis)
}

/// Digits, perhaps with a fraction, rounded up to a whole number and saturating. No sign, no exponent, no list.
fn whole(value: &str) -> Option<u64> {
    let (digits, fraction) = match value.split_once('.') {
        Some((digits, fraction)) => (digits, Some(fraction)),
        None => (value, None),
    };
    let all_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !all_digits(digits) || !fraction.is_none_or(all_digits) {
        return None;
    }
    // Only digits are left, so the one way to fail is a number that is too large.
    let whole = digits.parse().unwrap_or(u64::MAX);
    let rest = fraction.is_some_and(|fraction| fraction.bytes().any(|b| b != b'0'));
    Some(whole.saturating_add(u64::from(rest)))
}

/// The time until an HTTP date in any of its three forms.
fn until(value: &str, headers: &HeaderMap, now: impl Fn() -> SystemTime) -> Option<Duration> {
    let at = date(value)?;
    let sent = headers.get(DATE).and_then(text).and_then(date);
    let from = sent.unwrap_or_else(now);
    Some(at.duration_since(from).unwrap_or(Duration::ZERO))
}

fn date(value: &str) -> Option<SystemTime> {
    // All three forms begin with the name of a day: nothing that looks like a number reaches the date parser.
    if !value.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return None;
    }
    httpdate::parse_http_date(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Obeyed = Obeyed {
        retry_after: true,
        retry_after_ms: true,
    };
    use proptest::prelude::*;

    const NOON: &str = "Sun, 06 Nov 1994 12:00:00 GMT";

    fn noon() -> SystemTime {
        httpdate::parse_http_date(NOON).unwrap()
    }

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn asked_at_noon(lines: &[(&'static str, &str)]) -> Option<Duration> {
        asked(&headers(lines), BOTH, noon)
    }

    fn retry_after(value: &str) -> Option<Duration> {
        asked_at_noon(&[("retry-after", value)])
    }

    const fn secs(secs: u64) -> Option<Duration> {
        Some(Duration::from_secs(secs))
    }

    // R6, field 1
    #[test]
    fn seconds_are_digits_and_zero_is_a_value() {
        assert_eq!(retry_after("2"), secs(2));
        assert_eq!(retry_after(" \t120 "), secs(120));
        assert_eq!(retry_after("007"), secs(7));
        assert_eq!(retry_after("0"), secs(0));
    }

    #[test]
    fn a_fraction_is_rounded_up() {
        assert_eq!(retry_after("1.5"), secs(2));
        assert_eq!(retry_after("0.001"), secs(1));
        assert_eq!(retry_after("3.000"), secs(3));
    }

    // field 4
    #[test]
    fn large_numbers_saturate() {
        assert_eq!(retry_after("9999999999"), secs(9_999_999_999));
        assert_eq!(retry_after(&"9".repeat(30)), secs(u64::MAX));
        assert_eq!(retry_after(&format!("{}.9", u64::MAX)), secs(u64::MAX));
    }

    // field 5
    #[test]
    fn what_only_looks_like_a_number_is_ignored() {
        for value in [
            "-3", "+3", "0x10", "1e3", "10, 20", "inf", "nan", "", " ", ".", "1.", ".5", "1.2.3", "1_000", "3s", "٣",
            "1 2",
        ] {
            assert_eq!(
                asked(&headers_of_bytes(value.as_bytes()), BOTH, noon),
                None,
                "{value:?}"
            );
        }
    }

    fn headers_of_bytes(value: &[u8]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, HeaderValue::from_bytes(value).unwrap());
        headers
    }

    // R6
    #[test]
    fn the_three_forms_of_a_date_are_read() {
        for value in [
            "Sun, 06 Nov 1994 12:00:30 GMT",
            "Sunday, 06-Nov-94 12:00:30 GMT",
            "Sun Nov  6 12:00:30 1994",
        ] {
            assert_eq!(retry_after(value), secs(30), "{value:?}");
        }
    }

    // field 6: an hour of skew between the two clocks changes nothing.
    #[test]
    fn a_date_is_measured_from_the_answers_own_date() {
        let asked = asked_at_noon(&[
            ("date", "Sun, 06 Nov 1994 13:00:00 GMT"),
            ("retry-after", "Sun, 06 Nov 1994 13:00:05 GMT"),
        ]);
        assert_eq!(asked, secs(5));
    }

    #[test]
    fn a_broken_date_header_leaves_the_system_clock() {
        let asked = asked_at_noon(&[("date", "yesterday"), ("retry-after", "Sun, 06 Nov 1994 12:00:05 GMT")]);
        assert_eq!(asked, secs(5));
    }

    // field 6: part of a second that has passed is not taken off twice.
    #[test]
    fn a_wait_from_the_system_clock_never_ends_before_the_date() {
        let now = || noon() + Duration::from_millis(400);
        let headers = headers(&[("retry-after", "Sun, 06 Nov 1994 12:00:05 GMT")]);
        assert_eq!(asked(&headers, BOTH, now), Some(Duration::from_millis(4_600)));
    }

    // field 7
    #[test]
    fn a_date_in_the_past_asks_for_nothing_extra() {
        assert_eq!(retry_after("Sun, 06 Nov 1994 11:59:59 GMT"), secs(0));
        assert_eq!(retry_after("Thu, 01 Jan 1970 00:00:00 GMT"), secs(0));
    }

    #[test]
    fn the_longest_valid_line_counts() {
        let asked = asked_at_noon(&[
            ("retry-after", "3"),
            ("retry-after", "Sun, 06 Nov 1994 12:00:07 GMT"),
            ("retry-after", "soon"),
            ("retry-after", "5"),
        ]);
        assert_eq!(asked, secs(7));
    }

    // field 9
    #[test]
    fn milliseconds_win_over_seconds() {
        let asked = asked_at_noon(&[("retry-after", "60"), ("retry-after-ms", "1500")]);
        assert_eq!(asked, Some(Duration::from_millis(1_500)));
        let broken = asked_at_noon(&[("retry-after", "60"), ("retry-after-ms", "soon")]);
        assert_eq!(broken, secs(60));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(
            value in proptest::collection::vec(any::<u8>(), 0..40),
            date in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let mut headers = HeaderMap::new();
            for (name, value) in [(RETRY_AFTER, &value), (RETRY_AFTER_MS, &value), (DATE, &date)] {
                if let Ok(value) = HeaderValue::from_bytes(value) {
                    headers.append(name, value);
                }
            }
            let _ = asked(&headers, BOTH, noon);
        }

        #[test]
        fn any_number_of_seconds_is_taken_as_it_is(n: u64) {
            prop_assert_eq!(retry_after(&n.to_string()), secs(n));
        }

        #[test]
        fn any_date_is_exact_to_the_second(n in 0..10_000_000_u64) {
            let value = httpdate::fmt_http_date(noon() + Duration::from_secs(n));
            prop_assert_eq!(retry_after(&value), secs(n));
        }
    }
}
