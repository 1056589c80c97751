//! Promises of slots and the queue.

use super::*;
use crate::shim::AtomicU32;
use std::sync::mpsc::{self, Receiver, Sender};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self as threads, JoinHandle};

/// Waiting clients, first come first: the signal to release, and the thread.
type Waiters = Vec<(Sender<()>, JoinHandle<()>)>;

/// One slot, and a watcher that never looks by itself, so that all changes follow from calls.
fn one_slot(quantum: Duration) -> Arc<AdmissionControl> {
    let mut admission = AdmissionControl::with_quantum(1, quantum);
    admission.watch_interval = Duration::MAX;
    admission.queue = Mutex::new(super::SlotQueue::fifo());
    Arc::new(admission)
}

/// A client that queues, reports its number when it has a slot, and releases that on a signal; then
/// its quantum is over.
fn waiter(
    admission: &Arc<AdmissionControl>,
    (number, seated): (u32, &Sender<u32>),
) -> (Sender<()>, JoinHandle<()>) {
    let (go, gone) = mpsc::channel();
    let (behind, seated, there) = (admission.clone(), seated.clone(), admission.waiting());
    let thread = threads::spawn(move || {
        let mut claim = SlotClaim::default();
        behind.acquire(&mut claim);
        assert!(claim.has_slot());
        seated.send(number).unwrap();
        gone.recv().unwrap();
        claim.quantum_start = None;
        behind.release(&mut claim);
    });
    while admission.waiting() == there {
        threads::yield_now();
    }
    (go, thread)
}

fn two_waiting(admission: &Arc<AdmissionControl>) -> (Waiters, Receiver<u32>) {
    let (tell, told) = mpsc::channel();
    let queue = [1, 2].map(|number| waiter(admission, (number, &tell)));
    (queue.into(), told)
}

/// Number of the client that gets a slot next. Minutes without one mean that a slot was lost.
fn next(told: &Receiver<u32>) -> u32 {
    told.recv_timeout(Duration::from_mins(2)).unwrap()
}

fn all_leave(admission: &AdmissionControl, queue: Waiters, told: &Receiver<u32>) {
    for (number, (go, thread)) in (1..).zip(queue) {
        assert_eq!(next(told), number, "first come, first seated");
        assert_eq!(admission.free(), 0);
        go.send(()).unwrap();
        thread.join().unwrap();
    }
    assert_eq!((admission.free(), admission.waiting()), (1, 0));
}

#[test]
fn a_returning_client_reclaims_its_own_slot() {
    let admission = AdmissionControl::new(3);
    let mut claims: Vec<SlotClaim> = (0..3).map(|_| SlotClaim::default()).collect();
    claims.iter_mut().for_each(|claim| {
        admission.acquire(claim);
    });
    let lanes = |claims: &[SlotClaim]| claims.iter().map(|claim| claim.lane).collect::<Vec<_>>();
    assert_eq!(lanes(&claims), [0, 1, 2]);
    claims.iter_mut().for_each(|claim| {
        admission.release(claim);
    });
    claims.iter_mut().rev().for_each(|claim| {
        admission.acquire(claim);
    });
    assert_eq!(lanes(&claims), [0, 1, 2]);
    claims.iter_mut().for_each(|claim| {
        admission.release(claim);
    });
}

#[test]
fn while_its_quantum_lasts_a_claim_overtakes_the_queue() {
    let (admission, mut claim) = (one_slot(Duration::MAX), SlotClaim::default());
    admission.acquire(&mut claim);
    let (queue, told) = two_waiting(&admission);
    assert!(admission.release(&mut claim));
    assert_eq!((admission.free(), admission.waiting()), (1, 2));
    assert_eq!(admission.acquire(&mut claim), 1);
    assert!(claim.has_slot() && told.try_recv().is_err());
    assert_eq!((admission.free(), admission.waiting()), (0, 2));
    claim.quantum_start = None;
    admission.release(&mut claim);
    all_leave(&admission, queue, &told);
}

