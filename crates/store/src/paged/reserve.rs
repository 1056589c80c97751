//! Free-frame reserve: frames without a page, for threads that need several at once.
//!
//! A thread that needs frames gets all of them or none. Threads that wait are served in the order
//! in which they came, so one that needs six frames is not passed by those that need one.
//!
//! # Invariants
//!
//! * I1  A frame is here once, free or unused, or a thread owns it, or it has a page.
//! * I2  A thread that waits has no frame. So two threads never wait for each other's frames, and
//!   as many frames as the largest request are enough for any number of threads.
//! * I3  While threads wait, frames that are released go to the first of them, as soon as there are
//!   enough for it. No other thread takes frames meanwhile.
//! * I4  Frames beyond the limit are not taken. Such a frame that is released becomes *surplus*. A
//!   thread takes it to give its memory back, and it is *unused* then, until the limit is raised.
//!
//! One mutex guards frames and queue. Only threads that miss a page pass it.

use std::collections::VecDeque;
use std::fmt;
use std::time::Instant;

use foxton_sync::park::{Parker, Ticket, Verdict};
use foxton_sync::shim::{self, Arc, Mutex};
use foxton_sync::site::{Component, Pattern, Site};
use smallvec::SmallVec;

/// Maximum number of frames that are reserved together.
pub const MAX_RESERVED: usize = 6;

/// Site: the free-frame reserve. Its callers count it.
pub static FREE_FRAMES: Site = Site::new(Component::BufferPool, Pattern::Unbounded, "free frames");

const GRANTED: Verdict = Verdict::new(1);

/// Frames that a thread owns, by their index.
pub type FrameList = SmallVec<[usize; MAX_RESERVED]>;

/// The frames that have no page, and the threads that wait for some.
///
/// ```
/// use foxton_store::paged::reserve::{FrameList, FreeFrames};
///
/// let reserve = FreeFrames::new(3);
/// let mut two = reserve.try_take(2).expect("there are three");
/// assert!(reserve.try_take(2).is_none(), "all or none");
/// reserve.give(&mut two);
/// assert_eq!(reserve.count(), 3);
/// ```
pub struct FreeFrames {
    state: Mutex<ReserveState>,
}

struct ReserveState {
    /// Frames from this one on are not used.
    limit: usize,
    free: Vec<usize>,
    /// Beyond the limit, with memory.
    surplus: Vec<usize>,
    /// Beyond the limit, without.
    unused: Vec<usize>,
    waiters: VecDeque<Arc<FrameWaiter>>,
}

struct FrameWaiter {
    count: usize,
    parker: Parker,
    ticket: Ticket,
    granted: Mutex<FrameList>,
}

/// A place in the queue of [`FreeFrames`].
pub struct FrameWait(Arc<FrameWaiter>);

impl fmt::Debug for FreeFrames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FreeFrames")
            .field("count", &self.count())
            .field("shortage", &self.shortage())
            .finish()
    }
}

impl fmt::Debug for FrameWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameWait")
            .field("count", &self.0.count)
            .finish_non_exhaustive()
    }
}

impl FreeFrames {
    /// Returns a reserve with the frames `0..count`.
    pub fn new(count: usize) -> FreeFrames {
        FreeFrames::with_limit(count, count)
    }

    /// Returns a reserve with the frames `0..maximum`, of which `0..limit` are used.
    pub fn with_limit(maximum: usize, limit: usize) -> FreeFrames {
        FreeFrames {
            state: Mutex::new(ReserveState {
                limit,
                free: (0..limit).rev().collect(),
                surplus: Vec::new(),
                unused: (limit..maximum).collect(),
                waiters: VecDeque::new(),
            }),
        }
    }

    /// Changes the limit. Free frames beyond it become surplus; the frames below it that were not
    /// used become free.
    pub fn set_limit(&self, limit: usize) {
        let mut guard = shim::lock(&self.state);
        let state = &mut *guard;
        state.limit = limit;
        let frames = [&mut state.free, &mut state.surplus].map(std::mem::take);
        let is_used = |frame: &mut usize| *frame < limit;
        let used: Vec<usize> = state.unused.extract_if(.., is_used).collect();
        state.release(frames.into_iter().flatten().chain(used));
        let granted = state.grant();
        drop(guard);
        wake(granted);
    }

    /// Takes a surplus frame, to give its memory back. Ends with [`end_use`](Self::end_use).
    pub fn take_surplus(&self) -> Option<usize> {
        shim::lock(&self.state).surplus.pop()
    }

    /// Returns a surplus frame whose memory was given back. It is free if the limit was raised
    /// meanwhile.
    pub fn end_use(&self, frame: usize) {
        let mut state = shim::lock(&self.state);
        match frame < state.limit {
            true => state.free.push(frame),
            false => state.unused.push(frame),
        }
        let granted = state.grant();
        drop(state);
        wake(granted);
    }

