//! What is wrong with a policy: every rule that its settings break.

use std::time::Duration;

/// Every rule that the settings of a [`Policy`](crate::Policy) break.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("invalid policy: {}", sentence(.violations))]
pub struct PolicyError {
    violations: Vec<PolicyViolation>,
}

impl PolicyError {
    pub(crate) fn new(violations: Vec<PolicyViolation>) -> Self {
        Self { violations }
    }

    /// The broken rules, at least one.
    pub fn violations(&self) -> &[PolicyViolation] {
        &self.violations
    }
}

fn sentence(violations: &[PolicyViolation]) -> String {
    let texts: Vec<_> = violations.iter().map(ToString::to_string).collect();
    texts.join("; ")
}

/// One rule that the settings of a policy break.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyViolation {
    /// A count that must be at least 1.
    #[error("{setting} 0 is less than 1")]
    LessThanOne {
        /// The setting that is 0.
        setting: &'static str,
    },
    /// A limit that is over before it begins.
    #[error("{setting} 0s is not longer than 0s")]
    Zero {
        /// The setting that is zero.
        setting: &'static str,
    },
    /// A part that is longer than what it is part of, or a time that is longer than makes sense.
    #[error("{setting} {value:?} is longer than {limited_by} {limit:?}")]
    Longer {
        /// The setting that is too long.
        setting: &'static str,
        /// Its value.
        value: Duration,
        /// The setting that limits it.
        limited_by: &'static str,
        /// The value of that one.
        limit: Duration,
    },
    /// A number that is out of its range, or none at all.
    #[error("{setting} {value} is not {range}")]
    OutOfRange {
        /// The setting that is out of range.
        setting: &'static str,
        /// Its value.
        value: f64,
        /// The range, in words.
        range: &'static str,
    },
}