#[test]
fn after_its_quantum_a_claim_passes_its_slot_to_the_first() {
    let (admission, mut claim) = (one_slot(Duration::ZERO), SlotClaim::default());
    admission.acquire(&mut claim);
    let (queue, told) = two_waiting(&admission);
    assert!(admission.release(&mut claim));
    assert!(!claim.has_slot() && !admission.release(&mut claim));
    assert_eq!((admission.free(), admission.waiting()), (0, 1));
    all_leave(&admission, queue, &told);
}

#[test]
fn a_quantum_is_longer_where_few_are_blocked() {
    let quantum = Duration::from_secs(10);
    let admission = AdmissionControl::with_quantum(1, quantum).only_when_overloaded(1);
    let monitor = admission.monitor.as_ref().unwrap();
    let begun = |before: Duration| SlotClaim {
        quantum_start: Some(Instant::now() - before),
        ..SlotClaim::default()
    };
    monitor.set_limiting(true);
    assert!(admission.has_quantum_left(&mut begun(quantum / 2)));
    assert!(!admission.has_quantum_left(&mut begun(quantum * 2)));
    monitor.set_few_blocked();
    assert!(admission.has_quantum_left(&mut begun(quantum * 2)));
    assert!(!admission.has_quantum_left(&mut begun(quantum * (LONG_QUANTUM_FACTOR + 1))));
}

#[test]
fn the_clock_is_read_now_and_then_and_first_at_the_start_of_a_quantum() {
    let quantum = Duration::from_secs(10);
    let admission = AdmissionControl::with_quantum(1, quantum);
    let mut claim = SlotClaim::default();
    admission.acquire(&mut claim);
    let unchecked = |claim: &mut SlotClaim| {
        claim.quantum_start = Some(Instant::now() - quantum * 2);
        (0..).find(|_| !admission.has_quantum_left(claim)).unwrap()
    };
    assert_eq!(unchecked(&mut claim), 0);
    claim.begin_quantum();
    assert!(admission.has_quantum_left(&mut claim));
    assert_eq!(unchecked(&mut claim), 0);
    claim.begin_quantum();
    assert!((0..10_000).all(|_| admission.has_quantum_left(&mut claim)));
    assert!((1..MAX_UNCHECKED_RELEASES).contains(&unchecked(&mut claim)));
    claim.begin_quantum();
    assert_eq!(unchecked(&mut claim), 0);
}

#[test]
fn a_granted_slot_belongs_to_one_client_only() {
    let mut admission = AdmissionControl::with_quantum(2, Duration::ZERO);
    admission.watch_interval = Duration::MAX;
    let mut claims = [SlotClaim::default(), SlotClaim::default()];
    claims.iter_mut().for_each(|claim| {
        admission.acquire(claim);
    });
    threads::scope(|scope| {
        let next = scope.spawn(|| {
            let mut claim = SlotClaim::default();
            admission.acquire(&mut claim);
            claim
        });
        while admission.waiting() == 0 {
            threads::yield_now();
        }
        let [first, second] = &mut claims;
        admission.release(second);
        let mut next = next.join().unwrap();
        assert_eq!((first.lane, second.lane, next.lane), (0, 1, 1));
        admission.release(first);
        admission.release(&mut next);
    });
    let both = [0, 1].map(|lane| admission.slots.take_from(lane));
    assert_eq!((both, admission.free()), ([true; 2], 0));
}

#[test]
fn a_client_that_returns_too_late_queues_behind_and_the_first_gets_the_slot() {
    let (admission, mut claim) = (one_slot(Duration::MAX), SlotClaim::default());
    admission.acquire(&mut claim);
    let (queue, told) = two_waiting(&admission);
    admission.release(&mut claim);
    // The quantum is long over.
    claim.quantum_start = None;
    let behind = admission.clone();
    let late = threads::spawn(move || {
        behind.acquire(&mut claim);
        claim
    });
    assert_eq!(next(&told), 1);
    while admission.waiting() < 2 {
        threads::yield_now();
    }
    let mut queue = queue.into_iter();
    let (go, thread) = queue.next().unwrap();
    go.send(()).unwrap();
    thread.join().unwrap();
    assert_eq!(next(&told), 2);
    let (go, thread) = queue.next().unwrap();
    go.send(()).unwrap();
    thread.join().unwrap();
    let mut claim = late.join().unwrap();
    assert!(claim.has_slot());
    admission.release(&mut claim);
    assert_eq!((admission.free(), admission.waiting()), (1, 0));
}

