//! Clients that are tasks: they wait as futures, and a thread that is no client watches for them.

use std::task::{Context, Poll};

use super::queue::QueuedClient;
use super::{AdmissionControl, GRANTED, SlotClaim, WAITING, WatchRecord};
use crate::shim::{self, Ordering};

impl AdmissionControl {
    /// As [`acquire`](Self::acquire), for a task. The claim keeps its place in the queue between
    /// polls; [`cancel`](Self::cancel) gives it up.
    ///
    /// `start_watch` is called when no thread watches for tasks: it has to make one call
    /// [`watch`](Self::watch) at each interval from now on (I2).
    ///
    /// ```
    /// use std::task::{Context, Poll, Waker};
    /// use foxton_sync::admission::{AdmissionControl, SlotClaim, WatchRecord};
    ///
    /// let (admission, context) = (AdmissionControl::new(1), Context::from_waker(Waker::noop()));
    /// let (mut first, mut second) = (SlotClaim::default(), SlotClaim::default());
    /// let mut must_watch = false;
    /// let mut poll = |claim: &mut SlotClaim| {
    ///     admission.poll_acquire(claim, &context, || must_watch = true)
    /// };
    /// assert!(poll(&mut first).is_ready());
    /// assert!(poll(&mut second).is_pending());
    ///
    /// admission.release(&mut first);
    /// // Its client does not return, so the watcher grants the slot to the other.
    /// let mut record = WatchRecord::default();
    /// while admission.watch(&mut record) {}
    /// assert!(poll(&mut second).is_ready() && second.has_slot());
    /// assert!(must_watch);
    /// ```
    ///
    /// # Panics
    ///
    /// If the claim has a slot.
    pub fn poll_acquire(
        &self,
        claim: &mut SlotClaim,
        context: &Context<'_>,
        start_watch: impl FnOnce(),
    ) -> Poll<u64> {
        let mut passed = 0;
        if claim.queued.is_none() {
            claim.counts.is_task = true;
            if let Some(passed) = self.try_acquire(claim) {
                return Poll::Ready(passed);
            }
            passed = 2;
            let client = QueuedClient::task();
            // Site: "admission".
            let mut queue = shim::lock(&self.queue);
            let was_watched = std::mem::replace(&mut queue.is_watched, true);
            claim.queued = Some((self.enqueue(queue, &client), client));
            if !was_watched {
                start_watch();
            }
            passed += self.grant_abandoned();
        }
        let word = match &claim.queued {
            Some((_, client)) => client.poll(context),
            None => WAITING,
        };
        if word == WAITING {
            return Poll::Pending;
        }
        claim.queued = None;
        claim.take(word);
        Poll::Ready(passed)
    }

    /// Ends the wait of a task: it leaves the queue, and passes on a slot that was granted to it
    /// meanwhile. Does nothing if it does not wait.
    #[inline]
    pub fn cancel(&self, claim: &mut SlotClaim) {
        if let Some((number, client)) = claim.queued.take() {
            self.leave(number, &client);
        }
    }

    #[cold]
    fn leave(&self, number: u64, client: &QueuedClient) {
        // Site: "admission".
        let mut queue = shim::lock(&self.queue);
        let was_waiting = queue.cancel(number);
        self.queue_length.store(queue.len(), Ordering::Relaxed);
        drop(queue);
        if !was_waiting && let Some(lane) = client.word().checked_sub(GRANTED) {
            self.grant_next(lane);
        }
    }

    /// Looks at the slots and the queue for the tasks that wait. Returns false once the queue is
    /// empty; the next task to come starts the watch again.
    pub fn watch(&self, record: &mut WatchRecord) -> bool {
        self.look(record);
        // Site: "admission".
        let mut queue = shim::lock(&self.queue);
        queue.is_watched = queue.len() > 0; // I2
        queue.is_watched
    }
}
