//! What an operation adds to a plain `reqwest::Response`.

use http::StatusCode;
use reqwest::Response;

use crate::attempts::{Attempts, Record, StopReason};
use crate::classify::Delivery;
use crate::error::Error;
use crate::outcome::{Evidence, Exhibit, Outcome};
use crate::redacted::{Redacted, target};
use crate::redirect::{Redirect, is_made_up};

/// The record of the operation behind a response.
///
/// ```no_run
/// use steadfast::ResponseExt;
///
/// # async fn f(client: steadfast::Client) -> Result<(), steadfast::Error> {
/// let response = client.get("https://api.example.com/orders").send().await?;
/// if let Some(attempts) = response.attempts() {
///     println!("{} attempts in {:?}", attempts.len(), attempts.elapsed());
/// }
/// let orders = response.into_result()?;
/// # Ok(())
/// # }
/// ```
pub trait ResponseExt: sealed::Sealed + Sized {
    /// What was tried; `None` for a response that no operation of this crate brought.
    fn attempts(&self) -> Option<&Attempts>;

    /// What is known of the effect of the operation.
    fn outcome(&self) -> Option<Outcome>;

    /// A status from 400 to 599 as an error of the kind `Status`.
    ///
    /// Where `error_for_status` drops body and record, this error keeps both: see
    /// [`Error::into_response`].
    ///
    /// # Errors
    ///
    /// Every status from 400 to 599.
    fn into_result(self) -> Result<Response, Error>;
}

impl ResponseExt for Response {
    fn attempts(&self) -> Option<&Attempts> {
        self.extensions().get()
    }

    fn outcome(&self) -> Option<Outcome> {
        self.attempts().map(Attempts::outcome)
    }

    fn into_result(self) -> Result<Response, Error> {
        let status = self.status();
        if !status.is_client_error() && !status.is_server_error() {
            return Ok(self);
        }
        let attempts = self.attempts().cloned().unwrap_or_else(|| foreign(status));
        let target = match attempts.method() {
            Some(method) if is_made_up(self.url()) => method.to_string(),
            Some(method) => target(method, self.url()),
            None => Redacted(self.url()).to_string(),
        };
        Err(Error::of_status(target, attempts, self))
    }
}

/// The record of a response that came another way: what its status alone says.
fn foreign(status: StatusCode) -> Attempts {
    let mut evidence = Evidence::new(false, false);
    evidence.add(Exhibit {
        delivery: if status.is_client_error() {
            Delivery::Rejected
        } else {
            Delivery::Unknown
        },
        status: Some(status),
        redirect: Redirect::None,
        settles: None,
        passing: false,
    });
    Record::without_attempts(None, StopReason::NotRetryable, evidence, None)
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for reqwest::Response {}
}