    /// Number of frames that are not used and have no memory.
    pub fn unused_count(&self) -> usize {
        shim::lock(&self.state).unused.len()
    }

    /// Number of surplus frames.
    pub fn surplus_count(&self) -> usize {
        shim::lock(&self.state).surplus.len()
    }

    /// Number of free frames.
    pub fn count(&self) -> usize {
        shim::lock(&self.state).free.len()
    }

    /// Number of frames that the threads that wait lack together; 0 if none waits.
    pub fn shortage(&self) -> usize {
        let state = shim::lock(&self.state);
        let wanted: usize = state.waiters.iter().map(|waiter| waiter.count).sum();
        wanted.saturating_sub(state.free.len())
    }

    /// Takes `count` frames, unless there are fewer or other threads wait for some. Never waits.
    pub fn try_take(&self, count: usize) -> Option<FrameList> {
        let mut state = shim::lock(&self.state);
        if !state.waiters.is_empty() || state.free.len() < count {
            return None;
        }
        Some(state.take(count))
    }

    /// Takes up to `most` frames; none while other threads wait for some. Never waits.
    pub fn take_at_most(&self, most: usize) -> FrameList {
        let mut state = shim::lock(&self.state);
        if !state.waiters.is_empty() {
            return FrameList::new();
        }
        let count = most.min(state.free.len());
        state.take(count)
    }

    /// Begins to wait for `count` frames, behind all threads that wait. Ends with
    /// [`wait`](Self::wait) or [`cancel`](Self::cancel).
    pub fn enqueue(&self, count: usize) -> FrameWait {
        let parker = Parker::new();
        let ticket = parker.arm();
        let waiter = Arc::new(FrameWaiter {
            count,
            parker,
            ticket,
            granted: Mutex::new(FrameList::new()),
        });
        let mut state = shim::lock(&self.state);
        state.waiters.push_back(waiter.clone());
        let granted = state.grant();
        drop(state);
        wake(granted);
        FrameWait(waiter)
    }

    /// Sleeps until the frames are there. `None`: the deadline passed first, and the thread still
    /// has its place in the queue.
    pub fn wait(&self, wait: &FrameWait, deadline: Option<Instant>) -> Option<FrameList> {
        let verdict = wait.0.parker.wait(wait.0.ticket, deadline);
        verdict.map(|_| std::mem::take(&mut *shim::lock(&wait.0.granted)))
    }

    /// Gives up a place in the queue. Frames that were granted are released.
    pub fn cancel(&self, wait: &FrameWait) {
        let mut state = shim::lock(&self.state);
        state.waiters.retain(|waiter| !Arc::ptr_eq(waiter, &wait.0));
        // No thread grants it any more: granting takes a waiter from the queue.
        let granted = std::mem::take(&mut *shim::lock(&wait.0.granted));
        state.release(granted);
        let granted = state.grant();
        drop(state);
        wake(granted);
    }

    /// Releases frames, and leaves `frames` empty.
    pub fn give(&self, frames: &mut FrameList) {
        if frames.is_empty() {
            return;
        }
        let mut state = shim::lock(&self.state);
        state.release(frames.drain(..));
        let granted = state.grant();
        drop(state);
        wake(granted);
    }
}

impl ReserveState {
    /// Makes frames free, or surplus (I4).
    fn release(&mut self, frames: impl IntoIterator<Item = usize>) {
        for frame in frames {
            match frame < self.limit {
                true => self.free.push(frame),
                false => self.surplus.push(frame),
            }
        }
    }

    fn take(&mut self, count: usize) -> FrameList {
        let rest = self.free.len() - count;
        self.free.drain(rest..).collect()
    }

    /// Grants frames to the first waiters, as far as frames suffice (I3). The caller wakes them.
    fn grant(&mut self) -> SmallVec<[Arc<FrameWaiter>; 2]> {
        let mut granted = SmallVec::new();
        while let Some(first) = self.waiters.front()
            && first.count <= self.free.len()
            && let Some(first) = self.waiters.pop_front()
        {
            *shim::lock(&first.granted) = self.take(first.count);
            granted.push(first);
        }
        granted
    }
}

