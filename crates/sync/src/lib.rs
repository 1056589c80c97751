//! How threads meet.
