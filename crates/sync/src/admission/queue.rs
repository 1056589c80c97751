//! The queue for slots, and the choice of the next client.
//!
//! A client that passes its slot on is about to sleep, so the best next client runs on the same
//! processor: there it continues without a wait. On another processor it would run after, or
//! before, a thread that works and holds locks, or wake a processor that has just gone idle, which
//! takes long on a virtual machine. So the first *nearby* client from that processor is taken,
//! unless the first of all was overtaken often enough.
//!
//! # Invariants
//!
//! * I5  Between two times that the first of the queue is taken, at most `MAX_OVERTAKES` others
//!   are.
//!
//! [`admission`](super) says why a client's word is Relaxed.

use std::collections::VecDeque;

use super::{WAITING, WATCHING};
use crate::shim::{Arc, AtomicU32, Ordering, thread};

/// Number of clients at the head of the queue among which one of the right processor is sought.
const NEARBY: usize = 16;
/// Maximum number of times that the first is overtaken for that.
const MAX_OVERTAKES: u32 = 16;

/// A waiting client.
pub(super) struct QueuedClient {
    /// Written under the queue's mutex only.
    pub(super) word: AtomicU32,
    thread: thread::Thread,
    /// Processor of its thread when it came.
    processor: usize,
}

impl QueuedClient {
    /// Returns an entry for this thread.
    pub(super) fn new() -> Arc<QueuedClient> {
        Arc::new(QueuedClient {
            word: AtomicU32::new(WAITING),
            thread: thread::current(),
            processor: processor(),
        })
    }

    /// Wakes its thread. Better called without the queue's mutex, because the woken thread may take
    /// the processor at once.
    pub(super) fn wake(&self) {
        self.thread.unpark();
    }

    pub(super) fn set_word(&self, word: u32) {
        self.word.store(word, Ordering::Relaxed);
    }
}

/// Returns the processor that this thread runs on now, where the system says so, and 0 elsewhere.
pub(super) fn processor() -> usize {
    #[cfg(all(target_os = "linux", not(any(loom, shuttle, miri))))]
    return rustix::thread::sched_getcpu();
    #[cfg(not(all(target_os = "linux", not(any(loom, shuttle, miri)))))]
    return 0;
}

/// See the [module](self).
pub(super) struct SlotQueue {
    clients: VecDeque<Arc<QueuedClient>>,
    /// Number of clients that have left the queue.
    pub(super) departed: u64,
    /// Number of times that the first was overtaken.
    overtaken: u32,
    scan_length: usize,
}

impl Default for SlotQueue {
    fn default() -> SlotQueue {
        SlotQueue {
            clients: VecDeque::new(),
            departed: 0,
            overtaken: 0,
            scan_length: NEARBY,
        }
    }
}

impl SlotQueue {
    /// A queue that ignores processors: first come, first served.
    #[cfg(test)]
    pub(super) fn fifo() -> SlotQueue {
        SlotQueue {
            scan_length: 1,
            ..SlotQueue::default()
        }
    }

    pub(super) fn len(&self) -> usize {
        self.clients.len()
    }

    /// Adds a client at the end. A client that comes to an empty queue watches (I2).
    pub(super) fn enqueue(&mut self, client: &Arc<QueuedClient>) {
        if self.clients.is_empty() {
            client.set_word(WATCHING);
        }
        self.clients.push_back(client.clone());
    }

    /// Index of the next client, if a slot comes from processor `here`.
    pub(super) fn nearest(&self, here: usize) -> usize {
        if self.overtaken >= MAX_OVERTAKES {
            return 0; // I5
        }
        let mut nearby = self.clients.iter().take(self.scan_length);
        nearby
            .position(|client| client.processor == here)
            .unwrap_or(0)
    }

    /// Removes a client and sets its word; the caller wakes it. If it watched, the last client
    /// becomes the watcher (I2) and is woken here, which happens once for all clients in the queue.
    pub(super) fn dequeue(&mut self, index: usize, word: u32) -> Option<Arc<QueuedClient>> {
        let client = self.clients.remove(index)?;
        self.departed += 1;
        self.overtaken = if index == 0 { 0 } else { self.overtaken + 1 }; // I5
        if client.word.load(Ordering::Relaxed) == WATCHING
            && let Some(last) = self.clients.back()
        {
            last.set_word(WATCHING);
            last.wake();
        }
        client.set_word(word);
        Some(client)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn queue_of(processors: &[usize]) -> SlotQueue {
        let mut queue = SlotQueue::default();
        for &processor in processors {
            queue.enqueue(&Arc::new(QueuedClient {
                word: AtomicU32::new(WAITING),
                thread: thread::current(),
                processor,
            }));
        }
        queue
    }

    #[test]
    fn the_first_from_the_processor_is_next_and_otherwise_the_first() {
        let queue = queue_of(&[1, 1, 0, 1, 0]);
        assert_eq!([0, 1, 2].map(|here| queue.nearest(here)), [2, 0, 0]);
    }

    #[test]
    fn only_the_nearby_part_of_the_queue_is_searched() {
        let mut processors = vec![1; NEARBY];
        processors.push(0);
        assert_eq!(queue_of(&processors).nearest(0), 0);
        processors.remove(0);
        assert_eq!(queue_of(&processors).nearest(0), NEARBY - 1);
    }

    #[test]
    fn the_first_is_overtaken_a_bounded_number_of_times() {
        let mut queue = queue_of(&[[1].as_slice(), &[0; 100]].concat());
        for _ in 0..MAX_OVERTAKES {
            let index = queue.nearest(0);
            assert_eq!(index, 1);
            queue.dequeue(index, WATCHING).unwrap();
        }
        assert_eq!(queue.nearest(0), 0);
        assert_eq!(queue.dequeue(0, WATCHING).unwrap().processor, 1);
        // The next to be first has not been overtaken yet, and there is one behind it.
        queue.clients[0] = queue_of(&[1]).clients.pop_front().unwrap();
        assert_eq!(queue.nearest(0), 1);
    }

    #[test]
    fn a_departing_watcher_appoints_the_last() {
        let mut queue = queue_of(&[0, 1, 1]);
        let words = |queue: &SlotQueue| -> Vec<u32> {
            let clients = queue.clients.iter();
            clients
                .map(|client| client.word.load(Ordering::Relaxed))
                .collect()
        };
        assert_eq!(words(&queue), [WATCHING, WAITING, WAITING]);
        queue.dequeue(1, super::super::GRANTED).unwrap();
        assert_eq!(words(&queue), [WATCHING, WAITING]);
        queue.dequeue(0, super::super::GRANTED).unwrap();
        assert_eq!((words(&queue), queue.departed), (vec![WATCHING], 2));
    }
}