fn wake(granted: SmallVec<[Arc<FrameWaiter>; 2]>) {
    for waiter in granted {
        if let Some(wake) = waiter.parker.resolve(waiter.ticket, GRANTED) {
            wake.wake();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn frames_are_granted_in_the_order_of_requests() {
        let reserve = FreeFrames::new(4);
        let mut all = reserve.try_take(4).expect("four");
        let (large, small) = (reserve.enqueue(3), reserve.enqueue(1));
        assert_eq!(reserve.shortage(), 4);
        let mut one: FrameList = all.drain(..1).collect();
        reserve.give(&mut one);
        let soon = || Some(Instant::now() + Duration::from_millis(1));
        assert!(reserve.wait(&large, soon()).is_none());
        assert!(
            reserve.wait(&small, soon()).is_none(),
            "the other was first"
        );
        assert!(reserve.try_take(1).is_none());
        reserve.give(&mut all);
        assert_eq!(
            reserve.wait(&large, None).map(|frames| frames.len()),
            Some(3)
        );
        assert_eq!(
            reserve.wait(&small, None).map(|frames| frames.len()),
            Some(1)
        );
        assert_eq!((reserve.count(), reserve.shortage()), (0, 0));
    }

    #[test]
    fn a_cancelled_wait_lets_the_next_pass() {
        let reserve = FreeFrames::new(2);
        let mut one = reserve.try_take(1).expect("two");
        let (large, small) = (reserve.enqueue(2), reserve.enqueue(1));
        reserve.cancel(&large);
        let mut other = reserve.wait(&small, None).expect("granted");
        reserve.give(&mut other);
        // Granted and then cancelled.
        let late = reserve.enqueue(1);
        reserve.cancel(&late);
        reserve.give(&mut one);
        assert_eq!(reserve.count(), 2);
    }
}

#[cfg(all(test, not(loom)))]
mod limit_tests {
    use super::*;

    #[test]
    fn frames_beyond_the_limit_are_not_taken() {
        let reserve = FreeFrames::with_limit(10, 4);
        assert_eq!((reserve.count(), reserve.unused_count()), (4, 6));
        assert!(reserve.try_take(5).is_none());
        reserve.set_limit(8);
        let mut all = reserve.try_take(6).expect("there are eight");
        let wait = reserve.enqueue(3);
        // Frames of the waiter and of the owner are beyond the new limit.
        reserve.set_limit(5);
        reserve.give(&mut all);
        let mut granted = reserve.wait(&wait, None).expect("five are left");
        assert!(granted.iter().all(|frame| *frame < 5), "{granted:?}");
        reserve.give(&mut granted);
        assert_eq!(
            (
                reserve.count(),
                reserve.surplus_count(),
                reserve.unused_count()
            ),
            (5, 3, 2)
        );
        let surplus = reserve.take_surplus().expect("three");
        assert!((5..8).contains(&surplus));
        // The limit is raised while a thread gives the memory back: the frame is its own so long.
        reserve.set_limit(10);
        assert_eq!(
            (
                reserve.count(),
                reserve.surplus_count(),
                reserve.unused_count()
            ),
            (9, 0, 0)
        );
        reserve.end_use(surplus);
        let mut frames: Vec<usize> = reserve.try_take(10).expect("all").into_vec();
        frames.sort_unstable();
        assert_eq!(frames, (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn raising_the_limit_serves_those_that_wait() {
        let reserve = FreeFrames::with_limit(10, 4);
        let wait = reserve.enqueue(6);
        reserve.set_limit(6);
        let granted = reserve.wait(&wait, None).expect("six");
        assert_eq!(granted.len(), 6);
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use foxton_sync::shim::thread;

    fn meet(count: usize, bodies: &'static [fn(&FreeFrames)]) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let reserve = Arc::new(FreeFrames::new(count));
            let others: Vec<_> = bodies[1..]
                .iter()
                .map(|body| {
                    let reserve = reserve.clone();
                    thread::spawn(move || body(&reserve))
                })
                .collect();
            bodies[0](&reserve);
            others.into_iter().for_each(|other| other.join().unwrap());
            assert_eq!((reserve.count(), reserve.shortage()), (count, 0));
        });
    }

    fn take_two(reserve: &FreeFrames) {
        let mut frames = reserve.try_take(2).unwrap_or_else(|| {
            let wait = reserve.enqueue(2);
            reserve.wait(&wait, None).expect("no deadline")
        });
        assert_eq!(frames.len(), 2);
        reserve.give(&mut frames);
    }

    fn take_one(reserve: &FreeFrames) {
        let wait = reserve.enqueue(1);
        let mut frames = reserve.wait(&wait, None).expect("no deadline");
        assert_eq!(frames.len(), 1);
        reserve.give(&mut frames);
    }

    fn give_up(reserve: &FreeFrames) {
        let wait = reserve.enqueue(2);
        reserve.cancel(&wait);
    }

    #[test]
    fn two_threads_that_need_all_frames_both_get_them() {
        meet(2, &[take_two, take_two]);
    }

    #[test]
    fn large_and_small_requests_are_all_served() {
        meet(2, &[take_two, take_one]);
    }

    #[test]
    fn a_cancelled_wait_loses_no_frame() {
        meet(2, &[take_two, give_up]);
    }
}