#[test]
fn the_watcher_grants_a_free_slot_though_its_client_returned_a_moment_ago() {
    let (admission, mut claim) = (one_slot(Duration::MAX), SlotClaim::default());
    admission.acquire(&mut claim);
    let (queue, told) = two_waiting(&admission);
    for _ in 0..3 {
        admission.release(&mut claim);
        admission.acquire(&mut claim);
    }
    assert!(claim.has_slot() && told.try_recv().is_err());
    admission.release(&mut claim);
    admission.check_queue(false);
    all_leave(&admission, queue, &told);
}

#[test]
fn slots_limit_only_under_overload_and_then_all_are_admitted() {
    let mut admission = one_slot(Duration::MAX);
    let only = Arc::get_mut(&mut admission).unwrap();
    only.monitor = Some(LoadMonitor::new(1));
    let limit = |limiting| admission.monitor.as_ref().unwrap().set_limiting(limiting);
    let mut claim = SlotClaim::default();
    assert_eq!(admission.acquire(&mut claim), 0);
    assert!(!claim.has_slot() && !admission.release(&mut claim));
    limit(true);
    assert_eq!(admission.acquire(&mut claim), 1);
    assert!(claim.has_slot());
    let queue: Vec<_> = (0..3)
        .map(|before| {
            let admission = admission.clone();
            let behind = admission.clone();
            let thread = threads::spawn(move || {
                let mut claim = SlotClaim::default();
                behind.acquire(&mut claim);
                claim.has_slot()
            });
            while admission.waiting() == before {
                threads::yield_now();
            }
            thread
        })
        .collect();
    limit(false);
    admission.admit_all();
    for one in queue {
        assert!(!one.join().unwrap(), "nobody has left a seat");
    }
    assert!(admission.release(&mut claim));
    assert_eq!((admission.free(), admission.waiting()), (1, 0));
}

#[test]
fn a_client_that_queues_after_the_overload_notices_its_end() {
    let mut admission = AdmissionControl::new(0).only_when_overloaded(1);
    admission.watch_interval = Duration::from_millis(1);
    let mut claim = SlotClaim::default();
    // The client has seen the overload, and then there is none.
    assert_eq!(admission.wait_in_queue(&mut claim), 2, "the first look");
    assert!(!claim.has_slot() && admission.waiting() == 0);
}

#[test]
fn a_client_that_blocks_the_slot_holder_is_admitted_without_a_slot() {
    let (admission, mut claim) = (Arc::new(AdmissionControl::new(1)), SlotClaim::default());
    admission.acquire(&mut claim);
    // No client releases before all are admitted.
    let queue: Vec<_> = (0..3)
        .map(|_| {
            let admission = admission.clone();
            threads::spawn(move || {
                let mut claim = SlotClaim::default();
                admission.acquire(&mut claim);
                claim.has_slot()
            })
        })
        .collect();
    for one in queue {
        assert!(!one.join().unwrap());
    }
    admission.release(&mut claim);
    assert_eq!((admission.free(), admission.waiting()), (1, 0));
}

/// Polls once; counts the calls for a watch.
fn poll(admission: &AdmissionControl, claim: &mut SlotClaim, watches: &mut u32) -> Poll<u64> {
    let context = Context::from_waker(Waker::noop());
    admission.poll_acquire(claim, &context, || *watches += 1)
}

/// A control of one slot with its holder, and tasks in the queue.
fn queued_tasks<const N: usize>() -> (Arc<AdmissionControl>, SlotClaim, [SlotClaim; N]) {
    let admission = one_slot(Duration::ZERO);
    let (mut holder, mut watches) = (SlotClaim::default(), 0);
    admission.acquire(&mut holder);
    let tasks = std::array::from_fn(|_| {
        let mut claim = SlotClaim::default();
        assert!(poll(&admission, &mut claim, &mut watches).is_pending());
        claim
    });
    assert_eq!((watches, admission.waiting()), (1, N), "one watch for all");
    (admission, holder, tasks)
}

