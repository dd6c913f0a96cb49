//! The guide: how to make a service's calls with Steadfast, one question a chapter.
//!
//! | chapter | what it answers |
//! |---|---|
//! | [`timeouts`] | how long may a call take, and what ends it? |
//! | [`writes`] | what does a key do for a POST, and what follows when nobody knows whether it acted? |
//! | [`contracts`] | how is the documentation of a service turned into a contract? |
//! | [`jobs`] | where does the key of a background job come from? |
//! | [`queues`] | who repeats: the queue or the client? |
//! | [`webhooks`] | how are events sent to endpoints that nobody controls? |
//! | [`streams`] | what about uploads, downloads, event streams and long model calls? |
//! | [`rate_limits`] | how does a client live with an API that throttles? |
//! | [`circuits`] | when does a circuit help, and how is it tuned? |
//! | [`guards`] | which guard treats which failure? |
//! | [`migrating`] | what changes for who comes from another retry library? |
//! | [`anti_patterns`] | what looks right and is not? |
//!
//! Every snippet is compiled, and those that can be are run. The words are those of the crate: an *operation* is what the
//! caller wants done, once; an *attempt* is one request made for it; what is known of the effect is its *outcome*.

#[doc = include_str!("timeouts.md")]
pub mod timeouts {}

#[doc = include_str!("writes.md")]
pub mod writes {}

#[doc = include_str!("contracts.md")]
pub mod contracts {}

#[doc = include_str!("jobs.md")]
pub mod jobs {}

#[doc = include_str!("queues.md")]
pub mod queues {}

#[doc = include_str!("webhooks.md")]
pub mod webhooks {}

#[doc = include_str!("streams.md")]
pub mod streams {}

#[doc = include_str!("rate_limits.md")]
pub mod rate_limits {}

#[doc = include_str!("circuits.md")]
pub mod circuits {}

#[doc = include_str!("guards.md")]
pub mod guards {}

#[doc = include_str!("migrating.md")]
pub mod migrating {}

#[doc = include_str!("anti_patterns.md")]
pub mod anti_patterns {}
