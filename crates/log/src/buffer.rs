//! Memory in which records wait to be written, and where the stream gets its order.
//!
//! A buffer gives every record its place in the stream, fills in what depends on the place, and
//! hands everything over, in order, to whoever writes. It knows nothing of files.

/// One latch around allocate and copy.
pub(crate) mod baseline;
