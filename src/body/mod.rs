//! Bodies: what is sent again, what is read inside an attempt, what is handed over, and what is thrown away.

pub(crate) mod discard;
pub(crate) mod handed;
pub(crate) mod head;
pub(crate) mod outgoing;
pub(crate) mod read;
pub(crate) mod touch;
