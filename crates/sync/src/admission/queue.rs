//! Those who wait for a seat, and who of them is next.
//!
//! Whoever hands a seat on is about to sleep itself, so the next best runs on the same processor: there it follows without
//! a wait, where on another it would be put behind, or before, somebody who is at work and holds locks, or wake a processor
//! that has just gone idle, which takes long on a virtual machine. So the first of the *near* that came from that
//! processor is taken, unless the first of all was passed that way often enough.
//!
//! # Invariants
//!
//! * I5  Between two times that the first of the line is taken, at most `MAX_OVERTAKES` others are.
//!
//! Why a place's word is Relaxed is said in [`admission`](super).

use std::collections::VecDeque;

use super::{WAITING, WATCHING};
use crate::shim::{Arc, AtomicU32, Ordering, thread};

/// Among so many of the line one of the right processor is looked for.
const NEARBY: usize = 16;
/// How often the first may be passed for that.
const MAX_OVERTAKES: u32 = 16;

/// One who waits.
pub(super) struct QueuedClient {
    /// Written under the line's mutex only.
    pub(super) word: AtomicU32,
    thread: thread::Thread,
    /// Where it ran when it came.
    processor: usize,
}

impl QueuedClient {
    /// A place for this thread.
    pub(super) fn new() -> Arc<QueuedClient> {
        Arc::new(QueuedClient {
            word: AtomicU32::new(WAITING),
            thread: thread::current(),
            processor: processor(),
        })
    }

    /// Best without the line's mutex: whoever is woken may take the processor at once.
    pub(super) fn wake(&self) {
        self.thread.unpark();
    }

    pub(super) fn set_word(&self, word: u32) {
        self.word.store(word, Ordering::Relaxed);
    }
}

/// The processor that this thread runs on at the moment, where the system says so.
pub(super) fn processor() -> usize {
    #[cfg(all(target_os = "linux", not(any(loom, shuttle, miri))))]
    return rustix::thread::sched_getcpu();
    #[cfg(not(all(target_os = "linux", not(any(loom, shuttle, miri)))))]
    return 0;
}

/// See the [module](self).
pub(super) struct SlotQueue {
    clients: VecDeque<Arc<QueuedClient>>,
    /// How many have left it.
    pub(super) departed: u64,
    /// How often the first was passed.
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
    /// First come, first seated, whatever the processor.
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

    /// Puts one at the end; who comes to an empty line watches (I2).
    pub(super) fn enqueue(&mut self, client: &Arc<QueuedClient>) {
        if self.clients.is_empty() {
            client.set_word(WATCHING);
        }
        self.clients.push_back(client.clone());
    }

    /// Who is next, if a seat comes from processor `here`.
    pub(super) fn nearest(&self, here: usize) -> usize {
        if self.overtaken >= MAX_OVERTAKES {
            return 0; // I5
        }
        let mut nearby = self.clients.iter().take(self.scan_length);
        nearby
            .position(|client| client.processor == here)
            .unwrap_or(0)
    }

    /// Takes one out of the line, and tells it with what; whoever calls this wakes it. If it watched, the last does
    /// now (I2), and is woken here: this happens once for everybody in line.
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
        // The next to be first has not been passed yet, and there is somebody behind it.
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
