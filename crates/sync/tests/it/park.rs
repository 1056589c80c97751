//! Tests of the parker, one step at a time. Interleavings of the steps are in `models/park.rs`.

use foxton_sync::clock;
use foxton_sync::park::{Parker, Verdict};
use foxton_sync::shim::{Arc, AtomicU64, Ordering::Relaxed};
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

const GRANTED: Verdict = Verdict::new(1);
const VICTIM: Verdict = Verdict::new(2);

/// A waker that counts.
#[derive(Default)]
struct Counting(AtomicU64);

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[test]
fn the_first_verdict_stands() {
    let parker = Parker::new();
    let ticket = parker.arm();
    assert!(parker.is_open(ticket));
    parker.resolve(ticket, GRANTED).expect("first").wake();
    assert!(parker.resolve(ticket, VICTIM).is_none());
    assert_eq!(parker.wait(ticket, None), Some(GRANTED));
    assert_eq!(parker.disarm(ticket), Some(GRANTED));
    assert!(!parker.is_open(ticket));
}

#[test]
fn a_deadline_passes_and_the_wait_stays_open() {
    let parker = Parker::new();
    let ticket = parker.arm();
    let begin = clock::now();
    let deadline = begin + Duration::from_millis(20);
    assert_eq!(parker.wait(ticket, Some(deadline)), None);
    assert!(begin.elapsed() >= Duration::from_millis(20));
    assert!(parker.is_open(ticket));
    parker.resolve(ticket, GRANTED).expect("still open").wake();
    assert_eq!(parker.wait(ticket, Some(deadline)), Some(GRANTED));
}

#[test]
fn a_withdrawn_wait_cannot_be_resolved() {
    let parker = Parker::new();
    let ticket = parker.arm();
    assert_eq!(parker.disarm(ticket), None);
    assert!(parker.resolve(ticket, GRANTED).is_none());
    assert_eq!(parker.disarm(ticket), None);
}

#[test]
fn an_old_ticket_ends_no_later_wait() {
    let parker = Parker::new();
    let old = parker.arm();
    assert_eq!(parker.disarm(old), None);
    let ticket = parker.arm();
    assert!(old < ticket);
    assert!(parker.resolve(old, VICTIM).is_none());
    assert_eq!(parker.disarm(old), None);
    assert!(parker.is_open(ticket));
    assert_eq!(parker.disarm(ticket), None);
}

#[test]
fn a_task_is_woken_once() {
    let parker = Parker::new();
    let count = Arc::new(Counting::default());
    let waker = Waker::from(count.clone());
    let mut context = Context::from_waker(&waker);
    let ticket = parker.arm();
    // Polled twice, registered once: the later registration replaces the earlier.
    assert_eq!(parker.poll(ticket, &mut context), Poll::Pending);
    assert_eq!(parker.poll(ticket, &mut context), Poll::Pending);
    parker.resolve(ticket, GRANTED).expect("first").wake();
    assert_eq!(count.0.load(Relaxed), 1);
    assert_eq!(parker.poll(ticket, &mut context), Poll::Ready(GRANTED));
    assert_eq!(count.0.load(Relaxed), 1);
}

#[test]
fn a_withdrawn_wait_keeps_no_waker() {
    let parker = Parker::new();
    let count = Arc::new(Counting::default());
    let waker = Waker::from(count.clone());
    let ticket = parker.arm();
    let future = pin!(std::future::poll_fn(|cx| parker.poll(ticket, cx)));
    assert_eq!(future.poll(&mut Context::from_waker(&waker)), Poll::Pending);
    drop(waker);
    assert_eq!(Arc::strong_count(&count), 2);
    assert_eq!(parker.disarm(ticket), None);
    assert_eq!(Arc::strong_count(&count), 1);
}

#[test]
fn a_wake_that_is_dropped_wakes() {
    let parker = Parker::new();
    let ticket = parker.arm();
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| parker.wait(ticket, None));
        std::thread::sleep(Duration::from_millis(20));
        drop(parker.resolve(ticket, GRANTED));
        assert_eq!(sleeper.join().expect("no panic"), Some(GRANTED));
    });
}

#[test]
#[should_panic(expected = "previous wait is open")]
fn arming_twice_panics() {
    let parker = Parker::new();
    parker.arm();
    parker.arm();
}

#[test]
#[should_panic(expected = "withdrawn or is over")]
fn waiting_on_a_withdrawn_wait_panics() {
    let parker = Parker::new();
    let ticket = parker.arm();
    parker.disarm(ticket);
    parker.wait(ticket, None);
}

#[test]
#[should_panic(expected = "23 bits")]
fn a_verdict_out_of_range_panics() {
    Verdict::new(1 << 23);
}

#[test]
fn a_waker_that_panics_does_not_keep_others_from_being_woken() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker that panics");
        }
    }
    let (first, second) = (Parker::new(), Parker::new());
    let tickets = [first.arm(), second.arm()];
    let counting = Arc::new(Counting::default());
    let (panics, counts) = (Waker::from(Arc::new(Panics)), Waker::from(counting.clone()));
    let pending = |polled: Poll<Verdict>| assert!(polled.is_pending());
    pending(first.poll(tickets[0], &mut Context::from_waker(&panics)));
    pending(second.poll(tickets[1], &mut Context::from_waker(&counts)));
    first.resolve(tickets[0], GRANTED).expect("first").wake();
    second.resolve(tickets[1], GRANTED).expect("first").wake();
    assert_eq!(counting.0.load(Relaxed), 1);
}
