//! Models of admission control: no slot is lost or taken twice, and no client waits for ever.

use std::future::poll_fn;
use std::task::{Context, Waker};
use std::time::Duration;

use foxton_sync::admission::{AdmissionControl, SlotClaim, WatchRecord};
use foxton_sync::shim::{Arc, AtomicU32, Ordering, thread};

/// One client; `slots` counts the clients that have a slot.
fn run(rounds: usize, admission: &AdmissionControl, slots: &AtomicU32) {
    let mut claim = SlotClaim::default();
    for _ in 0..rounds {
        admission.acquire(&mut claim);
        if claim.has_slot() {
            assert_eq!(slots.fetch_add(1, Ordering::AcqRel), 0, "I1");
            slots.fetch_sub(1, Ordering::AcqRel);
        }
        admission.release(&mut claim);
    }
}

/// `clients` clients that each pass `rounds` times through one slot.
fn pass(clients: usize, rounds: usize, quantum: Duration, bound: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(bound);
    model.check(move || {
        let admission = Arc::new(AdmissionControl::with_quantum(1, quantum));
        let slots = Arc::new(AtomicU32::new(0));
        let others: Vec<_> = (1..clients)
            .map(|_| {
                let (admission, slots) = (admission.clone(), slots.clone());
                thread::spawn(move || run(rounds, &admission, &slots))
            })
            .collect();
        run(rounds, &admission, &slots);
        for other in others {
            other.join().unwrap();
        }
        assert_eq!((admission.free(), admission.waiting()), (1, 0), "I1, I3");
    });
}

#[test]
fn a_slot_is_granted_to_one_client_at_a_time() {
    pass(2, 2, Duration::ZERO, 3);
}

#[test]
fn a_slot_is_left_for_a_returning_client_and_found_by_the_watcher() {
    pass(2, 2, Duration::MAX, 3);
}

#[test]
fn the_first_of_two_waiting_clients_is_followed_by_the_next() {
    pass(3, 1, Duration::ZERO, 2);
    pass(3, 1, Duration::MAX, 2);
}

/// Both slots are taken when the overload ends; a client that waits, or comes to the queue, is
/// admitted.
#[test]
fn waiting_clients_are_admitted_when_the_overload_ends() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let admission =
            Arc::new(AdmissionControl::with_quantum(2, Duration::MAX).only_when_overloaded(1));
        admission.set_limiting(true);
        let mut slots = [SlotClaim::default(), SlotClaim::default()];
        for claim in &mut slots {
            admission.acquire(claim);
            assert!(claim.has_slot());
        }
        let another = {
            let admission = admission.clone();
            thread::spawn(move || {
                let mut claim = SlotClaim::default();
                admission.acquire(&mut claim);
                admission.release(&mut claim);
            })
        };
        admission.set_limiting(false);
        admission.release(&mut slots[0]);
        another.join().unwrap();
        admission.release(&mut slots[1]);
        assert_eq!((admission.free(), admission.waiting()), (2, 0), "I1, I4");
    });
}

/// A task that passes through `admission` once, and a watcher for tasks.
fn task(admission: &Arc<AdmissionControl>, slots: &AtomicU32) {
    let (mut claim, mut watcher) = (SlotClaim::default(), None);
    let start_watch = |watcher: &mut Option<thread::JoinHandle<()>>| {
        let admission = admission.clone();
        *watcher = Some(thread::spawn(move || {
            let mut record = WatchRecord::default();
            while admission.watch(&mut record) {
                thread::yield_now();
            }
        }));
    };
    loom::future::block_on(poll_fn(|context| {
        admission.poll_acquire(&mut claim, context, || start_watch(&mut watcher))
    }));
    if claim.has_slot() {
        assert_eq!(slots.fetch_add(1, Ordering::AcqRel), 0, "I1");
        slots.fetch_sub(1, Ordering::AcqRel);
    }
    admission.release(&mut claim);
    if let Some(watcher) = watcher {
        watcher.join().unwrap();
    }
}

fn task_and_thread(quantum: Duration) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(move || {
        let admission = Arc::new(AdmissionControl::with_quantum(1, quantum));
        let slots = Arc::new(AtomicU32::new(0));
        let other = {
            let (admission, slots) = (admission.clone(), slots.clone());
            thread::spawn(move || task(&admission, &slots))
        };
        run(1, &admission, &slots);
        other.join().unwrap();
        assert_eq!((admission.free(), admission.waiting()), (1, 0), "I1, I3");
    });
}

#[test]
fn a_slot_is_granted_to_a_task_or_found_for_it() {
    task_and_thread(Duration::ZERO);
    task_and_thread(Duration::MAX);
}

/// A task is cancelled while the slot may be granted to it, with another client behind.
#[test]
fn a_cancelled_task_leaves_the_queue_or_passes_its_slot_on() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let admission = Arc::new(AdmissionControl::with_quantum(1, Duration::ZERO));
        let mut holder = SlotClaim::default();
        admission.acquire(&mut holder);
        let mut claim = SlotClaim::default();
        let context = Context::from_waker(Waker::noop());
        assert!(
            admission
                .poll_acquire(&mut claim, &context, || ())
                .is_pending()
        );
        let releasing = {
            let admission = admission.clone();
            thread::spawn(move || {
                admission.release(&mut holder);
            })
        };
        admission.cancel(&mut claim);
        releasing.join().unwrap();
        assert_eq!((admission.free(), admission.waiting()), (1, 0), "I1");
    });
}
