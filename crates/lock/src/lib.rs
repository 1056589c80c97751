#![forbid(unsafe_code)]
//! Who may: lock managers behind one contract.
//!
//! The order of the modules below is the ladder: a module uses only modules listed above it.

/// What can be locked: 24 bytes, with a parent and an order.
pub mod name;

/// How something is held: compatibility, supremum and parent modes as tables.
pub mod mode;

/// Asking for a lock, and the answers.
pub mod request;

/// What others may read of an owner, and where it sleeps.
mod registry;

/// What one owner holds.
mod held;

/// What is kept for one transaction.
pub mod owner;

/// What a person or a monitor may ask.
pub mod inspect;

/// Deadlocks: the walk and the victim.
pub mod waits;

/// The contract.
pub mod manager;

/// The contract in its plainest form.
pub mod reference;

/// Implementations of the contract.
pub mod managers;

/// The choice of a manager, made when it is opened.
pub mod any;
