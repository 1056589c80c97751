//! Model of the asymmetric fence: its litmus test, in every interleaving.

use foxton_sync::{
    asymmetric::Asymmetric,
    shim::{Arc, AtomicU64, Ordering::Relaxed},
};

/// Store buffering: each side writes its word and reads the other's.
fn one_of_two_sides_sees_the_other(pair: fn() -> Asymmetric) {
    loom::model(move || {
        let shared = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
        let fence = pair();
        let frequent = {
            let shared = shared.clone();
            loom::thread::spawn(move || {
                shared.0.store(1, Relaxed);
                fence.light();
                shared.1.load(Relaxed)
            })
        };
        shared.1.store(1, Relaxed);
        fence.heavy();
        let seen = shared.0.load(Relaxed);
        assert!(seen + frequent.join().unwrap() > 0, "both missed the other");
    });
}

#[test]
fn o1_one_of_two_sides_sees_the_other() {
    one_of_two_sides_sees_the_other(Asymmetric::new);
}

#[test]
fn o1_full_fences_on_both_sides_do_the_same() {
    one_of_two_sides_sees_the_other(Asymmetric::symmetric);
}