#[test]
fn a_slot_passes_from_task_to_task_in_the_order_of_arrival() {
    let (admission, mut holder, mut tasks) = queued_tasks::<3>();
    admission.release(&mut holder);
    for at in 0..3 {
        let states = tasks.each_mut().map(|claim| {
            let was_admitted = claim.has_slot();
            !was_admitted && claim.queued.is_some() && poll(&admission, claim, &mut 0).is_ready()
        });
        let next = [0, 1, 2].map(|other| other == at);
        assert_eq!(states, next);
        assert!(tasks[at].has_slot());
        admission.release(&mut tasks[at]);
    }
    assert_eq!((admission.free(), admission.waiting()), (1, 0));
}

#[test]
fn a_task_is_woken_when_it_is_granted_a_slot() {
    struct Count(AtomicU32);
    impl Wake for Count {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let admission = one_slot(Duration::ZERO);
    let (mut holder, mut task) = (SlotClaim::default(), SlotClaim::default());
    admission.acquire(&mut holder);
    let count = std::sync::Arc::new(Count(AtomicU32::new(0)));
    let waker = Waker::from(count.clone());
    for waker in [Waker::noop(), &waker] {
        let context = Context::from_waker(waker);
        assert!(
            admission
                .poll_acquire(&mut task, &context, || ())
                .is_pending()
        );
    }
    admission.release(&mut holder);
    assert_eq!(
        count.0.load(Ordering::Relaxed),
        1,
        "the waker of the last poll"
    );
    assert!(poll(&admission, &mut task, &mut 0).is_ready() && task.has_slot());
}

#[test]
fn a_task_that_waits_no_longer_leaves_the_queue_or_passes_its_slot_on() {
    let (admission, mut holder, mut tasks) = queued_tasks::<3>();
    admission.cancel(&mut tasks[1]);
    assert_eq!(admission.waiting(), 2);
    admission.release(&mut holder);
    // The first was granted the slot, and never polls again.
    admission.cancel(&mut tasks[0]);
    assert_eq!((admission.free(), admission.waiting()), (0, 0));
    assert!(poll(&admission, &mut tasks[2], &mut 0).is_ready());
    admission.cancel(&mut tasks[2]);
    assert!(tasks[2].has_slot(), "it does not wait");
    admission.release(&mut tasks[2]);
    assert_eq!(admission.free(), 1);
}

#[test]
fn the_watch_admits_a_task_without_a_slot_and_ends_with_the_queue() {
    let (admission, mut holder, mut tasks) = queued_tasks::<2>();
    let (mut record, mut looks) = (WatchRecord::default(), 0);
    while admission.watch(&mut record) {
        looks += 1;
    }
    assert!(looks >= 2 * MAX_FRUITLESS_WATCHES - 2, "{looks}");
    for claim in &mut tasks {
        assert!(poll(&admission, claim, &mut 0).is_ready() && !claim.has_slot());
    }
    let mut watches = 0;
    assert!(poll(&admission, &mut tasks[0], &mut watches).is_pending());
    assert_eq!(watches, 1, "the next to come starts it again");
    admission.release(&mut holder);
    assert!(poll(&admission, &mut tasks[0], &mut watches).is_ready());
    assert!(tasks[0].has_slot());
}

#[test]
fn all_waiting_tasks_are_admitted_when_the_overload_ends() {
    let admission = AdmissionControl::new(1).only_when_overloaded(1);
    let monitor = admission.monitor.as_ref().unwrap();
    monitor.set_limiting(true);
    let mut claims: [SlotClaim; 5] = std::array::from_fn(|_| SlotClaim::default());
    let mut is_ready = |claim: &mut SlotClaim| poll(&admission, claim, &mut 0).is_ready();
    let ready = claims.each_mut().map(&mut is_ready);
    assert_eq!(ready, [true, false, false, false, false]);
    monitor.set_limiting(false);
    assert!(!admission.watch(&mut WatchRecord::default()));
    assert!(claims[1..].iter_mut().all(is_ready));
}
