//! Memory of a held lock: one transaction may hold a million.
//!
//! Counted, not timed: the manager's own count of its memory and the owner's count of its list. The
//! reference is left out, because its memory does not matter.

use foxton_lock::{
    any::{AnyManager, ManagerKind, Options},
    manager::LockManager,
    mode::Mode,
    name::Name,
};
use foxton_sync::worker::Workers;

const MILLION: u64 = 1_000_000;

#[test]
fn one_transaction_holds_a_million_locks_in_a_hundred_megabytes() {
    let workers = Workers::with_seed(1);
    let worker = workers.worker();
    for kind in [
        ManagerKind::Global,
        ManagerKind::Bucket,
        ManagerKind::Sharded,
        ManagerKind::Direct,
        ManagerKind::Staged,
    ] {
        let mut options = Options::default();
        options.kind = kind;
        let locks = AnyManager::new(&options);
        let (mut owner, mut other) = (locks.owner(), locks.owner());
        let idle = locks.stats(&worker).memory_bytes;
        for number in 0..MILLION {
            let name = Name::advisory(number);
            assert!(locks.try_lock(&worker, &mut owner, name, Mode::S).is_held());
        }
        let full = locks.stats(&worker).memory_bytes + owner.memory_bytes();
        println!(
            "{kind}: {idle} bytes idle, {:.1} for each of a million locks",
            (full - idle) as f64 / MILLION as f64
        );
        assert!(full <= 100_000_000, "{kind}: {full} bytes");

        // Each of them is a lock like any other: shared, refused, converted, released.
        for number in (0..MILLION).step_by(10_007) {
            let name = Name::advisory(number);
            assert!(locks.try_lock(&worker, &mut other, name, Mode::S).is_held());
            let refused = locks.try_lock(&worker, &mut owner, name, Mode::X);
            assert_eq!(refused.refusal().expect("a reader").blockers.len(), 1);
            assert!(locks.release(&worker, &mut other, name));
            assert!(locks.try_lock(&worker, &mut owner, name, Mode::X).is_held());
        }
        locks.verify(&worker);
        locks.release_all(&worker, &mut owner);
        assert!(locks.inspect(&worker).queues.is_empty());
        let left = locks.stats(&worker).memory_bytes;
        println!("{kind}: {left} bytes after");
        // Managers with requests in segments keep them for reuse.
        let kept = if kind.to_string().starts_with("staged") {
            48_000_000
        } else {
            16_000_000
        };
        assert!(left <= idle + kept, "{kind}: {left} bytes are kept");
    }
}

/// After a peak each bucket has had several names. The rest of that is small, but it lies on as
/// many pages as there are buckets.
#[test]
fn nothing_is_left_of_many_locks_once_the_manager_was_trimmed() {
    let workers = Workers::with_seed(1);
    let worker = workers.worker();
    let is_latched = |kind: &ManagerKind| {
        let name = kind.to_string();
        !name.starts_with("staged") && name != "reference"
    };
    for kind in ManagerKind::ALL.into_iter().filter(is_latched) {
        let mut options = Options::default();
        options.kind = kind;
        let locks = AnyManager::new(&options);
        let idle = locks.stats(&worker).memory_bytes;
        let (mut owner, mut other) = (locks.owner(), locks.owner());
        for number in 0..100_000 {
            let name = Name::advisory(number);
            assert!(locks.try_lock(&worker, &mut owner, name, Mode::X).is_held());
        }
        // Some buckets are in use when the others are trimmed.
        for number in 100_000..100_100 {
            let name = Name::advisory(number);
            assert!(locks.try_lock(&worker, &mut other, name, Mode::X).is_held());
        }
        locks.release_all(&worker, &mut owner);
        drop(owner);
        let before = locks.stats(&worker).memory_bytes;
        locks.trim(&worker);
        locks.verify(&worker);
        let left = locks.stats(&worker).memory_bytes;
        println!("{kind}: {idle} bytes idle, {before} after many locks, {left} once trimmed");
        assert!(left <= idle + (100 << 10), "{kind}: {left} bytes are left");
        assert_eq!(locks.inspect(&worker).queues.len(), 100);
        locks.release_all(&worker, &mut other);
        locks.verify(&worker);
    }
}
