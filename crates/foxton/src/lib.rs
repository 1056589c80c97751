#![forbid(unsafe_code)]
//! An embeddable transactional storage engine.
