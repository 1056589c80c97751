//! Who may.
