#![forbid(unsafe_code)]
//! Lock managers behind one contract.
//!
//! A lock manager decides which transactions may hold which *names* in which *modes*, and makes the
//! others wait in order, as threads or as tasks. It does not know what a name stands for: no page,
//! no record, no log. So it can be used by any engine, and this page shows how.
//!
//! | you give | it is | you get |
//! |---|---|---|
//! | a [`Name`](name::Name) | 24 bytes: a table, a key and its gap, a number | an order, a parent |
//! | a [`Mode`](mode::Mode) | IS IX S SIX U X, or a key part with a gap part | suprema |
//! | an [`Owner`](owner::Owner) | the state of one transaction, used again | its locks, in order |
//! | a [`Worker`](foxton_sync::worker::Worker) | the state of one thread | no thread-locals |
//!
//! [`LockManager`](manager::LockManager) is the contract, clauses L1 to L7.
//! [`AnyManager`](any::AnyManager) is an implementation of it, chosen when it is opened.
//!
//! # In another engine
//!
//! A store of numbers. Its transactions are serializable because they lock before they read, and
//! release at the end:
//!
//! ```
//! use foxton_lock::{
//!     any::{AnyManager, Options},
//!     manager::LockManager,
//!     mode::Mode,
//!     name::{KeyHasher, Name},
//!     owner::Owner,
//!     request::Refusal,
//! };
//! use foxton_sync::worker::{Worker, Workers};
//! use std::{collections::BTreeMap, sync::Mutex, time::{Duration, Instant}};
//!
//! const ACCOUNTS: u32 = 1;
//!
//! struct Store {
//!     locks: AnyManager,
//!     hasher: KeyHasher,
//!     accounts: Mutex<BTreeMap<u64, i64>>,
//! }
//!
//! impl Store {
//!     /// The table first, in the mode that the key needs above it; then the key.
//!     fn lock(
//!         &self,
//!         worker: &Worker,
//!         owner: &mut Owner,
//!         key: u64,
//!         mode: Mode,
//!     ) -> Result<(), Box<Refusal>> {
//!         let name = Name::key(ACCOUNTS, &key.to_be_bytes(), &self.hasher);
//!         let deadline = Some(Instant::now() + Duration::from_secs(1));
//!         for (name, mode) in [(Name::table(ACCOUNTS), mode.parent_mode()), (name, mode)] {
//!             let outcome = self.locks.lock(worker, owner, name, mode, deadline);
//!             if let Some(refusal) = outcome.refusal() {
//!                 return Err(refusal);
//!             }
//!         }
//!         Ok(())
//!     }
//!
//!     /// Moves `amount`. A deadlock or a deadline changes nothing: try again.
//!     fn transfer(
//!         &self,
//!         worker: &Worker,
//!         owner: &mut Owner,
//!         (from, to): (u64, u64),
//!         amount: i64,
//!     ) -> Result<(), Box<Refusal>> {
//!         owner.begin();
//!         owner.set_label("transfer");
//!         let keys = [from, to];
//!         let lock = |&key: &u64| self.lock(worker, owner, key, Mode::X);
//!         let locked = keys.iter().try_for_each(lock);
//!         if locked.is_ok() {
//!             let mut accounts = self.accounts.lock().unwrap();
//!             *accounts.get_mut(&from).unwrap() -= amount;
//!             *accounts.get_mut(&to).unwrap() += amount;
//!         }
//!         self.locks.release_all(worker, owner);
//!         locked
//!     }
//! }
//!
//! let store = Store {
//!     locks: AnyManager::new(&Options::default()),
//!     hasher: KeyHasher::new(7),
//!     accounts: Mutex::new(BTreeMap::from([(1, 100), (2, 100)])),
//! };
//! let workers = Workers::new();
//! std::thread::scope(|scope| {
//!     for (from, to) in [(1, 2), (2, 1)] {
//!         let (store, worker) = (&store, workers.worker());
//!         scope.spawn(move || {
//!             let mut owner = store.locks.owner();
//!             for _ in 0..100 {
//!                 while let Err(refusal) = store.transfer(&worker, &mut owner, (from, to), 1) {
//!                     // deadlock: X on 1/0x..02 was not granted; in the way: transfer ...
//!                     eprintln!("{refusal}");
//!                 }
//!             }
//!         });
//!     }
//! });
//! assert_eq!(store.accounts.into_inner().unwrap().values().sum::<i64>(), 200);
//! ```
//!
//! # Without blocking
//!
//! [`request`](manager::LockManager::request) never sleeps. When it answers `Waiting`, a thread
//! calls `wait`, and a task returns the result of `poll_wait`. To give up, call `cancel`, which
//! leaves no trace:
//!
//! ```
//! use foxton_lock::{any::{AnyManager, Options}, manager::LockManager, mode::Mode, name::Name};
//! use foxton_lock::request::{WaitMode, Reply};
//! use foxton_sync::worker::Workers;
//!
//! let locks = AnyManager::new(&Options::default());
//! let worker = Workers::new().worker();
//! let (mut one, mut other) = (locks.owner(), locks.owner());
//! let job = Name::advisory(42);
//! assert!(locks.try_lock(&worker, &mut one, job, Mode::X).is_held());
//! let reply = locks.request(&worker, &mut other, job, Mode::X, WaitMode::Wait);
//! assert!(matches!(reply, Reply::Waiting));
//! println!("{}", locks.inspect(&worker));
//! locks.cancel(&worker, &mut other);
//! locks.release_all(&worker, &mut one);
//! # assert!(locks.inspect(&worker).queues.is_empty());
//! ```
//!
//! # Further reading
//!
//! `tests/scripts` shows in some sixty small histories how a lock manager behaves.
//! [`reference`](managers::reference) does the same in the plainest code. [`deadlock`] argues why
//! no deadlock is missed and none has two victims.
//!
//! The order of the modules below is the ladder: a module uses only modules listed above it.

/// Injected faults, for tests.
pub mod failpoint;

/// Lock names: 24 bytes, with a parent and an order.
pub mod name;

/// Lock modes: compatibility, supremum and parent modes as tables.
pub mod mode;

/// Lock requests and the answers to them.
pub mod request;

/// Lock owners: a transaction as the lock manager sees it.
pub mod owner;

/// Snapshots, statistics and deadlock reports, for people and monitors.
pub mod inspect;

/// Waiters of one name, in their order.
mod wait_list;

/// Deadlock detection: the search for cycles and the choice of the victim.
pub mod deadlock;

/// The contract of a lock manager.
pub mod manager;

/// Lock escalation: one table lock replaces many key locks.
mod escalation;

/// Implementations of the contract.
pub mod managers;

/// The choice of a manager, made when it is opened.
pub mod any;
