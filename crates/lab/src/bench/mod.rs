//! The experiments behind `foxton bench`.

/// Points interleaved over everything compared.
pub mod sweep;
